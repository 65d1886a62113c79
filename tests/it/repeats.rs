//! Requests that create tasks, projects and agents, and that clients repeat because they got no
//! answer.
#![allow(clippy::unwrap_used, reason = "a test")]

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::resources::ask;

const TASK: &str = r#"{"id": "tsk", "projectId": "prj", "title": "Login", "assigneeId": "agt"}"#;
/// The same with its fields in another order, and with defaults.
const SAME_TASK: &str = r#"{"assigneeId": "agt", "description": "", "status": "todo",
    "priority": "medium", "title": "Login", "dependencies": [], "projectId": "prj", "id": "tsk"}"#;
const AGENT: &str = r#"{"id": "agt", "generatePasskey": true}"#;

fn post(daemon: &Daemon, path: &str, body: &str) -> (u16, Value) {
    let answer = ask(daemon, "POST", path, "", body);
    (answer.0, answer.json())
}

/// Sends a request two times at once. Returns the answer to the later one and to the first one.
fn post_twice(daemon: &Daemon, path: &str, body: &str) -> [Value; 2] {
    let mut both = std::thread::scope(|scope| {
        let send = || scope.spawn(move || post(daemon, path, body));
        [send(), send()].map(|sent| sent.join().unwrap())
    });
    both.sort_by_key(|(status, _)| *status);
    let statuses = both.each_ref().map(|(status, _)| *status);
    assert_eq!(statuses, [200, 201], "{path}: {both:?}");
    both.map(|(_, body)| body)
}

/// Checks that a request repeats one before, and returns the object.
#[track_caller]
fn repeated(daemon: &Daemon, path: &str, body: &str) -> Value {
    let (status, answer) = post(daemon, path, body);
    assert_eq!(status, 200, "{answer}");
    answer
}

#[track_caller]
fn check_differs(daemon: &Daemon, path: &str, body: &str, field: &str) {
    let (status, problem) = post(daemon, path, body);
    assert_eq!((status, &problem["code"]), (409, &"already_exists".into()), "{problem}");
    assert_eq!(problem["problems"][0]["path"], field, "{problem}");
}

#[test]
fn a_repeated_creation_gets_the_object_as_it_is_and_another_one_the_field_that_differs() {
    let daemon = Daemon::running("");
    let work = daemon.work();
    let directory = work.to_str().unwrap();
    let project = json!({ "id": "prj", "workingDirectory": directory, "assign": ["agt"] });
    let project = project.to_string();
    let [later, first] = post_twice(&daemon, "/agents", AGENT);
    assert!(first["passkey"].is_string() && first.get("passkeyShown").is_none(), "{first}");
    let command = "agent-coordinator agent set agt --generate-passkey";
    assert_eq!((&later["passkeyShown"], later.get("passkey")), (&json!(false), None), "{later}");
    assert_eq!(later["newPasskeyCommand"], command);
    for (path, body) in [("/projects", project.as_str()), ("/tasks", TASK)] {
        let [later, first] = post_twice(&daemon, path, body);
        assert_eq!(later, first, "{path}");
    }

    // A change of the objects since then does not matter.
    daemon.done(&["task", "set", "tsk", "--title", "Logout", "--status", "cancelled"]);
    daemon.done(&["task", "archive", "tsk"]);
    daemon.done(&["project", "set", "prj", "--name", "Shop", "--unassign", "agt"]);
    daemon.done(&["agent", "set", "agt", "--name", "Ann", "--generate-passkey"]);
    let now = repeated(&daemon, "/tasks", SAME_TASK);
    assert!(now["title"] == "Logout" && now["archivedAt"].is_string(), "{now}");
    let now = repeated(&daemon, "/projects", &project);
    assert_eq!((&now["name"], &now["agents"]), (&json!("Shop"), &json!([])), "{now}");
    let now = repeated(&daemon, "/agents", AGENT);
    assert_eq!((&now["name"], &now["passkeyShown"]), (&json!("Ann"), &json!(false)), "{now}");

    check_differs(&daemon, "/tasks", &TASK.replace("Login", "Logout"), "title");
    check_differs(&daemon, "/projects", &project.replace(r#"["agt"]"#, "[]"), "assign");
    check_differs(&daemon, "/agents", r#"{"id": "agt", "name": "Ann"}"#, "generatePasskey");
    // An object of a manifest is compared as it is.
    daemon.apply("agents: { old: {} }");
    repeated(&daemon, "/agents", r#"{"id": "old", "aiType": "claude"}"#);
    check_differs(&daemon, "/agents", r#"{"id": "old", "systemPrompt": "x"}"#, "systemPrompt");

    // The command line says so, and prints what scripts read.
    let said = |arguments: &[&str]| {
        let said = daemon.cli(arguments);
        (said.code, said.stdout, said.stderr)
    };
    let add = ["task", "add", "--id", "tsk", "--project", "prj", "--assignee", "agt", "--title"];
    let (code, stdout, stderr) = said(&[&add[..], &["Login"]].concat());
    assert_eq!((code, stdout.as_str()), (0, "tsk\n"), "{stderr}");
    assert!(stderr.contains("this task exists already: the same request created it"), "{stderr}");
    let (code, _, stderr) = said(&[&add[..], &["Logout"]].concat());
    assert!(code == 1 && stderr.contains("exists already, with another `title`"), "{stderr}");
    let add = ["project", "add", "prj", "--directory", directory, "--assign", "agt"];
    assert_eq!(said(&add).1, "prj\n");
    let (code, stdout, stderr) = said(&["agent", "add", "agt", "--generate-passkey"]);
    assert_eq!((code, stdout.as_str()), (0, "agt\n"), "{stderr}");
    assert!(stderr.contains(command), "{stderr}");

    daemon.done(&["task", "delete", "tsk", "--yes"]);
    let (status, problem) = post(&daemon, "/tasks", TASK);
    assert_eq!((status, &problem["code"]), (409, &"deleted_id".into()), "{problem}");

    // A short id names its task also after the task was deleted.
    let add = |task: &str, more: &[&str]| {
        let add = ["task", "add", "--project", "prj", "--title", "Ship", "--id", task];
        assert_eq!(daemon.done(&[&add[..], more].concat()), format!("{task}\n"));
    };
    add("first", &["--status", "done"]);
    add("next", &["--depends-on", "PRJ-2"]);
    daemon.done(&["task", "delete", "first", "--yes"]);
    add("next", &["--depends-on", "PRJ-2"]);
}
