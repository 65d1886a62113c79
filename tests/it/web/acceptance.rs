//! The page as people use it: with the keyboard alone, on the smallest phone, with larger text, and
//! while an agent prints much.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use agent_coordinator::domain::TaskStatus;
use serde_json::{Value, json};

use super::browser::Browser;
use super::looks::{PAGES, busy, go_to};
use super::{assert_quiet, daemon};
use crate::daemon::Daemon;

const TAB: char = '\u{e004}';
const ESCAPE: char = '\u{e00c}';
const DOWN: char = '\u{e015}';
/// The number of tasks in the column that is walked through.
const N_WALKED: usize = 300;

fn with_many(n: usize) -> Daemon {
    let daemon = daemon(&["agt"]);
    let mut manifest = String::from("tasks:\n");
    for n in 0..n {
        writeln!(manifest, "  tsk_{n:03}: {{ project: prj, title: task {n}, status: todo }}")
            .unwrap();
    }
    fs::write(daemon.folder().join("many.yaml"), manifest).unwrap();
    daemon.done(&["apply", "many.yaml"]);
    daemon
}

/// Returns the id of the task whose card has the focus.
fn focused_card(browser: &Browser) -> Value {
    browser.run("return document.activeElement.closest('.card')?.dataset.task ?? null")
}

#[test]
fn the_keyboard_walks_a_long_column_and_reaches_the_panel_soon() {
    let daemon = with_many(N_WALKED);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    browser.run("document.querySelector('#column-todo .card-link').focus()");
    let mut walked = BTreeSet::from([focused_card(&browser).to_string()]);
    while walked.len() < N_WALKED {
        // More cards are loaded when the last ones are seen.
        let next = browser.until_some("the next card has the focus", || {
            browser.press(&[DOWN]);
            Some(focused_card(&browser).to_string()).filter(|card| !walked.contains(card))
        });
        walked.insert(next);
    }
    assert!(!walked.contains("null"), "each step is a card");
    browser.go_to("/ui/projects/prj?task=tsk_007");
    browser.find("#panel .task");
    browser.run("document.querySelector('#search').focus()");
    let is_there = || browser.run("return panel.contains(document.activeElement)") == true;
    let mut stops = Vec::new();
    while stops.len() < 30 && !is_there() {
        browser.press(&[TAB]);
        let stop = "return document.activeElement.outerHTML.slice(0, 120)";
        stops.push(browser.run(stop).to_string());
    }
    assert!(stops.len() <= 12, "{stops:#?}");
    assert_quiet(&browser);
}

#[test]
fn the_dialog_for_a_new_task_moves_nothing_and_returns_the_focus() {
    let daemon = with_many(30);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    browser.run(
        "const list = document.querySelector('#column-todo .cards'); list.scrollTop = 200;\
         [...list.querySelectorAll('.card-link')].find(l => l.getBoundingClientRect().top > 300).focus({ preventScroll: true })",
    );
    let place = || {
        browser.run(
            "return [scrollY, ...[...document.querySelectorAll('.cards')].map(l => l.scrollTop)]",
        )
    };
    let (before, card) = (place(), focused_card(&browser));
    assert_ne!(before[2].as_i64().max(before[3].as_i64()), Some(0), "the list is scrolled");
    browser.press(&['n']);
    browser.until("the dialog is open", || browser.run("return dialog.open") == true);
    assert_eq!(place(), before);
    browser.press(&[ESCAPE]);
    browser.until("the focus is back", || focused_card(&browser) == card);
    assert_eq!(place(), before);
}

#[test]
fn a_card_can_be_dragged_to_each_column_that_it_may_go_to() {
    let daemon = daemon(&["agt"]);
    let task = ["task", "add", "--project", "prj", "--id", "tsk", "--assignee", "agt"];
    daemon.done(&[&task[..], &["--title", "a title"]].concat());
    daemon.done(&["stop", "agt", "prj"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.resize(1024, 768);
    let allowed: Vec<String> = {
        browser.go_to("/ui/projects/prj");
        let to = browser.run("return document.querySelector('#card-tsk').dataset.to.split(' ')");
        serde_json::from_value(to).unwrap()
    };
    assert!(allowed.len() >= 3, "{allowed:?}");
    for status in allowed.iter().filter(|status| *status != "todo") {
        daemon.done(&["task", "set", "tsk", "--status", "todo"]);
        // The panel covers columns until something is dragged.
        browser.go_to("/ui/projects/prj?task=tsk");
        browser.find("#panel .task");
        browser.find("#column-todo #card-tsk");
        let hit = browser.run(&format!(
            "const card = document.querySelector('#card-tsk'), column = document.querySelector('#column-{status}');\
             const data = new DataTransfer(), fire = (to, kind) => to.dispatchEvent(new DragEvent(kind, {{ bubbles: true, cancelable: true, dataTransfer: data }}));\
             fire(card, 'dragstart'); column.scrollIntoView({{ inline: 'nearest' }});\
             const box = column.getBoundingClientRect();\
             const under = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);\
             fire(under, 'dragover'); fire(under, 'drop'); fire(card, 'dragend'); return column.contains(under)"
        ));
        assert_eq!(hit, true, "{status}: something covers the column");
        browser.find(&format!("#column-{status} #card-tsk"));
        browser.until("it is stored", || daemon.task_status("tsk") == *status);
    }
}

#[test]
fn the_smallest_phone_shows_all_and_its_targets_are_large() {
    let daemon = busy();
    daemon.done(&[
        "task",
        "set",
        "tsk",
        "--status",
        "blocked",
        "--reason",
        "x".repeat(200).as_str(),
    ]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    for width in [320, 390] {
        browser.emulate_phone(width, 844);
        for page in PAGES {
            go_to(&browser, page);
            let facts = browser.run(
                "const small = [...document.querySelectorAll('.bar .btn, .tabbar a, .states button, .col-tabs .chip')]\
                 .filter(e => e.checkVisibility()).map(e => [e.className, e.getBoundingClientRect()]).filter(([, b]) => b.height < 44 || b.width < 44)\
                 .map(([name, b]) => `${name} ${b.width}x${b.height}`);\
                 return { width: innerWidth, wide: document.documentElement.scrollWidth - innerWidth, small }",
            );
            assert_eq!(facts["width"], width, "{page}");
            assert!(facts["wide"].as_i64().unwrap() <= 0, "{page}: {facts}");
            assert_eq!(facts["small"], json!([]), "{page} at {width}");
        }
    }
    browser.go_to("/ui/launches");
    let cells = browser.run(
        "return [...document.querySelectorAll('tbody .group:first-child + tr :is(.mark, .cost)')]\
         .map(e => { const b = e.getBoundingClientRect(); return e.checkVisibility() && b.width > 0 && b.right <= innerWidth; })",
    );
    assert_eq!(cells, json!([true, true]), "outcome and cost");
}

/// A script for the texts of controls that do not fit in them, and for the width that a page has too
/// much.
const CUT: &str = "
const cut = [...document.querySelectorAll('.btn, .chip, .mark, .seg button, .states button, h1, h2, label, th')]
  .filter(e => e.checkVisibility() && !e.closest('.sr') && !e.classList.contains('cut'))
  .filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && getComputedStyle(e).display !== 'inline' && getComputedStyle(e).overflowX !== 'visible')
  .map(e => `${e.className}: ${e.textContent.trim().slice(0, 40)}`);
return [document.documentElement.scrollWidth > innerWidth ? 'the page is too wide' : null, ...cut].filter(Boolean)";

#[test]
fn larger_text_and_wider_spaces_cut_nothing() {
    let daemon = busy();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    // A zoom of 200 % halves the space of a page.
    browser.emulate_screen(720, 450);
    for page in PAGES {
        go_to(&browser, page);
        assert_eq!(browser.run(CUT), json!([]), "{page} at 200 %");
        // WCAG 2.2, 1.4.12.
        browser.run(
            "const style = document.createElement('style'); style.textContent = '* { line-height: 1.5 !important;\
             letter-spacing: 0.12em !important; word-spacing: 0.16em !important } p { margin-block-end: 2em !important }';\
             document.head.append(style)",
        );
        assert_eq!(browser.run(CUT), json!([]), "{page} with wider spaces");
    }
}

#[test]
fn states_differ_with_the_colours_of_the_reader() {
    let daemon = busy();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let forced = json!({ "features": [{ "name": "forced-colors", "value": "active" }] });
    browser.emulate("setEmulatedMedia", &forced);
    go_to(&browser, "/ui/projects/prj?task=tsk");
    assert_eq!(browser.run("return matchMedia('(forced-colors: active)').matches"), true);
    let shapes = browser.run(
        "return [...document.querySelectorAll('.col-head .st use')].map(use => use.getAttribute('href'))",
    );
    let shapes: BTreeSet<String> = serde_json::from_value(shapes).unwrap();
    assert_eq!(shapes.len(), 6, "each state has a shape of its own: {shapes:?}");
    // The state that a task has differs from the other buttons by more than a colour.
    let looks = browser.run(
        "const buttons = [...document.querySelectorAll('.states button')], on = buttons.find(b => b.getAttribute('aria-pressed') === 'true');\
         const look = b => { const s = getComputedStyle(b); return [s.backgroundColor, s.color, s.borderColor, s.outlineStyle, s.fontWeight].join(); };\
         return [look(on), look(buttons.find(b => b !== on && !b.disabled))]",
    );
    assert_ne!(looks[0], looks[1], "{looks}");
    assert!(browser.find(".side [aria-current]").is_shown());
}

/// Words of outcomes, states, priorities and roles in REST and in the log.
const OTHER_CODES: [&str; 16] = [
    "completed",
    "failed",
    "stopped",
    "exited_without_report",
    "never_authenticated",
    "timed_out",
    "start_failed",
    "lost",
    "starting",
    "running",
    "stopping",
    "ended",
    "urgent",
    "backoff",
    "suspended",
    "operator",
];

#[test]
fn a_japanese_page_has_no_words_of_the_program() {
    let daemon = busy();
    daemon.task("waits", "prj", "idle");
    let Some(browser) = Browser::at(&daemon, "operator", "ja") else {
        return;
    };
    let codes = TaskStatus::ALL.iter().map(|status| status.as_str());
    let codes: Vec<&str> = codes.chain(OTHER_CODES).collect();
    for page in PAGES {
        go_to(&browser, page);
        let words = browser.run(
            "const walker = document.createTreeWalker(document.querySelector('.app'), NodeFilter.SHOW_TEXT), words = new Set();\
             while (walker.nextNode()) { const e = walker.currentNode.parentElement;\
               if (!e.closest('code, pre, kbd, .mono, .id, script, option[value]') && e.checkVisibility()) for (const w of walker.currentNode.data.match(/[a-z_]+/g) ?? []) words.add(w); }\
             return [...words]",
        );
        let words: BTreeSet<String> = serde_json::from_value(words).unwrap();
        let found: Vec<&&str> = codes.iter().filter(|code| words.contains(**code)).collect();
        assert!(found.is_empty(), "{page}: {found:?}");
    }
}

/// The line of a CLI whose agent says `'LINE'`.
const SAYS: &str = r#"{"type":"assistant","session_id":"s","message":{"id":"m","content":[{"type":"text","text":"line 'LINE'"}]}}"#;

#[test]
fn an_agent_that_prints_much_changes_its_card_once_a_second_at_most() {
    check_calm(SAYS);
}

#[test]
fn a_program_that_prints_plain_text_is_on_its_card_like_any_other() {
    check_calm("line 'LINE'");
}

#[test]
fn a_line_is_on_its_card_within_a_second() {
    let daemon = daemon(&[]);
    let says = "run:while [ ! -e stop ]; do \
        if [ -e say ]; then rm say; echo \"printed $(date +%s%3N)\"; fi; sleep 0.02; done";
    daemon.agent("agt", "prj", &["authenticate", "get-my-task", says, "exit:0"]);
    daemon.task("tsk", "prj", "agt");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    browser.until("it runs", || browser.texts("#card-tsk .what").concat() == "Running");
    browser.run(
        "window.seen = 0; window.waits = []; window.lastAt = performance.now();\
         new MutationObserver(() => {\
           window.lastAt = performance.now();\
           const at = Number(/printed (\\d+)/.exec(document.querySelector('#card-tsk .what')?.textContent)?.[1] ?? 0);\
           if (at > window.seen) { window.seen = at; window.waits.push(Date.now() - at); }\
         }).observe(document.querySelector('#column-in_progress .cards'), { childList: true })",
    );
    for n in 1..=3 {
        browser.until("the card has been quiet for a second", || {
            browser.run("return performance.now() - window.lastAt > 1000") == true
        });
        fs::write(daemon.work().join("say"), "").unwrap();
        browser.until("the line is on the card", || browser.run("return window.waits.length") == n);
    }
    let waits: Vec<u64> = serde_json::from_value(browser.run("return window.waits")).unwrap();
    fs::write(daemon.work().join("stop"), "").unwrap();
    println!("a line was on its card after {waits:?} ms");
    assert!(waits.iter().all(|wait| *wait < 1_000), "{waits:?}");
}

/// Checks the card of an agent that prints this line 200 times a second.
fn check_calm(line: &str) {
    let daemon = daemon(&[]);
    let prints = "run:n=0; while [ ! -e stop ]; do n=$((n + 1)); echo 'TEXT'; sleep 0.005; done";
    let prints = prints.replace("TEXT", &line.replace("LINE", "$n"));
    daemon.agent("agt", "prj", &["authenticate", "get-my-task", &prints, "exit:0"]);
    daemon.task("tsk", "prj", "agt");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    browser.until("its line is on the card", || {
        browser.texts("#card-tsk .what").concat().starts_with("line ")
    });
    // A card is put in the place of the one before. Its clock, which goes on by itself, does not
    // count.
    browser.run(
        "window.changes = []; new MutationObserver(() => window.changes.push(performance.now()))\
         .observe(document.querySelector('#column-in_progress .cards'), { childList: true })",
    );
    browser.until("it changed four times", || {
        browser.run("return window.changes.length >= 4") == true
    });
    let gaps = browser.run("return window.changes.slice(1).map((t, n) => t - window.changes[n])");
    let gaps: Vec<f64> = serde_json::from_value(gaps).unwrap();
    // Some changes of one answer follow each other at once.
    let n_changes = 1 + gaps.iter().filter(|gap| **gap > 50.0).count();
    let seconds = gaps.iter().sum::<f64>() / 1_000.0;
    #[allow(clippy::cast_precision_loss, reason = "a few changes")]
    let is_calm = n_changes as f64 <= seconds + 1.5;
    assert!(is_calm, "{n_changes} changes in {seconds} s: {gaps:?}");
    fs::write(daemon.work().join("stop"), "").unwrap();
}

#[test]
fn a_page_that_is_not_there_keeps_the_way_back() {
    let daemon = busy();
    let Some(browser) = Browser::at(&daemon, "viewer", "en") else {
        return;
    };
    for page in ["/ui/tasks/PRJ-999", "/ui/projects/none", "/ui/nothing"] {
        browser.go_to(page);
        assert!(browser.find("#side").is_shown(), "{page}");
        browser.find("#side a[href='/ui/projects/prj']").click();
        browser.until("the board is there", || browser.path() == "/ui/projects/prj");
    }
}
