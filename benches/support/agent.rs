//! The agents of the benchmarks: this very program, started again with another role. Their start costs the same with and
//! without the daemon, so that the floor is one of the same program.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode};
use rustix::time::{ClockId, Timespec, clock_gettime};
use serde_json::{Value, json};

use super::clients::{Mcp, PATIENCE, Web};

/// The first argument of every agent.
const IS_AGENT: &str = "agent";

/// What an agent does.
#[derive(Debug, Clone)]
pub enum Role {
    /// Ends at once.
    Exit,
    /// Stays until it is ended.
    Stay,
    /// Prints so many bytes, then ends.
    Print(u64),
    /// Tells when it began, then does a task's worth of talking with the server.
    Work(PathBuf),
}

impl Role {
    /// The arguments by which this program takes the role.
    pub fn arguments(&self) -> Vec<String> {
        let (word, path) = match self {
            Self::Exit => ("exit", None),
            Self::Stay => ("stay", None),
            Self::Print(n_bytes) => ("print", Some(n_bytes.to_string())),
            Self::Work(beginnings) => ("work", Some(beginnings.display().to_string())),
        };
        [IS_AGENT, word].into_iter().map(str::to_owned).chain(path).collect()
    }

    /// The agent as a plain child process.
    pub fn command(&self) -> Result<Command> {
        let mut command = Command::new(env::current_exe()?);
        command.args(self.arguments()).stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command)
    }
}

/// If this process was started as an agent: its whole life, after which it is to end. The first thing that `main` does.
pub fn is_agent() -> bool {
    // Before anything else, and whatever it costs: it is what is measured.
    let began = monotonic();
    let mut arguments = env::args().skip(1);
    if arguments.next().as_deref() != Some(IS_AGENT) {
        return false;
    }
    match arguments.next().as_deref() {
        Some("stay") => loop {
            std::thread::park();
        },
        Some("print") => {
            let _ = print(arguments.next().and_then(|number| number.parse().ok()).unwrap_or(0));
        }
        Some("work") => {
            let told = arguments.next().map(|path| tell(Path::new(&path), began));
            if let Some(Ok(())) = told {
                let _ = work();
            }
        }
        _ => {}
    }
    true
}

/// The clock that all processes of a machine share, since an arbitrary moment.
pub fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Lines as an agent prints them, without a pause.
fn print(n_bytes: u64) -> std::io::Result<()> {
    let line = json!({ "type": "assistant", "message": { "content": [{ "type": "text", "text": "x".repeat(400) }] } });
    let lines = format!("{line}\n").repeat(128);
    let mut out = std::io::stdout().lock();
    let mut n_left = n_bytes;
    while n_left > 0 {
        let n = lines.len().min(usize::try_from(n_left).unwrap_or(usize::MAX));
        out.write_all(&lines.as_bytes()[..n])?;
        n_left -= n as u64;
    }
    Ok(())
}

fn tell(beginnings: &Path, began: Duration) -> std::io::Result<()> {
    let nanoseconds = u64::try_from(began.as_nanos()).unwrap_or(u64::MAX);
    OpenOptions::new().write(true).open(beginnings)?.write_all(&nanoseconds.to_le_bytes())
}

/// As the agent reaches it.
enum Server {
    Socket(Mcp),
    Web(Web),
}

impl Server {
    fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        match self {
            Self::Socket(mcp) => mcp.call(tool, arguments),
            Self::Web(web) => web.call(tool, arguments),
        }
    }
}

fn work() -> Result<()> {
    let variable = |name| env::var(name).context("a variable of every agent");
    let mut server = match env::var_os("COORDINATOR_MCP_SOCKET") {
        Some(socket) => Server::Socket(Mcp::connect(Path::new(&socket))?),
        None => Server::Web(Web::of_url(&variable("COORDINATOR_MCP_URL")?, "none")?),
    };
    let who = json!({
        "agent_id": variable("AGENT_ID")?, "passkey": variable("AGENT_PASSKEY")?, "project_id": variable("PROJECT_ID")?,
    });
    let session = server.call("authenticate", &who)?["session_token"].take();
    server.call("get_my_task", &json!({ "session_token": session }))?;
    server.call("report_completed", &json!({ "session_token": session, "result": "success", "summary": "done" }))?;
    Ok(())
}

/// Where agents tell when they began.
pub struct Beginnings {
    path: PathBuf,
    /// Open for both, so that reading waits for the next agent instead of ending with the last.
    pipe: File,
}

impl Beginnings {
    pub fn make(path: PathBuf) -> Result<Self> {
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).context("could not make a pipe")?;
        let pipe = OpenOptions::new().read(true).write(true).open(&path)?;
        Ok(Self { path, pipe })
    }

    pub fn role(&self) -> Role {
        Role::Work(self.path.clone())
    }

    /// When the next agent began, by [`monotonic`]. Waits for it.
    pub fn next(&mut self) -> Result<Duration> {
        let patience = Timespec::try_from(PATIENCE).context("a short time")?;
        let n_ready = poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&patience))?;
        ensure!(n_ready > 0, "no agent began");
        let mut nanoseconds = [0; 8];
        self.pipe.read_exact(&mut nanoseconds)?;
        Ok(Duration::from_nanos(u64::from_le_bytes(nanoseconds)))
    }
}
