//! The snapshots of the directories of projects without clones.

use std::path::Path;
use std::sync::Arc;

use super::Workspaces;
use crate::{ServiceError, catalog};
use domain::workspace::Moment;
use domain::{AgentId, LaunchId, ProjectId, Refusal, Task};
use runtime::telemetry::ErrorChain;
use store::rows::{launches, tasks};
use workspace::{Checkouts, SnapshotEntry};

/// A snapshot of a project's directory, with the launch that it was taken for.
#[derive(Debug, Clone)]
pub struct SnapshotView {
    pub entry: SnapshotEntry,
    /// The agent of the launch; `None` if the launch is not known any more.
    pub agent: Option<AgentId>,
    /// The task that the launch worked on.
    pub task: Option<Task>,
}

impl Workspaces {
    /// Returns the snapshots of the directory of a project, the newest first.
    ///
    /// # Errors
    /// `ProjectNotFound`, `SnapshotFailed`.
    pub async fn snapshots(&self, id: &ProjectId) -> Result<Vec<SnapshotView>, ServiceError> {
        let checkouts = self.host_of_snapshots(id).await?;
        let found = checkouts.snapshots.snapshots(id).await;
        let found = found.map_err(|error| snapshot_failed(id, ErrorChain(&error).to_string()))?;
        let read = self.core.read(move |tx| {
            let ids: Vec<LaunchId> = found.iter().map(|entry| entry.launch.clone()).collect();
            let launches = launches::list_of_ids(tx, &ids)?;
            let of_launches = launches.values().filter_map(|launch| launch.task.clone());
            let tasks = tasks::list_of_ids(tx, of_launches)?;
            let view = |entry: SnapshotEntry| {
                let launch = launches.get(&entry.launch);
                let task = launch.and_then(|launch| tasks.get(launch.task.as_ref()?).cloned());
                let agent = launch.map(|launch| launch.key.agent.clone());
                SnapshotView { entry, agent, task }
            };
            Ok::<_, ServiceError>(found.iter().cloned().map(view).collect())
        });
        read.await
    }

    /// Writes the files of a snapshot into `to` on this host. The folder must be new or empty.
    ///
    /// # Errors
    /// `ProjectNotFound`, `SnapshotFailed`.
    pub async fn restore_snapshot(
        &self,
        id: &ProjectId,
        launch: &LaunchId,
        moment: Moment,
        to: &Path,
    ) -> Result<(), ServiceError> {
        let checkouts = self.host_of_snapshots(id).await?;
        let restored = checkouts.snapshots.restore_snapshot(id, launch, moment, to).await;
        Ok(restored.map_err(|error| snapshot_failed(id, ErrorChain(&error).to_string()))?)
    }

    async fn host_of_snapshots(&self, id: &ProjectId) -> Result<&Arc<Checkouts>, ServiceError> {
        let project = id.clone();
        self.core.read(move |tx| catalog::project(tx, &project)).await?;
        let elsewhere = "only a coordinator in the server's process (`run`) takes snapshots";
        Ok(self.checkouts.get().ok_or_else(|| snapshot_failed(id, elsewhere.to_owned()))?)
    }
}

fn snapshot_failed(project: &ProjectId, reason: String) -> Refusal {
    Refusal::SnapshotFailed { project: project.clone(), reason }
}
