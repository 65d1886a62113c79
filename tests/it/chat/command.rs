//! `agent-coordinator chat`.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Talker, end, lively, quiet, said, say, sessions, until_listening};
use crate::daemon::Daemon;
use crate::http::Web;
use crate::support::until;

/// Returns the name of a person at the control socket.
fn me() -> String {
    format!("local:{}", nix::unistd::Uid::effective())
}

#[test]
fn a_chat_is_opened_used_and_closed() {
    let daemon = lively("", &["authenticate", "chat"]);
    assert_eq!(
        daemon.done(&["chat", "start", "agt_a", "prj"]),
        "the chat with agt_a in prj is open\n"
    );
    until_listening(&daemon);
    let sent = daemon.json(&["chat", "send", "agt_a", "prj", "-1 is a number"]);
    assert_eq!((&sent["sender_id"], &sent["content"]), (&"user".into(), &"-1 is a number".into()));
    assert_eq!(sent["author"], me());
    until("it is answered", || said(&daemon).len() == 2);
    let first = sent["id"].as_str().unwrap();
    let shown = daemon.json(&["chat", "show", "agt_a", "prj", "--after", first]);
    assert_eq!(shown["messages"][0]["content"], format!("read {first} "));
    let said = daemon.cli_with_input(&["chat", "send", "agt_a", "prj", "-"], "two\nlines\n");
    assert_eq!(said.code, 0, "{said:?}");
    let shown = daemon.done(&["chat", "show", "agt_a", "prj"]);
    assert!(shown.contains(&format!(" {}: two\n    lines\n", me())));
    assert_eq!(daemon.json(&["chat", "end", "agt_a", "prj"])["purpose"], "chat");
    until("it has gone", || sessions(&daemon) == (0, 0));
    let refused = daemon.cli(&["chat", "start", "agt_nobody", "prj"]);
    assert_eq!(
        (refused.code, refused.stderr.as_str()),
        (1, "agent-coordinator: no agent `agt_nobody`\n")
    );
    assert_eq!(daemon.cli(&["chat"]).code, 2);
    assert_eq!(daemon.cli(&["chat", "agt_a"]).code, 2);
}

#[test]
fn a_conversation_stays_until_the_agent_has_answered_and_then_ends_its_chat() {
    let daemon = lively("http: { listen: '127.0.0.1:0' }", &["authenticate", "chat"]);
    // A viewer ends no chat.
    let token = daemon.done(&["token", "create", "--role", "viewer"]);
    let viewer = format!("Authorization: Bearer {}\r\n", token.trim_end());
    let address = daemon.status()["http"]["address"].as_str().unwrap().parse().unwrap();
    let view = "/api/projects/prj/agents/agt_b/chat/messages?attend=true";
    assert_eq!(Web::connect(address).ask("GET", view, &viewer, "").status, 200);
    let told = daemon.cli_with_input(&["chat", "agt_a", "prj"], "hello\n\nthere\n");
    assert!(told.code == 0 && told.stdout.contains(" agt_a: read "), "{told:?}");
    let mut words = said(&daemon);
    words.retain(|(sender, _)| sender == "user");
    assert_eq!(
        words.into_iter().map(|(_, content)| content).collect::<Vec<_>>(),
        ["hello", "there"]
    );
    until("it has ended", || sessions(&daemon) == (0, 0));
    let told = daemon.cli(&["chat", "send", "--wait", "agt_a", "prj", "again"]);
    assert!(told.code == 0 && told.stdout.contains(" agt_a: read "), "{told:?}");
    until("it has ended", || sessions(&daemon) == (0, 0));
    let left = daemon.logged("the last view of a chat was closed; ending the chat");
    let of_ann = left.iter().filter(|line| line["agent_id"] == "agt_a").count();
    assert!(of_ann > 0 && of_ann == left.len(), "{left:?}");
}

#[test]
fn two_chats_that_were_left_give_their_slots_to_a_task() {
    // A chat that is only silent would keep its slot for 30 s, longer than a wait of a test.
    let daemon = Daemon::running("polling_interval: 1h\nmax_concurrent: 2");
    daemon.project("prj");
    let talkers = ["agt_a", "agt_b"];
    for agent in talkers {
        daemon.agent(agent, "prj", &["authenticate", "chat"]);
    }
    daemon.agent("agt_c", "prj", &["authenticate", "get-my-task", "report:success"]);
    for agent in talkers {
        let told = daemon.cli_with_input(&["chat", agent, "prj"], "hi\n");
        assert!(told.code == 0 && told.stdout.contains(&format!(" {agent}: read ")), "{told:?}");
    }
    daemon.task("tsk", "prj", "agt_c");
    until("the task is done", || daemon.task_status("tsk") == "done");
    let ends = talkers.map(|agent| daemon.until_ended(agent));
    assert!(ends.iter().all(|launch| launch["outcome"] == "completed"), "{ends:?}");
    let started = daemon.until_ended("agt_c");
    let text = |at: &Value| at.as_str().unwrap().to_owned();
    let first_end = ends.iter().map(|launch| text(&launch["ended_at"])).min().unwrap();
    assert!(text(&started["claimed_at"]) >= first_end, "{started} {ends:?}");
    let left = daemon.logged("the last view of a chat was closed; ending the chat");
    let was_left = |agent: &&str| left.iter().any(|line| line["agent_id"] == *agent);
    assert!(talkers.iter().all(was_left), "{left:?}");
}

#[test]
fn a_wait_for_an_answer_fails_at_once_when_another_person_ends_the_chat() {
    // The chat waits for its agent, or the agent is silent and has `run.linger` to go.
    for is_there in [false, true] {
        let daemon = if is_there { lively("", &["authenticate", "sleep:600"]) } else { quiet("") };
        let mut command = daemon.command();
        command.args(["chat", "send", "--wait", "agt_a", "prj", "one"]);
        let waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until("it is said", || said(&daemon).len() == 1);
        if is_there {
            until_listening(&daemon);
        }
        end(&daemon);
        let ended = Instant::now();
        let told = waiting.wait_with_output().unwrap();
        // A request for messages is held for 30 s.
        assert!(ended.elapsed() < Duration::from_secs(20), "{:?}", ended.elapsed());
        let stderr = String::from_utf8(told.stderr).unwrap();
        let expected = "agent-coordinator: agt_a in prj does not answer: the chat has ended\n";
        assert_eq!((told.status.code(), stderr.as_str()), (Some(1), expected));
    }
}

#[test]
fn answers_before_the_end_of_a_chat_are_printed_although_the_wait_fails() {
    let daemon = quiet("");
    let mut command = daemon.command();
    command.args(["chat", "send", "--wait", "agt_a", "prj", "one"]);
    let waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("it is said", || said(&daemon).len() == 1);
    let mut ann = Talker::by_hand(&daemon);
    assert_eq!(ann.pending(), ["one"]);
    // This one stays without an answer.
    say(&daemon, "two");
    ann.respond("the answer");
    end(&daemon);
    let told = waiting.wait_with_output().unwrap();
    let stdout = String::from_utf8(told.stdout).unwrap();
    let stderr = String::from_utf8(told.stderr).unwrap();
    assert_eq!(told.status.code(), Some(1), "{stderr}");
    assert!(stdout.contains(" agt_a: the answer") && stderr.contains("has ended"), "{stdout}");
}

#[test]
fn who_follows_hears_what_is_said() {
    let daemon = quiet("");
    say(&daemon, "before");
    let mut command = daemon.command();
    command.args(["chat", "follow", "agt_a", "prj", "--json"]).stdout(Stdio::piped());
    let first = super::asked(&daemon, "GET", &format!("{}?limit=1", super::MESSAGES), &Value::Null);
    command.args(["--after", first["messages"][0]["id"].as_str().unwrap()]);
    let mut following = command.spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    for content in ["one", "two\nlines \u{1b}[31m"] {
        say(&daemon, content);
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        // The store keeps no characters that would control a terminal.
        assert_eq!(line["content"], content.replace('\u{1b}', ""));
    }
    following.kill().unwrap();
    following.wait().unwrap();
    let shown = daemon.done(&["chat", "show", "agt_a", "prj"]);
    assert!(shown.ends_with(&format!(" {}: two\n    lines [31m\n", me())), "{shown:?}");
}
