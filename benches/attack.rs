//! Measures the cost of one hostile agent and of unsigned webhooks for the daemon, and the time in
//! which another agent is answered meanwhile.
//!
//! One launch opens thousands of idle connections and hundreds of unfinished lines on the MCP
//! socket. Sixty clients send webhooks of the largest size without a valid signature. Another
//! launch measures its own calls, each on a new connection.
#![allow(clippy::disallowed_methods, reason = "a bench waits and asks the time")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use support::agent::{self, Pipe, Role};
use support::bed::{Bed, Link, Wanted};
use support::figures::{Figure, Target, Times, print};
use support::proc::memory;

/// The connections of the hostile launch.
const N_IDLE: usize = 4_096;
const N_UNFINISHED: usize = 500;
const N_WEBHOOKS: usize = 60;
/// GitHub's largest webhook.
const WEBHOOK_SIZE: usize = 25 * 1024 * 1024;
/// The number of measured calls of the other agent.
const N_CALLS: usize = 300;
/// The daemon writes an answer or closes the connection within this time.
const WRITE_TIMEOUT: Duration = Duration::from_millis(200);
const SETTINGS: &str =
    "polling_interval: 1h\nforge: { webhook: { secret: 'a secret of the benchmark' } }";

fn main() -> Result<()> {
    if agent::is_agent() {
        return Ok(());
    }
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(65_536), hard)?;
    let folder = Bed::folder()?;
    let mut flooded = Pipe::make(folder.path().join("flooded"))?;
    let mut times_pipe = Pipe::make(folder.path().join("times"))?;
    let role = Role::Attack {
        n_idle: N_IDLE,
        n_unfinished: N_UNFINISHED,
        flooded: flooded.path().to_owned(),
        times: times_pipe.path().to_owned(),
    };
    let bed = Bed::start_in(folder, &Wanted { settings: SETTINGS, role, n_agents: 2 })?;
    let mut control = bed.control()?;
    let memory_before = memory(bed.pid(), "VmRSS")?;

    // `agt_1` measures the floor before anything attacks.
    control.set_status("tsk_1", "in_progress")?;
    let floor = times(&mut times_pipe)?;

    control.set_status("tsk_0", "in_progress")?;
    let n_connected = flooded.next()?.as_nanos();
    println!("the hostile launch opened {n_connected} connections");
    let webhooks = webhooks(&bed)?;
    println!("{} unsigned webhooks are being sent", webhooks.len());
    let attacked = times(&mut times_pipe)?;
    let most = memory(bed.pid(), "VmHWM")?;
    drop(webhooks);

    print(&[
        Figure {
            target: Some(Target::AtMost(64.0)),
            floor: Some(memory_before),
            ..Figure::new("daemon: largest resident memory under attack", "MiB", most)
        },
        Figure {
            p99_target: Some(Target::AtMost(100.0)),
            floor: Some(floor.median()),
            ..Figure::of_times("a call of another agent on a new connection", &attacked)
        },
    ]);
    Ok(())
}

/// Returns the times of the next round of calls of the agent that measures.
fn times(pipe: &mut Pipe) -> Result<Times> {
    pipe.clear()?;
    (0..N_CALLS).map(|_| pipe.next()).collect()
}

/// Returns clients that have sent large webhooks with a wrong signature, as far as the daemon takes
/// them.
fn webhooks(bed: &Bed) -> Result<Vec<TcpStream>> {
    let url = bed.address(Link::Http)?.to_string();
    let address =
        url.trim_start_matches("http://").split('/').next().context("an address")?.to_owned();
    let head = format!(
        "POST /webhooks/forge HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nx-github-event: issues\r\n\
         x-hub-signature-256: sha256={}\r\ncontent-length: {WEBHOOK_SIZE}\r\n\r\n",
        "0".repeat(64)
    );
    let body = vec![b' '; 1024 * 1024];
    let mut streams = Vec::new();
    for _ in 0..N_WEBHOOKS {
        let mut stream = TcpStream::connect(&address)?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        stream.set_read_timeout(Some(WRITE_TIMEOUT))?;
        stream.write_all(head.as_bytes())?;
        // The client sends all but the last mebibyte. A daemon that buffers the body then holds it
        // and waits.
        let is_taken = (1..WEBHOOK_SIZE / body.len()).all(|_| stream.write_all(&body).is_ok());
        if !is_taken {
            let mut answer = [0; 12];
            if let Ok(n_read) = stream.read(&mut answer) {
                ensure!(!answer[..n_read].ends_with(b"202"), "an unsigned webhook was accepted");
            }
        }
        streams.push(stream);
    }
    Ok(streams)
}
