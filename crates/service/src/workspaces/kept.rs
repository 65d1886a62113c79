//! Waits until the work of finished tasks is kept.

use std::time::Duration;

use crate::core::Core;
use crate::{ServiceError, catalog};
use domain::workspace::WorkspaceState;
use domain::{Project, Refusal, Task, TaskId, Workspace};
use store::Read;

use super::{Workspaces, find, refused};

/// The longest time for which a request waits until the work of a finished task is kept. The page
/// waits a minute for an answer.
const LONGEST_KEEPING: Duration = Duration::from_secs(50);
/// The pause between two looks at it.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits until the work of a task is kept, if the task is finished and has a workspace of its own.
/// For a task that does not exist it returns at once.
async fn until_kept(core: &Core, id: &TaskId) -> Result<(), ServiceError> {
    let id = id.clone();
    until_none_is_kept(core, move |tx| match find(tx, &id) {
        Ok((workspace, task)) => Ok(waits(&workspace, &task)),
        Err(ServiceError::Refused(Refusal::TaskNotFound { .. } | Refusal::NoWorkspace { .. })) => {
            Ok(false)
        }
        Err(error) => Err(error),
    })
    .await
}

/// Waits while `is_being_kept` says that the work of a finished task is being kept. It waits at
/// most [`LONGEST_KEEPING`], because an agent may stay although its task is done.
pub(crate) async fn until_none_is_kept<F>(core: &Core, is_being_kept: F) -> Result<(), ServiceError>
where
    F: FnMut(&mut Read<'_>) -> Result<bool, ServiceError> + Clone + Send + 'static,
{
    let wait = async || {
        while core.read(is_being_kept.clone()).await? {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    };
    tokio::time::timeout(LONGEST_KEEPING, wait()).await.unwrap_or(Ok(()))
}

fn waits(workspace: &Workspace, task: &Task) -> bool {
    let is_over = workspace.task == task.id && !task.status.is_open();
    workspace.state == WorkspaceState::InUse && is_over
}

impl Workspaces {
    /// Waits until the work of a finished task is kept, at most `LONGEST_KEEPING`. A task without a
    /// workspace of its own has nothing to wait for.
    pub async fn until_kept(&self, id: &TaskId) -> Result<(), ServiceError> {
        if self.checkouts.get().is_none() {
            return Ok(());
        }
        until_kept(&self.core, id).await
    }

    /// Returns the workspace of a task when the work of a finished task is kept.
    ///
    /// # Errors
    /// `TaskNotFound`, `NoWorkspace`; `WorkspaceFailed` if it waited in vain, or if this server has
    /// no clones.
    pub(super) async fn find_kept(
        &self,
        id: &TaskId,
    ) -> Result<(Workspace, Task, Project), ServiceError> {
        self.until_kept(id).await?;
        let found = self.find_with_project(id).await?;
        let (workspace, task, _) = &found;
        if !waits(workspace, task) {
            return Ok(found);
        }
        self.host(task)?;
        let reason = workspace.reason.as_ref().map(|reason| format!(": {reason}"));
        let reason = reason.unwrap_or_default();
        Err(refused(task, format!("it is not kept yet{reason}; try again later")).into())
    }

    pub(super) async fn find_with_project(
        &self,
        id: &TaskId,
    ) -> Result<(Workspace, Task, Project), ServiceError> {
        let id = id.clone();
        self.core
            .read(move |tx| {
                let (workspace, task) = find(tx, &id)?;
                let project = catalog::project(tx, &workspace.project)?;
                Ok((workspace, task, project))
            })
            .await
    }
}
