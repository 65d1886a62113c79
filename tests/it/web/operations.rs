//! Operations: the old address, what waits with its reason and button, and the questions before
//! everything is stopped.

use super::browser::Browser;
use super::{assert_quiet, daemon_with};
use crate::daemon::Daemon;
use crate::support::until;

const PLACE_OF_OPERATIONS: [char; 2] = ['g', 'o'];

fn busy() -> Daemon {
    let daemon = daemon_with(&[], "max_concurrent: 1");
    daemon.done(&["project", "set", "prj", "--name", "Shop"]);
    daemon.agent("ada", "prj", &["authenticate", "get-my-task", "write:ready", "sleep:600"]);
    daemon.done(&["agent", "set", "ada", "--name", "Ada"]);
    daemon.task("t_ada", "prj", "ada");
    daemon.written_pid("ready");
    daemon.agent("ben", "prj", &["authenticate", "get-my-task", "report:success"]);
    daemon.done(&["agent", "set", "ben", "--name", "Ben"]);
    daemon.task("t_ben", "prj", "ben");
    until("it waits for the slot", || {
        daemon.page("/ui/parts/operations", "en").contains("No free slot")
    });
    daemon
}

#[test]
fn operations_names_who_waits_for_which_task_and_why_in_both_languages() {
    let daemon = busy();
    let answer = daemon.page("/ui/coordinator", "en");
    assert!(answer.starts_with("HTTP/1.1 308"), "{answer}");
    assert!(answer.contains("location: /ui/operations\r\n"), "{answer}");
    let page = daemon.page("/ui/operations", "en");
    for text in [
        "Active",
        "1 <span class=\"faint small\">of 1</span>",
        "1 slot: tasks use 1, chats use 0",
        "href=\"/ui/projects/prj/agents/ben\"><bdi>Ben</bdi></a>",
        "PRJ-2</a> · <bdi>No free slot",
        "longest for <time",
        "Spent today",
        "Tokens today",
        " of 1 · memory ",
        "<b>claude</b> <span class=\"second\">1 running",
        "href=\"/ui/launches\">All launches</a>",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let page = daemon.page("/ui/parts/operations", "ja");
    for text in [
        "稼働中",
        "起動待ち",
        "PRJ-2</a> · <bdi>空きスロットなし",
        "<bdi>Ben</bdi></a>",
        "アカウント",
        "今日のコスト",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("no_free_slot") && !page.contains("t_ben"), "{page}");
}

#[test]
fn the_worst_banner_is_shown_and_the_others_when_asked_for() {
    let daemon = daemon_with(&[], "");
    let file = daemon.state().join("contexts/pause_signal");
    until("the folder of the pause file is made", || file.parent().unwrap().is_dir());
    std::fs::write(&file, "").unwrap();
    until("the file is noticed", || daemon.status()["pause_file"] == true);
    daemon.done(&["pause"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/operations");
    let shown = || {
        let script = "return [...document.querySelectorAll('.banner')]\
            .filter(banner => banner.checkVisibility()).map(banner => banner.textContent.trim())";
        serde_json::from_value::<Vec<String>>(browser.run(script)).unwrap()
    };
    assert_eq!(shown().len(), 1);
    assert!(shown()[0].starts_with("Paused since"), "{:?}", shown());
    assert_eq!(browser.texts("#more-banners summary"), ["1 more"]);
    browser.find("#more-banners summary").click();
    browser.until("the other is shown", || shown().len() == 2);
    daemon.done(&["resume"]);
    browser.until("the other is the worst now", || !browser.has("#more-banners"));
    assert_eq!(shown().len(), 1);
    assert_quiet(&browser);
}

#[test]
fn a_pause_is_one_click_and_a_stop_of_all_names_what_it_stops() {
    let daemon = busy();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/agents");
    browser.find("#contact.is-there");
    browser.press(&PLACE_OF_OPERATIONS);
    browser.until("the place is open", || browser.path() == "/ui/operations");
    browser.find("#pause").click();
    browser.until("the mark shows it", || browser.texts("#fleet-state") == ["Paused"]);
    assert!(!browser.has("#pause"));
    browser.find(".banner .btn.primary").click();
    browser.until("it goes on", || browser.texts("#fleet-state") == ["Active"]);
    browser.find("#stop-all").click();
    browser.until("it asks", || browser.texts("#question .danger") == ["Stop 1 agent"]);
    assert!(browser.texts("#question li").concat().contains("Ada · Shop"));
    browser.find("#question .danger").click();
    browser.until("it is stopped", || daemon.open("ada").is_empty());
    browser.until("the dialog is closed", || !browser.has("#question"));
    browser.until("its end is shown", || {
        browser.texts("#ended li").concat().contains("PRJ-1 a title")
    });
    assert_quiet(&browser);
}
