//! The real daemon in a folder of its own. The end of a benchmark ends the daemon and all agents in
//! any case.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use domain::ServerAddress;

use super::agent::Role;
use super::clients::{Control, Follower, Mcp, TIMEOUT, Web};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_agent-coordinator");
/// The time between two looks at a condition.
pub const PAUSE: Duration = Duration::from_millis(1);

/// A daemon and its folder.
pub struct Bed {
    folder: TempDir,
    daemon: Child,
}

/// The way to reach a server.
#[derive(Debug, Clone, Copy)]
pub enum Link {
    Socket,
    Http,
}

/// The settings for starting a daemon.
pub struct Wanted<'a> {
    /// Settings in YAML beside the provider and the manifest.
    pub settings: &'a str,
    /// The behaviour of each agent.
    pub role: Role,
    /// The number of agents `agt_0` … of project `prj`. Each has a task `tsk_0` … that is not in
    /// progress yet.
    pub n_agents: usize,
}

impl Bed {
    /// Returns an empty folder, for the files that the daemon is to find.
    pub fn folder() -> Result<TempDir> {
        Ok(tempfile::Builder::new().prefix("agent-coordinator-bench").tempdir()?)
    }

    /// Starts a daemon and waits until it is ready.
    pub fn start(wanted: &Wanted<'_>) -> Result<Self> {
        Self::start_in(Self::folder()?, wanted)
    }

    pub fn start_in(folder: TempDir, wanted: &Wanted<'_>) -> Result<Self> {
        Self::start_as("run", folder, wanted)
    }

    /// Starts a server without a coordinator.
    pub fn serve(wanted: &Wanted<'_>) -> Result<Self> {
        Self::start_as("serve", Self::folder()?, wanted)
    }

    /// Starts a server in a folder that contains files already.
    pub fn serve_in(folder: TempDir, wanted: &Wanted<'_>) -> Result<Self> {
        Self::start_as("serve", folder, wanted)
    }

    /// Starts a coordinator of this server, reached by `link`, that starts all of its agents.
    pub fn supervise(&self, link: Link, folder: TempDir, wanted: &Wanted<'_>) -> Result<Self> {
        let passkeys: serde_json::Map<String, Value> = (0..wanted.n_agents)
            .map(|n| (format!("agt_{n}"), json!({ "passkey": "none" })))
            .collect();
        let mut settings = json!({ "server": self.address(link)?.to_string(), "agents": passkeys });
        if let Some(token) = self.token(link)? {
            settings["coordinator_token"] = token.into();
        }
        // The entries of a flow mapping are written without its braces.
        let settings = settings
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key}: {value}"));
        let settings = format!("{}\n{}", wanted.settings, settings.collect::<Vec<_>>().join("\n"));
        Self::start_as(
            "supervise",
            folder,
            &Wanted { settings: &settings, role: wanted.role.clone(), n_agents: 0 },
        )
    }

    /// Returns the address of this server.
    pub fn address(&self, link: Link) -> Result<ServerAddress> {
        Ok(match link {
            Link::Socket => ServerAddress::Socket(self.state().join("mcp.sock")),
            Link::Http => {
                let port = fs::read_to_string(self.state().join("http_port"))?;
                ServerAddress::Url(format!("http://127.0.0.1:{}/mcp", port.trim()))
            }
        })
    }

    /// Returns the token that a coordinator must show there.
    pub fn token(&self, link: Link) -> Result<Option<String>> {
        let token = fs::read_to_string(self.state().join("coordinator_token"))?;
        Ok(matches!(link, Link::Http).then(|| token.trim().to_owned()))
    }

    /// Applies a manifest.
    pub fn apply(&self, manifest: &str) -> Result<()> {
        let file = self.path().join("more.yaml");
        fs::write(&file, manifest)?;
        let mut command = Command::new(PROGRAM);
        command
            .arg("apply")
            .arg(&file)
            .arg("--config")
            .arg(self.path().join("config.yaml"))
            .stdout(Stdio::null());
        ensure!(command.status()?.success(), "the manifest was not taken");
        Ok(())
    }

    /// Returns the program with its configuration, for a command of the command line.
    pub fn command(&self) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("--config").arg(self.path().join("config.yaml")).stdin(Stdio::null());
        command
    }

    fn start_as(role: &str, folder: TempDir, wanted: &Wanted<'_>) -> Result<Self> {
        // JSON is YAML.
        let provider =
            json!({ "cli_command": std::env::current_exe()?, "cli_args": wanted.role.arguments() });
        let config = format!(
            "state_dir: state\nmanifest: manifest.yaml\nhttp: {{ listen: '127.0.0.1:0' }}\nai_providers: {{ claude: {provider} }}\n{}\n",
            wanted.settings
        );
        fs::create_dir_all(folder.path().join("work"))?;
        fs::write(folder.path().join("manifest.yaml"), manifest(wanted.n_agents)?)?;
        fs::write(folder.path().join("config.yaml"), config)?;
        let log = File::create(folder.path().join("log"))?;
        let mut command = Command::new(PROGRAM);
        command
            .arg(role)
            .arg("--config")
            .arg(folder.path().join("config.yaml"))
            .stdin(Stdio::null())
            .stderr(log);
        let daemon = command.spawn().context("could not start the daemon")?;
        let mut bed = Self { folder, daemon };
        bed.wait_until("the daemon is ready", |bed| {
            if let Some(status) = bed.daemon.try_wait()? {
                bail!("the daemon ended with {status}:\n{}", bed.log());
            }
            Ok(bed.log().contains(r#""message":"ready""#))
        })?;
        Ok(bed)
    }

    pub fn pid(&self) -> u32 {
        self.daemon.id()
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub fn control(&self) -> Result<Control> {
        Control::connect(&self.state().join("control.sock"))
    }

    /// Returns a follower of the events from now on. `path` is `/events` with its query.
    pub fn follow_events(&self, path: &str) -> Result<Follower> {
        Follower::start(&self.state().join("control.sock"), path)
    }

    pub fn mcp(&self) -> Result<Mcp> {
        Mcp::connect(&self.state().join("mcp.sock"))
    }

    /// Connects over HTTP, like a coordinator on another host.
    pub fn web(&self) -> Result<Web> {
        let kept = |name: &str| fs::read_to_string(self.state().join(name));
        Web::connect(
            &format!("127.0.0.1:{}", kept("http_port")?.trim()),
            kept("coordinator_token")?.trim(),
        )
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Returns a reader of the daemon's log from now on.
    pub fn follow_log(&self) -> Result<BufReader<File>> {
        let mut log = File::open(self.log_file())?;
        log.seek(SeekFrom::End(0))?;
        Ok(BufReader::new(log))
    }

    /// Waits until `fact` holds.
    pub fn wait_until(
        &mut self,
        what: &str,
        mut fact: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        let give_up_at = Instant::now() + TIMEOUT;
        while !fact(self)? {
            ensure!(
                Instant::now() < give_up_at,
                "waited in vain until {what}; the log of the daemon:\n{}",
                self.log()
            );
            sleep(PAUSE);
        }
        Ok(())
    }

    /// Returns the launches that `is_wanted` accepts among the newest `limit`.
    pub fn launches(
        control: &mut Control,
        limit: usize,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Result<Vec<Value>> {
        let Value::Array(launches) = control.get(&format!("/launches?limit={limit}"))? else {
            bail!("no list")
        };
        Ok(launches.into_iter().filter(is_wanted).collect())
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // The daemon is ended like by a service manager: its agents end first.
        if let Some(pid) = Pid::from_raw(self.daemon.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let is_gone =
            self.wait_until("the daemon is gone", |bed| Ok(bed.daemon.try_wait()?.is_some()));
        if let Err(error) = is_gone {
            eprintln!("{error}");
            let _ = self.daemon.kill();
            let _ = self.daemon.wait();
        }
    }
}

fn manifest(n_agents: usize) -> Result<String> {
    let mut text = "agents:\n".to_owned();
    for n in 0..n_agents {
        writeln!(text, "  agt_{n}: {{ ai_type: claude }}")?;
    }
    let agents: Vec<String> = (0..n_agents).map(|n| format!("agt_{n}")).collect();
    write!(
        text,
        "projects:\n  prj: {{ name: a project, working_directory: work, agents: {} }}\ntasks:\n",
        json!(agents)
    )?;
    for n in 0..n_agents {
        writeln!(
            text,
            "  tsk_{n}: {{ project: prj, title: a task, assignee: agt_{n}, status: todo }}"
        )?;
    }
    Ok(text)
}
