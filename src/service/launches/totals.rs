//! Totals of launches: of those that the store kept when the server started, and of all that ended since. Retention takes nothing
//! from them while the server runs, so that monitoring sees numbers that only grow.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::totals::{Total, TotalKey, Totals};
use crate::rows::launches;

use super::Launches;
use crate::service::ServiceError;

#[derive(Debug, Default)]
pub(in crate::service) struct TotalsBoard(Mutex<Totals>);

impl TotalsBoard {
    fn lock(&self) -> MutexGuard<'_, Totals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::service) fn add(&self, ended: Vec<(TotalKey, Total)>) {
        if !ended.is_empty() {
            let mut totals = self.lock();
            for (key, total) in ended {
                totals.add(key, total);
            }
        }
    }
}

impl Launches {
    /// Counts the launches of the store. Called once, before a launch can end.
    pub async fn count_ended_launches(&self) -> Result<(), ServiceError> {
        let kept = self.core.read(|tx| Ok(launches::totals(tx)?)).await?;
        *self.totals.lock() = kept.into_iter().collect();
        Ok(())
    }

    /// Returns the totals of launches that ended.
    pub fn totals(&self) -> Totals {
        self.totals.lock().clone()
    }
}
