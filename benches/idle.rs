//! Measures the cost of the daemon and its keepers while nothing happens.
#![allow(clippy::disallowed_methods, reason = "a bench waits and asks the time")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use support::agent::{self, Role};
use support::bed::{Bed, Wanted};
use support::figures::{Figure, Target, print};
use support::proc::{memory, number};

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
    let wake_ups = wake_ups(&bed)?;
    figures.push(Figure {
        target: Some(Target::AtMost(0.2)),
        ..Figure::new("daemon: wake-ups while idle", "1/s", wake_ups)
    });
    figures.push(keeper(&mut bed)?);
    print(&figures);
    Ok(())
}

/// Returns how often each thread of the daemon gave up the processor. It does so only to wait, so
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

fn wake_ups(bed: &Bed) -> Result<f64> {
    let (before, began) = (switches(bed.pid())?, Instant::now());
    sleep(WATCH);
    let (after, seconds) = (switches(bed.pid())?, began.elapsed().as_secs_f64());
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

/// Measures the keeper of one agent that stays.
fn keeper(bed: &mut Bed) -> Result<Figure> {
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
    let keeper = number(&format!("/proc/{agent}/status"), "PPid")?;
    Ok(Figure {
        target: Some(Target::AtMost(0.75)),
        ..Figure::new("keeper: anonymous memory", "MiB", memory(u32::try_from(keeper)?, "RssAnon")?)
    })
}
