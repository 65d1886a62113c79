//! Gates: what a machine must have free before anything is started on it. What runs goes on.

use super::Limits;
use crate::domain::pair::StartReason;
use crate::domain::printable::bytes;

/// What the machine of a coordinator has free, in bytes; `None` where nobody asked, or it can't be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// On the file system of the state directory.
    pub disk: Option<u64>,
    pub memory: Option<u64>,
}

/// A gate that keeps everybody from starting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    pub reason: StartReason,
    /// The figures.
    pub detail: String,
}

/// The first gate that is closed.
pub fn closed(limits: &Limits, free: Resources) -> Option<Closed> {
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
