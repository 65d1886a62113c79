//! The control socket: the requests of people's programs, and the common form of refusals.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::redacted::redacted;
use crate::support::DEADLINE;

/// An answer.
pub struct Response {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{}", self.body))
    }
}

fn send(daemon: &Daemon, method: &str, path: &str, body: &[u8]) -> Response {
    send_to(&daemon.state().join("control.sock"), method, path, body)
}

/// Sends a request to a control socket.
pub fn send_to(socket: &Path, method: &str, path: &str, body: &[u8]) -> Response {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // A body that is too large is refused before all of it was sent.
    let _ = stream.write_all(body);
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8(text).unwrap();
    let (head, body) =
        text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method} {path}: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Response { status, head: head.to_lowercase(), body: body.to_owned() }
}

/// Checks that this is refused in the common form, and returns the problem.
#[track_caller]
fn refused(
    daemon: &Daemon,
    method: &str,
    path: &str,
    body: &str,
    status: u16,
    code: &str,
) -> Value {
    let response = send(daemon, method, path, body.as_bytes());
    let shown = format!("{method} {path} {body}: {}", response.body);
    assert_eq!(response.status, status, "{shown}");
    assert!(response.head.contains("content-type: application/problem+json"), "{shown}");
    let problem = response.json();
    assert_eq!(
        (&problem["type"], &problem["status"]),
        (&"about:blank".into(), &status.into()),
        "{shown}"
    );
    assert_eq!(problem["code"], code, "{shown}");
    assert!(problem["title"].is_string() && problem["detail"].is_string(), "{shown}");
    problem
}

/// Returns a daemon that starts nothing, with a project, an agent in it and one beside it, and a
/// task.
fn quiet() -> Daemon {
    let daemon = Daemon::running("");
    daemon.apply(
        "
agents: { agt_a: {}, agt_b: {} }
projects: { prj: { working_directory: work, agents: [agt_a] } }
tasks: { tsk: { project: prj, title: a title, assignee: agt_a, status: todo } }
",
    );
    daemon
}

#[test]
fn what_is_not_there_says_so() {
    let daemon = quiet();
    for path in
        ["/api", "/api/nothing", "/tasks/tsk/nothing", "/tasks/", "/apiary", "/api/api/tasks"]
    {
        let problem = refused(&daemon, "GET", path, "", 404, "no_such_route");
        assert_eq!(problem["detail"], format!("there is nothing at {path}"));
    }
    for (path, code, detail) in [
        ("/tasks/none", "task_not_found", "no task `none`"),
        ("/projects/none", "project_not_found", "no project `none`"),
        ("/agents/none", "agent_not_found", "no agent `none`"),
        ("/launches/none", "launch_not_found", "no launch `none`"),
        ("/launches/none/output", "launch_not_found", "no launch `none`"),
    ] {
        for path in [path.to_owned(), format!("/api{path}")] {
            assert_eq!(refused(&daemon, "GET", &path, "", 404, code)["detail"], detail);
        }
    }
    refused(&daemon, "PATCH", "/tasks/none", r#"{"status": "todo"}"#, 404, "task_not_found");
    refused(
        &daemon,
        "POST",
        "/stop",
        r#"{"agentId": "none", "projectId": "prj"}"#,
        404,
        "agent_not_found",
    );
    refused(
        &daemon,
        "POST",
        "/resume",
        r#"{"agentId": "agt_a", "projectId": "none"}"#,
        404,
        "project_not_found",
    );
}

#[test]
fn a_method_that_is_not_taken_is_told_those_that_are() {
    let daemon = quiet();
    for (method, path, allowed) in
        [("DELETE", "/api/tasks", "get,head,post"), ("PUT", "/tasks/tsk", "get,head,patch")]
    {
        let problem = refused(&daemon, method, path, "", 405, "method_not_allowed");
        assert_eq!(problem["detail"], format!("{path} does not take {method}"));
        assert!(send(&daemon, method, path, b"").head.contains(&format!("allow: {allowed}")));
    }
    assert_eq!(send(&daemon, "HEAD", "/api/status", b"").status, 200);
}

#[test]
fn a_body_that_is_not_as_expected_is_told_the_place() {
    let daemon = quiet();
    let check = |method: &str, path: &str, body: &str, place: &str, message: &str| {
        let problem = refused(&daemon, method, path, body, 400, "invalid_body");
        let found = &problem["problems"][0];
        assert_eq!(found["path"], place, "{problem}");
        assert!(found["message"].as_str().unwrap().contains(message), "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(place) && detail.contains(message), "{problem}");
        assert!(!detail.contains("struct"), "{problem}");
    };
    check(
        "POST",
        "/api/tasks",
        "garbage",
        "",
        "not valid JSON at line 1, column 1: expected a value",
    );
    check("POST", "/api/tasks", "{\"title\": ", "title", "the end is within a value");
    check("POST", "/api/tasks", "{\"title\": \"\u{1}\"}", "title", "control character");
    check("POST", "/api/tasks", "[]", "", "expected an object");
    check("POST", "/api/tasks", "7", "", "expected an object");
    check("POST", "/api/tasks", "{}", "", "`projectId` is missing");
    check("POST", "/api/tasks", r#"{"projectId": "prj"}"#, "", "`title` is missing");
    check(
        "POST",
        "/api/tasks",
        r#"{"project_id": "prj"}"#,
        "project_id",
        "unknown field `project_id`, expected one of",
    );
    check(
        "POST",
        "/api/tasks",
        r#"{"projectId": "a b"}"#,
        "projectId",
        "`a b` is not a valid project id",
    );
    check("PATCH", "/tasks/tsk", r#"{"title": 7}"#, "title", "expected a string, found `7`");
    check(
        "PATCH",
        "/tasks/tsk",
        r#"{"status": "finished"}"#,
        "status",
        "`finished` is not valid: expected one of",
    );
    check(
        "PATCH",
        "/tasks/tsk",
        r#"{"title": "x"} {"title": "y"}"#,
        "",
        "expected the end, found more",
    );
    check("PATCH", "/tasks/tsk", r#"{"title": "x", "title": "y"}"#, "", "`title` is there twice");
    check(
        "PATCH",
        "/projects/prj",
        r#"{"assign": ["agt_b", 7]}"#,
        "assign[1]",
        "expected a string",
    );
    check(
        "POST",
        "/apply",
        r#"{"tasks": [{"id": "tsk_x", "project": 7}]}"#,
        "tasks[0].project",
        "expected a string",
    );
    refused(&daemon, "POST", "/stop", "{}", 400, "invalid_body");
    refused(&daemon, "POST", "/stop", r#"{"all": true, "agentId": "agt_a"}"#, 400, "invalid_body");
    assert_eq!(daemon.json(&["task", "show", "tsk"])["title"], "a title");

    let problem = refused(&daemon, "GET", "/tasks?state=todo", "", 400, "invalid_query");
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("unknown field `state`, expected one of `project`"),
        "{problem}"
    );
    refused(&daemon, "GET", "/tasks?status=finished", "", 400, "invalid_query");
    let problem = refused(&daemon, "GET", "/launches?limit=-1", "", 400, "invalid_query");
    assert_eq!(problem["detail"], "the query is not as expected: limit: expected digits");
    refused(&daemon, "GET", "/launches/none/output?follow=maybe", "", 400, "invalid_query");
}

#[test]
fn an_id_of_strange_characters_is_none() {
    let daemon = quiet();
    let long = "x".repeat(65);
    let strange = [
        "a%20b",
        "..%2f..%2fetc",
        "%00",
        "%ff",
        "%E3%82%A8",
        ".hidden",
        "a;b",
        "%7B%7D",
        "-x",
        long.as_str(),
    ];
    for id in strange {
        for path in
            [format!("/tasks/{id}"), format!("/api/agents/{id}"), format!("/launches/{id}/output")]
        {
            refused(&daemon, "GET", &path, "", 400, "invalid_path");
        }
    }
    assert_eq!(send(&daemon, "GET", "/tasks/%74sk", b"").json()["id"], "tsk");
}

#[test]
fn what_can_not_be_granted_is_a_conflict() {
    let daemon = quiet();
    daemon.apply(
        "
tasks:
  tsk_first: { project: prj, title: t, status: todo }
  tsk_second: { project: prj, title: t, assignee: agt_a, status: todo, dependencies: [tsk_first] }
  tsk_parent: { project: prj, title: t, assignee: agt_a, status: todo }
  tsk_child: { project: prj, parent: tsk_parent, title: t, status: todo }
",
    );
    let check = |method: &str, path: &str, body: &str, code: &str, detail: &str| {
        assert_eq!(refused(&daemon, method, path, body, 409, code)["detail"], detail);
    };
    let exists = |what: &str, body: &str, detail: &str| {
        check("POST", what, body, "already_exists", detail);
    };
    let agent = r#"{"id": "agt_a", "name": "Ann"}"#;
    exists("/agents", agent, "agent agt_a exists already, with another `name`");
    let project = r#"{"id": "prj", "workingDirectory": "/tmp"}"#;
    exists("/projects", project, "project prj exists already, with another `assign`");
    let task = r#"{"id": "tsk", "projectId": "prj", "title": "t"}"#;
    exists("/tasks", task, "task tsk exists already, with another `assigneeId`");
    daemon.done(&["task", "set", "tsk", "--status", "cancelled"]);
    let impossible = "Task PRJ-1 is cancelled: it can't become done";
    check("PATCH", "/tasks/tsk", r#"{"status": "done"}"#, "impossible_status", impossible);
    daemon.done(&["task", "set", "tsk", "--status", "todo"]);
    let done = r#"{"status": "done"}"#;
    let open = refused(&daemon, "PATCH", "/tasks/tsk_parent", done, 409, "subtasks_open");
    assert_eq!(open["problems"][0]["path"], "cancelSubtasks", "{open}");
    let done = br#"{"status": "done", "cancelSubtasks": true}"#;
    let parent = send(&daemon, "PATCH", "/tasks/tsk_parent", done).json();
    assert_eq!(
        (&parent["status"], &parent["subtasks"][0]["status"]),
        (&"done".into(), &"cancelled".into())
    );
    assert!(parent["doneBy"].is_string(), "{parent}");
    let stranger = "agent `agt_b` is not assigned to project `prj`";
    check("PATCH", "/tasks/tsk", r#"{"assigneeId": "agt_b"}"#, "not_assigned", stranger);
    let nobody = "Task PRJ-2 has no assignee: it can't be in progress";
    check("PATCH", "/tasks/tsk_first", r#"{"status": "in_progress"}"#, "needs_assignee", nobody);
    // It waits for its dependency. A task that is in progress gets no open dependency.
    let second = r#"{"status": "in_progress"}"#;
    send(&daemon, "PATCH", "/tasks/tsk_second", second.as_bytes());
    let waits = "Task PRJ-1 depends on tasks that are not done: PRJ-2";
    let after = r#"{"dependencies": ["tsk_first"]}"#;
    daemon.done(&["task", "set", "tsk", "--status", "in_progress"]);
    check("PATCH", "/tasks/tsk", after, "dependencies_open", waits);

    let invalid = |method: &str, path: &str, body: &str, detail: &str| {
        assert_eq!(refused(&daemon, method, path, body, 422, "invalid")["detail"], detail);
    };
    invalid("PATCH", "/tasks/tsk", r#"{"title": " "}"#, "a task needs a title");
    invalid(
        "POST",
        "/tasks",
        r#"{"id": "tsk_x", "projectId": "prj", "title": ""}"#,
        "a task needs a title",
    );
    let relative = r#"{"id": "prj_x", "workingDirectory": "here"}"#;
    invalid(
        "POST",
        "/projects",
        relative,
        "the working directory must be an absolute path, not `here`",
    );
    assert_eq!(daemon.json(&["agent", "list"]).as_array().unwrap().len(), 2);
}

#[test]
fn a_task_is_changed_under_api_and_without() {
    let daemon = quiet();
    let expected = |status: &str, title: &str| {
        json!({
            "id": "tsk", "shortId": "PRJ-1", "projectId": "prj", "title": title, "description": "", "status": status, "priority": "medium",
            "assigneeId": "agt_a", "dependencies": [], "createdAt": "[createdAt]", "statusSince": "[statusSince]",
            "subtasks": [], "executions": [],
        })
    };
    for (path, status) in
        [("/tasks/tsk", "backlog"), ("/api/tasks/tsk", "todo"), ("/tasks/tsk", "cancelled")]
    {
        let body = json!({ "status": status, "title": path }).to_string();
        let response = send(&daemon, "PATCH", path, body.as_bytes());
        assert_eq!((response.status, redacted(&response.json())), (200, expected(status, path)));
    }
    // An empty request changes nothing.
    assert_eq!(
        redacted(&send(&daemon, "PATCH", "/tasks/tsk", b"").json()),
        expected("cancelled", "/tasks/tsk")
    );
    let nobody = send(&daemon, "PATCH", "/tasks/tsk", br#"{"assigneeId": null}"#).json();
    assert_eq!(nobody.get("assigneeId"), None);
}

#[test]
fn a_passkey_is_shown_once_and_its_hash_never() {
    let daemon = quiet();
    let made = send(&daemon, "POST", "/agents", br#"{"id": "agt_new", "generatePasskey": true}"#);
    assert_eq!(made.status, 201);
    let passkey = made.json()["passkey"].as_str().unwrap().to_owned();
    assert!(passkey.len() >= 22, "{passkey}");
    for path in ["/agents", "/agents/agt_new", "/status"] {
        let shown = send(&daemon, "GET", path, b"").body;
        assert!(!shown.contains(&passkey) && !shown.contains("sha256"), "{shown}");
    }
    assert_eq!(send(&daemon, "GET", "/agents/agt_new", b"").json()["hasPasskey"], true);
    let given = send(&daemon, "PATCH", "/agents/agt_new", br#"{"passkey": "of my own"}"#).json();
    assert_eq!(given.get("passkey"), None);
    let credentials = json!({ "agent_id": "agt_new", "passkey": passkey, "project_id": "prj" });
    assert_eq!(
        daemon.client().call("authenticate", &credentials)["error_code"],
        "invalid_credentials"
    );
}

#[test]
fn a_body_that_is_too_large_is_not_read() {
    let daemon = quiet();
    let before = daemon.resident_kib();
    let body = format!(r#"{{"title": "{}"}}"#, "x".repeat(8 * 1024 * 1024));
    let response = send(&daemon, "PATCH", "/tasks/tsk", body.as_bytes());
    assert_eq!((response.status, response.json()["code"].clone()), (413, "unreadable_body".into()));
    assert!(response.head.contains("application/problem+json"), "{}", response.head);
    assert!(daemon.resident_kib() < before + 8 * 1024);
    assert_eq!(daemon.json(&["task", "show", "tsk"])["title"], "a title");
}

#[test]
fn what_is_no_http_harms_nobody() {
    let daemon = quiet();
    let _silent: Vec<UnixStream> = (0..50)
        .map(|_| UnixStream::connect(daemon.state().join("control.sock")).unwrap())
        .collect();
    let long = vec![b'x'; 100_000];
    for garbage in
        [&b"\x00\x01\x02\xff\r\n\r\n"[..], b"GET\r\n\r\n", b"{\"jsonrpc\":\"2.0\"}\n\n", &long]
    {
        let mut stream = UnixStream::connect(daemon.state().join("control.sock")).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let _ = stream.write_all(garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&answer));
    }
    assert_eq!(send(&daemon, "GET", "/health/live", b"").body, "ok\n");
}

#[test]
fn the_sockets_are_their_owners_only() {
    let daemon = quiet();
    for file in ["control.sock", "mcp.sock", "coordinator_token"] {
        let mode = std::fs::metadata(daemon.state().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert_eq!(std::fs::metadata(daemon.state()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn an_agent_is_refused() {
    let daemon = Daemon::running(
        "ai_providers: { claude: { cli_command: sh, cli_args: [-c, '\"$AGENT_COORDINATOR\" --config ../coordinator_config.yaml status'] } }",
    );
    daemon.with_one_task(&[]);
    let ended = daemon.until_ended("agt");
    assert_eq!(ended["exit_code"], 1);
    let printed =
        daemon.done(&["logs", "agt", "prj", "--launch", ended["launch_id"].as_str().unwrap()]);
    assert_eq!(
        printed,
        "agent-coordinator: agents have no access to the control socket; they use the MCP tools\n"
    );
    assert!(!daemon.logged("refused an agent on the control socket").is_empty());
}

/// Checks that an agent that runs `script` in the working directory of its task is refused.
/// `cli_command` is a script of that name.
#[track_caller]
fn refused_to_agent(name: &str, script: &str) {
    let daemon =
        Daemon::running(&format!("ai_providers: {{ claude: {{ cli_command: work/{name} }} }}"));
    let path = daemon.work().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    daemon.with_one_task(&[]);
    let ended = daemon.until_ended("agt");
    let printed =
        daemon.done(&["logs", "agt", "prj", "--launch", ended["launch_id"].as_str().unwrap()]);
    let expected =
        "agent-coordinator: agents have no access to the control socket; they use the MCP tools\n";
    assert_eq!((printed.as_str(), &ended["exit_code"]), (expected, &json!(1)), "{name}");
}

const CREATE_TOKEN: &str =
    r#""$AGENT_COORDINATOR" --config ../coordinator_config.yaml token create; exit $?"#;

#[test]
fn an_agent_below_a_process_whose_name_is_not_utf_8_is_refused() {
    // The printf of a shell runs in the shell itself, which may rename itself.
    let rename = r"printf '\377\376' >/proc/$$/comm";
    refused_to_agent("agent.sh", &format!("{rename}\n{CREATE_TOKEN}"));
    // The kernel keeps the first 15 bytes of a name, which end in the middle of a character here.
    refused_to_agent("aエージェント起動.sh", CREATE_TOKEN);
}
