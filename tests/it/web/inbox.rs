//! The inbox: its number is everywhere, an entry is read, put off and done, ends by itself, and
//! notifies the reader of a page in the background.

use super::browser::Browser;
use super::pictures::keep;
use super::{assert_quiet, daemon};
use crate::daemon::Daemon;

const ENTER: char = '\u{e007}';
const ESCAPE: char = '\u{e00c}';

/// Blocks a task with a reason.
fn block(daemon: &Daemon, task: &str, reason: &str) {
    daemon.task(task, "prj", "idle");
    daemon.done(&["task", "set", task, "--status", "blocked", "--reason", reason]);
}

#[test]
fn what_needs_a_person_is_counted_read_put_off_and_done() {
    let daemon = daemon(&[]);
    daemon.agent("idle", "prj", &["authenticate", "get-my-task", "sleep:600"]);
    block(&daemon, "first", "which bank?");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.resize(1400, 800);
    browser.go_to("/ui/inbox");
    let title = || browser.run("return document.title").as_str().unwrap().to_owned();
    assert_eq!(title(), "(1) Inbox · agent-coordinator");
    assert_eq!(browser.texts("#side-inbox .is-new"), ["1"]);
    assert!(browser.texts(".item p")[0].ends_with("Blocked: which bank?"));
    let icon = || browser.run("return document.querySelector('link[rel=icon]').href").to_string();
    assert!(icon().contains("icon-waits"), "{}", icon());

    // The open page shows later news, too.
    block(&daemon, "second", "<b>who</b> pays?");
    browser.until("the number changes", || title().starts_with("(2) "));
    browser.until("the entry comes", || browser.texts(".item").len() == 2);
    assert_eq!(browser.texts(".tabbar .count"), ["2"]);
    assert_eq!(browser.texts(".item.is-new").len(), 2);
    assert!(browser.texts(".item p")[0].ends_with("<b>who</b> pays?"), "text is text");
    // The newest one is first. Reading ends that it is new.
    let opens = |key: char, what: &str| {
        browser.press(&[key]);
        browser.press(&[ENTER]);
        browser.until(what, || {
            browser.texts(".reading .stack-2 a.link").contains(&what.to_owned())
                && browser.has("#contact.is-there")
        });
    };
    opens('j', "PRJ-2");
    let new = || browser.texts(".item.is-new p");
    assert!(new().len() == 1 && new()[0].ends_with("which bank?"), "{:?}", new());
    opens('j', "PRJ-1");
    assert_eq!(new(), [""; 0]);
    browser.press(&[ESCAPE]);
    browser.until("the focus is back in the list", || {
        let focus = "return document.activeElement.closest('.item') !== null";
        !browser.has(".reading h2") && browser.run(focus) == true
    });
    assert_eq!(new(), [""; 0]);
    opens('k', "PRJ-2");
    assert!(browser.texts(".reading code")[0].starts_with("agent-coordinator task show PRJ-2"));
    keep(&browser, "inbox");

    browser.find(".reading button[hx-vals*=hour]").click();
    browser.until("it is put off", || browser.texts(".item").len() == 1);
    browser.until("the number goes with it", || title().starts_with("(1) "));
    browser.until("the entry says so", || {
        browser.texts(".reading .hint").concat().starts_with("Put off until")
    });
    browser.go_to("/ui/inbox?show=later");
    browser.find(".item a").click();
    browser.until("it is read", || browser.has(".reading button[hx-vals*=open]"));
    browser.find(".reading button[hx-vals*=open]").click();
    browser.until("nothing is put off", || !browser.has(".item"));
    // The focus goes to the entry that follows.
    browser.go_to("/ui/inbox");
    browser.find(".item a").click();
    browser.until("it is read", || browser.has(".reading button[hx-vals*=done]"));
    browser.find(".reading button[hx-vals*=done]").click();
    browser.until("it is gone, and the next one has the focus", || {
        browser.texts(".item").len() == 1
            && browser.run("return document.activeElement.closest('.item') !== null") == true
    });
    browser.go_to("/ui/inbox?show=done");
    browser.find(".item a").click();
    browser.until("it is read", || browser.has(".reading button[hx-vals*=open]"));
    browser.find(".reading button[hx-vals*=open]").click();
    browser.until("nothing is done", || !browser.has(".item"));
    browser.go_to("/ui/inbox");
    assert_eq!(browser.texts(".item").len(), 2);

    // A filter is in the address.
    daemon.project("other");
    daemon.done(&["project", "set", "other", "--assign", "idle"]);
    daemon.task("third", "other", "idle");
    daemon.done(&["task", "set", "third", "--status", "blocked", "--reason", "whose shop?"]);
    browser.until("it comes", || browser.texts(".item").len() == 3);
    browser.go_to("/ui/inbox");
    browser.run(
        "const choice = document.querySelector('#inbox-filter [name=project]');\
         choice.value = 'other'; for (const kind of ['input', 'change'])\
         choice.dispatchEvent(new Event(kind, { bubbles: true }))",
    );
    browser.until("one is left", || browser.texts(".item").len() == 1);
    assert!(browser.texts(".item p")[0].ends_with("whose shop?"));
    let address = browser.run("return location.search");
    assert!(address.as_str().unwrap().contains("project=other"), "{address}");
    browser.go_to(&format!("/ui/inbox{}&kind=account", address.as_str().unwrap()));
    browser.find("#nothing-found a").click();
    browser.until("all are there", || browser.texts(".item").len() == 3);
    daemon.done(&["task", "set", "third", "--status", "cancelled"]);
    browser.until("it ends", || browser.texts(".item").len() == 2);

    // A blocked task goes on at the press of a button.
    browser.find(".item:first-of-type a").click();
    browser.until("it is read", || browser.has(".reading .btn.primary"));
    browser.find(".reading .btn.primary").click();
    browser.until("it is gone", || browser.texts(".item").len() == 1);
    assert_eq!(daemon.task_status("second"), "in_progress");
    daemon.done(&["task", "set", "second", "--status", "blocked", "--reason", "again"]);
    browser.until("it is back", || browser.texts(".item").len() == 2);

    // Its cause ends, and so does the entry that is read.
    browser.find(".item:first-of-type a").click();
    browser.until("it is read", || browser.has(".reading h2"));
    daemon.done(&["task", "set", "second", "--status", "cancelled"]);
    browser.until("it has ended", || {
        browser.texts(".reading .empty").concat() == "This no longer needs attention."
    });
    daemon.done(&["task", "set", "first", "--status", "cancelled"]);
    browser.go_to("/ui/inbox");
    assert!(browser.texts(".empty")[0].starts_with("Nothing needs you. "));
    assert_eq!(title(), "Inbox · agent-coordinator");
    assert!(!icon().contains("icon-waits"), "{}", icon());
    assert_eq!(browser.run("return document.querySelector('.tabbar .count').hidden"), true);
    assert_quiet(&browser);
}

#[test]
fn on_a_phone_the_list_gives_way_to_the_entry_and_a_viewer_changes_nothing() {
    let daemon = daemon(&[]);
    daemon.agent("idle", "prj", &["authenticate", "get-my-task", "sleep:600"]);
    block(&daemon, "first", "which bank?");
    let Some(browser) = Browser::at(&daemon, "viewer", "ja") else {
        return;
    };
    browser.resize(390, 800);
    browser.go_to("/ui/inbox");
    assert!(!browser.find(".reading").is_shown());
    // What a viewer has read is not kept, so nothing is marked.
    assert!(!browser.has(".item.is-new"));
    browser.find(".item a").click();
    browser.until("the entry is shown", || browser.has(".reading h2"));
    assert!(browser.find(".reading h2").is_shown() && !browser.find(".items").is_shown());
    assert!(!browser.has(".reading button"));
    keep(&browser, "inbox-phone");
    // A tablet in the hand has one column, too.
    browser.resize(900, 800);
    browser.find(".reading [data-up]").click();
    browser.until("the list is back", || browser.find(".items").is_shown());
    assert_quiet(&browser);
}

#[test]
fn a_page_in_the_background_notifies_its_reader() {
    let daemon = daemon(&["idle"]);
    daemon.task("tsk", "prj", "idle");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/settings");
    assert!(
        !browser.run("return document.querySelector('#notifications').checked").as_bool().unwrap()
    );
    browser.run("localStorage.setItem('notifications', 'on')");
    browser.go_to("/ui/projects/prj");
    browser.run(
        "window.told = []; window.Notification = class { static permission = 'granted';\
         constructor(title) { window.told.push(title); } };\
         Object.defineProperty(document, 'hidden', { get: () => true });",
    );
    browser.until("the page hears of news", || browser.has("#contact.is-there"));
    daemon.done(&["task", "set", "tsk", "--status", "blocked", "--reason", "which bank?"]);
    browser.until("its reader is told", || {
        browser.run("return window.told.join()") == "Something needs your attention"
    });
    assert_quiet(&browser);
}
