//! The machine's memory, and how much of it this process takes.
#![allow(unsafe_code, reason = "system calls that no crate wraps safely")]

/// Returns the memory that the kernel reports as available without swapping, in bytes.
pub fn free_memory() -> Option<u64> {
    available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// Returns the whole memory, in bytes.
pub fn total_memory() -> Option<u64> {
    figure(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

fn available(meminfo: &str) -> Option<u64> {
    figure(meminfo, "MemAvailable:")
}

fn figure(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Makes the allocator use one heap. A heap for each thread would be faster if threads compete for
/// it. In this program it would take several times the memory in use, because each heap keeps its
/// freed memory. Must run before there is a second thread.
#[cfg(target_env = "gnu")]
pub fn keep_heap_small() {
    use nix::libc::{M_ARENA_MAX, mallopt};
    const N_HEAPS: i32 = 1;
    // SAFETY: sets a number of the allocator, before there is a second thread. If it is refused,
    // nothing is lost.
    unsafe { mallopt(M_ARENA_MAX, N_HEAPS) };
}

/// Does nothing: other allocators have no such heaps.
#[cfg(not(target_env = "gnu"))]
pub const fn keep_heap_small() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_what_the_kernel_says() {
        let meminfo = "MemTotal:       16316412 kB\nMemFree:          822180 kB\nMemAvailable:    9876 kB\nBuffers: 1 kB\n";
        assert_eq!(available(meminfo), Some(9876 * 1024));
        assert_eq!(figure(meminfo, "MemTotal:"), Some(16_316_412 * 1024));
        assert_eq!(available("MemFree: 7 kB\n"), None);
        assert_eq!(available("MemAvailable: many kB\n"), None);
    }
}
