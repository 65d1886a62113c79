//! The pictures of the README. `docs/pictures/make` makes them anew from the real pages of the real
//! daemon. Without it this test only checks the content of the pages.

use std::fs;
use std::path::Path;

use super::browser::Browser;
use crate::daemon::Daemon;

/// The step of an agent that answers every message.
const TALKS: &str = "run:while action=$(call get_next_action --get action); do case $action in \
    get_pending_messages) call get_pending_messages; call respond_chat '{\"content\": \"The form is done and its tests pass. \
    I am at the error messages now; the login page itself waits for the API of agt_backend.\"}' ;; \
    logout) call logout; break ;; esac; done";

#[test]
fn what_the_readme_shows_is_there() {
    let mut daemon = Daemon::configured(
        "http: { listen: \"127.0.0.1:0\" }\nmanifest: manifest.yaml\nmax_concurrent: 4",
    );
    let work = daemon.work();
    let manifest = format!(
        "agents:\n  agt_frontend: {{ name: Frontend developer }}\n  agt_backend: {{ name: Backend developer }}\n  \
         agt_review: {{ name: Reviewer }}\nprojects:\n  prj_shop: {{ name: Web shop, working_directory: {0}, \
         agents: [agt_frontend, agt_backend, agt_review] }}\n  prj_docs: {{ name: Handbook, working_directory: {0}, \
         agents: [agt_review] }}\ntasks:\n  tsk_login: {{ project: prj_shop, title: Login page, assignee: agt_frontend, \
         status: in_progress, priority: high, description: Name and password. Three failures in a row show a captcha. }}\n  \
         tsk_form: {{ project: prj_shop, parent: tsk_login, title: Form with validation, assignee: agt_frontend, status: done }}\n  \
         tsk_errors: {{ project: prj_shop, parent: tsk_login, title: Error messages, assignee: agt_frontend, status: todo }}\n  \
         tsk_api: {{ project: prj_shop, title: Session API, assignee: agt_backend, status: in_progress, priority: urgent }}\n  \
         tsk_cart: {{ project: prj_shop, title: Cart survives a new login, status: backlog, dependencies: [tsk_api] }}\n  \
         tsk_mail: {{ project: prj_shop, title: Order confirmation by mail, assignee: agt_backend, status: blocked }}\n  \
         tsk_terms: {{ project: prj_shop, title: Terms of use, status: todo, priority: low }}\n  \
         tsk_logo: {{ project: prj_shop, title: New logo, status: done }}\n",
        work.display()
    );
    let works = [
        "authenticate",
        "get-my-task",
        "print:reading src/session.rs",
        "print:running 42 tests",
        "print:test sessions_end_with_their_browser ... ok",
        "print:41 passed; 1 failed: tokens_rotate",
        "print:editing src/token.rs",
        "write:ready",
        "sleep:600",
    ];
    daemon.steps("agt_backend", &works);
    daemon.steps("agt_frontend", &["authenticate", TALKS]);
    fs::write(daemon.folder().join("manifest.yaml"), manifest).unwrap();
    daemon.start();
    daemon.written_pid("ready");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.resize(1400, 800);
    browser.go_to("/ui/projects/prj_shop?task=tsk_login");
    browser.find("#panel .task");
    keep(&browser, "board");
    browser.go_to("/ui/projects/prj_shop");
    browser.find("#avatar-agt_frontend").click();
    browser.find("[data-is-ready]");
    browser.find("#say").type_in("How far are you?");
    browser.find("#send").click();
    browser.until("it answers", || browser.texts(".message").len() == 2);
    keep(&browser, "chat");
    let launch = daemon.open("agt_backend")[0]["launch_id"].as_str().unwrap().to_owned();
    browser.go_to(&format!("/ui/launches/{launch}"));
    browser.until("its output is shown", || {
        browser.texts("#transcript").concat().contains("token.rs")
    });
    keep(&browser, "launch");
    browser.run("localStorage.setItem('theme', 'dark')");
    browser.go_to("/ui/operations");
    keep(&browser, "operations");
}

/// Stores the picture if pictures are wanted.
pub(super) fn keep(browser: &Browser, name: &str) {
    let picture = browser.picture();
    assert!(picture.starts_with(b"\x89PNG"));
    if let Some(folder) = std::env::var_os("AGENT_COORDINATOR_PICTURES") {
        fs::write(Path::new(&folder).join(format!("{name}.png")), picture).unwrap();
    }
}
