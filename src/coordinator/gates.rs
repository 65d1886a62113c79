//! What this machine has free: looked at for the gates that are configured. What is enough is decided by
//! [`crate::domain::plan::gates`].

use std::path::Path;

use crate::domain::plan::Limits;
use crate::domain::plan::gates::{Closed, Resources};

/// What is free now, as far as the limits ask for it.
pub(super) fn free(limits: &Limits, state_dir: &Path) -> Resources {
    Resources {
        disk: limits.min_free_disk.and_then(|_| free_disk(state_dir)),
        memory: limits.min_free_memory.and_then(|_| available(&std::fs::read_to_string("/proc/meminfo").ok()?)),
    }
}

/// For whoever is not root: what is reserved doesn't count.
fn free_disk(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// What the kernel says can be had without swapping, in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Tells once when a gate closes, and once when it opens.
#[derive(Debug, Default)]
pub(super) struct Gatekeeper(Option<Closed>);

impl Gatekeeper {
    pub(super) fn note(&mut self, closed: Option<Closed>) {
        match (&self.0, &closed) {
            (before, Some(closed)) if before.as_ref().is_none_or(|before| before.reason != closed.reason) => {
                tracing::warn!(reason = %closed.reason, figures = closed.detail, "nothing is started for want of free space");
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
    fn available_memory_is_what_the_kernel_says() {
        let meminfo =
            "MemTotal:       16316412 kB\nMemFree:          822180 kB\nMemAvailable:    9876 kB\nBuffers: 1 kB\n";
        assert_eq!(available(meminfo), Some(9876 * 1024));
        assert_eq!(available("MemFree: 7 kB\n"), None);
        assert_eq!(available("MemAvailable: many kB\n"), None);
    }

    #[test]
    fn this_machine_has_figures() {
        let limits =
            Limits { min_free_disk: Some(1), min_free_memory: Some(1), ..Limits::of(1, std::time::Duration::ZERO) };
        let free = free(&limits, Path::new("/"));
        assert!(free.disk.is_some() && free.memory.is_some(), "{free:?}");
        assert_eq!(super::free(&Limits::of(1, std::time::Duration::ZERO), Path::new("/")), Resources::default());
    }
}
