//! `save_context`: the saved notes, and the agents that get them.

use serde_json::json;

use super::{ByHand, MINE, check_refused, world};
use crate::daemon::Daemon;

#[test]
fn what_was_saved_is_there_for_the_next_run_and_the_next_agent() {
    let daemon = Daemon::crowded("", &world(MINE));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    let nothing_yet = "This session has no task: only the work on one can be saved";
    check_refused(&ann.call("save_context", json!({ "progress": "half" })), "no_task", nothing_yet);
    ann.get_my_task();
    let nothing = "nothing to save: give progress, findings or next_steps";
    check_refused(&ann.call("save_context", json!({ "progress": null })), "invalid", nothing);
    let saved =
        ann.call("save_context", json!({ "progress": "half", "findings": "it's \u{1b}[31mred" }));
    assert_eq!((&saved["success"], saved["instruction"].is_string()), (&true.into(), true));
    ann.call("save_context", json!({ "next_steps": "the rest", "progress": "most" }));
    ann.call("logout", json!({}));

    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    let context = ann.get_my_task()["task"]["context"].clone();
    let kept = |run: &serde_json::Value| {
        ["progress", "findings", "next_steps", "outcome"]
            .map(|key| run[key].as_str().unwrap_or("-").to_owned())
    };
    assert_eq!(kept(&context), ["most", "it's [31mred", "the rest", "exited_without_report"]);
    // A report without next steps keeps the saved ones.
    ann.call("save_context", json!({ "next_steps": "ask Bob" }));
    ann.call("report_completed", json!({ "result": "blocked", "summary": "no network" }));
    let shown = daemon.done(&["task", "show", "tsk"]);
    assert!(
        shown.contains(
            "\nprogress:\n  most\n\nfindings:\n  it's [31mred\n\nnext steps:\n  ask Bob\n"
        ),
        "{shown}"
    );

    daemon.done(&["task", "set", "tsk", "--status", "in_progress", "--assignee", "agt_b"]);
    let task = ByHand::authenticate(&daemon, "agt_b").get_my_task()["task"].clone();
    assert_eq!(kept(&task["handoff"]), ["-", "-", "ask Bob", "blocked"]);
    assert_eq!(task["context"], json!({}));
}

#[test]
fn an_ended_session_saves_nothing() {
    let daemon = Daemon::crowded("", &world(MINE));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    ann.get_my_task();
    ann.report("success");
    check_refused(
        &ann.call("save_context", json!({ "progress": "x" })),
        "session_ended",
        "Invalid session: it has ended",
    );
}
