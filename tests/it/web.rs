//! The web pages of the real daemon, in a real browser.
#![allow(clippy::unwrap_used, reason = "a test")]

mod acceptance;
mod agents;
mod bad_input;
mod board;
mod board_bar;
mod browser;
mod changes;
mod chat;
mod chat_reading;
mod comments;
mod filters;
mod first_run;
mod frame;
mod inbox;
mod keys;
mod launches;
mod looks;
mod operations;
mod page_parts;
mod palette;
mod panel;
mod path;
mod pictures;
mod removals;
mod settings;
mod styles;
mod task_tabs;
mod transcript;
mod trouble;
mod viewer;
mod waits;

use browser::Browser;

use crate::daemon::Daemon;

/// Starts a daemon with pages, a project `prj` and its agents.
fn daemon(agents: &[&str]) -> Daemon {
    daemon_with(agents, "")
}

/// Returns the same with more settings.
fn daemon_with(agents: &[&str], settings: &str) -> Daemon {
    let settings = format!(
        "http: {{ listen: \"127.0.0.1:0\" }}\nsession: {{ cleanup_interval: 1 }}\n{settings}"
    );
    let daemon = Daemon::running(&settings);
    daemon.project("prj");
    for agent in agents {
        daemon.agent(agent, "prj", &["authenticate", "chat"]);
    }
    daemon
}

/// Checks that the browser refused no action of a page, and that none failed.
#[track_caller]
fn assert_quiet(browser: &Browser) {
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}
