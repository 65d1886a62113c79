//! F-18, F-19: programs that can't be run, and directories that can't be used. Each is named, and
//! none ever counts as running.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::Gate;
use super::ordinary_user;
use crate::daemon::Daemon;
use crate::support::{agent_fixture, until};

/// Checks that each of these agents waits for a person for this reason, and that no start was
/// tried.
#[track_caller]
fn check_not_started(daemon: &Daemon, expected: &[(&str, &str)]) {
    for (agent, reason) in expected {
        let fault = daemon.until_faulty(agent);
        assert!(fault.contains(reason), "{reason}: {fault}");
        assert_eq!((daemon.open(agent).len(), daemon.ended(agent).len()), (0, 0), "{agent}");
    }
    assert_eq!(daemon.status()["limits"]["running"], 0);
    assert!(daemon.logged("agent process started").is_empty());
    daemon.until_nothing_is_left();
}

#[test]
fn a_program_that_can_not_be_run_is_named_and_waits() {
    let mut daemon = Daemon::configured("");
    let program = |name: &str| daemon.work().join(name);
    fs::write(program("plain"), "#!/bin/sh\n").unwrap();
    fs::write(program("widow"), "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(program("widow"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(program("folder")).unwrap();
    let expected = [
        ("missing", "missing` does not exist"),
        ("plain", "plain` is not executable"),
        ("folder", "folder` is a directory"),
        ("widow", "interpreter `/no/such/interpreter`"),
    ];
    let mut settings =
        String::from("backoff: { initial: 1h, max: 1h }\nmax_concurrent: 9\nai_providers:\n");
    for (agent, _) in &expected {
        writeln!(settings, "  {agent}: {{ cli_command: {} }}", program(agent).display()).unwrap();
    }
    // One argument has a lower limit than all of them together.
    writeln!(settings, "  long: {{ cli_command: \"true\", cli_args: [{}] }}", "x".repeat(140_000))
        .unwrap();
    daemon.configure(&settings);
    daemon.start();
    daemon.project("prj");
    for (agent, _) in expected.into_iter().chain([("long", "")]) {
        daemon.agent(agent, "prj", &[]);
        daemon.done(&["agent", "set", agent, "--ai-type", agent]);
        daemon.task(agent, "prj", agent);
    }
    // Only the execution shows this one, and no further start changes it.
    let ended = daemon.until_ended("long");
    assert_eq!((&ended["outcome"], ended["pid"].is_null()), (&"start_failed".into(), true));
    assert!(ended["reason"].as_str().unwrap().contains("is too long"), "{ended}");
    let suspended = |status: &serde_json::Value| {
        let mut deferred = status["deferred"].as_array().unwrap().iter();
        deferred.any(|it| it["agent_id"] == "long" && it["reason"] == "misconfigured")
    };
    until("it is suspended at once", || suspended(&daemon.status()));
    assert_eq!(daemon.ended("long").len(), 1);
    check_not_started(&daemon, &expected);
}

#[test]
fn what_a_person_mends_is_one_entry_and_starts_by_itself_when_it_is_mended() {
    let daemon = Daemon::running(
        "polling_interval: 1s\n\
         ai_providers: { claude: { cli_command: FOLDER/late, cli_args: [script] } }",
    );
    daemon.with_one_task(&["authenticate", "get-my-task", "report:success"]);
    let fault = daemon.until_faulty("agt");
    let expected = "late` does not exist; correct `cli_command`, or install it";
    assert!(fault.ends_with(expected), "{fault}");
    let inbox = daemon.json(&["inbox", "--kind", "misconfigured"]);
    let texts: Vec<&str> =
        inbox.as_array().unwrap().iter().filter_map(|entry| entry["text"].as_str()).collect();
    assert!(matches!(texts[..], [text] if text.contains(&fault)), "{texts:?}");
    let why = daemon.json(&["why", "agt", "prj", "--purpose", "task"])[0].clone();
    assert_eq!(why["reason"], "misconfigured", "{why}");
    symlink(agent_fixture(), daemon.folder().join("late")).unwrap();
    until("the task is done", || daemon.task_status("tsk") == "done");
    let outcomes: Vec<_> =
        daemon.ended("agt").iter().map(|launch| launch["outcome"].clone()).collect();
    assert_eq!(outcomes, ["completed"]);
    assert_eq!(daemon.status()["counters"]["found_by_poll_only"], 0);
    assert_eq!(daemon.json(&["inbox", "--kind", "misconfigured"]), serde_json::json!([]));
}

#[test]
fn a_directory_that_can_not_be_worked_in_is_named_and_waits() {
    let settings = "backoff: { initial: 1h, max: 1h }";
    let is_root = rustix::process::geteuid().is_root();
    let daemon =
        if is_root { ordinary_user::of_user(settings) } else { Some(Daemon::configured(settings)) };
    let Some(mut daemon) = daemon else { return };
    daemon.start();
    let path = |name: &str| daemon.work().join(name);
    fs::write(path("file"), "").unwrap();
    fs::create_dir(path("closed")).unwrap();
    fs::set_permissions(path("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let expected = [
        ("missing", "missing` does not exist"),
        ("file", "file` is not a directory"),
        ("closed", "closed` may not be entered by this user"),
    ];
    for (name, _) in expected {
        daemon.done(&["project", "add", name, "--directory", path(name).to_str().unwrap()]);
        daemon.agent(name, name, &[]);
        daemon.task(name, name, name);
    }
    check_not_started(&daemon, &expected);
    fs::set_permissions(path("closed"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_directory_that_goes_while_an_agent_works_in_it_stops_only_the_next_one() {
    let daemon = Daemon::running("backoff: { initial: 1h, max: 1h }");
    let gate = Gate::closed(&daemon);
    let folder = daemon.work().join("gone");
    let elsewhere = |step: &str| step.replace("DIR", daemon.work().to_str().unwrap());
    fs::create_dir(&folder).unwrap();
    daemon.done(&["project", "add", "prj", "--directory", folder.to_str().unwrap()]);
    daemon.agent("agt", "prj", &[]);
    let steps = [
        "authenticate",
        "get-my-task",
        "write:DIR/ready",
        "run:flock -s DIR/gate true",
        "report:success",
    ];
    fs::write(folder.join("agt.steps"), elsewhere(&steps.join("\n")) + "\n").unwrap();
    daemon.task("tsk", "prj", "agt");
    daemon.written_pid("ready");
    fs::remove_dir_all(&folder).unwrap();
    drop(gate);
    until("the task is done", || daemon.task_status("tsk") == "done");
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
    daemon.task("tsk_2", "prj", "agt");
    let fault = daemon.until_faulty("agt");
    assert!(fault.contains("gone` does not exist"), "{fault}");
    assert_eq!(daemon.ended("agt").len(), 1);
    daemon.until_nothing_is_left();
}
