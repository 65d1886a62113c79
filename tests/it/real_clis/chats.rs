//! Agents in a chat: they answer, wait, and leave when there was no message for long.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use super::script::Plot;
use super::{Bed, Server, find};

/// The idle time. It is long enough for more polls than any CLI lets an agent repeat. copilot takes
/// a second for each.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs a chat with two questions, the second after the first is answered, and an end.
fn chats(cli: &str) {
    let Some(program) = find(cli) else { return };
    let mut bed = Bed::new(cli, &program, Plot::Chat, "{}", None);
    bed.start_with_agent(cli, Server::Own);
    for question in ["What is it?", "And why?"] {
        bed.daemon.done(&["chat", "send", "agt", "prj", question]);
        let answer = format!("You said: {question}");
        bed.until(&format!("it says `{answer}`"), || {
            let said = bed.daemon.json(&["chat", "show", "agt", "prj"]);
            let messages = said["messages"].as_array()?;
            messages.iter().any(|message| message["content"] == answer).then_some(())
        });
    }
    assert_eq!(bed.daemon.open("agt").len(), 1, "one process answers both\n{}", bed.said());
    bed.daemon.done(&["chat", "end", "agt", "prj"]);
    let ended = bed.until_ended();
    assert_eq!(
        (&ended["purpose"], &ended["outcome"]),
        (&json!("chat"), &json!("completed")),
        "{ended}\n{}",
        bed.said()
    );
    bed.daemon.until_nothing_is_left();
    let log = fs::read_to_string(bed.daemon.work().join(".ai-pm/agents/agt/chat.jsonl")).unwrap();
    assert_eq!(log.lines().count(), 4, "{log}");
}

#[test]
fn claude_answers_two_messages_of_a_chat() {
    chats("claude");
}

#[test]
fn codex_answers_two_messages_of_a_chat() {
    chats("codex");
}

/// Checks that an agent lives in a chat over many empty polls, still answers, and logs out when the
/// chat has been idle. Some CLIs end an agent after a few identical calls.
fn stays_until_idle(cli: &str, poll_hold: &str) {
    let Some(program) = find(cli) else { return };
    let chat = format!("{{ poll_hold: {poll_hold}, idle_timeout: {}s }}", IDLE_TIMEOUT.as_secs());
    let mut bed = Bed::new(cli, &program, Plot::Chat, &format!("{{}}\nchat: {chat}"), None);
    bed.start_with_agent(cli, Server::Own);
    bed.daemon.done(&["chat", "send", "agt", "prj", "Hello?"]);
    bed.until("it has asked ten times in vain", || (bed.n_empty_polls() >= 10).then_some(()));
    bed.daemon.done(&["chat", "send", "agt", "prj", "Still there?"]);
    let (said_at, n_before) = (Instant::now(), bed.n_empty_polls());
    bed.until("it answers", || {
        let said = bed.daemon.json(&["chat", "show", "agt", "prj"]);
        let messages = said["messages"].as_array()?;
        messages.iter().any(|message| message["content"] == "You said: Still there?").then_some(())
    });
    let ended = bed.until_ended();
    assert!(said_at.elapsed() >= IDLE_TIMEOUT, "{:?}\n{}", said_at.elapsed(), bed.said());
    let n_polls = bed.n_empty_polls() - n_before;
    println!("{cli}: {n_polls} empty polls until it was idle");
    assert!(n_polls > 10, "{n_polls} empty polls\n{}", bed.said());
    assert_eq!(
        (&ended["purpose"], &ended["outcome"]),
        (&json!("chat"), &json!("completed")),
        "{ended}\n{}",
        bed.said()
    );
    // One agent did all of this.
    assert_eq!(bed.daemon.ended("agt").len(), 1, "{}", bed.said());
    bed.daemon.until_nothing_is_left();
}

macro_rules! stays_until_idle {
    ($($name:ident, $at_once:ident: $cli:literal;)*) => {$(
        #[test]
        fn $name() {
            stays_until_idle($cli, "200ms");
        }

        #[test]
        fn $at_once() {
            stays_until_idle($cli, "0");
        }
    )*};
}

stays_until_idle! {
    claude_stays_in_a_chat_until_it_is_idle, claude_stays_in_a_chat_without_held_polls: "claude";
    codex_stays_in_a_chat_until_it_is_idle, codex_stays_in_a_chat_without_held_polls: "codex";
    gemini_stays_in_a_chat_until_it_is_idle, gemini_stays_in_a_chat_without_held_polls: "gemini";
    qwen_stays_in_a_chat_until_it_is_idle, qwen_stays_in_a_chat_without_held_polls: "qwen";
    opencode_stays_in_a_chat_until_it_is_idle, opencode_stays_in_a_chat_without_held_polls: "opencode";
    copilot_stays_in_a_chat_until_it_is_idle, copilot_stays_in_a_chat_without_held_polls: "copilot";
}
