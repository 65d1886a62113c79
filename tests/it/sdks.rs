//! The server for foreign clients: the official SDKs of MCP and the Inspector, on every interface
//! for agents, the official conformance suite, and the example agents.
//!
//! ```sh
//! mkdir sdks && cp tests/clients/package.json sdks/
//! npm install --ignore-scripts --prefix sdks
//! python3 -m venv sdks/venv && sdks/venv/bin/pip install -r tests/clients/requirements.txt
//! AGENT_COORDINATOR_TEST_SDKS=$PWD/sdks cargo test --test it sdks
//! ```
//! `.ci/run` does that. To try other versions, change the two files. Without the variable each test
//! prints that it is skipped, and passes.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::daemon::{Daemon, PROGRAM};
use crate::support::{skip, until};

/// The variable that names the folder with `venv` and `node_modules`.
const VARIABLE: &str = "AGENT_COORDINATOR_TEST_SDKS";

/// A manifest with Ann in a project, with a task for her.
const WORLD: &str = "
agents:
  agt_a: { name: Ann, passkey: key_a }
projects:
  prj: { name: Project, working_directory: work, agents: [agt_a] }
tasks:
  tsk: { project: prj, title: Login page, assignee: agt_a }
";

/// The revisions that clients agree on with the server: the newest, and the newest that begins with
/// a handshake.
const NEWEST: &str = "2026-07-28";
const HANDSHAKE: &str = "2025-11-25";

/// The log message that appears once for each older form of a call.
const DEPRECATED: &str = "a client uses a deprecated call";
/// The refusals of valid calls from unknown callers.
const STRANGER: [&str; 4] =
    ["invalid_credentials", "invalid_session", "session_ended", "coordinator_only"];

#[derive(Debug, Clone, Copy)]
enum Endpoint {
    Http,
    /// The bridge to the socket.
    Bridge,
    /// The bridge, if only the URL is known.
    BridgeByUrl,
}

const ENDPOINTS: [Endpoint; 3] = [Endpoint::Http, Endpoint::Bridge, Endpoint::BridgeByUrl];

/// A daemon, and clients that know only the given facts.
struct Bed {
    daemon: Daemon,
    sdks: PathBuf,
    tools: Vec<String>,
}

impl Bed {
    /// Makes a bed if `needed` is in the folder of the SDKs. Otherwise prints the reason.
    fn with(needed: &str) -> Option<Self> {
        let sdks = folder_with(needed)?;
        let daemon =
            Daemon::crowded("http: { listen: '127.0.0.1:0' }\nlog: { level: debug }", WORLD);
        fs::create_dir(daemon.folder().join("home")).unwrap();
        let listed = daemon.client().request("tools/list", &json!({}));
        let listed = listed["result"]["tools"].as_array().unwrap().iter();
        let tools = listed.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
        Some(Self { daemon, sdks, tools })
    }

    /// Returns a program of the SDKs, with the node that came with them, if one did.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut path = OsString::from(self.sdks.join("node_modules/.bin"));
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        let mut command = Command::new(program.as_ref());
        command.env_clear().env("PATH", path).env("HOME", self.daemon.folder().join("home"));
        command.current_dir(self.daemon.work());
        command
    }

    fn url(&self) -> String {
        format!("http://{}/mcp", self.daemon.status()["http"]["address"].as_str().unwrap())
    }

    /// Returns the variable that a client needs for this interface.
    fn variable(&self, endpoint: Endpoint) -> Option<(&'static str, String)> {
        match endpoint {
            Endpoint::Http => None,
            Endpoint::Bridge => Some((
                "COORDINATOR_MCP_SOCKET",
                self.daemon.state().join("mcp.sock").to_str().unwrap().to_owned(),
            )),
            Endpoint::BridgeByUrl => Some(("COORDINATOR_MCP_URL", self.url())),
        }
    }

    fn target(&self, endpoint: Endpoint) -> String {
        match endpoint {
            Endpoint::Http => self.url(),
            Endpoint::Bridge | Endpoint::BridgeByUrl => PROGRAM.to_owned(),
        }
    }

    /// Gives the task to the agent, even if it is done.
    fn give_task(&self) {
        for status in ["todo", "in_progress"] {
            self.daemon.done(&["task", "set", "tsk", "--status", status]);
        }
    }

    /// Lets a client of `tests/clients` do the task on this interface.
    #[track_caller]
    fn check(&self, mut client: Command, endpoint: Endpoint, mode: &str, protocol: &str) {
        self.give_task();
        let token = fs::read_to_string(self.daemon.state().join("coordinator_token")).unwrap();
        client.env("TEST_COORDINATOR_TOKEN", token.trim());
        let n_dropped = || self.daemon.log().matches("tool call dropped").count();
        let n_dropped_before = n_dropped();
        let output = client
            .args([mode, &self.target(endpoint)])
            .envs(self.variable(endpoint))
            .output()
            .unwrap();
        let about = format!("{endpoint:?}, {mode}: {output:?}\n{}", self.daemon.log());
        assert!(output.status.success(), "{about}");
        // Clients write their warnings there.
        assert!(output.stderr.is_empty(), "{about}");
        let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&seen["protocol"], &seen["server"]),
            (&protocol.into(), &"agent-coordinator".into()),
            "{about}"
        );
        assert_eq!(seen["tools"], json!(self.tools), "{about}");
        self.check_answers(&seen, &about);
        self.check_every_tool(&seen["every"], &about);
        if let Some(gave_up) = seen.get("gave_up") {
            assert!(gave_up.as_str().is_some_and(|error| error.contains("after ")), "{about}");
            until("the call is dropped", || n_dropped() > n_dropped_before);
        }
        assert_eq!(seen.get("errors").unwrap_or(&json!([])), &json!([]), "{about}");
    }

    /// Checks that each tool answered in one of the two forms.
    #[track_caller]
    fn check_every_tool(&self, answers: &Value, about: &str) {
        for tool in &self.tools {
            let (is_error, answer) = (&answers[tool]["is_error"], &answers[tool]["answer"]);
            let is_refusal = answer["success"] == false
                && answer["error"].is_string()
                && answer["error_code"].is_string();
            assert!(answer.is_object() && *is_error == is_refusal, "{tool}: {answer}: {about}");
            // The server knows the caller, whatever the answer is.
            let is_stranger = STRANGER.contains(&answer["error_code"].as_str().unwrap_or_default());
            assert!(!is_stranger, "{tool}: {answer}: {about}");
        }
    }

    /// Checks the tools' answers, by their names.
    #[track_caller]
    fn check_answers(&self, seen: &Value, about: &str) {
        for tool in ["health_check", "authenticate", "get_my_task", "report_completed"] {
            assert_eq!(seen[tool]["is_error"], false, "{tool}: {about}");
        }
        assert_eq!(seen["health_check"]["answer"]["status"], "ok", "{about}");
        let refusal = json!([seen["refusal"]["is_error"], seen["refusal"]["answer"]["error_code"]]);
        assert_eq!(refusal, json!([true, "invalid_credentials"]), "{about}");
        assert_eq!(seen["get_my_task"]["answer"]["task"]["title"], "Login page", "{about}");
        assert_eq!(seen["report_completed"]["answer"]["success"], true, "{about}");
        assert_eq!(self.daemon.task_status("tsk"), "done", "{about}");
        let is_bad =
            |line: &&str| line.contains(r#""level":"warn""#) || line.contains(r#""level":"error""#);
        let log = self.daemon.log();
        // A busy machine is slow.
        let is_known =
            |line: &&str| line.contains(DEPRECATED) || line.contains("held up all others");
        let bad: Vec<&str> = log.lines().filter(is_bad).filter(|line| !is_known(line)).collect();
        assert_eq!(bad, Vec::<&str>::new(), "{about}");
    }

    /// Returns `tests/clients/typescript_sdk.mjs` with the packages beside it.
    fn typescript(&self, generation: &str) -> Command {
        let (modules, script) = ("node_modules", "typescript_sdk.mjs");
        let folder = self.daemon.folder();
        if !folder.join(script).exists() {
            for file in [script, "arguments.json"] {
                fs::copy(clients().join(file), folder.join(file)).unwrap();
            }
            symlink(self.sdks.join(modules), folder.join(modules)).unwrap();
        }
        let mut command = self.command("node");
        command.arg(folder.join(script)).arg(generation);
        command
    }

    /// Runs the Inspector once. Returns its exit code and its output.
    #[track_caller]
    fn inspect(&self, endpoint: Endpoint, era: &str, arguments: &[&str]) -> (i32, Value) {
        let mut command = self.command("node");
        command.arg(self.sdks.join("node_modules/.bin/mcp-inspector")).arg("--cli");
        if let Some((name, value)) = self.variable(endpoint) {
            command.args(["-e", &format!("{name}={value}")]);
        }
        command.arg(self.target(endpoint));
        if !matches!(endpoint, Endpoint::Http) {
            command.arg("mcp");
        }
        let output = command.args(["--protocol-era", era]).args(arguments).output().unwrap();
        let code = output.status.code().unwrap();
        let about =
            format!("{endpoint:?}, {era}, {arguments:?}: {output:?}\n{}", self.daemon.log());
        assert!(code != 0 || output.stderr.is_empty(), "{about}");
        let printed = serde_json::from_slice(&output.stdout);
        (code, printed.unwrap_or_else(|_| panic!("{about}")))
    }

    /// Makes a tool call. Returns its answer in the form of the other clients.
    #[track_caller]
    fn inspected(&self, endpoint: Endpoint, era: &str, tool: &str, arguments: &Value) -> Value {
        let arguments = arguments.to_string();
        let words = ["--method", "tools/call", "--tool-name", tool, "--tool-args-json", &arguments];
        let (code, printed) = self.inspect(endpoint, era, &words);
        let is_error = printed["isError"].as_bool().unwrap_or(false);
        // This is the Inspector's own code for a tool that refuses.
        assert_eq!(code, if is_error { 5 } else { 0 }, "{printed}");
        json!({ "is_error": is_error, "answer": printed["structuredContent"] })
    }
}

/// A manifest with an agent that is one of the examples, and a task for it.
const EXAMPLE_WORLD: &str = "
agents: { agt_example: { ai_type: example, system_prompt: You greet people. } }
projects: { prj: { working_directory: work, agents: [agt_example] } }
tasks: { tsk: { project: prj, title: Say hello, assignee: agt_example, status: in_progress } }
";

/// Lets the daemon start a complete example agent for a task and then for a chat: over the bridge,
/// and over HTTP.
#[track_caller]
fn check_example(sdks: &Path, program: &Path, script: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/agents").join(script);
    for wrap in ["[]", "[env, -u, COORDINATOR_MCP_SOCKET]"] {
        let mut daemon = Daemon::configured("");
        // The packages are found in a folder above the agent.
        let copy = daemon.folder().join(script.file_name().unwrap());
        fs::copy(&script, &copy).unwrap();
        if sdks.join("node_modules").exists() {
            symlink(sdks.join("node_modules"), daemon.folder().join("node_modules")).unwrap();
        }
        let provider = format!(
            "{{ cli_command: {}, cli_args: ['{}'], wrap: {wrap} }}",
            program.display(),
            copy.display()
        );
        daemon.configure(&format!(
            "http: {{ listen: '127.0.0.1:0' }}\nai_providers: {{ example: {provider} }}"
        ));
        daemon.start();
        daemon.apply(EXAMPLE_WORLD);
        let ended = daemon.until_ended("agt_example");
        let printed = || daemon.cli(&["logs", "agt_example", "prj"]).stdout;
        let about = || format!("{wrap}: {}\n{}", printed(), daemon.log());
        assert_eq!(
            (&ended["outcome"], &ended["exit_code"]),
            (&"completed".into(), &0.into()),
            "{}",
            about()
        );
        assert_eq!(daemon.task_status("tsk"), "done", "{}", about());
        let greeting = fs::read_to_string(daemon.work().join("hello.txt")).unwrap();
        assert_eq!(greeting, "Hello from agt_example: Say hello\n");

        daemon.done(&["chat", "send", "agt_example", "prj", "Good morning"]);
        let reply = "You said: Good morning";
        until("the agent answers", || {
            daemon.done(&["chat", "show", "agt_example", "prj"]).contains(reply)
        });
        daemon.done(&["chat", "end", "agt_example", "prj"]);
        until("the agent has left the chat", || daemon.ended("agt_example").len() == 2);
        let ended = &daemon.ended("agt_example")[0];
        assert_eq!(ended["exit_code"], 0, "{ended}: {}", about());
    }
}

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// Returns the folder of the SDKs if `needed` is in it. Otherwise prints the reason.
fn folder_with(needed: &str) -> Option<PathBuf> {
    let Some(sdks) = std::env::var_os(VARIABLE) else {
        skip(&format!("{VARIABLE} names no folder with {needed} (see tests/it/sdks.rs)"));
        return None;
    };
    let sdks = PathBuf::from(sdks);
    if !sdks.join(needed).exists() {
        skip(&format!("{VARIABLE} names {}, which has no {needed}", sdks.display()));
        return None;
    }
    Some(fs::canonicalize(sdks).unwrap())
}

#[test]
fn the_example_agent_in_python_does_a_task_and_talks_in_a_chat() {
    let Some(sdks) = folder_with("venv/bin/python") else {
        return;
    };
    check_example(&sdks, &sdks.join("venv/bin/python"), "python/agent.py");
}

#[test]
fn the_example_agent_in_typescript_does_a_task_and_talks_in_a_chat() {
    // The node of the system may be too old for TypeScript.
    let Some(sdks) = folder_with("node_modules/.bin/node") else {
        return;
    };
    check_example(&sdks, &sdks.join("node_modules/.bin/node"), "typescript/agent.mts");
}

#[test]
fn the_python_sdk_does_a_task_by_every_door() {
    let Some(bed) = Bed::with("venv/bin/python") else {
        return;
    };
    for endpoint in ENDPOINTS {
        for (mode, protocol) in [("auto", NEWEST), ("legacy", HANDSHAKE)] {
            let mut client = bed.command(bed.sdks.join("venv/bin/python"));
            client.args(["-W", "always"]).arg(clients().join("python_sdk.py"));
            bed.check(client, endpoint, mode, protocol);
        }
    }
}

#[test]
fn the_first_typescript_sdk_does_a_task_by_every_door() {
    let Some(bed) = Bed::with("node_modules/@modelcontextprotocol/sdk") else {
        return;
    };
    for endpoint in ENDPOINTS {
        bed.check(bed.typescript("sdk"), endpoint, "legacy", HANDSHAKE);
    }
}

#[test]
fn the_second_typescript_sdk_does_a_task_by_every_door() {
    let Some(bed) = Bed::with("node_modules/@modelcontextprotocol/client") else {
        return;
    };
    for endpoint in ENDPOINTS {
        for (mode, protocol) in [("auto", NEWEST), ("legacy", HANDSHAKE)] {
            bed.check(bed.typescript("client"), endpoint, mode, protocol);
        }
    }
}

#[test]
fn the_inspector_does_a_task_and_finds_nothing_wrong_with_the_schemas_at_any_door() {
    let Some(bed) = Bed::with("node_modules/@modelcontextprotocol/inspector") else {
        return;
    };
    for endpoint in ENDPOINTS {
        for era in ["legacy", "modern"] {
            let (code, printed) =
                bed.inspect(endpoint, era, &["--method", "tools/list", "--strict"]);
            let names = printed["tools"]
                .as_array()
                .unwrap()
                .iter()
                .map(|tool| tool["name"].clone())
                .collect();
            assert_eq!((code, Value::Array(names)), (0, json!(bed.tools)), "{endpoint:?}, {era}");
        }
    }
    for (endpoint, era) in [(Endpoint::Http, "legacy"), (Endpoint::Bridge, "modern")] {
        bed.give_task();
        let call = |tool: &str, arguments: Value| bed.inspected(endpoint, era, tool, &arguments);
        let health_check = call("health_check", json!({}));
        let who =
            |passkey: &str| json!({ "agent_id": "agt_a", "passkey": passkey, "project_id": "prj" });
        let refusal = call("authenticate", who("wrong"));
        let authenticate = call("authenticate", who("key_a"));
        let token = authenticate["answer"]["session_token"].clone();
        let get_my_task = call("get_my_task", json!({ "session_token": token }));
        let report = json!({ "session_token": token, "result": "success", "summary": "done" });
        let seen = json!({
            "health_check": health_check, "refusal": refusal, "authenticate": authenticate, "get_my_task": get_my_task,
            "report_completed": call("report_completed", report),
        });
        bed.check_answers(&seen, &format!("{endpoint:?}: {seen}"));
    }
}

#[test]
fn the_conformance_suite_finds_nothing_wrong_with_the_server() {
    let Some(bed) = Bed::with("node_modules/@modelcontextprotocol/conformance") else {
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/run");
    let mut command = bed.command("node");
    command.arg(script).env(VARIABLE, &bed.sdks).env("AGENT_COORDINATOR_PROGRAM", PROGRAM);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
