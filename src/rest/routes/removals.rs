//! Archiving and deleting tasks, agents and projects.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::agents::AgentBody;
use super::projects::ProjectBody;
use super::tasks::TaskBody;
use crate::domain::removal::{Affected, AffectedKind, RemovableKind};
use crate::domain::words::words;
use crate::domain::{AgentId, ProjectId, Refusal, Removable, TaskId, Timestamp};
use crate::rest::api::{Api, about};
use crate::rest::extract::{InPath, InQuery, InTask};
use crate::rest::{Problem, RestState};
use crate::service::{ArchivedTasks, RemovalView};

words! {
    /// Whether a list has what is archived.
    pub enum Archived as "choice" {
        No = "no",
        Only = "only",
        All = "all",
    }
}

impl Archived {
    /// Returns whether the list has a thing that is archived or not.
    pub(super) const fn has(this: Option<Self>, is_archived: bool) -> bool {
        match this {
            None | Some(Self::No) => !is_archived,
            Some(Self::Only) => is_archived,
            Some(Self::All) => true,
        }
    }

    pub(super) const fn of_tasks(this: Option<Self>) -> ArchivedTasks {
        match this {
            None | Some(Self::No) => ArchivedTasks::LeftOut,
            Some(Self::Only) => ArchivedTasks::Only,
            Some(Self::All) => ArchivedTasks::Included,
        }
    }
}

/// The choice of agents or projects to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ArchivedQuery {
    /// `no` without it.
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
    /// The last time at which `undelete` brings it back; absent before it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo_until: Option<Timestamp>,
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

impl From<RemovalView> for DeletionBody {
    fn from(view: RemovalView) -> Self {
        Self {
            kind: view.of.kind(),
            id: view.of.id().to_owned(),
            name: view.name,
            what: view.what,
            affected: view.affected.into_iter().map(AffectedBody::from).collect(),
            refused: view.refusal.as_ref().map(ToString::to_string),
            hint: view.refusal.as_ref().and_then(Refusal::hint).map(str::to_owned),
            refused_code: view.refusal.map(|refusal| refusal.code().to_owned()),
            undo_until: view.undo_until,
        }
    }
}

pub(super) fn routes() -> Api {
    let previewed = || about("What deleting it takes along").query::<DeletionQuery>();
    let deletes = |summary| about(summary).query::<DeletionQuery>().gives::<DeletionBody>();
    Api::new()
        .get("/tasks/{id}/deletion", preview::<InTask>, previewed().gives::<DeletionBody>())
        .delete("/tasks/{id}", delete::<InTask>, deletes("Deletes a task that has ended"))
        .post(
            "/tasks/{id}/undelete",
            undelete_task,
            about("Undoes the deletion of a task").gives::<TaskBody>(),
        )
        .post("/tasks/{id}/archive", archive_task, about("Archives a task").gives::<TaskBody>())
        .post(
            "/tasks/{id}/unarchive",
            unarchive_task,
            about("Shows an archived task again").gives::<TaskBody>(),
        )
        .get(
            "/agents/{id}/deletion",
            preview::<InPath<AgentId>>,
            previewed().gives::<DeletionBody>(),
        )
        .delete(
            "/agents/{id}",
            delete::<InPath<AgentId>>,
            deletes("Deletes an agent that does not work"),
        )
        .post(
            "/agents/{id}/undelete",
            undelete_agent,
            about("Undoes the deletion of an agent").gives::<AgentBody>(),
        )
        .post(
            "/agents/{id}/archive",
            archive_agent,
            about("Archives an agent").gives::<AgentBody>(),
        )
        .post(
            "/agents/{id}/unarchive",
            unarchive_agent,
            about("Shows an archived agent again, which is active then").gives::<AgentBody>(),
        )
        .get(
            "/projects/{project}/deletion",
            preview::<InPath<ProjectId>>,
            previewed().gives::<DeletionBody>(),
        )
        .delete(
            "/projects/{project}",
            delete::<InPath<ProjectId>>,
            deletes("Deletes a project that has ended"),
        )
        .post(
            "/projects/{project}/undelete",
            undelete_project,
            about("Undoes the deletion of a project").gives::<ProjectBody>(),
        )
        .post(
            "/projects/{project}/archive",
            archive_project,
            about("Archives a project").gives::<ProjectBody>(),
        )
        .post(
            "/projects/{project}/unarchive",
            unarchive_project,
            about("Shows an archived project again, which is active then").gives::<ProjectBody>(),
        )
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
    Ok(Json(state.service.removals.preview(&place.into(), discards).await?.into()))
}

async fn delete<P: Into<Removable>>(
    State(state): State<RestState>,
    place: P,
    InQuery(query): InQuery<DeletionQuery>,
) -> Result<Json<DeletionBody>, Problem> {
    let of = place.into();
    let view = state.service.removals.delete(&of, query.discard.unwrap_or(false)).await?;
    tracing::info!(kind = %of.kind(), id = of.id(), name = view.name, "deleted");
    Ok(Json(view.into()))
}

async fn undelete_task(
    State(state): State<RestState>,
    InPath(id): InPath<TaskId>,
) -> Result<Json<TaskBody>, Problem> {
    let id = state.service.removals.full_id(id).await?;
    state.service.removals.undelete(&Removable::Task(id.clone())).await?;
    tracing::info!(task_id = %id, "deletion undone");
    task_body(&state, &id).await
}

async fn archive_task(
    State(state): State<RestState>,
    InTask(id): InTask,
) -> Result<Json<TaskBody>, Problem> {
    state.service.removals.archive(&Removable::Task(id.clone())).await?;
    tracing::info!(task_id = %id, "task archived");
    task_body(&state, &id).await
}

async fn unarchive_task(
    State(state): State<RestState>,
    InTask(id): InTask,
) -> Result<Json<TaskBody>, Problem> {
    state.service.removals.unarchive(&Removable::Task(id.clone())).await?;
    tracing::info!(task_id = %id, "task unarchived");
    task_body(&state, &id).await
}

async fn task_body(state: &RestState, id: &TaskId) -> Result<Json<TaskBody>, Problem> {
    Ok(Json(state.service.tasks.view(id).await?.task.into()))
}

async fn undelete_agent(
    State(state): State<RestState>,
    InPath(id): InPath<AgentId>,
) -> Result<Json<AgentBody>, Problem> {
    state.service.removals.undelete(&Removable::Agent(id.clone())).await?;
    tracing::info!(agent_id = %id, "deletion undone");
    agent_body(&state, &id).await
}

async fn archive_agent(
    State(state): State<RestState>,
    InPath(id): InPath<AgentId>,
) -> Result<Json<AgentBody>, Problem> {
    state.service.removals.archive(&Removable::Agent(id.clone())).await?;
    tracing::info!(agent_id = %id, "agent archived");
    agent_body(&state, &id).await
}

async fn unarchive_agent(
    State(state): State<RestState>,
    InPath(id): InPath<AgentId>,
) -> Result<Json<AgentBody>, Problem> {
    state.service.removals.unarchive(&Removable::Agent(id.clone())).await?;
    tracing::info!(agent_id = %id, "agent unarchived");
    agent_body(&state, &id).await
}

async fn agent_body(state: &RestState, id: &AgentId) -> Result<Json<AgentBody>, Problem> {
    Ok(Json(state.service.catalog.agent(id).await?.into()))
}

async fn undelete_project(
    State(state): State<RestState>,
    InPath(id): InPath<ProjectId>,
) -> Result<Json<ProjectBody>, Problem> {
    state.service.removals.undelete(&Removable::Project(id.clone())).await?;
    tracing::info!(project_id = %id, "deletion undone");
    project_body(&state, &id).await
}

async fn archive_project(
    State(state): State<RestState>,
    InPath(id): InPath<ProjectId>,
) -> Result<Json<ProjectBody>, Problem> {
    state.service.removals.archive(&Removable::Project(id.clone())).await?;
    tracing::info!(project_id = %id, "project archived");
    project_body(&state, &id).await
}

async fn unarchive_project(
    State(state): State<RestState>,
    InPath(id): InPath<ProjectId>,
) -> Result<Json<ProjectBody>, Problem> {
    state.service.removals.unarchive(&Removable::Project(id.clone())).await?;
    tracing::info!(project_id = %id, "project unarchived");
    project_body(&state, &id).await
}

async fn project_body(state: &RestState, id: &ProjectId) -> Result<Json<ProjectBody>, Problem> {
    Ok(Json(state.service.catalog.project(id).await?.into()))
}
