//! The presets with the real agent CLIs, spawned by the daemon, or by a coordinator that knows only the server's URL, against a
//! scripted model on a loopback port: never with an account, never beyond this machine.
//!
//! The CLIs are big and change weekly, so neither `cargo test` nor `.ci/run` installs them. By hand, with a node of at least 22
//! on the PATH (npm silently takes older releases of claude and qwen for an older one; the package `node@22` brings one):
//! ```sh
//! npm install --ignore-scripts --prefix clis @anthropic-ai/claude-code @openai/codex @google/gemini-cli \
//!     @qwen-code/qwen-code opencode-ai @github/copilot
//! AGENT_COORDINATOR_TEST_CLIS=$PWD/clis cargo test --test it real_clis -- --nocapture
//! ```
//! Without the variable each test says that it is skipped, and passes.
#![allow(clippy::unwrap_used, reason = "a test")]

mod model;
mod script;

use std::fs::{self, File};
use std::os::unix::fs::{chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use self::model::Model;
use self::script::{EDITED, Plot, Script, find_token};
use crate::daemon::{Daemon, PROGRAM};
use crate::support::{processes_of, skip, until_some_within};

/// Names the folder with `node_modules`.
const VARIABLE: &str = "AGENT_COORDINATOR_TEST_CLIS";
/// Stands for a login; nothing that is written down may hold it.
const KEY: &str = "sk-dummy-key-of-the-tests";
/// What a coordinator shows that knows only the server's URL; not for agents.
const TOKEN: &str = "the-token-of-the-coordinators";
/// Shows such a coordinator for whom it may start agents; they get a ticket in its place.
const PASSKEY: &str = "the-passkey-of-the-agent";
/// `nobody` almost everywhere.
const USER: u32 = 65534;
/// A few seconds on an idle machine.
const DEADLINE: Duration = Duration::from_mins(2);

/// The program `cli`; says why where there is none.
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
    // Without npm's scripts, the links of these lead to a text that asks for them.
    let native = match cli {
        "claude" => is_in("@anthropic-ai", "claude"),
        "opencode" => is_in("", "bin/opencode"),
        _ => None,
    };
    let found = native.or_else(|| fs::canonicalize(modules.join(".bin").join(cli)).ok());
    assert!(found.is_some(), "{VARIABLE} names {}, which has no {cli}", folder.display());
    found
}

/// Whether `nobody` can be used, and may run these programs.
fn has_ordinary_user(program: &Path) -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    // Some can't even say their version without one.
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

/// With all that is in it.
fn hand_over(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).unwrap();
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        hand_over(&entry.path(), user);
    }
}

/// How the agent's coordinator knows the server, and so the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    /// They are one daemon: agents get the bridge to its socket.
    Own,
    /// By nothing but its URL: agents get that.
    ByUrl,
}

/// A coordinator beside the daemon, that ends with this.
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
    /// Goes first, as the daemon's end ends whatever is left.
    supervisor: Option<Supervisor>,
    daemon: Daemon,
    /// What the configuration has below `ai_providers`.
    providers: String,
    model: Model,
    /// Where the agent has no business.
    outside: TempDir,
    /// The argument lists of all processes of the daemon while the model was asked.
    arguments: Arc<Mutex<Vec<String>>>,
}

impl Bed {
    /// Not started yet.
    fn new(cli: &str, program: &Path, plot: Plot, providers: &str, user: Option<u32>) -> Self {
        let mut daemon = Daemon::configured(&settings(providers));
        // Agents may use the folder for temporary files, so that is not outside.
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

    /// Everything that an agent gets from its daemon, clean.
    fn command(&self) -> Command {
        let folder = self.daemon.folder();
        let mut command = self.daemon.command();
        let path = std::env::var("PATH").unwrap();
        command
            .env("PATH", format!("{}:{path}", folder.join("bin").display()))
            .env("HOME", folder.join("home"));
        // Whatever a CLI wants elsewhere, it finds nobody there.
        command.env("HTTPS_PROXY", "http://127.0.0.1:9").env("HTTP_PROXY", "http://127.0.0.1:9");
        command
            .env("NO_PROXY", "127.0.0.1")
            .env("OPENAI_API_KEY", KEY)
            .env("ANTHROPIC_API_KEY", KEY);
        let model = format!("http://127.0.0.1:{}", self.model.port);
        command.env("ANTHROPIC_BASE_URL", &model);
        command.env("OPENAI_BASE_URL", format!("{model}/v1")).env("OPENAI_MODEL", "scripted");
        // Not GitHub's models, for which there would have to be an account.
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

    /// An agent of this `ai_type` is there, with nothing to do.
    fn start_with_agent(&mut self, ai_type: &str, server: Server) {
        self.start(server);
        self.daemon.project("prj");
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

    /// For a person who wants to know why, and for the search for secrets.
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

    /// It ended well, did what it was to do, and left no secret anywhere.
    #[track_caller]
    fn check(&self, ended: &Value, server: Server) {
        let said = self.said();
        assert_eq!(ended["outcome"], "completed", "{ended}\n{said}");
        assert_eq!(self.daemon.task_status("tsk"), "done");
        // Its output is understood.
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
        // A daemon of its own has no URL; whether the bridge is seen depends on what its CLI leaves of the environment.
        assert!(!is_bridged || server == Server::Own, "{arguments:?}");
        for secret in tokens.iter().map(String::as_str).chain([KEY, TOKEN, PASSKEY]) {
            assert!(
                arguments.iter().all(|list| !list.contains(secret)),
                "{secret} in {arguments:?}"
            );
            assert!(!said.contains(secret), "{secret} in {said}");
        }
    }

    /// The files that the agent made where it has no business.
    fn strays(&self) -> Vec<String> {
        let entries = fs::read_dir(self.outside.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// What the configuration of every bed has.
fn settings(providers: &str) -> String {
    format!("ai_providers: {providers}\nbackoff: {{ initial: 1h, max: 1h }}")
}

/// The whole life of an agent of this CLI; which files it made outside its project.
fn live(cli: &str, providers: &str, user: Option<u32>) -> Option<Vec<String>> {
    live_with(Server::Own, cli, providers, user)
}

fn live_with(server: Server, cli: &str, providers: &str, user: Option<u32>) -> Option<Vec<String>> {
    let program = find(cli)?;
    if user.is_some() && !has_ordinary_user(&program) {
        skip("the tests can't run these programs as another user");
        return None;
    }
    let mut bed = Bed::new(cli, &program, Plot::Work, providers, user);
    let ended = bed.run(cli, server);
    bed.check(&ended, server);
    Some(bed.strays())
}

/// Its shell goes where its user may; its own tools don't (docs/providers.md).
#[test]
fn claude_does_its_task_and_edits_nothing_outside_its_project() {
    let Some(strays) = live("claude", "{}", None) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn codex_does_its_task_and_writes_nothing_outside_its_project() {
    let Some(strays) = live("codex", "{}", None) else {
        return;
    };
    assert_eq!(strays, [""; 0]);
}

#[test]
fn claude_does_its_task_for_an_ordinary_user() {
    let providers =
        "{ claude: { preset: claude, model: sonnet, cli_args: [--max-turns, \"50\"] } }";
    let Some(strays) = live("claude", providers, Some(USER)) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn codex_does_its_task_for_an_ordinary_user() {
    let Some(strays) = live("codex", "{ codex: { preset: codex, model: other } }", Some(USER))
    else {
        return;
    };
    assert_eq!(strays, [""; 0]);
}

/// As [`claude_does_its_task_and_edits_nothing_outside_its_project`], over HTTP.
#[test]
fn claude_does_its_task_for_a_coordinator_that_knows_only_a_url() {
    let Some(strays) = live_with(Server::ByUrl, "claude", "{}", None) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn codex_does_its_task_for_a_coordinator_that_knows_only_a_url() {
    let Some(strays) = live_with(Server::ByUrl, "codex", "{}", None) else {
        return;
    };
    assert_eq!(strays, [""; 0]);
}

/// Claude refuses that as root.
#[test]
fn claude_is_let_go_anywhere_by_bypass() {
    let providers = "{ claude: { preset: claude, permissions: bypass } }";
    let Some(strays) = live("claude", providers, Some(USER)) else {
        return;
    };
    assert_eq!(strays, ["by_edit", "by_shell"]);
}

#[test]
fn codex_is_let_go_anywhere_by_bypass() {
    let Some(strays) = live("codex", "{ codex: { preset: codex, permissions: bypass } }", None)
    else {
        return;
    };
    assert_eq!(strays, ["by_edit", "by_shell"]);
}

/// Its task is blocked while its model thinks.
fn obeys_a_block(cli: &str) {
    let Some(program) = find(cli) else { return };
    let mut bed = Bed::new(cli, &program, Plot::Blocked, "{}", None);
    bed.start_with_agent(cli, Server::Own);
    bed.daemon.task("tsk", "prj", "agt");
    bed.until("it has its task", || bed.model.is_waiting().then_some(()));
    bed.daemon.done(&["task", "set", "tsk", "--status", "blocked"]);
    bed.model.go_on();
    let ended = bed.until_ended();
    assert_eq!(ended["outcome"], "blocked", "{ended}\n{}", bed.said());
    assert_eq!(bed.daemon.task_status("tsk"), "blocked");
    bed.daemon.until_nothing_is_left();
    // Nothing asks for another.
    assert_eq!(bed.daemon.ended("agt").len(), 1, "{}", bed.said());
}

#[test]
fn claude_ends_because_its_task_is_blocked() {
    obeys_a_block("claude");
}

#[test]
fn codex_ends_because_its_task_is_blocked() {
    obeys_a_block("codex");
}

/// Two questions, the second after the first is answered, and a good-bye.
fn chats(cli: &str) {
    let Some(program) = find(cli) else { return };
    let mut bed = Bed::new(cli, &program, Plot::Chat, "{}", None);
    bed.start_with_agent(cli, Server::Own);
    for question in ["What is it?", "And why?"] {
        bed.daemon.done(&["chat", "send", "agt", "prj", question]);
        let answer = format!("You said: {question}");
        bed.until(&format!("it says `{answer}`"), || {
            let said = bed.daemon.json(&["chat", "show", "agt", "prj"]);
            let messages = said["messages"].as_array()?;
            messages.iter().any(|message| message["content"] == answer).then_some(())
        });
    }
    assert_eq!(bed.daemon.open("agt").len(), 1, "one process answers both\n{}", bed.said());
    bed.daemon.done(&["chat", "end", "agt", "prj"]);
    let ended = bed.until_ended();
    assert_eq!(
        (&ended["purpose"], &ended["outcome"]),
        (&json!("chat"), &json!("completed")),
        "{ended}\n{}",
        bed.said()
    );
    bed.daemon.until_nothing_is_left();
    let log = fs::read_to_string(bed.daemon.work().join(".ai-pm/agents/agt/chat.jsonl")).unwrap();
    assert_eq!(log.lines().count(), 4, "{log}");
}

/// A CLI that ends an agent after some calls that are the same does so within a few polls.
fn goes_on_waiting_in_a_chat(cli: &str) {
    let Some(program) = find(cli) else { return };
    let mut bed = Bed::new(cli, &program, Plot::Chat, "{}\nchat: { poll_hold: 200ms }", None);
    bed.start_with_agent(cli, Server::Own);
    bed.daemon.done(&["chat", "send", "agt", "prj", "Hello?"]);
    bed.until("it has asked ten times in vain", || {
        bed.said().replace(['\\', '"'], "").contains("turn:10").then_some(())
    });
    bed.daemon.done(&["chat", "send", "agt", "prj", "Still there?"]);
    bed.until("it answers", || {
        let said = bed.daemon.json(&["chat", "show", "agt", "prj"]);
        said["messages"]
            .as_array()?
            .iter()
            .any(|message| message["content"] == "You said: Still there?")
            .then_some(())
    });
    assert_eq!(bed.daemon.open("agt").len(), 1, "one process answers both\n{}", bed.said());
    bed.daemon.done(&["chat", "end", "agt", "prj"]);
    bed.until_ended();
}

#[test]
fn qwen_goes_on_waiting_in_a_chat() {
    goes_on_waiting_in_a_chat("qwen");
}

#[test]
fn claude_answers_two_messages_of_a_chat() {
    chats("claude");
}

#[test]
fn codex_answers_two_messages_of_a_chat() {
    chats("codex");
}

#[test]
fn gemini_does_its_task_and_edits_nothing_outside_its_project() {
    let Some(strays) = live("gemini", "{}", None) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn gemini_does_its_task_for_an_ordinary_user() {
    let providers = "{ gemini: { preset: gemini, model: gemini-2.5-pro } }";
    let Some(strays) = live("gemini", providers, Some(USER)) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn gemini_does_its_task_for_a_coordinator_that_knows_only_a_url() {
    let Some(strays) = live_with(Server::ByUrl, "gemini", "{}", None) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn gemini_edits_nothing_outside_its_project_even_by_bypass() {
    let Some(strays) = live("gemini", "{ gemini: { preset: gemini, permissions: bypass } }", None)
    else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

/// Those that are in its real folder.
#[test]
fn gemini_obeys_the_policies_of_its_user() {
    let Some(program) = find("gemini") else {
        return;
    };
    let mut bed = Bed::new("gemini", &program, Plot::Work, "{}", None);
    let folder = bed.daemon.folder().join("home/.gemini/policies");
    fs::create_dir_all(&folder).unwrap();
    let policy = "[[rule]]\ntoolName = \"run_shell_command\"\ncommandPrefix = \"echo\"\ndecision = \"deny\"\npriority = 10\n";
    fs::write(folder.join("no-echo.toml"), policy).unwrap();
    let ended = bed.run("gemini", Server::Own);
    bed.check(&ended, Server::Own);
    assert_eq!(bed.strays(), [""; 0]);
}

#[test]
fn gemini_uses_the_settings_of_its_project() {
    let Some(program) = find("gemini") else {
        return;
    };
    let mut bed = Bed::new("gemini", &program, Plot::Work, "{}", None);
    fs::create_dir(bed.daemon.work().join(".gemini")).unwrap();
    let settings = json!({ "tools": { "exclude": ["web_fetch"] } }).to_string();
    fs::write(bed.daemon.work().join(".gemini/settings.json"), settings).unwrap();
    let ended = bed.run("gemini", Server::Own);
    bed.check(&ended, Server::Own);
    let requests: String = bed.model.seen.lock().unwrap().iter().map(ToString::to_string).collect();
    assert!(
        requests.contains("write_file") && !requests.contains("\"name\":\"web_fetch\""),
        "{requests}"
    );
}

/// Gemini's own limit is five.
#[test]
fn gemini_waits_in_a_chat_for_any_number_of_polls() {
    let Some(program) = find("gemini") else {
        return;
    };
    let mut bed = Bed::new("gemini", &program, Plot::Chat, "{}", None);
    bed.daemon.configure(&format!("{}\nchat: {{ poll_hold: 1s }}", settings("{}")));
    bed.start_with_agent("gemini", Server::Own);
    bed.daemon.done(&["chat", "send", "agt", "prj", "What is it?"]);
    bed.until("it has polled ten times", || {
        (bed.model.seen.lock().unwrap().len() >= 14).then_some(())
    });
    assert_eq!(bed.daemon.open("agt").len(), 1, "{}", bed.said());
    bed.daemon.done(&["chat", "end", "agt", "prj"]);
    assert_eq!(bed.until_ended()["outcome"], "completed", "{}", bed.said());
}

#[test]
fn qwen_does_its_task_and_edits_nothing_outside_its_project() {
    let Some(strays) = live("qwen", "{}", None) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn qwen_does_its_task_for_an_ordinary_user() {
    let providers =
        "{ qwen: { preset: qwen, model: other, cli_args: [--max-session-turns, \"50\"] } }";
    let Some(strays) = live("qwen", providers, Some(USER)) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn qwen_does_its_task_for_a_coordinator_that_knows_only_a_url() {
    let Some(strays) = live_with(Server::ByUrl, "qwen", "{}", None) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn qwen_is_let_go_anywhere_by_bypass() {
    let Some(strays) = live("qwen", "{ qwen: { preset: qwen, permissions: bypass } }", None) else {
        return;
    };
    assert_eq!(strays, ["by_edit", "by_shell"]);
}

#[test]
fn opencode_does_its_task_and_edits_nothing_outside_its_project() {
    let Some(strays) = live("opencode", "{}", None) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn opencode_does_its_task_for_an_ordinary_user() {
    let providers = "{ opencode: { preset: opencode, model: local/other } }";
    let Some(strays) = live("opencode", providers, Some(USER)) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn opencode_does_its_task_for_a_coordinator_that_knows_only_a_url() {
    let Some(strays) = live_with(Server::ByUrl, "opencode", "{}", None) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn opencode_is_let_go_anywhere_by_bypass() {
    let providers = "{ opencode: { preset: opencode, permissions: bypass } }";
    let Some(strays) = live("opencode", providers, None) else {
        return;
    };
    assert_eq!(strays, ["by_edit", "by_shell"]);
}

#[test]
fn copilot_does_its_task_and_writes_nothing_outside_its_project() {
    let Some(strays) = live("copilot", "{}", None) else {
        return;
    };
    assert_eq!(strays, [""; 0]);
}

#[test]
fn copilot_does_its_task_for_an_ordinary_user() {
    let Some(strays) =
        live("copilot", "{ copilot: { preset: copilot, model: other } }", Some(USER))
    else {
        return;
    };
    assert_eq!(strays, [""; 0]);
}

#[test]
fn copilot_does_its_task_for_a_coordinator_that_knows_only_a_url() {
    let Some(strays) = live_with(Server::ByUrl, "copilot", "{}", None) else {
        return;
    };
    assert_eq!(strays, [""; 0]);
}

#[test]
fn copilot_is_let_go_anywhere_by_bypass() {
    let Some(strays) =
        live("copilot", "{ copilot: { preset: copilot, permissions: bypass } }", None)
    else {
        return;
    };
    assert_eq!(strays, ["by_edit", "by_shell"]);
}
