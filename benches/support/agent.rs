//! The agents of the benchmarks. An agent is this very program, started again with another role.
//! Its start costs the same with and without the daemon, so that the floor is one of the same
//! program.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode};
use rustix::time::{ClockId, Timespec, clock_gettime};
use serde_json::{Value, json};

use super::clients::{Mcp, TIMEOUT, Web};

/// The first argument of every agent.
const IS_AGENT: &str = "agent";

/// The time between two calls of an agent that measures its calls.
const BETWEEN_CALLS: Duration = Duration::from_millis(10);

/// The behaviour of an agent.
#[derive(Debug, Clone)]
pub enum Role {
    /// Ends at once.
    Exit,
    /// Stays until it is ended.
    Stay,
    /// Prints this number of bytes, then ends.
    Print(u64),
    /// Writes the time of its start, then makes the calls of a usual task.
    Work(PathBuf),
    /// Takes its task, works on it for this time, and reports.
    WorkFor(Duration),
    /// Takes its task, commits a file, and reports.
    Commit,
    /// `agt_0` opens connections to the MCP socket, `agt_1` measures its own calls.
    Attack {
        /// Connections that send one request and keep silent.
        n_idle: usize,
        /// Connections that send a megabyte without the end of a line.
        n_unfinished: usize,
        /// Receives the number of connections once all are open.
        flooded: PathBuf,
        /// Receives the duration of each call.
        times: PathBuf,
    },
}

impl Role {
    /// Returns the arguments by which this program takes the role.
    pub fn arguments(&self) -> Vec<String> {
        let (word, rest) = match self {
            Self::Exit => ("exit", Vec::new()),
            Self::Stay => ("stay", Vec::new()),
            Self::Print(n_bytes) => ("print", vec![n_bytes.to_string()]),
            Self::Work(beginnings) => ("work", vec![beginnings.display().to_string()]),
            Self::WorkFor(time) => ("work-for", vec![time.as_millis().to_string()]),
            Self::Commit => ("commit", Vec::new()),
            Self::Attack { n_idle, n_unfinished, flooded, times } => {
                let paths = [flooded, times].map(|path| path.display().to_string());
                (
                    "attack",
                    [n_idle.to_string(), n_unfinished.to_string()]
                        .into_iter()
                        .chain(paths)
                        .collect(),
                )
            }
        };
        [IS_AGENT, word].into_iter().map(str::to_owned).chain(rest).collect()
    }

    /// Returns the agent as a plain child process.
    pub fn command(&self) -> Result<Command> {
        let mut command = Command::new(env::current_exe()?);
        command.args(self.arguments()).stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command)
    }
}

/// Carries out the whole life of an agent if this process was started as one. Returns whether it
/// was; `main` must end then. It is the first call of `main`.
pub fn is_agent() -> bool {
    // The clock is read before anything else, because the start is what is measured.
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
                let _ = work(|| Ok(()));
            }
        }
        Some("commit") => {
            let _ = work(commit);
        }
        Some("work-for") => {
            let millis = arguments.next().and_then(|number| number.parse().ok()).unwrap_or(0);
            let _ = work(|| {
                std::thread::sleep(Duration::from_millis(millis));
                Ok(())
            });
        }
        Some("attack") => {
            if let Err(error) = attack(&arguments.collect::<Vec<_>>()) {
                println!("{error:#}");
            }
        }
        _ => {}
    }
    true
}

/// Returns the time of the clock that all processes of a machine share, since an arbitrary moment.
pub fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Prints lines in the form of an agent, without a pause.
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

/// Plays [`Role::Attack`] with the rest of its arguments.
fn attack(arguments: &[String]) -> Result<()> {
    // The prompt comes last.
    let [n_idle, n_unfinished, flooded, times, ..] = arguments else {
        anyhow::bail!("expected four arguments")
    };
    let socket =
        PathBuf::from(env::var_os("COORDINATOR_MCP_SOCKET").context("a variable of every agent")?);
    if env::var("AGENT_ID")? == "agt_0" {
        flood(&socket, n_idle.parse()?, n_unfinished.parse()?, Path::new(flooded))
    } else {
        measure(&socket, Path::new(times))
    }
}

fn flood(socket: &Path, n_idle: usize, n_unfinished: usize, flooded: &Path) -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(65_536), hard)?;
    let ping = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
    let part = vec![b' '; 1024 * 1024 - 16];
    let mut connections = Vec::new();
    for n in 0..n_idle + n_unfinished {
        let Ok(mut connection) = UnixStream::connect(socket) else {
            break;
        };
        connection.set_write_timeout(Some(Duration::from_millis(200)))?;
        // The daemon may refuse to read on or close the connection.
        let _ = connection.write_all(if n < n_idle { ping } else { &part });
        connections.push(connection);
    }
    let n_open = u64::try_from(connections.len())?;
    OpenOptions::new().write(true).open(flooded)?.write_all(&n_open.to_le_bytes())?;
    loop {
        std::thread::park();
    }
}

/// Calls `ping` on new connections until the agent is ended.
fn measure(socket: &Path, times: &Path) -> Result<()> {
    let mut times = OpenOptions::new().write(true).open(times)?;
    loop {
        let began = Instant::now();
        Mcp::connect(socket)?.exchange("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n")?;
        times.write_all(&u64::try_from(began.elapsed().as_nanos())?.to_le_bytes())?;
        std::thread::sleep(BETWEEN_CALLS);
    }
}

/// The connection of the agent to the server.
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

/// Commits a new file in the working directory.
fn commit() -> Result<()> {
    std::fs::write("made.txt", format!("{:?}\n", monotonic()))?;
    for arguments in [&["add", "made.txt"][..], &["commit", "-q", "-m", "Make a file"]] {
        let status = Command::new("git").args(arguments).stdout(Stdio::null()).status()?;
        ensure!(status.success(), "git {arguments:?} failed");
    }
    Ok(())
}

/// Takes a task, does `the_work`, and reports success.
fn work(the_work: impl FnOnce() -> Result<()>) -> Result<()> {
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
    the_work()?;
    server.call(
        "report_completed",
        &json!({ "session_token": session, "result": "success", "summary": "done" }),
    )?;
    Ok(())
}

/// A pipe into which agents write durations in nanoseconds.
pub struct Pipe {
    path: PathBuf,
    /// The file is open for reading and writing, so that a read waits for the next agent instead of
    /// ending with the last one.
    file: File,
}

impl Pipe {
    pub fn make(path: PathBuf) -> Result<Self> {
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .context("could not make a pipe")?;
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        Ok(Self { path, file })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Drops the durations that agents wrote until now.
    pub fn clear(&mut self) -> Result<()> {
        while poll(
            &mut [PollFd::new(&self.file, PollFlags::IN)],
            Some(&Timespec { tv_sec: 0, tv_nsec: 0 }),
        )? > 0
        {
            self.file.read_exact(&mut [0; 8])?;
        }
        Ok(())
    }

    /// Waits for the next duration and returns it.
    pub fn next(&mut self) -> Result<Duration> {
        let timeout = Timespec::try_from(TIMEOUT).context("a short time")?;
        let n_ready = poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&timeout))?;
        ensure!(n_ready > 0, "no agent wrote into the pipe");
        let mut nanoseconds = [0; 8];
        self.file.read_exact(&mut nanoseconds)?;
        Ok(Duration::from_nanos(u64::from_le_bytes(nanoseconds)))
    }
}
