//! Measures the time until a waiting agent gets a message, the cost of a waiting agent, and the
//! cost of a notice.
#![allow(clippy::disallowed_methods, reason = "a bench waits and asks the time")]

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use support::agent::{self, Role};
use support::bed::{Bed, Link, Wanted};
use support::clients::{Control, Mcp, TIMEOUT};
use support::figures::{Figure, Target, Times, print};
use support::proc::memory;

/// The number of agents that wait, each on a connection of its own.
const N_WAITING: usize = 1_000;
const N_MESSAGES: usize = 2_000;
/// The number of working agents. Half of them get a notice.
const N_WORKING: usize = 60;
/// The number of calls of each of them. It is the number that the server takes from one agent at
/// once, less the calls before.
const N_CALLS: usize = 90;
/// With these settings no wait ends by itself.
const SETTINGS: &str = "chat: { poll_hold: 5m, idle_timeout: 1d }";

fn main() -> Result<()> {
    if agent::is_agent() {
        return Ok(());
    }
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(65_536), hard)?;
    let mut figures = Vec::new();
    for (link, names) in [
        (
            Link::Socket,
            [
                "a message -> its agent's answer, 1,000 wait on the socket",
                "memory of a waiting agent, socket",
            ],
        ),
        (Link::Http, ["the same over HTTP", "memory of a waiting agent, HTTP"]),
    ] {
        let Waited { times, appended, kib_each } = waiting(link)?;
        figures.push(Figure {
            p99_target: Some(Target::AtMost(10.0)),
            floor: Some(appended.median()),
            ..Figure::of_times(names[0], &times)
        });
        let target = matches!(link, Link::Socket).then_some(Target::AtMost(60.0));
        figures.push(Figure { target, ..Figure::new(names[1], "KiB", kib_each) });
    }
    let (told, untold) = notices()?;
    figures.push(Figure {
        floor: Some(untold.median()),
        max_ratio: Some(1.1),
        ..Figure::of_times("get_my_task with an open notice", &told)
    });
    print(&figures);
    Ok(())
}

/// The measurements with many waiting agents.
struct Waited {
    /// The time from before a message is posted until the question of its agent is answered.
    times: Times,
    /// The floor: the time until the post itself is answered. The message is in the store then.
    appended: Times,
    kib_each: f64,
}

/// An agent that waits.
struct Agent {
    line: Connection,
    token: String,
}

enum Connection {
    Socket(BufReader<UnixStream>),
    Http { stream: BufReader<TcpStream>, address: String },
}

fn waiting(link: Link) -> Result<Waited> {
    let bed = Bed::serve(&Wanted { settings: SETTINGS, role: Role::Exit, n_agents: N_WAITING })?;
    let (mut control, mut coordinator) = (bed.control()?, bed.mcp()?);
    for n in 0..N_WAITING {
        control.post("/projects/prj/chat/start", &json!({ "agentId": format!("agt_{n}") }))?;
    }
    let before = memory(bed.pid(), "VmRSS")?;
    let mut agents = (0..N_WAITING)
        .map(|n| Agent::enter(&bed, link, &mut coordinator, n))
        .collect::<Result<Vec<_>>>()?;
    for agent in &mut agents {
        agent.ask("get_next_action", json!({}))?;
    }
    // This call is answered after the earlier ones on this connection were looked at. The other
    // connections get some more time.
    coordinator.call("health_check", &json!({}))?;
    let listening = control.get("/projects/prj/agent-sessions")?["agentSessions"].clone();
    ensure!(
        listening.as_object().is_some_and(|all| all.values().all(|open| open["chat"] == 1)),
        "{listening}"
    );
    settle(&bed)?;
    #[allow(clippy::cast_precision_loss, reason = "some thousands")]
    let kib_each = (memory(bed.pid(), "VmRSS")? - before) * 1024.0 / N_WAITING as f64;
    let (mut times, mut appended) = (Times::default(), Times::default());
    for n in 0..N_MESSAGES {
        // The agents take turns, but not in the order in which they came.
        let turn = n * 389 % N_WAITING;
        let began = Instant::now();
        post(&mut control, turn)?;
        let in_store = began.elapsed();
        let answer = agents[turn].answer()?;
        times.add(began.elapsed());
        appended.add(in_store);
        ensure!(answer["messages"][0]["content"] == "hello", "{answer}");
        agents[turn].ask("respond_chat", json!({ "content": format!("answer {n}") }))?;
        agents[turn].answer()?;
        agents[turn].ask("get_next_action", json!({}))?;
    }
    Ok(Waited { times, appended, kib_each })
}

fn post(control: &mut Control, n: usize) -> Result<()> {
    control
        .post(
            &format!("/projects/prj/agents/agt_{n}/chat/messages"),
            &json!({ "content": "hello" }),
        )
        .map(drop)
}

/// Waits until the daemon has nothing to do.
fn settle(bed: &Bed) -> Result<()> {
    let busy = || -> Result<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", bed.pid()))?;
        let fields: Vec<&str> =
            stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
    };
    let give_up_at = Instant::now() + TIMEOUT;
    loop {
        let before = busy()?;
        std::thread::sleep(std::time::Duration::from_millis(500));
        if busy()? == before || Instant::now() > give_up_at {
            return Ok(());
        }
    }
}

impl Agent {
    /// Starts an agent for a chat. This benchmark is its coordinator.
    fn enter(bed: &Bed, link: Link, coordinator: &mut Mcp, n: usize) -> Result<Self> {
        let name = format!("agt_{n}");
        let claim = json!({ "agent_id": name, "project_id": "prj", "purpose": "chat", "coordinator_id": "crd_bench" });
        let ticket = coordinator.call("should_start", &claim)?["launch_ticket"].take();
        let line = match bed.address(link)? {
            domain::ServerAddress::Socket(socket) => {
                let stream = UnixStream::connect(socket)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                Connection::Socket(BufReader::new(stream))
            }
            domain::ServerAddress::Url(url) => {
                let address = url
                    .trim_start_matches("http://")
                    .split('/')
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                let stream = TcpStream::connect(&address)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_nodelay(true)?;
                Connection::Http { stream: BufReader::new(stream), address }
            }
        };
        let mut agent = Self { line, token: String::new() };
        agent.ask(
            "authenticate",
            json!({ "agent_id": name, "passkey": ticket, "project_id": "prj" }),
        )?;
        let opened = agent.answer()?;
        let token = opened["session_token"].as_str().context("a session")?.to_owned();
        Ok(Self { token, ..agent })
    }

    /// Sends a question, and does not wait for the answer.
    fn ask(&mut self, tool: &str, mut arguments: Value) -> Result<()> {
        // An agent without a token sends none, because agents with the same token, even an empty
        // one, share a rate limit.
        if !self.token.is_empty() {
            arguments["session_token"] = self.token.as_str().into();
        }
        let body = support::clients::request(tool, &arguments);
        match &mut self.line {
            Connection::Socket(lines) => lines.get_mut().write_all(body.as_bytes())?,
            Connection::Http { stream, address } => {
                let head = format!(
                    "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
                     accept: application/json, text/event-stream\r\nmcp-protocol-version: 2025-11-25\r\n\
                     content-length: {}\r\n\r\n",
                    body.len()
                );
                stream.get_mut().write_all(format!("{head}{body}").as_bytes())?;
            }
        }
        Ok(())
    }

    fn answer(&mut self) -> Result<Value> {
        let mut answer: Value = match &mut self.line {
            Connection::Socket(lines) => {
                let mut line = String::new();
                ensure!(lines.read_line(&mut line)? > 0, "the server closed the connection");
                serde_json::from_str(&line)?
            }
            Connection::Http { stream, .. } => {
                serde_json::from_slice(&support::clients::answer(stream)?.1)?
            }
        };
        ensure!(answer["result"]["isError"] != true, "{answer}");
        Ok(answer["result"]["structuredContent"].take())
    }
}

/// Measures the same call of two agents in turn, pair after pair. One of them has a notice.
fn notices() -> Result<(Times, Times)> {
    let bed = Bed::serve(&Wanted {
        settings: "notice: { grace: 1d }",
        role: Role::Exit,
        n_agents: N_WORKING,
    })?;
    let (mut control, mut coordinator) = (bed.control()?, bed.mcp()?);
    let mut agents = Vec::new();
    for n in 0..N_WORKING {
        control.set_status(&format!("tsk_{n}"), "in_progress")?;
        let claim = json!({ "agent_id": format!("agt_{n}"), "project_id": "prj", "coordinator_id": "crd_bench" });
        let ticket = coordinator.call("should_start", &claim)?["launch_ticket"].take();
        let mut agent = bed.mcp()?;
        let who = json!({ "agent_id": format!("agt_{n}"), "passkey": ticket, "project_id": "prj" });
        let token = agent.call("authenticate", &who)?["session_token"].take();
        agents.push((agent, json!({ "session_token": token })));
    }
    let told: Vec<String> = (0..N_WORKING).step_by(2).map(|n| format!("agt_{n}")).collect();
    control.patch("/projects/prj", &json!({ "unassign": told }))?;
    settle(&bed)?;
    let mut times = [Times::default(), Times::default()];
    for pair in agents.chunks_mut(2) {
        for _ in 0..N_CALLS {
            for (n, (agent, arguments)) in pair.iter_mut().enumerate() {
                let began = Instant::now();
                let answer = agent.call("get_my_task", arguments)?;
                times[n].add(began.elapsed());
                ensure!(answer["notification"].is_string() == (n == 0), "{answer}");
            }
        }
    }
    Ok(times.into())
}
