//! Trouble while people use the page: a lost connection, two people at one field, a login that ends,
//! and things that are gone. Nothing that was written is lost.

use std::net::TcpListener;

use serde_json::{Value, json};

use super::browser::Browser;
use super::{assert_quiet, daemon};
use crate::daemon::{Daemon, IN_A_FILE};
use crate::support::until;

/// Starts a daemon whose port and state a restart keeps, with project `prj`, agent `agt` and task
/// `tsk`.
fn restartable() -> Daemon {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut daemon =
        Daemon::configured(&format!("http: {{ listen: \"127.0.0.1:{port}\" }}\n{IN_A_FILE}"));
    daemon.start();
    daemon.project("prj");
    daemon.agent("agt", "prj", &["authenticate", "chat"]);
    add_task(&daemon);
    daemon
}

fn add_task(daemon: &Daemon) {
    daemon.done(&["task", "add", "--project", "prj", "--id", "tsk", "--title", "one"]);
}

fn field_of(daemon: &Daemon, field: &str) -> Value {
    daemon.json(&["task", "show", "tsk"])[field].clone()
}

/// Sends a form while the daemon is not there, and once more by the button of the note.
fn send_twice(browser: &Browser, daemon: &mut Daemon, send: &str) {
    daemon.terminate();
    browser.run(send);
    let toast = browser.find(".toast.bad .act");
    assert_eq!(toast.text(), "Send again");
    assert!(browser.find(".toast.bad b").text().contains("did not answer"));
    daemon.start();
    // A person can press it, also beside an open dialog.
    toast.click();
    browser.until("the note is gone", || !browser.has(".toast.bad .act"));
}

#[test]
fn what_was_written_while_the_daemon_was_away_is_sent_again_once() {
    let mut daemon = restartable();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    browser.find("[data-new-task]").click();
    browser.find("#new-title").type_in("Written ");
    // The loss of the connection is told when it lasts, and again when it is back.
    browser.until("it is connected", || browser.has("#contact.is-there"));
    assert!(!browser.find("#lost").is_shown());
    browser.run("document.body.dataset.goneAfter = 1; document.body.dataset.lostAfter = 2");
    daemon.terminate();
    browser.until("the contact is lost", || browser.texts("#contact") == ["Reconnecting…"]);
    assert!(!browser.has("#contact.is-there"));
    browser.until("a banner says so", || {
        browser.run("return document.querySelector('#lost').hidden") == false
    });
    browser.find("#new-title").type_in("without a daemon");
    daemon.start();
    browser.until("it is back", || {
        browser.has("#contact.is-there")
            && browser.run("return document.querySelector('#lost').hidden") == true
    });
    assert_eq!(
        browser.run("return document.querySelector('#new-title').value"),
        "Written without a daemon"
    );
    send_twice(&browser, &mut daemon, "document.querySelector('#new-task').requestSubmit()");
    browser.until("its card is there", || {
        browser.texts(".card-link").contains(&"Written without a daemon".to_owned())
    });
    browser.until("the form is closed", || browser.run("return dialog.open") == false);
    assert_eq!(daemon.json(&["task", "list"]).as_array().unwrap().len(), 2);

    browser.go_to("/ui/projects/prj?task=tsk");
    browser.find("#panel .task-title").click();
    browser.find("#edit-title").type_in(" and more");
    send_twice(&browser, &mut daemon, "document.querySelector('#title-tsk').requestSubmit()");
    until("the title is saved", || field_of(&daemon, "title") == "one and more");

    let choose = "document.querySelector('#pick-priority [value=urgent]').click()";
    browser.until("the title is shown", || browser.texts("#panel h2")[0] == "one and more");
    browser.find("#edit-priority").click();
    browser.find("#pick-priority [value=urgent]");
    send_twice(&browser, &mut daemon, choose);
    until("the priority is saved", || field_of(&daemon, "priority") == "urgent");

    browser.find("#comment").type_in("Written twice?");
    send_twice(&browser, &mut daemon, "document.querySelector('#comment-tsk').requestSubmit()");
    until("the comment is kept", || {
        field_of(&daemon, "comments").as_array().is_some_and(|all| all.len() == 1)
    });

    browser.go_to("/ui/projects/prj/edit");
    browser.find(".main .form [name=name]").type_in(" renamed");
    send_twice(&browser, &mut daemon, "document.querySelector('.main .form').requestSubmit()");
    until("the project is saved", || {
        daemon.json(&["project", "show", "prj"])["name"] == "prj renamed"
    });
}

#[test]
fn a_message_that_was_sent_while_the_daemon_was_away_arrives_once() {
    let mut daemon = restartable();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj?chat=agt");
    browser.find("[data-is-ready]");
    browser.find("#say").type_in("are you there?");
    daemon.terminate();
    browser.run("document.querySelector('[data-say]').requestSubmit()");
    browser.until("it is said that it waits", || {
        browser.texts(".is-unsent .sender").concat().contains("Not sent yet")
    });
    daemon.start();
    browser.until("it is sent", || {
        !browser.has(".is-unsent") && browser.texts(".message.is-ours .prose").len() == 1
    });
    let of_people =
        || daemon.mirrored("agt").iter().filter(|line| line["senderId"] == "user").count();
    until("it is written down", || of_people() > 0);
    browser.until("it is answered", || browser.texts(".message:not(.is-ours)").len() == 1);
    assert_eq!(of_people(), 1);
}

#[test]
fn two_people_at_one_field_compare_and_decide() {
    let daemon = daemon(&["agt"]);
    add_task(&daemon);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let write = |text: &str| {
        browser.find("#panel .task-title").click();
        browser.find("#edit-title");
        browser.run(&format!(
            "const field = document.querySelector('#edit-title'); field.focus(); field.value = {};\
             field.dispatchEvent(new Event('input', {{ bubbles: true }}))",
            json!(text)
        ));
    };
    let send = || browser.run("document.querySelector('#title-tsk').requestSubmit()");
    browser.go_to("/ui/projects/prj?task=tsk");
    write("mine");
    daemon.done(&["task", "set", "tsk", "--title", "theirs שלום"]);
    browser.until("the panel shows it", || browser.texts("#panel .task-title") == ["theirs שלום"]);
    send();
    browser.find(".was-changed .btn");
    let told = browser.texts(".was-changed b").concat();
    assert!(told.ends_with(" saved this while you were writing."), "{told}");
    assert!(!browser.has(".toast"));
    assert_eq!(browser.run("return document.activeElement.className"), "call wait was-changed");
    assert_eq!(browser.run("return document.querySelector('#edit-title').value"), "mine");
    browser.run("[...document.querySelectorAll('.was-changed .btn')].at(0).click()");
    assert_eq!(browser.texts(".was-changed dt"), ["Title · saved version"]);
    assert_eq!(browser.texts(".was-changed dd"), ["theirs שלום"]);
    assert_eq!(field_of(&daemon, "title"), "theirs שלום");
    browser.find(".was-changed .primary").click();
    until("mine is saved", || field_of(&daemon, "title") == "mine");
    browser.until("the note is gone", || !browser.has(".was-changed"));

    // The same text from both is no conflict.
    browser.until("it is shown", || browser.texts("#panel .task-title") == ["mine"]);
    write("both");
    daemon.done(&["task", "set", "tsk", "--title", "both"]);
    send();
    let is_shown = "return document.querySelector('#edit-title').checkVisibility()";
    browser.until("it is saved", || browser.run(is_shown) == false);
    assert!(!browser.has(".was-changed, .toast"));

    // A property that both change at once.
    browser.find("#edit-priority").click();
    browser.find("#pick-priority [value=low]");
    browser.run("document.querySelector('#pick-priority [name=revision]').value = 1");
    browser.find("#pick-priority [value=low]").click();
    browser.find(".props .was-changed .primary").click();
    until("it is saved", || field_of(&daemon, "priority") == "low");
    browser.until("the note is gone", || !browser.has(".was-changed"));
    browser.until("it is shown", || browser.texts("#edit-priority") == ["Low"]);
}

#[test]
fn two_people_at_the_form_of_a_project_or_an_agent_compare_and_decide() {
    let daemon = daemon(&["agt"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let name = || daemon.json(&["project", "show", "prj"])["name"].clone();
    browser.go_to("/ui/projects/prj/edit");
    browser.run("document.querySelector('.main .form [name=name]').value = 'mine'");
    daemon.done(&["project", "set", "prj", "--name", "theirs"]);
    browser.run("document.querySelector('.main .form').requestSubmit()");
    browser.find(".was-changed .btn").click();
    assert_eq!(browser.texts(".was-changed dd"), ["theirs"]);
    assert_eq!(name(), "theirs");
    browser.find(".was-changed .primary").click();
    until("mine is saved", || name() == "mine");
    browser.until("the form is left", || browser.path() == "/ui/projects/prj");

    // A new passkey on the same page is no change of another person.
    browser.go_to("/ui/agents/agt");
    browser.run("document.querySelector('[hx-post$=passkey]').requestSubmit()");
    browser.find("#passkey .secret");
    browser.find(".main .form [name=name]").type_in(" of mine");
    browser.run(
        "addEventListener('beforeunload', e => sessionStorage.setItem('asks', e.defaultPrevented))",
    );
    browser.run("document.querySelector('.main .form').requestSubmit()");
    browser.until("the form is left", || browser.path() == "/ui/agents");
    assert_eq!(browser.run("return sessionStorage.getItem('asks')"), "false", "it is saved");
    browser.go_to("/ui/agents/agt");
    browser.run("document.querySelector('.main .form [name=name]').value = 'mine again'");
    daemon.done(&["agent", "set", "agt", "--name", "theirs"]);
    browser.run("document.querySelector('.main .form').requestSubmit()");
    browser.find(".was-changed .btn").click();
    assert_eq!(browser.texts(".was-changed dd"), ["theirs"]);
    browser.find(".was-changed .primary").click();
    until("mine is saved", || daemon.json(&["agent", "show", "agt"])["name"] == "mine again");
}

#[test]
fn a_link_whose_button_is_clicked_twice_logs_in() {
    let daemon = daemon(&["agt"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    for _ in 0..3 {
        let link = daemon.done(&["login", "--role", "operator"]);
        browser.go_to(&link[link.find("/login").unwrap()..]);
        browser.run(
            "const button = document.querySelector('main button'); button.click(); button.click()",
        );
        browser.until("it is logged in", || browser.path() == "/ui/projects");
    }
}

/// Ends the logins of all browsers.
fn end_logins(daemon: &Daemon) {
    for login in daemon.json(&["token", "list"]).as_array().unwrap() {
        daemon.done(&["token", "revoke", login["id"].as_str().unwrap()]);
    }
}

#[test]
fn a_login_that_ends_in_an_open_tab_loses_nothing_and_leads_back() {
    let daemon = daemon(&["agt"]);
    add_task(&daemon);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj?task=tsk");
    browser.find("#panel .task");
    browser.find("[data-new-task]").click();
    browser.find("#new-title").type_in("Still here");
    // The stream of events ends, and the reader is told without a click.
    end_logins(&daemon);
    browser.find("#login-again[open]");
    assert!(browser.find("#login-again h2").text().contains("Your session has expired"));
    browser.find("#login-link").type_in("nonsense");
    browser.find("#login-again .primary").click();
    browser.until("the link is refused", || browser.find("#login-link-e").is_shown());
    let link = daemon.done(&["login", "--role", "operator"]);
    browser.run(&format!("document.querySelector('#login-link').value = {}", json!(link.trim())));
    browser.find("#login-again .primary").click();
    browser.until("it goes on", || !browser.has("#login-again[open]"));
    assert_eq!(browser.run("return document.querySelector('#new-title').value"), "Still here");
    assert_eq!(browser.run("return location.search"), "?task=tsk");
    browser.find("#new-task .primary").click();
    browser.until("the news come, too", || {
        browser.texts(".card-link").contains(&"Still here".to_owned())
    });

    // A click that answers 401 says the same.
    end_logins(&daemon);
    browser.find("#login-again[open]");
    browser.run("loginAgain.close(); document.querySelector('#card-tsk .card-link').click()");
    browser.find("#login-again[open]");

    // A page that is opened without a login comes after it.
    browser.go_to("/ui/projects/prj?task=tsk");
    browser.until("it asks", || browser.path() == "/login");
    let link = daemon.done(&["login", "--role", "operator"]);
    browser.go_to(&link.trim()[browser.base.len()..]);
    browser.find("button.primary").click();
    browser.until("it is the page", || browser.path() == "/ui/projects/prj");
    browser.find("#panel [data-shows-task=tsk]");
}

#[test]
fn what_is_gone_says_so_and_keeps_the_way_back() {
    let daemon = daemon(&["agt"]);
    add_task(&daemon);
    daemon.done(&["task", "add", "--project", "prj", "--id", "gone", "--title", "gone"]);
    daemon.done(&["task", "set", "gone", "--status", "cancelled"]);
    daemon.project("old");
    daemon.done(&["task", "add", "--project", "old", "--id", "kept", "--title", "kept"]);
    daemon.done(&["task", "set", "kept", "--status", "cancelled"]);
    daemon.done(&["project", "archive", "old"]);
    let Some(browser) = Browser::at(&daemon, "operator", "ja") else {
        return;
    };
    browser.go_to("/ui/projects/old");
    assert!(browser.find("#archived").text().contains("アーカイブ済み"));
    browser.go_to("/ui/projects/old?task=kept");
    browser.find("#panel [data-shows-task=kept]");
    // A task of a panel that is deleted elsewhere closes the panel.
    browser.go_to("/ui/projects/prj?task=gone");
    browser.find("#panel .task");
    daemon.done(&["task", "delete", "gone", "--yes"]);
    browser.until("its card is gone", || !browser.has("#card-gone"));
    browser.until("its panel is closed", || !browser.has("#panel .task"));
    for address in ["/ui/tasks/gone", "/ui/tasks/PRJ-2"] {
        browser.go_to(address);
        let told = browser.find("main .call").text();
        assert!(told.contains("が見つかりません"), "{address}: {told}");
        browser.find("#side a[href='/ui/projects/prj']");
    }
    assert!(browser.find("main .call").text().contains("タスク PRJ-2 が"));
    browser.find("main .btn[href='/ui/projects/prj']").click();
    browser.until("it is the board", || browser.path() == "/ui/projects/prj");
    browser.go_to("/ui/projects/prj?task=gone");
    browser.until("it is told", || {
        browser.texts(".toast.bad, #panel").concat().contains("タスク gone が見つかりません")
    });
    browser.find("#card-tsk");
}

#[test]
fn a_long_diff_shows_its_first_lines_and_more_on_demand() {
    use crate::http::changes::{shop, until_kept};
    let daemon = shop(
        "http: { listen: \"127.0.0.1:0\" }",
        &[
            "authenticate",
            "get-my-task",
            "run:seq 1 700000 >long.txt; head -c 3000000 /dev/zero >aa.bin; echo a >a.txt",
            "run:git add . && git commit --quiet -m work",
            "report:success",
        ],
    );
    daemon.task("tsk", "shop", "agt");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    until_kept(&daemon, "tsk");
    browser.go_to("/ui/projects/shop?task=tsk&tab=changes");
    let rows = || browser.run("return document.querySelectorAll('.diff tr').length");
    browser.until("the changes are there", || browser.texts(".changes .box code").len() >= 2);
    assert!(rows().as_u64().unwrap() < 500, "{}", rows());
    let files = browser.texts(".changes .box summary");
    assert_eq!(files.iter().filter(|file| file.contains("Binary")).count(), 1, "{files:?}");
    // It is cut at 5 MiB, and names the command that shows all.
    assert!(browser.texts(".changes .reason").concat().contains("task diff"));
    let before = rows().as_u64().unwrap();
    browser.run("document.querySelectorAll('.changes .box').forEach(box => { box.open = true; })");
    browser.find(".more-lines button").click();
    browser.until("more are shown", || rows() == before + 2_000);
    let last = browser.texts(".diff tr:not(.more-lines) td:last-child");
    assert_eq!(last.last().unwrap(), "2399");
    // The tab answers at once.
    let took = browser.run_async(
        "const began = performance.now(); requestAnimationFrame(() => requestAnimationFrame(() => arguments[arguments.length - 1](performance.now() - began)))",
    );
    assert!(took.as_f64().unwrap() < 1_000.0, "{took}");
    assert_quiet(&browser);
}

#[test]
fn a_part_that_takes_long_or_fails_says_so_in_its_place() {
    let daemon = daemon(&["agt"]);
    add_task(&daemon);
    daemon.done(&["task", "add", "--project", "prj", "--id", "two", "--title", "two"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    let click = |task: &str| {
        browser.run(&format!("document.querySelector('#card-{task} .card-link').click()"));
    };
    // The answers to requests wait until they are let go.
    browser.run(
        "window.ask = window.fetch; window.held = [];\
         const later = request => done => held.push(() => done(ask(...request)));\
         window.hold = () => { window.fetch = (...request) => new Promise(later(request)); };\
         window.letGo = () => { window.fetch = ask; held.splice(0).forEach(go => go()); };\
         hold()",
    );
    click("tsk");
    browser.find("#panel[aria-busy=true] .skeleton span");
    browser.run("window.letGo()");
    browser.until("the task is there", || browser.texts("#panel .task-title") == ["one"]);
    assert!(!browser.has("#panel .skeleton, #panel[aria-busy]"));
    // What is there stays until the next one is.
    browser.run("document.body.dataset.skeletonAfter = 0; hold()");
    click("two");
    let later = "setTimeout(() => setTimeout(arguments[arguments.length - 1]))";
    browser.run_async(later);
    assert_eq!(browser.texts("#panel .task-title"), ["one"]);
    browser.run("window.letGo()");
    browser.until("the other is there", || browser.texts("#panel .task-title") == ["two"]);

    browser.find("#panel [data-close]").click();
    browser.run("window.fetch = () => Promise.reject(new TypeError('no connection'))");
    click("tsk");
    let note = browser.find("#panel .failed");
    assert!(note.text().contains("did not answer"), "{}", note.text());
    assert!(!browser.has(".toast"));
    browser.run("window.fetch = window.ask");
    browser.find("#panel .failed .btn").click();
    browser.until("it is there", || browser.texts("#panel .task-title") == ["one"]);

    // A dialog that came late has the focus in its first field. One that was closed stays closed.
    let ask = "hold(); document.querySelector('[data-new-task]').click()";
    browser.run(ask);
    browser.find("#dialog[open] .skeleton");
    browser.press(&['\u{e00c}']);
    browser.run("window.letGo()");
    browser.run_async(later);
    assert!(!browser.has("#dialog[open], #dialog > *"));
    browser.run(ask);
    browser.find("#dialog[open] .skeleton");
    browser.run("window.letGo()");
    browser.until("it has the focus", || {
        browser.run("return document.activeElement.id") == "new-title"
    });
}
