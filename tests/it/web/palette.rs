//! The palette: what a text finds, without a mouse, and on a phone.

use serde_json::{Value, json};

use super::browser::Browser;
use super::pictures::keep;
use super::{assert_quiet, daemon};
use crate::daemon::Daemon;

const CONTROL: char = '\u{e009}';
const ENTER: char = '\u{e007}';
const ESCAPE: char = '\u{e00c}';
const DOWN: char = '\u{e015}';
const UP: char = '\u{e013}';

/// Returns a daemon with two projects and some tasks.
fn daemon_with_tasks() -> Daemon {
    let daemon = daemon(&["agt"]);
    daemon.project("other");
    let add = |id: &str, project: &str, title: &str, description: &str| {
        daemon.done(&[
            "task",
            "add",
            "--id",
            id,
            "--project",
            project,
            "--title",
            title,
            "--description",
            description,
        ]);
    };
    add("cart", "prj", "Empty the cart", "after the order");
    add("badge", "prj", "A badge", "counts what is in the CART");
    add("mail", "other", "Mail about 100% of <b>orders</b>", "");
    daemon.done(&["task", "set", "badge", "--assignee", "agt"]);
    daemon
}

fn open(browser: &Browser, text: &str) {
    browser.press(&[CONTROL, 'k']);
    browser.until("it is open", || browser.run("return palette.open") == true);
    browser.until("it is filled", || browser.has("#found [role=option]"));
    browser.find("#palette-q").type_in(text);
}

/// Waits until these entries of a group are found.
#[track_caller]
fn until_found(browser: &Browser, group: &str, expected: &[&str]) {
    let selector = format!("#found [id^=found-{group}-] .what");
    browser.until(&format!("{expected:?} in {group}"), || browser.texts(&selector) == expected);
}

fn active(browser: &Browser) -> Value {
    browser.run(
        "const e = document.activeElement; return e.closest('.card')?.id ?? (e.id || e.tagName)",
    )
}

#[test]
fn a_text_finds_tasks_of_all_projects_and_the_keys_open_them() {
    let daemon = daemon_with_tasks();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    browser.run("document.querySelector('#card-badge .card-link').focus()");
    open(&browser, "cart");
    // The one with the text in its title comes first; the other has it in its description.
    until_found(&browser, "task", &["Empty the cart", "A badge"]);
    assert_eq!(active(&browser), "palette-q");
    let picked = || {
        browser.run(
            "return document.querySelector('#palette-q').getAttribute('aria-activedescendant')",
        )
    };
    assert_eq!(picked(), "found-task-1");
    browser.press(&[DOWN]);
    assert_eq!(picked(), "found-task-2");
    browser.press(&[UP]);
    browser.press(&[UP]);
    assert_ne!(picked(), "found-task-1", "from the first, up leads to the last");
    browser.press(&[DOWN]);
    assert_eq!(browser.texts("#found [aria-selected=true] .what"), ["Empty the cart"]);
    keep(&browser, "palette");
    // One that is opened again at once is filled, too.
    browser.run(
        "palette.addEventListener('close', () => { window.isClosed = true; }, { once: true });\
         palette.close(); openPalette()",
    );
    browser.until("it was closed", || browser.run("return window.isClosed") == true);
    browser.until("it is filled again", || browser.has("#found [role=option]"));
    browser.press(&[ESCAPE]);
    browser.until("the focus is back", || active(&browser) == "card-badge");

    // The board stays; the panel shows the task.
    browser.run("window.isTheSame = true");
    open(&browser, "agt badge");
    until_found(&browser, "task", &["A badge"]);
    browser.press(&[ENTER]);
    browser.find("#panel [data-shows-task=badge]");
    assert_eq!(
        browser.run("return [window.isTheSame, location.search]"),
        json!([true, "?task=PRJ-2"])
    );
    browser.until("the panel has the focus", || active(&browser) == "panel");
    browser.press(&[ESCAPE]);

    // Enter waits for what was typed last. A task elsewhere opens its board.
    open(&browser, "OTHER-1");
    browser.press(&[ENTER]);
    browser.until("its board is open", || browser.path() == "/ui/projects/other");
    browser.find("#panel [data-shows-task=mail]");
    for (text, expected) in [("100%", 1), ("100_", 0), ("%", 1), ("mail orders", 1), ("<b>", 1)] {
        open(&browser, text);
        browser.until(text, || {
            browser.texts("#found [id^=found-task-] .what").len() == expected
                && browser.has("#no-found[hidden]") == (expected > 0)
        });
        browser.press(&[ESCAPE]);
    }
    assert_quiet(&browser);
}

#[test]
fn the_commands_are_those_that_the_page_offers() {
    let daemon = daemon_with_tasks();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/agents");
    open(&browser, "new");
    until_found(&browser, "place", &["New project", "New agent"]);
    assert!(!browser.has("[id^=found-command-]"), "no board is open");
    browser.press(&[ESCAPE]);
    open(&browser, "agt");
    until_found(&browser, "agent", &["agt"]);
    browser.press(&[ENTER]);
    browser.until("a task of the agent", || browser.path() == "/ui/projects/prj");

    browser.go_to("/ui/projects/prj?task=cart");
    browser.find("#panel .task");
    open(&browser, "set to cancelled");
    until_found(&browser, "command", &["Set to Cancelled"]);
    browser.press(&[ENTER]);
    browser.find("#column-cancelled #card-cart");
    open(&browser, "priority");
    until_found(&browser, "command", &["Priority"]);
    browser.press(&[ENTER]);
    let list = || browser.run("return document.activeElement.closest('.pick')?.id");
    browser.until("the list has the focus", || list() == "pick-priority");
    open(&browser, "new task");
    until_found(&browser, "command", &["New task"]);
    browser.press(&[ENTER]);
    browser.until("the form is open", || active(&browser) == "new-title");
    // One dialog at a time.
    browser.press(&[CONTROL, 'k']);
    assert_eq!(browser.run("return palette.open"), false);
    browser.press(&[ESCAPE]);
    open(&browser, "operations");
    until_found(&browser, "place", &["Operations"]);
    browser.press(&[ENTER]);
    browser.until("the place is open", || browser.path() == "/ui/operations");
    assert_quiet(&browser);
}

#[test]
fn a_phone_has_a_button_for_it_and_a_viewer_gets_no_command_that_changes() {
    let daemon = daemon_with_tasks();
    let Some(browser) = Browser::at(&daemon, "viewer", "ja") else {
        return;
    };
    browser.resize(500, 844);
    browser.go_to("/ui/projects/prj?task=cart");
    browser.find("#panel .task");
    browser.find("#panel [data-close]").click();
    browser.find(".tabbar a[href='/ui/settings']").click();
    browser.find(".body [data-open-palette]").click();
    browser.until("it is filled", || browser.has("#found [role=option]"));
    let small = browser.run(
        "return [...document.querySelectorAll('.tabbar > *, .only-s > *, #found [role=option]')].filter(e => \
         e.checkVisibility() && Math.min(e.offsetHeight, e.offsetWidth) < 44).map(e => e.outerHTML)",
    );
    assert_eq!(small, json!([]));
    keep(&browser, "palette-phone");
    let found = browser.texts("#found .what").concat();
    assert!(found.contains("設定") && found.contains("A badge"), "{found}");
    for offered in ["タスクを作成", "状態を変更", "プロジェクトを作成"] {
        assert!(!found.contains(offered), "{found}");
    }
    browser.find("#palette-q").type_in("稼働状況");
    until_found(&browser, "place", &["稼働状況"]);
    browser.find("#found [role=option]").click();
    browser.until("the place is open", || browser.path() == "/ui/operations");
    assert_quiet(&browser);
}
