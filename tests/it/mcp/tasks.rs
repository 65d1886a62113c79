//! `get_my_task` and `update_task_status`.

use serde_json::json;

use super::{ByHand, MINE, check_refused, world};
use crate::daemon::Daemon;
use crate::redacted::redacted;

/// Checks C-22.
#[test]
fn the_seeds_wording_is_spoken_in_japanese() {
    let tasks = format!(
        "{MINE}  tsk_next: {{ project: prj, title: t, assignee: agt_a, status: in_progress }}\n"
    );
    let daemon = Daemon::crowded("language: ja", &world(&tasks));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    let instruction =
        |answer: serde_json::Value| answer["instruction"].as_str().unwrap().to_owned();
    assert_eq!(
        instruction(ann.get_my_task()),
        "タスクを完了したら report_completed を呼び出してください"
    );
    assert_eq!(
        instruction(ann.set("tsk", "done")),
        "get_my_task_progress で残りのタスク状況を確認し、必要な作業を続けてください。"
    );
    assert_eq!(
        instruction(ann.set("tsk_next", "done")),
        "担当タスクが全て完了しました。report_completed を呼び出してください。"
    );
    assert_eq!(
        instruction(ann.report("success")),
        "タスクが完了しました。セッションを終了します。"
    );
    let none = ByHand::authenticate(&daemon, "agt_b").get_my_task();
    assert_eq!(none["hint"], "logout を呼び出してプロセスを終了してください。");
    assert_eq!(instruction(none), "現在割り当てられたタスクはありません");
}

#[test]
fn the_most_urgent_task_comes_first_and_stays() {
    let daemon = Daemon::crowded(
        "",
        &world(
            "
  tsk_1: { project: prj, title: t, assignee: agt_a, status: in_progress }
  tsk_2: { project: prj, title: t, assignee: agt_a, status: in_progress, priority: high }
  tsk_3: { project: prj, title: t, assignee: agt_a, status: todo, priority: urgent }
  tsk_4: { project: prj, title: t, assignee: agt_b, status: in_progress, priority: urgent }
  tsk_5: { project: prj_2, title: t, assignee: agt_a, status: in_progress, priority: urgent }
",
        ),
    );
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    let next = |ann: &mut ByHand| ann.get_my_task()["task"]["task_id"].clone();
    assert_eq!(next(&mut ann), "tsk_2");
    daemon.done(&["task", "set", "tsk_3", "--status", "in_progress"]);
    assert_eq!(next(&mut ann), "tsk_2");
    assert_eq!(daemon.open("agt_a")[0]["task_id"], "tsk_2");
    daemon.done(&["task", "set", "tsk_2", "--status", "todo"]);
    assert_eq!(next(&mut ann), "tsk_3");
    daemon.done(&["task", "set", "tsk_3", "--status", "cancelled"]);
    assert_eq!(next(&mut ann), "tsk_1");
}

#[test]
fn a_failed_run_leaves_its_context_and_another_agents_its_handoff() {
    let daemon = Daemon::crowded("", &world(MINE));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    let task = ann.get_my_task()["task"].clone();
    assert_eq!((&task["context"], &task["handoff"]), (&json!({}), &json!({})));
    ann.report("failed");
    daemon.done(&["task", "set", "tsk", "--status", "in_progress"]);

    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    let task = ann.get_my_task()["task"].clone();
    let left_by = |agent: &str, result: &str, outcome: &str| {
        json!({
            "agent_id": agent, "started_at": "[started_at]", "ended_at": "[ended_at]", "result": result,
            "summary": "a summary", "next_steps": "the next steps", "outcome": outcome,
        })
    };
    assert_eq!(redacted(&task["context"]), left_by("agt_a", "failed", "failed"));
    assert_eq!(task["handoff"], json!({}));
    // A repeated question is not another run.
    assert_eq!(ann.get_my_task()["task"], task);
    ann.report("blocked");
    daemon.done(&["task", "set", "tsk", "--status", "in_progress", "--assignee", "agt_b"]);

    let mut bob = ByHand::authenticate(&daemon, "agt_b");
    let task = bob.get_my_task()["task"].clone();
    assert_eq!(redacted(&task["handoff"]), left_by("agt_a", "blocked", "blocked"));
    assert_eq!(task["context"], json!({}));
    let executions = daemon.json(&["task", "show", "tsk"])["executions"].as_array().unwrap().len();
    assert_eq!(executions, 3);
}

#[test]
fn after_done_it_is_said_what_comes_next() {
    let tasks = format!(
        "{MINE}
  tsk_next: {{ project: prj, title: t, assignee: agt_a, status: backlog }}
  tsk_over: {{ project: prj, title: t, assignee: agt_a, status: cancelled }}
  tsk_bobs: {{ project: prj, title: t, assignee: agt_b, status: todo }}
"
    );
    let daemon = Daemon::crowded("", &world(&tasks));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    // The task in the backlog was not started.
    assert_eq!(
        ann.set("tsk", "done"),
        json!({
            "success": true,
            "task": { "id": "tsk", "short_id": "PROJECT-1", "title": "Login page", "previous_status": "in_progress", "new_status": "done" },
            "instruction": "All tasks assigned to you are finished. Call report_completed.",
        })
    );
    assert_eq!(
        ann.set("tsk_next", "in_progress"),
        json!({
            "success": true,
            "task": { "id": "tsk_next", "short_id": "PROJECT-2", "title": "t", "previous_status": "backlog", "new_status": "in_progress" },
        })
    );
    let all_done = "All tasks assigned to you are finished. Call report_completed.";
    assert_eq!(ann.set("tsk_next", "done")["instruction"], all_done);
    // Work in another project and of other agents doesn't count.
    assert_eq!(daemon.task_status("tsk_elsewhere"), "todo");
    assert_eq!(ann.set("tsk_next", "done")["instruction"], all_done);
}

#[test]
fn what_is_said_after_done_agrees_with_the_next_action() {
    for (status, action) in [
        ("todo", "report_completed"),
        ("backlog", "report_completed"),
        ("in_progress", "get_my_task"),
    ] {
        let tasks = format!(
            "{MINE}  tsk_next: {{ project: prj, title: t, assignee: agt_a, status: {status} }}\n"
        );
        let daemon = Daemon::crowded("", &world(&tasks));
        let mut ann = ByHand::authenticate(&daemon, "agt_a");
        ann.get_my_task();
        let done = ann.set("tsk", "done");
        let says_report = done["instruction"].as_str().unwrap().contains("report_completed");
        assert_eq!(says_report, action == "report_completed", "{status}: {done}");
        assert_eq!(ann.call("get_next_action", json!({}))["action"], action, "{status}");
    }
}

#[test]
fn a_status_that_an_agent_may_not_set_is_refused_with_the_reason() {
    let daemon = Daemon::crowded(
        "",
        &world(
            "
  tsk_parent: { project: prj, title: t, assignee: agt_a, status: in_progress }
  tsk_child: { project: prj, parent: tsk_parent, title: t, status: todo }
  tsk_given: { project: prj, parent: tsk_parent, title: t, assignee: agt_b, status: in_progress }
  tsk_over: { project: prj, title: t, assignee: agt_a, status: done }
  tsk_first: { project: prj, title: t, assignee: agt_a, status: todo }
  tsk_second: { project: prj, title: t, assignee: agt_a, status: todo, dependencies: [tsk_first] }
  tsk_bobs: { project: prj, title: t, assignee: agt_b, status: in_progress }
",
        ),
    );
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    let mut check = |task: &str, status: &str, error_code: &str, error: &str| {
        check_refused(&ann.set(task, status), error_code, error);
    };
    check("tsk_bobs", "done", "not_your_task", "Task tsk_bobs is not assigned to you");
    check("tsk_elsewhere", "done", "task_not_found", "Task not found");
    check("tsk_nowhere", "done", "task_not_found", "Task not found");
    check(
        "tsk_first",
        "blocked",
        "impossible_status",
        "Task tsk_first is todo: it can't become blocked",
    );
    check("tsk_over", "todo", "people_only", "Task tsk_over is done: only people reopen it");
    let open = "Task tsk_parent has subtasks that are not finished: tsk_child, tsk_given";
    check("tsk_parent", "done", "subtasks_open", open);
    let waits = "Task tsk_second depends on tasks that are not done: tsk_first";
    check("tsk_second", "in_progress", "dependencies_open", waits);
    check(
        "tsk_child",
        "in_progress",
        "needs_assignee",
        "Task tsk_child has no assignee: it can't be in progress",
    );

    // An agent may change the subtasks of its own task, whichever agent has them.
    assert_eq!(ann.set("tsk_child", "done")["success"], true);
    assert_eq!(ann.set("tsk_given", "done")["task"]["previous_status"], "in_progress");
    assert_eq!(ann.set("tsk_parent", "done")["success"], true);
    assert_eq!(daemon.task_status("tsk_bobs"), "in_progress");
}

#[test]
fn a_blocked_parent_blocks_its_open_subtasks() {
    let daemon = Daemon::crowded(
        "",
        &world(
            "
  tsk_parent: { project: prj, title: t, assignee: agt_a, status: in_progress }
  tsk_child: { project: prj, parent: tsk_parent, title: t, assignee: agt_b, status: in_progress }
  tsk_over: { project: prj, parent: tsk_parent, title: t, assignee: agt_b, status: done }
",
        ),
    );
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    let blocked = json!({ "task_id": "tsk_parent", "status": "blocked", "reason": "no network" });
    assert_eq!(ann.call("update_task_status", blocked)["task"]["new_status"], "blocked");
    let reason = |task: &str| daemon.json(&["task", "show", task])["blocked_reason"].clone();
    assert_eq!(reason("tsk_parent"), "no network");
    assert_eq!(reason("tsk_child"), "parent task tsk_parent is blocked");
    assert_eq!(daemon.task_status("tsk_over"), "done");
}
