//! Totals of launches: of those that the store kept when the server started, and of all that ended since. Retention takes nothing
//! from them while the server runs, so that monitoring sees numbers that only grow.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::LaunchId;
use crate::domain::totals::{Total, TotalKey, Totals, of_ended};
use crate::store::Change;

use super::{Service, ServiceError};

#[derive(Debug, Default)]
pub(super) struct TotalsBoard(Mutex<Totals>);

impl TotalsBoard {
    fn lock(&self) -> MutexGuard<'_, Totals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, ended: Vec<(TotalKey, Total)>) {
        if !ended.is_empty() {
            let mut totals = self.lock();
            for (key, total) in ended {
                totals.add(key, total);
            }
        }
    }
}

/// Returns the launches that end with a commit: its events tell a launch that ends from one that has ended before.
pub(super) fn ending_with(changes: &[Change]) -> Vec<(TotalKey, Total)> {
    let ending = changes.iter().filter_map(|change| match change {
        Change::Event(event) if event.kind == "launch.ended" => event.launch.as_ref(),
        _ => None,
    });
    let launch_of = |id: &LaunchId| {
        changes.iter().find_map(|change| match change {
            Change::Launch(launch) if launch.id == *id => of_ended(launch),
            _ => None,
        })
    };
    ending.filter_map(launch_of).collect()
}

impl Service {
    /// Counts the launches of the store. Called once, before a launch can end.
    pub async fn count_ended_launches(&self) -> Result<(), ServiceError> {
        let kept = self.store.totals().await?.into_iter().collect();
        *self.totals.lock() = kept;
        Ok(())
    }

    /// Returns the totals of launches that ended.
    pub fn totals(&self) -> Totals {
        self.totals.lock().clone()
    }
}
