//! Archiving and deleting on the page: the dialog, its buttons, and who may press them.

use super::changes::shop;
use super::entry::{OWN, log_in, token};
use super::{Answer, LISTENING, Web};
use crate::daemon::Daemon;

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";
const DIALOG: &str = "/ui/parts/removals/task/tsk";

/// Returns a daemon with the finished task `tsk` of the project `shop`.
fn with_done_task() -> Daemon {
    let daemon = shop(LISTENING, &[]);
    let add = ["--project", "shop", "--id", "tsk", "--title", "Log <b>in", "--assignee", "agt"];
    daemon.done(&[&["task", "add"], &add[..]].concat());
    daemon.done(&["task", "set", "tsk", "--status", "cancelled"]);
    daemon
}

struct Person {
    web: Web,
    cookie: String,
}

impl Person {
    fn of(daemon: &Daemon, role: &str) -> Self {
        let mut web = Web::to(daemon);
        let cookie = log_in(&mut web, daemon, &["--role", role]);
        Self { web, cookie }
    }

    fn get(&mut self, path: &str) -> Answer {
        let cookie = &self.cookie;
        self.web.ask("GET", path, cookie, "")
    }

    fn does(&mut self, deed: &str) -> Answer {
        let headers = format!("{}{OWN}{FORM}", self.cookie);
        self.web.ask("POST", &format!("/ui/do/removals/{deed}"), &headers, "")
    }
}

#[test]
fn a_dialog_names_what_goes_and_that_it_does_not_come_back() {
    let daemon = with_done_task();
    let panel = daemon.page("/ui/parts/tasks/tsk", "en");
    assert!(panel.contains(&format!("hx-get=\"{DIALOG}\"")), "{panel}");
    let dialog = daemon.page(DIALOG, "en");
    for text in [
        "Archive or delete",
        "SHOP-1 Log &#60;b&#62;in",
        "1 task:",
        "value=\"delete\">",
        "is final",
    ] {
        assert!(dialog.contains(text), "no `{text}` in {dialog}");
    }
    let japanese = daemon.page(DIALOG, "ja");
    assert!(japanese.contains("タスク 1 件") && japanese.contains("削除"), "{japanese}");

    let mut person = Person::of(&daemon, "operator");
    let answer = person.does("task/tsk/delete");
    assert_eq!(answer.status, 204, "{answer:?}");
    assert_eq!(person.get("/ui/tasks/tsk").status, 404);
    let board = daemon.page("/ui/parts/projects/shop/board", "en");
    assert!(!board.contains("SHOP-1"), "{board}");
    assert_eq!(person.does("task/tsk/undelete").status, 400);
}

#[test]
fn what_is_archived_is_on_its_own_page_and_in_no_list() {
    let daemon = with_done_task();
    let mut person = Person::of(&daemon, "operator");
    assert_eq!(person.does("task/tsk/archive").status, 204);
    assert!(!daemon.page("/ui/parts/projects/shop/board", "en").contains("SHOP-1"));
    assert!(daemon.page("/ui/projects/shop/edit", "en").contains("Archived tasks"));
    assert!(daemon.page("/ui/tasks/SHOP-1", "en").contains("<dd>Archived</dd>"));
    assert!(daemon.page(DIALOG, "en").contains("value=\"unarchive\""));

    for (kind, list) in [("agent/agt", "/ui/parts/agents"), ("project/shop", "/ui/parts/projects")]
    {
        assert!(!daemon.page(list, "en").contains("id=\"archived\""), "{kind}");
        assert_eq!(person.does(&format!("{kind}/archive")).status, 204);
        assert!(daemon.page(list, "en").contains("id=\"archived\""), "{kind}");
    }
    for (language, text) in [("en", "This project is archived"), ("ja", "アーカイブ済みです")]
    {
        let page = daemon.page("/ui/projects/shop", language);
        assert!(page.contains(text) && page.contains("value=\"unarchive\""), "{page}");
    }
    assert_eq!(person.does("project/shop/unarchive").status, 204);
    assert!(!daemon.page("/ui/projects/shop", "en").contains("id=\"archived\""));
}

#[test]
fn a_deleted_agent_is_shown_by_its_last_name() {
    let daemon = with_done_task();
    daemon.done(&["agent", "set", "agt", "--name", "Grace"]);
    let mut person = Person::of(&daemon, "operator");
    assert_eq!(person.does("agent/agt/delete").status, 204);
    assert!(daemon.page("/ui/tasks/tsk", "en").contains("Grace"));
    assert!(daemon.page("/ui/parts/projects/shop/board", "en").contains("Grace"));
}

#[test]
fn viewers_see_no_button_and_neither_they_nor_agents_delete() {
    let daemon = with_done_task();
    let mut viewer = Person::of(&daemon, "viewer");
    for page in ["/ui/tasks/tsk", "/ui/agents/agt", "/ui/projects/shop/edit", "/ui/projects/shop"] {
        let answer = viewer.get(page);
        assert_eq!(answer.status, 200, "{page}");
        assert!(!answer.body.contains("/ui/parts/removals/"), "{page}");
    }
    assert_eq!(viewer.does("task/tsk/delete").status, 403);
    let key = token(&daemon, &["--role", "viewer"]);
    let mut ask = |key: &str| {
        let headers = format!("Authorization: Bearer {key}\r\n");
        viewer.web.ask("DELETE", "/api/tasks/tsk", &headers, "").status
    };
    assert_eq!(ask(&key), 403);
    assert_eq!(ask("ses_of_an_agent"), 401);
    assert_eq!(daemon.task_status("tsk"), "cancelled");
}

#[test]
fn what_goes_on_is_refused_with_what_is_in_the_way() {
    let daemon = with_done_task();
    daemon.done(&["task", "set", "tsk", "--status", "todo"]);
    let dialog = daemon.page("/ui/parts/removals/project/shop", "en");
    assert!(dialog.contains("SHOP-1 is todo") && dialog.contains(" disabled"), "{dialog}");
    let japanese = daemon.page("/ui/parts/removals/project/shop", "ja");
    assert!(japanese.contains("まだ終わっていない"), "{japanese}");
    assert!(japanese.contains("SHOP-1 は「未着手」"), "{japanese}");
    assert!(!japanese.contains("can't be") && !japanese.contains("SHOP-1 is"), "{japanese}");
    let mut person = Person::of(&daemon, "operator");
    assert_eq!(person.does("project/shop/delete").status, 409);
    assert_eq!(person.does("project/none/delete").status, 404);
    assert_eq!(person.does("thing/shop/delete").status, 400);
    assert_eq!(person.does("project/shop/destroy").status, 400);
}
