//! Tasks with subtasks: their progress, the order in which they end, and attempts to break that
//! order.

use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use super::{ByHand, check_refused, world};
use crate::daemon::{Daemon, IN_A_FILE};

const TREE: &str = "
  tsk_main: { project: prj, title: ショッピングカートのテスト, assignee: agt_a, status: in_progress }
  tsk_sub1: { project: prj, parent: tsk_main, title: 商品追加テスト, assignee: agt_a, status: done }
  tsk_sub2: { project: prj, parent: tsk_main, title: 合計計算テスト, assignee: agt_a, status: todo }
  tsk_sub3: { project: prj, parent: tsk_main, title: レポート作成, assignee: agt_a, status: todo, dependencies: [tsk_sub2] }
";

const REMAINING: &str =
    "get_my_task_progress で残りのタスク状況を確認し、必要な作業を続けてください。";
const ALL_DONE: &str = "担当タスクが全て完了しました。report_completed を呼び出してください。";

/// Returns the whole answer for [`TREE`], with these statuses of the main task and the two last
/// subtasks.
fn progress(main: &str, second: &str, third: &str) -> Value {
    json!({ "success": true, "tasks": [{
        "id": "tsk_main", "short_id": "PROJECT-1", "title": "ショッピングカートのテスト", "status": main, "subtasks": [
            { "id": "tsk_sub1", "short_id": "PROJECT-2", "title": "商品追加テスト", "status": "done" },
            { "id": "tsk_sub2", "short_id": "PROJECT-3", "title": "合計計算テスト", "status": second },
            { "id": "tsk_sub3", "short_id": "PROJECT-4", "title": "レポート作成", "status": third },
        ],
    }] })
}

/// Checks R-001-1 to R-001-9.
#[test]
fn the_seeds_flow_ends_with_a_report_that_is_taken() {
    let daemon = Daemon::crowded("language: ja", &world(TREE));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    let ask = |ann: &mut ByHand| ann.call("get_my_task_progress", json!({}));
    let next = |ann: &mut ByHand| ann.call("get_next_action", json!({ "timeout_seconds": 0 }));
    assert_eq!(ann.get_my_task()["task"]["task_id"], "tsk_main");
    check_refused(
        &ann.report("success"),
        "subtasks_open",
        "Task tsk_main has subtasks that are not finished: tsk_sub2, tsk_sub3",
    );

    for (subtask, before, after) in [
        (
            "tsk_sub2",
            progress("in_progress", "in_progress", "todo"),
            progress("in_progress", "done", "todo"),
        ),
        (
            "tsk_sub3",
            progress("in_progress", "done", "in_progress"),
            progress("in_progress", "done", "done"),
        ),
    ] {
        let step = next(&mut ann);
        assert_eq!(
            (&step["action"], &step["task"]["task_id"]),
            (&"execute_subtask".into(), &subtask.into()),
            "{step}"
        );
        assert_eq!(
            step["instruction"],
            "現在のサブタスクを実行してください。\n完了したら update_task_status で status を 'done' に変更してください。"
        );
        ann.set(subtask, "in_progress");
        assert_eq!(ask(&mut ann), before);
        check_refused(
            &ann.set("tsk_main", "done"),
            "subtasks_open",
            &format!(
                "Task tsk_main has subtasks that are not finished: {}",
                if subtask == "tsk_sub2" { "tsk_sub2, tsk_sub3" } else { subtask }
            ),
        );
        assert_eq!(ann.set(subtask, "done")["instruction"], REMAINING);
        assert_eq!(ask(&mut ann), after);
    }
    assert_eq!(next(&mut ann)["action"], "work");
    assert_eq!(ann.set("tsk_main", "done")["instruction"], ALL_DONE);
    assert_eq!(ask(&mut ann), progress("done", "done", "done"));
    let step = next(&mut ann);
    assert_eq!(
        (&step["action"], &step["instruction"]),
        (&"report_completed".into(), &ALL_DONE.into())
    );
    let end =
        json!({ "success": true, "instruction": "タスクが完了しました。セッションを終了します。" });
    assert_eq!(ann.report("success"), end);
    assert_eq!(ann.report("success"), end);
    assert_eq!(
        (daemon.task_status("tsk_main").as_str(), &daemon.ended("agt_a")[0]["outcome"]),
        ("done", &"completed".into())
    );
}

/// Returns the number of changes that other connections have made to the open database.
fn data_version(database: &Connection) -> i64 {
    database.query_row("PRAGMA data_version", [], |row| row.get(0)).unwrap()
}

#[test]
fn asking_for_the_progress_changes_nothing_in_the_store() {
    let settings = format!("session: {{ cleanup_interval: 1h }}\n{IN_A_FILE}");
    let daemon = Daemon::crowded(&settings, &world(TREE));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    let path = daemon.state().join("state.db");
    let database = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let before = data_version(&database);
    for _ in 0..3 {
        assert_eq!(
            ann.call("get_my_task_progress", json!({})),
            progress("in_progress", "todo", "todo")
        );
    }
    assert_eq!(data_version(&database), before);
    assert_eq!(daemon.open("agt_a")[0].get("task_id"), None);
    // A call that changes something is detected.
    ann.get_my_task();
    assert_ne!(data_version(&database), before);
}

#[test]
fn what_was_delegated_is_listed_for_both_and_at_every_depth() {
    let daemon = Daemon::crowded(
        "",
        &world(
            "
  tsk_top: { project: prj, title: top, assignee: agt_a, status: in_progress }
  tsk_given: { project: prj, parent: tsk_top, title: given, assignee: agt_b, status: in_progress }
  tsk_part: { project: prj, parent: tsk_given, title: part, assignee: agt_b, status: todo }
  tsk_old: { project: prj, title: old, assignee: agt_b, status: done }
",
        ),
    );
    let part =
        json!({ "id": "tsk_part", "short_id": "PROJECT-3", "title": "part", "status": "todo" });
    let given = json!({
        "id": "tsk_given", "short_id": "PROJECT-2", "title": "given", "status": "in_progress",
        "subtasks": [part],
    });
    let top = json!({
        "id": "tsk_top", "short_id": "PROJECT-1", "title": "top", "status": "in_progress",
        "subtasks": [given],
    });
    let ask =
        |agent: &str| ByHand::authenticate(&daemon, agent).call("get_my_task_progress", json!({}));
    assert_eq!(ask("agt_a"), json!({ "success": true, "tasks": [top] }));
    assert_eq!(ask("agt_b"), json!({ "success": true, "tasks": [given] }));
}

#[test]
fn a_delegate_is_started_by_the_agent_that_delegates_and_waited_for() {
    let daemon = Daemon::crowded("", &world(super::MINE));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    ann.get_my_task();
    let next = |ann: &mut ByHand| ann.call("get_next_action", json!({ "timeout_seconds": 0 }));
    let draft = json!({ "title": "Form", "parent_task_id": "tsk", "assignee_id": "agt_b" });
    let form = ann.call("create_task", draft)["task"]["id"].as_str().unwrap().to_owned();
    assert_eq!(super::should_start(&daemon, "agt_b", None)["reason"], "no_work");

    let step = next(&mut ann);
    assert_eq!(
        (&step["action"], &step["task"]["task_id"]),
        (&"start_subtask".into(), &form.as_str().into()),
        "{step}"
    );
    assert_eq!(ann.set(&form, "in_progress")["success"], true);
    let ticket = super::claim(&daemon, "agt_b");
    assert_eq!(next(&mut ann)["action"], "wait_for_subtasks");

    let mut bob = ByHand::with(&daemon, "agt_b", &ticket);
    assert_eq!(bob.get_my_task()["task"]["task_id"], form.as_str());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ann.call("get_next_action", json!({})));
        assert_eq!(bob.report("success")["success"], true);
        let step = waiting.join().unwrap();
        assert_eq!(
            (&step["action"], &step["task"]["task_id"]),
            (&"work".into(), &"tsk".into()),
            "{step}"
        );
    });
}

#[test]
fn an_unbound_agent_begins_with_the_top_task_and_a_bound_one_stays() {
    let daemon = Daemon::crowded(
        "",
        &world(
            "
  tsk_top: { project: prj, title: t, assignee: agt_a, status: in_progress, priority: low }
  tsk_mid: { project: prj, parent: tsk_top, title: t, status: todo }
  tsk_low: { project: prj, parent: tsk_mid, title: t, assignee: agt_a, status: in_progress, priority: urgent }
",
        ),
    );
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    assert_eq!(ann.get_my_task()["task"]["task_id"], "tsk_top");
    let step = ann.call("get_next_action", json!({ "timeout_seconds": 0 }));
    assert_eq!(
        (&step["action"], &step["task"]["task_id"]),
        (&"execute_subtask".into(), &"tsk_low".into()),
        "{step}"
    );
}

/// Checks R-001-8.
#[test]
fn by_no_door_is_a_parent_done_before_its_subtasks() {
    let daemon = Daemon::crowded(
        "",
        &world(
            "
  tsk_open: { project: prj, title: t, assignee: agt_a, status: in_progress }
  tsk_part: { project: prj, parent: tsk_open, title: t, assignee: agt_a, status: todo }
  tsk_done: { project: prj, title: t, assignee: agt_a, status: done }
  tsk_over: { project: prj, parent: tsk_done, title: t, assignee: agt_a, status: done }
",
        ),
    );
    let check = |arguments: &str, expected: &str| {
        let said = daemon.cli(&arguments.split(' ').collect::<Vec<_>>());
        assert!(said.code != 0 && said.stderr.contains(expected), "{arguments}: {said:?}");
    };
    let closed = "Parent task PROJECT-3 is done: its subtasks can't be open";
    check(
        "task set tsk_open --status done",
        "Task PROJECT-1 has subtasks that are not finished: PROJECT-2",
    );
    check("task add --project prj --title t --parent tsk_done", closed);
    check("task set tsk_over --status todo", closed);
    check("task set tsk_part --parent tsk_done", closed);
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    let draft = json!({ "title": "t", "parent_task_id": "tsk_done" });
    let to_agents = "Parent task tsk_done is done: its subtasks can't be open";
    check_refused(&ann.call("create_task", draft), "parent_closed", to_agents);
    for task in [
        "tsk_new: { project: prj, parent: tsk_done, title: t }",
        "tsk_part: { project: prj, parent: tsk_done, title: t, assignee: agt_a }",
    ] {
        daemon.write("more.yaml", format!("tasks:\n  {task}\n"));
        check("apply more.yaml", closed);
    }
    daemon.write(
        "more.yaml",
        "tasks:\n  a: { project: prj, title: t, status: done }\n  b: { project: prj, parent: a, title: t }\n",
    );
    let said = daemon.cli(&["apply", "more.yaml"]);
    assert!(said.code != 0 && said.stderr.contains("not finished: b"), "{said:?}");
    assert_eq!(daemon.cli(&["task", "show", "a"]).code, 1);
    assert_eq!(daemon.task_status("tsk_over"), "done");
}

#[test]
fn people_move_tasks_and_say_what_they_wait_for() {
    let daemon = Daemon::crowded(
        "",
        &world(
            "
  tsk_a: { project: prj, title: a, status: todo }
  tsk_b: { project: prj, title: b, status: todo, assignee: agt_b }
  tsk_c: { project: prj, title: c, status: blocked, assignee: agt_b }
",
        ),
    );
    let show = |task: &str| daemon.json(&["task", "show", task]);
    let fails = |arguments: &[&str], expected: &str| {
        let said = daemon.cli(arguments);
        assert!(said.code == 1 && said.stderr.contains(expected), "{arguments:?}: {said:?}");
    };
    daemon.done(&[
        "task",
        "set",
        "tsk_b",
        "--parent",
        "tsk_a",
        "--depends-on",
        "tsk_c",
        "--depends-on",
        "tsk_c",
    ]);
    let moved = show("tsk_b");
    assert_eq!(
        (&moved["parent_id"], &moved["dependencies"]),
        (&"tsk_a".into(), &json!(["tsk_c"])),
        "{moved}"
    );
    assert_eq!(moved["depends_on"][0]["status"], "blocked");
    let told = daemon.done(&["task", "set", "tsk_b", "--status", "in_progress"]);
    assert!(told.contains("is todo; starts after"), "{told}");
    daemon.done(&["task", "set", "tsk_b", "--status", "todo"]);
    fails(&["task", "set", "tsk_a", "--parent", "tsk_b"], "Task tsk_a can't be part of itself");
    fails(&["task", "set", "tsk_a", "--depends-on", "tsk_b"], "one is part of the other");
    fails(
        &["task", "set", "tsk_c", "--depends-on", "tsk_a"],
        "A task would wait for itself: tsk_c -> tsk_a -> tsk_b -> tsk_c",
    );
    fails(
        &["task", "set", "tsk_c", "--depends-on", "tsk_elsewhere"],
        "There is no task tsk_elsewhere in project prj",
    );
    daemon.done(&[
        "task",
        "set",
        "tsk_c",
        "--reason",
        "no network",
        "--parent",
        "tsk_b",
        "--priority",
        "high",
    ]);
    let text = daemon.done(&["task", "show", "tsk_a"]);
    let tree: Vec<&str> =
        text.lines().filter(|line| line.contains("PROJECT-") && line.contains("agt_b")).collect();
    assert!(tree[0].starts_with("PROJECT-2 ") && tree[1].starts_with("  PROJECT-3 "), "{text}");
}
