//! The last report of each coordinator about itself, and the time of its last request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use domain::counters::Counters;
use domain::id::CoordinatorId;
use domain::machine::Machine;
use domain::plan::shared::{Crowd, FailedSnapshot};
use domain::plan::{Deferred, Limits};
use domain::waiting::SilentHost;
use domain::{Instance, InstanceKey, Launch, Purpose, Timestamp};
use machine::locks::lock;

/// A coordinator's view of itself, as of its last cycle that changed something.
#[derive(Debug, Clone, PartialEq)]
pub struct CoordinatorStatus {
    pub coordinator: CoordinatorId,
    pub at: Timestamp,
    /// For a coordinator outside this process, only `max_concurrent` is known.
    pub limits: Limits,
    pub instances: Vec<Instance>,
    pub deferred: Vec<Deferred>,
    /// The git work trees in which several agents work. Only the coordinator in the server's
    /// process reports them.
    pub crowds: Vec<Crowd>,
    /// The projects whose last snapshot failed.
    pub failed_snapshots: Vec<FailedSnapshot>,
    /// The machine that it is on; `None` if it is a coordinator of an older form or a script.
    pub machine: Option<Machine>,
    pub counters: Counters,
}

impl CoordinatorStatus {
    /// Returns the host of a coordinator that does not answer.
    pub fn as_silent(&self, heard_at: Timestamp) -> SilentHost {
        let machine = self.machine.as_ref().map(|machine| machine.name.clone());
        SilentHost { coordinator: self.coordinator.clone(), machine, heard_at }
    }

    /// Returns whether more differs from an earlier report than the time, the number of cycles, and
    /// small changes of the machine.
    pub fn is_news_after(&self, before: &Self) -> bool {
        let is_other_machine = match (&before.machine, &self.machine) {
            (Some(before), Some(now)) => now.is_news_after(before),
            (before, now) => before != now,
        };
        let counters = |status: &Self| Counters { cycles: 0, ..status.counters };
        is_other_machine
            || self.limits != before.limits
            || self.instances != before.instances
            || self.deferred != before.deferred
            || self.crowds != before.crowds
            || self.failed_snapshots != before.failed_snapshots
            || counters(self) != counters(before)
    }
}

/// The newest report of each coordinator, and the time of its last request. It is in memory: a
/// coordinator reports again after its next cycle.
#[derive(Debug, Default)]
pub(crate) struct CoordinatorBoard {
    coordinators: Mutex<BTreeMap<CoordinatorId, OnBoard>>,
    /// The time of the last request of a coordinator that does not report its status, and the time
    /// since which it asks.
    unlisted: Mutex<Option<Unlisted>>,
}

#[derive(Debug, Clone, Copy)]
struct Unlisted {
    since: Timestamp,
    at: Timestamp,
}

/// The limits of the coordinators that are present.
#[derive(Debug)]
pub(crate) enum KnownLimits {
    /// No coordinator is present.
    Nobody,
    /// A coordinator that does not report its status is present.
    Unknown,
    Of(Vec<(CoordinatorId, Limits)>),
}

/// No coordinator is present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Absence {
    /// The one that was present last; `None` if none has reported.
    pub(crate) last: Option<SilentHost>,
}

#[derive(Debug)]
struct OnBoard {
    status: CoordinatorStatus,
    heard_at: Timestamp,
    /// The coordinator is in one process with the server, and is present as long as the server.
    is_here: bool,
}

/// The time after its first request within which a coordinator reports its status, if it does so at
/// all.
const REPORTED_AFTER: Duration = Duration::from_secs(10);

/// The time without a request after which a coordinator counts as absent. A coordinator asks for
/// news every half minute.
const SILENT_AFTER: Duration = Duration::from_mins(2);

/// The time without a request after which a coordinator without an open launch is no longer waited
/// for.
const RETIRED_AFTER: Duration = Duration::from_hours(24);

impl CoordinatorBoard {
    /// Forgets the coordinators that have been silent for a day and have no launch among `open`: a
    /// person has retired them.
    pub(crate) fn forget_retired(&self, open: &[Launch], now: Timestamp) {
        let has_launch =
            |id: &CoordinatorId| open.iter().any(|launch| launch.coordinator.as_ref() == Some(id));
        self.lock().retain(|id, known| {
            known.is_here || now.since(known.heard_at) < RETIRED_AFTER || has_launch(id)
        });
    }

    /// Stores a report. Returns whether it differs from the one before in a way that people see.
    pub(crate) fn put(&self, status: CoordinatorStatus, is_here: bool) -> bool {
        let id = status.coordinator.clone();
        let heard_at = status.at;
        let seen = |status: &CoordinatorStatus| {
            let counters = Counters { cycles: 0, ..status.counters };
            let at = Timestamp::from_millis(0);
            CoordinatorStatus { at, counters, machine: None, ..status.clone() }
        };
        let now = seen(&status);
        let before = self.lock().insert(id, OnBoard { status, heard_at, is_here });
        before.is_none_or(|before| seen(&before.status) != now)
    }

    pub(crate) fn heard_from(&self, coordinator: &CoordinatorId, at: Timestamp) {
        match self.lock().get_mut(coordinator) {
            Some(known) => known.heard_at = at,
            None => self.heard_from_unlisted(at),
        }
    }

    /// Notes a request of a script or of a coordinator of an older form, which is not listed.
    pub(crate) fn heard_from_unlisted(&self, at: Timestamp) {
        let mut unlisted = lock(&self.unlisted);
        let before = unlisted.filter(|before| at.since(before.at) <= SILENT_AFTER);
        *unlisted = Some(Unlisted { since: before.map_or(at, |before| before.since), at });
    }

    /// Returns whether the coordinator is present, so that it will do its work.
    pub(crate) fn is_there(&self, coordinator: &CoordinatorId, now: Timestamp) -> bool {
        self.lock().get(coordinator).is_some_and(|known| known.is_there(now))
    }

    /// Returns whether the coordinator is in one process with this server.
    pub(crate) fn is_here(&self, coordinator: &CoordinatorId) -> bool {
        self.lock().get(coordinator).is_some_and(|known| known.is_here)
    }

    pub(crate) fn machine_of(&self, coordinator: &CoordinatorId) -> Option<Machine> {
        self.lock().get(coordinator)?.status.machine.clone()
    }

    /// Returns a present coordinator that defers the start of `key`, with its last report of it.
    pub(crate) fn deferral_of(
        &self,
        key: &InstanceKey,
        now: Timestamp,
    ) -> Option<(CoordinatorId, Deferred)> {
        let board = self.lock();
        let mut there = board.iter().filter(|(_, known)| known.is_there(now));
        there.find_map(|(id, known)| {
            let mut deferred = known.status.deferred.iter();
            let of_key = deferred.find(|deferred| deferred.key == *key)?;
            Some((id.clone(), of_key.clone()))
        })
    }

    /// Returns the starts that present coordinators defer.
    pub(crate) fn deferred(&self, now: Timestamp) -> BTreeSet<InstanceKey> {
        let board = self.lock();
        let there = board.values().filter(|known| known.is_there(now));
        there.flat_map(|known| &known.status.deferred).map(|start| start.key.clone()).collect()
    }

    /// Returns the git work tree in which several agents work at once, one of them on a task of the
    /// project of `key`. A chat is not among them.
    pub(crate) fn crowd_of(&self, key: &InstanceKey, now: Timestamp) -> Option<Crowd> {
        let board = self.lock();
        let crowds = board
            .values()
            .filter(|known| known.is_there(now) && key.purpose == Purpose::Task)
            .flat_map(|known| &known.status.crowds);
        crowds.into_iter().find(|crowd| crowd.concerns(&key.project)).cloned()
    }

    /// Returns the limits of the coordinators that are present.
    pub(crate) fn limits(&self, now: Timestamp) -> KnownLimits {
        let limits: Vec<_> = self
            .lock()
            .iter()
            .filter(|(_, known)| known.is_there(now))
            .map(|(id, known)| (id.clone(), known.status.limits))
            .collect();
        let is_there = |unlisted: Unlisted| {
            now.since(unlisted.at) <= SILENT_AFTER && now.since(unlisted.since) >= REPORTED_AFTER
        };
        if !limits.is_empty() {
            KnownLimits::Of(limits)
        } else if self.unlisted().is_some_and(is_there) {
            KnownLimits::Unknown
        } else {
            KnownLimits::Nobody
        }
    }

    /// Returns whether no coordinator is present, with the one that was present last.
    pub(crate) fn absence(&self, now: Timestamp) -> Option<Absence> {
        let asks = |unlisted: Unlisted| now.since(unlisted.at) <= SILENT_AFTER;
        let board = self.lock();
        if board.values().any(|known| known.is_there(now)) || self.unlisted().is_some_and(asks) {
            return None;
        }
        let last = board.iter().max_by_key(|(_, known)| known.heard_at);
        Some(Absence { last: last.map(|(_, known)| known.as_silent()) })
    }

    /// Returns the coordinator of an open launch, if it has reported and is silent now.
    pub(crate) fn silent_host_of(&self, launch: &Launch, now: Timestamp) -> Option<SilentHost> {
        let id = launch.coordinator.as_ref().filter(|_| launch.is_open())?;
        let board = self.lock();
        board.get(id).filter(|known| !known.is_there(now)).map(OnBoard::as_silent)
    }

    /// Returns whether no present coordinator can end this launch. A claim without a process lapses
    /// by itself.
    pub(crate) fn is_abandoned(&self, launch: &Launch, now: Timestamp) -> bool {
        let has_begun = launch.pid.is_some() || launch.authenticated_at.is_some();
        let is_missing = |coordinator| !self.is_there(coordinator, now);
        launch.is_open() && has_begun && launch.coordinator.as_ref().is_some_and(is_missing)
    }

    /// Returns whether a coordinator outside this process is present.
    pub(crate) fn has_others(&self, now: Timestamp) -> bool {
        let is_other = |known: &OnBoard| !known.is_here && known.is_there(now);
        let asks = |unlisted: Unlisted| now.since(unlisted.at) <= SILENT_AFTER;
        self.lock().values().any(is_other) || self.unlisted().is_some_and(asks)
    }

    fn unlisted(&self) -> Option<Unlisted> {
        *lock(&self.unlisted)
    }

    pub(crate) fn unlisted_at(&self) -> Option<Timestamp> {
        self.unlisted().map(|unlisted| unlisted.at)
    }

    pub(crate) fn all(&self, now: Timestamp) -> Vec<CoordinatorView> {
        let board = self.lock();
        let view = |known: &OnBoard| CoordinatorView {
            status: known.status.clone(),
            heard_at: if known.is_here { now } else { known.heard_at },
            is_there: known.is_there(now),
        };
        board.values().map(view).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<CoordinatorId, OnBoard>> {
        lock(&self.coordinators)
    }
}

impl OnBoard {
    fn is_there(&self, now: Timestamp) -> bool {
        self.is_here || now.since(self.heard_at) <= SILENT_AFTER
    }

    fn as_silent(&self) -> SilentHost {
        self.status.as_silent(self.heard_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 60 * 60 * 1_000;

    fn status(coordinator: &str) -> CoordinatorStatus {
        CoordinatorStatus {
            coordinator: coordinator.parse().unwrap(),
            at: Timestamp::from_millis(0),
            limits: Limits::of(1, Duration::ZERO),
            instances: Vec::new(),
            deferred: Vec::new(),
            crowds: Vec::new(),
            failed_snapshots: Vec::new(),
            machine: None,
            counters: Counters::default(),
        }
    }

    fn heard(board: &CoordinatorBoard, coordinator: &str, is_here: bool) {
        board.put(status(coordinator), is_here);
    }

    #[test]
    fn time_and_cycles_alone_are_no_news() {
        let before = status("crd_1");
        let counters = Counters { cycles: 9, ..before.counters };
        let later = CoordinatorStatus { at: Timestamp::from_millis(9), counters, ..before.clone() };
        assert!(!later.is_news_after(&before));
        let counters = Counters { starts: 1, ..later.counters };
        assert!(CoordinatorStatus { counters, ..later.clone() }.is_news_after(&later));
        let limits = Limits::of(2, Duration::ZERO);
        assert!(CoordinatorStatus { limits, ..later.clone() }.is_news_after(&later));
        let machine = Some(Machine { name: "build-1".to_owned(), memory: None, disk: None });
        let on_machine = CoordinatorStatus { machine, ..later.clone() };
        assert!(on_machine.is_news_after(&later) && later.is_news_after(&on_machine));
    }

    #[test]
    fn the_coordinator_that_was_present_last_is_named_when_none_is() {
        let board = CoordinatorBoard::default();
        let at = Timestamp::from_millis;
        let silent = 1 + 2 * 60 * 1_000;
        assert_eq!(board.absence(at(0)), Some(Absence { last: None }));
        heard(&board, "crd_early", false);
        heard(&board, "crd_late", false);
        board.heard_from(&"crd_late".parse().unwrap(), at(1));
        assert_eq!(board.absence(at(1)), None);
        let last =
            SilentHost { coordinator: "crd_late".parse().unwrap(), machine: None, heard_at: at(1) };
        assert_eq!(board.absence(at(silent + 1)), Some(Absence { last: Some(last) }));
        board.heard_from_unlisted(at(silent));
        assert_eq!(board.absence(at(silent + 1)), None, "a script asks for work");
    }

    #[test]
    fn a_coordinator_that_has_been_silent_for_a_day_and_runs_nothing_is_forgotten() {
        let board = CoordinatorBoard::default();
        for coordinator in ["crd_retired", "crd_busy"] {
            heard(&board, coordinator, false);
        }
        heard(&board, "crd_here", true);
        let by = |at: i64| {
            let key =
                InstanceKey::new("agt".parse().unwrap(), "prj".parse().unwrap(), Purpose::Task);
            let zero = Timestamp::from_millis(0);
            let id = "lch_1".parse().unwrap();
            let launch = Launch::claimed(id, key, "claude".to_owned(), zero, zero);
            let open = [Launch { coordinator: Some("crd_busy".parse().unwrap()), ..launch }];
            board.forget_retired(&open, Timestamp::from_millis(at));
            let all = board.all(Timestamp::from_millis(at)).into_iter();
            all.map(|view| view.status.coordinator.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(by(DAY - 1).len(), 3);
        assert_eq!(by(DAY), ["crd_busy", "crd_here"]);
    }
}

/// A coordinator as its server sees it.
#[derive(Debug, Clone)]
pub struct CoordinatorView {
    pub status: CoordinatorStatus,
    /// The time of its last request.
    pub heard_at: Timestamp,
    /// The last request is recent.
    pub is_there: bool,
}
