//! Totals of launches: the launches that the store had when the server started, and all that ended
//! since. Retention does not reduce them while the server runs, so that monitoring sees numbers
//! that only grow.

use std::sync::{Mutex, MutexGuard};

use domain::totals::{Totals, of_ended};
use domain::{Launch, Usage};
use machine::locks::lock;
use store::rows::launch_spend;

use super::Launches;
use crate::ServiceError;

#[derive(Debug, Default)]
pub(crate) struct TotalsBoard(Mutex<Totals>);

impl TotalsBoard {
    fn lock(&self) -> MutexGuard<'_, Totals> {
        lock(&self.0)
    }

    /// Returns the usage of all these launches.
    pub(crate) fn usage(&self) -> Usage {
        let all = self.lock();
        all.iter().fold(Usage::default(), |sum, (_, total)| sum.plus(total.usage))
    }

    /// Adds a launch that has ended.
    pub(crate) fn add(&self, launch: &Launch) {
        if let Some((key, total)) = of_ended(launch) {
            self.lock().add(key, total);
        }
    }
}

impl Launches {
    /// Counts the launches of the store. Called once, before a launch can end.
    pub async fn count_ended_launches(&self) -> Result<(), ServiceError> {
        let kept = self.core.read(|tx| Ok(launch_spend::totals(tx)?)).await?;
        *self.heard.totals.lock() = kept.into_iter().collect();
        Ok(())
    }

    /// Returns the totals of launches that ended.
    pub fn totals(&self) -> Totals {
        self.heard.totals.lock().clone()
    }
}
