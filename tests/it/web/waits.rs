//! The one reason why a task does not run: the same sentence everywhere, with the button that ends
//! it.

use super::browser::Browser;
use super::{assert_quiet, daemon};

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
