//! The newest report of coordinators about each running agent, in memory.
//!
//! It is stored with the next change of the launch, and with its end at the latest, in the same
//! commit. The first report of a day that adds usage also stores the usage of the day before. After
//! a crash, the coordinator reports the whole usage again to the next run of the server. Only the
//! day of usage that was not stored may then be a later one.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use domain::spend::{Day, Register};
use domain::{Activity, Execution, Failure, Launch, LaunchId, Usage};
use store::rows::{accounts, launch_spend, launches};

use super::Launches;
use super::accounts::note_report;
use crate::ServiceError;

/// The newest report about a launch.
#[derive(Debug, Clone)]
struct Report {
    activity: Activity,
    /// The day in which its usage was received.
    day: Day,
}

impl Report {
    /// Returns the report after a newer one, which was received on the day `today`.
    fn followed_by(self, newer: Activity, today: Day) -> Self {
        let activity = newer.after(self.activity.clone());
        let has_grown = activity.usage != self.activity.usage;
        Self { day: if has_grown { self.day.max(today) } else { self.day }, activity }
    }

    const fn register(&self) -> Register {
        Register { day: self.day, usage: self.activity.usage }
    }
}

/// The newest report about each open launch that has one.
#[derive(Debug, Default)]
pub(crate) struct Activities(Mutex<BTreeMap<LaunchId, Report>>);

impl Activities {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<LaunchId, Report>> {
        machine::locks::lock(&self.0)
    }

    /// Returns the usage of all these launches.
    pub(crate) fn usage(&self) -> Usage {
        let all = self.lock();
        all.values().fold(Usage::default(), |sum, report| sum.plus(report.activity.usage))
    }

    pub(crate) fn keep_only(&self, is_open: impl Fn(&LaunchId) -> bool) {
        self.lock().retain(|launch, _| is_open(launch));
    }

    /// Returns the present failure of a launch.
    pub(crate) fn failure_of(&self, launch: &LaunchId) -> Option<Failure> {
        self.lock().get(launch)?.activity.failure
    }

    /// Returns the usage of a launch as it was reported, with the day in which it was received.
    pub(crate) fn register_of(&self, launch: &LaunchId) -> Option<Register> {
        self.lock().get(launch).map(Report::register)
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
        let known = self.heard.activities.lock().get(id).map(|known| known.activity.failure);
        let is_open = if known == Some(newer.failure) {
            true
        } else {
            // The account of the launch follows before the report counts as known.
            self.note_failure(id, newer.failure).await?
        };
        if is_open {
            let today = Day::of(self.core.now());
            self.close_day(id, &newer, today).await?;
            let mut activities = self.heard.activities.lock();
            let first = || Report { activity: Activity::default(), day: today };
            let earlier = activities.get(id).cloned().unwrap_or_else(first);
            let newest = earlier.clone().followed_by(newer, today);
            if newest.activity != earlier.activity {
                self.waiting.reports.wake();
            }
            activities.insert(id.clone(), newest);
        }
        Ok(())
    }

    /// Stores the usage of a launch until the end of an earlier day, if `newer` is the first report
    /// after it that adds usage.
    async fn close_day(
        &self,
        id: &LaunchId,
        newer: &Activity,
        today: Day,
    ) -> Result<(), ServiceError> {
        let known = self.heard.activities.lock().get(id).cloned();
        let Some(known) = known else { return Ok(()) };
        if known.clone().followed_by(newer.clone(), today).day == known.day {
            return Ok(());
        }
        let of = id.clone();
        let close = self.core.write(move |tx| {
            if launches::get(tx, &of)?.is_some_and(|launch| launch.is_open()) {
                launch_spend::raise(tx, &of, known.register())?;
            }
            Ok(())
        });
        close.await
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
                let activity = newest.activity.clone().after(launch.activity.clone());
                Launch { activity, ..launch }
            }
            _ => launch,
        }
    }

    /// Returns the execution with what coordinators reported of its launch, if it goes on.
    pub(crate) fn execution_with_newest(&self, execution: Execution) -> Execution {
        match self.lock().get(&execution.launch) {
            Some(Report { activity, .. }) if execution.outcome.is_none() => {
                let usage = activity.usage.at_least(execution.usage);
                Execution { usage, failure: activity.failure, ..execution }
            }
            _ => execution,
        }
    }
}
