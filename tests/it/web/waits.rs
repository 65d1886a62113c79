//! The one reason why a task does not run: the same sentence everywhere, with the button that ends
//! it.

use super::browser::Browser;
use super::{assert_quiet, daemon};

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
    browser.go_to("/ui/projects/prj?task=tsk");
    browser.find("#panel .call");
    assert_eq!(browser.texts("#panel .call b"), ["Starts are paused"]);
    assert!(browser.texts("#card-tsk .what")[0].starts_with("Starts are paused"));
    browser.find("#card-tsk .act").click();
    browser.until("it runs", || browser.has("#card-tsk .now .dot.live"));
    browser.until("the panel shows it", || browser.has("#panel .call.good"));
    browser.find("#card-tsk .avatar.is-live");
    // In another project, the same agent is not live.
    browser.go_to("/ui/projects/other");
    browser.find("#avatar-agt");
    assert!(!browser.has(".main .is-live"));
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
