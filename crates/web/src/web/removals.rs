//! The dialog that asks before something is archived or deleted, and what it does.

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;

use super::layout::{Frame, rendered};
use crate::extract::{InForm, InPath, parsed};
use crate::{Problem, RestState};
use domain::{Removable, RemovableKind};

/// The action of a button of the dialog.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DialogAction {
    Archive,
    Unarchive,
    Delete,
}

#[derive(Template)]
#[template(path = "parts/removal.html")]
struct RemovalPart {
    frame: Frame,
    kind: RemovableKind,
    id: String,
    /// The short id of a task with its title, or the name of the thing.
    name: String,
    affected: Vec<String>,
    /// The reason why it cannot be deleted.
    refused: Option<String>,
    /// It could be deleted if its work was given up.
    may_discard: bool,
    is_archived: bool,
    /// The page to go to when the thing is gone.
    back: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeedFields {
    #[serde(default)]
    discard: bool,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/parts/removals/{kind}/{id}", get(ask))
        .route("/ui/do/removals/{kind}/{id}/{deed}", post(act))
}

fn removable(kind: RemovableKind, id: &str) -> Result<Removable, Problem> {
    Ok(match kind {
        RemovableKind::Task => Removable::Task(parsed("id", id)?),
        RemovableKind::Agent => Removable::Agent(parsed("id", id)?),
        RemovableKind::Project => Removable::Project(parsed("id", id)?),
    })
}

async fn ask(
    frame: Frame,
    State(state): State<RestState>,
    InPath((kind, id)): InPath<(RemovableKind, String)>,
) -> Result<Response, Problem> {
    let of = removable(kind, &id)?;
    let view = state.service.removals.preview(&of, false).await?;
    let (is_archived, name, back) = match &of {
        Removable::Task(id) => {
            let task = state.service.tasks.view(id).await?.task;
            let name = format!("{} {}", task.short_id, task.title);
            (task.archived_at.is_some(), name, format!("/ui/projects/{}", task.project))
        }
        Removable::Agent(id) => {
            let agent = state.service.catalog.agent(id).await?;
            (agent.is_archived(), agent.name, "/ui/agents".to_owned())
        }
        Removable::Project(id) => {
            let (project, _) = state.service.catalog.project(id).await?;
            let is_archived = project.is_archived();
            (is_archived, project.name, "/ui/projects".to_owned())
        }
    };
    let w = frame.w;
    let refused =
        view.refusal.map(|refusal| (refusal.code(), w.of_refusal(&refusal, refusal.to_string())));
    let may_discard = refused.as_ref().is_some_and(|(code, _)| *code == "unmerged_work");
    let affected = view.affected.iter().map(|affected| w.of_affected(affected)).collect();
    let refused = refused.map(|(_, text)| text);
    Ok(rendered(&RemovalPart {
        frame,
        kind,
        id,
        name,
        affected,
        refused,
        may_discard,
        is_archived,
        back,
    }))
}

async fn act(
    State(state): State<RestState>,
    InPath((kind, id, deed)): InPath<(RemovableKind, String, DialogAction)>,
    InForm(fields): InForm<DeedFields>,
) -> Result<StatusCode, Problem> {
    let of = removable(kind, &id)?;
    let removals = &state.service.removals;
    match deed {
        DialogAction::Archive => removals.archive(&of).await?,
        DialogAction::Unarchive => removals.unarchive(&of).await?,
        DialogAction::Delete => drop(removals.delete(&of, fields.discard).await?),
    }
    tracing::info!(%kind, id, action = ?deed, "done on a page");
    Ok(StatusCode::NO_CONTENT)
}
