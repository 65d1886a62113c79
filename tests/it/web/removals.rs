//! Archiving and deleting in a browser: the dialog, the note, and the board.

use super::browser::Browser;
use super::{assert_quiet, daemon};

#[test]
fn a_deleted_task_leaves_the_board_and_a_note_tells_it() {
    let daemon = daemon(&["agt"]);
    for id in ["one", "two"] {
        daemon.done(&["task", "add", "--project", "prj", "--id", id, "--title", id]);
        daemon.done(&["task", "set", id, "--status", "cancelled"]);
    }
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.resize(1600, 1000);
    browser.go_to("/ui/projects/prj?task=PRJ-1");
    browser.find("#panel [hx-get='/ui/parts/removals/task/one']").click();
    assert!(browser.find("#removal").text().contains("1 task: PRJ-1 one"));
    browser.find("#removal [value=delete]").click();
    browser.until("a note tells it", || browser.texts(".toast b") == ["Deleted PRJ-1 one"]);
    assert!(!browser.has(".toast .act"));
    browser.until("the card and the panel are gone", || {
        !browser.has("#card-one") && !browser.has("#panel .task") && browser.has("#card-two")
    });
    // An agent is deleted on its own page, and the list has the note.
    browser.go_to("/ui/agents/agt");
    browser.find("[hx-get='/ui/parts/removals/agent/agt']").click();
    browser.find("#removal [value=delete]").click();
    browser.until("the list is shown with the note", || {
        browser.path().starts_with("/ui/agents") && browser.texts(".toast b") == ["Deleted agt"]
    });
    assert!(!browser.texts(".name").contains(&"agt".to_owned()));
    assert_quiet(&browser);
}
