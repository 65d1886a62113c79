//! The chat panel, from the click on an agent to its answer, and the safety of the messages.

use std::fs;

use domain::chat::Sender;
use domain::{AgentId, InstanceKey, Message, ProjectId, Purpose, Timestamp};
use store::rows::Store;

use super::browser::Browser;
use super::{assert_quiet, daemon, daemon_with};
use crate::daemon::{Daemon, IN_A_FILE};
use crate::questions::Questions;
use crate::rows::{self, Row};
use crate::support::{kill, until};

fn open_panel(browser: &Browser) {
    browser.go_to("/ui/projects/prj");
    browser.find("#avatar-agt").click();
    browser.find("#panel [data-chat]");
}

fn say(browser: &Browser, text: &str) {
    browser.find("#say").type_in(text);
    browser.find("#send").click();
}

/// Returns the messages in the panel, as (whether by a person, content).
fn said(browser: &Browser) -> Vec<(bool, String)> {
    let script = "return [...document.querySelectorAll('.message:not(.is-unsent)')].map(m => \
                  [m.classList.contains('is-ours'), m.querySelector('.prose').textContent])";
    serde_json::from_value(browser.run(script)).unwrap()
}

#[test]
fn a_message_is_answered_at_once_by_an_agent_that_waits() {
    let daemon = daemon(&[]);
    daemon.agent("agt", "prj", &["wait-for:go", "authenticate", "chat"]);
    let Some(browser) = Browser::at(&daemon, "operator", "ja") else {
        return;
    };
    open_panel(&browser);
    // 1: The wish is recorded, and its hidden line written.
    until("the session begins", || daemon.mirrored("agt").len() == 1);
    let opening = &daemon.mirrored("agt")[0];
    assert_eq!(opening["senderId"], "system");
    assert_eq!(opening["visible"], false);
    let standing = || browser.find("#chat-standing").text();
    assert_eq!(
        (browser.find("#send").text().as_str(), standing().as_str()),
        ("送信", "エージェントを起動中…")
    );
    assert!(
        browser
            .run("return document.querySelector('#panel').getBoundingClientRect().left")
            .as_f64()
            .unwrap()
            > 900.0
    );
    // 2 and 3: The agent comes and waits, and the page shows that.
    fs::write(daemon.work().join("go"), "").unwrap();
    browser.until("the agent listens", || standing() == "メッセージを待っています");
    let sessions = browser.run_async(
        "fetch('/api/projects/prj/agent-sessions').then(r => r.json()).then(arguments[arguments.length - 1])",
    );
    assert_eq!(sessions["agentSessions"]["agt"]["chat"], 1);
    // 4: The message is written down.
    say(&browser, "タスクの進捗を教えてください");
    until("it is written down", || {
        daemon.mirrored("agt").iter().any(|line| line["senderId"] == "user")
    });
    // 5 and 6: The message is answered, and the answer shown.
    browser.until("the answer is shown", || said(&browser).len() == 2);
    let said = said(&browser);
    assert_eq!(said[0], (true, "タスクの進捗を教えてください".to_owned()));
    assert!(!said[1].0 && said[1].1.contains("read msg_"), "{said:?}");
    until("the answer is written down", || {
        daemon.mirrored("agt").last().unwrap()["senderId"] == "agt"
    });
    assert_quiet(&browser);
}

#[test]
fn the_last_panel_that_closes_ends_the_chat() {
    let daemon = daemon(&["agt"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    open_panel(&browser);
    browser.find("[data-is-ready]");
    let first = browser.window();
    browser.open_window();
    open_panel(&browser);
    browser.find("[data-is-ready]");
    // Loading a page anew closes its panel and opens it.
    open_panel(&browser);
    browser.close_window();
    browser.switch_to(&first);
    say(&browser, "still there?");
    browser.until("it is", || said(&browser).len() == 2);
    assert!(daemon.ended("agt").is_empty());
    browser.find("[data-close]").click();
    let ended = daemon.until_ended("agt");
    assert_eq!(ended["outcome"], "completed", "{ended}");
    assert_eq!(daemon.logged("the last view of a chat was closed; ending the chat").len(), 1);
    assert_quiet(&browser);
}

#[test]
fn an_agent_that_died_is_said_to_be_gone_and_comes_back_for_the_next_message() {
    // It comes when it is told to, and answers when it is told to.
    let answers = "run:until [ -e answer ]; do sleep 0.05; done";
    let daemon = daemon(&[]);
    daemon.agent("agt", "prj", &["wait-for:go", "authenticate", answers, "chat"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let standing = || browser.find("#chat-standing").text();
    open_panel(&browser);
    // What is sent before the agent is there waits for it.
    say(&browser, "first");
    browser.until("it is sent", || said(&browser) == [(true, "first".to_owned())]);
    assert_eq!(standing(), "Starting the agent…");
    fs::write(daemon.work().join("go"), "").unwrap();
    browser.until("it is at work", || standing().starts_with("Writing an answer"));
    fs::write(daemon.work().join("answer"), "").unwrap();
    browser.until("it answers", || said(&browser).len() == 2);
    browser.until("it is ready", || standing() == "Ready for your message");
    let pid = daemon.open("agt")[0]["pid"].as_i64().unwrap();
    kill(i32::try_from(pid).unwrap(), rustix::process::Signal::KILL);
    browser.find("[data-is-gone]");
    say(&browser, "second");
    browser.until("another answers", || said(&browser).len() == 4);
    let said: Vec<String> =
        said(&browser).into_iter().filter(|(is_ours, _)| *is_ours).map(|(_, text)| text).collect();
    assert_eq!(said, ["first", "second"]);
    assert_quiet(&browser);
}

#[test]
fn a_chat_that_waits_for_a_slot_accepts_a_message_and_says_what_it_waits_for() {
    let daemon = Daemon::running("http: { listen: \"127.0.0.1:0\" }\nmax_concurrent: 1");
    daemon.project("prj");
    daemon.agent(
        "agt_works",
        "prj",
        &["authenticate", "get-my-task", "wait-for:go", "report:success"],
    );
    daemon.agent("agt", "prj", &["authenticate", "chat"]);
    daemon.task("tsk", "prj", "agt_works");
    daemon.until_in_state("agt_works", "running");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    open_panel(&browser);
    let standing = || browser.find("#chat-standing").text();
    browser.until("it says what it waits for", || {
        standing().contains("No free slot, next in line: tasks use 1 and chats use 0 of 1 slots")
    });
    let why = daemon.done(&["why", "agt", "prj", "--purpose", "chat"]);
    assert!(why.contains("no: no_free_slot (tasks use 1 and chats use 0 of 1 slots)"), "{why}");
    say(&browser, "hello");
    browser.until("it is said", || said(&browser) == [(true, "hello".to_owned())]);
    until("it is written down", || {
        daemon.mirrored("agt").iter().any(|line| line["senderId"] == "user")
    });
    fs::write(daemon.work().join("go"), "").unwrap();
    browser.until("it is answered", || said(&browser).len() == 2);
    assert_quiet(&browser);
}

#[test]
fn two_panels_show_the_same_messages_in_the_same_order_each_once() {
    let daemon = daemon(&["agt"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    open_panel(&browser);
    browser.find("[data-is-ready]");
    let first = browser.window();
    let second = browser.open_window();
    open_panel(&browser);
    browser.find("[data-is-ready]");
    for n in 0..4 {
        for (window, who) in [(&first, "a"), (&second, "b")] {
            browser.switch_to(window);
            say(&browser, &format!("{who}{n}"));
        }
    }
    let ours = || -> Vec<String> {
        said(&browser).into_iter().filter(|(is_ours, _)| *is_ours).map(|(_, text)| text).collect()
    };
    let is_answered = |message: &str| {
        said(&browser).iter().any(|(is_ours, text)| !is_ours && text.contains(message))
    };
    browser.until("all is said", || ours().len() == 8);
    let of_people =
        || daemon.mirrored("agt").iter().filter(|line| line["senderId"] == "user").count();
    until("all is written down", || of_people() == 8);
    let last =
        daemon.mirrored("agt").iter().rfind(|line| line["senderId"] == "user").unwrap()["id"]
            .as_str()
            .unwrap()
            .to_owned();
    browser.until("all is answered", || is_answered(&last));
    let in_second = said(&browser);
    browser.switch_to(&first);
    browser.until("all is answered here too", || is_answered(&last));
    assert_eq!(said(&browser), in_second);
    let mut once = ours();
    once.sort();
    assert_eq!(once, ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"]);
    for who in ["a", "b"] {
        let of_one: Vec<String> = ours().into_iter().filter(|text| text.starts_with(who)).collect();
        assert!(of_one.is_sorted(), "{of_one:?}");
    }
    assert_quiet(&browser);
}

#[test]
fn a_chat_of_a_hundred_thousand_messages_opens_with_its_last_ones() {
    let mut daemon = daemon_with(&["agt"], IN_A_FILE);
    daemon.terminate();
    fill(&daemon, 100_000);
    daemon.start();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    open_panel(&browser);
    browser.until("the last ones are shown", || said(&browser).len() == 50);
    assert_eq!(said(&browser).last().unwrap().1, "message 99999");
    browser.run("document.querySelector('[data-earlier]').click()");
    browser.until("earlier ones are shown", || said(&browser).len() == 100);
    assert_eq!(said(&browser)[0].1, "message 99900");
    say(&browser, "and one more");
    browser.until("it is said", || said(&browser).iter().any(|(_, text)| text == "and one more"));
    until("all of them are mirrored", || daemon.mirrored("agt").len() > 100_000);
    assert_quiet(&browser);
}

/// Adds messages of a person to the chat of `agt`, which has read them.
fn fill(daemon: &Daemon, n_messages: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(&daemon.state().join("state.db")).await.unwrap();
        let (agent, project): (AgentId, ProjectId) =
            ("agt".parse().unwrap(), "prj".parse().unwrap());
        let message = |n| {
            Row::Message(Message {
                seq: 0,
                id: format!("msg_{n}").parse().unwrap(),
                agent: agent.clone(),
                project: project.clone(),
                sender: Sender::User,
                author: None,
                content: format!("message {n}"),
                created_at: Timestamp::from_millis(1_700_000_000_000),
                is_visible: true,
            })
        };
        for from in (0..n_messages).step_by(10_000) {
            let changes = (from..from + 10_000).map(message).collect();
            rows::write(&store, changes).await.unwrap();
        }
        let key = InstanceKey::new(agent.clone(), project.clone(), Purpose::Chat);
        let newest = i64::try_from(n_messages).unwrap();
        let read = Row::Pair(store.pair(&key).await.unwrap().answered(newest));
        rows::write(&store, vec![read]).await.unwrap();
        store.close().await;
    });
}
