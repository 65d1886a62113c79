//! Measures the time until ends are known. Hundreds of agents end at once, one agent dies among
//! many, or all die together.
#![allow(clippy::disallowed_methods, reason = "a bench waits and asks the time")]

mod support;

use std::io::BufRead as _;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::process::{Signal, kill_process};
use support::agent::{self, Role};
use support::bed::{Bed, Wanted};
use support::figures::{Figure, Target, Times, print};
use support::fleet::{EVENTS, fleet, is_death, massacre, seems_to_live};

/// The numbers of agents that start and end at the same time, and the number of rounds.
const CROWDS: [(usize, usize); 2] = [(100, 10), (500, 5)];
/// The number of agents that live when the first one is killed.
const N_VICTIMS: usize = 200;
/// The number of agents that are killed all at once.
const N_MASSACRED: usize = 500;

fn main() -> Result<()> {
    if agent::is_agent() {
        return Ok(());
    }
    let mut figures = Vec::new();
    let names = [
        "100 agents that exit at once: claim -> all ends in the store",
        "the same with 500 agents",
    ];
    for ((n_agents, n_times), name) in CROWDS.into_iter().zip(names) {
        let floor = crowds_without_daemon(n_agents, n_times)?;
        let crowds = crowds(n_agents, n_times)?;
        figures.push(Figure {
            floor: Some(floor.median()),
            max_ratio: Some(4.0),
            ..Figure::of_times(name, &crowds)
        });
    }
    figures.push(Figure {
        target: Some(Target::AtMost(3.0)),
        p99_target: Some(Target::AtMost(20.0)),
        ..Figure::of_times("an agent's death -> its exit in the store", &deaths()?)
    });
    figures.push(Figure {
        target: Some(Target::AtMost(200.0)),
        ..Figure::of_times(
            "500 killed in one loop: the first signal -> all exits in the store",
            &massacre("", N_MASSACRED)?,
        )
    });
    print(&figures);
    Ok(())
}

/// Measures the floor: posix_spawn of the same program and a wait, one after the other.
fn crowds_without_daemon(n_agents: usize, n_times: usize) -> Result<Times> {
    let mut times = Times::default();
    for _ in 0..n_times {
        let began = Instant::now();
        for _ in 0..n_agents {
            Role::Exit.command()?.spawn()?.wait()?;
        }
        times.add(began.elapsed());
    }
    Ok(times)
}

/// Measures the time from just before the request that starts a whole crowd in one cycle, until the
/// last end is committed. The daemon logs `launch ended` after the commit. Reading the log costs
/// the daemon nothing.
fn crowds(n_agents: usize, n_times: usize) -> Result<Times> {
    let settings = format!(
        "polling_interval: 1h\nmax_concurrent: {n_agents}\nbackoff: {{ initial: 1h, max: 1h }}"
    );
    let wanted = Wanted { settings: &settings, role: Role::Exit, n_agents: n_agents * n_times };
    let mut bed = Bed::start(&wanted)?;
    let mut control = bed.control()?;
    let mut times = Times::default();
    for crowd in 0..n_times {
        control.stop_all()?;
        for n in 0..n_agents {
            control.set_status(&format!("tsk_{}", crowd * n_agents + n), "in_progress")?;
        }
        let mut log = bed.follow_log()?;
        let mut n_ended = 0;
        let mut line = String::new();
        let began = Instant::now();
        control.resume()?;
        bed.wait_until("all have ended", |_| {
            // A line without its end is still being written.
            while log.read_line(&mut line)? > 0 && line.ends_with('\n') {
                n_ended += usize::from(line.contains(r#""message":"launch ended""#));
                line.clear();
            }
            Ok(n_ended == n_agents)
        })?;
        times.add(began.elapsed());
        let ended = Bed::launches(&mut control, n_agents, |launch| launch["state"] == "ended")?;
        ensure!(ended.len() == n_agents, "only {} ends are in the store", ended.len());
    }
    Ok(times)
}

/// Measures the time from the signal until a follower learns that the launch has left `running`.
fn deaths() -> Result<Times> {
    let (bed, victims) = fleet("", N_VICTIMS)?;
    let mut control = bed.control()?;
    let mut events = bed.follow_events(EVENTS)?;
    let mut times = Times::default();
    for (pid, launch) in &victims {
        let killed = Instant::now();
        kill_process(*pid, Signal::KILL)?;
        events.until_heard(|event| is_death(event) && event.contains(launch.as_str()))?;
        times.add(killed.elapsed());
        ensure!(
            !seems_to_live(&control.get(&format!("/launches/{launch}"))?),
            "{launch} seems to live"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(times)
}
