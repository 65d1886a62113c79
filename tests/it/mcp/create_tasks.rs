//! `create_task` and `create_tasks_batch`.

use serde_json::{Value, json};

use super::{ByHand, MINE, check_refused, world};
use crate::daemon::Daemon;

#[test]
fn a_subtask_is_for_now_and_a_top_task_for_later() {
    let daemon = Daemon::crowded("", &world(MINE));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    let answer = ann.call(
        "create_task",
        json!({ "title": "Form", "parent_task_id": "tsk", "priority": "high" }),
    );
    let id = answer["task"]["id"].as_str().unwrap().to_owned();
    assert_eq!(
        answer,
        json!({
            "success": true,
            "task": { "id": id, "short_id": "PROJECT-2", "title": "Form", "status": "todo", "parent_task_id": "tsk", "assignee_id": "agt_a" },
            "instruction": "The subtasks are recorded. Call get_next_action: it says which comes first.",
        })
    );
    let shown = daemon.json(&["task", "show", &id]);
    assert_eq!(
        (&shown["priority"], &shown["description"]),
        (&"high".into(), &"".into()),
        "{shown}"
    );

    let later = ann.call(
        "create_task",
        json!({ "title": "Tidy up", "dependencies": ["tsk"], "assignee_id": "agt_b" }),
    );
    let task = json!({
        "id": later["task"]["id"], "short_id": "PROJECT-3", "title": "Tidy up", "status": "backlog",
        "assignee_id": "agt_b",
    });
    assert_eq!(later["task"], task);
    let later = later["task"]["id"].as_str().unwrap();
    let not_yours = format!("Task {later} is not assigned to you");
    check_refused(&ann.set(later, "in_progress"), "not_your_task", &not_yours);
    let more = json!({ "title": "t", "parent_task_id": later });
    check_refused(&ann.call("create_task", more), "not_your_task", &not_yours);
}

#[test]
fn what_cannot_be_made_is_said_in_clear_words() {
    let daemon = Daemon::crowded("", &world(MINE));
    daemon.done(&["agent", "add", "agt_c"]);
    let n_tasks = || daemon.json(&["task", "list"]).as_array().unwrap().len();
    let before = n_tasks();
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    let mut check = |draft: Value, error_code: &str, error: &str| {
        check_refused(&ann.call("create_task", draft), error_code, error);
    };
    check(json!({ "title": "  " }), "invalid", "a task needs a title");
    let unknown = "There is no task tsk_x in project prj";
    check(json!({ "title": "t", "parent_task_id": "tsk_x" }), "task_not_found", unknown);
    check(json!({ "title": "t", "dependencies": ["tsk_x"] }), "task_not_found", unknown);
    // A task of another project is treated like a missing one.
    let elsewhere = "There is no task tsk_elsewhere in project prj";
    check(json!({ "title": "t", "parent_task_id": "tsk_elsewhere" }), "task_not_found", elsewhere);
    check(json!({ "title": "t", "dependencies": ["tsk_elsewhere"] }), "task_not_found", elsewhere);
    check(json!({ "title": "t", "assignee_id": "agt_x" }), "agent_not_found", "Agent not found");
    let not_assigned = "Agent is not assigned to this project";
    check(json!({ "title": "t", "assignee_id": "agt_c" }), "not_assigned", not_assigned);
    let bobs = "Task tsk is not assigned to you";
    let mut bob = ByHand::authenticate(&daemon, "agt_b");
    check_refused(
        &bob.call("create_task", json!({ "title": "t", "parent_task_id": "tsk" })),
        "not_your_task",
        bobs,
    );
    assert_eq!(n_tasks(), before);
}

fn entry(local_id: &str, parent: &str, dependencies: &[&str]) -> Value {
    let mut entry =
        json!({ "local_id": local_id, "title": local_id, "dependencies": dependencies });
    if !parent.is_empty() {
        entry["parent_task_id"] = parent.into();
    }
    entry
}

#[test]
fn a_batch_is_made_whole_with_real_ids_for_local_ones() {
    let daemon = Daemon::crowded("", &world(MINE));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    // The order is free: a task may name one that comes after it.
    let tasks = [
        entry("leaf", "branch", &["first"]),
        entry("branch", "tsk", &[]),
        entry("first", "tsk", &[]),
        entry("later", "", &["tsk"]),
        entry("part of later", "later", &[]),
    ];
    let answer = ann.call("create_tasks_batch", json!({ "tasks": tasks }));
    let real = &answer["local_id_to_real_id"];
    let id = |local: &str| real[local].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    assert_eq!(
        (real.as_object().unwrap().len(), answer["tasks"].as_array().unwrap().len()),
        (5, 5),
        "{answer}"
    );
    assert_eq!(answer["tasks"][0]["id"], id("leaf").as_str());
    let leaf = daemon.json(&["task", "show", &id("leaf")]);
    assert_eq!(
        (&leaf["parent_id"], &leaf["dependencies"]),
        (&id("branch").into(), &json!([id("first")])),
        "{leaf}"
    );
    assert_eq!(
        (&leaf["status"], &leaf["assignee_id"]),
        (&"todo".into(), &"agt_a".into()),
        "{leaf}"
    );
    let part = daemon.json(&["task", "show", &id("part of later")]);
    assert_eq!((&part["status"], part.get("assignee_id")), (&"backlog".into(), None), "{part}");
}

#[test]
fn a_parent_of_the_whole_batch_is_that_of_the_tasks_without_one() {
    let daemon = Daemon::crowded("", &world(MINE));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    let tasks = [entry("branch", "", &[]), entry("leaf", "branch", &[])];
    let answer = ann.call("create_tasks_batch", json!({ "parent_task_id": "tsk", "tasks": tasks }));
    let branch = json!({
        "id": answer["local_id_to_real_id"]["branch"], "short_id": "PROJECT-2", "title": "branch", "status": "todo", "parent_task_id": "tsk",
        "assignee_id": "agt_a",
    });
    assert_eq!(answer["tasks"][0], branch, "{answer}");
    assert_eq!(answer["tasks"][1]["parent_task_id"], branch["id"], "{answer}");
    let unknown = json!({ "parent_task_id": "tsk_x", "tasks": [entry("a", "", &[])] });
    let error = "Task `a` of the batch: There is no task tsk_x in project prj";
    check_refused(&ann.call("create_tasks_batch", unknown), "task_not_found", error);
}

#[test]
fn a_batch_that_cannot_be_is_not_made_at_all() {
    let daemon = Daemon::crowded("", &world(MINE));
    let n_tasks = || daemon.json(&["task", "list"]).as_array().unwrap().len();
    let before = n_tasks();
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    let mut check = |tasks: Vec<Value>, error_code: &str, error: &str| {
        check_refused(
            &ann.call("create_tasks_batch", json!({ "tasks": tasks })),
            error_code,
            error,
        );
    };
    check(vec![], "invalid", "a batch has 1 to 100 tasks, not 0");
    let many = (0..101).map(|n| entry(&format!("t{n}"), "", &[])).collect();
    check(many, "invalid", "a batch has 1 to 100 tasks, not 101");
    check(vec![entry("a", "", &[]), entry("a", "", &[])], "invalid", "local_id `a` is given twice");
    check(vec![entry(" ", "", &[])], "invalid", "a local_id must not be empty");
    let unknown =
        "Task `b` of the batch: `no such` is neither a local_id of the batch nor the id of a task";
    check(vec![entry("a", "", &[]), entry("b", "no such", &[])], "invalid", unknown);
    let loops = "Task `a` of the batch: A task would wait for itself: a -> b -> c -> a";
    check(
        vec![entry("a", "tsk", &["b"]), entry("b", "", &["c"]), entry("c", "", &["a"])],
        "dependency_cycle",
        loops,
    );
    let itself = "Task `a` of the batch: Task a can't be part of itself";
    check(vec![entry("a", "b", &[]), entry("b", "a", &[])], "part_of_itself", itself);
    let kin = "Task `a` of the batch: Task a can't depend on b: one is part of the other";
    check(vec![entry("a", "b", &["b"]), entry("b", "tsk", &[])], "dependency_cycle", kin);
    let gone = "Task `b` of the batch: There is no task tsk_x in project prj";
    check(vec![entry("a", "tsk", &[]), entry("b", "", &["tsk_x"])], "task_not_found", gone);
    assert_eq!(n_tasks(), before);
}

#[test]
fn ten_at_once_by_one_session_are_all_made() {
    let daemon = Daemon::crowded("", &world(MINE));
    let ann = ByHand::authenticate(&daemon, "agt_a");
    std::thread::scope(|scope| {
        for n in 0..10 {
            let (daemon, token) = (&daemon, ann.token.clone());
            scope.spawn(move || {
                let draft = json!({ "title": format!("t{n}"), "parent_task_id": "tsk" });
                let answer = ByHand { client: daemon.client(), token }.call("create_task", draft);
                assert_eq!(answer["success"], true, "{answer}");
            });
        }
    });
    assert_eq!(daemon.json(&["task", "show", "tsk"])["subtasks"].as_array().unwrap().len(), 10);
}
