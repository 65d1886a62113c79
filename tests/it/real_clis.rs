//! The presets with the real agent CLIs. The daemon starts them, or a coordinator that knows only
//! the server's URL. A scripted model answers them on a loopback port. They never use an account
//! and never leave this machine.
//!
//! The CLIs are big and change weekly, so neither `cargo test` nor `.ci/run` installs them. These
//! install the versions of `tests/clis/package.json`, or the newest ones, and run the tests:
//! ```sh
//! tests/clis/run clis
//! tests/clis/run --newest
//! ```
//! Both bring a node of at least 22 if there is none. To run one test alone with a folder that has
//! the CLIs:
//! ```sh
//! AGENT_COORDINATOR_TEST_CLIS=$PWD/clis cargo test --test it real_clis::tasks -- --nocapture
//! ```
//! Without the variable each test prints that it is skipped, and passes.
#![allow(clippy::unwrap_used, reason = "a test")]

mod chats;
mod clones;
mod logins;
mod model;
mod script;
mod tasks;

use std::fs::{self, File};
use std::os::unix::fs::{chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use self::model::Model;
use self::script::{EDITED, Plot, Script, find_token};
use crate::daemon::{Daemon, PROGRAM};
use crate::support::{processes_of, skip, until_some_within};

/// The variable that names the folder with `node_modules`.
const VARIABLE: &str = "AGENT_COORDINATOR_TEST_CLIS";
/// The stand-in for a login. No written text may contain it.
const KEY: &str = "sk-dummy-key-of-the-tests";
/// The token of a coordinator that knows only the server's URL. Agents must not get it.
const TOKEN: &str = "the-token-of-the-coordinators";
/// The passkey that lets such a coordinator start the agent. The agent gets a ticket in its place.
const PASSKEY: &str = "the-passkey-of-the-agent";
/// The id of `nobody` on almost every system.
const USER: u32 = 65534;
/// The deadline of a run, which takes a few seconds on an idle machine.
const DEADLINE: Duration = Duration::from_mins(2);

/// Returns the program `cli`, or prints why there is none.
fn find(cli: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os(VARIABLE) else {
        skip(&format!(
            "{VARIABLE} names no folder with the real `{cli}` (see tests/it/real_clis.rs)"
        ));
        return None;
    };
    let modules = fs::canonicalize(&folder).unwrap().join("node_modules");
    let is_in = |folder: &str, path: &str| {
        let packages = fs::read_dir(modules.join(folder)).into_iter().flatten().flatten();
        packages.map(|entry| entry.path().join(path)).find(|path| path.is_file())
    };
    // Without npm's scripts, the links of these packages lead to a text that asks for the scripts.
    let native = match cli {
        "claude" => is_in("@anthropic-ai", "claude"),
        "opencode" => is_in("", "bin/opencode"),
        _ => None,
    };
    let found = native.or_else(|| fs::canonicalize(modules.join(".bin").join(cli)).ok());
    assert!(found.is_some(), "{VARIABLE} names {}, which has no {cli}", folder.display());
    found
}

/// Returns whether `nobody` can be used and may run these programs.
fn has_ordinary_user(program: &Path) -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    // Some CLIs can't print their version without a home.
    let home = tempfile::tempdir().unwrap();
    hand_over(home.path(), USER);
    let runs = |program: &Path| {
        let mut command = Command::new(program);
        command
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .uid(USER)
            .gid(USER)
            .current_dir("/");
        command.env("HOME", home.path());
        command.status().is_ok_and(|status| status.success())
    };
    runs(Path::new(PROGRAM)) && runs(program)
}

/// Gives a folder with its content to a user.
fn hand_over(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).unwrap();
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        hand_over(&entry.path(), user);
    }
}

/// The connection of the agent's coordinator, and so of the agent, to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    /// They are one daemon. Agents get the bridge to its socket.
    Own,
    /// The coordinator knows only the URL of the server. Agents get that URL.
    ByUrl,
}

/// A coordinator beside the daemon. It ends when this is dropped.
struct Supervisor(Child);

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One task for one agent of a CLI.
struct Bed {
    cli: String,
    /// This field is dropped first, because the daemon's end ends the remaining processes.
    supervisor: Option<Supervisor>,
    daemon: Daemon,
    /// The text of the configuration below `ai_providers`.
    providers: String,
    model: Model,
    /// A folder in which the agent must not write.
    outside: TempDir,
    /// The argument lists of all processes of the daemon while the model was asked.
    arguments: Arc<Mutex<Vec<String>>>,
}

impl Bed {
    /// Makes a bed without starting the daemon.
    fn new(cli: &str, program: &Path, plot: Plot, providers: &str, user: Option<u32>) -> Self {
        let mut daemon = Daemon::configured(&settings(providers));
        // Agents may use the folder for temporary files, so the outside is elsewhere.
        let outside = tempfile::tempdir_in("/var/tmp").unwrap();
        let script = Script { plot, work: daemon.work(), outside: outside.path().to_owned() };
        let arguments = Arc::<Mutex<Vec<String>>>::default();
        let (seen, state) = (arguments.clone(), daemon.state());
        let model = Model::start(script, move || {
            let lists = processes_of(&state)
                .into_iter()
                .filter_map(|pid| fs::read(format!("/proc/{pid}/cmdline")).ok());
            seen.lock()
                .unwrap()
                .extend(lists.map(|list| String::from_utf8_lossy(&list).replace('\0', " ")));
        });
        for folder in ["bin", "home", "home/.codex", "home/.config", "home/.config/opencode"] {
            fs::create_dir(daemon.folder().join(folder)).unwrap();
        }
        symlink(program, daemon.folder().join("bin").join(cli)).unwrap();
        let provider = format!(
            "model = \"scripted\"\nmodel_provider = \"local\"\n[model_providers.local]\nname = \"local\"\n\
             base_url = \"http://127.0.0.1:{}/v1\"\nenv_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\n",
            model.port
        );
        daemon.write("home/.codex/config.toml", provider);
        let options =
            json!({ "baseURL": format!("http://127.0.0.1:{}/v1", model.port), "apiKey": KEY });
        let models = json!({ "scripted": {}, "other": {} });
        let provider =
            json!({ "npm": "@ai-sdk/openai-compatible", "options": options, "models": models });
        let config = json!({ "provider": { "local": provider }, "model": "local/scripted" });
        daemon.write("home/.config/opencode/opencode.json", config.to_string());
        if let Some(user) = user {
            daemon.hand_over_to(user);
            hand_over(&daemon.folder().join("home"), user);
            hand_over(outside.path(), user);
        }
        Self {
            cli: cli.to_owned(),
            supervisor: None,
            daemon,
            providers: providers.to_owned(),
            model,
            outside,
            arguments,
        }
    }

    /// Returns a command with a clean environment that an agent gets from its daemon.
    fn command(&self) -> Command {
        let folder = self.daemon.folder();
        let mut command = self.daemon.command();
        let path = std::env::var("PATH").unwrap();
        command
            .env("PATH", format!("{}:{path}", folder.join("bin").display()))
            .env("HOME", folder.join("home"));
        // A CLI that connects to another host finds no server there.
        command.env("HTTPS_PROXY", "http://127.0.0.1:9").env("HTTP_PROXY", "http://127.0.0.1:9");
        command
            .env("NO_PROXY", "127.0.0.1")
            .env("OPENAI_API_KEY", KEY)
            .env("ANTHROPIC_API_KEY", KEY);
        let model = format!("http://127.0.0.1:{}", self.model.port);
        command.env("ANTHROPIC_BASE_URL", &model);
        command.env("OPENAI_BASE_URL", format!("{model}/v1")).env("OPENAI_MODEL", "scripted");
        // These are not GitHub's models, which would need an account.
        command
            .env("COPILOT_PROVIDER_API_KEY", KEY)
            .env("COPILOT_PROVIDER_BASE_URL", format!("{model}/v1"));
        command.env("COPILOT_MODEL", "scripted");
        command.env("GEMINI_API_KEY", KEY).env("GOOGLE_GEMINI_BASE_URL", &model);
        command
    }

    fn start(&mut self, server: Server) {
        match server {
            Server::Own => {
                self.daemon.spawn_as(self.command());
                self.daemon.until_ready();
            }
            Server::ByUrl => {
                let secrets = format!(
                    "coordinator_token: {TOKEN}\nagents: {{ agt: {{ passkey: {PASSKEY} }} }}"
                );
                let settings = format!("{}\n{secrets}", settings(&self.providers));
                self.daemon.configure(&format!("{settings}\nhttp: {{ listen: '127.0.0.1:0' }}"));
                self.daemon.role = "serve";
                self.daemon.spawn();
                self.daemon.until_ready();
                let address = self.daemon.status()["http"]["address"].as_str().unwrap().to_owned();
                self.daemon.configure(&format!("{settings}\nserver: http://{address}/mcp"));
                let log = File::create(self.supervisor_log()).unwrap();
                let mut command = self.command();
                command.arg("supervise").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
                self.supervisor = Some(Supervisor(command.spawn().unwrap()));
            }
        }
    }

    /// Starts the daemon and adds an agent of this `ai_type` without work.
    fn start_with_agent(&mut self, ai_type: &str, server: Server) {
        self.start(server);
        self.daemon.project("prj");
        self.add_agent(ai_type);
    }

    /// Adds the agent to the project.
    fn add_agent(&self, ai_type: &str) {
        self.daemon.done(&["agent", "add", "agt", "--ai-type", ai_type]);
        self.daemon.done(&["project", "set", "prj", "--assign", "agt"]);
    }

    /// Lets an agent of this `ai_type` do its task.
    fn run(&mut self, ai_type: &str, server: Server) -> Value {
        self.start_with_agent(ai_type, server);
        self.daemon.task("tsk", "prj", "agt");
        self.until_ended()
    }

    fn until_ended(&self) -> Value {
        self.until("the agent ends", || self.daemon.ended("agt").into_iter().next())
    }

    fn until<T>(&self, what: &str, find: impl FnMut() -> Option<T>) -> T {
        until_some_within(DEADLINE, find, || {
            format!("waited in vain until {what}:\n{}", self.said())
        })
    }

    /// Returns the logs, for a failure message and for the search for secrets.
    fn said(&self) -> String {
        let supervisor = fs::read_to_string(self.supervisor_log()).unwrap_or_default();
        format!(
            "{}\n{supervisor}\n{}",
            self.daemon.log(),
            self.daemon.cli(&["logs", "agt", "prj"]).stdout
        )
    }

    fn supervisor_log(&self) -> PathBuf {
        self.daemon.folder().join("log.supervisor")
    }

    /// Checks that the agent ended well, did its task, and left no secret anywhere.
    #[track_caller]
    fn check(&self, ended: &Value, server: Server) {
        let said = self.said();
        assert_eq!(ended["outcome"], "completed", "{ended}\n{said}");
        assert_eq!(self.daemon.task_status("tsk"), "done");
        // The server understood its output.
        assert!(
            ended["usage"]["turns"].as_u64() > Some(0) && ended["failure"].is_null(),
            "{ended}\n{said}"
        );
        let written =
            |name: &str| fs::read_to_string(self.daemon.work().join(name)).unwrap_or_default();
        assert_eq!(written("edited.txt"), EDITED, "{said}");
        assert_eq!(
            written("ran.txt"),
            format!("{EDITED}{}\n", self.daemon.work().display()),
            "{said}"
        );
        self.daemon.until_nothing_is_left();
        let requests: String =
            self.model.seen.lock().unwrap().iter().map(ToString::to_string).collect();
        let tokens = ["tkt_", "sess_"].map(|prefix| find_token(&requests, prefix).unwrap());
        let arguments = self.arguments.lock().unwrap();
        let is_seen = |end: &str| {
            arguments.iter().any(|list| list.split(' ').any(|word| word.ends_with(end)))
        };
        assert!(is_seen(&format!("/bin/{}", self.cli)), "no CLI was seen: {arguments:?}");
        let is_bridged = arguments.iter().any(|list| list.trim_end() == format!("{PROGRAM} mcp"));
        // The bridge appears only with the agent's own daemon. It depends on the environment that
        // its CLI passes on whether it is seen.
        assert!(!is_bridged || server == Server::Own, "{arguments:?}");
        for secret in tokens.iter().map(String::as_str).chain([KEY, TOKEN, PASSKEY]) {
            assert!(
                arguments.iter().all(|list| !list.contains(secret)),
                "{secret} in {arguments:?}"
            );
            assert!(!said.contains(secret), "{secret} in {said}");
        }
    }

    /// Returns the number of polls that gave the agent nothing.
    fn n_empty_polls(&self) -> u32 {
        self.model.n_empty_polls.load(Ordering::Relaxed)
    }

    /// Returns the files that the agent made outside its project.
    fn strays(&self) -> Vec<String> {
        let entries = fs::read_dir(self.outside.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Returns the common part of every configuration.
fn settings(providers: &str) -> String {
    format!("ai_providers: {providers}\nbackoff: {{ initial: 1h, max: 1h }}")
}
