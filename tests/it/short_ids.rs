//! Short ids of tasks, and arguments of the command line that name things in shorter forms.
#![allow(clippy::unwrap_used, reason = "a test")]

use serde_json::{Value, json};

use crate::control::{Response, send_to};
use crate::daemon::{Daemon, IN_A_FILE};
use crate::mcp::{MINE, world};

const SHOP: &str = "
agents:
  agt_ada: { name: Ada }
  agt_adam: { name: Adam Smith }
  agt_bob: { name: Ada }
projects:
  prj_shop: { name: Shop, working_directory: work, agents: [agt_ada, agt_adam] }
  prj_show: { name: 決済, working_directory: work }
tasks:
  tsk_1a: { project: prj_shop, title: Log in, assignee: agt_ada, status: todo }
  tsk_1b: { project: prj_shop, title: Log out, parent: tsk_1a }
  tsk_2: { project: prj_show, title: Pay }
";

fn shop() -> Daemon {
    let daemon = Daemon::running("");
    daemon.apply(SHOP);
    daemon
}

fn ask(daemon: &Daemon, method: &str, path: &str, body: &Value) -> Response {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    send_to(&daemon.state().join("control.sock"), method, path, body.as_bytes())
}

/// Returns the full id of the task that an argument names on the command line.
#[track_caller]
fn shown(daemon: &Daemon, task: &str) -> String {
    daemon.json(&["task", "show", task])["id"].as_str().unwrap().to_owned()
}

/// Checks that a command fails with this text.
#[track_caller]
fn check_fails(daemon: &Daemon, arguments: &[&str], text: &str) {
    let said = daemon.cli(arguments);
    assert_eq!((said.code, said.stderr.trim_end()), (1, text), "{arguments:?}");
}

#[test]
fn the_command_line_takes_a_task_by_its_id_its_short_id_and_the_beginning_of_its_id() {
    let daemon = shop();
    for name in ["tsk_1a", "SHOP-1", "shop-1", "Shop-1"] {
        assert_eq!(shown(&daemon, name), "tsk_1a", "{name}");
    }
    assert_eq!(shown(&daemon, "tsk_2"), "tsk_2");
    assert_eq!(shown(&daemon, "tsk_1b"), "tsk_1b");
    let ambiguous = "agent-coordinator: `tsk_1` names several tasks; give one of these ids:\n  \
        tsk_1a  SHOP-1  Log in\n  tsk_1b  SHOP-2  Log out";
    check_fails(&daemon, &["task", "show", "tsk_1"], ambiguous);
    check_fails(&daemon, &["task", "set", "tsk_1", "--status", "cancelled"], ambiguous);
    for name in
        ["SHOP-", "SHOP-0", "SHOP-01", "SHOP-3", "SHOP-99999999999999999999", "STORE-1", "none"]
    {
        let unknown = format!("agent-coordinator: no task `{name}`");
        check_fails(&daemon, &["task", "show", name], &unknown);
    }
    let added = ["task", "add", "--project", "shop", "--title", "Buy", "--assignee", "adam smith"];
    let id = daemon.done(&[&added[..], &["--parent", "SHOP-1", "--depends-on", "shop-2"]].concat());
    let task = daemon.json(&["task", "show", "SHOP-3"]);
    assert_eq!(task["id"], id.trim_end());
    let expected = json!(["tsk_1a", ["tsk_1b"], "agt_adam"]);
    assert_eq!(json!([task["parent_id"], task["dependencies"], task["assignee_id"]]), expected);
    // A generated id is long, and its beginning is enough.
    assert_eq!(shown(&daemon, &id[..id.len() - 3]), id.trim_end());
    let said = daemon.done(&["task", "set", "shop-3", "--no-parent", "--no-dependencies"]);
    assert_eq!(said, "SHOP-3 is todo\n");
    daemon.done(&["task", "history", "SHOP-3"]);
    daemon.done(&["notice", "list", "--task", "SHOP-3", "--agent", "adam smith"]);
    daemon.done(&["execution", "list", "--task", "SHOP-3", "--project", "決済"]);
}

#[test]
fn a_task_with_an_id_like_a_short_id_is_found_by_it() {
    let daemon = shop();
    daemon.done(&["task", "add", "--id", "SHOP-1", "--project", "SHOP", "--title", "Other"]);
    assert_eq!(shown(&daemon, "SHOP-1"), "SHOP-1");
    assert_eq!(shown(&daemon, "shop-1"), "tsk_1a");
    assert_eq!(ask(&daemon, "GET", "/tasks/SHOP-1", &Value::Null).json()["shortId"], "SHOP-3");
}

#[test]
fn agents_and_projects_are_taken_by_their_names_and_by_the_beginning_of_their_ids() {
    let daemon = shop();
    let agent = |name: &str| daemon.json(&["agent", "show", name])["id"].clone();
    assert_eq!(agent("adam smith"), "agt_adam");
    assert_eq!(agent("agt_ada"), "agt_ada");
    assert_eq!(agent("agt_b"), "agt_bob");
    let project = |name: &str| daemon.json(&["project", "show", name])["id"].clone();
    for name in ["prj_shop", "Shop", "shop", "SHOP", "prj_shop"] {
        assert_eq!(project(name), "prj_shop", "{name}");
    }
    for name in ["決済", "PRJ", "prj_show"] {
        assert_eq!(project(name), "prj_show", "{name}");
    }
    let ambiguous = "agent-coordinator: `ada` names several agents; give one of these ids:\n  \
        agt_ada  Ada\n  agt_bob  Ada";
    check_fails(&daemon, &["agent", "set", "ada", "--status", "inactive"], ambiguous);
    let ambiguous = "agent-coordinator: `prj_sho` names several projects; give one of these ids:\n  \
        prj_shop  SHOP  Shop\n  prj_show  PRJ  決済";
    check_fails(&daemon, &["why", "agt_b", "prj_sho"], ambiguous);
    check_fails(&daemon, &["stop", "nobody", "shop"], "agent-coordinator: no agent `nobody`");
    for name in ["No One", "日本", "a/b?kind=task&text=%20#f", ""] {
        let unknown = format!("agent-coordinator: no agent `{name}`");
        check_fails(&daemon, &["agent", "show", name], &unknown);
    }
    daemon.done(&["project", "set", "決済", "--assign", "agt_b"]);
    assert_eq!(daemon.json(&["project", "show", "PRJ"])["agents"], json!(["agt_bob"]));
    daemon.done(&["why", "agt_b", "決済"]);
    daemon.done(&["stop", "agt_b", "決済"]);
    daemon.done(&["resume", "agt_b", "PRJ"]);
    daemon.done(&["chat", "show", "adam smith", "shop"]);
}

#[test]
fn the_key_of_a_project_is_changed_once_and_the_old_short_ids_stay_valid() {
    let daemon = shop();
    let set = |key: &str| ask(&daemon, "PATCH", "/projects/prj_shop", &json!({ "key": key }));
    for key in ["", "S", "1SHOP", "SH-P", "SHOPPINGS", "店"] {
        let refused = set(key);
        let problem = refused.json();
        assert_eq!((refused.status, &problem["code"]), (400, &"invalid_body".into()), "{key}");
        let expected =
            format!("`{key}` is not a valid project key: expected 2 to 8 letters and digits");
        assert!(problem["detail"].as_str().unwrap().contains(&expected), "{problem}");
    }
    let taken = set("prj");
    assert_eq!((taken.status, &taken.json()["code"]), (409, &"key_taken".into()));
    assert_eq!(set("shop").json()["key"], "SHOP");
    assert_eq!(set("store").json()["key"], "STORE");
    assert_eq!(set("STORE").status, 200);
    let second = set("SHOP");
    let problem = second.json();
    assert_eq!((second.status, &problem["code"]), (409, &"key_edited".into()));
    let expected = "Project prj_shop keeps the key STORE: a key is changed only once";
    assert_eq!(problem["detail"], expected);
    for name in ["SHOP-2", "STORE-2"] {
        let task = ask(&daemon, "GET", &format!("/tasks/{name}"), &Value::Null).json();
        assert_eq!((&task["id"], &task["shortId"]), (&"tsk_1b".into(), &"STORE-2".into()));
    }
    let new = ["task", "add", "--project", "STORE", "--title", "New"];
    daemon.done(&new);
    assert_eq!(shown(&daemon, "SHOP-3"), shown(&daemon, "STORE-3"));
    // The old key leads to its project, so another one never gets it.
    let other = ["project", "add", "prj_other", "--name", "Shop", "--directory", "work"];
    daemon.done(&other);
    assert_eq!(daemon.json(&["project", "show", "prj_other"])["key"], "SHOP2");
    let wanted = ["project", "add", "prj_new", "--directory", "work", "--key", "shop"];
    let text = "agent-coordinator: Key SHOP belongs to project prj_shop, and a key is never given \
        to another one (choose another key)";
    let said = daemon.cli(&wanted);
    assert!(said.stderr.ends_with(&format!("{text}\n")), "{said:?}");
    daemon.done(&["project", "add", "prj_new", "--directory", "work", "--key", "new"]);
    assert_eq!(daemon.json(&["project", "show", "prj_new"])["key"], "NEW");
    assert_eq!(daemon.json(&["project", "set", "prj_new", "--key", "N2"])["key"], "N2");
}

#[test]
fn a_number_is_not_given_again_after_tasks_and_projects_were_deleted() {
    let mut daemon = Daemon::running(IN_A_FILE);
    daemon.apply(SHOP);
    daemon.terminate();
    let database = rusqlite::Connection::open(daemon.folder().join("state/state.db")).unwrap();
    database.execute_batch("DELETE FROM tasks; DELETE FROM projects").unwrap();
    drop(database);
    daemon.start();
    // The same project, and another one with its name.
    daemon.done(&["project", "add", "prj_shop", "--name", "Shop", "--directory", "work"]);
    daemon.done(&["task", "add", "--project", "SHOP", "--title", "New", "--id", "tsk_new"]);
    assert_eq!(daemon.json(&["task", "show", "tsk_new"])["short_id"], "SHOP-3");
    daemon.done(&["project", "add", "payment", "--name", "PRJ", "--directory", "work"]);
    daemon.done(&["task", "add", "--project", "payment", "--title", "New", "--id", "tsk_pay"]);
    assert_eq!(daemon.json(&["task", "show", "tsk_pay"])["short_id"], "PRJ-2");
}

#[test]
fn the_api_takes_short_ids_in_each_place_of_a_task() {
    let daemon = shop();
    let get = |path: &str| ask(&daemon, "GET", path, &Value::Null);
    let ids = |path: &str| -> Vec<Value> {
        let list = get(path).json();
        list.as_array().unwrap().iter().map(|task| task["shortId"].clone()).collect()
    };
    assert_eq!(ids("/api/tasks?parent=shop-1"), ["SHOP-2"]);
    assert_eq!(ids("/api/tasks?project=prj_shop&limit=1&cursor=SHOP-1"), ["SHOP-2"]);
    assert_eq!(ids("/api/tasks?project=prj_show"), ["PRJ-1"]);
    for path in ["/api/notices?task=SHOP-1", "/api/executions?task=SHOP-1"] {
        assert_eq!(get(path).json(), json!([]), "{path}");
    }
    let history = get("/api/tasks/SHOP-1/history").json();
    let event = (&history[0]["taskId"], &history[0]["taskShortId"]);
    assert_eq!(event, (&"tsk_1a".into(), &"SHOP-1".into()));
    let new = json!({
        "projectId": "prj_shop", "title": "Buy", "parentId": "SHOP-1", "dependencies": ["shop-2"],
    });
    let made = ask(&daemon, "POST", "/api/tasks", &new).json();
    let names = |task: &Value| json!([task["shortId"], task["parentId"], task["dependencies"]]);
    assert_eq!(names(&made), json!(["SHOP-3", "tsk_1a", ["tsk_1b"]]));
    let change = json!({ "parentId": "SHOP-2", "dependencies": [] });
    let changed = ask(&daemon, "PATCH", "/api/tasks/shop-3", &change).json();
    assert_eq!(names(&changed), json!(["SHOP-3", "tsk_1b", []]));
    let elsewhere = json!({ "dependencies": ["PRJ-1"] });
    let refused = ask(&daemon, "PATCH", "/api/tasks/shop-3", &elsewhere);
    assert_eq!((refused.status, &refused.json()["code"]), (404, &"task_not_found".into()));
    for name in ["SHOP-", "SHOP-0", "SHOP-4", "SHOP-99999999999999999999", "STORE-1"] {
        let problem = get(&format!("/api/tasks/{name}"));
        assert_eq!(problem.status, 404);
        assert_eq!(problem.json()["detail"], format!("no task `{name}`"));
    }
    let found = get("/api/lookup?kind=task&text=tsk_1").json();
    assert_eq!(found[0], json!({ "id": "tsk_1a", "shortId": "SHOP-1", "name": "Log in" }));
    assert_eq!(found.as_array().unwrap().len(), 2);
    assert_eq!(get("/api/lookup?kind=launch&text=x").status, 400);
    assert_eq!(get("/api/lookup?kind=task&text=").json(), json!([]));
}

#[test]
fn the_list_of_tasks_shows_short_ids_and_wide_the_full_ones_too() {
    let daemon = shop();
    let list = daemon.done(&["task", "list", "--project", "Shop"]);
    let rows: Vec<&str> = list.lines().skip(1).collect();
    assert!(rows[0].starts_with("SHOP-1 ") && rows[1].starts_with("SHOP-2 "), "{list}");
    assert!(!list.contains("tsk_1a"), "{list}");
    let wide = daemon.done(&["task", "list", "--wide"]);
    assert!(wide.contains("SHOP-1 ") && wide.contains("tsk_1a"), "{wide}");
    let tasks = daemon.json(&["task", "list"]);
    assert_eq!((&tasks[0]["id"], &tasks[0]["short_id"]), (&"tsk_1a".into(), &"SHOP-1".into()));
}

#[test]
fn the_page_finds_a_task_by_its_short_id_and_has_none_for_an_unknown_one() {
    let daemon = shop();
    let part = daemon.page("/ui/parts/tasks/shop-1", "en");
    assert!(part.contains("tsk_1a") && part.contains(">SHOP-1<") && part.contains(">SHOP-2<"));
    let page = daemon.page("/ui/tasks/SHOP-1", "en");
    assert!(page.contains("tsk_1a") && page.contains(">SHOP-1<"), "{page}");
    let board = daemon.page("/ui/projects/prj_shop?task=SHOP-1", "en");
    assert!(board.contains("/ui/parts/tasks/tsk_1a") && board.contains(">SHOP-2<"));
    for path in ["/ui/tasks/SHOP-99", "/ui/parts/tasks/SHOP-0"] {
        let page = daemon.page(path, "en");
        assert!(page.starts_with("HTTP/1.1 404 "), "{page}");
    }
}

#[test]
fn agents_may_send_short_ids_of_their_project_and_get_both() {
    let tasks = format!("{MINE}  tsk_part: {{ project: prj, title: part, parent: tsk }}\n");
    let daemon = Daemon::crowded("", &world(&tasks));
    let mut client = daemon.client();
    let credentials = json!({ "agent_id": "agt_a", "passkey": "key_a", "project_id": "prj" });
    let token = client.call("authenticate", &credentials)["session_token"].clone();
    let mut call = |tool: &str, mut arguments: Value| {
        arguments["session_token"] = token.clone();
        client.call(tool, &arguments)
    };
    let task = call("get_my_task", json!({}))["task"].clone();
    assert_eq!((&task["task_id"], &task["short_id"]), (&"tsk".into(), &"PROJECT-1".into()));
    let change = json!({ "task_id": "project-2", "status": "done" });
    let changed = call("update_task_status", change)["task"].clone();
    assert_eq!((&changed["id"], &changed["short_id"]), (&"tsk_part".into(), &"PROJECT-2".into()));
    let new = json!({
        "title": "t", "parent_task_id": "PROJECT-1", "dependencies": ["PROJECT-2"],
    });
    let made = call("create_task", new)["task"].clone();
    assert_eq!((&made["short_id"], &made["parent_task_id"]), (&"PROJECT-3".into(), &"tsk".into()));
    let progress = call("get_my_task_progress", json!({}));
    assert_eq!(progress["tasks"][0]["subtasks"][0]["short_id"], "PROJECT-2");
    // A task of another project is not there, and its full id is not told.
    let elsewhere = json!({ "task_id": "ANOTHER-1", "status": "done" });
    let refused = call("update_task_status", elsewhere).to_string();
    assert!(refused.contains("task_not_found") && !refused.contains("tsk_elsewhere"), "{refused}");
    let refused = call("create_task", json!({ "title": "t", "parent_task_id": "ANOTHER-1" }));
    assert!(!refused.to_string().contains("tsk_elsewhere"), "{refused}");
    let listed = daemon.json(&["task", "show", "PROJECT-3"])["dependencies"].clone();
    assert_eq!(listed, json!(["tsk_part"]));
}
