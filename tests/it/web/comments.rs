//! The comments of a task, in the panel.

use super::browser::Browser;
use super::{assert_quiet, daemon};

#[test]
fn a_comment_is_seen_at_once_and_a_half_written_one_stays() {
    let daemon = daemon(&["agt"]);
    daemon.done(&["task", "add", "--id", "tsk", "--project", "prj", "--title", "Cart"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj?task=tsk");
    let said = || browser.texts("#panel .time-line .prose");
    let written = || browser.run("return document.querySelector('#comment').value");
    browser.find("#comment").type_in("Mind the **coupon**, see PRJ-1");
    let button = "#comment-tsk .btn";
    browser.run(&format!("const b = document.querySelector('{button}'); b.click(); b.click()"));
    browser.until("it is in the activity", || said() == ["Mind the coupon, see PRJ-1"]);
    assert!(browser.has("#panel .time-line .prose strong"));
    assert!(browser.has("#panel .time-line .prose a[href$='/ui/tasks/PRJ-1']"));
    browser.until("the form is empty", || written() == "");

    browser.find("#comment").type_in("half");
    daemon.done(&["task", "comment", "tsk", "From elsewhere <i>with</i> text"]);
    browser.until("the other comment is there", || said().len() == 2);
    assert_eq!(said()[0], "From elsewhere <i>with</i> text");
    assert_eq!(written(), "half");
    // What is written in another form stays, whichever is sent.
    browser.find(".edited:has(+ #edit-tsk) [data-edits]").click();
    browser.find("#edit-description").type_in("More words");
    browser.find(button).click();
    browser.until("it is sent", || said().len() == 3);
    browser.until("the form is empty again", || written() == "");
    assert_eq!(browser.run("return document.activeElement.id"), "comment");
    let description = "return document.querySelector('#edit-description').value";
    assert_eq!(browser.run(description), "More words");
    browser.find("#comment").type_in("kept");
    browser.run("document.querySelector('#edit-tsk').requestSubmit()");
    browser.until("the description is saved", || {
        browser.texts("#panel .prose").contains(&"More words".to_owned())
    });
    assert_eq!(written(), "kept");
    assert_eq!(daemon.json(&["task", "show", "tsk"])["comments"].as_array().unwrap().len(), 3);
    assert_quiet(&browser);
}

#[test]
fn a_viewer_reads_comments_and_writes_none() {
    let daemon = daemon(&[]);
    daemon.done(&["task", "add", "--id", "tsk", "--project", "prj", "--title", "Cart"]);
    daemon.done(&["task", "comment", "tsk", "Read me"]);
    let Some(browser) = Browser::at(&daemon, "viewer", "ja") else {
        return;
    };
    browser.go_to("/ui/tasks/tsk");
    assert_eq!(browser.texts(".time-line .prose"), ["Read me"]);
    assert!(!browser.has("#comment"));
    assert_quiet(&browser);
}
