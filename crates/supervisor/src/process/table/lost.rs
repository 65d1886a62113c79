//! The end of instances whose shim is gone without a record.

use std::time::Duration;

use tracing::warn;

use super::Table;
use crate::process::orphans;
use domain::{Condition, LaunchId, Phase};
use machine::cgroup::{self, Group};
use machine::crash_point::{self, CrashPoint};
use machine::instance_dir::clock::wall_clock;
use machine::instance_dir::lock::{self, LockState};
use machine::instance_dir::record::{self, Exit};

/// The time after the first KILL from which the remains of a lost shim count as unkillable.
const UNKILLABLE_AFTER: Duration = Duration::from_secs(5);

impl Table {
    pub(super) fn on_shim_joined(&mut self, launch: &LaunchId) {
        self.followed.remove(launch);
        self.on_shim_gone(launch);
    }

    pub(super) fn on_shim_gone(&mut self, launch: &LaunchId) {
        self.refresh(launch);
        if self.unread.contains(launch) {
            self.unread_lost.insert(launch.clone());
            return;
        }
        if self.entries.get(launch).is_some_and(|entry| !entry.instance.phase.is_ended()) {
            warn!(launch_id = %launch, "shim of an agent is gone without a record; ending what it left behind");
            self.clear(launch);
        }
    }

    pub(super) fn clear(&mut self, launch: &LaunchId) {
        let Some(entry) = self.entries.get(launch) else {
            return;
        };
        let shim = lock::look(&entry.dir)
            .ok()
            .and_then(|(LockState::Held(shim) | LockState::Free(shim))| shim);
        let mark = format!("{}/{launch}", self.state.installation_id);
        let launch = launch.clone();
        let group = self.group_of(&launch);
        let late = launch.clone();
        self.overdue.spawn(async move {
            tokio::time::sleep(UNKILLABLE_AFTER).await;
            late
        });
        self.clearing.spawn(async move {
            if let Some(group) = group {
                // The group comes first: it also ends processes that could be found in no other
                // way.
                let _ = tokio::task::spawn_blocking(move || group.end()).await;
            }
            orphans::clear(mark, shim).await;
            launch
        });
    }

    /// Returns the control group of a launch, if it has one that this installation made.
    fn group_of(&self, launch: &LaunchId) -> Option<Group> {
        let id = &self.state.installation_id;
        let noted = self.entries.get(launch).and_then(|entry| entry.cgroup.clone());
        let made_now =
            || self.config.cgroups.as_ref().map(|cgroups| cgroups.group_of(id, launch.as_str()));
        let dir =
            noted.filter(|dir| cgroup::is_group_of(dir, id, launch.as_str())).or_else(made_now)?;
        Some(Group::at(dir))
    }

    /// Marks an instance as unkillable if it is still being cleared.
    pub(super) fn on_overdue(&mut self, launch: &LaunchId) {
        let Some(entry) = self.entries.get(launch).filter(|entry| !entry.instance.phase.is_ended())
        else {
            return;
        };
        let since = entry.instance.condition.unkillable_since.or_else(|| Some(wall_clock()));
        self.set_condition(
            launch,
            Condition { unkillable_since: since, ..entry.instance.condition },
        );
    }

    /// Records the end of an instance without a shim, when none of its processes lives.
    pub(super) fn on_cleared(&mut self, launch: &LaunchId) {
        let Some(entry) =
            self.entries.get_mut(launch).filter(|entry| !entry.instance.phase.is_ended())
        else {
            return;
        };
        crash_point::reach(CrashPoint::RemainsCleared);
        let at = wall_clock();
        let (pid, started_at, end) = entry.end_without_record(launch);
        let exit = Exit { pid, started_at, ..Exit::without_agent(end.clone(), at) };
        // The record spares the next daemon the search. If it cannot be written, the next daemon
        // searches again.
        let _ = record::write(&entry.dir, &Exit { stop: entry.instance.stop, ..exit });
        crash_point::reach(CrashPoint::LossRecorded);
        self.set_phase(launch, Phase::Ended { pid, started_at, end, at, n_leaked: 0 });
    }
}
