//! The first run: from an empty coordinator to a task that an agent works on, on the page alone.

use super::assert_quiet;
use super::browser::Browser;
use super::pictures::keep;
use crate::daemon::Daemon;

#[test]
fn an_empty_coordinator_leads_to_the_first_task_in_three_steps() {
    let daemon = Daemon::running("http: { listen: \"127.0.0.1:0\" }\n");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    assert_eq!(browser.texts(".step.is-next .no"), ["1"]);
    assert_eq!(browser.texts(".step.is-later").len(), 2);
    // It proposes a clone for each task in a git repository; this folder is none.
    let work = daemon.work();
    browser.run("document.querySelector('#directory').value = ''");
    browser.find("#directory").type_in(work.to_str().unwrap());
    browser.find("#name").type_in("Shop");
    browser.find("[name=workspace]");
    browser.find(".step .primary").click();

    browser.until("the second step is next", || browser.texts(".step.is-next .no") == ["2"]);
    assert!(browser.texts(".step.is-done")[0].contains("Shop"));
    browser.find(".choice input[value=claude]:checked");
    keep(&browser, "first-run");
    browser.find(".step .btn.ghost").click();
    browser.find(".choice input[value=claude]:checked");
    browser.find("#name").type_in("Claude Front");
    browser.find(".step .primary").click();

    browser.until("the third step is next", || browser.texts(".step.is-next .no") == ["3"]);
    browser.find("#title").type_in("Say hello");
    browser.find("#description").type_in("In **one** line.");
    browser.find(".step .primary").click();
    browser.find("#panel .task");
    assert!(browser.path().starts_with("/ui/projects/prj_"), "{}", browser.path());
    assert_eq!(browser.run("return location.search"), "?task=SHOP-1");
    assert_eq!(browser.texts("#column-in_progress .card-link"), ["Say hello"]);
    assert_eq!(daemon.task_status("SHOP-1"), "in_progress");
    browser.until("its agent was started", || !daemon.logged("agent started").is_empty());
    browser.go_to("/ui/projects");
    browser.find("#projects tbody tr");
    assert!(!browser.has(".step"), "the steps are over");
    assert_quiet(&browser);
}

#[test]
fn a_viewer_sees_no_steps_and_learns_nothing_about_the_machine() {
    let daemon = Daemon::running("http: { listen: \"127.0.0.1:0\" }\n");
    let Some(browser) = Browser::at(&daemon, "viewer", "ja") else {
        return;
    };
    assert!(!browser.has(".step"));
    assert!(browser.texts("#projects").concat().contains("プロジェクトがまだありません"));
    let found = browser.run_async(
        "fetch('/ui/parts/first-run/programs').then(r => r.text()).then(arguments[arguments.length - 1])",
    );
    assert!(!found.as_str().unwrap().contains("claude"), "{found}");
}
