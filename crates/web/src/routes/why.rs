//! `/projects/{project}/agents/{agent}/why`: the rules that let a pair start or keep it from
//! starting.

use axum::Json;
use axum::extract::State;

use super::forge::{blocked_items, waiting_body};
use crate::extract::InPath;
use crate::openapi::{Api, about};
use crate::{Problem, RestState};
use api::why::WhyBody;
use domain::{AgentId, ProjectId, Purpose};

pub(super) fn routes() -> Api {
    let text = "Each rule that allows or prevents the start of an agent in a project";
    Api::new().get(
        "/projects/{project}/agents/{agent}/why",
        why,
        about(text).gives::<Vec<WhyBody>>(),
    )
}

async fn why(
    State(state): State<RestState>,
    InPath((project, agent)): InPath<(ProjectId, AgentId)>,
) -> Result<Json<Vec<WhyBody>>, Problem> {
    let why = state.service.launches.why(&agent, &project).await?;
    let mut bodies: Vec<WhyBody> = why.into_iter().map(WhyBody::from).collect();
    if let Some(of_task) = bodies.iter_mut().find(|body| body.purpose == Purpose::Task) {
        let blocked = blocked_items(&state.service).into_iter();
        let blocked = blocked.filter(|it| it.project == project && it.agents.contains(&agent));
        of_task.blocked_items = blocked.map(waiting_body).collect();
    }
    Ok(Json(bodies))
}
