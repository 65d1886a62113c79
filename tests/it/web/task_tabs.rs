//! The parts of a task: overview, changes and output, each with an address.

use super::browser::Browser;
use super::pictures::keep;
use super::{assert_quiet, daemon};

#[test]
fn each_part_of_a_task_has_an_address_in_the_panel_and_on_the_page() {
    let daemon = daemon(&["agt"]);
    daemon
        .steps("agt", &["authenticate", "get-my-task", "print:hello", "write:ready", "sleep:600"]);
    daemon.task("tsk", "prj", "agt");
    daemon.written_pid("ready");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.resize(1400, 800);
    browser.go_to("/ui/projects/prj?task=PRJ-1");
    browser.find("#panel .task");
    let current = || browser.texts(".tabs [aria-current]").concat().trim().to_owned();
    let address = || browser.run("return location.pathname + location.search");
    let tabs = browser.texts("#panel .tabs a");
    assert_eq!(tabs.iter().map(|tab| tab.trim()).collect::<Vec<_>>(), ["Overview", "Output"]);
    assert_eq!(current(), "Overview");
    browser.find("#panel .tabs a[href$=output]").click();
    browser.until("the output is shown", || {
        browser.texts("#panel .script").concat().contains("hello")
    });
    assert_eq!(current(), "Output");
    assert_eq!(address(), "/ui/projects/prj?task=PRJ-1&tab=output");
    // A reader with a keyboard stays at the tabs.
    assert_eq!(browser.run("return document.activeElement.textContent.trim()"), "Output");
    browser.run("history.back()");
    browser.until("the overview is back", || current() == "Overview");
    browser.go_to("/ui/projects/prj?task=PRJ-1&tab=output");
    browser.until("a reload shows the same", || {
        browser.texts("#panel .script").concat().contains("hello")
    });
    browser.go_to("/ui/tasks/PRJ-1?tab=output");
    browser.until("the page shows it, too", || browser.texts(".script").concat().contains("hello"));
    browser.find(".tabs a").click();
    browser.until("a tab of the page is a page", || address() == "/ui/tasks/PRJ-1?tab=overview");
    daemon.done(&["task", "set", "tsk", "--status", "blocked", "--reason", "which bank?"]);
    browser.until("the change is told", || {
        let told = browser.texts(".time-line p");
        told.iter().any(|line| line.contains("moved it from In progress to Blocked"))
    });
    keep(&browser, "task");
    let people = browser.texts(".time-line b");
    assert_eq!(people.len(), 3, "a move, a launch, the creation: {people:?}");
    assert!(people.iter().all(|name| !name.contains("local:")), "{people:?}");
    assert_quiet(&browser);
}

#[test]
fn several_tasks_are_made_one_after_the_other_and_one_is_started() {
    let daemon = daemon(&["agt"]);
    daemon.steps("agt", &["authenticate", "get-my-task", "sleep:600"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.resize(1400, 800);
    browser.go_to("/ui/projects/prj");
    browser.find("[data-new-task]").click();
    browser.find("#new-title").type_in("first");
    browser.find("[data-make-another]").click();
    browser.find("#new-task .primary").click();
    browser.until("the form is empty again", || {
        browser.texts("#column-todo .card-link") == ["first"]
            && browser.run("return document.querySelector('#new-title')?.value") == ""
    });
    assert!(browser.run("return document.activeElement.id") == "new-title");
    browser.find("#new-title").type_in("second, see PRJ-1");
    browser.run("document.querySelector('#new-task [name=assignee]').value = 'agt'");
    browser.run("document.querySelector('#new-task [name=description]').value = 'as PRJ-1, https://example.org/a'");
    browser.find("[data-make-another]").click();
    browser.find("#new-task [name=start]").click();
    browser.until("it is in progress", || {
        browser.texts("#column-in_progress .card-link") == ["second, see PRJ-1"]
    });
    browser.until("the dialog is closed", || browser.run("return dialog.open") == false);
    // The description names another task and a page.
    browser.go_to("/ui/tasks/PRJ-2");
    assert_eq!(browser.texts(".prose a"), ["PRJ-1", "https://example.org/a"]);
    let link = "return document.querySelector('.prose a').getAttribute('href')";
    assert_eq!(browser.run(link), "/ui/tasks/PRJ-1");
    assert_quiet(&browser);
}
