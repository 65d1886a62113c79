//! The agents that are wanted for a chat, started for it, and released.

use serde_json::{Value, json};

use super::{
    END, MESSAGES, START, Talker, ask, asked, contents, end, is_wanted, lively, quiet, said, say,
    sessions, start, until_ended, until_listening,
};
use crate::daemon::Daemon;
use crate::mcp::world;
use crate::support::until;

#[test]
fn a_wish_ends_when_the_agent_comes_and_when_the_chat_is_closed() {
    let daemon = quiet("");
    assert!(!is_wanted(&daemon));
    start(&daemon);
    assert!(is_wanted(&daemon));
    end(&daemon);
    assert!(!is_wanted(&daemon));
    let mut ann = Talker::in_chat(&daemon);
    assert!(!is_wanted(&daemon));
    assert_eq!(sessions(&daemon), (1, 0));
    // Opening the chat again changes nothing for an agent that listens.
    start(&daemon);
    assert!(!is_wanted(&daemon));
    assert_eq!(ann.next()["action"], "wait_for_messages");
}

#[test]
fn what_is_said_while_nobody_listens_starts_the_agent() {
    let daemon = lively("", &["authenticate", "chat"]);
    let id = say(&daemon, "are you there?");
    until("it is answered", || said(&daemon).len() == 2);
    assert_eq!(said(&daemon)[1].1, format!("read {id} "));
    end(&daemon);
    until("it has gone", || sessions(&daemon) == (0, 0));
}

#[test]
fn a_wish_survives_a_start_that_failed() {
    let daemon = lively("", &["exit:7"]);
    start(&daemon);
    assert_eq!(until_ended(&daemon)["outcome"], "never_authenticated");
    until("it was tried again", || daemon.ended("agt_a").len() > 1);
    daemon.steps("agt_a", &["authenticate", "chat"]);
    until_listening(&daemon);
    end(&daemon);
    until("it has gone", || daemon.open("agt_a").is_empty());
}

#[test]
fn an_agent_that_leaves_messages_behind_is_started_again_and_waits_longer_each_time() {
    let daemon = lively("", &["authenticate", "append:starts", "logout"]);
    say(&daemon, "hello");
    until("it failed some times", || daemon.ended("agt_a").len() > 2);
    daemon.steps("agt_a", &["authenticate", "chat"]);
    until("it is answered", || said(&daemon).len() == 2);
    // The agent crashes after it was given the message.
    daemon.steps("agt_a", &["authenticate", "chat"]);
    end(&daemon);
    until("it has gone", || daemon.open("agt_a").is_empty());
    daemon.steps("agt_a", &["authenticate", "call:get_pending_messages {}", "segv"]);
    say(&daemon, "hello again");
    until("it crashed", || {
        daemon.ended("agt_a").first().is_some_and(|end| end["outcome"] == "exited_without_report")
    });
    daemon.steps("agt_a", &["authenticate", "chat"]);
    until("it is answered all the same", || said(&daemon).len() == 4);
    end(&daemon);
}

#[test]
fn who_answered_everything_may_go_without_a_word() {
    let daemon = lively(
        "backoff: { initial: 5m }",
        &[
            "authenticate",
            "call:get_pending_messages {}",
            "call:respond_chat {\"content\": \"yes\"}",
        ],
    );
    for n in 1..4 {
        say(&daemon, "there?");
        until("it is answered", || said(&daemon).len() == 2 * n);
        until("it has gone", || daemon.ended("agt_a").len() == n);
    }
}

#[test]
fn a_closed_chat_lets_its_agent_go_and_keeps_what_it_did_not_answer() {
    let daemon = quiet("");
    let ann = Talker::in_chat(&daemon);
    let mut waiting = ann.poll_apart(&daemon);
    end(&daemon);
    let answer = waiting.receive().unwrap()["result"]["structuredContent"].clone();
    assert_eq!((&answer["success"], &answer["action"]), (&true.into(), &"exit".into()), "{answer}");
    assert_eq!(until_ended(&daemon)["outcome"], "completed");
    end(&daemon);

    let mut ann = Talker::in_chat(&daemon);
    say(&daemon, "one more thing");
    end(&daemon);
    assert!(!is_wanted(&daemon));
    assert_eq!(ann.next()["action"], "exit");
    let mut ann = Talker::in_chat(&daemon);
    assert_eq!(contents(&ann.next()["messages"]), ["one more thing"]);
    // An agent that has seen the message and leaves has nothing left to answer.
    ann.call("logout", json!({}));
    assert!(!is_wanted(&daemon));
}

#[test]
fn a_kept_agent_has_a_while_to_go_when_its_chat_is_closed() {
    let daemon = lively(
        "run: { linger: 1h }",
        &["authenticate", "call:get_next_action {}", "write:told", "sleep:600"],
    );
    start(&daemon);
    until_listening(&daemon);
    end(&daemon);
    daemon.written_pid("told");
    let open = daemon.until_in_state("agt_a", "stopping");
    assert_eq!(open["reason"], "chat_ended", "{open}");
    assert_eq!(sessions(&daemon), (0, 0));
    // A message from now on is for the next agent.
    daemon.steps("agt_a", &["authenticate", "chat"]);
    say(&daemon, "wait");
    daemon.done(&["stop", "agt_a", "prj", "--purpose", "chat"]);
    // A person holds the agent. Opening the chat again ends that.
    start(&daemon);
    until("it is answered", || said(&daemon).len() == 2);
    end(&daemon);
    daemon.done(&["stop", "--all"]);
}

#[test]
fn nobody_says_anything_for_long() {
    let daemon = quiet("chat: { idle_timeout: 1s }");
    let mut ann = Talker::in_chat(&daemon);
    let mut actions = Vec::new();
    until("it is told to go", || {
        actions
            .push(ann.call("get_next_action", json!({ "timeout_seconds": 5 }))["action"].clone());
        actions.last().unwrap() != "wait_for_messages"
    });
    // The agent's own question or the clock comes first.
    assert!(["logout", "exit"].contains(&actions.last().unwrap().as_str().unwrap()), "{actions:?}");
    until("the chat is over", || sessions(&daemon) == (0, 0));
    assert_eq!(until_ended(&daemon)["outcome"], "completed");
    assert!(!is_wanted(&daemon));
}

#[test]
fn a_silent_agent_is_stopped_when_its_chat_is_idle() {
    let daemon =
        lively("chat: { idle_timeout: 1s }\nrun: { linger: 0 }", &["authenticate", "sleep:600"]);
    start(&daemon);
    let ended = until_ended(&daemon);
    assert_eq!(ended["outcome"], "completed", "{ended}");
    daemon.until_nothing_is_left();
}

#[test]
fn a_silent_agent_without_held_polls_is_stopped_when_its_chat_is_idle() {
    let daemon = lively(
        "chat: { poll_hold: 0, idle_timeout: 1s }\nrun: { linger: 0 }",
        &["authenticate", "sleep:600"],
    );
    start(&daemon);
    assert_eq!(until_ended(&daemon)["outcome"], "completed");
    daemon.until_nothing_is_left();
}

#[test]
fn what_makes_no_sense_is_refused_in_clear_words() {
    let daemon = quiet("");
    let check = |method: &str, path: &str, body: &Value, status: u16, code: &str, detail: &str| {
        let (found, problem) = ask(&daemon, method, path, body);
        let words = problem["detail"].as_str().unwrap_or_default();
        assert_eq!((found, &problem["code"]), (status, &code.into()), "{method} {path}: {problem}");
        assert!(words.contains(detail), "{method} {path}: {problem}");
    };
    let of = |agent: &str| json!({ "agentId": agent });
    check("POST", START, &of("agt_nobody"), 404, "agent_not_found", "no agent `agt_nobody`");
    check(
        "POST",
        "/projects/nowhere/chat/start",
        &of("agt_a"),
        404,
        "project_not_found",
        "no project `nowhere`",
    );
    check(
        "POST",
        "/projects/prj_2/chat/start",
        &of("agt_b"),
        409,
        "not_assigned",
        "agent `agt_b` is not assigned",
    );
    check("POST", START, &json!({}), 400, "invalid_body", "`agentId` is missing");
    check(
        "POST",
        START,
        &json!({ "agentId": "a b" }),
        400,
        "invalid_body",
        "is not a valid agent id",
    );
    check("POST", END, &of("agt_nobody"), 404, "agent_not_found", "no agent `agt_nobody`");
    check(
        "GET",
        "/projects/nowhere/agent-sessions",
        &Value::Null,
        404,
        "project_not_found",
        "no project `nowhere`",
    );
    check(
        "POST",
        MESSAGES,
        &json!({ "content": " \n" }),
        422,
        "invalid",
        "content is empty: expected a text",
    );
    let long = "x".repeat(20_001);
    check(
        "POST",
        MESSAGES,
        &json!({ "content": long }),
        422,
        "too_long",
        "`content` is 20001 characters long, and at most 20000 are taken",
    );
    check("POST", MESSAGES, &json!({ "text": "x" }), 400, "invalid_body", "unknown field `text`");
    check(
        "POST",
        MESSAGES,
        &json!({ "content": null }),
        400,
        "invalid_body",
        "content: expected a string, found null",
    );
    let elsewhere = "/projects/prj_2/agents/agt_a/chat/messages";
    let id = asked(&daemon, "POST", elsewhere, &json!({ "content": "x" }))["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let after = format!("{MESSAGES}?after={id}");
    check(
        "GET",
        &after,
        &Value::Null,
        404,
        "message_not_found",
        &format!("no message `{id}` in this chat"),
    );
    check(
        "GET",
        &format!("{MESSAGES}?limit=0"),
        &Value::Null,
        400,
        "invalid_query",
        "limit must be 1 to 1000, not 0",
    );
    let taken = json!({ "id": id, "content": "y" });
    check("POST", MESSAGES, &taken, 409, "already_exists", &format!("message {id} exists already"));
    // A message that is repeated with its own id is stored once.
    let again = asked(&daemon, "POST", elsewhere, &json!({ "id": id, "content": "x" }));
    assert_eq!(again["id"], id.as_str());
    assert_eq!(
        asked(&daemon, "GET", elsewhere, &Value::Null)["messages"].as_array().unwrap().len(),
        1
    );

    daemon.done(&["project", "set", "prj", "--status", "inactive"]);
    for (path, body) in [(START, of("agt_a")), (MESSAGES, json!({ "content": "x" }))] {
        let (status, problem) = ask(&daemon, "POST", path, &body);
        assert_eq!((status, &problem["code"]), (409, &"inactive".into()), "{problem}");
    }
}

#[test]
fn an_agent_that_is_taken_from_the_project_leaves_the_chat() {
    let daemon = quiet("");
    let mut ann = Talker::in_chat(&daemon);
    daemon.done(&["project", "set", "prj", "--unassign", "agt_a"]);
    assert_eq!(ann.next()["action"], "exit");
    assert_eq!(until_ended(&daemon)["outcome"], "completed");
}

#[test]
fn a_coordinator_elsewhere_starts_chats_too() {
    let server = Daemon::serving("polling_interval: 1h\nhttp: { listen: '127.0.0.1:0' }");
    server.apply(&world(""));
    let socket = server.state().join("mcp.sock");
    let mut coordinator = Daemon::supervising(
        &format!("unix:{}", socket.display()),
        "polling_interval: 1h\nagents: { agt_a: { passkey: key_a } }",
    );
    server.steps("agt_a", &["authenticate", "chat"]);
    coordinator.start();
    let id = say(&server, "are you there?");
    until("it is answered", || said(&server).len() == 2);
    assert_eq!(said(&server)[1].1, format!("read {id} "));
    end(&server);
    until("it has gone", || server.open("agt_a").is_empty());
}
