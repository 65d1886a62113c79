//! The shim process of each open launch, as the coordinators report it.
//!
//! This is kept in memory: a coordinator reports it again to the next run of the server
//! ([`LaunchFacts::is_shim_unknown`](domain::LaunchFacts::is_shim_unknown)).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard};

use super::Launches;
use domain::LaunchId;
use domain::instance::ShimIdentity;
use domain::peer::ProcessId;
use machine::instance_dir::lock;

/// The shims of open launches.
#[derive(Debug, Default)]
pub(crate) struct Shims(Mutex<Reported>);

#[derive(Debug, Default)]
struct Reported {
    /// `None` for a shim of another machine, boot or pid namespace: no process here can be that
    /// one.
    of_launch: HashMap<LaunchId, Option<ProcessId>>,
    of_process: HashMap<ProcessId, LaunchId>,
}

impl Shims {
    /// Returns whether a coordinator has reported the shim of this launch.
    pub(crate) fn is_reported(&self, launch: &LaunchId) -> bool {
        self.lock().of_launch.contains_key(launch)
    }

    pub(crate) fn keep_only(&self, is_open: impl Fn(&LaunchId) -> bool) {
        let mut reported = self.lock();
        reported.of_launch.retain(|launch, _| is_open(launch));
        reported.of_process.retain(|_, launch| is_open(launch));
    }

    fn excludes(&self, launch: &LaunchId, processes: &[ProcessId]) -> bool {
        let shim = self.lock().of_launch.get(launch).copied().flatten();
        shim.is_some_and(|shim| !processes.contains(&shim))
    }

    /// Notes the shim that a coordinator reported of a launch.
    pub(crate) fn report(&self, launch: &LaunchId, shim: &ShimIdentity) {
        let process = ProcessId { pid: shim.pid, start_ticks: shim.start_ticks };
        self.note(launch, lock::is_of_here(shim).then_some(process));
    }

    /// Notes the shim of a launch. A process that is the shim of another launch stays with that
    /// launch.
    fn note(&self, launch: &LaunchId, shim: Option<ProcessId>) {
        let mut reported = self.lock();
        if let Some(earlier) = reported.of_launch.get(launch).copied().flatten() {
            reported.of_process.remove(&earlier);
        }
        let shim = shim.filter(|shim| match reported.of_process.entry(*shim) {
            Entry::Vacant(vacant) => {
                vacant.insert(launch.clone());
                true
            }
            Entry::Occupied(occupied) => {
                tracing::warn!(launch_id = %launch, other = %occupied.get(), pid = shim.pid, "two launches were reported with one shim");
                false
            }
        });
        reported.of_launch.insert(launch.clone(), shim);
    }

    fn lock(&self) -> MutexGuard<'_, Reported> {
        machine::locks::lock(&self.0)
    }
}

impl Launches {
    /// Finds the launch whose shim is the first of `processes` that is a shim of an open launch.
    pub fn find_launch_of(&self, processes: &[ProcessId]) -> Option<LaunchId> {
        let reported = self.shims.lock();
        processes.iter().find_map(|process| reported.of_process.get(process).cloned())
    }

    /// Returns whether the shim of this launch is a known process of this machine that is not among
    /// `processes`. The answer comes from one lookup, because the shim may be reported while a call
    /// goes on.
    pub fn is_outside_launch(&self, launch: &LaunchId, processes: &[ProcessId]) -> bool {
        self.shims.excludes(launch, processes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32) -> ProcessId {
        ProcessId { pid, start_ticks: 1 }
    }

    #[test]
    fn a_shim_belongs_to_the_launch_that_was_reported_with_it_first() {
        let (shims, ann, bob): (_, LaunchId, LaunchId) =
            (Shims::default(), "lch_a".parse().unwrap(), "lch_b".parse().unwrap());
        let of = |pid| shims.lock().of_process.get(&process(pid)).cloned();
        assert!(!shims.is_reported(&ann));
        shims.note(&ann, Some(process(1)));
        shims.note(&ann, Some(process(1)));
        shims.note(&bob, Some(process(1)));
        assert_eq!((of(1), shims.is_reported(&bob)), (Some(ann.clone()), true));
        let excludes = |launch, pid| shims.excludes(launch, &[process(pid), process(9)]);
        assert!(!excludes(&ann, 1) && excludes(&ann, 2));
        assert!(!excludes(&bob, 1) && !excludes(&bob, 2), "no shim of it is known");
        // The same pid at another time is another process.
        assert_eq!(shims.lock().of_process.get(&ProcessId { start_ticks: 2, ..process(1) }), None);
        shims.note(&bob, Some(process(2)));
        shims.note(&ann, Some(process(3)));
        assert_eq!((of(1), of(2), of(3)), (None, Some(bob.clone()), Some(ann.clone())));
        // The shim is on another machine now.
        shims.note(&ann, None);
        assert_eq!((of(3), shims.is_reported(&ann)), (None, true));
        shims.keep_only(|launch| *launch == ann);
        assert_eq!((of(2), shims.is_reported(&bob)), (None, false));
    }
}
