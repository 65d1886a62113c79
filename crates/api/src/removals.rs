//! Archiving and deleting tasks, agents and projects.

use serde::{Deserialize, Serialize};

use domain::removal::{Affected, AffectedKind, RemovableKind};
use domain::words::words;

words! {
    /// The part of a list by what is archived.
    pub enum Archived as "choice" {
        No = "no",
        Only = "only",
        All = "all",
    }
}

impl Archived {
    /// Returns whether the list has a thing that is archived or not.
    pub const fn has(this: Option<Self>, is_archived: bool) -> bool {
        match this {
            None | Some(Self::No) => !is_archived,
            Some(Self::Only) => is_archived,
            Some(Self::All) => true,
        }
    }
}

/// The choice of agents or projects to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ArchivedQuery {
    /// The default is `no`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived: Option<Archived>,
}

/// The choices of a deletion.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeletionQuery {
    /// `true` gives up work that is not merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discard: Option<bool>,
}

/// The things that a deletion would take along, or has taken along.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletionBody {
    pub kind: RemovableKind,
    pub id: String,
    pub name: String,
    /// Its name in sentences, such as `Task SHOP-12`.
    pub what: String,
    pub affected: Vec<AffectedBody>,
    /// The reason why it cannot be deleted now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The code of this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_code: Option<String>,
    /// The way out of this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Things of one kind that a deletion takes along or touches.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AffectedBody {
    pub kind: AffectedKind,
    pub count: usize,
    /// The names of the first ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

impl From<Affected> for AffectedBody {
    fn from(Affected { kind, count, names }: Affected) -> Self {
        Self { kind, count, names }
    }
}
