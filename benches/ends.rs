//! How soon ends are known: of hundreds of agents that end at once, of one that dies among many, and of all that die together.

mod support;

use std::collections::BTreeSet;
use std::io::BufRead as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::agent::{self, Role};
use support::bed::{Bed, Wanted};
use support::figures::{Figure, Target, Times, print};

/// Agents that start and end at the same time, and how often.
const CROWDS: [(usize, usize); 2] = [(100, 10), (500, 5)];
/// Agents that live when the first is killed.
const N_VICTIMS: usize = 200;
/// After this their keepers have nothing left to do but to wait.
const SETTLE: Duration = Duration::from_secs(2);
/// Agents that are killed all at once.
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
            &massacre()?,
        )
    });
    print(&figures);
    Ok(())
}

/// The floor: posix_spawn of the same program and a wait, one after the other.
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

/// From just before the word by which all of a crowd are claimed in one cycle, until the daemon says of the last that its end
/// is committed: its log line `launch ended` comes after that, and reading it costs the daemon nothing.
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

/// So many agents that stay.
fn fleet(n_agents: usize) -> Result<(Bed, Vec<(Pid, String)>)> {
    let settings = format!(
        "polling_interval: 1h\nmax_concurrent: {n_agents}\nbackoff: {{ initial: 1h, max: 1h }}"
    );
    let mut bed = Bed::start(&Wanted { settings: &settings, role: Role::Stay, n_agents })?;
    let mut control = bed.control()?;
    for n in 0..n_agents {
        control.set_status(&format!("tsk_{n}"), "in_progress")?;
    }
    let mut running = Vec::new();
    bed.wait_until("all agents run", |_| {
        running = Bed::launches(&mut control, n_agents, |launch| launch["pid"].is_i64())?;
        Ok(running.len() == n_agents)
    })?;
    // They have been there for a while.
    std::thread::sleep(SETTLE);
    let process = |launch: &Value| {
        let pid = launch["pid"]
            .as_i64()
            .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
            .context("a pid")?;
        Ok((pid, launch["launchId"].as_str().context("an id")?.to_owned()))
    };
    Ok((bed, running.iter().map(process).collect::<Result<_>>()?))
}

/// The events of this path tell of an end when its commit is made, and listening costs the daemon little; who asked all the
/// time would take one of two processors from it.
const EVENTS: &str = "/events?project=prj";

/// Whether the event is a launch's that has lost its process.
fn is_death(event: &str) -> bool {
    [r#""kind":"launch.ending""#, r#""kind":"launch.ended""#]
        .iter()
        .any(|kind| event.contains(kind))
}

/// Whether the store knows nothing yet of the end of its process.
fn seems_to_live(launch: &Value) -> bool {
    matches!(launch["state"].as_str(), Some("starting" | "running"))
}

/// From the signal until a follower hears that the launch has left `running`.
fn deaths() -> Result<Times> {
    let (bed, victims) = fleet(N_VICTIMS)?;
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

/// From the first of the signals until a follower has heard of all of the launches that they have left `running`.
fn massacre() -> Result<Times> {
    let (mut bed, victims) = fleet(N_MASSACRED)?;
    let mut control = bed.control()?;
    let mut events = bed.follow_events(EVENTS)?;
    let mut alive: BTreeSet<&str> = victims.iter().map(|(_, launch)| launch.as_str()).collect();
    let began = Instant::now();
    for (pid, _) in &victims {
        kill_process(*pid, Signal::KILL)?;
    }
    events.until_heard(|event| {
        let body: Value = serde_json::from_str(event).unwrap_or_default();
        if is_death(event)
            && let Some(launch) = body["launchId"].as_str()
        {
            alive.remove(launch);
        }
        alive.is_empty()
    })?;
    let last = began.elapsed();
    let living = Bed::launches(&mut control, N_MASSACRED, seems_to_live)?;
    ensure!(living.is_empty(), "{} seem to live", living.len());
    bed.wait_until("all have ended", |_| {
        Ok(Bed::launches(&mut control, N_MASSACRED, |launch| launch["state"] == "ended")?.len()
            == N_MASSACRED)
    })?;
    Ok([last].into_iter().collect())
}
