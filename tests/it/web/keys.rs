//! The keys of the page: lists have one Tab stop each, and single keys act on what has the focus.

use super::assert_quiet;
use super::browser::Browser;
use super::looks::busy;

const CONTROL: char = '\u{e009}';
const ENTER: char = '\u{e007}';
const ESCAPE: char = '\u{e00c}';
const DOWN: char = '\u{e015}';

/// Returns the text of the link with the focus.
fn focused(browser: &Browser) -> String {
    let text = browser.run("return document.activeElement.textContent.trim()");
    text.as_str().unwrap().to_owned()
}

#[test]
fn each_list_has_one_tab_stop_and_each_key_does_what_the_help_says() {
    let daemon = busy();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let stops = "return [...document.querySelectorAll('.walks .name')]\
                 .filter(e => e.tabIndex === 0).map(e => e.textContent.trim())";
    for page in ["/ui/agents", "/ui/projects", "/ui/launches", "/ui/inbox"] {
        browser.go_to(page);
        let all = browser.texts(".walks .name");
        browser.press(&['j']);
        let first = focused(&browser);
        assert_eq!(first, all[0].trim(), "{page}");
        assert_eq!(browser.run(stops), serde_json::json!([first]), "{page}");
        if all.len() > 1 {
            browser.press(&[DOWN]);
            assert_eq!(focused(&browser), all[1].trim(), "{page}");
            assert_eq!(browser.run(stops), serde_json::json!([all[1].trim()]), "{page}");
            // What is shown anew keeps the stop.
            browser.run("document.body.dispatchEvent(new CustomEvent('live-work'))");
            browser.press(&['k']);
            assert_eq!(focused(&browser), all[0].trim(), "{page}");
        }
    }

    // The keys are shown where the reader is.
    browser.press(&['?']);
    browser.until("the keys are shown", || browser.has("#dialog[open] .keys"));
    assert_eq!(browser.path(), "/ui/inbox");
    browser.press(&[ESCAPE]);
    browser.until("they are closed", || !browser.has("#dialog[open]"));

    // A key about a task is about the card with the focus.
    browser.go_to("/ui/projects/prj");
    for (key, place) in [('s', ".states"), ('a', "#property-assignee"), ('p', "#property-priority")]
    {
        browser.run("document.querySelector('#card-tsk .card-link').focus()");
        browser.press(&[key]);
        let at_place = format!("return document.activeElement.closest('#panel {place}') !== null");
        browser.until("the key leads to its place", || browser.run(&at_place) == true);
        assert_eq!(browser.texts("#panel .task-title"), ["a title"]);
        // The first one closes the list.
        browser.until("the focus is back", || {
            browser.press(&[ESCAPE]);
            browser.run("return document.activeElement.closest('#card-tsk') !== null") == true
        });
    }
    browser.press(&['c']);
    browser.find("#panel .chat");
    browser.run("document.querySelector('#card-tsk .card-link').focus()");
    browser.press(&['o']);
    browser.until("the page is open", || {
        browser.path() == "/ui/tasks/PRJ-1" && browser.has("#contact.is-there")
    });

    for (key, path) in [
        ('i', "/ui/inbox"),
        ('b', "/ui/projects/prj"),
        ('a', "/ui/agents"),
        ('l', "/ui/launches"),
        ('o', "/ui/operations"),
    ] {
        browser.press(&['g']);
        browser.press(&[key]);
        let is_ready = || browser.path() == path && browser.has("#contact.is-there");
        browser.until("the place is open", is_ready);
    }

    // Without single keys, the others still work.
    browser.go_to("/ui/settings");
    browser.find("#single-keys").click();
    browser.go_to("/ui/inbox");
    for key in ['j', 'g', 'a', '?'] {
        browser.press(&[key]);
    }
    assert_eq!(browser.run("return document.activeElement.tagName"), "BODY");
    browser.press(&[CONTROL, 'k']);
    browser.until("the palette is open", || browser.has("#palette[open]"));
    assert_eq!(browser.path(), "/ui/inbox");
    browser.press(&[ESCAPE]);
    browser.run("document.querySelector('.walks .name').focus()");
    browser.press(&[ENTER]);
    browser.until("the entry is open", || browser.has(".reading h2"));
    assert_quiet(&browser);
}
