//! Memory, processor time and open files of this process, under the names that Prometheus has for
//! them.

use std::fs;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use super::counters::Exposition;

/// Adds the figures of this process. A figure that this system does not tell has no sample.
pub(super) fn describe(text: &mut Exposition) {
    let one = |value: Option<u64>| value.map(|value| (Vec::new(), value));
    let memory = fs::read_to_string("/proc/self/status").ok().and_then(|status| resident(&status));
    text.gauge(
        "process_resident_memory_bytes",
        "Memory of the daemon, without agents.",
        one(memory),
    );
    let descriptors = fs::read_dir("/proc/self/fd").ok();
    let n_open = descriptors.map(|open| u64::try_from(open.count()).unwrap_or(u64::MAX));
    text.gauge("process_open_fds", "Open files of the daemon.", one(n_open));
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
    let used = usage.map(|usage| duration(usage.user_time()) + duration(usage.system_time()));
    text.counter_of_time(
        "process_cpu_seconds_total",
        "Processor time of the daemon, without agents.",
        used.map(|used| (Vec::new(), used)),
    );
}

fn duration(time: TimeVal) -> Duration {
    let micros = u64::try_from(time.tv_usec()).unwrap_or_default();
    Duration::from_secs(time.tv_sec().unsigned_abs()) + Duration::from_micros(micros)
}

/// Reads the memory from the kernel's text about a process.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_what_the_kernel_says() {
        assert_eq!(resident("Name:\tx\nVmRSS:\t    9876 kB\n"), Some(9876 * 1024));
        assert_eq!(resident("Name:\tx\n"), None);
    }
}
