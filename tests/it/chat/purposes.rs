//! A chat beside a task of the same agent in the same project. Each has its own session, tools and
//! end.

use serde_json::{Value, json};

use super::{Talker, contents, end, lively, quiet, said, say, sessions, start};
use crate::daemon::Daemon;
use crate::mcp::{MINE, credentials, world};
use crate::support::until;

/// Returns Ann at her task, and in a chat.
fn both() -> (Daemon, Talker, Talker) {
    let daemon = quiet("");
    daemon.apply(&world(MINE));
    let mut client = daemon.client();
    let answer = client.call("authenticate", &credentials("agt_a", "key_a", "prj"));
    assert_eq!(answer["purpose"], "task", "{answer}");
    let task = Talker { client, token: answer["session_token"].as_str().unwrap().to_owned() };
    let chat = Talker::in_chat(&daemon);
    (daemon, task, chat)
}

/// Returns the agents' tools in the list.
fn tools(daemon: &Daemon) -> Vec<String> {
    let list = daemon.client().request("tools/list", &json!({}))["result"]["tools"].clone();
    let needs_session = |tool: &&Value| {
        tool["inputSchema"]["required"]
            .as_array()
            .is_some_and(|required| required.contains(&"session_token".into()))
    };
    let names = list
        .as_array()
        .unwrap()
        .iter()
        .filter(needs_session)
        .map(|tool| tool["name"].as_str().unwrap().to_owned());
    names.collect()
}

#[test]
fn each_session_is_told_which_tool_to_call_instead() {
    let (daemon, mut task, mut chat) = both();
    let for_both = ["get_next_action", "get_notifications", "logout"];
    let for_chats = ["get_pending_messages", "respond_chat"];
    let reports = ["report_completed", "report_execution_complete"];
    for tool in tools(&daemon) {
        let name = tool.as_str();
        if for_both.contains(&name) {
            continue;
        }
        let (session, words) = if for_chats.contains(&name) {
            (&mut task, "This tool is not for a task session: call get_my_task")
        } else if reports.contains(&name) {
            (&mut chat, "This tool is not for a chat session: call logout")
        } else {
            (&mut chat, "This tool is not for a chat session: call get_next_action")
        };
        let answer = session.call(name, json!({}));
        assert_eq!(
            answer,
            json!({ "success": false, "error": words, "error_code": "wrong_purpose" }),
            "{name}"
        );
    }
}

#[test]
fn each_has_its_own_session_and_end() {
    let (daemon, mut task, mut chat) = both();
    assert_eq!(sessions(&daemon), (1, 1));
    assert_eq!(task.call("get_my_task", json!({}))["task"]["task_id"], "tsk");
    say(&daemon, "how is it going?");
    assert_eq!(contents(&chat.next()["messages"]), ["how is it going?"]);
    assert_eq!(task.next()["action"], "work");
    // The chat session gets no notice about the task.
    daemon.done(&["task", "set", "tsk", "--status", "blocked"]);
    assert!(chat.respond("well").get("notification").is_none());
    assert!(task.next().get("notification").is_some());
    assert_eq!(task.call("report_completed", json!({ "result": "blocked" }))["success"], true);
    assert_eq!(sessions(&daemon), (1, 0));
    end(&daemon);
    assert_eq!(sessions(&daemon), (0, 0));
}

#[test]
fn each_has_its_own_process() {
    let daemon = lively(
        "",
        &[
            "authenticate",
            "run:call get_my_task --get task >task.$$ || chat",
            "append:went",
            "wait-for:go",
        ],
    );
    daemon.apply(&world(MINE));
    start(&daemon);
    until("both are there", || sessions(&daemon) == (1, 1));
    let open = daemon.open("agt_a");
    let of = |purpose: &str| {
        open.iter().find(|launch| launch["purpose"] == purpose).unwrap()["pid"].clone()
    };
    assert_ne!(of("task"), of("chat"));
    say(&daemon, "hello");
    until("it is answered", || said(&daemon).len() == 2);
    end(&daemon);
    daemon.write("work/go", "");
    until("the chat is over", || sessions(&daemon) == (0, 1) || sessions(&daemon) == (0, 0));
    until("both have gone", || daemon.open("agt_a").is_empty());
}

#[test]
fn a_chat_begins_with_its_own_words() {
    let daemon = quiet("language: ja");
    start(&daemon);
    let mut client = daemon.client();
    let answer = client.call("authenticate", &credentials("agt_a", "key_a", "prj"));
    assert_eq!(
        (&answer["purpose"], &answer["instruction"]),
        (
            &"chat".into(),
            &"get_next_action を呼び出し、その指示に従うことを繰り返してください".into()
        )
    );
}

/// The coordinator uses the three steps (R-004-6).
#[test]
fn a_coordinator_of_the_seed_starts_a_chat_when_there_is_no_task() {
    let daemon = quiet("");
    start(&daemon);
    let ask = |more: Value| {
        let mut arguments =
            json!({ "agent_id": "agt_a", "project_id": "prj", "coordinator_id": "crd_seed" });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        daemon.client().call("should_start", &arguments)
    };
    let no = ask(json!({ "purpose": "task" }));
    assert_eq!(no, json!({ "should_start": false, "reason": "no_work" }));
    let yes = ask(json!({}));
    assert_eq!((&yes["should_start"], &yes["purpose"]), (&true.into(), &"chat".into()), "{yes}");
    let mut ann = Talker::with(&daemon, yes["launch_ticket"].as_str().unwrap());
    assert_eq!(ann.next()["action"], "wait_for_messages");
    assert_eq!(ask(json!({ "purpose": "chat" }))["reason"], "running");
}
