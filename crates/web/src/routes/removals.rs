//! Archiving and deleting tasks, agents and projects.

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use crate::extract::{InPath, InQuery, InTask};
use crate::openapi::{Api, about};
use crate::{Problem, RestState};
use api::agents::AgentBody;
use api::projects::ProjectBody;
use api::removals::{AffectedBody, DeletionBody, DeletionQuery};
use api::tasks::TaskBody;
use domain::{AgentId, Language, ProjectId, Refusal, Removable, TaskId};
use service::RemovalView;

fn body_of(view: RemovalView) -> DeletionBody {
    let hint = view.refusal.as_ref().and_then(|refusal| refusal.hint(Language::English));
    DeletionBody {
        kind: view.of.kind(),
        id: view.of.id().to_owned(),
        name: view.name,
        what: view.what,
        affected: view.affected.into_iter().map(AffectedBody::from).collect(),
        refused: view.refusal.as_ref().map(ToString::to_string),
        hint: hint.map(str::to_owned),
        refused_code: view.refusal.map(|refusal| refusal.code().to_owned()),
    }
}

/// The path of an agent.
type Agent = InPath<AgentId>;

/// The path of a project.
type Project = InPath<ProjectId>;

pub(super) fn routes() -> Api {
    let previewed = || about("What deleting it takes along").query::<DeletionQuery>();
    let deletes = |summary| about(summary).query::<DeletionQuery>().gives::<DeletionBody>();
    let of_task = |summary| about(summary).gives::<TaskBody>();
    let of_agent = |summary| about(summary).gives::<AgentBody>();
    let of_project = |summary| about(summary).gives::<ProjectBody>();
    Api::new()
        .get("/tasks/{id}/deletion", preview::<InTask>, previewed().gives::<DeletionBody>())
        .delete("/tasks/{id}", delete::<InTask>, deletes("Deletes a task that has ended"))
        .post(
            "/tasks/{id}/undelete",
            undelete::<InPath<TaskId>>,
            about("Is refused with 410: a deletion is final, and an archived task can come back"),
        )
        .post("/tasks/{id}/archive", archive::<InTask>, of_task("Archives a task"))
        .post("/tasks/{id}/unarchive", unarchive::<InTask>, of_task("Shows an archived task again"))
        .get("/agents/{id}/deletion", preview::<Agent>, previewed().gives::<DeletionBody>())
        .delete("/agents/{id}", delete::<Agent>, deletes("Deletes an agent that does not work"))
        .post(
            "/agents/{id}/undelete",
            undelete::<Agent>,
            about("Is refused with 410: a deletion is final, and an archived agent can come back"),
        )
        .post("/agents/{id}/archive", archive::<Agent>, of_agent("Archives an agent"))
        .post(
            "/agents/{id}/unarchive",
            unarchive::<Agent>,
            of_agent("Shows an archived agent again, with the status that it had before"),
        )
        .get(
            "/projects/{project}/deletion",
            preview::<Project>,
            previewed().gives::<DeletionBody>(),
        )
        .delete(
            "/projects/{project}",
            delete::<Project>,
            deletes("Deletes a project that has ended"),
        )
        .post(
            "/projects/{project}/undelete",
            undelete::<Project>,
            about(
                "Is refused with 410: a deletion is final, and an archived project can come back",
            ),
        )
        .post("/projects/{project}/archive", archive::<Project>, of_project("Archives a project"))
        .post(
            "/projects/{project}/unarchive",
            unarchive::<Project>,
            of_project("Shows an archived project again, with the status that it had before"),
        )
}

impl From<InPath<TaskId>> for Removable {
    fn from(InPath(id): InPath<TaskId>) -> Self {
        Self::Task(id)
    }
}

impl From<InTask> for Removable {
    fn from(InTask(id): InTask) -> Self {
        Self::Task(id)
    }
}

impl From<InPath<AgentId>> for Removable {
    fn from(InPath(id): InPath<AgentId>) -> Self {
        Self::Agent(id)
    }
}

impl From<InPath<ProjectId>> for Removable {
    fn from(InPath(id): InPath<ProjectId>) -> Self {
        Self::Project(id)
    }
}

async fn preview<P: Into<Removable>>(
    State(state): State<RestState>,
    place: P,
    InQuery(query): InQuery<DeletionQuery>,
) -> Result<Json<DeletionBody>, Problem> {
    let discards = query.discard.unwrap_or(false);
    Ok(Json(body_of(state.service.removals.preview(&place.into(), discards).await?)))
}

async fn delete<P: Into<Removable>>(
    State(state): State<RestState>,
    place: P,
    InQuery(query): InQuery<DeletionQuery>,
) -> Result<Json<DeletionBody>, Problem> {
    let of = place.into();
    let view = state.service.removals.delete(&of, query.discard.unwrap_or(false)).await?;
    tracing::info!(kind = %of.kind(), id = of.id(), name = view.name, "task, agent or project deleted");
    Ok(Json(body_of(view)))
}

/// Refuses what earlier versions did for a while after a deletion.
async fn undelete<P: Into<Removable>>(place: P) -> Problem {
    let of = place.into();
    Refusal::DeletionIsFinal { kind: of.kind(), id: of.id().to_owned() }.into()
}

async fn archive<P: Into<Removable>>(
    State(state): State<RestState>,
    place: P,
) -> Result<Json<ThingBody>, Problem> {
    let of = place.into();
    state.service.removals.archive(&of).await?;
    tracing::info!(kind = %of.kind(), id = of.id(), "task, agent or project archived");
    ThingBody::read(&state, &of).await
}

async fn unarchive<P: Into<Removable>>(
    State(state): State<RestState>,
    place: P,
) -> Result<Json<ThingBody>, Problem> {
    let of = place.into();
    state.service.removals.unarchive(&of).await?;
    tracing::info!(kind = %of.kind(), id = of.id(), "task, agent or project unarchived");
    ThingBody::read(&state, &of).await
}

/// A thing as the routes of its kind show it.
#[derive(Serialize)]
#[serde(untagged)]
enum ThingBody {
    Task(TaskBody),
    Agent(AgentBody),
    Project(ProjectBody),
}

impl ThingBody {
    async fn read(state: &RestState, of: &Removable) -> Result<Json<Self>, Problem> {
        let service = &state.service;
        Ok(Json(match of {
            Removable::Task(id) => Self::Task(service.tasks.view(id).await?.task.into()),
            Removable::Agent(id) => Self::Agent(service.catalog.agent(id).await?.into()),
            Removable::Project(id) => Self::Project(service.catalog.project(id).await?.into()),
        }))
    }
}
