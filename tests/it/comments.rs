//! Comments of people on tasks: on the command line, in REST, and in the task that an agent gets.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::support::until;

/// Returns the comments of a task, each as its author and its text.
fn comments(daemon: &Daemon, task: &str) -> Vec<(String, String)> {
    let shown = daemon.json(&["task", "show", task]);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let each = |comment: &Value| (text(&comment["author"]), text(&comment["text"]));
    shown["comments"].as_array().into_iter().flatten().map(each).collect()
}

#[test]
fn a_comment_is_read_by_people_and_by_the_agent_that_takes_the_task() {
    let daemon = Daemon::running("run: { linger: 0 }");
    daemon.project("prj");
    daemon.agent("agt", "prj", &["authenticate", "run:call get_my_task >task", "report:success"]);
    let add = ["task", "add", "--id", "tsk", "--project", "prj", "--assignee", "agt"];
    daemon.done(&[&add[..], &["--title", "Empty the cart"]].concat());
    let id = daemon.done(&["task", "comment", "PRJ-1", "Keep the **coupon**."]);
    assert!(id.starts_with("cmt_"), "{id}");
    daemon.done(&["task", "comment", "tsk", "And\nthe gift card."]);
    let shown = daemon.done(&["task", "show", "tsk"]);
    assert!(
        shown.contains("  Keep the **coupon**.") && shown.contains("  the gift card."),
        "{shown}"
    );
    let told = comments(&daemon, "tsk");
    assert_eq!(told.len(), 2);
    assert_eq!(told[1].1, "And\nthe gift card.");
    let audit = daemon.logged("done by a person");
    let line = audit.iter().find(|line| line["what"] == "comment").unwrap();
    assert!(line["after"].as_str().unwrap().contains("(20 characters)"), "{line}");

    daemon.done(&["task", "set", "tsk", "--status", "in_progress"]);
    until("the task is done", || daemon.task_status("tsk") == "done");
    let answer = fs::read_to_string(daemon.work().join("task")).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let got: Vec<&str> = answer["task"]["comments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|comment| comment["text"].as_str().unwrap())
        .collect();
    assert_eq!(got, ["Keep the **coupon**.", "And\nthe gift card."]);
    // A closed task can be talked about, too.
    daemon.done(&["task", "comment", "tsk", "Well done."]);
    assert_eq!(comments(&daemon, "tsk").len(), 3);
}

#[test]
fn a_comment_that_is_sent_twice_is_there_once_and_a_bad_one_not_at_all() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    daemon.done(&["task", "add", "--id", "tsk", "--project", "prj", "--title", "x"]);
    let path = "/tasks/tsk/comments";
    let comment = json!({ "id": "cmt_1", "text": "once" });
    for _ in 0..2 {
        let (status, answer) = daemon.post(path, &comment);
        assert_eq!(status, 201, "{answer}");
    }
    assert_eq!(comments(&daemon, "tsk").len(), 1);
    let (status, answer) = daemon.post(path, &json!({ "id": "cmt_1", "text": "other" }));
    assert!(status == 409 && answer.contains("comment cmt_1"), "{answer}");
    for (bad, why) in [
        (json!({ "text": " \n" }), "text is empty"),
        (json!({ "text": "x".repeat(4001) }), "4000"),
        (json!({ "text": "x", "id": "a b" }), "not a valid comment id"),
        (json!({}), "text"),
    ] {
        let (status, answer) = daemon.post(path, &bad);
        assert!((400..500).contains(&status) && answer.contains(why), "{why}: {answer}");
    }
    let (status, _) = daemon.post("/tasks/none/comments", &json!({ "text": "x" }));
    assert_eq!(status, 404);
    let said = daemon.cli(&["task", "comment", "tsk", ""]);
    assert!(said.code == 1 && said.stderr.contains("text is empty"), "{said:?}");
    assert_eq!(comments(&daemon, "tsk").len(), 1);
}

#[test]
fn comments_go_with_their_task() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    daemon.done(&["task", "add", "--id", "tsk", "--project", "prj", "--title", "x"]);
    daemon.done(&["task", "comment", "tsk", "kept"]);
    daemon.done(&["task", "set", "tsk", "--status", "cancelled"]);
    let named = daemon.done(&["task", "delete", "tsk", "--dry-run"]);
    assert!(named.contains("1 comment\n"), "{named}");
    daemon.done(&["task", "delete", "tsk", "--yes"]);
    let said = daemon.cli(&["task", "comment", "tsk", "too late"]);
    assert!(said.code != 0, "{said:?}");
}
