//! The machine's memory, and how much of it this process takes.

use super::sysctl;

/// Returns the memory that is available without swapping, in bytes: the part that the kernel calls
/// free, as memory_pressure(1) shows it.
pub fn free_memory() -> Option<u64> {
    let percent = sysctl::number(c"kern.memorystatus_level")?;
    Some(total_memory()? / 100 * percent)
}

/// Returns the whole memory, in bytes.
pub fn total_memory() -> Option<u64> {
    sysctl::number(c"hw.memsize")
}

/// Does nothing: the system's allocator has no such setting.
pub const fn keep_heap_small() {}
