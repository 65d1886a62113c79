//! Removes the launches of deleted projects with their output, and the rows of workspaces of deleted
//! tasks.

use domain::{LaunchId, ProjectId};
use runtime::telemetry::counters;
use store::LaunchFilter;
use store::rows::{deletions, launches};

use super::Maintenance;
use crate::ServiceError;
use machine::instance_dir;

/// The number of launches in one transaction, so that other calls do not wait long for the store.
const PAGE: usize = 200;

impl Maintenance {
    /// Removes what deletions left, and returns the number of removed launches. Cancel-safe: what is
    /// not removed yet is removed the next time.
    pub(super) async fn forget_deleted(&self) -> Result<u64, ServiceError> {
        let read = self.core.read(|tx| {
            Ok((deletions::list_with_launches(tx)?, deletions::has_empty_workspaces(tx)?))
        });
        let (projects, has_empty_workspaces) = read.await?;
        let mut n_forgotten = 0;
        for project in projects {
            n_forgotten += self.forget_launches_of(&project).await?;
        }
        if has_empty_workspaces {
            self.core.write(|tx| Ok(deletions::forget_workspaces(tx)?)).await?;
        }
        counters::FORGOTTEN.add_many("launch", n_forgotten);
        Ok(n_forgotten)
    }

    /// Removes the launches of a deleted project, and returns their number.
    async fn forget_launches_of(&self, project: &ProjectId) -> Result<u64, ServiceError> {
        let mut n_forgotten = 0;
        loop {
            let project = project.clone();
            let forgotten = self.core.write(move |tx| {
                let filter = LaunchFilter {
                    project: Some(project.clone()),
                    only_ended: true,
                    limit: PAGE,
                    ..LaunchFilter::default()
                };
                let page = launches::list(tx, &filter)?;
                let ids: Vec<LaunchId> = page.into_iter().map(|launch| launch.id).collect();
                ids.iter().try_for_each(|id| launches::forget(tx, id))?;
                if ids.len() < PAGE {
                    deletions::note_without_launches(tx, &project)?;
                }
                Ok(ids)
            });
            let forgotten = forgotten.await?;
            let is_last = forgotten.len() < PAGE;
            n_forgotten += forgotten.len() as u64;
            self.remove_output(forgotten).await;
            if is_last {
                return Ok(n_forgotten);
            }
        }
    }

    /// Removes the output files of launches that are on this host. Files on another host go
    /// with `retention.output`.
    async fn remove_output(&self, launches: Vec<LaunchId>) {
        let state_dir = self.core.settings().state_dir.clone();
        let removed = tokio::task::spawn_blocking(move || {
            for launch in launches {
                let folder = instance_dir::ended_instance(&state_dir, &launch);
                match std::fs::remove_dir_all(folder) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        tracing::warn!(
                            launch_id = %launch,
                            %error,
                            "could not remove the output of a deleted project"
                        );
                    }
                    _ => {}
                }
            }
        });
        // A panic was reported where it happened.
        let _ = removed.await;
    }
}
