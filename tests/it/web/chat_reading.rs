//! What a reader of a chat keeps: the place in the list, and the draft.

use serde_json::{Value, json};

use super::browser::Browser;
use super::{assert_quiet, daemon};
use crate::daemon::Daemon;
use crate::support::until;

/// Returns a daemon with an agent that answers each message with forty paragraphs.
fn talkative() -> Daemon {
    let daemon = daemon(&["other"]);
    let lines: Vec<String> = (1..=40).map(|n| format!("line {n}")).collect();
    let answer = json!({ "content": lines.join("\n\n") });
    let talks = format!(
        "run:while action=$(call get_next_action --get action); do case $action in \
         get_pending_messages) call get_pending_messages; call respond_chat '{answer}' ;; \
         logout) call logout; break ;; esac; done"
    );
    daemon.agent("agt", "prj", &["authenticate", &talks]);
    daemon
}

fn open(browser: &Browser, agent: &str) {
    browser.find(&format!("#avatar-{agent}")).click();
    browser.find(&format!("#panel [data-chat='prj/{agent}']"));
}

/// Returns the distance to the end of the list, in pixels.
fn below(browser: &Browser) -> f64 {
    let script = "const list = document.querySelector('.messages');\
                  return list.scrollHeight - list.scrollTop - list.clientHeight";
    browser.run(script).as_f64().unwrap()
}

fn n_messages(browser: &Browser) -> usize {
    browser.texts(".message:not(.is-unsent)").len()
}

fn say(browser: &Browser, text: &str) {
    browser.find("#say").type_in(text);
    browser.find("#send").click();
}

#[test]
fn a_list_at_its_end_stays_there_and_a_reader_who_scrolled_up_is_left_alone() {
    let daemon = talkative();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    open(&browser, "agt");
    say(&browser, "first");
    browser.until("it is answered", || n_messages(&browser) == 2);
    browser.until("the end of the answer is shown", || below(&browser) <= 1.0);
    let names = || browser.texts(".message .sender b");
    assert_eq!(names()[1], "agt");
    assert_ne!(names()[0], "agt");
    assert_eq!(browser.texts(".talk .day"), ["Today"]);
    for _ in 0..3 {
        browser.find("[data-close]").click();
        open(&browser, "agt");
        browser.until("the messages are there", || n_messages(&browser) == 2);
        browser.until("the end is shown", || below(&browser) <= 1.0);
    }
    say(&browser, "second");
    browser.until("it is answered, too", || n_messages(&browser) == 4);
    browser.until("the end is still shown", || below(&browser) <= 1.0);

    // What comes while the reader is elsewhere moves nothing, and is announced.
    browser.run("document.querySelector('.messages').scrollTop = 0");
    browser.until("the page heard of the scroll", || {
        browser.run_async("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done(true)))") == true
    });
    daemon.done(&["chat", "send", "agt", "prj", "from elsewhere"]);
    browser.until("both are there", || n_messages(&browser) == 6);
    browser.until("it is said", || browser.find("[data-to-end]").is_shown());
    assert_eq!(browser.run("return document.querySelector('.messages').scrollTop"), 0);
    assert_eq!(browser.texts(".talk .day.is-new"), ["New"]);
    browser.find("[data-to-end]").click();
    browser.until("the end is shown again", || below(&browser) <= 1.0);

    // What came while no browser showed the chat begins behind the line. So it does on its page.
    browser.go_to("/ui/projects/prj");
    daemon.done(&["chat", "send", "agt", "prj", "once more"]);
    let n_written =
        || daemon.mirrored("agt").iter().filter(|line| line["visible"] != false).count();
    until("it is answered", || n_written() == 8);
    browser.go_to("/ui/projects/prj/chat/agt");
    browser.until("all are there", || n_messages(&browser) == 8);
    let n_before =
        "return [...document.querySelectorAll('.talk li')].findIndex(l => l.matches('.is-new'))";
    browser.until("the line is there", || browser.run(n_before).as_i64() >= Some(7));
    browser.until("the end is shown", || below(&browser) <= 1.0);
    assert_eq!((browser.texts("h1"), browser.has("nav.side")), (vec!["agt".to_owned()], true));
    browser.go_to("/ui/projects/prj/chat/agt");
    browser.until("they are there again", || n_messages(&browser) == 8);
    assert_eq!(browser.texts(".talk .day"), ["Today"], "nothing is new any more");
    assert_quiet(&browser);
}

#[test]
fn a_draft_outlives_its_panel_and_the_page_and_enter_while_composing_sends_nothing() {
    let daemon = talkative();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let written = || browser.run("return document.querySelector('#say').value");
    browser.go_to("/ui/projects/prj");
    open(&browser, "agt");
    browser.find("#say").type_in("half a thought");
    browser.find("[data-close]").click();
    let is_marked = |agent: &str| browser.find(&format!("#avatar-{agent} .draft")).is_shown();
    assert_eq!((is_marked("agt"), is_marked("other")), (true, false));
    open(&browser, "other");
    assert_eq!(written(), "", "each chat has a draft of its own");
    browser.find("#say").type_in("another");
    open(&browser, "agt");
    browser.until("it is back", || written() == "half a thought");
    browser.go_to("/ui/projects/prj?chat=agt");
    browser.find("#panel [data-chat='prj/agt']");
    browser.until("it is back after a reload", || written() == "half a thought");
    browser.go_to("/ui/projects/prj/chat/agt");
    browser.until("it is on the page of the chat, too", || written() == "half a thought");

    browser.find("[data-is-ready]");
    let press = |is_composing: bool| -> Value {
        browser.run(&format!(
            "return document.querySelector('#say').dispatchEvent(new KeyboardEvent('keydown',\
             {{ key: 'Enter', bubbles: true, cancelable: true, isComposing: {is_composing} }}))"
        ))
    };
    assert_eq!(press(true), true, "the word is finished by the browser");
    assert_eq!(written(), "half a thought");
    assert_eq!(press(false), false);
    assert_eq!(written(), "");
    browser.until("it is sent and answered", || n_messages(&browser) == 2);
    browser.go_to("/ui/projects/prj?chat=agt");
    browser.until("the draft is gone", || n_messages(&browser) == 2 && written() == "");
    assert_eq!((is_marked("agt"), is_marked("other")), (false, true));
    assert_quiet(&browser);
}
