//! How soon ends are known: of a hundred agents that end at once, and of one that dies among many.

mod support;

use std::io::BufRead as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use support::agent::{self, Role};
use support::bed::{Bed, Wanted};
use support::clients::PATIENCE;
use support::figures::{Figure, Target, Times, print};

/// Agents that start and end at the same time.
const N_CROWD: usize = 100;
const N_CROWDS: usize = 10;
/// Agents that live when the first is killed.
const N_VICTIMS: usize = 200;

fn main() -> Result<()> {
    if agent::is_agent() {
        return Ok(());
    }
    let floor = crowds_without_daemon()?;
    let crowds = crowds()?;
    let deaths = deaths()?;
    print(&[
        Figure {
            floor: Some(floor.median()),
            max_ratio: Some(5.0),
            ..Figure::of_times("100 agents that exit at once: claim -> all ends in the store", &crowds)
        },
        Figure {
            target: Some(Target::AtMost(5.0)),
            p99_target: Some(Target::AtMost(25.0)),
            ..Figure::of_times("an agent's death -> its exit in the store", &deaths)
        },
    ]);
    Ok(())
}

/// The floor: posix_spawn of the same program and a wait, one after the other.
fn crowds_without_daemon() -> Result<Times> {
    let mut times = Times::default();
    for _ in 0..N_CROWDS {
        let began = Instant::now();
        for _ in 0..N_CROWD {
            Role::Exit.command()?.spawn()?.wait()?;
        }
        times.add(began.elapsed());
    }
    Ok(times)
}

/// From just before the word by which all of a crowd are claimed in one cycle, until the daemon says of the last that its end
/// is committed: its log line `launch ended` comes after that, and reading it costs the daemon nothing.
fn crowds() -> Result<Times> {
    let settings = format!("polling_interval: 1h\nmax_concurrent: {N_CROWD}\nbackoff: {{ initial: 1h, max: 1h }}");
    let wanted = Wanted { settings: &settings, role: Role::Exit, n_agents: N_CROWD * N_CROWDS };
    let mut bed = Bed::start(&wanted)?;
    let mut control = bed.control()?;
    let mut times = Times::default();
    for crowd in 0..N_CROWDS {
        control.stop_all()?;
        for n in 0..N_CROWD {
            control.set_status(&format!("tsk_{}", crowd * N_CROWD + n), "in_progress")?;
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
            Ok(n_ended == N_CROWD)
        })?;
        times.add(began.elapsed());
        let ended = Bed::launches(&mut control, N_CROWD, |launch| launch["state"] == "ended")?;
        ensure!(ended.len() == N_CROWD, "only {} ends are in the store", ended.len());
    }
    Ok(times)
}

/// From the signal until the launch is seen to have left `starting`, asked for without a pause.
fn deaths() -> Result<Times> {
    let settings = format!("polling_interval: 1h\nmax_concurrent: {N_VICTIMS}\nbackoff: {{ initial: 1h, max: 1h }}");
    let mut bed = Bed::start(&Wanted { settings: &settings, role: Role::Stay, n_agents: N_VICTIMS })?;
    let mut control = bed.control()?;
    for n in 0..N_VICTIMS {
        control.set_status(&format!("tsk_{n}"), "in_progress")?;
    }
    let mut victims = Vec::new();
    bed.wait_until("all agents run", |_| {
        victims = Bed::launches(&mut control, N_VICTIMS, |launch| launch["pid"].is_i64())?;
        Ok(victims.len() == N_VICTIMS)
    })?;
    let mut times = Times::default();
    for victim in &victims {
        let pid = victim["pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).context("a pid")?;
        let path = format!("/launches/{}", victim["launchId"].as_str().context("an id")?);
        let killed = Instant::now();
        kill_process(pid, Signal::KILL)?;
        while matches!(control.get(&path)?["state"].as_str(), Some("starting" | "running")) {
            ensure!(killed.elapsed() < PATIENCE, "the death of {pid} is not noticed", pid = victim["pid"]);
        }
        times.add(killed.elapsed());
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(times)
}
