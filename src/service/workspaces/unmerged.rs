//! The results of finished tasks that wait for a person.

use std::collections::BTreeMap;

use crate::domain::workspace::{MergeStep, UnmergedResult};
use crate::domain::{ProjectId, TaskId};
use crate::rows::{forge_items, tasks, workspaces};
use crate::service::ServiceError;
use crate::store::{Read, StoreError};

use super::Workspaces;

impl Workspaces {
    /// Returns the tasks whose results wait for a person, of all projects or of one, each with the
    /// next step.
    pub async fn merge_steps(
        &self,
        project: Option<&ProjectId>,
    ) -> Result<BTreeMap<TaskId, MergeStep>, ServiceError> {
        let project = project.cloned();
        let results = self.core.read(move |tx| Ok(list_unmerged(tx, project.as_ref())?)).await?;
        Ok(results.into_iter().map(|result| (result.task.id, result.step)).collect())
    }
}

/// Returns the results of finished tasks that wait for a person.
pub(in crate::service) fn list_unmerged(
    tx: &mut Read<'_>,
    project: Option<&ProjectId>,
) -> Result<Vec<UnmergedResult>, StoreError> {
    let mut results = Vec::new();
    for workspace in workspaces::list_unmerged(tx, project)? {
        let Some(task) = tasks::get(tx, &workspace.task)? else { continue };
        if workspace.merge_step(&task, false).is_none() {
            continue;
        }
        let item = forge_items::find_of_task(tx, &task.id)?;
        let publication = item.and_then(|item| item.publication);
        let is_at_forge = publication.is_some_and(|it| it.reaches_forge());
        if let Some(step) = workspace.merge_step(&task, is_at_forge) {
            results.push(UnmergedResult { workspace, task, step });
        }
    }
    Ok(results)
}
