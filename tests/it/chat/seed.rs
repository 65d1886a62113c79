//! A chat from its opening to its end (R-003-1 to R-003-12), with a scripted agent: times, texts,
//! the file, and idle chats. tests/it/web/chat.rs does the same in the browser.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{MESSAGES, Talker, asked, lively, quiet, said, say, sessions, start, until_listening};
use crate::support::until;

#[test]
fn an_open_chat_answers_within_five_seconds() {
    let daemon = lively("language: ja", &["authenticate", "chat"]);
    // 1: The purpose is recorded and the agent started. A second request doubles nothing.
    let opened = start(&daemon);
    assert_eq!(opened, json!({ "agentId": "agt_a", "projectId": "prj", "purpose": "chat" }));
    assert_eq!(start(&daemon), opened);
    // 3: The button is enabled.
    until_listening(&daemon);
    assert_eq!((start(&daemon), sessions(&daemon)), (opened, (1, 0)));
    // 2: The agent waits. 4, 5: The message is recorded and answered.
    let began = Instant::now();
    let id = say(&daemon, "タスクの進捗を教えてください");
    until("it is answered", || said(&daemon).len() == 2);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(said(&daemon)[1], ("agt_a".to_owned(), format!("read {id} ")));
    // The file has the agreed form.
    let file = daemon.work().join(".ai-pm/agents/agt_a/chat.jsonl");
    until("it is in the file", || daemon.mirrored("agt_a").len() == 3);
    let text = fs::read_to_string(&file).unwrap();
    let expected = [
        ("system", "セッション開始", false),
        ("user", "タスクの進捗を教えてください", true),
        ("agt_a", &format!("read {id} "), true),
    ];
    for (line, (sender, content, is_visible)) in text.lines().zip(expected) {
        let found: Value = serde_json::from_str(line).unwrap();
        let (id, at) = (found["id"].as_str().unwrap(), found["createdAt"].as_str().unwrap());
        let content = Value::from(content).to_string();
        let me = format!(r#","author":"local:{}""#, nix::unistd::Uid::effective());
        let author = if sender == "user" { me.as_str() } else { "" };
        let same = format!(
            r#"{{"id":"{id}","senderId":"{sender}","content":{content},"createdAt":"{at}","visible":{is_visible}{author}}}"#
        );
        assert_eq!(line, same);
        assert!(id.starts_with("msg_") && at.len() == 24 && at.ends_with('Z'), "{line}");
    }
    // The hidden message is never shown.
    assert_eq!(said(&daemon).len(), 2);
    super::end(&daemon);
    assert_eq!(super::until_ended(&daemon)["outcome"], "completed");
}

#[test]
fn without_held_polls_an_agent_is_told_to_come_back_in_five_seconds() {
    let daemon = quiet("language: ja\nchat: { poll_hold: 0 }");
    let mut ann = Talker::in_chat(&daemon);
    let expected = |turn: u32| {
        json!({
            "success": true, "action": "wait_for_messages", "wait_seconds": 5, "turn": turn,
            "instruction": "5秒後に再度get_next_actionを呼び出してください",
            "hint": "この応答の turn を指定して get_next_action を呼び出してください。",
        })
    };
    let began = Instant::now();
    assert_eq!(ann.call("get_next_action", json!({})), expected(1));
    // No two questions in a row are the same, because some CLIs end an agent that repeats itself.
    assert_eq!(ann.call("get_next_action", json!({ "turn": 1 })), expected(2));
    assert!(began.elapsed() < Duration::from_secs(4));
    say(&daemon, "hello");
    let next = ann.call("get_next_action", json!({}));
    assert_eq!(
        (&next["action"], super::contents(&next["messages"])),
        (&"get_pending_messages".into(), vec!["hello".to_owned()])
    );
    assert_eq!(ann.pending(), ["hello"]);
    ann.respond("hello yourself");
    assert_eq!(ann.call("get_next_action", json!({})), expected(1));
}

#[test]
fn without_held_polls_an_agent_at_rest_is_told_to_log_out() {
    let daemon = quiet("chat: { poll_hold: 0, idle_timeout: 1s }");
    let mut ann = Talker::in_chat(&daemon);
    let mut last = Value::Null;
    until("the silence has lasted", || {
        last = ann.call("get_next_action", json!({}));
        // Too many questions in a short time are refused.
        last["action"].is_string() && last["action"] != "wait_for_messages"
    });
    assert_eq!(last["action"], "logout", "{last}");
    until("it has logged out", || ann.call("logout", json!({}))["success"] == true);
    assert_eq!(super::until_ended(&daemon)["outcome"], "completed");
}

#[test]
fn an_agent_between_two_polls_is_told_to_exit_after_people_have_ended_its_chat() {
    for hold in ["0", "45s"] {
        let daemon = quiet(&format!("chat: {{ poll_hold: {hold} }}"));
        let mut ann = Talker::in_chat(&daemon);
        super::end(&daemon);
        super::until_ended(&daemon);
        let next = ann.call("get_next_action", json!({}));
        assert_eq!((&next["success"], &next["action"]), (&true.into(), &"exit".into()), "{next}");
        assert_eq!(ann.call("get_pending_messages", json!({}))["error_code"], "session_ended");
    }
}

#[test]
fn messages_are_read_in_pages() {
    let daemon = quiet("");
    let ids: Vec<String> = (0..5).map(|n| say(&daemon, &n.to_string())).collect();
    let read = |query: &str| {
        let found = asked(&daemon, "GET", &format!("{MESSAGES}?{query}"), &Value::Null);
        (
            super::contents(&found["messages"]).concat(),
            found["nextCursor"].as_str().map(str::to_owned),
        )
    };
    assert_eq!(read(""), ("01234".to_owned(), None));
    assert_eq!(read("limit=2"), ("34".to_owned(), Some(ids[3].clone())));
    assert_eq!(
        read(&format!("limit=2&before={}", ids[3])),
        ("12".to_owned(), Some(ids[1].clone()))
    );
    assert_eq!(read(&format!("limit=2&before={}", ids[1])), ("0".to_owned(), None));
    assert_eq!(read(&format!("limit=2&after={}", ids[0])), ("12".to_owned(), Some(ids[2].clone())));
    assert_eq!(read(&format!("limit=2&after={}", ids[2])), ("34".to_owned(), None));
    assert_eq!(read(&format!("after={}", ids[4])), (String::new(), None));
    assert_eq!(read(&format!("after={}&before={}", ids[0], ids[3])), ("12".to_owned(), None));
    // The base of the API has the same route.
    assert_eq!(
        asked(&daemon, "GET", &format!("/api{MESSAGES}?limit=1"), &Value::Null)["messages"][0]["content"],
        "4"
    );
}

#[test]
fn who_waits_for_a_message_hears_it_at_once() {
    let daemon = quiet("");
    let first = say(&daemon, "first");
    let path = format!("{MESSAGES}?wait=30&after={first}");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| asked(&daemon, "GET", &path, &Value::Null));
        say(&daemon, "second");
        assert_eq!(super::contents(&waiting.join().unwrap()["messages"]), ["second"]);
    });
}
