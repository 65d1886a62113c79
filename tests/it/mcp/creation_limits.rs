//! The limits of one launch's creations.

use serde_json::{Value, json};

use super::{ByHand, MINE, world};
use crate::daemon::Daemon;

fn subtask(title: &str) -> Value {
    json!({ "title": title, "parent_task_id": "tsk" })
}

fn batch(n_tasks: usize, parent: &str) -> Value {
    let tasks: Vec<_> = (0..n_tasks)
        .map(|n| json!({ "local_id": format!("t{n}"), "title": format!("t{n}"), "parent_task_id": parent }))
        .collect();
    json!({ "tasks": tasks })
}

fn n_tasks(daemon: &Daemon) -> usize {
    daemon.json(&["task", "list"]).as_array().unwrap().len()
}

#[test]
fn an_agent_creates_as_many_tasks_as_its_launch_may_also_after_a_restart() {
    let mut daemon = Daemon::crowded("limits: { tasks_per_launch: 5 }", &world(MINE));
    let before = n_tasks(&daemon);
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    assert_eq!(ann.call("create_tasks_batch", batch(3, "tsk"))["success"], true);
    let answer = ann.call("create_tasks_batch", batch(3, "tsk"));
    let expected = json!({
        "success": false,
        "error": "3 more tasks are too many: this launch has created 3, and `limits.tasks_per_launch` is 5",
        "error_code": "limit_reached",
        "hint": "do the work with the tasks that there are, or report what is left; a person can raise limits.tasks_per_launch",
    });
    assert_eq!(answer, expected);
    // A refused creation does not count, whatever the reason.
    assert_eq!(ann.call("create_task", subtask(" "))["error_code"], "invalid");
    assert_eq!(ann.call("create_task", subtask("fourth"))["success"], true);
    daemon.kill();
    daemon.start();
    let mut ann = ByHand { client: daemon.client(), token: ann.token };
    assert_eq!(ann.call("create_task", json!({ "title": "fifth, a top task" }))["success"], true);
    assert_eq!(ann.call("create_task", subtask("sixth"))["error_code"], "limit_reached");
    assert_eq!(n_tasks(&daemon), before + 5);
    // People have no limit, and other launches have their own count.
    daemon.done(&["task", "add", "--project", "prj", "--title", "by a person"]);
    let mut bob = ByHand::authenticate(&daemon, "agt_b");
    assert_eq!(bob.call("create_task", json!({ "title": "another" }))["success"], true);
}

#[test]
fn calls_at_the_same_time_create_no_more_than_the_limit() {
    let daemon = Daemon::crowded("limits: { tasks_per_launch: 5 }", &world(MINE));
    let before = n_tasks(&daemon);
    let ann = ByHand::authenticate(&daemon, "agt_a");
    std::thread::scope(|scope| {
        for n in 0..12 {
            let mut ann = ByHand { client: daemon.client(), token: ann.token.clone() };
            scope.spawn(move || ann.call("create_task", json!({ "title": format!("t{n}") })));
        }
    });
    assert_eq!(n_tasks(&daemon), before + 5);
}

#[test]
fn a_task_gets_as_many_subtasks_from_agents_as_it_may_have() {
    let daemon = Daemon::crowded("limits: { subtasks_per_task: 2 }", &world(MINE));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    let first =
        ann.call("create_task", subtask("first"))["task"]["id"].as_str().unwrap().to_owned();
    let answer = ann.call("create_tasks_batch", batch(2, "tsk"));
    let expected = json!({
        "success": false,
        "error": "2 more subtasks are too many: task tsk has 1, and `limits.subtasks_per_task` is 2",
        "error_code": "limit_reached",
        "hint": "do the work with the subtasks that there are, or divide one of them; a person can raise limits.subtasks_per_task",
    });
    assert_eq!(answer, expected);
    assert_eq!(ann.call("create_tasks_batch", batch(2, &first))["success"], true);
    assert_eq!(
        ann.call("create_task", json!({ "title": "t", "parent_task_id": first }))["error_code"],
        "limit_reached"
    );
    // Tasks of people count, and are not refused.
    for title in ["second", "third"] {
        daemon.done(&["task", "add", "--project", "prj", "--parent", "tsk", "--title", title]);
    }
    assert_eq!(ann.call("create_task", subtask("fourth"))["error_code"], "limit_reached");
}

#[test]
fn an_agent_writes_as_many_messages_as_its_launch_may_also_after_a_restart() {
    let mut daemon = Daemon::crowded("limits: { messages_per_launch: 3 }", &world(""));
    daemon.done(&["chat", "start", "agt_a", "prj"]);
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    let respond =
        |ann: &mut ByHand, content: &str| ann.call("respond_chat", json!({ "content": content }));
    // The second one repeats the first, because its answer was lost.
    for content in ["one", "one", "two"] {
        assert_eq!(respond(&mut ann, content)["success"], true, "{content}");
    }
    daemon.kill();
    daemon.start();
    let mut ann = ByHand { client: daemon.client(), token: ann.token };
    assert_eq!(respond(&mut ann, "three")["success"], true);
    let expected = json!({
        "success": false,
        "error": "This launch has written 3 messages, and `limits.messages_per_launch` is 3",
        "error_code": "limit_reached",
        "hint": "call logout and exit: the next message starts a new launch; a person can raise limits.messages_per_launch",
    });
    assert_eq!(respond(&mut ann, "four"), expected);
    assert_eq!(respond(&mut ann, "three")["success"], true, "its answer was lost");
    daemon.configure("max_concurrent: 1\nlimits: { messages_per_launch: 4 }");
    daemon.done(&["reload"]);
    assert_eq!(respond(&mut ann, "four")["success"], true);
}
