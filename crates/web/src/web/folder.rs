//! The facts about a folder that is to become the directory of a project, as a form shows them
//! while its path is typed. Only those who may make a project get them: they tell what is on the
//! machine.

use std::path::{Path, PathBuf};

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::layout::{Frame, rendered};
use super::words::Words;
use crate::extract::{InPath, InQuery};
use crate::{Problem, RestState};
use domain::ProjectId;
use domain::workspace::{Folder, WorkspaceMode};

/// The line of a form about a folder.
pub(super) struct FolderLine {
    pub(super) text: String,
    pub(super) is_usable: bool,
    pub(super) detail_in_english: Option<String>,
}

#[derive(Template)]
#[template(path = "parts/folder_line.html")]
struct FolderPart {
    frame: Frame,
    folder: Option<FolderLine>,
}

#[derive(Template)]
#[template(path = "parts/workspace_choice.html")]
struct WorkspaceChoice {
    frame: Frame,
    modes: &'static [WorkspaceMode],
    /// The mode that suits the folder.
    proposed: WorkspaceMode,
    folder: Option<FolderLine>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DirectoryQuery {
    #[serde(default)]
    working_directory: PathBuf,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/parts/projects/{project}/folder", get(of_project))
        .route("/ui/parts/projects/workspace", get(choose_workspace))
}

impl FolderLine {
    fn of(w: &'static Words, folder: &Folder) -> Self {
        let detail_in_english = match folder {
            Folder::Failed(reason) => Some(reason.clone()),
            Folder::InRepository(repository) => repository.no_clones.clone(),
            _ => None,
        };
        Self { text: w.of_folder(folder), is_usable: folder.is_usable(), detail_in_english }
    }
}

/// Looks at a folder for a reader who may know about it.
async fn look(frame: &Frame, state: &RestState, directory: &Path) -> Option<Folder> {
    if !frame.may_change() || directory.as_os_str().is_empty() {
        return None;
    }
    state.service.catalog.look_at(directory).await
}

/// Returns the facts about the directory of a project.
async fn of_project(
    frame: Frame,
    State(state): State<RestState>,
    InPath(id): InPath<ProjectId>,
) -> Result<Response, Problem> {
    let (project, _) = state.service.catalog.project(&id).await?;
    let folder = look(&frame, &state, &project.working_directory).await;
    let folder = folder.map(|folder| FolderLine::of(frame.w, &folder));
    Ok(rendered(&FolderPart { frame, folder }))
}

/// Returns the facts about a folder, and the choice of a workspace that suits it: clones in a git
/// repository.
async fn choose_workspace(
    frame: Frame,
    State(state): State<RestState>,
    InQuery(DirectoryQuery { working_directory }): InQuery<DirectoryQuery>,
) -> Response {
    let folder = look(&frame, &state, &working_directory).await;
    let has_clones = folder.as_ref().is_some_and(Folder::suits_clones);
    rendered(&WorkspaceChoice {
        modes: WorkspaceMode::ALL,
        proposed: if has_clones { WorkspaceMode::Clone } else { WorkspaceMode::Shared },
        folder: folder.map(|folder| FolderLine::of(frame.w, &folder)),
        frame,
    })
}
