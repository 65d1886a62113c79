//! The page as people use it: with the keyboard alone, on the smallest phone, with larger text, and
//! while an agent prints much.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use domain::{Language, Outcome, Purpose, StopReason, TaskStatus};
use serde_json::{Value, json};

use super::browser::Browser;
use super::looks::{all_pages, busy, go_to};
use super::{assert_quiet, daemon};
use crate::daemon::Daemon;

const PRINTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/output/claude.jsonl");

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
    let active = || browser.run("return document.activeElement.id");
    let title = || browser.run("return document.querySelector('#new-title').value");
    let check_open = |written: &str| {
        browser.until("the title has the focus", || active() == "new-title");
        assert_eq!((place(), title()), (before.clone(), json!(written)));
    };
    browser.press(&['n']);
    check_open("");
    browser.find("#new-title").type_in("half a thought");
    browser.press(&[ESCAPE]);
    browser.until("the focus is back", || focused_card(&browser) == card);
    assert_eq!(place(), before);
    browser.find(".bar [data-new-task]").click();
    check_open("half a thought");
    browser.press(&[ESCAPE]);
    browser.until("the button has the focus again", || {
        browser.run("return document.activeElement.matches('.bar [data-new-task]')") == true
    });
    assert_eq!(place(), before);
}

#[test]
fn the_last_card_of_a_column_is_dragged_to_each_column_that_it_may_go_to() {
    let daemon = with_many(30);
    daemon.done(&["stop", "agt", "prj"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.emulate_screen(1024, 768);
    let cards =
        "return [...document.querySelectorAll('#column-todo .card')].map(c => c.dataset.task)";
    let cards = || serde_json::from_value::<Vec<String>>(browser.run(cards)).unwrap();
    browser.go_to("/ui/projects/prj");
    let allowed =
        browser.run("return document.querySelector('#column-todo .card').dataset.to.split(' ')");
    let allowed: Vec<String> = serde_json::from_value(allowed).unwrap();
    assert_eq!(allowed, ["backlog", "in_progress", "blocked", "done", "cancelled"]);
    // The panel covers columns until something is dragged.
    browser.find("#column-todo .card-link").click();
    browser.find("#panel .task");
    for status in &allowed {
        let task = cards().pop().unwrap();
        // A task without an agent can't begin.
        if status == "in_progress" {
            daemon.done(&["task", "set", &task, "--assignee", "agt"]);
            browser.find(&format!("#card-{task} .avatar"));
        }
        browser.run(
            "const list = document.querySelector('#column-todo .cards'); list.scrollTop = list.scrollHeight",
        );
        browser.drag(&format!("#card-{task}"), &format!("#column-{status}"));
        browser.find(&format!("#column-{status} #card-{task}"));
        browser.until("it is stored", || daemon.task_status(&task) == *status);
        assert!(browser.find("#panel .task").is_shown());
        // The note about it lies over the last cards.
        browser.find(".toast [aria-label=Close]").click();
        browser.until("the note is gone", || !browser.has(".toast"));
    }
    // The daemon refuses a task without an agent, and a cancelled task is reopened first.
    let shown = cards();
    let task = shown.last().unwrap();
    browser.drag(&format!("#card-{task}"), "#column-in_progress");
    browser.find(".toast.bad");
    browser.until("it is back in its place", || cards() == shown);
    assert_eq!(daemon.task_status(task), "todo");
    browser.find(".toast [aria-label=Close]").click();
    browser.until("the note is gone", || !browser.has(".toast"));
    let cancelled = "return document.querySelector('#column-cancelled .card').dataset.to";
    assert_eq!(browser.run(cancelled), "todo");
    assert!(!browser.has(".is-dragged, .is-open-for, .is-refused, .is-away"));
}

/// A script for the targets that are smaller than a thumb, and for the width that a page has too much.
const SMALL: &str = "
const targets = [...document.querySelectorAll('.bar :is(a, button, summary), .tabbar > *, .states button, .col-tabs .chip')];
const boxes = targets.filter(e => e.checkVisibility()).map(e => [e.outerHTML.slice(0, 120), e.getBoundingClientRect()]);
return { width: innerWidth, wide: document.documentElement.scrollWidth - innerWidth,
  small: boxes.filter(([, b]) => b.height < 44 || b.width < 44).map(([name, b]) => `${b.width}x${b.height} ${name}`) }";

/// A script that returns whether all of these elements are seen on the screen, across its width.
const ARE_SEEN: &str = "const all = [...document.querySelectorAll(SELECTOR)];
return all.length > 0 && all.every(e => { const b = e.getBoundingClientRect(); return e.checkVisibility() && e.textContent.trim() !== '' && b.width > 0 && b.left >= 0 && b.right <= innerWidth; })";

#[test]
fn the_smallest_phone_shows_all_and_its_targets_are_large() {
    let daemon = busy();
    let reason = "x".repeat(200);
    daemon.done(&["task", "set", "tsk", "--status", "blocked", "--reason", &reason]);
    let print = format!("run:cat {PRINTED}");
    daemon.agent("paid", "prj", &["authenticate", "get-my-task", &print, "report:failed"]);
    daemon.task("costs", "prj", "paid");
    let ended = daemon.until_ended("paid")["launch_id"].as_str().unwrap().to_owned();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let pages = all_pages(&daemon);
    for width in [320, 390] {
        browser.emulate_phone(width, 844);
        let mut wrong = Vec::new();
        for page in &pages {
            go_to(&browser, page);
            let facts = browser.run(SMALL);
            assert_eq!(facts["width"], width, "{page}");
            if facts["wide"].as_i64().unwrap() > 0 || facts["small"] != json!([]) {
                wrong.push(format!("{page}: {facts}"));
            }
        }
        assert!(wrong.is_empty(), "at {width}: {wrong:#?}");
        let are_seen = |selector: &str| {
            browser.run(&ARE_SEEN.replace("SELECTOR", &json!(selector).to_string()))
        };
        browser.go_to("/ui/launches");
        assert!(browser.texts("tbody .cost").contains(&"$0.02".to_owned()));
        assert_eq!(
            are_seen("tbody .mark, tbody .cost:not(.is-none)"),
            true,
            "outcome and cost at {width}"
        );
        browser.go_to(&format!("/ui/launches/{ended}"));
        assert_eq!(browser.texts("#ticker-cost"), ["$0.02"]);
        assert_eq!(are_seen("#launch .bar .mark, #ticker-cost"), true, "the same at {width}");
    }
}

/// A script for the texts that are cut off, or stick out of their control. A text that can be
/// scrolled, or that ends in an ellipsis, is not cut.
const CUT: &str = "
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange(), cut = [];
const sticksOut = (text, box) => text.left < box.left - 1 || text.right > box.right + 1 || text.top < box.top - 1 || text.bottom > box.bottom + 1;
while (walker.nextNode()) {
  const node = walker.currentNode;
  if (!node.data.trim() || !node.parentElement.checkVisibility() || node.parentElement.closest('option, script, template')) continue;
  range.selectNodeContents(node);
  const text = range.getBoundingClientRect();
  for (let e = node.parentElement; e && e !== document.documentElement; e = e.parentElement) {
    const style = getComputedStyle(e), flows = [style.overflowX, style.overflowY];
    if (style.clipPath !== 'none' || style.textOverflow === 'ellipsis' || style.webkitLineClamp !== 'none' || flows.some(o => o === 'auto' || o === 'scroll')) break;
    const holds = e.matches('.btn, .chip, .mark, .seg > *, .tabbar > *, th') || flows.some(o => o === 'hidden' || o === 'clip');
    if (holds && sticksOut(text, e.getBoundingClientRect())) { cut.push(`${node.data.trim().slice(0, 40)} in ${e.tagName}.${e.className}`); break; }
  }
}
return [document.documentElement.scrollWidth > innerWidth ? 'the page is too wide' : null, ...cut].filter(Boolean)";

#[test]
fn larger_text_and_wider_spaces_cut_nothing() {
    let daemon = busy();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let pages = all_pages(&daemon);
    // WCAG 2.2, 1.4.12.
    let widen = "const style = document.createElement('style'); style.textContent = '* { line-height: 1.5 !important;\
        letter-spacing: 0.12em !important; word-spacing: 0.16em !important } p { margin-block-end: 2em !important }';\
        document.head.append(style)";
    // A zoom of 200 % halves the space of a page.
    browser.emulate_screen(720, 450);
    for page in &pages {
        go_to(&browser, page);
        assert_eq!(browser.run(CUT), json!([]), "{page} at 200 %");
        browser.run(widen);
        assert_eq!(browser.run(CUT), json!([]), "{page} with wider spaces");
    }
    browser.go_to("/ui/projects/prj");
    browser.find("[data-new-task]");
    browser.run("document.querySelector('.fab').click()");
    browser.find("#new-task");
    assert_eq!(browser.run(CUT), json!([]), "a new task at 200 %");
    browser.run(widen);
    assert_eq!(browser.run(CUT), json!([]), "a new task with wider spaces");
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

/// Returns the words of all enums and the codes of all problems, as REST, the log and the store have
/// them. A new one is among them.
fn codes() -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    let mut open = ["crates/domain/src", "crates/web/src/problem.rs"]
        .map(|path| Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .to_vec();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let source = fs::read_to_string(path).unwrap();
            codes.extend(source.lines().filter_map(code_of));
        }
    }
    codes
}

/// Returns the word of a line such as `Blocked = "blocked",` or `Self::Lost => "lost",`.
fn code_of(line: &str) -> Option<String> {
    let line = line.trim();
    let (variant, rest) = line.split_once(" => ").or_else(|| line.split_once(" = "))?;
    let word = rest.strip_prefix('"')?.strip_suffix("\",")?;
    let is_variant = variant.starts_with(|c: char| c.is_ascii_uppercase());
    let is_code = word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    (is_variant && is_code && !word.is_empty()).then(|| word.to_owned())
}

/// A script that returns what a reader sees of words in Latin letters, also in tips and names of
/// buttons.
const LATIN: &str = "
const words = new Set(), add = text => { for (const word of text.match(/[\\w-]+/g) ?? []) words.add(word); };
const inert = 'code, pre, kbd, bdi, [dir=auto], .mono, .id, script, template, option';
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) { const e = walker.currentNode.parentElement; if (!e.closest(inert) && e.checkVisibility()) add(walker.currentNode.data); }
for (const e of document.querySelectorAll('[aria-label], [title], [placeholder]')) {
  if (!e.closest(inert) && !e.matches('time')) for (const name of ['aria-label', 'title', 'placeholder']) add(e.getAttribute(name) ?? '');
}
return [...words]";

/// Returns the longest text that a mark of a launch can have.
fn longest_mark(codes: &BTreeSet<String>) -> String {
    let reasons = codes.iter().filter_map(|code| serde_json::from_value(json!(code)).ok());
    let marks = reasons
        .map(|reason: StopReason| Outcome::Stopped(reason).told(Purpose::Task, Language::Japanese));
    marks.max_by_key(|mark| mark.chars().count()).unwrap()
}

/// A script that gives all marks the text `MARK`, and returns those that are not whole in one line.
const BROKEN_MARKS: &str = "
const range = document.createRange();
return [...document.querySelectorAll('.mark')].filter(e => e.checkVisibility()).filter(mark => {
  const text = [...mark.childNodes].filter(n => n.nodeType === Node.TEXT_NODE && n.data.trim()).at(-1);
  if (!text) return false;
  text.data = MARK;
  range.selectNodeContents(text);
  const lines = new Set([...range.getClientRects()].map(r => Math.round(r.top))), box = range.getBoundingClientRect();
  return lines.size > 1 || box.left < 0 || box.right > innerWidth;
}).map(e => e.outerHTML).concat(document.documentElement.scrollWidth > innerWidth ? ['the page is too wide'] : [])";

#[test]
fn a_japanese_page_has_no_words_of_the_program_and_its_longest_marks_fit() {
    let daemon = busy();
    daemon.agent("fails", "prj", &["authenticate", "exit:3"]);
    daemon.task("bad", "prj", "fails");
    daemon.until_ended("fails");
    daemon.task("waits", "prj", "idle");
    let Some(browser) = Browser::at(&daemon, "operator", "ja") else {
        return;
    };
    let codes = codes();
    for code in TaskStatus::ALL.iter().map(|status| status.as_str()).chain(Outcome::BAD) {
        assert!(codes.contains(code), "{code} is read from the source");
    }
    assert!(codes.len() > 150, "{}", codes.len());
    let mark = longest_mark(&codes);
    assert!(mark.chars().count() > 8, "{mark}");
    let broken_marks = BROKEN_MARKS.replace("MARK", &json!(mark).to_string());
    let pages = all_pages(&daemon);
    let mut wrong = Vec::new();
    for page in &pages {
        browser.emulate_screen(1440, 900);
        go_to(&browser, page);
        let words: BTreeSet<String> = serde_json::from_value(browser.run(LATIN)).unwrap();
        // A task has this id.
        let found = words.intersection(&codes).filter(|word| *word != "stuck");
        let found: Vec<&String> = found.collect();
        if !found.is_empty() {
            wrong.push(format!("{page}: {found:?}"));
        }
        for width in [1440, 1024, 390] {
            browser.emulate_screen(width, 900);
            let broken = browser.run(&broken_marks);
            if broken != json!([]) {
                wrong.push(format!("{page} at {width}: {broken}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
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
    let Some(mut browser) = Browser::at(&daemon, "viewer", "en") else {
        return;
    };
    browser.log_in(&daemon, &["--role", "viewer", "--name", "Vera"]);
    for page in ["/ui/tasks/PRJ-999", "/ui/projects/none", "/ui/nothing"] {
        browser.go_to(page);
        assert!(browser.find("#side").is_shown(), "{page}");
        let person = browser.find("#side a[href$='#you']").text();
        assert!(person.contains("Vera"), "{page}: {person}");
        browser.find("#side a[href='/ui/projects/prj']").click();
        browser.until("the board is there", || browser.path() == "/ui/projects/prj");
    }
}
