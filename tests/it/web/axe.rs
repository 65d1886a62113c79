//! The rules of axe-core on every screen: each page, each part in a panel, each dialog, the login and
//! the first run. Each is checked in light and dark, in both languages, and on a phone.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use super::browser::Browser;
use super::looks::{all_pages, fill, go_to};
use crate::daemon::Daemon;
use crate::http::changes::{WORKS, shop, until_kept};
use crate::support::skip;

const LISTENING: &str = "http: { listen: \"127.0.0.1:0\" }";

/// A theme, a language, and whether the screen is that of a phone, which comes last.
type Look = (&'static str, &'static str, bool);

const LOOKS: [Look; 3] = [("light", "en", false), ("dark", "en", false), ("dark", "ja", true)];

/// What opens on a page: the page, the script that opens it, and the selector of what opens.
const OPENED: [(&str, &str, &str); 10] = [
    ("/ui/projects/prj", "document.querySelector('.bar [data-new-task]').click()", "#new-task"),
    ("", "document.querySelector('#new-task').requestSubmit()", "#new-task .error"),
    (
        "/ui/projects/prj",
        "document.querySelector('[data-open-palette]').click()",
        "#found [role=option]",
    ),
    ("/ui/projects/prj", "askLogin()", "#login-again[open]"),
    (
        "/ui/projects/prj",
        "htmx.ajax('GET', '/ui/parts/keys', { target: '#dialog' })",
        "#dialog #keys-heading",
    ),
    (
        "/ui/projects/prj",
        "toast('One'); toast('Two', { isBad: false, action: { text: 'Three' } })",
        ".toast.bad",
    ),
    ("/ui/tasks/tsk", "document.querySelector('[hx-get*=removals]').click()", "#removal"),
    (
        "/ui/projects/prj?task=tsk",
        "document.querySelector('[data-asks-reason]').click(); document.querySelectorAll('[data-edits]').forEach(e => e.click())",
        "#edit-tsk:not([hidden])",
    ),
    ("/ui/operations", "document.querySelector('#stop-all').click()", "#question"),
    ("/ui/agents", "document.querySelector('#agents [hx-confirm]').click()", "#sure[open]"),
];

/// A script that returns the findings of axe-core on the page, with an example of each. The initials
/// of an agent are a picture of it, so the name of a button with them need not contain them.
const FINDINGS: &str = "
const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'], done = arguments[arguments.length - 1];
const rules = { 'label-content-name-mismatch': { enabled: false } };
axe.run(document, { runOnly: tags, rules, resultTypes: ['violations'] }).then(r => done(r.violations.map(v => [v.id, v.nodes.length, v.nodes[0].html])));";

/// Starts a daemon that has something on each screen.
fn furnished() -> Daemon {
    let daemon = shop(LISTENING, &WORKS);
    daemon.task("changed", "shop", "agt");
    until_kept(&daemon, "changed");
    daemon.project("prj");
    daemon.agent("idle", "prj", &["authenticate", "chat"]);
    daemon.done(&["project", "set", "prj", "--assign", "agt"]);
    daemon.project("empty");
    daemon.project("old");
    daemon.done(&["project", "archive", "old"]);
    fill(&daemon);
    daemon
}

fn choose(browser: &Browser, (theme, language, is_phone): Look) {
    browser.run(&format!(
        "localStorage.setItem('theme', '{theme}'); document.cookie = 'agent_coordinator_language={language};path=/'"
    ));
    if is_phone {
        browser.emulate_phone(390, 844);
    } else {
        browser.emulate_screen(1440, 900);
    }
}

/// Returns what axe-core finds on the open screen.
fn find(browser: &Browser, what: &str, look: Look) -> Option<String> {
    let found = browser.run_async(FINDINGS);
    (found != json!([])).then(|| format!("{what} {look:?}: {found}"))
}

#[test]
fn axe_finds_nothing_on_any_screen() {
    let sdks = std::env::var_os("AGENT_COORDINATOR_TEST_SDKS").map(PathBuf::from);
    let Some(sdks) = sdks else {
        skip("AGENT_COORDINATOR_TEST_SDKS names no folder with axe-core");
        return;
    };
    let axe = fs::read_to_string(sdks.join("node_modules/axe-core/axe.min.js")).unwrap();
    let daemon = furnished();
    let Some(mut browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.add_script(&axe);
    let mut pages = all_pages(&daemon);
    let others = ["/ui/projects/shop?task=changed&tab=changes", "/ui/projects/empty"];
    pages.extend(others.map(str::to_owned));
    pages.extend(
        ["/ui/projects/old", "/ui/nothing", "/login", "/login?link=unknown"].map(str::to_owned),
    );
    let mut wrong = Vec::new();
    for look in LOOKS {
        browser.go_to("/ui/settings");
        choose(&browser, look);
        for page in &pages {
            go_to(&browser, page);
            wrong.extend(find(&browser, page, look));
        }
        // A dialog has the same colours on a phone.
        for (page, opens, opened) in OPENED.into_iter().filter(|_| look != LOOKS[1]) {
            if !page.is_empty() {
                go_to(&browser, page);
            }
            browser.run(opens);
            browser.find(opened);
            wrong.extend(find(&browser, opened, look));
        }
        browser.run("for (const e of document.querySelectorAll('[data-is-written]')) e.removeAttribute('data-is-written')");
    }
    // The steps of the first run, one after the other.
    let new = Daemon::running(LISTENING);
    browser.log_in(&new, &[]);
    let mut check_steps = |selector: &str| {
        for look in LOOKS {
            choose(&browser, look);
            browser.go_to("/ui/projects");
            browser.find(selector);
            wrong.extend(find(&browser, selector, look));
        }
    };
    check_steps(".step.is-next [name=working_directory]");
    new.project("prj");
    check_steps(".choice input");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
