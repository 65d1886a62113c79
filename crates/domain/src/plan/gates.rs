//! Gates: the free resources that a machine must have before any start. Running agents are not
//! affected.

use super::StartLimits;
use crate::printable::bytes;
use crate::start_history::StartReason;

/// The free resources of a coordinator's machine, in bytes. `None` if they were not read or are not
/// known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// The free space on the file system of the state directory.
    pub disk: Option<u64>,
    pub memory: Option<u64>,
}

/// A gate that prevents all starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    pub reason: StartReason,
    /// The figures behind the reason.
    pub detail: String,
}

/// Returns the first gate that is closed.
pub fn closed(limits: &StartLimits, free: Resources) -> Option<Closed> {
    let gates = [
        (StartReason::LowDisk, limits.min_free_disk, free.disk, "of disk", "limits.min_free_disk"),
        (
            StartReason::LowMemory,
            limits.min_free_memory,
            free.memory,
            "of memory",
            "limits.min_free_memory",
        ),
    ];
    gates.into_iter().find_map(|(reason, least, free, what, key)| {
        let (least, free) = least.zip(free)?;
        let detail = || format!("{} {what} free, and {key} is {}", bytes(free), bytes(least));
        (free < least).then(|| Closed { reason, detail: detail() })
    })
}
