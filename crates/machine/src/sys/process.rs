//! A process and a tree of processes, in the same form on all systems.

use rustix::process::Signal;

use super::processes;

/// One process at the moment of reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// The start time, in clock ticks since boot on Linux and in microseconds since 1970 on macOS.
    /// Together with the pid it identifies the process until the next boot.
    pub start_ticks: u64,
    /// Dead, and not yet reaped by its parent.
    pub is_zombie: bool,
    /// Stopped by a signal.
    pub is_stopped: bool,
}

impl Process {
    /// Sends `signal` to this very process; `false` if it is gone, also if another process has its
    /// pid by now.
    pub fn send(&self, signal: Signal) -> bool {
        processes::send(self, signal)
    }
}

/// Returns the processes below `root` in `all`, children before grandchildren.
pub fn descendants(all: &[Process], root: i32) -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    let mut parent = Some(root);
    let mut next = 0;
    while let Some(pid) = parent {
        found.extend(all.iter().filter(|process| process.parent == pid && process.pid != pid));
        parent = found.get(next).map(|process| process.pid);
        next += 1;
    }
    found
}

/// Returns `roots` and all processes below them, without zombies, each once.
pub fn with_descendants(all: &[Process], roots: &[Process]) -> Vec<Process> {
    let below = roots.iter().flat_map(|root| descendants(all, root.pid));
    let mut found: Vec<Process> =
        roots.iter().copied().chain(below).filter(|process| !process.is_zombie).collect();
    found.sort_by_key(|process| process.pid);
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found_at_any_depth() {
        let process = |pid, parent| Process {
            pid,
            parent,
            group: 0,
            session: 0,
            start_ticks: 0,
            is_zombie: false,
            is_stopped: false,
        };
        let all = [
            process(5, 4),
            process(1, 0),
            process(3, 2),
            process(2, 1),
            process(4, 2),
            process(9, 8),
        ];
        let pids: Vec<i32> = descendants(&all, 2).iter().map(|p| p.pid).collect();
        assert_eq!(pids, [3, 4, 5]);
        assert!(descendants(&all, 9).is_empty());
        let dead = Process { is_zombie: true, ..process(6, 3) };
        let all = [&all[..], &[dead, process(7, 6)]].concat();
        let pids: Vec<i32> =
            with_descendants(&all, &[process(3, 2), process(2, 1)]).iter().map(|p| p.pid).collect();
        assert_eq!(pids, [2, 3, 4, 5, 7], "each once, and what is below the dead");
    }
}
