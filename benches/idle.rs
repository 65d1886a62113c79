//! Measures the cost of the daemon and its shims while nothing happens.
#![allow(clippy::disallowed_methods, reason = "a bench waits and asks the time")]

mod support;

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result};
use support::agent::{self, Role};
use support::bed::{Bed, Wanted};
use support::figures::{Figure, Target, print};
use support::proc::{memory, number, wake_ups};

/// The time after which a daemon has finished the work of its start.
const SETTLE: Duration = Duration::from_secs(15);
const WATCH: Duration = Duration::from_secs(20);

fn main() -> Result<()> {
    if agent::is_agent() {
        return Ok(());
    }
    let mut figures = Vec::new();
    let mut bed =
        Bed::start(&Wanted { settings: "polling_interval: 1h", role: Role::Stay, n_agents: 1 })?;
    sleep(SETTLE);
    figures.push(Figure {
        target: Some(Target::AtMost(16.0)),
        ..Figure::new("daemon: resident memory after its start", "MiB", memory(bed.pid(), "VmRSS")?)
    });
    figures.push(Figure::new("daemon: of it anonymous", "MiB", memory(bed.pid(), "RssAnon")?));
    let wake_ups = wake_ups(bed.pid(), WATCH)?;
    figures.push(Figure {
        target: Some(Target::AtMost(0.2)),
        ..Figure::new("daemon: wake-ups while idle", "1/s", wake_ups)
    });
    figures.push(shim(&mut bed)?);
    print(&figures);
    Ok(())
}

/// Measures the shim of one agent that stays.
fn shim(bed: &mut Bed) -> Result<Figure> {
    let mut control = bed.control()?;
    control.set_status("tsk_0", "in_progress")?;
    let mut agent = None;
    bed.wait_until("the agent runs", |_| {
        agent = Bed::launches(&mut control, 1, |_| true)?
            .first()
            .and_then(|launch| launch["pid"].as_u64());
        Ok(agent.is_some())
    })?;
    let agent = agent.context("a pid")?;
    let shim = number(&format!("/proc/{agent}/status"), "PPid")?;
    Ok(Figure {
        target: Some(Target::AtMost(0.75)),
        ..Figure::new("shim: anonymous memory", "MiB", memory(u32::try_from(shim)?, "RssAnon")?)
    })
}
