//! The facts about a workspace that its hooks get.

use super::{Workspaces, keep_order};
use crate::ServiceError;
use domain::WorkspaceId;
use domain::workspace::{HookFacts, RemoveOrder, WorkspaceState};
use store::rows::{agents, tasks, workspaces};

impl Workspaces {
    /// Returns the facts about a workspace that its hooks get; `None` if it is not known.
    pub async fn hook_facts(&self, id: &WorkspaceId) -> Result<Option<HookFacts>, ServiceError> {
        let id = id.clone();
        self.core
            .read(move |tx| {
                let Some(workspace) = workspaces::get(tx, &id)? else {
                    return Ok(None);
                };
                let agent = tasks::get(tx, &workspace.task)?.and_then(|task| task.assignee);
                let known = match &agent {
                    Some(agent) => agents::get(tx, agent)?,
                    None => None,
                };
                let was_used = workspace.state == WorkspaceState::InUse;
                let content = workspace.content.clone().unwrap_or_default();
                let removal = RemoveOrder {
                    keep: keep_order(&workspace, agent.as_ref()),
                    proof: content.proof.unwrap_or_default(),
                    kept_commit: content.kept_commit,
                };
                Ok(Some(HookFacts {
                    id: workspace.id,
                    project: workspace.project,
                    task: workspace.task,
                    agent,
                    ai_type: known.map(|agent| agent.ai_type),
                    base_commit: workspace.base_commit,
                    ended_launch: workspace.launch.filter(|_| was_used),
                    removal,
                    left_out: content.left_out,
                }))
            })
            .await
    }
}
