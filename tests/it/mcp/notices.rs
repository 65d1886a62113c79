//! Notices to an agent at work about changes of its work.

use serde_json::{Value, json};

use super::{ByHand, MINE, check_refused, world};
use crate::daemon::Daemon;
use crate::redacted::redacted;
use crate::support::until;

const NOTIFICATION: &str = "There is a notification. Call get_notifications and read it.";

/// Returns Ann at work on `tsk`.
fn at_work(settings: &str, tasks: &str) -> (Daemon, ByHand) {
    let daemon = Daemon::crowded(settings, &world(&format!("{MINE}{tasks}")));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    assert_eq!(ann.get_my_task()["task"]["task_id"], "tsk");
    (daemon, ann)
}

fn set(daemon: &Daemon, task: &str, arguments: &[&str]) {
    daemon.done(&[&["task", "set", task], arguments].concat());
}

fn notified(answer: &Value) -> Option<&str> {
    answer["notification"].as_str()
}

fn actions(ann: &mut ByHand) -> Vec<String> {
    let answer = ann.call("get_notifications", json!({}));
    let actions = answer["notifications"].as_array().unwrap_or_else(|| panic!("{answer}")).iter();
    actions
        .map(|notice| {
            format!("{} {}", notice["type"].as_str().unwrap(), notice["action"].as_str().unwrap())
        })
        .collect()
}

/// Checks R-000-1 to R-000-8.
#[test]
fn the_flow_of_seed_000_in_its_own_words() {
    let (daemon, mut ann) = at_work("language: ja", "");
    assert_eq!(notified(&ann.get_my_task()), None);
    set(&daemon, "tsk", &["--status", "blocked", "--reason", "the design changes"]);

    // The notice is kept until the agent reads it. Every answer mentions it until then, even a
    // refusal, and until its report.
    let told = Some("通知があります。get_notificationsを呼び出して確認してください。");
    assert_eq!(notified(&ann.get_my_task()), told);
    let refused = ann.set("tsk_elsewhere", "done");
    check_refused(&refused, "task_not_found", "Task not found");
    assert_eq!(notified(&refused), told);
    let answer = ann.call("get_notifications", json!({}));
    assert_eq!(
        redacted(&answer),
        json!({ "success": true, "notifications": [{
            "type": "status_change", "action": "blocked", "task_id": "tsk",
            "message": "タスクのステータスがblockedに変更されました",
            "instruction": "作業を中断し、report_completedをresult='blocked'で呼び出してください",
            "id": answer["notifications"][0]["id"], "created_at": "[created_at]",
        }] })
    );
    assert_eq!(notified(&ann.get_my_task()), told);
    assert_eq!(ann.call("get_next_action", json!({}))["action"], "report_completed");
    assert_eq!(ann.report("blocked")["success"], true);

    let task = daemon.json(&["task", "show", "tsk"]);
    assert_eq!(
        (&task["status"], &task["blocked_reason"]),
        (&"blocked".into(), &"the design changes".into())
    );
    assert_eq!(daemon.open("agt_a"), Vec::<Value>::new());
}

#[test]
fn every_change_that_ends_the_work_is_told_in_its_own_words() {
    let (daemon, mut ann) =
        at_work("", "  tsk_more: { project: prj, title: t, assignee: agt_a, status: todo }\n");
    let changes: [(&[&str], &str); 4] = [
        (&["--status", "cancelled"], "status_change cancelled"),
        (&["--status", "todo"], "status_change todo"),
        (&["--status", "done"], "status_change done"),
        (&["--assignee", "agt_b"], "status_change reassigned"),
    ];
    for (arguments, expected) in changes {
        set(&daemon, "tsk", arguments);
        assert_eq!(ann.call("get_next_action", json!({}))["action"], "get_notifications");
        assert_eq!(actions(&mut ann), [expected]);
        // After the task is given back, the change has no effect.
        daemon.done(&["task", "set", "tsk", "--status", "todo", "--assignee", "agt_a"]);
        set(&daemon, "tsk", &["--status", "in_progress"]);
        assert_eq!(notified(&ann.get_my_task()), None);
    }
    // A task that is not worked on causes no notice, and neither does a title.
    set(&daemon, "tsk_more", &["--status", "cancelled"]);
    set(&daemon, "tsk", &["--title", "Another title"]);
    assert_eq!(notified(&ann.get_my_task()), None);
    // An agent gets no notice about its own changes.
    assert_eq!(notified(&ann.set("tsk", "blocked")), None);
    assert_eq!(notified(&ann.get_my_task()), None);
}

/// Returns the answer of `get_my_task` without a task.
fn without_a_task(ann: &mut ByHand) -> Value {
    let answer = ann.get_my_task();
    assert_eq!(answer["has_task"], false, "{answer}");
    answer
}

#[test]
fn an_agent_that_has_not_asked_for_its_task_is_told_what_became_of_it() {
    let daemon = Daemon::crowded("", &world(MINE));
    let begin = || {
        daemon.done(&["task", "set", "tsk", "--status", "in_progress", "--assignee", "agt_a"]);
        ByHand::authenticate(&daemon, "agt_a")
    };
    let changes: [(&[&str], &str, &str); 5] = [
        (&["--status", "blocked"], "status_change blocked", "blocked"),
        (&["--assignee", "agt_b"], "status_change reassigned", "in_progress"),
        (&["--status", "todo"], "status_change todo", "todo"),
        (&["--status", "done"], "status_change done", "done"),
        (&["--status", "cancelled"], "status_change cancelled", "cancelled"),
    ];
    for (arguments, expected, status) in changes {
        if matches!(daemon.task_status("tsk").as_str(), "done" | "cancelled") {
            set(&daemon, "tsk", &["--status", "todo"]);
        }
        let mut ann = begin();
        set(&daemon, "tsk", arguments);
        assert_eq!(notified(&without_a_task(&mut ann)), Some(NOTIFICATION), "{expected}");
        assert_eq!(actions(&mut ann), [expected]);
        assert_eq!(ann.call("get_next_action", json!({}))["action"], "report_completed");
        assert_eq!(ann.report("blocked")["success"], true);
        assert_eq!((daemon.task_status("tsk").as_str(), daemon.open("agt_a").len()), (status, 0));
    }

    // The notice is taken back with the change.
    set(&daemon, "tsk", &["--status", "todo"]);
    let mut ann = begin();
    set(&daemon, "tsk", &["--assignee", "agt_b"]);
    set(&daemon, "tsk", &["--assignee", "agt_a"]);
    let answer = ann.get_my_task();
    assert_eq!((&answer["task"]["task_id"], notified(&answer)), (&"tsk".into(), None));
    ann.report("blocked");

    // A pause and an unassignment do not depend on the task.
    let mut ann = begin();
    daemon.done(&["project", "set", "prj", "--status", "inactive"]);
    assert_eq!(actions(&mut ann), ["stop paused"]);
    daemon.done(&["project", "set", "prj", "--status", "active"]);
    daemon.done(&["project", "set", "prj", "--unassign", "agt_a"]);
    assert_eq!(actions(&mut ann), ["stop unassigned"]);
}

#[test]
fn an_agent_that_has_not_asked_for_its_task_is_given_another_one_without_a_notice() {
    let more = "  tsk_more: { project: prj, title: t, assignee: agt_a, status: in_progress }\n";
    let daemon = Daemon::crowded("", &world(&format!("{MINE}{more}")));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    set(&daemon, "tsk", &["--status", "blocked"]);
    let answer = ann.get_my_task();
    assert_eq!((&answer["task"]["task_id"], notified(&answer)), (&"tsk_more".into(), None));
    ann.report("blocked");
    // A part of the task does not end the work on the rest.
    set(&daemon, "tsk", &["--status", "in_progress"]);
    let part = "task add --id tsk_part --project prj --title t --parent tsk --assignee agt_a";
    let part: Vec<&str> = part.split(' ').chain(["--status", "in_progress"]).collect();
    daemon.done(&part);
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    set(&daemon, "tsk_part", &["--status", "cancelled"]);
    let answer = ann.get_my_task();
    assert_eq!((&answer["task"]["task_id"], notified(&answer)), (&"tsk".into(), None));
}

#[test]
fn an_agent_whose_task_a_person_finishes_is_told_and_ended_after_the_grace() {
    let daemon = Daemon::running("notice: { grace: 1s }");
    daemon.with_one_task(&["authenticate", "get-my-task", "write:ready", "sleep:600"]);
    daemon.written_pid("ready");
    daemon.done(&["task", "set", "tsk", "--status", "done"]);
    let ended = daemon.until_ended("agt");
    assert_eq!(
        (&ended["outcome"], &ended["reason"]),
        (&"stopped".into(), &"notice_ignored".into())
    );
    assert!(daemon.done(&["task", "show", "tsk"]).contains("done by hand"));

    let (daemon, mut ann) = at_work("", "");
    set(&daemon, "tsk", &["--status", "done"]);
    let answer = ann.call("get_notifications", json!({}));
    let message = answer["notifications"][0]["message"].as_str().unwrap();
    assert!(message.contains("cancelled by a person"), "{message}");
}

#[test]
fn a_pause_and_an_unassignment_ask_the_agent_to_leave() {
    let (daemon, mut ann) = at_work("", "");
    daemon.done(&["project", "set", "prj", "--status", "inactive"]);
    assert_eq!(actions(&mut ann), ["stop paused"]);
    daemon.done(&["project", "set", "prj", "--status", "active"]);
    assert_eq!(notified(&ann.get_my_task()), None);
    daemon.done(&["project", "set", "prj", "--unassign", "agt_a"]);
    assert_eq!(actions(&mut ann), ["stop unassigned"]);
    let next = ann.call("get_next_action", json!({}));
    assert_eq!(next["action"], "logout");
    let out = ann.call("logout", json!({}));
    assert_eq!((&out["success"], notified(&out)), (&true.into(), None), "{out}");
    let ended = daemon.json(&["status"])["ended"][0].clone();
    assert_eq!(
        (&ended["outcome"], &ended["reason"]),
        (&"stopped".into(), &"noticed".into()),
        "{ended}"
    );
    assert_eq!(daemon.json(&["task", "show", "tsk"])["status"], "in_progress");
}

#[test]
fn blocking_a_task_reaches_the_agents_of_its_subtasks() {
    let subtasks = "
  tsk_bob: { project: prj, parent: tsk, title: t, assignee: agt_b, status: in_progress }
  tsk_own: { project: prj, parent: tsk, title: t, assignee: agt_a, status: in_progress }
";
    let (daemon, mut ann) = at_work("", subtasks);
    let mut bob = ByHand::authenticate(&daemon, "agt_b");
    assert_eq!(bob.get_my_task()["task"]["task_id"], "tsk_bob");

    // Ann has a notice about one of her subtasks until she has read it.
    set(&daemon, "tsk_own", &["--status", "blocked"]);
    assert_eq!(notified(&bob.get_my_task()), None);
    assert_eq!(actions(&mut ann), ["status_change blocked"]);
    assert_eq!(notified(&ann.get_my_task()), None);
    set(&daemon, "tsk_own", &["--status", "in_progress"]);

    set(&daemon, "tsk", &["--status", "blocked"]);
    assert_eq!(notified(&bob.get_my_task()), Some(NOTIFICATION));
    assert_eq!(bob.report("blocked")["success"], true);
    assert!(actions(&mut ann).contains(&"status_change blocked".to_owned()));
    assert_eq!(daemon.json(&["task", "show", "tsk_bob"])["status"], "blocked");
}

#[test]
fn an_agent_that_ignores_a_notice_is_stopped_and_it_shows_why() {
    let (daemon, mut ann) = at_work("notice: { grace: 300ms }", "");
    set(&daemon, "tsk", &["--status", "blocked"]);
    until("the launch is ended", || daemon.open("agt_a").is_empty());
    let ended = daemon.json(&["status"])["ended"][0].clone();
    assert_eq!(
        (&ended["outcome"], &ended["reason"]),
        (&"stopped".into(), &"notice_ignored".into()),
        "{ended}"
    );
    check_refused(&ann.get_my_task(), "session_ended", "Invalid session: it has ended");
}

#[test]
fn a_waiting_agent_is_told_at_once() {
    let subtask = "  tsk_bob: { project: prj, parent: tsk, title: t, assignee: agt_b, status: in_progress }\n";
    let (daemon, ann) = at_work("polling_interval: 1h", subtask);
    let token = ann.token.clone();
    let mut client = daemon.client();
    let waiting = std::thread::spawn(move || {
        client.call("get_next_action", &json!({ "session_token": token }))
    });
    set(&daemon, "tsk", &["--status", "blocked"]);
    assert_eq!(waiting.join().unwrap()["action"], "get_notifications");
    drop(ann);
}
