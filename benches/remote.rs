//! Measures the cost of separate processes for server and coordinator: a cycle and a start over the
//! link, and a call over the bridge.
#![allow(clippy::disallowed_methods, reason = "a bench waits and asks the time")]

mod support;

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use domain::plan::Limits;
use domain::start_history::Backoff;
use domain::{Incarnation, Secret};
use serde_json::json;
use service::world::{SystemWorld, World as _};
use supervisor::coordinator::{ControlPlane as _, RemoteConfig, RemoteControlPlane, Token};
use support::agent::{self, Pipe, Role, monotonic};
use support::bed::{Bed, Link, Wanted};
use support::clients::request;
use support::figures::{Figure, Target, Times, print};

/// The number of agents, each in ten projects: a thousand pairs.
const N_AGENTS: usize = 100;
const N_PROJECTS: usize = 10;
const N_CYCLES: usize = 200;
/// The number of slow cycles, with a thousand questions each.
const N_SLOW_CYCLES: usize = 15;
const N_STARTS: usize = 150;
const N_CALLS: usize = 3_000;

fn main() -> Result<()> {
    if agent::is_agent() {
        return Ok(());
    }
    let mut figures = Vec::new();
    figures.extend(cycles()?);
    figures.extend(starts()?);
    figures.push(bridge()?);
    print(&figures);
    Ok(())
}

fn cycles() -> Result<Vec<Figure>> {
    let bed = Bed::serve(&Wanted { settings: "", role: Role::Exit, n_agents: N_AGENTS })?;
    bed.apply(&projects()?)?;
    // This runtime serves the client, like the coordinator's runtime.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut figures = Vec::new();
    for (link, only_seed_steps, name) in [
        (Link::Socket, false, "a cycle over 1,000 idle pairs, wait_for_work, socket"),
        (Link::Http, false, "the same over HTTP"),
        (Link::Socket, true, "a cycle over 1,000 idle pairs, the three steps, socket"),
        (Link::Http, true, "the same over HTTP "),
    ] {
        let times = runtime.block_on(cycle(&bed, link, only_seed_steps))?;
        let most = if only_seed_steps { 500.0 } else { 10.0 };
        figures
            .push(Figure { target: Some(Target::AtMost(most)), ..Figure::of_times(name, &times) });
    }
    // The floor: the same questions, one after the other, without the coordinator's client.
    let floor = bare_questions(&bed)?;
    for figure in &mut figures[2..] {
        figure.floor = Some(floor.total().as_secs_f64() * 1e3);
    }
    Ok(figures)
}

/// Measures the requests of a cycle to its server.
async fn cycle(bed: &Bed, link: Link, only_seed_steps: bool) -> Result<Times> {
    let passkeys =
        (0..N_AGENTS).map(|n| anyhow::Ok((format!("agt_{n}").parse()?, Secret::new("none"))));
    let control = Arc::new(RemoteControlPlane::new(
        RemoteConfig {
            server: bed.address(link)?,
            token: bed.token(link)?.map_or(Token::None, |token| Token::Given(Secret::new(token))),
            coordinator: "crd_bench".parse()?,
            passkeys: passkeys.collect::<Result<_>>()?,
            start_timeout: Duration::from_mins(2),
            backoff: Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(1) },
            limits: Limits::of(3, Duration::from_secs(30)),
            state_dir: bed.path().join("none"),
            polling_interval: Duration::from_secs(10),
            only_seed_steps,
        },
        Incarnation::after(None, SystemWorld.now(), 0),
        Arc::new(SystemWorld),
    ));
    // The first call makes the connection.
    control.observe(&[]).await?;
    let mut times = Times::default();
    for _ in 0..(if only_seed_steps { N_SLOW_CYCLES } else { N_CYCLES }) {
        let began = Instant::now();
        let view = control.observe(&[]).await?;
        times.add(began.elapsed());
        ensure!(view.startable.is_empty(), "nothing is to be started");
    }
    Ok(times)
}

fn projects() -> Result<String> {
    let agents: Vec<String> = (0..N_AGENTS).map(|n| format!("agt_{n}")).collect();
    let mut text = "projects:\n".to_owned();
    // The first project exists already.
    for n in 1..N_PROJECTS {
        writeln!(
            text,
            "  prj_{n}: {{ name: a project, working_directory: work, agents: {} }}",
            json!(agents)
        )?;
    }
    Ok(text)
}

fn bare_questions(bed: &Bed) -> Result<Times> {
    let mut server = bed.mcp()?;
    let line = request("should_start", &json!({ "agent_id": "agt_0", "project_id": "prj" }));
    let mut times = Times::default();
    for _ in 0..N_AGENTS * N_PROJECTS {
        let asked = Instant::now();
        server.exchange(&line)?;
        times.add(asked.elapsed());
    }
    Ok(times)
}

/// Measures the time from the task's change on the server to the first instruction of its agent.
fn starts() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (link, name) in [
        (Link::Socket, "task in progress -> agent's first instruction, supervise over the socket"),
        (Link::Http, "the same over HTTP  "),
    ] {
        let folder = Bed::folder()?;
        let mut beginnings = Pipe::make(folder.path().join("beginnings"))?;
        let server = Bed::serve(&Wanted { settings: "", role: Role::Exit, n_agents: 1 })?;
        let settings = "polling_interval: 1h\nrun: { linger: 0 }";
        let wanted =
            Wanted { settings, role: Role::Work(beginnings.path().to_owned()), n_agents: 1 };
        let coordinator = server.supervise(link, folder, &wanted)?;
        let times = started(server, &mut beginnings)?;
        drop(coordinator);
        figures.push(Figure {
            p99_target: Some(Target::AtMost(100.0)),
            ..Figure::of_times(name, &times)
        });
    }
    Ok(figures)
}

fn started(mut server: Bed, beginnings: &mut Pipe) -> Result<Times> {
    let mut control = server.control()?;
    let mut times = Times::default();
    for _ in 0..N_STARTS {
        let asked = monotonic();
        control.set_status("tsk_0", "in_progress")?;
        times.add(beginnings.next()?.saturating_sub(asked));
        server.wait_until("the launch has ended", |_| {
            Ok(Bed::launches(&mut control, 1, |launch| launch["state"] == "ended")?.len() == 1)
        })?;
        control.set_status("tsk_0", "todo")?;
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(times)
}

/// Measures the same call on the socket and over the bridge. The figure is the difference of the
/// medians.
fn bridge() -> Result<Figure> {
    let bed = Bed::serve(&Wanted { settings: "", role: Role::Exit, n_agents: 1 })?;
    let line = request("health_check", &json!({}));
    let mut server = bed.mcp()?;
    let mut direct = Times::default();
    for _ in 0..N_CALLS {
        let asked = Instant::now();
        server.exchange(&line)?;
        direct.add(asked.elapsed());
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-coordinator"));
    command.arg("mcp").env("COORDINATOR_MCP_SOCKET", bed.path().join("state/mcp.sock"));
    let mut bridge = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = bridge.stdin.take().context("a pipe")?;
    let mut output = BufReader::new(bridge.stdout.take().context("a pipe")?);
    let mut bridged = Times::default();
    let mut answer = String::new();
    for _ in 0..N_CALLS {
        answer.clear();
        let asked = Instant::now();
        input.write_all(line.as_bytes())?;
        output.read_line(&mut answer)?;
        bridged.add(asked.elapsed());
    }
    ensure!(answer.contains("ok"), "{answer}");
    drop(input);
    bridge.wait()?;
    let added = bridged.median() - direct.median();
    Ok(Figure {
        target: Some(Target::AtMost(1.0)),
        floor: Some(direct.median()),
        ..Figure::new("what the bridge adds to a call (floor: the call)", "ms", added)
    })
}
