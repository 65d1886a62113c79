//! The cost of a process, as the kernel counts it.

use std::fs;

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
