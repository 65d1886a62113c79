//! The filters of a board.

use super::browser::Browser;
use super::{assert_quiet, daemon};
use crate::http::changes::{WORKS, shop, until_kept};

#[test]
fn a_board_shows_the_tasks_of_an_assignee_a_priority_or_that_need_a_person() {
    let daemon = daemon(&["idle", "other"]);
    for (id, assignee, priority) in
        [("one", "idle", "urgent"), ("two", "idle", "low"), ("three", "other", "low")]
    {
        daemon.done(&[
            "task",
            "add",
            "--id",
            id,
            "--project",
            "prj",
            "--assignee",
            assignee,
            "--priority",
            priority,
            "--status",
            "todo",
            "--title",
            id,
        ]);
    }
    daemon.done(&["task", "set", "three", "--status", "in_progress"]);
    daemon.done(&["task", "set", "three", "--status", "blocked", "--reason", "which bank?"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.resize(1400, 800);
    browser.go_to("/ui/projects/prj");
    let shown = || browser.texts("#board .card-link");
    let address = || browser.run("return location.search");
    let choose = |name: &str, value: &str| {
        browser.run(&format!(
            "const field = document.querySelector('#find [name={name}]'); field.value = '{value}';\
             field.dispatchEvent(new Event('change', {{ bubbles: true }}))"
        ));
    };
    assert_eq!(shown(), ["one", "two", "three"]);
    choose("assignee", "idle");
    browser.until("those of one agent are shown", || shown() == ["one", "two"]);
    choose("priority", "low");
    browser.until("both conditions count", || shown() == ["two"]);
    assert_eq!(address(), "?assignee=idle&priority=low");

    // A reload shows the same. Clearing shows all.
    browser.go_to("/ui/projects/prj?assignee=idle&priority=urgent&needs=person");
    assert_eq!(shown(), [] as [&str; 0]);
    browser.find("#nothing-found button").click();
    browser.until("all are shown", || shown() == ["one", "two", "three"]);
    assert_eq!(address(), "");
    browser.find("#find label.chip").click();
    browser.until("what needs a person is shown", || shown() == ["three"]);
    assert_eq!(address(), "?needs=person");
    // A task that begins to need a person appears without a reload.
    daemon.done(&["task", "set", "two", "--status", "in_progress"]);
    daemon.done(&["task", "set", "two", "--status", "blocked", "--reason", "which bank?"]);
    browser.until("the other one came", || shown() == ["three", "two"]);
    daemon.done(&["task", "set", "two", "--status", "todo"]);
    browser.until("and went", || shown() == ["three"]);
    browser.go_to("/ui/projects/prj?q=is:blocked+assignee:other");
    assert_eq!(shown(), ["three"]);
    // Values that do not exist choose nothing.
    browser.go_to("/ui/projects/prj?priority=nothing&assignee=%21&needs=x");
    assert_eq!(shown().len(), 3);
    assert_quiet(&browser);
}

#[test]
fn a_board_shows_the_results_that_wait_for_a_person() {
    let daemon = shop("http: { listen: \"127.0.0.1:0\" }", &WORKS);
    daemon.task("one", "shop", "agt");
    until_kept(&daemon, "one");
    daemon.done(&["task", "add", "--project", "shop", "--title", "another one"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    // The column of finished tasks is open although the board has no room for all columns.
    browser.resize(1100, 800);
    browser.go_to("/ui/projects/shop?merge=wanted");
    browser.until("only the result is shown", || browser.texts("#board .card-link") == ["a title"]);
    assert!(browser.find("#column-done .card-link").is_shown());
    assert_eq!(browser.texts("[data-count-of=merge]"), ["1"]);
    browser.find("#find label.chip:has([name=merge])").click();
    browser.until("all are shown", || browser.texts("#board .card-link").len() == 2);
    assert_eq!(browser.run("return location.search"), "");
    // A decision is seen without a reload.
    daemon.done(&["task", "discard", "one"]);
    browser.until("none waits", || browser.texts("[data-count-of=merge]") == [""]);
    assert_quiet(&browser);
}
