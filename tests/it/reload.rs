//! F-26 and F-27: the configuration of a running daemon. A valid file takes effect at once, as far
//! as it can. An invalid one changes nothing and is reported.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::support::{is_gone, until, until_some};

const PATIENT: &[&str] =
    &["authenticate", "write:ready", "wait-for:go", "get-my-task", "report:success"];

/// Returns the relation of the file to the configuration in use.
fn standing(daemon: &Daemon) -> Value {
    daemon.status()["configuration"].clone()
}

#[track_caller]
fn until_rejected(daemon: &Daemon, problem: &str) -> Value {
    until_some(&format!("the status says: {problem}"), || {
        let rejected = standing(daemon)["rejected"].clone();
        rejected["problem"].as_str()?.contains(problem).then_some(rejected)
    })
}

/// Returns the settings that `reload --json` or `status --json` names.
fn settings(changes: &Value) -> Vec<&str> {
    changes.as_array().unwrap().iter().map(|change| change["setting"].as_str().unwrap()).collect()
}

/// Reloads and returns the changed settings.
fn settings_of(daemon: &Daemon) -> Vec<String> {
    settings(&daemon.json(&["reload"])["changes"]).into_iter().map(str::to_owned).collect()
}

/// Saves like an editor: a new file is renamed over the old one.
fn replace(daemon: &Daemon, text: &str) {
    let draft = daemon.folder().join("draft");
    fs::write(&draft, text).unwrap();
    fs::rename(draft, daemon.config()).unwrap();
}

#[test]
fn a_broken_file_changes_nothing_and_is_told_until_it_is_mended() {
    let daemon = Daemon::running("max_concurrent: 2");
    daemon.with_one_task(PATIENT);
    let agent = daemon.written_pid("ready");
    let good = fs::read_to_string(daemon.config()).unwrap();
    let n_lines = good.lines().count();
    let mut since = Value::Null;
    for (line, problem) in [
        ("agents: [", "not valid YAML"),
        ("coordinator_token: ${NOBODY_SET_THIS}", "`NOBODY_SET_THIS` is not set"),
        ("max_concurent: 5", "unknown key `max_concurent` (did you mean `max_concurrent`?)"),
        ("polling_interval: never", "expected a duration"),
    ] {
        replace(&daemon, &format!("{good}{line}\n"));
        daemon.signal(Signal::HUP);
        let rejected = until_rejected(&daemon, problem);
        let place = format!("{}:{}:", daemon.config().display(), n_lines + 1);
        assert!(rejected["problem"].as_str().unwrap().contains(&place), "{place}: {rejected}");
        assert!(since.is_null() || since == rejected["since"], "since the first of them");
        since = rejected["since"].clone();
        let logged =
            daemon.logged("the configuration on disk is not used; the last good one stays in use");
        assert!(
            logged.last().unwrap()["problem"].as_str().unwrap().contains(problem),
            "{logged:?}"
        );
        let told = daemon.done(&["status"]);
        assert!(
            told.contains("The configuration on disk is not in use: ") && told.contains(problem),
            "{told}"
        );
        let said = daemon.cli(&["reload"]);
        assert_eq!(said.code, 78, "{said:?}");
        assert!(
            said.stderr.contains(&place) && said.stderr.contains("goes on with the last good one"),
            "{said:?}"
        );
        assert_eq!(daemon.status()["limits"]["max_concurrent"], 2);
    }
    fs::remove_file(daemon.config()).unwrap();
    fs::create_dir(daemon.config()).unwrap();
    // No command is sent, because the folder is watched. And no command could use this file.
    until("the log says so", || daemon.log().contains("could not read"));
    fs::remove_dir(daemon.config()).unwrap();
    replace(&daemon, &good);
    until("a good file is in use", || standing(&daemon)["rejected"].is_null());
    assert!(!daemon.done(&["status"]).contains("configuration on disk"));
    assert_eq!(daemon.open("agt")[0]["pid"], agent);
    fs::write(daemon.work().join("go"), "").unwrap();
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
}

#[test]
fn a_lower_limit_ends_nobody_and_starts_nobody_until_it_is_kept() {
    let daemon = Daemon::running("max_concurrent: 3");
    daemon.project("prj");
    let agents = ["a", "b", "c"];
    for agent in agents {
        let (ready, go) = (format!("write:ready.{agent}"), format!("wait-for:go.{agent}"));
        daemon.agent(agent, "prj", &["authenticate", &ready, &go, "get-my-task", "report:success"]);
        daemon.task(&format!("tsk_{agent}"), "prj", agent);
    }
    let pids = agents.map(|agent| daemon.written_pid(&format!("ready.{agent}")));
    daemon.configure("max_concurrent: 1");
    let reloaded = daemon.json(&["reload"]);
    assert_eq!(
        reloaded["changes"],
        json!([{ "setting": "max_concurrent", "values": ["3", "1"], "applies": "now" }])
    );
    daemon.agent(
        "late",
        "prj",
        &["authenticate", "write:ready.late", "get-my-task", "report:success"],
    );
    daemon.task("tsk_late", "prj", "late");
    let is_deferred = || {
        let deferred = daemon.status()["deferred"].as_array().unwrap().clone();
        deferred
            .iter()
            .any(|deferred| deferred["agent_id"] == "late" && deferred["reason"] == "no_free_slot")
    };
    until("the status has the new limit", || daemon.status()["limits"]["max_concurrent"] == 1);
    for (agent, pid) in agents.iter().zip(pids) {
        until("the late one waits", is_deferred);
        assert!(!is_gone(pid), "nobody was ended");
        fs::write(daemon.work().join(format!("go.{agent}")), "").unwrap();
        assert_eq!(daemon.until_ended(agent)["outcome"], "completed");
    }
    assert_eq!(daemon.until_ended("late")["outcome"], "completed");
    let ready = |name: &str| fs::metadata(daemon.work().join(name)).unwrap().modified().unwrap();
    assert!(ready("ready.late") > ready("go.c"));
}

#[test]
fn a_changed_file_is_read_by_itself_however_it_was_changed() {
    let daemon = Daemon::running("");
    let limit = |n: u32| {
        until(&format!("the limit is {n}"), || daemon.status()["limits"]["max_concurrent"] == n);
    };
    daemon.configure("max_concurrent: 11");
    limit(11);
    let text = fs::read_to_string(daemon.config()).unwrap();
    replace(&daemon, &text.replace("11", "12"));
    limit(12);
    // The file becomes a link to another file, which some people use for their settings.
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("config.yaml");
    fs::write(&target, text.replace("11", "13")).unwrap();
    fs::remove_file(daemon.config()).unwrap();
    std::os::unix::fs::symlink(&target, daemon.config()).unwrap();
    limit(13);
    fs::write(&target, text.replace("11", "14")).unwrap();
    limit(14);
    assert!(daemon.logged("configuration reloaded").iter().all(|line| line["by"] == "file"));
}

#[test]
fn what_can_not_change_waits_for_a_restart_and_says_so() {
    let mut daemon = Daemon::running("log: { level: info }");
    let said = daemon.done(&["reload"]);
    assert!(said.ends_with("coordinator_config.yaml: nothing is different\n"), "{said}");
    let other = "http: { listen: '127.0.0.1:0' }\nlog: { level: debug }\nagents: { a: { passkey: hunter2 } }";
    daemon.configure(other);
    let said = daemon.done(&["reload"]);
    for line in [
        "3 settings ",
        "\n  http.listen: off → 127.0.0.1:0 (after a restart)\n",
        "\n  log.level: info → debug (now)\n",
        "\n  agents.a.passkey: changed (now)\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let told = daemon.done(&["status"]);
    assert!(
        told.contains("Changed, and in use after a restart:\n  http.listen: off → 127.0.0.1:0"),
        "{told}"
    );
    assert!(daemon.status()["http"].is_null());
    until("it logs more", || daemon.log().contains(r#""level":"debug""#));
    let changed = daemon.logged("setting changed");
    let one = changed.iter().find(|line| line["setting"] == "log.level").unwrap();
    assert_eq!(
        (&one["old"], &one["new"], &one["applies"]),
        (&json!("info"), &json!("debug"), &json!("now"))
    );
    assert!(!daemon.log().contains("hunter2"));
    // The change is still reported when something else changes, and no more when it is taken back.
    daemon.configure(&format!("{other}\nmax_concurrent: 4"));
    let reloaded = daemon.json(&["reload"]);
    assert_eq!(settings(&reloaded["changes"]), ["max_concurrent"]);
    assert_eq!(settings(&reloaded["waiting"]), ["http.listen"]);
    assert!(
        daemon
            .done(&["reload"])
            .contains("  http.listen: off → 127.0.0.1:0 (after a restart, since earlier)")
    );
    daemon.configure("max_concurrent: 4");
    assert_eq!(daemon.json(&["reload"])["waiting"], json!([]));
    daemon.configure(other);
    assert!(daemon.terminate().success());
    daemon.start();
    assert!(daemon.status()["http"].is_object() && standing(&daemon)["waiting"] == json!([]));
}

#[test]
fn a_changed_provider_is_for_new_starts() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    daemon.agent("agt", "prj", PATIENT);
    daemon.task("tsk", "prj", "agt");
    let agent = daemon.written_pid("ready");
    let fixture = crate::support::agent_fixture();
    let arguments = "[write:other, authenticate, get-my-task, 'report:success']";
    daemon.configure(&format!(
        "language: ja\nai_providers: {{ claude: {{ cli_command: {}, cli_args: {arguments} }} }}",
        fixture.display()
    ));
    let reloaded = daemon.json(&["reload"]);
    assert_eq!(settings(&reloaded["changes"]), ["language", "ai_providers.claude.cli_args"]);
    assert_eq!(daemon.open("agt")[0]["pid"], agent);
    fs::write(daemon.work().join("go"), "").unwrap();
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
    daemon.task("tsk_next", "prj", "agt");
    assert_ne!(daemon.written_pid("other"), agent);
    until("it is done", || daemon.task_status("tsk_next") == "done");
}

/// Returns the answer to a passkey: the session with its token, or the refusal.
fn authenticate(daemon: &Daemon, passkey: &str) -> Value {
    let arguments = json!({ "agent_id": "agt", "passkey": passkey, "project_id": "prj" });
    daemon.client().call("authenticate", &arguments)
}

#[test]
fn a_passkey_is_another_one_without_a_restart_and_sessions_go_on() {
    const AGENTS: &str = "
agents: { agt: {} }
projects: { prj: { working_directory: work, agents: [agt] } }
tasks: { tsk: { project: prj, title: a title, assignee: agt, status: todo } }
";
    let mut daemon =
        Daemon::configured("agents: { agt: { passkey: first } }\nmanifest: manifest.yaml");
    daemon.write("manifest.yaml", AGENTS);
    daemon.start();
    let session = authenticate(&daemon, "first");
    assert_eq!(session["success"], true, "{session}");
    daemon.configure("agents: { agt: { passkey: second } }\nmanifest: manifest.yaml");
    assert_eq!(settings(&daemon.json(&["reload"])["changes"]), ["agents.agt.passkey"]);
    assert_eq!(authenticate(&daemon, "first")["error"], "Invalid agent_id or passkey");
    // Only a caller with the right passkey learns that an agent is at work.
    let twin = authenticate(&daemon, "second");
    assert_eq!(twin["error"], "Agent instance already running for this project", "{twin}");
    let token = json!({ "session_token": session["session_token"] });
    assert_eq!(daemon.client().call("get_my_task", &token)["success"], true);
    assert_eq!(daemon.client().call("logout", &token)["success"], true);
    assert_eq!(authenticate(&daemon, "second")["success"], true);
}

#[test]
fn a_passkey_of_the_configuration_counts_for_an_agent_that_is_created_later() {
    let daemon =
        Daemon::running("agents: { agt: { passkey: first }, agt_by_file: { passkey: second } }");
    fs::create_dir_all(daemon.work()).unwrap();
    let work = daemon.work().display().to_string();
    daemon.done(&["agent", "add", "agt"]);
    daemon.done(&["project", "add", "prj", "--directory", &work, "--assign", "agt"]);
    let session = authenticate(&daemon, "first");
    assert_eq!(session["success"], true, "{session}");
    daemon.apply("agents: { agt_by_file: {} }\nprojects: { prj: { working_directory: work, agents: [agt_by_file] } }");
    let arguments = json!({ "agent_id": "agt_by_file", "passkey": "second", "project_id": "prj" });
    let session = daemon.client().call("authenticate", &arguments);
    assert_eq!(session["success"], true, "{session}");
}

#[test]
fn a_manifest_that_changes_is_applied_and_one_that_does_not_is_left_alone() {
    let mut daemon = Daemon::configured("manifest: manifest.yaml");
    let manifest = |name: &str, task: &str| {
        format!(
            "agents: {{ agt: {{ name: {name} }} }}\nprojects: {{ prj: {{ working_directory: work }} }}\n\
             tasks: {{ tsk: {{ project: prj, title: one }}, {task} }}\n"
        )
    };
    let name = |daemon: &Daemon| daemon.json(&["agent", "show", "agt"])["name"].clone();
    daemon.write("manifest.yaml", manifest("one", ""));
    daemon.start();
    daemon.done(&["agent", "set", "agt", "--name", "by a person"]);
    daemon.done(&["reload"]);
    assert_eq!(name(&daemon), "by a person");
    daemon.write("manifest.yaml", manifest("two", "tsk_bad: { project: prj_none, title: bad }"));
    let rejected = until_rejected(&daemon, "manifest.yaml:3:");
    assert!(rejected["problem"].as_str().unwrap().contains("prj_none"), "{rejected}");
    assert_eq!(name(&daemon), "by a person");
    daemon.write("manifest.yaml", manifest("two", "tsk_new: { project: prj, title: new }"));
    until("the manifest is applied", || name(&daemon) == "two");
    assert_eq!(daemon.task_status("tsk_new"), "todo");
    assert!(standing(&daemon)["rejected"].is_null());
}

/// Makes a call over HTTP that only coordinators may make. Returns the code of its refusal, if
/// there is one.
fn ask_as_coordinator(daemon: &Daemon, token: &str) -> Option<String> {
    let url = format!("http://{}/mcp", daemon.status()["http"]["address"].as_str().unwrap());
    let mut command = daemon.command();
    command.env("COORDINATOR_MCP_URL", url).env("COORDINATOR_TOKEN", token);
    let output = command.args(["call", "list_active_projects_with_agents"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (!output.status.success()).then_some(said)
}

#[test]
fn a_coordinators_token_is_another_one_without_a_restart_on_both_sides() {
    let serve =
        |token: &str| format!("http: {{ listen: '127.0.0.1:0' }}\ncoordinator_token: {token}");
    let server = Daemon::serving(&serve("first-token"));
    server.project("prj");
    server.agent("agt", "prj", &["authenticate", "get-my-task", "report:success"]);
    assert_eq!(ask_as_coordinator(&server, "first-token"), None);
    let url = format!("http://{}/mcp", server.status()["http"]["address"].as_str().unwrap());
    let agents = "agents: { agt: { passkey: none } }";
    let mut coordinator =
        Daemon::supervising(&url, &format!("coordinator_token: first-token\n{agents}"));
    coordinator.start();
    until("it is let in", || {
        coordinator.status()["health"] == "ok"
            && !server.status()["coordinators"].as_array().unwrap().is_empty()
    });

    server.configure(&serve("second-token"));
    assert_eq!(settings(&server.json(&["reload"])["changes"]), ["coordinator_token"]);
    let refused = ask_as_coordinator(&server, "first-token").unwrap();
    assert!(refused.contains("coordinator"), "{refused}");
    assert_eq!(ask_as_coordinator(&server, "second-token"), None);
    until("the coordinator is refused", || coordinator.status()["health"] == "cut_off");

    coordinator.configure(&format!(
        "server: {url}\ncoordinator_token: second-token\nmax_concurrent: 7\n{agents}"
    ));
    assert_eq!(
        settings(&coordinator.json(&["reload"])["changes"]),
        ["max_concurrent", "coordinator_token"]
    );
    until("it is let in again", || coordinator.status()["health"] == "ok");
    assert_eq!(coordinator.status()["limits"]["max_concurrent"], 7);
    until("the server has its new limit", || server.status()["limits"]["max_concurrent"] == 7);
    server.steps("agt", &[]);
    fs::write(coordinator.work().join("agt.steps"), "authenticate\nget-my-task\nreport:success\n")
        .unwrap();
    server.done(&["project", "set", "prj", "--directory", coordinator.work().to_str().unwrap()]);
    server.task("tsk", "prj", "agt");
    until("it works", || server.task_status("tsk") == "done");
}

#[test]
fn other_times_count_for_what_runs() {
    let daemon = Daemon::running("stop: { timeout: 1h }\nshutdown: { sigterm: stop }");
    daemon.with_one_task(&["ignore-term", "authenticate", "write:ready", "sleep:600"]);
    let agent = daemon.written_pid("ready");
    daemon.configure("stop: { timeout: 0 }\nshutdown: { sigterm: keep }");
    assert_eq!(
        settings(&daemon.json(&["reload"])["changes"]),
        ["stop.timeout", "shutdown.sigterm"]
    );
    daemon.done(&["stop", "agt", "prj"]);
    assert_eq!(daemon.until_ended("agt")["signal"], 9);
    assert!(is_gone(agent));
}

#[test]
fn an_agent_that_starts_has_the_time_that_it_was_started_with() {
    let settings = "backoff: { initial: 1h, max: 1h }";
    let daemon = Daemon::running(&format!("start: {{ timeout: 1h }}\n{settings}"));
    daemon.with_one_task(&[
        "write:ready",
        "wait-for:go",
        "authenticate",
        "get-my-task",
        "report:success",
    ]);
    daemon.written_pid("ready");
    daemon.configure(&format!("start: {{ timeout: 1s }}\n{settings}"));
    assert_eq!(settings_of(&daemon), ["start.timeout"]);
    // An agent that is started later has the new time, and no more.
    daemon.agent("later", "prj", &["sleep:600"]);
    daemon.task("tsk_later", "prj", "later");
    assert_eq!(daemon.until_ended("later")["outcome"], "never_authenticated");
    fs::write(daemon.work().join("go"), "").unwrap();
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
}

#[test]
fn an_empty_file_is_one_that_is_being_written() {
    let daemon = Daemon::running("max_concurrent: 2");
    let good = fs::read_to_string(daemon.config()).unwrap();
    replace(&daemon, "\n");
    // A command would look for the daemon at the default places of an empty file.
    let refused =
        || daemon.logged("the configuration on disk is not used; the last good one stays in use");
    until("it is refused", || !refused().is_empty());
    assert!(refused()[0]["problem"].as_str().unwrap().contains("it is empty"), "{}", daemon.log());
    replace(&daemon, &good);
    assert_eq!(daemon.status()["limits"]["max_concurrent"], 2);
    daemon.done(&["reload"]);
    assert!(standing(&daemon)["rejected"].is_null());
}

#[test]
fn the_policy_of_the_end_is_the_one_that_was_read_last() {
    let mut daemon = Daemon::running("shutdown: { sigterm: stop }");
    daemon.with_one_task(PATIENT);
    let agent = daemon.written_pid("ready");
    daemon.configure("shutdown: { sigterm: keep }");
    daemon.done(&["reload"]);
    assert!(daemon.terminate().success());
    assert!(!is_gone(agent));
    assert_eq!(daemon.logged("stopping")[0]["agents"], "kept");
}

#[test]
fn without_a_daemon_there_is_nothing_to_reload() {
    let daemon = Daemon::configured("");
    assert_eq!(daemon.cli(&["reload"]).code, 69);
    assert!(!Path::new(&daemon.state()).exists());
}
