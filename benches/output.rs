//! Measures the output of one agent, a gigabyte: the speed of its shim, and the cost for the
//! daemon.
#![allow(clippy::disallowed_methods, reason = "a bench waits and asks the time")]

mod support;

use std::io::Read as _;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result};
use support::agent::{self, Role};
use support::bed::{Bed, Wanted};
use support::figures::{Figure, Target, print};
use support::proc::memory;

const N_BYTES: u64 = 1_000_000_000;

fn main() -> Result<()> {
    if agent::is_agent() {
        return Ok(());
    }
    let floor = without_shim()?;
    let settings = "polling_interval: 1h\nbackoff: { initial: 1h, max: 1h }";
    let mut bed = Bed::start(&Wanted { settings, role: Role::Print(N_BYTES), n_agents: 1 })?;
    let mut control = bed.control()?;
    let began = Instant::now();
    control.set_status("tsk_0", "in_progress")?;
    bed.wait_until("it prints", |_| {
        Ok(!Bed::launches(&mut control, 1, |launch| launch["pid"].is_i64())?.is_empty())
    })?;
    let begun = memory(bed.pid(), "VmRSS")?;
    let mut most = begun;
    // The wait ends after half a minute at most. A gigabyte in that time would already be bad.
    bed.wait_until("all is printed", |bed| {
        most = most.max(memory(bed.pid(), "VmRSS")?);
        Ok(!Bed::launches(&mut control, 1, |launch| launch["state"] == "ended")?.is_empty())
    })?;
    let rate = megabytes_per_second(began);
    print(&[
        Figure {
            target: Some(Target::AtLeast(200.0)),
            floor: Some(floor),
            ..Figure::new(
                "1 GB of output through a shim; floor: through a pipe alone",
                "MB/s",
                rate,
            )
        },
        Figure {
            floor: Some(begun),
            max_ratio: Some(1.1),
            ..Figure::new("daemon meanwhile, at most; floor: when it begins", "MiB", most)
        },
    ]);
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn megabytes_per_second(began: Instant) -> f64 {
    N_BYTES as f64 / 1e6 / began.elapsed().as_secs_f64()
}

/// Measures the floor: a program that reads all of it and does nothing with it.
fn without_shim() -> Result<f64> {
    let began = Instant::now();
    let mut agent = Role::Print(N_BYTES).command()?.stdout(Stdio::piped()).spawn()?;
    let mut out = agent.stdout.take().context("a pipe")?;
    let mut buffer = vec![0; 64 * 1024];
    while out.read(&mut buffer)? > 0 {}
    agent.wait()?;
    Ok(megabytes_per_second(began))
}
