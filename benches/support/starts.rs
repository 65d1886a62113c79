//! Starts of one agent, one after the other.

use std::time::Duration;

use anyhow::Result;

use super::agent::{Pipe, Role, monotonic};
use super::bed::Bed;
use super::figures::Times;

/// Measures the floor: posix_spawn of the same program.
pub fn spawned_directly(beginnings: &mut Pipe, n_starts: usize) -> Result<Times> {
    let mut times = Times::default();
    for _ in 0..n_starts {
        let mut command = Role::Work(beginnings.path().to_owned()).command()?;
        let asked = monotonic();
        let mut child = command.spawn()?;
        times.add(beginnings.next()?.saturating_sub(asked));
        child.wait()?;
    }
    Ok(times)
}

/// Measures the time from the change of a task to the first instruction of its agent.
pub fn started_by_daemon(mut bed: Bed, beginnings: &mut Pipe, n_starts: usize) -> Result<Times> {
    let mut control = bed.control()?;
    let mut times = Times::default();
    for _ in 0..n_starts {
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
