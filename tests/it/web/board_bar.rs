//! The bar and the tools of a board: other projects, what the day cost, how many tasks need a
//! person, and the steps of a project without tasks.

use super::browser::Browser;
use super::{assert_quiet, daemon};
use crate::daemon::Daemon;

const PRINTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/output/claude.jsonl");

/// Adds tasks to do with the titles `one`, `two` and `three`, which are their ids, too.
fn add_three(daemon: &Daemon, more: &[&str]) {
    for task in ["one", "two", "three"] {
        let of = ["task", "add", "--project", "prj", "--id", task, "--title", task];
        daemon.done(&[&of, more].concat());
    }
}

#[test]
fn a_board_leads_to_another_project_and_shows_what_the_day_cost() {
    let daemon = daemon(&["agt"]);
    daemon.project("other");
    daemon.done(&["project", "set", "other", "--name", "The other"]);
    daemon.done(&["task", "add", "--project", "other", "--title", "elsewhere"]);
    daemon.steps(
        "agt",
        &["authenticate", "get-my-task", &format!("run:cat {PRINTED}"), "report:success"],
    );
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    assert!(!browser.has("#spent"), "nothing was spent");
    daemon.task("tsk", "prj", "agt");
    browser
        .until("the cost is shown without a reload", || browser.texts("#spent") == ["Today $0.02"]);
    let title = browser.run("return document.querySelector('#spent').title");
    assert!(title.as_str().unwrap().starts_with("Since midnight ("), "{title}");
    browser.go_to("/ui/projects/prj");
    assert_eq!(browser.texts("#card-tsk [title='Cost of its launches']"), ["$0.02"]);

    browser.find("[popovertarget=more-actions]").click();
    browser.until("the menu is shown", || browser.find("#more-actions").is_shown());
    browser.find("#more-actions [hx-get*=removals]").click();
    browser.until("it asks", || browser.has("#dialog[open] #removal"));
    assert!(!browser.find("#more-actions").is_shown());
    assert_eq!(
        browser.run("return dialog.getAttribute('aria-labelledby')"),
        "removal-heading",
        "what it shows gives the dialog its name"
    );
    browser.find("#dialog [data-close-dialog]").click();
    browser.until("it is closed", || browser.run("return dialog.open") == false);
    browser.find("[popovertarget=more-actions]").click();
    browser.find("#more-actions a[href='/ui/projects/prj/edit']").click();
    browser.until("the form is open", || browser.path() == "/ui/projects/prj/edit");
    browser.go_to("/ui/projects/prj");

    browser.find("[popovertarget=switch-project]").click();
    browser.until("the projects are shown", || browser.find("#switch-project").is_shown());
    assert_eq!(browser.texts("#switch-project [aria-current]").len(), 1);
    let place = browser.run(
        "const menu = document.querySelector('#switch-project').getBoundingClientRect();\
         const button = document.querySelector('[popovertarget]').getBoundingClientRect();\
         return Math.abs(menu.top - button.bottom) < 2 && Math.abs(menu.left - button.left) < 2",
    );
    assert_eq!(place, true, "the menu is at its button");
    browser.find("#switch-project a[href='/ui/projects/other']").click();
    browser.until("the other board is open", || browser.path() == "/ui/projects/other");
    assert_eq!(browser.texts("h1"), ["The other"]);
    assert_quiet(&browser);
}

#[test]
fn the_filter_for_a_person_says_how_many_tasks_need_one() {
    let daemon = daemon(&["agt"]);
    add_three(&daemon, &["--assignee", "agt"]);
    let block = |task: &str| {
        daemon.done(&["task", "set", task, "--status", "in_progress"]);
        daemon.done(&["task", "set", task, "--status", "blocked", "--reason", "which bank?"]);
    };
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    let count = || browser.texts("[data-count-of=person]");
    assert_eq!(count(), [""]);
    block("one");
    browser.until("a blocked task counts", || count() == ["1"]);
    block("two");
    browser.until("so does the second", || count() == ["2"]);
    // A filter changes the columns and not the number.
    browser.find("#search").type_in("three");
    browser.until("the others are gone", || browser.texts("#board .card-link") == ["three"]);
    assert_eq!(count(), ["2"]);
    browser.go_to("/ui/projects/prj?needs=person");
    assert_eq!(count(), ["2"]);
    assert_quiet(&browser);
}

#[test]
fn an_empty_project_shows_the_steps_until_its_first_task() {
    let daemon = daemon(&[]);
    daemon.project("empty");
    daemon.agent("agt", "prj", &["authenticate", "chat"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/empty");
    assert_eq!(browser.texts(".step.is-next .no"), ["2"]);
    assert!(!browser.find("#board").is_shown());
    assert!(browser.texts("#steps .hint").concat().contains("Or use an existing agent."));
    daemon.done(&["project", "set", "empty", "--assign", "agt"]);
    browser.go_to("/ui/projects/empty");
    assert_eq!(browser.texts(".step.is-next .no"), ["3"]);
    // A task of another project leaves what is being written.
    browser.find("#steps #title").type_in("Not sent");
    daemon.done(&["task", "add", "--id", "other", "--project", "prj", "--title", "Other"]);
    let heard = || browser.run("return live.after > Number(document.body.dataset.after)");
    browser.until("the page heard of it", || heard() == true);
    daemon.done(&["project", "set", "prj", "--name", "Renamed"]);
    browser.until("and of what came after it", || {
        browser.texts("#side a span").contains(&"Renamed".to_owned())
    });
    browser.until("it asked for the cards", || {
        browser.run("return live.tasks.size === 0 && !isShowingTasks") == true
    });
    assert_eq!(browser.run("return document.querySelector('#steps #title').value"), "Not sent");
    // A task of this one ends the steps, also if somebody else adds it.
    daemon.done(&["task", "add", "--id", "first", "--project", "empty", "--title", "First"]);
    browser.until("the board is shown", || browser.texts("#board .card-link") == ["First"]);
    assert!(browser.find("#board").is_shown() && !browser.has("#steps"));
    assert_quiet(&browser);
}

#[test]
fn very_many_first_tasks_end_the_steps_as_well() {
    let daemon = daemon(&["agt"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    browser.find("#steps");
    let tasks = (0..60).map(|n| format!("  t{n}: {{ project: prj, title: 'task {n}' }}\n"));
    let manifest = format!("tasks:\n{}", tasks.collect::<String>());
    daemon.write("tasks.yaml", &manifest);
    daemon.done(&["apply", daemon.folder().join("tasks.yaml").to_str().unwrap()]);
    browser.until("the board is shown", || {
        browser.find("#board").is_shown() && browser.has("#board .card")
    });
    assert!(!browser.has("#steps"));
    assert_quiet(&browser);
}

#[test]
fn an_empty_project_shows_a_viewer_no_steps() {
    let daemon = daemon(&["agt"]);
    let Some(browser) = Browser::at(&daemon, "viewer", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    assert!(browser.find("#board").is_shown());
    assert!(browser.has("#no-tasks") && !browser.has("#steps"));
    assert_quiet(&browser);
}

#[test]
fn a_task_page_walks_through_the_column_that_its_reader_came_from() {
    let daemon = daemon(&["agt"]);
    add_three(&daemon, &[]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    browser.find("#card-two .card-link");
    browser.run("location.assign(document.querySelector('#card-two .card-link').href)");
    let shows = |title: &str| {
        browser.until(title, || {
            browser.texts(".main h1.task-title") == [title]
                && browser.run("return typeof stepToTask") == "function"
        });
    };
    shows("two");
    browser.press(&['j']);
    shows("three");
    browser.press(&['j']);
    assert!(!browser.find("[data-step='1']").is_shown(), "it is the last one");
    browser.find("[data-step='-1']").click();
    shows("two");
    browser.press(&['k']);
    shows("one");
    assert_quiet(&browser);
}
