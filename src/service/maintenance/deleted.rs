//! Removes what people deleted, after that cannot be undone any more.

use crate::domain::removal::Deletion;
use crate::domain::{LaunchId, ProjectId, Removable};
use crate::rows::{Transaction, creation_digests, deletions, launches, workspaces};
use crate::store::{LaunchFilter, StoreError};
use crate::telemetry::{ErrorChain, counters};

use super::Maintenance;
use crate::instance_dir;
use crate::service::ServiceError;

/// The number of launches in one transaction, so that other calls do not wait long for the store.
const PAGE: usize = 200;

impl Maintenance {
    /// Removes what was deleted longer than `retention.deleted` ago, and returns how many things
    /// that were. Cancel-safe: what is not removed yet is removed the next time.
    pub(super) async fn forget_deleted(&self) -> Result<u64, ServiceError> {
        let now = self.clocks.now_by_age();
        let read = self.core.read(move |tx| {
            Ok((deletions::list_over(tx, now)?, deletions::has_empty_workspaces(tx)?))
        });
        let (over, has_empty_workspaces) = read.await?;
        let mut n_forgotten = 0;
        for of in over {
            if let Removable::Project(project) = &of {
                self.forget_launches_of(project).await?;
            }
            let forgotten = self.core.write(move |tx| {
                // An undo may have come first.
                match deletions::find(tx, &of)?.filter(|found| found.undo_until < now) {
                    Some(deletion) => Ok(forget(tx, &deletion).map(|()| true)?),
                    None => Ok(false),
                }
            });
            match forgotten.await {
                Ok(is_forgotten) => n_forgotten += u64::from(is_forgotten),
                // The others are not kept because of it.
                Err(error) => {
                    let error = ErrorChain(&error);
                    tracing::warn!(%error, "could not remove something that was deleted");
                }
            }
        }
        if has_empty_workspaces {
            self.core.write(|tx| Ok(deletions::forget_workspaces(tx)?)).await?;
        }
        counters::FORGOTTEN.add_many("deleted", n_forgotten);
        Ok(n_forgotten)
    }

    async fn forget_launches_of(&self, project: &ProjectId) -> Result<(), ServiceError> {
        loop {
            let filter = LaunchFilter {
                project: Some(project.clone()),
                only_ended: true,
                limit: PAGE,
                ..LaunchFilter::default()
            };
            let of = Removable::Project(project.clone());
            let forgotten = self.core.write(move |tx| {
                if !deletions::exists(tx, &of)? {
                    return Ok(Vec::new());
                }
                let page = launches::list(tx, &filter)?;
                let ids: Vec<LaunchId> = page.into_iter().map(|launch| launch.id).collect();
                ids.iter().try_for_each(|id| launches::forget(tx, id))?;
                Ok(ids)
            });
            let forgotten = forgotten.await?;
            let is_last = forgotten.len() < PAGE;
            self.remove_output(forgotten).await;
            if is_last {
                return Ok(());
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

/// Removes what a deletion left in the other tables, and its rows. The coordinator removes the
/// files of workspaces.
fn forget(tx: &mut Transaction<'_>, deletion: &Deletion) -> Result<(), StoreError> {
    let now = tx.now();
    for task in &deletion.content.tasks {
        deletions::forget_task(tx, &task.id)?;
        creation_digests::forget(tx, &Removable::Task(task.id.clone()))?;
        for workspace in workspaces::list_of_task(tx, &task.id)? {
            let orphan = workspace.clone().orphaned(now);
            if orphan != workspace {
                workspaces::put(tx, &orphan)?;
            }
        }
    }
    deletions::forget_chats(tx, &deletion.of)?;
    creation_digests::forget(tx, &deletion.of)?;
    deletions::forget(tx, &deletion.of)
}
