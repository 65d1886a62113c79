//! The real binary as a daemon, with its own state directory, its own configuration, and the
//! scripted agent. The end of a test ends the daemon and all agents in any case.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::postgres::{self, Database};
use crate::support::{Mount, agent_fixture, end_all, kill, processes_of, until, until_some};

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_agent-coordinator");
/// The program that its shims run. It is beside the other one.
pub const SHIM_PROGRAM: &str = env!("CARGO_BIN_EXE_agent-coordinator-shim");

/// The step of an agent that leaves its report as `agent-coordinator call` does if it finds no
/// server for a minute.
pub const LEAVES_A_REPORT: &str = concat!(
    r#"run:printf '{"version":1,"session_token":"%s","result":"success"}' "#,
    r#""$AGENT_SESSION_TOKEN" >"$TMPDIR/report.json""#
);

/// The setting of tests that are about the file of an SQLite database.
pub const IN_A_FILE: &str = "store: { url: 'sqlite:state/state.db' }";

/// The folder of the processes of hooks, in the state directory.
const HOOKS: &str = "hooks";

/// A daemon with its folder.
pub struct Daemon {
    /// The field comes before the folder, so that the mount is gone when the folder is removed.
    mount: Option<Mount>,
    folder: TempDir,
    child: Option<Child>,
    /// Where its store is, if the tests run on PostgreSQL. It is dropped after the daemon.
    database: Option<Database<'static>>,
    n_starts: u32,
    /// The user who runs it and its commands, if that isn't the user of the tests.
    user: Option<u32>,
    /// The command that starts it.
    pub role: &'static str,
    /// The program that it and its commands run.
    pub program: PathBuf,
}

/// The output of a command of the command line.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// A connection of an MCP client that makes no handshake.
pub struct Client {
    lines: BufReader<UnixStream>,
    n_requests: u64,
}

impl Daemon {
    /// Writes the configuration of a daemon and does not start it. `settings` is YAML beside the
    /// state directory and the scripted agent. That agent is provider `claude` and takes the steps
    /// of [`Daemon::agent`].
    pub fn configured(settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("work")).unwrap();
        let daemon = Self {
            mount: None,
            folder,
            child: None,
            database: postgres::database_of_daemon(),
            n_starts: 0,
            user: None,
            role: "run",
            program: PROGRAM.into(),
        };
        daemon.configure(settings);
        daemon
    }

    /// Starts a daemon and waits until it is ready.
    pub fn running(settings: &str) -> Self {
        let mut daemon = Self::configured(settings);
        daemon.start();
        daemon
    }

    /// Starts a server alone and waits until it is ready.
    pub fn serving(settings: &str) -> Self {
        let mut daemon = Self::configured(settings);
        daemon.role = "serve";
        daemon.start();
        daemon
    }

    /// Writes the configuration of a coordinator alone and does not start it.
    pub fn supervising(server: &str, settings: &str) -> Self {
        let mut daemon = Self::configured(&format!("server: {server}\n{settings}"));
        daemon.role = "supervise";
        daemon
    }

    /// Writes the configuration anew. The next start reads it. `FOLDER` in the settings stands for
    /// the folder of the daemon.
    pub fn configure(&self, settings: &str) {
        let settings = &settings.replace("FOLDER", self.folder().to_str().unwrap());
        let agent = agent_fixture();
        let provider = if settings.contains("ai_providers") {
            String::new()
        } else {
            format!(
                "ai_providers:\n  claude:\n    cli_command: {}\n    cli_args: [script]\n",
                agent.display()
            )
        };
        // The daemons of the tests must not ask for the same port.
        let http = if settings.lines().any(|line| line.starts_with("http:")) {
            ""
        } else {
            "http: { listen: off }\n"
        };
        let database = self.database.as_ref().filter(|_| !settings.contains("store:"));
        let store = database.map_or_else(String::new, Database::setting);
        let text = format!("state_dir: state\n{provider}{http}{store}{settings}\n");
        fs::write(self.config(), text).unwrap();
    }

    /// Gives all its files to another user, who runs it from now on. The tests must run as root.
    pub fn hand_over_to(&mut self, user: u32) {
        self.user = Some(user);
        for path in [self.folder.path().to_owned(), self.work()] {
            chown(&path, Some(user), Some(user)).unwrap();
        }
    }

    /// Gives the state directory a file system of its own. Returns `false` if this user may not do
    /// so.
    pub fn mount_state(&mut self, size: &str) -> bool {
        fs::create_dir(self.state()).unwrap();
        self.mount = Mount::small(&self.state(), &format!("size={size},mode=0700"));
        self.mount.is_some()
    }

    /// Returns the folder with everything of this daemon.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a manifest with an agent for each id, assigned to project `prj`, with a task in
    /// progress: `tsk_<agent>`. The configuration must name it: `manifest: manifest.yaml`.
    pub fn manifest(&self, agents: &[&str]) {
        let mut text = String::from("agents:\n");
        for agent in agents {
            writeln!(text, "  {agent}: {{ name: {agent} }}").unwrap();
        }
        let (all, work) = (agents.join(", "), self.work());
        writeln!(
            text,
            "projects:\n  prj: {{ name: prj, working_directory: {}, agents: [{all}] }}",
            work.display()
        )
        .unwrap();
        text.push_str("tasks:\n");
        for agent in agents {
            let task = "title: a title, status: in_progress";
            writeln!(text, "  tsk_{agent}: {{ project: prj, assignee: {agent}, {task} }}").unwrap();
        }
        fs::write(self.folder.path().join("manifest.yaml"), text).unwrap();
    }

    pub fn config(&self) -> PathBuf {
        self.folder.path().join("coordinator_config.yaml")
    }

    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Returns the working directory of [`Daemon::project`].
    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .current_dir(self.folder.path());
        // Its temporary files disappear with the test.
        command.env("TMPDIR", self.folder.path());
        command.arg("--config").arg(self.config());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// Starts it and waits until it is ready.
    pub fn start(&mut self) {
        self.spawn();
        self.until_ready();
    }

    #[track_caller]
    pub fn until_ready(&mut self) {
        until("the daemon is ready", || {
            let died = self.child.as_mut().unwrap().try_wait().unwrap();
            assert!(died.is_none(), "the daemon ended with {died:?}:\n{}", self.log());
            self.log().contains(r#""message":"ready""#)
        });
    }

    /// Starts it and does not wait.
    pub fn spawn(&mut self) {
        self.spawn_as(self.command());
    }

    /// Starts it with `command`, to which its role is added, and does not wait.
    pub fn spawn_as(&mut self, command: Command) {
        self.spawn_with(command, Stdio::null());
    }

    /// Does the same as [`Daemon::spawn_as`], with this as its standard input.
    pub fn spawn_with(&mut self, mut command: Command, input: impl Into<Stdio>) {
        self.n_starts += 1;
        let log = File::create(self.log_file()).unwrap();
        let child = command.arg(self.role).stdin(input).stdout(Stdio::null()).stderr(log).spawn();
        self.child = Some(child.unwrap());
    }

    /// Starts it although it can't run. Returns its exit code and its log.
    pub fn refused(&mut self) -> (Option<i32>, String) {
        self.spawn();
        (self.wait().code(), self.log())
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().unwrap().id()).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        // The child is kept until then, so that the end of the test kills a daemon that doesn't
        // end.
        let child = self.child.as_mut().unwrap();
        let status = until_some("the daemon has ended", || child.try_wait().unwrap());
        self.child = None;
        status
    }

    /// Returns whether it has ended by itself.
    pub fn has_died(&mut self) -> bool {
        let child = self.child.as_mut().unwrap();
        let has_died = child.try_wait().unwrap().is_some();
        if has_died {
            self.child = None;
        }
        has_died
    }

    /// Kills it, like a crash.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Ends it like a service manager.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join(format!("log.{}", self.n_starts))
    }

    /// Returns the log of the newest daemon so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Returns its lines with this message.
    pub fn logged(&self, message: &str) -> Vec<Value> {
        let log = self.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["message"] == message).collect()
    }

    /// Returns the mirror of an agent's chat. A line that is being written does not count yet.
    pub fn mirrored(&self, agent: &str) -> Vec<Value> {
        let file = self.work().join(".ai-pm/agents").join(agent).join("chat.jsonl");
        let bytes = fs::read(file).unwrap_or_default();
        let whole =
            bytes.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n"));
        whole.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    /// Runs a command of the command line.
    pub fn cli(&self, arguments: &[&str]) -> Said {
        self.cli_with_input(arguments, "")
    }

    pub fn cli_with_input(&self, arguments: &[&str], input: &str) -> Said {
        let mut command = self.command();
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that reads no input may have ended already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        Said {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs a command that must succeed.
    #[track_caller]
    pub fn done(&self, arguments: &[&str]) -> String {
        let said = self.cli(arguments);
        assert_eq!(said.code, 0, "{arguments:?}: {said:?}\n{}", self.log());
        said.stdout
    }

    /// Returns a command's `--json` answer.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let mut arguments = arguments.to_vec();
        arguments.push("--json");
        serde_json::from_str(&self.done(&arguments)).unwrap()
    }

    pub fn status(&self) -> Value {
        self.json(&["status"])
    }

    /// Returns a part of the page in this language from the control socket.
    pub fn page(&self, path: &str, language: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nAccept-Language: {language}\r\n"), "")
    }

    /// Posts JSON to the control socket and returns the status and the whole answer.
    pub fn post(&self, path: &str, body: &Value) -> (u16, String) {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
        let answer = self.ask(&head, &body);
        (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
    }

    /// Sends a request to the control socket.
    fn ask(&self, head: &str, body: &str) -> String {
        let mut stream = UnixStream::connect(self.state().join("control.sock")).unwrap();
        write!(stream, "{head}Host: localhost\r\nConnection: close\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Adds a project with the working directory [`Daemon::work`].
    pub fn project(&self, project: &str) {
        self.done(&["project", "add", project, "--directory", self.work().to_str().unwrap()]);
    }

    /// Adds an agent of a project that takes these steps when it is started.
    pub fn agent(&self, agent: &str, project: &str, steps: &[&str]) {
        self.steps(agent, steps);
        self.done(&["agent", "add", agent]);
        self.done(&["project", "set", project, "--assign", agent]);
    }

    /// Sets the steps of the agent from its next start on.
    pub fn steps(&self, agent: &str, steps: &[&str]) {
        fs::write(self.work().join(format!("{agent}.steps")), steps.join("\n") + "\n").unwrap();
    }

    /// Adds a task in progress, so that its agent is started.
    #[track_caller]
    pub fn task(&self, task: &str, project: &str, agent: &str) {
        let said = self.try_task(task, project, agent);
        assert_eq!(said.code, 0, "{said:?}\n{}", self.log());
    }

    /// Adds a task in progress to a daemon that may die before it answers.
    pub fn try_task(&self, task: &str, project: &str, agent: &str) -> Said {
        let of = ["--project", project, "--assignee", agent, "--id", task];
        let rest = ["--title", "a title", "--status", "in_progress"];
        self.cli(&[&["task", "add"], &of[..], &rest[..]].concat())
    }

    /// Adds project `prj`, agent `agt` and task `tsk` in progress.
    pub fn with_one_task(&self, steps: &[&str]) {
        self.project("prj");
        self.agent("agt", "prj", steps);
        self.task("tsk", "prj", "agt");
    }

    /// Returns the launches of an agent that have ended, the newest first.
    pub fn ended(&self, agent: &str) -> Vec<Value> {
        let ended = self.status()["ended"].as_array().unwrap().clone();
        ended.into_iter().filter(|launch| launch["agent_id"] == agent).collect()
    }

    /// Waits for an ended launch of an agent and returns the newest.
    #[track_caller]
    pub fn until_ended(&self, agent: &str) -> Value {
        until_some("a launch has ended", || self.ended(agent).into_iter().next())
    }

    /// Returns the open launches of an agent.
    pub fn open(&self, agent: &str) -> Vec<Value> {
        let open = self.status()["instances"].as_array().unwrap().clone();
        open.into_iter().filter(|launch| launch["agent_id"] == agent).collect()
    }

    /// Waits until the open launch of an agent is in this state and returns it.
    #[track_caller]
    pub fn until_in_state(&self, agent: &str, state: &str) -> Value {
        until_some(&format!("{agent} is {state}"), || {
            self.open(agent).into_iter().find(|launch| launch["state"] == state)
        })
    }

    /// Waits until the start of an agent is deferred because of a fault of the machine, and returns
    /// the fault.
    #[track_caller]
    pub fn until_faulty(&self, agent: &str) -> String {
        until_some("a fault keeps it from being started", || {
            let status = self.status();
            let mut deferred = status["deferred"].as_array().unwrap().iter();
            let faulty =
                deferred.find(|it| it["agent_id"] == agent && it["reason"] == "misconfigured")?;
            Some(faulty["detail"].as_str()?.to_owned())
        })
    }

    pub fn task_status(&self, task: &str) -> String {
        self.json(&["task", "show", task])["status"].as_str().unwrap().to_owned()
    }

    /// Returns the living processes of this daemon except itself: shims, agents, their tools.
    pub fn processes(&self) -> Vec<i32> {
        let state = self.state();
        [processes_of(&state), processes_of(&state.join(HOOKS))].concat()
    }

    /// Waits until nothing of it is left: no process, and no instance without acknowledgement.
    #[track_caller]
    pub fn until_nothing_is_left(&self) {
        until("no process is left", || self.processes().is_empty());
        let instances = machine::instance_dir::instances(&self.state());
        let is_instance = |name: &std::ffi::OsString| !name.to_string_lossy().starts_with('.');
        let names = || fs::read_dir(&instances).unwrap().map(|entry| entry.unwrap().file_name());
        until("no instance is left", || !names().any(|name| is_instance(&name)));
    }

    /// Connects to the MCP socket as a process that is not an agent.
    pub fn client(&self) -> Client {
        Client::connect(&self.state().join("mcp.sock"))
    }

    /// Waits until an agent has written its pid with `write:FILE`, and returns it.
    pub fn written_pid(&self, file: &str) -> i32 {
        until_some(&format!("{file} is written"), || {
            fs::read_to_string(self.work().join(file)).ok()?.trim().parse().ok()
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        end_all(&self.state());
        end_all(&self.state().join(HOOKS));
    }
}

impl Client {
    pub fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(crate::support::DEADLINE)).unwrap();
        Self { lines: BufReader::new(stream), n_requests: 0 }
    }

    /// Sends bytes unchanged.
    pub fn send(&mut self, bytes: &[u8]) {
        self.lines.get_mut().write_all(bytes).unwrap();
    }

    /// Returns the next line, or `None` when the server has closed.
    pub fn receive(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_str(&line).unwrap()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("no answer: {error}"),
        }
    }

    /// Sends a request and returns its answer.
    pub fn request(&mut self, method: &str, params: &Value) -> Value {
        self.n_requests += 1;
        let request =
            json!({ "jsonrpc": "2.0", "id": self.n_requests, "method": method, "params": params });
        self.send(format!("{request}\n").as_bytes());
        let answer = self.receive().expect("an answer");
        assert_eq!(answer["id"], self.n_requests);
        answer
    }

    /// Calls a tool and returns the whole JSON-RPC answer.
    pub fn call_raw(&mut self, tool: &str, arguments: &Value) -> Value {
        self.request("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Calls a tool and returns the object of the answer. Checks that it is the same as structure
    /// and as text.
    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self.call_raw(tool, arguments);
        let result = &answer["result"];
        assert!(result.is_object(), "{tool}: {answer}");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!(text, result["structuredContent"].to_string());
        result["structuredContent"].clone()
    }
}

/// The agent that [`Daemon::crowded`] keeps busy.
const BUSY: &str = "
agents: { agt_busy: {} }
projects: { prj_busy: { working_directory: work, agents: [agt_busy] } }
tasks: { tsk_busy: { project: prj_busy, title: keep busy, assignee: agt_busy, status: in_progress, priority: urgent } }
";

impl Daemon {
    /// Starts a daemon whose only slot is taken until the end of the test. It starts nothing of
    /// `manifest` itself, so that the test can act as coordinator and agent.
    pub fn crowded(settings: &str, manifest: &str) -> Self {
        let daemon =
            Self::running(&format!("max_concurrent: 1\nstart: {{ timeout: 1h }}\n{settings}"));
        daemon.steps("agt_busy", &["sleep:600"]);
        daemon.apply(BUSY);
        until("the slot is taken", || !daemon.open("agt_busy").is_empty());
        daemon.apply(manifest);
        daemon
    }

    /// Writes a file beside the configuration.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// Applies a valid manifest. Its paths start beside the configuration.
    #[track_caller]
    pub fn apply(&self, manifest: &str) -> String {
        self.write("manifest.yaml", manifest);
        self.done(&["apply", "manifest.yaml"])
    }

    /// Returns the resident memory, in KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Client {
    /// Tells the server that nothing more will be sent.
    pub fn half_close(&self) {
        self.lines.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    }
}
