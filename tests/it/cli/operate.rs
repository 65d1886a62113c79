//! `pause`, `drain`, `refresh` and `why`: the operators' commands and questions.

use serde_json::{Value, json};

use super::check_fails;
use crate::daemon::Daemon;
use crate::support::until;

/// Returns the reason that decides about a start for a task.
fn reason(daemon: &Daemon, agent: &str) -> Value {
    daemon.json(&["why", agent, "prj", "--purpose", "task"])[0]["reason"].clone()
}

#[test]
fn why_names_each_rule_and_the_one_that_decides() {
    let daemon = Daemon::running("max_concurrent: 1\nbackoff: { initial: 1h, max: 1h }");
    daemon.project("prj");
    check_fails(&daemon, &["why", "agt", "prj"], 1, "no agent `agt`");
    daemon.agent("agt", "prj", &["exit:3"]);
    check_fails(&daemon, &["why", "agt", "none"], 1, "no project `none`");
    assert_eq!(reason(&daemon, "agt"), "no_work");
    daemon.task("tsk", "prj", "agt");
    daemon.until_ended("agt");
    assert_eq!(reason(&daemon, "agt"), "backoff");
    let told = daemon.done(&["why", "agt", "prj"]);
    assert!(told.starts_with("agt in prj for a task does not start: backoff, for "), "{told}");
    for words in [
        ", after 1 failure\n  Failed once, tries again; `resume agt prj` starts it at once",
        "agt in prj for a chat does not start: no_work",
        "it does not wait after a failure",
        "no: backoff  in 59m",
    ] {
        assert!(
            told.contains(words) || words.ends_with("59m") && told.contains("no: backoff  in 1h"),
            "{words}: {told}"
        );
    }
    daemon.done(&["stop", "agt", "prj"]);
    assert_eq!(reason(&daemon, "agt"), "held");

    daemon.agent("agt_runs", "prj", &["authenticate", "write:there", "sleep:600"]);
    daemon.task("tsk_runs", "prj", "agt_runs");
    daemon.written_pid("there");
    assert_eq!(reason(&daemon, "agt_runs"), "running");
    daemon.agent("agt_waits", "prj", &[]);
    daemon.task("tsk_waits", "prj", "agt_waits");
    until("it waits for a slot", || reason(&daemon, "agt_waits") == "no_free_slot");
    daemon.done(&["project", "set", "prj", "--unassign", "agt_waits"]);
    assert_eq!(reason(&daemon, "agt_waits"), "not_assigned");
}

#[test]
fn the_pause_file_works_without_a_forge_and_is_named() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    daemon.agent("agt", "prj", &["authenticate", "get-my-task", "report:success"]);
    let file = daemon.state().join("contexts/pause_signal");
    until("the folder of the pause file is made", || file.parent().unwrap().is_dir());
    std::fs::write(&file, "").unwrap();
    until("the file is noticed", || daemon.status()["pause_file"] == true);
    let doctor = daemon.cli(&["doctor", "--offline"]).stdout;
    let found = format!("warning  daemon: the pause file `{}` keeps", file.display());
    assert!(doctor.contains(&found) && doctor.contains("-> remove it to go on\n"), "{doctor}");
    daemon.task("tsk", "prj", "agt");
    until("the agent waits for its end", || reason(&daemon, "agt") == "paused");
    let why = daemon.done(&["why", "agt", "prj", "--purpose", "task"]);
    let path = file.to_str().unwrap();
    assert!(why.contains(path) && !why.contains("`resume` without arguments"), "{why}");
    let resumed = daemon.done(&["resume"]);
    assert!(resumed.contains(path), "{resumed}");
    assert_eq!(reason(&daemon, "agt"), "paused");
    let first_line = || {
        let status = daemon.done(&["status"]);
        status.lines().next().unwrap_or_default().to_owned()
    };
    let while_it_exists = format!("while the file `{path}` exists, 0 of ");
    let told = first_line();
    assert!(told.contains(&format!(": paused: no agent is started {while_it_exists}")), "{told}");
    daemon.done(&["pause"]);
    let told = first_line();
    assert!(told.contains(&format!(" until `resume`, and {while_it_exists}")), "{told}");
    daemon.done(&["resume"]);

    std::fs::remove_file(&file).unwrap();
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
    assert!(!daemon.done(&["resume"]).contains(path));
}

#[test]
fn the_pause_file_and_a_person_pause_independently_also_over_restarts() {
    let mut daemon = Daemon::running("");
    daemon.with_one_task(&["authenticate", "get-my-task", "report:success"]);
    daemon.until_ended("agt");
    let file = daemon.state().join("contexts/pause_signal");
    let is_paused = |daemon: &Daemon| {
        let status = daemon.status();
        ["paused", "pause_file"].map(|what| status[what] == true)
    };
    // A file that is made while no daemon runs holds the first start.
    daemon.kill();
    std::fs::write(&file, "").unwrap();
    daemon.start();
    assert_eq!(is_paused(&daemon), [false, true]);
    daemon.done(&["pause"]);
    assert_eq!(is_paused(&daemon), [true, true]);
    daemon.done(&["resume"]);
    assert_eq!(is_paused(&daemon), [false, true]);
    daemon.done(&["pause"]);
    std::fs::remove_file(&file).unwrap();
    until("the end of the file is noticed", || is_paused(&daemon) == [true, false]);
    // So does the end of a file.
    std::fs::write(&file, "").unwrap();
    until("the file is noticed", || is_paused(&daemon) == [true, true]);
    daemon.kill();
    std::fs::remove_file(&file).unwrap();
    daemon.start();
    assert_eq!(is_paused(&daemon), [true, false]);
    daemon.done(&["resume"]);
    daemon.task("next", "prj", "agt");
    until("it works again", || daemon.task_status("next") == "done");
}

#[test]
fn a_pause_keeps_what_runs_and_starts_nothing() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    daemon.agent("agt_runs", "prj", &["authenticate", "write:there", "sleep:600"]);
    daemon.task("tsk_runs", "prj", "agt_runs");
    daemon.written_pid("there");
    assert!(daemon.done(&["pause"]).contains("until `resume`"));
    daemon.done(&["pause"]);
    daemon.agent("agt", "prj", &["authenticate", "sleep:600"]);
    daemon.task("tsk", "prj", "agt");
    daemon.done(&["refresh"]);
    until("it is put off", || reason(&daemon, "agt") == "paused");
    assert_eq!(daemon.open("agt_runs")[0]["state"], "running");
    daemon.done(&["resume"]);
    daemon.until_in_state("agt", "running");
}

#[test]
fn a_drain_waits_for_what_runs_and_stops_it_when_the_time_is_over() {
    let daemon = Daemon::running("stop: { timeout: 1s }");
    daemon.project("prj");
    assert!(daemon.done(&["drain"]).contains("drained: nothing runs"));
    daemon.done(&["resume"]);
    daemon.agent("agt", "prj", &["authenticate", "write:there", "sleep:600"]);
    daemon.task("tsk", "prj", "agt");
    daemon.written_pid("there");
    let told = daemon.done(&["drain", "--timeout", "100ms"]);
    assert!(told.contains("1 still running") && told.contains("agt in prj: stopped"), "{told}");
    assert_eq!(daemon.open("agt"), Vec::<Value>::new());
    assert_eq!(daemon.status()["paused"], true);
    check_fails(&daemon, &["drain", "--timeout", "soon"], 2, "--timeout");
}

#[test]
fn programs_get_one_json_answer_of_each_command_that_operates() {
    let daemon = Daemon::running("stop: { timeout: 1s }");
    daemon.project("prj");
    assert_eq!(daemon.json(&["pause"]), json!({ "is_paused": true }));
    assert_eq!(daemon.json(&["refresh"]), json!({ "is_requested": true }));
    let resumed = daemon.json(&["resume"]);
    assert_eq!(resumed, json!({ "is_resumed": true, "pause_file_path": null, "parked": [] }));
    let run = |file: &str| {
        let write = format!("write:{file}");
        daemon.agent(file, "prj", &["authenticate", &write, "sleep:600"]);
        daemon.task(&format!("tsk_{file}"), "prj", file);
        daemon.written_pid(file);
    };
    run("agt_1");
    let stopped = daemon.json(&["stop", "agt_1", "prj"]);
    assert_eq!(stopped["ended"][0]["agent_id"], "agt_1", "{stopped}");
    assert_eq!(stopped["ended"][0]["outcome"], "stopped", "{stopped}");
    assert_eq!((&stopped["stopping"], &stopped["abandoned"]), (&json!([]), &json!([])));
    run("agt_2");
    let stopping = daemon.json(&["stop", "agt_2", "prj", "--no-wait"]);
    assert_eq!(stopping["ended"], json!([]));
    assert!(stopping["stopping"][0].as_str().unwrap().starts_with("lch_"), "{stopping}");
    daemon.until_ended("agt_2");
    run("agt_3");
    let drained = daemon.json(&["drain", "--timeout", "100ms"]);
    assert_eq!(drained["ended"][0]["agent_id"], "agt_3", "{drained}");
}

#[test]
fn check_tells_programs_whether_the_daemon_can_work() {
    let daemon = Daemon::configured("");
    let good = daemon.json(&["check"]);
    let expected = json!([true, null, daemon.config()]);
    assert_eq!(json!([good["is_good"], good["problem"], good["configuration"]]), expected);
    let lines: Vec<&str> =
        good["lines"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(lines.iter().any(|line| line.starts_with("state directory: ")), "{lines:?}");
    daemon.configure("ai_providers: { claude: { cli_command: no-such-program } }");
    let said = daemon.cli(&["check", "--json"]);
    let bad: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((said.code, &bad["is_good"]), (1, &json!(false)), "{said:?}");
    assert!(bad["problem"].as_str().unwrap().contains("claude"), "{bad}");
}
