//! `/apply`: agents, projects and tasks in one request.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use crate::extract::InBody;
use crate::openapi::{Api, about};
use crate::{FieldProblem, Problem, RestState};
use config::manifest::Wanted;
use service::{Applied, ApplyError};

pub(super) fn routes() -> Api {
    let text = "Creates and changes projects, agents and tasks as a manifest lists them";
    Api::new().post("/apply", apply, about(text).takes::<Wanted>().gives::<Vec<Applied>>())
}

async fn apply(
    State(state): State<RestState>,
    InBody(wanted): InBody<Wanted>,
) -> Result<Json<Vec<Applied>>, Problem> {
    let applied = state.service.catalog.apply(&wanted).await?;
    let n_changed = applied.iter().filter(|entry| entry.what.is_change()).count();
    tracing::info!(n_entries = applied.len(), n_changed, "manifest applied");
    Ok(Json(applied))
}

impl From<ApplyError> for Problem {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::Service(error) => error.into(),
            ApplyError::Problems(problems) => {
                let places = problems.into_iter().map(|problem| {
                    let mut path = format!("{}.{}", problem.section(), problem.of.id());
                    if let Some((key, index)) = problem.field {
                        path = format!("{path}.{key}");
                        path.extend(index.map(|index| format!(".{index}")));
                    }
                    FieldProblem { path, message: problem.message }
                });
                let places: Vec<FieldProblem> = places.collect();
                let detail = places
                    .iter()
                    .map(|place| format!("{}: {}", place.path, place.message))
                    .collect::<Vec<_>>()
                    .join("; ");
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                Self::new(status, "invalid_manifest", detail).with_problems(places)
            }
        }
    }
}
