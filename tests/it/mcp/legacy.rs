//! Clients of the older system (R-004-30, docs/migration.md): their calls are answered, and the log
//! names the replacements.

use serde_json::{Value, json};

use super::{ByHand, MINE, check_refused, claim, world};
use crate::daemon::Daemon;
use crate::redacted::redacted;
use crate::support::until;

/// A task of agent `agt_a` in `prj_2`.
const ELSEWHERE: &str = "  tsk_2: { project: prj_2, title: Another page, description: d, assignee: agt_a, status: in_progress, priority: high }\n";

#[expect(clippy::needless_pass_by_value, reason = "written with json! at each call")]
fn call(daemon: &Daemon, tool: &str, arguments: Value) -> Value {
    daemon.client().call(tool, &arguments)
}

fn action(daemon: &Daemon, coordinator: Option<&str>) -> Value {
    let mut arguments = json!({ "agent_id": "agt_a", "project_id": "prj" });
    if let Some(coordinator) = coordinator {
        arguments["coordinator_id"] = coordinator.into();
    }
    call(daemon, "get_agent_action", arguments)
}

/// Returns the deprecated forms in the log, each with its successor, in order.
fn warned(daemon: &Daemon) -> Vec<(String, String)> {
    let text = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
    let lines = daemon.logged("a client uses a deprecated call");
    assert!(lines.iter().all(|line| line["level"] == "warn"), "{lines:?}");
    lines.iter().map(|line| (text(line, "form"), text(line, "successor"))).collect()
}

#[track_caller]
fn check_warned(daemon: &Daemon, expected: &[(&str, &str)]) {
    until("the warnings are written", || warned(daemon).len() >= expected.len());
    let expected: Vec<_> =
        expected.iter().map(|&(form, next)| (form.to_owned(), next.to_owned())).collect();
    assert_eq!(warned(daemon), expected);
}

#[test]
fn a_person_s_stop_is_an_action() {
    let daemon = Daemon::crowded("", &world(MINE));
    claim(&daemon, "agt_a");
    daemon.cli(&["stop", "agt_a", "prj", "--no-wait"]);
    let stop = action(&daemon, Some("crd_test"));
    assert_eq!((&stop["action"], &stop["reason"]), (&"stop".into(), &"person".into()), "{stop}");
    daemon.done(&["stop", "agt_a", "prj", "--force"]);
    assert_eq!(
        action(&daemon, None),
        json!({ "action": "hold", "reason": "held", "purpose": "task" })
    );
}

#[test]
fn an_older_coordinator_and_its_agent_get_through() {
    let daemon = Daemon::crowded("", &world(MINE));
    let agents = call(&daemon, "list_managed_agents", json!({}));
    let agent = |id: &str, name: &str, projects: &[&str]| json!({ "agent_id": id, "agent_name": name, "ai_type": "claude", "projects": projects });
    let all = [
        agent("agt_a", "Ann", &["prj", "prj_2"]),
        agent("agt_b", "Bob", &["prj"]),
        agent("agt_busy", "agt_busy", &["prj_busy"]),
    ];
    assert_eq!(agents, json!({ "success": true, "agents": all }));

    let yes = call(&daemon, "should_start", json!({ "agent_id": "agt_a" }));
    let expected = json!({
        "should_start": true, "reason": "ready", "project_id": "prj", "ai_type": "claude", "purpose": "task",
        "launch_id": "[launch_id]", "start_deadline": "[start_deadline]",
    });
    assert_eq!(redacted(&yes), expected);
    let no = json!({ "should_start": false, "reason": "starting" });
    assert_eq!(call(&daemon, "should_start", json!({ "agent_id": "agt_a" })), no);

    let opened = call(&daemon, "authenticate", json!({ "agent_id": "agt_a", "passkey": "key_a" }));
    assert_eq!(
        (&opened["success"], &opened["project_name"]),
        (&true.into(), &"Project".into()),
        "{opened}"
    );
    assert_eq!(daemon.open("agt_a")[0]["launch_id"], yes["launch_id"]);
    let mut agent = ByHand {
        client: daemon.client(),
        token: opened["session_token"].as_str().unwrap().to_owned(),
    };

    let pending = agent.call("get_pending_tasks", json!({}));
    let task = json!({
        "task_id": "tsk", "short_id": "PROJECT-1", "project_id": "prj", "title": "Login page", "description": "Build the form.",
        "status": "in_progress", "priority": "medium", "working_directory": "[working_directory]",
    });
    assert_eq!(redacted(&pending), json!({ "success": true, "tasks": [task] }));

    let begun = agent.call("report_execution_start", json!({ "task_id": "tsk" }));
    let execution = begun["execution_id"].clone();
    assert_eq!(
        redacted(&begun),
        json!({
            "success": true, "execution_id": execution, "task_id": "tsk", "status": "running",
            "started_at": "[started_at]",
        })
    );
    // The call is repeated, and made in the new form: the work is the same.
    assert_eq!(agent.call("report_execution_start", json!({ "task_id": "tsk" })), begun);
    assert_eq!(agent.get_my_task()["task"]["task_id"], "tsk");

    let ended = json!({ "execution_id": execution, "exit_code": 0, "duration_seconds": 1.5, "log_file_path": "agent.log" });
    let completed = agent.call("report_execution_complete", ended.clone());
    assert_eq!(
        completed,
        json!({
            "success": true, "execution_id": execution, "status": "completed",
            "instruction": "The task is completed. Your session ends here: exit now.",
        })
    );
    assert_eq!(agent.call("report_execution_complete", ended), completed);
    // This is the standalone runner's name of the argument.
    let again = json!({ "execution_log_id": execution, "exit_code": 0, "duration_seconds": 1.5 });
    assert_eq!(agent.call("report_execution_complete", again), completed);
    assert_eq!(daemon.task_status("tsk"), "done");
    let task = daemon.json(&["task", "show", "tsk"]);
    assert_eq!(task["executions"].as_array().unwrap().len(), 1, "{task}");
    check_warned(
        &daemon,
        &[
            ("list_managed_agents", "list_active_projects_with_agents"),
            ("should_start(agent_id)", "should_start(agent_id, project_id)"),
            ("authenticate(agent_id, passkey)", "authenticate(agent_id, passkey, project_id)"),
            ("get_pending_tasks", "get_my_task"),
            ("report_execution_start", "get_my_task"),
            ("report_execution_complete", "report_completed"),
        ],
    );
}

/// This call is older than `report_process_exit`. It makes the pair free for the next start.
#[test]
fn an_older_coordinator_ends_the_session_of_a_process_that_is_gone() {
    let daemon = Daemon::crowded("", &world(MINE));
    let pair = json!({ "agent_id": "agt_a", "project_id": "prj" });
    // Nothing was started, so there is nothing to end.
    let done = json!({ "success": true });
    assert_eq!(call(&daemon, "invalidate_session", pair.clone()), done);
    assert_eq!(call(&daemon, "should_start", pair.clone())["should_start"], true);
    let credentials = json!({ "agent_id": "agt_a", "passkey": "key_a", "project_id": "prj" });
    let opened = call(&daemon, "authenticate", credentials);
    assert_eq!(daemon.open("agt_a").len(), 1, "{opened}");
    assert_eq!(call(&daemon, "invalidate_session", pair.clone()), done);
    let ended = daemon.until_ended("agt_a");
    assert_eq!(ended["outcome"], "exited_without_report", "{ended}");
    let mine = call(&daemon, "get_my_task", json!({ "session_token": opened["session_token"] }));
    assert_eq!(mine["error_code"], "session_ended", "{mine}");
    assert_eq!(call(&daemon, "invalidate_session", pair), done);
    let log = json!({ "agent_id": "agt_a", "task_id": "tsk", "log_file_path": "logs/agt_a.log" });
    assert_eq!(call(&daemon, "register_execution_log_file", log), done);
    assert_eq!(daemon.ended("agt_a").len(), 1);
    check_warned(
        &daemon,
        &[
            ("invalidate_session", "report_process_exit"),
            ("register_execution_log_file", "report_process_exit(output_tail)"),
        ],
    );
}

/// A client of the older system that polls. It authenticates again if the text of a refusal
/// contains `invalid` or `expired`, in any case, and does one task at a time.
struct Poller<'a> {
    daemon: &'a Daemon,
    token: Option<Value>,
}

impl Poller<'_> {
    fn authenticate(&mut self) {
        let opened =
            call(self.daemon, "authenticate", json!({ "agent_id": "agt_b", "passkey": "key_b" }));
        assert_eq!(opened["success"], true, "{opened}");
        self.token = Some(opened["session_token"].clone());
    }

    fn call(&self, tool: &str, mut arguments: Value) -> Value {
        arguments["session_token"] = self.token.clone().unwrap();
        call(self.daemon, tool, arguments)
    }

    /// Makes one turn of its loop. Returns the task that it did.
    fn turn(&mut self) -> Option<String> {
        if self.token.is_none() {
            self.authenticate();
        }
        let mut pending = self.call("get_pending_tasks", json!({}));
        if pending["success"] == false {
            let error = pending["error"].as_str().unwrap().to_lowercase();
            assert!(
                error.contains("invalid") || error.contains("expired"),
                "it would never come back: {error}"
            );
            self.authenticate();
            pending = self.call("get_pending_tasks", json!({}));
        }
        let task =
            pending["tasks"].as_array().unwrap().first()?["task_id"].as_str().unwrap().to_owned();
        let begun = self.call("report_execution_start", json!({ "task_id": task }));
        assert_eq!(begun["success"], true, "{begun}");
        let done = json!({
            "execution_log_id": begun["execution_id"], "exit_code": 0, "duration_seconds": 0.1, "log_file_path": "/log",
        });
        let done = self.call("report_execution_complete", done);
        assert_eq!(done["success"], true, "{done}");
        Some(task)
    }
}

#[test]
fn an_older_client_that_polls_does_task_after_task() {
    let task = |id: &str, priority: &str| {
        format!(
            "  {id}: {{ project: prj, title: t, assignee: agt_b, status: in_progress, priority: {priority} }}\n"
        )
    };
    let daemon =
        Daemon::crowded("", &world(&[task("tsk_1", "high"), task("tsk_2", "low")].concat()));
    let mut poller = Poller { daemon: &daemon, token: None };
    let done = [poller.turn(), poller.turn(), poller.turn()];
    assert_eq!(done, [Some("tsk_1".to_owned()), Some("tsk_2".to_owned()), None]);
    // Tasks that people start while it polls are done in its present session.
    daemon.task("tsk_3", "prj", "agt_b");
    assert_eq!(poller.turn().as_deref(), Some("tsk_3"));
    for task in ["tsk_1", "tsk_2", "tsk_3"] {
        assert_eq!(daemon.task_status(task), "done", "{task}");
    }
    let refused = poller.call("get_pending_tasks", json!({}));
    check_refused(&refused, "session_ended", "Invalid session: it has ended");
}

#[test]
fn an_older_coordinator_may_report_the_exit_after_the_agent_s_own_report() {
    let daemon = Daemon::crowded("", &world(MINE));
    let pair = json!({ "agent_id": "agt_a", "project_id": "prj" });
    assert_eq!(call(&daemon, "should_start", pair)["should_start"], true);
    assert_eq!(ByHand::authenticate(&daemon, "agt_a").report("success")["success"], true);
    let exit = json!({ "agent_id": "agt_a", "project_id": "prj", "exit_code": 0 });
    for _ in 0..2 {
        assert_eq!(call(&daemon, "report_process_exit", exit.clone()), json!({ "success": true }));
    }
    let ended = daemon.json(&["status"])["ended"][0].clone();
    assert_eq!(
        (&ended["agent_id"], &ended["outcome"]),
        (&"agt_a".into(), &"completed".into()),
        "{ended}"
    );
}

#[test]
fn an_exit_code_other_than_0_is_a_failure() {
    let daemon = Daemon::crowded("", &world(MINE));
    let mut agent = ByHand::authenticate(&daemon, "agt_a");
    let failed = agent.call("report_execution_complete", json!({ "exit_code": 3 }));
    assert_eq!(
        (&failed["status"], &failed["execution_id"]),
        (&"failed".into(), &Value::Null),
        "{failed}"
    );
    let task = daemon.json(&["task", "show", "tsk"]);
    assert_eq!(
        (&task["status"], &task["blocked_reason"]),
        (&"blocked".into(), &"exit code 3".into()),
        "{task}"
    );
}

#[test]
fn who_does_not_say_where_is_taken_where_work_waits() {
    let daemon = Daemon::crowded("", &world(""));
    let ask = || call(&daemon, "should_start", json!({ "agent_id": "agt_a" }));
    let enter = |passkey: &str| {
        call(&daemon, "authenticate", json!({ "agent_id": "agt_a", "passkey": passkey }))
    };
    assert_eq!(ask(), json!({ "should_start": false, "reason": "no_work" }));
    let lost = enter("key_a");
    check_refused(
        &lost,
        "needs_project",
        "More than one project of agt_a fits, or none: name one in project_id",
    );
    assert_eq!(lost["action"], "exit");

    daemon.apply(&world(ELSEWHERE));
    daemon.apply(&world(&format!("{ELSEWHERE}{MINE}")));
    assert_eq!(enter("key_a")["project_name"], "Another");
    assert_eq!(ask()["project_id"], "prj");
    assert_eq!(enter("key_a")["project_name"], "Project");
    check_refused(
        &enter("key_a"),
        "already_running",
        "Agent instance already running for this project",
    );
    assert_eq!(ask(), json!({ "should_start": false, "reason": "running" }));
}

#[test]
fn a_ticket_knows_its_project() {
    let daemon = Daemon::crowded("", &world(&format!("{ELSEWHERE}{MINE}")));
    let ticket = claim(&daemon, "agt_a");
    let opened = call(&daemon, "authenticate", json!({ "agent_id": "agt_a", "passkey": ticket }));
    assert_eq!(opened["project_name"], "Project");
}

#[test]
fn who_proves_nothing_learns_nothing_in_the_old_form_either() {
    let daemon = Daemon::crowded("", &world(MINE));
    for (agent, passkey) in
        [("agt_a", "key_b"), ("agt_x", "key_a"), ("../a", "key_a"), ("agt_b", "")]
    {
        let answer =
            call(&daemon, "authenticate", json!({ "agent_id": agent, "passkey": passkey }));
        check_refused(&answer, "invalid_credentials", "Invalid agent_id or passkey");
        assert_eq!(answer["action"], "exit");
    }
    for (agent, reason) in [("agt_x", "unknown"), ("agt_b", "no_work")] {
        let answer = call(&daemon, "should_start", json!({ "agent_id": agent }));
        assert_eq!(answer, json!({ "should_start": false, "reason": reason }));
    }
}

#[test]
fn an_execution_is_of_one_s_own_task() {
    let more = "  tsk_bob: { project: prj, title: t, assignee: agt_b, status: in_progress }
  tsk_todo: { project: prj, title: t, assignee: agt_a, status: todo }
  tsk_more: { project: prj, title: t, assignee: agt_a, status: in_progress }\n";
    let daemon = Daemon::crowded("", &world(&format!("{MINE}{more}")));
    let mut agent = ByHand::authenticate(&daemon, "agt_a");
    let mut check = |task: &str, code: &str, error: &str| {
        check_refused(
            &agent.call("report_execution_start", json!({ "task_id": task })),
            code,
            error,
        );
    };
    check("tsk_x", "task_not_found", "Task not found");
    check("tsk_elsewhere", "task_not_found", "Task not found");
    check("tsk_bob", "not_your_task", "Task tsk_bob is not assigned to you");
    check(
        "tsk_todo",
        "invalid",
        "Task tsk_todo is todo: only what is in progress can be worked on",
    );
    let first = agent.call("report_execution_start", json!({ "task_id": "tsk_more" }));
    let second = agent.call("report_execution_start", json!({ "task_id": "tsk" }));
    check_refused(
        &second,
        "other_task_begun",
        "Task tsk can't begin: this session works on tsk_more",
    );
    let unknown =
        agent.call("report_execution_complete", json!({ "execution_id": "exe_x", "exit_code": 0 }));
    check_refused(&unknown, "execution_not_found", "Execution not found");
    let mut bob = ByHand::authenticate(&daemon, "agt_b");
    let not_his = json!({ "execution_id": first["execution_id"], "exit_code": 0 });
    check_refused(
        &bob.call("report_execution_complete", not_his),
        "execution_not_found",
        "Execution not found",
    );

    // A finished task makes room for the next.
    agent.set("tsk_more", "done");
    assert_eq!(agent.call("report_execution_start", json!({ "task_id": "tsk" }))["success"], true);
}

#[test]
fn malformed_older_calls_say_what_was_expected() {
    let daemon = Daemon::crowded("", &world(MINE));
    let mut agent = ByHand::authenticate(&daemon, "agt_a");
    let token = agent.token.clone();
    let mut check = |tool: &str, mut arguments: Value, expected: &str| {
        arguments["session_token"] = token.as_str().into();
        let answer = agent.client.call(tool, &arguments);
        assert_eq!(answer["error_code"], "invalid_arguments", "{answer}");
        let message = answer["error"].as_str().unwrap();
        assert!(message.starts_with(expected), "{tool}: {message}");
    };
    check("report_execution_start", json!({}), "arguments: missing field `task_id`");
    check(
        "report_execution_start",
        json!({ "task_id": "../x" }),
        "argument `task_id`: `../x` is not a valid task id",
    );
    check("report_execution_complete", json!({}), "arguments: missing field `exit_code`");
    check(
        "report_execution_complete",
        json!({ "exit_code": "0" }),
        "argument `exit_code`: invalid type: string",
    );
    check(
        "report_execution_complete",
        json!({ "exit_code": 0, "execution_id": 1 }),
        "argument `execution_id`",
    );
    check(
        "get_agent_action",
        json!({ "agent_id": "agt_a" }),
        "arguments: missing field `project_id`",
    );
    check(
        "get_agent_action",
        json!({ "agent_id": "", "project_id": "p" }),
        "argument `agent_id`: `` is not a valid",
    );
    check(
        "should_start",
        json!({ "agent_id": "agt_a", "project_id": 7 }),
        "argument `project_id`: invalid type",
    );
    let missing = call(&daemon, "get_pending_tasks", json!({}));
    assert_eq!(missing["error"], "argument `session_token` is missing");
    let stranger = json!({ "session_token": "sess_x" });
    check_refused(
        &call(&daemon, "get_pending_tasks", stranger),
        "invalid_session",
        "Invalid session token",
    );
}

#[test]
fn an_agent_has_no_older_coordinator_tools_either() {
    let daemon = Daemon::running("");
    let ask = "{\"agent_id\": \"agt\", \"project_id\": \"prj\"}";
    daemon.with_one_task(&[&format!("call:get_agent_action {ask}"), "call:list_managed_agents {}"]);
    daemon.until_ended("agt");
    let printed = daemon.done(&["logs", "agt", "prj"]);
    let answers: Vec<Value> =
        printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(answers.len(), 2, "{printed}");
    for answer in &answers {
        check_refused(answer, "coordinator_only", "This tool is for coordinators");
    }
    assert_eq!(warned(&daemon), []);
}

#[test]
fn what_is_deprecated_says_so_and_comes_last() {
    let daemon = Daemon::running("");
    let listed = daemon.client().request("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let is_deprecated: Vec<bool> = tools
        .iter()
        .map(|tool| tool["description"].as_str().unwrap().starts_with("Deprecated: use "))
        .collect();
    assert!(is_deprecated.is_sorted(), "{is_deprecated:?}");
    assert_eq!(is_deprecated.iter().filter(|&&is| is).count(), 6);
}
