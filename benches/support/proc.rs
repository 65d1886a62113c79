//! The cost of a process, as the kernel counts it.

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Returns a number of kilobytes of `/proc/<pid>/status`, in MiB.
pub fn memory(pid: u32, field: &str) -> Result<f64> {
    let kilobytes = number(&format!("/proc/{pid}/status"), field)?;
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    Ok(kilobytes as f64 / 1024.0)
}

/// Returns the number behind the name of a field.
pub fn number(status: &str, field: &str) -> Result<u64> {
    let text = fs::read_to_string(status)?;
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let value = value.and_then(|value| value.split_whitespace().next());
    value.and_then(|value| value.parse().ok()).with_context(|| format!("no {field} in {status}"))
}

pub fn n_descriptors(pid: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

pub fn n_threads(pid: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/task"))?.count())
}

/// Returns how often each thread of a process gave up the processor. It does so only to wait, so
/// this is the number of wake-ups.
fn switches(pid: u32) -> Result<BTreeMap<String, u64>> {
    let mut switches = BTreeMap::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = thread?.path();
        let name = fs::read_to_string(thread.join("comm"))?.trim().to_owned();
        *switches.entry(name).or_default() +=
            number(&thread.join("status").display().to_string(), "voluntary_ctxt_switches")?;
    }
    Ok(switches)
}

/// Returns how often a second the threads of a process wake up, and prints which ones.
pub fn wake_ups(pid: u32, watch: Duration) -> Result<f64> {
    let (before, began) = (switches(pid)?, Instant::now());
    sleep(watch);
    let (after, seconds) = (switches(pid)?, began.elapsed().as_secs_f64());
    let mut n_all = 0;
    for (thread, n) in after {
        let n = n.saturating_sub(before.get(&thread).copied().unwrap_or(0));
        if n > 0 {
            println!("{n} wake-ups of thread {thread}");
        }
        n_all += n;
    }
    #[allow(clippy::cast_precision_loss, reason = "a small count")]
    Ok(n_all as f64 / seconds)
}
