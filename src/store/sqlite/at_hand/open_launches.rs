//! The open launches as the newest commit left them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::id::LaunchId;
use crate::domain::{InstanceKey, Launch, LaunchState};
use crate::store::{Change, Commit};

/// `None` until they were read, and after a commit of which nobody knows whether it was made.
#[derive(Debug, Default)]
pub(in super::super) struct OpenLaunches(Mutex<Option<BTreeMap<LaunchId, Launch>>>);

impl OpenLaunches {
    fn lock(&self) -> MutexGuard<'_, Option<BTreeMap<LaunchId, Launch>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in super::super) fn are_known(&self) -> bool {
        self.lock().is_some()
    }

    /// By claim time, then id.
    pub(in super::super) fn list(&self) -> Option<Vec<Launch>> {
        let mut launches: Vec<Launch> = self.lock().as_ref()?.values().cloned().collect();
        launches.sort_by(|a, b| (a.claimed_at, &a.id).cmp(&(b.claimed_at, &b.id)));
        Some(launches)
    }

    /// `None` also for one that is not open.
    pub(in super::super) fn find(&self, id: &LaunchId) -> Option<Launch> {
        self.lock().as_ref()?.get(id).cloned()
    }

    /// Whose it is; `None` also for one that is not open.
    pub(in super::super) fn key_of(&self, id: &LaunchId) -> Option<InstanceKey> {
        self.lock().as_ref()?.get(id).map(|launch| launch.key.clone())
    }

    pub(in super::super) fn set(&self, launches: Vec<Launch>) {
        *self.lock() =
            Some(launches.into_iter().map(|launch| (launch.id.clone(), launch)).collect());
    }

    pub(in super::super) fn forget(&self) {
        *self.lock() = None;
    }

    /// Takes over what was committed, in its order.
    pub(in super::super) fn note<'a>(&self, commits: impl IntoIterator<Item = &'a Commit>) {
        let mut launches = self.lock();
        let Some(launches) = launches.as_mut() else {
            return;
        };
        for change in commits.into_iter().flat_map(|commit| &commit.changes) {
            let Change::Launch(launch) = change else {
                continue;
            };
            if matches!(launch.state, LaunchState::Ended { .. }) {
                launches.remove(&launch.id);
            } else {
                let written = Launch { revision: launch.revision + 1, ..launch.clone() };
                launches.insert(launch.id.clone(), written);
            }
        }
    }
}
