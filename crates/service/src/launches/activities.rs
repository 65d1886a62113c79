//! The newest report of coordinators about each running agent, in memory.
//!
//! It is stored with the end of the launch, in the same commit. Until then, the coordinator reports
//! it again to the next run of the server.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use domain::{Activity, Execution, Failure, Launch, LaunchId, Usage};
use store::rows::{accounts, launches};

use super::Launches;
use super::accounts::note_report;
use crate::ServiceError;

/// The newest report about each open launch that has one.
#[derive(Debug, Default)]
pub(crate) struct Activities(Mutex<BTreeMap<LaunchId, Activity>>);

impl Activities {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<LaunchId, Activity>> {
        machine::locks::lock(&self.0)
    }

    /// Returns the usage of all these launches.
    pub(crate) fn usage(&self) -> Usage {
        let all = self.lock();
        all.values().fold(Usage::default(), |sum, activity| sum.plus(activity.usage))
    }

    pub(crate) fn keep_only(&self, is_open: impl Fn(&LaunchId) -> bool) {
        self.lock().retain(|launch, _| is_open(launch));
    }

    /// Returns the present failure of a launch.
    pub(crate) fn failure_of(&self, launch: &LaunchId) -> Option<Failure> {
        self.lock().get(launch)?.failure
    }

    pub(crate) fn forget(&self, launch: &LaunchId) {
        self.lock().remove(launch);
    }
}

impl Launches {
    /// Stores a newer report about an agent. A report about an ended or unknown launch changes
    /// nothing.
    pub async fn report_activity(
        &self,
        id: &LaunchId,
        newer: Activity,
    ) -> Result<(), ServiceError> {
        let progress = newer.progress.map(|progress| self.core.redacted(&progress).into_owned());
        let newer = Activity { progress, ..newer };
        let known = self.heard.activities.lock().get(id).map(|known| known.failure);
        let is_open = if known == Some(newer.failure) {
            true
        } else {
            // The account of the launch follows before the report counts as known.
            self.note_failure(id, newer.failure).await?
        };
        if is_open {
            let mut activities = self.heard.activities.lock();
            let earlier = activities.get(id).cloned().unwrap_or_default();
            let newest = newer.after(earlier.clone());
            if newest != earlier {
                self.waiting.reports.wake();
            }
            activities.insert(id.clone(), newest);
        }
        Ok(())
    }

    /// Notes the effect of the present failure of a launch on its account. Returns whether the
    /// launch is open.
    async fn note_failure(
        &self,
        id: &LaunchId,
        failure: Option<Failure>,
    ) -> Result<bool, ServiceError> {
        let parking = self.core.settings().parking;
        let of = id.clone();
        let now = self.core.now();
        // Most reports change nothing, and do not use the only writer.
        let found = self.core.read(move |tx| {
            let Some(launch) = launches::get(tx, &of)?.filter(Launch::is_open) else {
                return Ok(None);
            };
            let before = accounts::get(tx, &launch.ai_type)?;
            let is_news = before.clone().after_report(&launch, failure, now, parking) != before;
            Ok(Some(is_news))
        });
        let is_news = found.await?;
        if is_news == Some(true) {
            let of = id.clone();
            let note = self.core.write(move |tx| {
                if let Some(launch) = launches::get(tx, &of)?.filter(Launch::is_open) {
                    note_report(tx, &launch, failure, parking)?;
                }
                Ok(())
            });
            note.await?;
        }
        Ok(is_news.is_some())
    }
}

impl Activities {
    /// Returns the launch with what coordinators reported of it.
    pub(crate) fn with_newest(&self, launch: Launch) -> Launch {
        match self.lock().get(&launch.id) {
            Some(newest) if launch.is_open() => {
                Launch { activity: newest.clone().after(launch.activity.clone()), ..launch }
            }
            _ => launch,
        }
    }

    /// Returns the execution with what coordinators reported of its launch, if it goes on.
    pub(crate) fn execution_with_newest(&self, execution: Execution) -> Execution {
        match self.lock().get(&execution.launch) {
            Some(newest) if execution.outcome.is_none() => {
                Execution { usage: newest.usage, failure: newest.failure, ..execution }
            }
            _ => execution,
        }
    }
}
