//! Measures the time from a task set in progress to the first instruction of its agent. The polling
//! interval is so long that it can't have been the cause.
#![allow(clippy::disallowed_methods, reason = "a bench waits and asks the time")]

mod support;

use std::time::Duration;

use anyhow::Result;
use support::agent::{self, Pipe, Role, monotonic};
use support::bed::{Bed, Wanted};
use support::figures::{Figure, Target, Times, print};

const N_STARTS: usize = 300;

fn main() -> Result<()> {
    if agent::is_agent() {
        return Ok(());
    }
    let folder = Bed::folder()?;
    let mut beginnings = Pipe::make(folder.path().join("beginnings"))?;
    let floor = spawned_directly(&mut beginnings)?;
    let settings = "polling_interval: 10s\nrun: { linger: 0 }";
    let bed = Bed::start_in(
        folder,
        &Wanted { settings, role: Role::Work(beginnings.path().to_owned()), n_agents: 1 },
    )?;
    let times = started_by_daemon(bed, &mut beginnings)?;
    print(&[Figure {
        target: Some(Target::AtMost(10.0)),
        p99_target: Some(Target::AtMost(50.0)),
        floor: Some(floor.median()),
        ..Figure::of_times("task in progress -> agent's first instruction", &times)
    }]);
    Ok(())
}

/// Measures the floor: posix_spawn of the same program.
fn spawned_directly(beginnings: &mut Pipe) -> Result<Times> {
    let mut times = Times::default();
    for _ in 0..N_STARTS {
        let mut command = Role::Work(beginnings.path().to_owned()).command()?;
        let asked = monotonic();
        let mut child = command.spawn()?;
        times.add(beginnings.next()?.saturating_sub(asked));
        child.wait()?;
    }
    Ok(times)
}

fn started_by_daemon(mut bed: Bed, beginnings: &mut Pipe) -> Result<Times> {
    let mut control = bed.control()?;
    let mut times = Times::default();
    for _ in 0..N_STARTS {
        let asked = monotonic();
        control.set_status("tsk_0", "in_progress")?;
        times.add(beginnings.next()?.saturating_sub(asked));
        // The agent reports, which finishes the task, and ends. Then the task can be set in
        // progress again.
        bed.wait_until("the launch has ended", |_| {
            Ok(Bed::launches(&mut control, 1, |launch| launch["state"] == "ended")?.len() == 1)
        })?;
        control.set_status("tsk_0", "todo")?;
        std::thread::sleep(Duration::from_millis(5));
    }
    let by_poll = &control.get("/status")?["counters"]["foundByPollOnly"];
    anyhow::ensure!(by_poll == 0, "the poll found {by_poll} starts: nothing announced them");
    Ok(times)
}
