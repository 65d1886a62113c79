//! No message is lost, doubled or reordered, whichever side goes away in between.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Talker, contents, end, lively, quiet, said, say, start, until_listening};
use crate::support::until;

#[test]
fn two_people_and_one_agent_lose_double_and_reorder_nothing() {
    const N_MESSAGES: usize = 60;
    let daemon = lively("", &["authenticate", "chat"]);
    start(&daemon);
    std::thread::scope(|scope| {
        for person in ["ann", "bob", "eve"] {
            let daemon = &daemon;
            scope.spawn(move || {
                (0..N_MESSAGES).for_each(|n| drop(say(daemon, &format!("{person} {n}"))));
            });
        }
    });
    let n_asked = 3 * N_MESSAGES;
    let all = || {
        let mut found = Vec::new();
        let mut before = String::new();
        loop {
            let page = super::asked(
                &daemon,
                "GET",
                &format!("{}?limit=200{before}", super::MESSAGES),
                &Value::Null,
            );
            let mut messages = page["messages"].as_array().unwrap().clone();
            messages.append(&mut found);
            found = messages;
            match page["nextCursor"].as_str() {
                Some(cursor) => before = format!("&before={cursor}"),
                None => return found,
            }
        }
    };
    let answered = |messages: &[Value]| -> Vec<String> {
        let answers = messages.iter().filter(|message| message["senderId"] == "agt_a");
        let words =
            answers.flat_map(|answer| answer["content"].as_str().unwrap().split(' ').skip(1));
        words.filter(|id| !id.is_empty()).map(str::to_owned).collect()
    };
    until("all are answered", || answered(&all()).len() >= n_asked);
    let messages = all();
    let asked: Vec<&Value> =
        messages.iter().filter(|message| message["senderId"] == "user").collect();
    let ids: Vec<&str> = asked.iter().map(|message| message["id"].as_str().unwrap()).collect();
    // Each is answered once, in the order in which they were sent.
    assert_eq!(answered(&messages), ids);
    for person in ["ann", "bob", "eve"] {
        let of_person = asked.iter().map(|message| message["content"].as_str().unwrap());
        let of_person: Vec<&str> =
            of_person.filter(|content| content.starts_with(person)).collect();
        assert_eq!(of_person, (0..N_MESSAGES).map(|n| format!("{person} {n}")).collect::<Vec<_>>());
    }
    // The mirror has the same messages in the same order.
    let mirrored = || -> Vec<Value> {
        let lines = daemon.mirrored("agt_a").into_iter();
        lines.filter(|line| line["visible"] == true).map(|line| line["id"].clone()).collect()
    };
    let all_ids: Vec<Value> = messages.iter().map(|message| message["id"].clone()).collect();
    until("it is mirrored", || mirrored() == all_ids);
    end(&daemon);
    until("it has gone", || daemon.open("agt_a").is_empty());
}

#[test]
fn a_client_that_goes_in_the_middle_of_a_poll_loses_nothing() {
    let daemon = quiet("");
    let mut ann = Talker::in_chat(&daemon);
    for n in 0..20 {
        let mut waiting = ann.poll_apart(&daemon);
        if n % 2 == 0 {
            let given_up = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
            waiting.send(format!("{given_up}\n").as_bytes());
        }
        // The connection ends before, during or after the message.
        if n % 3 == 0 {
            drop(waiting);
            say(&daemon, &n.to_string());
        } else {
            say(&daemon, &n.to_string());
            drop(waiting);
        }
        // If the message was handed to the lost connection, it is given again to an agent that asks
        // without having answered.
        let next = ann.call("get_next_action", json!({}));
        assert_eq!(next["action"], "get_pending_messages", "{next}");
        assert_eq!(contents(&next["messages"]), [n.to_string()]);
        ann.respond(&format!("answer to {n}"));
    }
}

#[test]
fn a_restart_between_a_message_and_its_answer_loses_and_doubles_nothing() {
    let mut daemon = quiet("");
    let mut ann = Talker::in_chat(&daemon);
    say(&daemon, "hello");
    assert_eq!(contents(&ann.next()["messages"]), ["hello"]);
    daemon.kill();
    daemon.start();
    ann.client = daemon.client();
    assert_eq!(ann.pending(), ["hello"]);
    let id = ann.respond("hello yourself")["message_id"].clone();
    daemon.kill();
    daemon.start();
    // The answer was lost, so the agent repeats its message, in spite of new messages.
    ann.client = daemon.client();
    assert_eq!(ann.respond("hello yourself")["message_id"], id);
    assert_eq!(ann.next()["action"], "wait_for_messages");
    say(&daemon, "hello?");
    assert_eq!(ann.respond("hello yourself")["message_id"], id);
    assert_eq!(said(&daemon).len(), 3);
    // The same text as the answer to another message is a new message.
    assert_eq!(ann.pending(), ["hello?"]);
    assert_ne!(ann.respond("hello yourself")["message_id"], id);
    assert_eq!(said(&daemon).len(), 4);
}

#[test]
fn a_real_agent_goes_on_after_the_daemon_was_killed() {
    let mut daemon = lively("", &["authenticate", "chat"]);
    start(&daemon);
    until_listening(&daemon);
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(say(&daemon, &n.to_string()));
        daemon.kill();
        daemon.start();
    }
    let answers = || -> Vec<String> {
        let found = said(&daemon).into_iter().filter(|(sender, _)| sender == "agt_a");
        let words: Vec<String> = found.map(|(_, content)| content).collect();
        words
            .iter()
            .flat_map(|answer| answer.split_whitespace().skip(1))
            .map(str::to_owned)
            .collect()
    };
    until("all are answered", || answers().len() >= ids.len());
    assert_eq!(answers(), ids);
    assert_eq!(daemon.ended("agt_a").len(), 0);
    end(&daemon);
    until("it has gone", || daemon.open("agt_a").is_empty());
}

#[test]
fn an_answer_counts_for_what_was_given_and_nothing_else() {
    let daemon = quiet("");
    let mut ann = Talker::in_chat(&daemon);
    say(&daemon, "one");
    assert_eq!(ann.pending(), ["one"]);
    say(&daemon, "two");
    ann.respond("to one");
    let next = ann.next();
    assert_eq!(contents(&next["messages"]), ["two"]);
    ann.respond("to two");
    assert_eq!(ann.pending(), Vec::<String>::new());
    let context = ann.call("get_pending_messages", json!({}))["context_messages"].clone();
    assert_eq!(contents(&context), ["one", "two", "to one", "to two"]);
    // There is no open question, but a message of the agent is accepted.
    ann.respond("by the way");
    assert_eq!(said(&daemon).len(), 5);
    let mut refused = |content: &Value| {
        let mut arguments = json!({ "session_token": ann.token });
        arguments["content"] = content.clone();
        ann.client.call("respond_chat", &arguments)
    };
    assert_eq!(refused(&json!("  "))["error"], "content is empty: expected a text");
    assert_eq!(refused(&json!("x".repeat(20_001)))["error_code"], "too_long");
}

#[test]
fn what_is_given_at_once_has_a_limit() {
    let daemon = quiet("");
    let mut ann = Talker::in_chat(&daemon);
    let long = "x".repeat(10_000);
    for n in 0..4 {
        say(&daemon, &format!("{n}{long}"));
    }
    let mut given = Vec::new();
    until("all are given", || {
        let pending = ann.pending();
        given.extend(pending.iter().map(|content| content[..1].to_owned()));
        ann.respond(&format!("so far: {}", given.join(" ")));
        pending.is_empty()
    });
    assert_eq!(given, ["0", "1", "2", "3"]);
}

#[test]
fn a_held_poll_ends_in_time_and_says_to_ask_again() {
    let daemon = quiet("chat: { poll_hold: 300ms }");
    let mut ann = Talker::in_chat(&daemon);
    let began = std::time::Instant::now();
    let next = ann.call("get_next_action", json!({}));
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!((&next["action"], &next["wait_seconds"]), (&"wait_for_messages".into(), &0.into()));
}
