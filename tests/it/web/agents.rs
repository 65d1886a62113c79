//! The list of agents and the panel of one: the order, the filter, the checklist, the keys, and the
//! addresses.

use serde_json::json;

use super::browser::Browser;
use super::{assert_quiet, daemon, daemon_with};
use crate::daemon::Daemon;
use crate::support::until;

const ENTER: char = '\u{e007}';
const ESCAPE: char = '\u{e00c}';
const DOWN: char = '\u{e015}';
const UP: char = '\u{e013}';

/// Starts a daemon with an agent in each group of the list.
fn with_all_groups() -> Daemon {
    let settings = "max_concurrent: 1\nstart: { limit: 1 }\nbackoff: { initial: 1h, max: 1h }";
    let daemon = daemon_with(&["an_idle"], settings);
    daemon.project("other");
    daemon.done(&["project", "set", "other", "--name", "Other", "--assign", "an_idle"]);
    daemon.done(&["project", "set", "prj", "--name", "Shop"]);
    daemon.agent("broken", "prj", &["authenticate", "exit:3"]);
    daemon.task("t_broken", "prj", "broken");
    until("it is suspended", || {
        daemon.page("/ui/parts/agents", "en").contains("Failed once in a row")
    });
    daemon.agent("works", "prj", &["authenticate", "get-my-task", "write:ready", "sleep:600"]);
    daemon.done(&["project", "set", "other", "--assign", "works"]);
    daemon.task("t_works", "prj", "works");
    daemon.written_pid("ready");
    daemon.agent("a_waiting", "prj", &["authenticate", "get-my-task", "sleep:600"]);
    daemon.task("t_waits", "prj", "a_waiting");
    daemon.agent("held", "prj", &["authenticate", "get-my-task", "sleep:600"]);
    daemon.task("t_held", "prj", "held");
    daemon.done(&["stop", "held", "prj"]);
    until("it waits for the slot", || {
        daemon.page("/ui/parts/agents", "en").contains("No free slot")
    });
    daemon
}

/// Returns the ids of the agents of a list, in its order.
fn order(page: &str) -> Vec<&str> {
    page.split("id=\"open-agent-").skip(1).filter_map(|row| row.split('"').next()).collect()
}

#[test]
fn agents_are_listed_by_what_they_need_and_filtered_by_the_address() {
    let daemon = with_all_groups();
    let page = daemon.page("/ui/parts/agents", "en");
    let all = ["broken-prj", "a_waiting-prj", "works-prj", "held-prj", "an_idle"];
    assert_eq!(order(&page), all, "{page}");
    assert!(page.contains("5, 1 working"), "{page}");
    // A project without work has no row of its own; it is named beside the other one.
    assert!(page.contains("claude · <bdi>Shop, Other</bdi>"), "{page}");
    let idle = |text: &str| page.contains(&format!("No task for it in {text}."));
    assert!(idle("Shop, Other") || idle("Other, Shop"), "{page}");
    for mark in ["Failed", "Waiting", "Working", "Stopped", "Idle"] {
        assert!(page.contains(&format!("{mark}</span>")), "{mark}: {page}");
    }
    assert!(page.contains("a title</a> <span class=\"id\">PRJ-"), "{page}");
    let shown = |show: &str| daemon.page(&format!("/ui/parts/agents?show={show}"), "en");
    assert_eq!(order(&shown("working")), ["works-prj"]);
    assert_eq!(order(&shown("needs_person")), ["broken-prj"]);
    let japanese = daemon.page("/ui/parts/agents", "ja");
    assert_eq!(order(&japanese), all);
    for mark in ["失敗", "待機中", "作業中", "停止中", "アイドル"] {
        assert!(japanese.contains(&format!("{mark}</span>")), "{mark}: {japanese}");
    }
}

#[test]
fn the_old_address_of_the_reasons_leads_to_the_page_of_the_agent() {
    let daemon = daemon(&["agt"]);
    let answer = daemon.page("/ui/projects/prj/agents/agt/why", "en");
    assert!(answer.starts_with("HTTP/1.1 308"), "{answer}");
    assert!(answer.contains("location: /ui/projects/prj/agents/agt\r\n"), "{answer}");
    let page = daemon.page("/ui/projects/prj/agents/agt", "en");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains(">agt</h1>"), "{page}");
    let unknown = daemon.page("/ui/projects/prj/agents/nobody", "en");
    assert!(unknown.starts_with("HTTP/1.1 404"), "{unknown}");
}

#[test]
fn the_page_of_an_agent_says_what_it_needs_in_both_languages() {
    let daemon = with_all_groups();
    let page = daemon.page("/ui/projects/prj/agents/broken", "en");
    assert!(page.contains("Not running: failed once in a row"), "{page}");
    assert!(page.contains("<b>It did not fail too often</b>"), "{page}");
    assert!(page.contains("Assigned to Shop, and both are active"), "{page}");
    assert!(page.contains("There is work: PRJ-1"), "{page}");
    assert!(page.contains("/ui/launches?agent=broken"), "{page}");
    assert!(page.contains("PRJ-1 <bdi>a title</bdi>"), "its latest launch names the task: {page}");
    let page = daemon.page("/ui/projects/prj/agents/broken", "ja");
    let (_, shown) = page.split_once("<article").unwrap();
    for text in ["起動していません: 1 回連続で失敗", "Shop に割り当て済み", "失敗が続いていない"]
    {
        assert!(shown.contains(text), "{text}: {page}");
    }
    let chats = daemon.page("/ui/parts/projects/prj/agents/broken?for=chat", "en");
    assert!(chats.contains("<b>A chat is requested</b>"), "{chats}");
    assert!(chats.contains("It starts as soon as a person sends a message."), "{chats}");
    assert!(chats.contains("hide-s\">Failed</span>"), "the mark is that of the list: {chats}");
    assert!(chats.contains("<b>A slot is free</b> <span class=\"second\">1/1"), "{chats}");
    // A state in words is in the page, never its code.
    for page in [page, chats] {
        for code in ["suspended", "no_free_slot", "no_work", "exited_without"] {
            assert!(!page.split("<article").nth(1).unwrap().contains(code), "{code}: {page}");
        }
    }
}

#[test]
fn the_arrow_keys_walk_the_list_and_the_panel_gives_the_focus_back() {
    let daemon = with_all_groups();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/agents?show=all");
    let focus = || browser.run("return document.activeElement.id");
    browser.until("the script is there", || browser.run("return typeof stepInList") == "function");
    browser.press(&['j']);
    assert_eq!(focus(), "open-agent-broken-prj");
    browser.press(&[DOWN, DOWN, UP]);
    assert_eq!(focus(), "open-agent-a_waiting-prj");
    browser.press(&[ENTER]);
    browser.until("the panel has the focus", || focus() == "panel");
    assert!(browser.texts("#panel #why b").concat().contains("no free slot"));
    let address = browser.run("return location.search");
    assert_eq!(address, json!("?agent=a_waiting&project=prj"));
    // The other checklist replaces the first one, in the same place.
    browser.find("#panel .seg button[aria-pressed=false]").click();
    browser.until("the chats are shown", || {
        browser.texts("#panel #needs").concat().contains("A chat is requested")
    });
    browser.press(&[ESCAPE]);
    browser.until("the focus is back", || focus() == "open-agent-a_waiting-prj");
    assert_eq!(browser.run("return location.search"), "");
    browser.run("window.isTheSame = true; history.back()");
    browser.find("#panel .agent");
    assert_eq!(browser.run("return window.isTheSame"), true);
    // The address alone shows the same.
    browser.go_to("/ui/agents?show=needs_person&agent=broken&project=prj");
    browser.find("#panel .agent [data-close]").click();
    browser.until("the filter stays", || {
        browser.run("return location.search") == "?show=needs_person"
    });
    // The one button of a row does what it says.
    browser.go_to("/ui/agents");
    // It asks first, and Escape changes nothing.
    browser.find("#agent-works-prj .btn").click();
    let question = browser.find("#sure[open] #sure-text").text();
    assert!(question.starts_with("Stop ") && question.contains("works"), "{question}");
    assert_eq!(browser.run("return document.activeElement.textContent"), "Cancel");
    browser.press(&[ESCAPE]);
    browser.until("nothing is asked", || !browser.has("#sure[open]"));
    assert!(!browser.texts("#agent-works-prj .mark").concat().contains("Stopped"));
    browser.find("#agent-works-prj .btn").click();
    browser.find("#sure[open] [value=yes]").click();
    browser.until("it is stopped", || {
        browser.texts("#agent-works-prj .mark").concat().contains("Stopped")
    });
    browser.find("#agent-an_idle .btn").click();
    let chosen = "return document.querySelector('#dialog [name=assignee]')?.value";
    browser.until("the form has the agent", || browser.run(chosen) == "an_idle");
    assert_quiet(&browser);
}
