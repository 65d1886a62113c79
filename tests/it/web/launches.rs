//! The list of launches and the page of one: what runs, what ended badly and why, in the order and
//! with the filters that a person wants.

use std::fs;

use serde_json::json;

use super::browser::Browser;
use super::pictures::keep;
use super::{assert_quiet, daemon, daemon_with};
use crate::daemon::Daemon;

/// A line of claude that says a text and counts tokens.
const SAYS: &str = r#"{"type":"assistant","session_id":"s","message":{"id":"ID","content":[{"type":"text","text":"TEXT"}],"usage":{"input_tokens":5000,"output_tokens":700}}}"#;
/// A line of claude that calls a tool.
const CALLS: &str = r#"{"type":"assistant","session_id":"s","timestamp":"2026-01-01T00:00:00.000Z","message":{"id":"ID","content":[{"type":"tool_use","id":"tID","name":"Bash","input":{"command":"TEXT"}}],"usage":{"input_tokens":5000,"output_tokens":700}}}"#;

fn prints(line: &str, id: &str, text: &str) -> String {
    format!("run:echo '{}'", line.replace("ID", id).replace("TEXT", text))
}

/// Returns a daemon with a launch that runs, one that ended badly and one that ended well.
fn with_launches() -> Daemon {
    let daemon = daemon_with(&[], "backoff: { initial: 1h, max: 1h }\n");
    let calls = prints(CALLS, "m1", "cargo test");
    daemon.agent("works", "prj", &["authenticate", "get-my-task", &calls, "sleep:600"]);
    let says = prints(SAYS, "m1", "the **registry** was `reset`");
    daemon.agent("fails", "prj", &["authenticate", "get-my-task", &says, "exit:3"]);
    daemon.agent("ends", "prj", &["authenticate", "get-my-task", "report:success", "exit:0"]);
    daemon.agent("dies", "prj", &["exit:3"]);
    for agent in ["fails", "ends", "dies", "works"] {
        daemon.task(&format!("tsk_{agent}"), "prj", agent);
        let title = format!("The work of {agent}");
        daemon.done(&["task", "set", &format!("tsk_{agent}"), "--title", &title]);
    }
    for agent in ["fails", "ends", "dies"] {
        daemon.until_ended(agent);
    }
    daemon.until_in_state("works", "running");
    daemon
}

const NAMES: &str = "#launch-list .name";
const GROUPS: &str = "#launch-list .group";

#[test]
fn the_list_of_launches_has_groups_reasons_and_filters() {
    let daemon = with_launches();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/launches");
    browser.until("its activity is shown", || {
        browser.texts("#launch-list .second").contains(&"Running cargo test".to_owned())
    });
    let groups = ["Running now · 1", "Today · 3, of which 2 ended badly"];
    assert_eq!(browser.texts(GROUPS), groups);
    assert_eq!(browser.texts("#launch-figures"), ["1 running, 3 today"]);
    let bad = browser.texts("#launch-list .is-bad");
    assert_eq!(bad.len(), 2);
    for (mark, reason) in [
        ("No report", "Exited with code 3: “the registry was reset”"),
        ("Didn't authenticate", "Exited with code 3"),
    ] {
        assert!(bad.iter().any(|row| row.contains(mark) && row.contains(reason)), "{bad:?}");
    }
    assert!(
        browser.texts("#launch-list tr:not(.group)").concat().contains("The work of ends PRJ-2")
    );

    // Each filter is in the address, and an address has its filters.
    browser.find("#launch-filter label:has([value=bad])").click();
    browser.until("the bad ends are shown", || browser.texts(GROUPS).len() == 1);
    assert_eq!(browser.texts("#launch-list .is-bad").len(), 2);
    browser.find("#search").type_in("dies");
    browser.until("one is left", || browser.texts(NAMES) == ["The work of dies"]);
    assert_eq!(browser.run("return location.search"), "?q=dies&outcome=bad");
    browser.run("document.querySelector('#search').value = ''; document.querySelector('[name=agent]').value = 'works';\
         document.querySelector('[name=agent]').dispatchEvent(new Event('input', { bubbles: true }))");
    browser.find("#nothing-found a").click();
    browser.until("all are shown", || browser.texts(NAMES).len() == 4);
    browser.go_to("/ui/launches?outcome=running&agent=&project=prj&since=day&q=");
    assert_eq!(browser.texts(NAMES), ["The work of works"]);
    let checked = "return document.querySelector('#launch-filter :checked[type=radio]').value";
    assert_eq!(browser.run(checked), "running");
    browser.go_to("/ui/launches?q=no+report");
    assert_eq!(browser.texts(NAMES), ["The work of fails"]);
    keep(&browser, "launches");
    assert_quiet(&browser);
}

#[test]
fn a_list_of_many_launches_grows_while_it_is_scrolled_and_stays_as_long() {
    let daemon = daemon_with(&[], "backoff: { initial: 1ms, max: 1ms }\nstart: { limit: 0 }\n");
    daemon.agent("dies", "prj", &["exit:3"]);
    daemon.task("tsk", "prj", "dies");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let n_ended = || daemon.page("/ui/launches?rows=1000", "en").matches("<tr id=\"row-").count();
    browser.until("many have ended", || n_ended() > 60);
    daemon.done(&["stop", "dies", "prj"]);
    browser.until("none runs", || daemon.open("dies").is_empty());
    let n_all = n_ended();
    browser.go_to("/ui/launches");
    let n_shown = || browser.texts(NAMES).len();
    assert_eq!(n_shown(), 50);
    browser.run(
        "const list = document.querySelector('#launch-list'); list.scrollTop = list.scrollHeight",
    );
    browser.until("more are shown", || n_shown() == n_all.min(100));
    let top = browser.run("return document.querySelector('#launch-list').scrollTop");
    daemon.done(&["task", "add", "--project", "prj", "--title", "another"]);
    browser.run(
        "window.seen = performance.getEntriesByType('resource').length;\
         document.body.dispatchEvent(new CustomEvent('live-work'))",
    );
    browser.until("it was read again", || {
        browser.run("return performance.getEntriesByType('resource').length > window.seen") == true
    });
    assert_eq!(n_shown(), n_all.min(100));
    assert_eq!(browser.run("return document.querySelector('#launch-list').scrollTop"), top);
    assert_quiet(&browser);
}

#[test]
fn both_languages_name_outcomes_groups_and_figures() {
    let daemon = with_launches();
    let english = daemon.page("/ui/launches", "en");
    let japanese = daemon.page("/ui/launches", "ja");
    for (page, texts) in [
        (
            &english,
            ["Running now · 1", "Today · 3", "1 running, 3 today", "Didn&#39;t authenticate"],
        ),
        (
            &japanese,
            [
                "実行中 · 1",
                "今日 · 3 件（うち問題あり 2 件）",
                "実行中 1 件、今日 3 件",
                "認証なし",
            ],
        ),
    ] {
        for text in texts {
            assert!(page.contains(text), "{text}: {page}");
        }
    }
    assert!(!english.contains("Not logged in") && !japanese.contains("未ログイン"));
    let launch = daemon.until_ended("dies")["launch_id"].as_str().unwrap().to_owned();
    let path = format!("/ui/launches/{launch}");
    let page = daemon.page(&path, "en");
    assert!(page.contains("No output.") && !page.contains("No output yet"), "{page}");
    assert!(daemon.page(&path, "ja").contains("出力はありませんでした。"));
    for wrong in ["outcome=good", "since=1h", "agent=a%20b"] {
        let page = daemon.page(&format!("/ui/launches?{wrong}"), "en");
        assert!(page.starts_with("HTTP/1.1 400"), "{wrong}: {page}");
    }
}

#[test]
fn the_page_of_a_launch_counts_while_its_agent_works() {
    let daemon = daemon(&["agt"]);
    let says = |id, text| prints(SAYS, id, text);
    let calls = |id| prints(CALLS, id, "cargo test");
    let waits = |file: &str| format!("run:until [ -e {file} ]; do sleep 0.1; done");
    let steps = [
        "authenticate",
        "get-my-task",
        &says("m1", "I begin."),
        &calls("m2"),
        &waits("go"),
        &calls("m3"),
        &says("m4", "Nearly done."),
        &waits("end"),
        "exit:3",
    ];
    daemon.steps("agt", &steps);
    daemon.task("tsk", "prj", "agt");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let launch = daemon.until_in_state("agt", "running")["launch_id"].as_str().unwrap().to_owned();
    browser.go_to(&format!("/ui/launches/{launch}"));
    assert_eq!(browser.texts("h1"), ["agt on PRJ-1"]);
    assert_eq!(browser.texts(".task-title"), ["a title"]);
    let text = |selector: &str| browser.texts(selector).concat();
    browser.until("the first figures are shown", || {
        text("#ticker-tokens") == "10k / 1k" && text("#tool-calls") == "1"
    });
    assert_eq!(browser.texts("#transcript .tool b"), ["Run"]);
    browser.find("#transcript .tool.is-begun .end .elapsed");
    assert!(text(".time-line").contains("Working"));
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert!(text(".time-line").contains(&format!(" on {machine}")), "{}", text(".time-line"));
    let running_for = text(".ticker .elapsed");
    browser.until("the time goes on", || text(".ticker .elapsed") != running_for);

    // A reader who scrolled up is told of what is new.
    browser.run("document.querySelector('#transcript-box').style = 'flex: none; height: 3rem'");
    browser.run("document.querySelector('#transcript-box').scrollTop = 9999");
    // The page hears of a scroll later, and of two at once as of one.
    browser.until("it follows from the end", || {
        browser.run("return lastTop > 0 && document.querySelector('#follow').checked") == true
    });
    browser.run("document.querySelector('#transcript-box').scrollTop = 0");
    browser.until("it does not", || {
        browser.run("return document.querySelector('#follow').checked") == false
    });
    fs::write(daemon.work().join("go"), "").unwrap();
    browser.until("two are new", || text("#new-entries") == "2 new ↓");
    browser.until("the next figures are shown", || {
        text("#ticker-tokens") == "20k / 3k" && text("#tool-calls") == "2"
    });
    browser.find("#new-entries").click();
    browser.until("it follows again", || browser.run(
        "return document.querySelector('#follow').checked && document.querySelector('#new-entries').hidden") == true);
    browser.find("#expand-tools").click();
    assert_eq!(browser.run("return document.querySelectorAll('.tool[open]').length"), 2);
    browser.find("[data-copy-text]").click();
    browser.find(".toast");
    keep(&browser, "launch");

    fs::write(daemon.work().join("end"), "").unwrap();
    browser.until("its end is shown", || browser.texts("#launch .mark") == ["No report"]);
    assert!(text(".time-line").contains("Ended"));
    assert!(text("#launch .call.bad").contains("Exited with code 3: “Nearly done.”"));
    assert!(!browser.has("#launch .danger, .ticker .elapsed"));
    browser.until("nothing is followed", || {
        browser.run("return document.querySelector('#follow').checkVisibility()") == json!(false)
    });
    assert_quiet(&browser);
}

#[test]
fn a_launch_that_a_person_stopped_names_the_person() {
    let daemon = daemon(&["agt"]);
    daemon.steps("agt", &["authenticate", "get-my-task", "sleep:600"]);
    daemon.task("tsk", "prj", "agt");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let launch = daemon.until_in_state("agt", "running")["launch_id"].as_str().unwrap().to_owned();
    browser.go_to(&format!("/ui/launches/{launch}"));
    browser.find("#launch .danger").click();
    browser.find("#sure[open] .danger").click();
    browser.until("its end names the person", || {
        browser.texts("#launch .mark").concat().starts_with("Stopped by ")
    });
    browser.go_to("/ui/launches");
    assert!(browser.texts("#launch-list .mark").concat().starts_with("Stopped by "));
}
