//! The one reason why a task does not run: the same sentence everywhere, with the button that ends
//! it.

use super::browser::Browser;
use super::{assert_quiet, daemon, daemon_with};
use crate::daemon::Daemon;
use crate::support::until;

const NOT_LOGGED_IN: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/output/claude_auth.jsonl");

#[test]
fn a_task_that_waits_says_why_everywhere_and_its_button_ends_that() {
    let daemon = daemon(&[]);
    daemon.agent("agt", "prj", &["authenticate", "get-my-task", "write:ready", "sleep:600"]);
    daemon.project("other");
    daemon.done(&["project", "set", "other", "--assign", "agt"]);
    daemon.done(&["stop", "agt", "prj"]);
    daemon.done(&["pause"]);
    daemon.task("tsk", "prj", "agt");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let shown = daemon.done(&["task", "show", "tsk"]);
    assert!(shown.contains("waits: Starts are paused"), "{shown}");
    let why = daemon.done(&["why", "agt", "prj", "--purpose", "task"]);
    assert!(why.contains("Starts are paused"), "{why}");
    browser.go_to("/ui/agents");
    browser.until("the agent says it", || {
        browser.texts("#agent-agt-prj .second").concat().contains("Starts are paused")
    });
    browser.go_to("/ui/tasks/tsk");
    assert_eq!(browser.texts(".call b"), ["Starts are paused"]);
    assert!(browser.texts(".call .second")[0].starts_with("since "), "the time is told");
    browser.go_to("/ui/projects/prj?task=tsk");
    browser.find("#panel .call");
    assert_eq!(browser.texts("#panel .call b"), ["Starts are paused"]);
    assert!(browser.texts("#card-tsk .what")[0].starts_with("Starts are paused since "));
    let label = |of: &str| {
        browser.run(&format!(
            "const it = document.querySelector('{of}'); return it.getAttribute('aria-label') ?? it.querySelector('.sr').textContent"
        ))
    };
    assert_eq!(label("#card-tsk .avatar.is-waiting"), "agt, Waiting");
    assert_eq!(label("#avatar-agt.is-waiting"), "Chat with agt, Waiting");
    browser.find("#card-tsk .act").click();
    browser.until("it runs", || browser.has("#card-tsk .now .dot.live"));
    browser.until("the panel shows it", || browser.has("#panel .call.good"));
    browser.find("#card-tsk .avatar.is-live");
    browser.find("#avatar-agt.is-live");
    assert_eq!(label("#avatar-agt"), "Chat with agt, Running");
    // In another project, the same agent is not live.
    browser.go_to("/ui/projects/other");
    browser.find("#avatar-agt");
    assert!(!browser.has(".main .is-live"));
    assert_eq!(label("#avatar-agt"), "Chat with agt");
    assert_quiet(&browser);
}

#[test]
fn an_agent_that_is_not_logged_in_leads_to_how_to_log_in() {
    let daemon = daemon(&[]);
    let print = format!("run:cat {NOT_LOGGED_IN}");
    daemon.agent("agt", "prj", &["authenticate", "get-my-task", &print, "exit:1"]);
    daemon.task("tsk", "prj", "agt");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    browser.until("its card says it", || {
        browser.texts("#card-tsk .what").concat().contains("is not logged in")
    });
    assert_eq!(browser.texts("#card-tsk .act"), ["How to log in"]);
    browser.find("#card-tsk .act").click();
    browser
        .until("the page of the agent is open", || browser.path() == "/ui/projects/prj/agents/agt");
    assert_eq!(browser.texts("#why code"), ["claude"]);
    assert_eq!(browser.texts("#why .btn.primary"), ["Try now"]);
    assert_quiet(&browser);
}

const WORKS: [&str; 3] = ["authenticate", "get-my-task", "sleep:600"];

/// Checks that a card, a task, `task show` and, if there is an agent, its row and `why` tell the
/// same reason. Returns it.
#[track_caller]
fn told_everywhere(daemon: &Daemon, task: &str, agent: Option<&str>) -> String {
    let shown = daemon.json(&["task", "show", task]);
    let text = shown["waiting"]["text"].as_str().unwrap_or_else(|| panic!("{shown}")).to_owned();
    let line = format!("<bdi>{text}</bdi>");
    let board = daemon.page("/ui/parts/projects/prj/board", "en");
    let (_, card) = board.split_once(&format!("id=\"card-{task}\"")).unwrap();
    let (card, _) = card.split_once("</li>").unwrap();
    assert!(card.contains(&line), "{text}: {card}");
    let page = daemon.page(&format!("/ui/tasks/{task}"), "en");
    assert!(page.contains(&format!("<b dir=\"auto\">{text}</b>")), "{text}: {page}");
    assert!(daemon.done(&["task", "show", task]).contains(&format!("waits: {text}")));
    if let Some(agent) = agent {
        let agents = daemon.page("/ui/parts/agents", "en");
        let (_, row) = agents.split_once(&format!("id=\"agent-{agent}-prj\"")).unwrap();
        let (row, _) = row.split_once("</tr>").unwrap();
        assert!(row.contains(&line), "{text}: {row}");
        let why = daemon.done(&["why", agent, "prj", "--purpose", "task"]);
        assert!(why.contains(&text), "{text}: {why}");
    }
    text
}

#[test]
fn each_reason_is_told_everywhere_and_ends_with_its_button() {
    let settings = "max_concurrent: 9\nlimits: { per_agent: 1 }\nstart: { limit: 1 }\n\
        backoff: { initial: 1h, max: 1h }";
    let daemon = daemon_with(&[], settings);
    daemon.project("other");
    daemon.done(&["project", "set", "prj", "--name", "Shop"]);
    for agent in ["held", "off", "away", "busy", "idle_a", "idle_b"] {
        daemon.agent(agent, "prj", &WORKS);
    }
    daemon.agent("broken", "prj", &["authenticate", "exit:3"]);
    daemon.done(&["agent", "set", "busy", "--name", "Ada"]);
    daemon.done(&["project", "set", "other", "--assign", "busy"]);
    daemon.task("t_other", "other", "busy");
    daemon.until_in_state("busy", "running");
    for agent in ["busy", "broken", "held"] {
        daemon.task(&format!("t_{agent}"), "prj", agent);
    }
    daemon.until_in_state("held", "running");
    daemon.done(&["stop", "held", "prj"]);
    daemon.until_ended("held");
    daemon.done(&["pause"]);
    for agent in ["off", "away"] {
        daemon.task(&format!("t_{agent}"), "prj", agent);
    }
    daemon.done(&["agent", "set", "off", "--status", "inactive"]);
    daemon.done(&["project", "set", "prj", "--unassign", "away"]);
    daemon.done(&["resume"]);
    daemon.done(&["task", "add", "--project", "prj", "--id", "t_free", "--title", "free"]);
    let waits = |task: &str| daemon.json(&["task", "show", task])["waiting"]["reason"].clone();
    until("all of them wait", || {
        waits("t_busy") == "agent_limit" && waits("t_broken") == "suspended"
    });
    assert_eq!(told_everywhere(&daemon, "t_free", None), "No agent is assigned");
    assert_eq!(told_everywhere(&daemon, "t_away", None), "Not assigned to Shop");
    assert_eq!(told_everywhere(&daemon, "t_off", Some("off")), "off is deactivated");
    assert_eq!(told_everywhere(&daemon, "t_busy", Some("busy")), "Ada runs 1 of 1");
    let broken = told_everywhere(&daemon, "t_broken", Some("broken"));
    assert!(broken.starts_with("Failed once in a row"), "{broken}");
    // The user of the command line is named.
    let held = told_everywhere(&daemon, "t_held", Some("held"));
    assert!(held.ends_with(" stopped it") && held != "A person stopped it", "{held}");

    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    // Not all of its six agents have an avatar in the tools.
    assert_eq!(browser.texts(".avatars .avatar").len(), 6);
    assert_eq!(browser.texts(".avatars a.avatar[href='/ui/agents']"), ["+1"]);
    assert!(browser.has("#avatar-broken.is-bad") && browser.has("#avatar-busy.is-waiting"));
    let action = |task: &str| format!("#card-{task} .act");
    daemon.steps("broken", &WORKS);
    for (task, button) in [("t_held", "Resume"), ("t_broken", "Resume"), ("t_off", "Activate")] {
        assert_eq!(browser.texts(&action(task)), [button]);
        browser.find(&action(task)).click();
        browser.until("it runs", || browser.has(&format!("#card-{task} .now .dot.live")));
        assert!(!browser.has(&format!("#card-{task} .why")));
    }
    for (task, button, path) in [
        // Where there is a panel, it shows the task.
        ("t_free", "Assign…", "/ui/projects/prj"),
        ("t_away", "Assign…", "/ui/projects/prj/edit"),
        ("t_busy", "Limits…", "/ui/settings"),
    ] {
        browser.go_to("/ui/projects/prj");
        assert_eq!(browser.texts(&action(task)), [button]);
        browser.find(&action(task)).click();
        browser.until("it leads there", || browser.path() == path);
        if task == "t_free" {
            browser.find("#panel [data-shows-task=t_free]");
        }
    }
    assert!(browser.find("[id='limits.per_agent']:target").is_shown());
    assert_quiet(&browser);
}

#[test]
fn without_a_coordinator_that_is_the_one_reason() {
    let daemon = Daemon::serving("http: { listen: \"127.0.0.1:0\" }");
    daemon.project("prj");
    daemon.agent("agt", "prj", &WORKS);
    daemon.task("tsk", "prj", "agt");
    let text = told_everywhere(&daemon, "tsk", Some("agt"));
    assert_eq!(text, "No coordinator is connected, so nothing starts");
    let why = daemon.done(&["why", "agt", "prj", "--purpose", "task"]);
    assert!(why.contains("`supervise` on the machine of the agents connects one"), "{why}");
    let page = daemon.page("/ui/projects/prj/agents/agt", "ja");
    assert!(page.contains("起動していません: コーディネーターが未接続"), "{page}");
    assert!(page.contains("<b>コーディネーターが接続している</b>"), "{page}");
    assert!(!page.contains("スロットが空いている"), "there are no slots: {page}");
    let board = daemon.page("/ui/parts/projects/prj/board", "en");
    assert!(board.contains("aria-label=\"agt, Needs a person\""), "{board}");
}
