//! `/tasks`.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::{Extension, Json};

use super::creation_status;
use super::workspaces::workspace_body;
use crate::conditional::{Revision, SeenRevision};
use crate::extract::{InBody, InQuery, InTask};
use crate::openapi::{Api, about};
use crate::page::{Page, limit_of};
use crate::{Problem, RestState};
use api::comments::CommentBody;
use api::events::EventBody;
use api::removals::Archived;
use api::tasks::{
    CheckBody, ConversationBody, ExecutionBody, NewTaskRequest, TaskBody, TaskDetail,
    TaskHistoryQuery, TaskQuery, TaskRequest,
};
use api::waiting::WaitingBody;
use domain::{ProjectId, Refusal, Sent, TaskId, TaskStatus};
use service::{ArchivedTasks, NewTask, ServiceError, Standings, TaskEdit, TaskFilter, TaskView};

async fn detail_of(state: &RestState, view: TaskView) -> Result<TaskDetail, Problem> {
    let standings = Standings::read(&state.service, std::slice::from_ref(&view.task)).await?;
    let waiting = standings.waiting(&view.task).as_ref().map(WaitingBody::from);
    let starts_after = view.starts_after().map(|other| other.id.clone()).collect();
    let workspace = match state.service.workspaces.with_revert(&view.task.id).await {
        Ok(found) => Some(workspace_body(found)),
        Err(ServiceError::Refused(Refusal::NoWorkspace { .. })) => None,
        Err(error) => return Err(error.into()),
    };
    let item = state.service.forge_items.of_task(&view.task.id).await?;
    let publication = item.and_then(|item| item.publication);
    let request = publication.and_then(|it| it.request.or(it.foreign_request));
    let done_by = state.service.tasks.done_by(&view.task).await?;
    let project = view.task.project.clone();
    let mut task = TaskBody::from(view.task);
    add_merge_steps(state, Some(&project), std::slice::from_mut(&mut task)).await?;
    Ok(TaskDetail {
        workspace,
        request_url: request.map(|request| request.url),
        waiting,
        done_by,
        starts_after,
        task,
        subtasks: view.subtasks.into_iter().map(TaskBody::from).collect(),
        depends_on: view.dependencies.into_iter().map(TaskBody::from).collect(),
        executions: view.executions.into_iter().map(ExecutionBody::from).collect(),
        checks: view.checks.into_iter().map(CheckBody::from).collect(),
        comments: view.comments.into_iter().map(CommentBody::from).collect(),
        conversations: view.conversations.into_iter().map(ConversationBody::from).collect(),
    })
}

const fn archived_tasks(archived: Option<Archived>) -> ArchivedTasks {
    match archived {
        None | Some(Archived::No) => ArchivedTasks::LeftOut,
        Some(Archived::Only) => ArchivedTasks::Only,
        Some(Archived::All) => ArchivedTasks::Included,
    }
}

/// Adds to finished tasks what a person does next with their results.
async fn add_merge_steps(
    state: &RestState,
    project: Option<&ProjectId>,
    tasks: &mut [TaskBody],
) -> Result<(), Problem> {
    if tasks.iter().any(|task| task.status == TaskStatus::Done) {
        let steps = state.service.workspaces.merge_steps(project).await?;
        for task in tasks {
            task.to_merge = steps.get(&task.id).copied();
        }
    }
    Ok(())
}

pub(super) fn routes() -> Api {
    Api::new()
        .get(
            "/tasks",
            list,
            about("Tasks, the oldest first").query::<TaskQuery>().gives::<Vec<TaskBody>>(),
        )
        .post(
            "/tasks",
            add,
            about("Makes a task").takes::<NewTaskRequest>().makes_once::<TaskDetail>(),
        )
        .get(
            "/tasks/{id}",
            show,
            about("A task with its subtasks and dependencies").gives::<TaskDetail>(),
        )
        .patch(
            "/tasks/{id}",
            set,
            about("Changes a task").takes::<TaskRequest>().gives::<TaskDetail>(),
        )
        .post(
            "/tasks/{id}/fresh",
            fresh,
            about("Lets the next launch on a task begin its conversation afresh")
                .gives::<TaskDetail>(),
        )
        .get(
            "/tasks/{id}/history",
            history,
            about("The history of a task").query::<TaskHistoryQuery>().gives::<Vec<EventBody>>(),
        )
}

async fn list(
    State(state): State<RestState>,
    InQuery(query): InQuery<TaskQuery>,
    raw: RawQuery,
) -> Result<Page<TaskBody>, Problem> {
    let parent = match query.parent {
        Some(parent) => Some(state.service.tasks.full_id(parent).await?),
        None => None,
    };
    let cursor = match query.cursor {
        Some(cursor) => Some(state.service.tasks.full_id(cursor).await?),
        None => None,
    };
    let filter = TaskFilter {
        project: query.project,
        assignee: query.assignee,
        status: query.status,
        parent,
        only_open: false,
        archived: archived_tasks(query.archived),
    };
    let tasks = match &query.q {
        Some(_) if cursor.is_some() => {
            let detail = "a search has no further pages, because the best tasks change: \
                raise `limit`, or leave it out";
            return Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_query", detail));
        }
        Some(q) => {
            let mut found = state.service.tasks.list_found(&filter, q).await?;
            found.truncate(query.limit.map_or(Ok(usize::MAX), |limit| limit_of(Some(limit)))?);
            found
        }
        None => state.service.tasks.list(&filter).await?,
    };
    let mut tasks: Vec<TaskBody> = tasks.into_iter().map(TaskBody::from).collect();
    add_merge_steps(&state, filter.project.as_ref(), &mut tasks).await?;
    Page::cut(tasks, query.limit, cursor.as_ref().map(TaskId::as_str), raw, |task: &TaskBody| {
        task.id.to_string()
    })
}

async fn show(
    State(state): State<RestState>,
    InTask(id): InTask,
) -> Result<(Extension<Revision>, Json<TaskDetail>), Problem> {
    let view = state.service.tasks.view(&id).await?;
    let revision = Revision(view.task.revision);
    Ok((Extension(revision), Json(detail_of(&state, view).await?)))
}

async fn history(
    State(state): State<RestState>,
    InTask(id): InTask,
    InQuery(query): InQuery<TaskHistoryQuery>,
    raw: RawQuery,
) -> Result<Page<EventBody>, Problem> {
    let limit = limit_of(query.limit)?;
    let events = state.service.tasks.history(&id, query.cursor.unwrap_or(0), limit + 1).await?;
    Ok(Page::of(events, limit, raw, |event| event.seq.to_string()).map(EventBody::from))
}

async fn add(
    State(state): State<RestState>,
    InBody(request): InBody<NewTaskRequest>,
) -> Result<(StatusCode, Json<TaskDetail>), Problem> {
    // A repeated request may name a task that was deleted meanwhile.
    let removals = &state.service.removals;
    let mut new = NewTask::from(request);
    for id in new.parent.iter_mut().chain(&mut new.dependencies) {
        *id = removals.full_id(id.clone()).await?;
    }
    let sent = state.service.tasks.add(&new).await?;
    let status = creation_status(&sent);
    if let Sent::First(view) = &sent {
        tracing::info!(task_id = %view.task.id, project_id = %view.task.project, status = %view.task.status, "task added");
    }
    Ok((status, Json(detail_of(&state, sent.thing()).await?)))
}

async fn fresh(
    State(state): State<RestState>,
    InTask(id): InTask,
) -> Result<Json<TaskDetail>, Problem> {
    state.service.tasks.begin_afresh(&id).await?;
    tracing::info!(task_id = %id, "the next launch begins its conversation afresh");
    Ok(Json(detail_of(&state, state.service.tasks.view(&id).await?).await?))
}

async fn set(
    State(state): State<RestState>,
    InTask(id): InTask,
    SeenRevision(seen): SeenRevision,
    InBody(request): InBody<TaskRequest>,
) -> Result<Json<TaskDetail>, Problem> {
    let tasks = &state.service.tasks;
    let mut edit = TaskEdit { seen, ..request.into() };
    if let Some(Some(parent)) = &mut edit.parent {
        *parent = tasks.full_id(parent.clone()).await?;
    }
    if let Some(ids) = edit.dependencies.take() {
        edit.dependencies = Some(tasks.full_ids(ids).await?);
    }
    let view = tasks.set(&id, &edit).await.map_err(|error| match error {
        ServiceError::Refused(refusal @ Refusal::SubtasksOpen { .. }) => {
            let hint =
                "finish them first, or cancel them with it: `cancelSubtasks` (`--cancel-subtasks`)";
            Problem::from(refusal).at("cancelSubtasks").with_hint(Some(hint))
        }
        error => error.into(),
    })?;
    tracing::info!(task_id = %id, project_id = %view.task.project, status = %view.task.status, "task changed");
    Ok(Json(detail_of(&state, view).await?))
}
