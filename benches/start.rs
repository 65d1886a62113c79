//! Measures the time from a task set in progress to the first instruction of its agent. The polling
//! interval is so long that it can't have been the cause.
#![allow(clippy::disallowed_methods, reason = "a bench waits and asks the time")]

mod support;

use anyhow::Result;
use support::agent::{self, Pipe, Role};
use support::bed::{Bed, Wanted};
use support::figures::{Figure, Target, print};
use support::starts::{spawned_directly, started_by_daemon};

const N_STARTS: usize = 300;

fn main() -> Result<()> {
    if agent::is_agent() {
        return Ok(());
    }
    let folder = Bed::folder()?;
    let mut beginnings = Pipe::make(folder.path().join("beginnings"))?;
    let floor = spawned_directly(&mut beginnings, N_STARTS)?;
    let settings = "polling_interval: 10s\nrun: { linger: 0 }";
    let bed = Bed::start_in(
        folder,
        &Wanted { settings, role: Role::Work(beginnings.path().to_owned()), n_agents: 1 },
    )?;
    let times = started_by_daemon(bed, &mut beginnings, N_STARTS)?;
    print(&[Figure {
        target: Some(Target::AtMost(10.0)),
        p99_target: Some(Target::AtMost(50.0)),
        floor: Some(floor.median()),
        ..Figure::of_times("task in progress -> agent's first instruction", &times)
    }]);
    Ok(())
}
