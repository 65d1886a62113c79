//! Agents that stay until they are killed, and the time until the store knows of their ends.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::agent::Role;
use super::bed::{Bed, Wanted};
use super::figures::Times;

/// After this time the shims of agents only wait.
const SETTLE: Duration = Duration::from_secs(2);

/// Starts `n_agents` agents that stay. Returns their processes and launches.
pub fn fleet(settings: &str, n_agents: usize) -> Result<(Bed, Vec<(Pid, String)>)> {
    let settings = format!(
        "polling_interval: 1h\nmax_concurrent: {n_agents}\nbackoff: {{ initial: 1h, max: 1h }}\n{settings}"
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
    // The agents have been there for a while then.
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

/// The path of the events. An event announces an end when its commit is made, and listening costs
/// the daemon little. A client that polled all the time would take one of two processors from it.
pub const EVENTS: &str = "/events?project=prj";

/// Returns whether the event says that a launch has lost its process.
pub fn is_death(event: &str) -> bool {
    [r#""kind":"launch.ending""#, r#""kind":"launch.ended""#]
        .iter()
        .any(|kind| event.contains(kind))
}

/// Returns whether the end of its process is not in the store yet.
pub fn seems_to_live(launch: &Value) -> bool {
    matches!(launch["state"].as_str(), Some("starting" | "running"))
}

/// Kills a fleet in one loop. Measures the time from the first signal until a follower has learnt
/// that all launches have left `running`.
pub fn massacre(settings: &str, n_agents: usize) -> Result<Times> {
    let (mut bed, victims) = fleet(settings, n_agents)?;
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
    let living = Bed::launches(&mut control, n_agents, seems_to_live)?;
    ensure!(living.is_empty(), "{} seem to live", living.len());
    bed.wait_until("all have ended", |_| {
        Ok(Bed::launches(&mut control, n_agents, |launch| launch["state"] == "ended")?.len()
            == n_agents)
    })?;
    Ok([last].into_iter().collect())
}
