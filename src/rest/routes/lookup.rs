//! `/lookup`: what a person names.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use crate::domain::lookup::{Candidate, LookupKind};
use crate::rest::api::{Api, about};
use crate::rest::extract::InQuery;
use crate::rest::{Problem, RestState};

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

pub(super) fn routes() -> Api {
    let text = "The agents, projects or tasks that a text names; one if it is unambiguous";
    Api::new().get(
        "/lookup",
        look_up,
        about(text).query::<LookupQuery>().gives::<Vec<LookupBody>>(),
    )
}

async fn look_up(
    State(state): State<RestState>,
    InQuery(query): InQuery<LookupQuery>,
) -> Result<Json<Vec<LookupBody>>, Problem> {
    let found = state.service.look_up(query.kind, &query.text).await?;
    Ok(Json(found.into_iter().map(LookupBody::from).collect()))
}
