//! The appearance of the pages: on small and large screens, in light and dark, in both languages,
//! and for viewers.

use serde_json::{Value, json};

use super::browser::Browser;
use super::{assert_quiet, daemon};
use crate::daemon::Daemon;
use crate::http::changes::shop;
use crate::support::until;

pub const PAGES: [&str; 13] = [
    "/ui/inbox",
    "/ui/tasks/tsk",
    "/ui/projects",
    "/ui/projects/prj",
    "/ui/projects/prj?task=tsk",
    "/ui/projects/prj/edit",
    "/ui/agents",
    "/ui/agents/new",
    "/ui/agents?agent=agt&project=prj",
    "/ui/projects/prj/agents/agt",
    "/ui/launches",
    "/ui/operations",
    "/ui/settings",
];

pub fn busy() -> Daemon {
    let daemon = daemon(&["agt", "idle"]);
    fill(&daemon);
    daemon
}

/// Gives `agt` work in project `prj`, and adds other tasks.
pub fn fill(daemon: &Daemon) {
    daemon
        .steps("agt", &["authenticate", "get-my-task", "print:hello", "write:ready", "sleep:600"]);
    daemon.task("tsk", "prj", "agt");
    daemon.done(&[
        "task",
        "add",
        "--project",
        "prj",
        "--priority",
        "urgent",
        "--title",
        "a title that goes on and on until it wraps",
    ]);
    daemon.done(&["task", "add", "--project", "prj", "--parent", "tsk", "--title", "a part of it"]);
    daemon.task("stuck", "prj", "idle");
    daemon.done(&["task", "set", "stuck", "--status", "blocked", "--reason", "which bank?"]);
    daemon.written_pid("ready");
}

/// Returns the addresses of all pages of a daemon with the content of [`fill`], also with what they
/// show in a panel.
pub fn all_pages(daemon: &Daemon) -> Vec<String> {
    let launch = daemon.open("agt")[0]["launch_id"].as_str().unwrap().to_owned();
    let entry = daemon.json(&["inbox"])[0]["id"].as_str().unwrap().to_owned();
    let more = [
        "/ui/projects/prj?chat=agt",
        "/ui/projects/prj/chat/agt",
        "/ui/projects/prj?task=tsk&tab=output",
        "/ui/projects/prj?task=stuck",
        "/ui/projects/new",
        "/ui/agents/agt",
        "/ui/tasks/PRJ-999",
    ];
    let mut pages: Vec<String> = PAGES.into_iter().chain(more).map(str::to_owned).collect();
    pages.push(format!("/ui/launches/{launch}"));
    pages.push(format!("/ui/inbox?item={entry}"));
    pages
}

/// Opens a page of [`all_pages`] and waits until all of it is there.
pub fn go_to(browser: &Browser, page: &str) {
    browser.go_to(page);
    let part = [
        ("tab=output", "#panel .script li"),
        ("tab=changes", "#panel .changes .diff"),
        ("task=", "#panel .task"),
        ("agent=", "#panel .agent"),
        ("chat=", "#panel .chat"),
        ("/ui/launches/", "#transcript li"),
    ];
    if let Some((_, part)) = part.into_iter().find(|(address, _)| page.contains(address)) {
        browser.find(part);
    }
}

#[test]
fn every_page_fits_and_can_be_read_from_a_phone_to_a_wall() {
    let daemon = busy();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    for theme in ["light", "dark"] {
        browser.run(&format!("localStorage.setItem('theme', '{theme}')"));
        for (width, height) in [(360, 740), (1024, 768), (2560, 1300)] {
            browser.run("document.title = ''");
            browser.resize(width, height);
            for page in PAGES {
                go_to(&browser, page);
                let too_wide =
                    browser.run("return document.documentElement.scrollWidth - innerWidth");
                assert!(too_wide.as_i64().unwrap() <= 0, "{page} at {width}: {too_wide} too wide");
                if width != 1024 {
                    continue;
                }
                let faint: Vec<Value> = serde_json::from_value(browser.run(TOO_FAINT)).unwrap();
                assert!(faint.is_empty(), "{page} in {theme}: {faint:#?}");
                let nameless: Vec<Value> = serde_json::from_value(browser.run(NAMELESS)).unwrap();
                assert!(nameless.is_empty(), "{page}: {nameless:#?}");
            }
        }
    }
    assert_quiet(&browser);
}

/// A script for the texts whose contrast is less than WCAG 2.2 AA requires.
pub const TOO_FAINT: &str = r"
const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const rgba = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data; };
const light = (color) => { const [r, g, b] = [0, 1, 2].map(i => color[i] / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const ground = (element) => { for (let e = element; e; e = e.parentElement) { const color = rgba(getComputedStyle(e).backgroundColor); if (color[3] === 255) return color; } return rgba(getComputedStyle(document.body).backgroundColor); };
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), faint = [];
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement, style = getComputedStyle(element);
  if (!walker.currentNode.data.trim() || element.closest('script, template, .sr, :disabled') || !element.checkVisibility()) continue;
  const [a, b] = [light(rgba(style.color)), light(ground(element))].sort((a, b) => b - a);
  const ratio = (a + 0.05) / (b + 0.05), size = parseFloat(style.fontSize);
  const wanted = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
  if (ratio < wanted) faint.push([walker.currentNode.data.trim().slice(0, 40), element.className, ratio.toFixed(2)]);
}
return faint;";

/// A script for the controls that a screen reader couldn't name.
const NAMELESS: &str = r"
return [...document.querySelectorAll('button, a, input:not([type=hidden]), select, textarea')].filter(e =>
  !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).map(e => e.outerHTML.slice(0, 120));";

/// Starts a daemon with a task whose check failed, and printed long lines.
fn with_failed_check() -> Daemon {
    let settings = "http: { listen: \"127.0.0.1:0\" }\nchecks_rounds: 0\n\
        checks: { tests: { command: [sh, -c, 'printf \"%0900d\\n\" 7 7; exit 1'] } }";
    let work = "run:echo new >new.txt; git add . && git commit --quiet -m work";
    let daemon = shop(settings, &["authenticate", "get-my-task", work, "report:success"]);
    daemon.task("tsk", "shop", "agt");
    until("the check has failed", || daemon.task_status("tsk") == "blocked");
    daemon
}

#[test]
fn the_output_of_a_failed_check_stays_in_its_column() {
    let daemon = with_failed_check();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let wide = "const b = document.querySelector('main').getBoundingClientRect();\
        return [document.documentElement.scrollWidth - innerWidth, ...[...document.querySelectorAll('main pre')]\
        .map(e => Math.max(e.getBoundingClientRect().right - b.right, e.scrollWidth - e.clientWidth))]";
    for page in ["/ui/tasks/tsk?tab=changes", "/ui/projects/shop?task=tsk&tab=changes"] {
        for (width, is_phone) in [(320, true), (390, true), (1024, false), (1440, false)] {
            if is_phone {
                browser.emulate_phone(width, 844);
            } else {
                browser.emulate_screen(width, 900);
            }
            browser.go_to(page);
            assert!(browser.find(".task .list pre").text().contains("0000007"));
            let too_wide: Vec<f64> = serde_json::from_value(browser.run(wide)).unwrap();
            assert!(too_wide.iter().all(|wide| *wide <= 0.0), "{page} at {width}: {too_wide:?}");
        }
    }
}

#[test]
fn a_page_speaks_the_language_that_its_reader_chooses() {
    let daemon = busy();
    let Some(browser) = Browser::at(&daemon, "operator", "ja") else {
        return;
    };
    for page in PAGES {
        go_to(&browser, page);
        assert_eq!(browser.run("return document.documentElement.lang"), "ja");
    }
    browser.go_to("/ui/projects/prj");
    assert!(browser.texts(".col h2").concat().contains("進行中"));
    browser.go_to("/ui/settings");
    browser.find("button[lang=en]").click();
    browser.until("it is English", || browser.run("return document.documentElement.lang") == "en");
    assert_eq!(browser.path(), "/ui/settings");
    assert_quiet(&browser);
}

#[test]
fn problems_are_told_in_the_language_of_the_page_and_name_their_object() {
    let daemon = busy();
    let Some(browser) = Browser::at(&daemon, "operator", "ja") else {
        return;
    };
    browser.go_to("/ui/projects/no-such-project");
    let page = browser.texts("main").concat();
    assert!(page.contains("プロジェクト no-such-project が見つかりません"), "{page}");
    let problem = browser.run_async(
        "fetch('/ui/do/tasks/no-such-task/status', { method: 'POST', body: new URLSearchParams({ status: 'done' }) })\
         .then(r => r.json()).then(arguments[arguments.length - 1])",
    );
    assert_eq!(problem["code"], "task_not_found", "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("タスク no-such-task が見つかりません"), "{problem}");
}

#[test]
fn a_viewer_sees_everything_and_is_offered_nothing_to_change() {
    let daemon = busy();
    let Some(browser) = Browser::at(&daemon, "viewer", "en") else {
        return;
    };
    for page in PAGES.into_iter().filter(|page| !page.ends_with("/edit") && !page.ends_with("/new"))
    {
        go_to(&browser, page);
        let offered = browser.run(
            "return [...document.querySelectorAll('main form:not([role=search], .seg, [action=\"/logout\"]), .btn.primary, [hx-post], [draggable=true]')].filter(e => !e.closest('#login-again')).map(e => e.outerHTML)",
        );
        assert_eq!(offered, json!([]), "{page}");
    }
    browser.go_to("/ui/projects/prj");
    let status = browser.run_async(
        "fetch('/ui/do/tasks/tsk/status', { method: 'POST', body: new URLSearchParams({ status: 'done' }) })\
         .then(r => arguments[arguments.length - 1](r.status))",
    );
    assert_eq!(status, 403);
    assert_eq!(daemon.task_status("tsk"), "in_progress");
}

#[test]
fn what_happens_to_an_agent_is_seen_on_its_pages_without_a_reload() {
    let daemon = busy();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let launch = daemon.open("agt")[0]["launch_id"].as_str().unwrap().to_owned();
    browser.go_to(&format!("/ui/launches/{launch}"));
    browser
        .until("its output is shown", || browser.texts("#transcript").concat().contains("hello"));
    browser.find("#launch .danger").click();
    browser.find("#sure[open] .danger").click();
    browser.until("its end is shown", || browser.has("#launch [data-state=ended]"));
    browser.go_to("/ui/operations");
    browser.until("it is held", || {
        browser.texts("#operations li").iter().any(|text| text.contains(" stopped it since "))
    });
    browser.go_to("/ui/projects/prj/agents/agt");
    browser.find("#why .btn.primary").click();
    browser.until("it is started again", || daemon.open("agt").len() == 1);
    assert_quiet(&browser);
}
