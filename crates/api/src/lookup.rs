//! `/lookup`: what a person names.

use serde::{Deserialize, Serialize};

use domain::lookup::{Candidate, Completion, LookupKind};

/// A text that names something.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LookupQuery {
    pub kind: LookupKind,
    /// An id, the beginning of one, a short id, the key of a project, or the name of an agent or a
    /// project.
    pub text: String,
}

/// Something that a text names.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LookupBody {
    pub id: String,
    /// The short id of a task, or the key of a project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_id: Option<String>,
    /// The name of an agent or a project, or the title of a task.
    pub name: String,
}

impl From<Candidate> for LookupBody {
    fn from(candidate: Candidate) -> Self {
        Self { id: candidate.id, short_id: candidate.short_id, name: candidate.name }
    }
}

/// A text that a beginning of it may become.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompletionBody {
    /// A short id, a name, a key or an id, which names one thing.
    pub text: String,
    /// The name of an agent or a project, or the title of a task.
    pub name: String,
}

impl From<Completion> for CompletionBody {
    fn from(completion: Completion) -> Self {
        Self { text: completion.text, name: completion.name }
    }
}
