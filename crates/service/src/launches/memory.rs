//! The memory that the processes of running agents use on this machine, for people.

use std::collections::BTreeMap;

use domain::LaunchId;
use machine::sys::processes;
use store::rows::launches;

use super::Launches;

impl Launches {
    /// Returns the resident memory of each running agent and its descendants, in bytes, for
    /// processes on this machine. Shared memory counts for each process.
    pub async fn memory_of_instances(&self) -> BTreeMap<LaunchId, u64> {
        let Ok(open) = self.core.read(|tx| Ok(launches::list_open(tx)?)).await else {
            return BTreeMap::new();
        };
        let here = open.into_iter().filter(|launch| {
            launch
                .coordinator
                .as_ref()
                .is_some_and(|coordinator| self.coordinators.is_here(coordinator))
        });
        let roots: Vec<_> = here.filter_map(|launch| Some((launch.id, launch.pid?))).collect();
        if roots.is_empty() {
            return BTreeMap::new();
        }
        tokio::task::spawn_blocking(|| memory_of_trees(roots)).await.unwrap_or_default()
    }
}

fn memory_of_trees(roots: Vec<(LaunchId, i32)>) -> BTreeMap<LaunchId, u64> {
    let Ok(all) = processes::list() else {
        return BTreeMap::new();
    };
    let of_tree = |root| {
        let below = processes::descendants(&all, root).into_iter().map(|process| process.pid);
        std::iter::once(root).chain(below).filter_map(processes::resident_memory).sum()
    };
    roots.into_iter().map(|(launch, root)| (launch, of_tree(root))).collect()
}
