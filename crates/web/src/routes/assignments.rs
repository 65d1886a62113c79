//! `/assignments` and `/projects/{project}/agents/{agent}`: the agents of the projects.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use crate::extract::{InPath, InQuery};
use crate::openapi::{Api, about};
use crate::{Problem, RestState};
use api::assignments::{AssignmentBody, AssignmentQuery};
use domain::{AgentId, Assignment, ProjectId};
use service::ProjectEdit;

pub(super) fn routes() -> Api {
    let both = "/projects/{project}/agents/{agent}";
    Api::new()
        .get(
            "/assignments",
            list,
            about("Who works where").query::<AssignmentQuery>().gives::<Vec<AssignmentBody>>(),
        )
        .put(both, assign, about("Lets an agent work in a project").gives::<AssignmentBody>())
        .delete(both, unassign, about("Ends the work of an agent in a project"))
}

async fn list(
    State(state): State<RestState>,
    InQuery(query): InQuery<AssignmentQuery>,
) -> Result<Json<Vec<AssignmentBody>>, Problem> {
    let is_wanted = |assignment: &Assignment| {
        query.agent.as_ref().is_none_or(|agent| *agent == assignment.agent)
            && query.project.as_ref().is_none_or(|project| *project == assignment.project)
    };
    let assignments = state.service.catalog.assignments().await?.into_iter().filter(is_wanted);
    let body =
        |Assignment { project, agent }| AssignmentBody { project_id: project, agent_id: agent };
    Ok(Json(assignments.map(body).collect()))
}

async fn assign(
    State(state): State<RestState>,
    InPath((project, agent)): InPath<(ProjectId, AgentId)>,
) -> Result<Json<AssignmentBody>, Problem> {
    let edit = ProjectEdit { assign: vec![agent.clone()], ..ProjectEdit::default() };
    state.service.catalog.set_project(&project, &edit).await?;
    tracing::info!(project_id = %project, agent_id = %agent, "agent assigned");
    Ok(Json(AssignmentBody { project_id: project, agent_id: agent }))
}

/// Removes an assignment. A running agent is told to end. Repeating the call changes nothing.
async fn unassign(
    State(state): State<RestState>,
    InPath((project, agent)): InPath<(ProjectId, AgentId)>,
) -> Result<StatusCode, Problem> {
    state.service.catalog.agent(&agent).await?;
    let edit = ProjectEdit { unassign: vec![agent.clone()], ..ProjectEdit::default() };
    state.service.catalog.set_project(&project, &edit).await?;
    tracing::info!(project_id = %project, agent_id = %agent, "agent unassigned");
    Ok(StatusCode::NO_CONTENT)
}
