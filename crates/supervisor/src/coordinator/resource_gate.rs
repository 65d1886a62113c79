//! Measures the free space of this machine for the gates that are configured, and for people.
//! [`domain::plan::gates`] decides what is enough.

use std::path::Path;

use domain::machine::{Machine, Space};
use domain::plan::StartLimits;
use domain::plan::gates::{Closed, Resources};
use machine::sys;

/// Returns the free resources that the limits ask for.
pub(super) fn free(limits: &StartLimits, state_dir: &Path) -> Resources {
    Resources {
        disk: limits.min_free_disk.and_then(|_| free_disk(state_dir)),
        memory: limits.min_free_memory.and_then(|_| sys::machine::free_memory()),
    }
}

/// Returns this machine as people see it.
pub(super) fn machine(state_dir: &Path) -> Machine {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let memory = sys::machine::free_memory().zip(sys::machine::total_memory());
    Machine {
        name,
        memory: memory.map(|(free, total)| Space { free, total }),
        disk: disk(state_dir),
    }
}

fn free_disk(path: &Path) -> Option<u64> {
    disk(path).map(|disk| disk.free)
}

/// Returns the space for users other than root: reserved blocks do not count.
fn disk(path: &Path) -> Option<Space> {
    let stat = rustix::fs::statvfs(path).ok()?;
    let bytes = |n_blocks: u64| n_blocks.saturating_mul(stat.f_frsize);
    let n_reserved = stat.f_bfree.saturating_sub(stat.f_bavail);
    let total = bytes(stat.f_blocks.saturating_sub(n_reserved));
    Some(Space { free: bytes(stat.f_bavail), total })
}

/// Logs once when a gate closes, and once when it opens.
#[derive(Debug, Default)]
pub(super) struct ResourceGate(Option<Closed>);

impl ResourceGate {
    pub(super) fn note(&mut self, closed: Option<Closed>) {
        match (&self.0, &closed) {
            (before, Some(closed))
                if before.as_ref().is_none_or(|before| before.reason != closed.reason) =>
            {
                tracing::warn!(reason = %closed.reason, figures = closed.detail, "no agent starts: free disk space or memory is too low");
            }
            (Some(_), None) => tracing::info!("there is enough free space again"),
            _ => {}
        }
        self.0 = closed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_figures() {
        let limits =
            StartLimits { min_free_disk: Some(1), min_free_memory: Some(1), ..StartLimits::NONE };
        let free = free(&limits, Path::new("/"));
        assert!(free.disk.is_some() && free.memory.is_some(), "{free:?}");
        let machine = machine(Path::new("/"));
        assert!(!machine.name.is_empty(), "{machine:?}");
        for space in [machine.memory.unwrap(), machine.disk.unwrap()] {
            assert!(0 < space.free && space.free <= space.total, "{machine:?}");
        }
        assert_eq!(super::free(&StartLimits::NONE, Path::new("/")), Resources::default());
    }
}
