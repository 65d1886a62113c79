//! The frame of the page: the columns always fit, the regions scroll, and nothing else does.

use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};

use super::browser::Browser;
use super::{assert_quiet, daemon};
use crate::daemon::Daemon;

/// Returns a daemon with this many tasks in each column that a person can fill.
fn crowded(n_each: usize) -> Daemon {
    let daemon = daemon(&["agt"]);
    let mut manifest = String::from("tasks:\n");
    for status in ["backlog", "todo", "done", "cancelled"] {
        for n in 0..n_each {
            writeln!(
                manifest,
                "  tsk_{status}_{n:03}: {{ project: prj, title: A task that has word{n}, status: {status} }}"
            )
            .unwrap();
        }
    }
    fs::write(daemon.folder().join("many.yaml"), manifest).unwrap();
    daemon.done(&["apply", "many.yaml"]);
    daemon
}

#[test]
fn six_columns_fit_on_each_screen_and_only_their_lists_scroll() {
    let daemon = crowded(500);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    for (width, height, least) in
        [(1440, 900, 601), (1280, 800, 601), (1024, 768, 668), (2560, 1440, 601)]
    {
        browser.emulate_screen(width, height);
        browser.go_to("/ui/projects/prj");
        let facts = browser.run(
            "const columns = [...document.querySelectorAll('.col')], boxes = columns.map(c => c.getBoundingClientRect()), board = document.querySelector('#board');\
             const lists = columns.map(c => c.querySelector('.cards')).filter(l => l.checkVisibility() && l.querySelector('.card'));\
             const heads = () => columns.map(c => [...c.querySelectorAll('.col-head, .rail')].find(e => e.checkVisibility()).getBoundingClientRect().y);\
             const before = heads(); for (const list of lists) list.scrollTop = list.scrollHeight;\
             return { scrolls: document.documentElement.scrollHeight - innerHeight, wide: document.documentElement.scrollWidth - innerWidth,\
               board: board.scrollWidth - board.clientWidth, columns: columns.length,\
               seen: boxes.filter(b => b.left >= 0 && b.right <= innerWidth && b.top >= 0 && b.bottom <= innerHeight).length,\
               low: Math.min(...boxes.map(b => b.height)), moved: heads().map((y, n) => y - before[n]).filter(Boolean),\
               scrolled: lists.length > 0 && lists.every(list => list.scrollTop > 0) }",
        );
        let at = format!("{width}x{height}: {facts}");
        assert!(facts["scrolls"].as_i64().unwrap() <= 0, "{at}");
        assert!(facts["wide"].as_i64().unwrap() <= 0, "{at}");
        assert!(facts["board"].as_i64().unwrap() <= 0, "{at}");
        assert_eq!((&facts["columns"], &facts["seen"]), (&json!(6), &json!(6)), "{at}");
        assert!(facts["low"].as_f64().unwrap() >= f64::from(least), "{at}");
        assert_eq!((&facts["moved"], &facts["scrolled"]), (&json!([]), &json!(true)), "{at}");
    }
    assert_quiet(&browser);
}

#[test]
fn a_phone_shows_one_column_high_up_and_its_targets_are_large() {
    let daemon = crowded(200);
    let Some(browser) = Browser::at(&daemon, "operator", "ja") else {
        return;
    };
    for width in [320, 390, 500] {
        browser.emulate_phone(width, 844);
        browser.go_to("/ui/projects/prj");
        browser.find("[data-shows=todo]").click();
        let facts = browser.run(
            "const card = document.querySelector('#column-todo .card').getBoundingClientRect();\
             return { y: card.y, wide: document.documentElement.scrollWidth - innerWidth,\
               shown: [...document.querySelectorAll('.col')].filter(c => c.checkVisibility()).length,\
               side: document.querySelector('.side').checkVisibility(), bar: document.querySelector('.tabbar').checkVisibility() }",
        );
        assert!(facts["y"].as_f64().unwrap() < 160.0, "{facts}");
        assert!(facts["wide"].as_i64().unwrap() <= 0, "{facts}");
        assert_eq!(
            (&facts["shown"], &facts["side"], &facts["bar"]),
            (&json!(1), &json!(false), &json!(true)),
            "{facts}"
        );
    }
}

#[test]
fn a_column_that_the_reader_folds_stays_folded() {
    let daemon = crowded(200);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.resize(1440, 900);
    browser.go_to("/ui/projects/prj");
    let is_open = |status: &str| {
        browser.run(&format!(
            "return document.querySelector('#column-{status} .cards').checkVisibility()"
        ))
    };
    assert_eq!((is_open("todo"), is_open("backlog")), (Value::Bool(true), Value::Bool(false)));
    browser.find("#column-todo [data-fold-away]").click();
    browser.find("#column-backlog .rail").click();
    for _ in 0..2 {
        browser.until("the choice counts", || {
            (is_open("todo"), is_open("backlog")) == (Value::Bool(false), Value::Bool(true))
        });
        // A board that is shown anew keeps the choice, and so does another visit.
        browser.run("document.body.dispatchEvent(new CustomEvent('live-board'))");
        browser.go_to("/ui/projects/prj");
    }
    assert_quiet(&browser);
}

#[test]
fn a_search_shows_the_tasks_that_match_and_its_address_can_be_sent() {
    let daemon = crowded(200);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    browser.run("document.querySelector('#search').focus()");
    browser.find("#search").type_in("HAS WORD17");
    let counts = || browser.texts("#column-todo .col-head .count");
    browser.until("only those that match are counted", || counts() == ["11"]);
    assert_eq!(browser.run("return location.search"), "?q=HAS+WORD17");
    daemon.done(&["task", "set", "tsk_todo_017", "--title", "Another name"]);
    browser.until("one fewer matches", || counts() == ["10"]);
    browser.go_to("/ui/projects/prj?q=nothing-like-this");
    browser.find("#nothing-found button").click();
    browser.until("all are shown", || counts() == ["200"]);
    assert_quiet(&browser);
}

#[test]
fn back_and_forward_search_for_what_their_address_says() {
    let daemon = crowded(200);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj?q=word17");
    let counts = || browser.texts("#column-todo .col-head .count");
    let searched = || browser.run("return document.querySelector('#search').value");
    browser.until("eleven match", || counts() == ["11"]);
    browser
        .run("window.isTheSame = true; document.querySelector('#column-todo .card-link').click()");
    browser.find("#panel .task");
    browser.find("#search").type_in("1");
    browser.until("one matches", || counts() == ["1"]);
    browser.run("history.back()");
    browser.until("eleven match again", || counts() == ["11"] && searched() == "word17");
    assert!(!browser.has("#panel .task"));
    browser.run("history.forward()");
    browser.until("one matches again", || counts() == ["1"] && searched() == "word171");
    browser.find("#panel .task");
    assert_eq!(browser.run("return window.isTheSame"), true);
    assert_quiet(&browser);
}

#[test]
fn a_phone_shows_the_search_of_a_board_when_it_is_wanted() {
    let daemon = crowded(200);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.resize(500, 844);
    browser.go_to("/ui/projects/prj");
    assert!(!browser.find("#search").is_shown());
    browser.find("[data-show-search]").click();
    browser
        .until("it has the focus", || browser.run("return document.activeElement.id") == "search");
    browser.find("#search").type_in("word17");
    browser.find("[data-shows=todo]").click();
    browser.until("what matches is shown", || browser.texts("#column-todo .card").len() == 11);
    let wide = browser.run("return document.documentElement.scrollWidth - innerWidth");
    assert!(wide.as_i64().unwrap() <= 0, "{wide}");
    // A search that the address names is shown from the beginning.
    browser.go_to("/ui/projects/prj?q=word17");
    assert!(browser.find("#search").is_shown());
    browser.resize(1400, 844);
    assert!(!browser.find("[data-show-search]").is_shown());
    assert_quiet(&browser);
}
