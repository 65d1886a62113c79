//! The board: changes appear without a reload, and cards are moved by hand and by keyboard.

use std::fmt::Write as _;
use std::fs;

use serde_json::json;

use super::browser::Browser;
use super::{assert_quiet, daemon};

const SHIFT: char = '\u{e008}';
const LEFT: char = '\u{e012}';
const RIGHT: char = '\u{e014}';

#[test]
fn a_task_that_is_moved_elsewhere_is_seen_to_move() {
    let daemon = daemon(&["agt"]);
    daemon.done(&["task", "add", "--project", "prj", "--id", "tsk", "--title", "a title"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    assert_eq!(browser.texts("#column-todo .card .card-link"), ["a title"]);
    daemon.done(&["task", "set", "tsk", "--status", "backlog"]);
    browser.find("#column-backlog #card-tsk");
    assert_eq!(
        browser.texts("#column-todo .col-head .count, #column-backlog .col-head .count"),
        ["1", "0"]
    );
    daemon.done(&["task", "add", "--project", "prj", "--id", "other", "--title", "another"]);
    browser.find("#column-todo #card-other");
    // None of that loaded a new page.
    browser.run("window.isTheSame = true");
    daemon.done(&["task", "set", "other", "--title", "renamed"]);
    browser
        .until("the title is another", || browser.texts("#card-other .card-link") == ["renamed"]);
    assert_eq!(browser.run("return window.isTheSame"), true);
    assert_quiet(&browser);
}

#[test]
fn a_card_is_moved_by_the_keyboard_and_by_hand() {
    let daemon = daemon(&["agt"]);
    daemon.done(&[
        "task",
        "add",
        "--project",
        "prj",
        "--id",
        "tsk",
        "--assignee",
        "agt",
        "--status",
        "backlog",
        "--title",
        "a title",
    ]);
    let later = ["--id", "later", "--status", "backlog", "--title", "later"];
    daemon.done(&[&["task", "add", "--project", "prj"], &later[..]].concat());
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    browser.find("#column-backlog .rail").click();
    browser.run("document.querySelector('#card-tsk .card-link').focus()");
    browser.press(&[SHIFT, RIGHT]);
    browser.find("#column-todo #card-tsk");
    browser.until("it is said", || browser.texts("#moved") == ["a title → To do"]);
    assert_eq!(daemon.task_status("tsk"), "todo");
    // The focus went with the card. The arrow keys alone lead to the other columns.
    let focus = || browser.run("return document.activeElement.closest('.card')?.id");
    assert_eq!(focus(), "card-tsk");
    browser.press(&[LEFT]);
    assert_eq!(focus(), "card-later");
    browser.press(&[RIGHT]);
    assert_eq!(focus(), "card-tsk");
    // These are the events of a drag with a mouse.
    browser.run(
        "const card = document.querySelector('#card-tsk'), column = document.querySelector('#column-in_progress');\
         const data = new DataTransfer(), fire = (to, kind) => to.dispatchEvent(new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer: data }));\
         fire(card, 'dragstart'); fire(column, 'dragover'); fire(column, 'drop'); fire(card, 'dragend');",
    );
    browser.find("#column-in_progress #card-tsk");
    assert_eq!(daemon.task_status("tsk"), "in_progress");
    // A move that is not allowed leaves the card in its place and shows the reason.
    browser.run("moveTask(document.querySelector('#card-tsk'), 'backlog')");
    browser.until("it is refused", || browser.texts(".toast.bad").concat().contains("in_progress"));
    browser.find("#column-in_progress #card-tsk");
    assert_eq!(daemon.task_status("tsk"), "in_progress");
}

#[test]
fn a_project_an_agent_and_a_task_are_made_on_the_page() {
    let daemon = daemon(&[]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/agents");
    browser.find(".empty a").click();
    // The CLIs that were found are the choice. What few people need is folded.
    browser.find(".choice input[value=claude]:checked");
    assert!(!browser.find("#kind").is_shown() && !browser.find("[name=id]").is_shown());
    browser.find("[name=name]").type_in("A new one");
    browser.find(".choice [value='']").click();
    browser.run("document.querySelector('#kind').value = 'cluade'");
    browser.find(".form .primary").click();
    browser.until("an unknown kind is told at its field", || {
        browser.texts("#kind-e") == ["No provider starts this kind. Did you mean claude?"]
    });
    browser.find(".choice [value=claude]").click();
    browser.find("#more-fields summary").click();
    browser.find("[name=id]").type_in("agt_new");
    browser.find(".form .primary").click();
    browser.until("its page is open", || browser.path() == "/ui/agents/agt_new");
    assert_eq!(daemon.json(&["agent", "show", "agt_new"])["has_passkey"], false);
    browser.find("#its-projects .assign button").click();
    browser
        .until("it works in the project", || browser.path() == "/ui/projects/prj/agents/agt_new");
    // An agent that people start themselves gets a passkey, which is shown once.
    browser.go_to("/ui/agents/new");
    browser.find(".choice input[value=claude]:checked");
    browser.find("[name=name]").type_in("By hand");
    browser.find("#more-fields summary").click();
    browser.find("[name=id]").type_in("agt_hand");
    browser.find("[name=passkey]").click();
    browser.find(".form .primary").click();
    let passkey = browser.find("#passkey .secret").text();
    assert!(passkey.len() >= 20, "{passkey}");
    browser.go_to("/ui/agents/agt_hand");
    assert!(!browser.has("#passkey .secret"));
    browser.go_to("/ui/projects/new");
    browser.find("[name=id]").type_in("prj_new");
    browser.find("[name=name]").type_in("A project");
    browser.find("[name=working_directory]").type_in("not/absolute");
    browser.find(".form .primary").click();
    browser.until("it is refused", || {
        browser.texts("#directory-e") == ["Enter the whole path, such as /srv/shop."]
    });
    browser.run("document.querySelector('[name=working_directory]').value = ''");
    browser.find("[name=working_directory]").type_in(daemon.work().to_str().unwrap());
    browser.find(".form .primary").click();
    browser.until("its members can be chosen", || browser.path() == "/ui/projects/prj_new/edit");
    browser.find("select[name=agent] option[value=agt_new]").click();
    browser.find(".assign button").click();
    browser.until("it is assigned", || browser.has(".members a[href='/ui/agents/agt_new']"));
    browser.go_to("/ui/projects/prj_new");
    browser.find("[data-new-task]").click();
    browser.find("#dialog [name=title]").type_in("A task");
    browser.find("#dialog .primary").click();
    browser.until("it is on the board", || {
        browser.texts("#column-todo .card .card-link") == ["A task"]
    });
    assert!(!browser.has("#dialog form"));
}

#[test]
fn what_people_write_is_text_wherever_it_is_shown() {
    let daemon = daemon(&[]);
    let evil = "<img src=x onerror=window.hit=1><script>window.hit=1</script>\"'><marquee>";
    let marked = format!(
        "{evil}\n\n[a](javascript:window.hit=1) ![b](x \"onerror=window.hit=1\")\n\n<javascript:window.hit=1>\n\n{}",
        "*".repeat(49_000)
    );
    let work = daemon.work();
    let manifest = json!({
        "agents": { "agt": { "name": evil, "system_prompt": evil, "ai_type": "claude" } },
        "projects": { "prj_evil": { "name": evil, "working_directory": work, "agents": ["agt"] } },
        "tasks": { "tsk": { "project": "prj_evil", "title": evil, "description": marked, "assignee": "agt" } },
    });
    fs::write(daemon.folder().join("evil.yaml"), manifest.to_string()).unwrap();
    daemon.done(&["apply", "evil.yaml"]);
    daemon.steps(
        "agt",
        &["authenticate", "get-my-task", &format!("print:{evil}"), "write:ready", "sleep:600"],
    );
    daemon.done(&["task", "set", "tsk", "--status", "in_progress"]);
    daemon.written_pid("ready");
    daemon.done(&["task", "set", "tsk", "--status", "blocked", "--reason", evil]);
    daemon.done(&["chat", "send", "agt", "prj_evil", &marked[..4_000]]);
    daemon.done(&["task", "comment", "tsk", &marked[..4_000]]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let launch = daemon.open("agt")[0]["launch_id"].as_str().unwrap().to_owned();
    let pages = [
        "/ui/projects".to_owned(),
        "/ui/projects/prj_evil?task=tsk".to_owned(),
        "/ui/projects/prj_evil?chat=agt".to_owned(),
        "/ui/projects/prj_evil?q=%3Cimg%20src%3Dx%20onerror%3D%22window.hit%3D1%22%3E".to_owned(),
        "/ui/tasks/tsk".to_owned(),
        "/ui/projects/prj_evil/edit".to_owned(),
        "/ui/agents".to_owned(),
        "/ui/agents/agt".to_owned(),
        "/ui/projects/prj_evil/agents/agt".to_owned(),
        "/ui/launches".to_owned(),
        format!("/ui/launches/{launch}"),
        "/ui/operations".to_owned(),
        "/ui/tasks/%3Cscript%3Ewindow.hit=1%3C%2Fscript%3E".to_owned(),
    ];
    for page in pages {
        browser.go_to(&page);
        browser
            .until("the page is there", || browser.run("return document.readyState") == "complete");
        if page.contains("task=") {
            browser.find("#panel .task");
        } else if page.contains("chat=") {
            browser.find("#panel .message");
        } else if page.contains(&launch) {
            browser.until("its transcript is shown", || {
                browser.texts("#transcript").concat().contains("onerror")
            });
            browser.find("[data-view=raw-view]").click();
            browser.until("its output is shown", || {
                browser.texts("#output").concat().contains("onerror")
            });
        }
        assert_eq!(browser.run("return window.hit ?? null"), serde_json::Value::Null, "{page}");
        assert!(!browser.has(".app img[onerror], .app script, marquee, .prose img"), "{page}");
        assert!(!browser.has("a[href^=javascript]"), "{page}");
    }
}

#[test]
fn a_board_of_ten_thousand_tasks_shows_the_first_of_each_column_and_more_when_asked() {
    let daemon = daemon(&[]);
    let mut manifest = String::from("tasks:\n");
    for n in 0..10_000 {
        writeln!(manifest, "  tsk_{n:05}: {{ project: prj, title: task {n}, status: todo }}")
            .unwrap();
    }
    fs::write(daemon.folder().join("many.yaml"), manifest).unwrap();
    daemon.done(&["apply", "many.yaml"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    let n_cards = || browser.run("return document.querySelectorAll('.card').length");
    assert_eq!(n_cards(), 30);
    assert_eq!(browser.texts("#column-todo .col-head .count"), ["10k"]);
    browser.run("document.querySelector('.more button').click()");
    browser.until("there are more", || n_cards() == 60);
    browser.find(".more");
    // A card that was loaded later stays in its place.
    daemon.done(&["task", "set", "tsk_00040", "--title", "renamed"]);
    browser.until("its title is another", || {
        browser.texts("#card-tsk_00040 .card-link") == ["renamed"]
    });
    assert_eq!(n_cards(), 60);
    assert_eq!(
        browser.run("return document.querySelector('#card-tsk_00040').nextElementSibling.id"),
        "card-tsk_00041"
    );
    daemon.done(&["task", "set", "tsk_05000", "--priority", "urgent"]);
    browser.until("what is urgent is the first", || {
        browser.run("return document.querySelector('#column-todo .card').dataset.task")
            == "tsk_05000"
    });
    assert_quiet(&browser);
}
