//! People's reads and changes over REST beside tasks and chats: sessions, executions, notices,
//! assignments, settings. Lists come in parts, and unchanged answers are not sent again.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::support::{DEADLINE, until};

/// An answer: its status, head and body.
pub struct Answer(pub u16, String, pub String);

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.2).unwrap_or_else(|_| panic!("{} {}", self.1, self.2))
    }

    fn header(&self, name: &str) -> Option<&str> {
        let header = |line: &'_ str| {
            line.split_once(": ")
                .filter(|(found, _)| found.eq_ignore_ascii_case(name))
                .map(|(found, _)| found.len() + 2)
        };
        self.1.lines().find_map(|line| header(line).map(|start| &line[start..]))
    }
}

pub fn ask(daemon: &Daemon, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let mut stream = UnixStream::connect(daemon.state().join("control.sock")).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} /api{path} HTTP/1.0\r\nhost: x\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer(status, head.to_owned(), body.to_owned())
}

fn get(daemon: &Daemon, path: &str) -> Value {
    let answer = ask(daemon, "GET", path, "", "");
    assert_eq!(answer.0, 200, "{path}: {}", answer.2);
    answer.json()
}

#[track_caller]
fn refused(daemon: &Daemon, method: &str, path: &str, status: u16, code: &str) {
    let answer = ask(daemon, method, path, "", "");
    assert_eq!(
        (answer.0, answer.json()["code"].as_str()),
        (status, Some(code)),
        "{path}: {}",
        answer.2
    );
}

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect()
}

#[test]
fn a_session_is_listed_and_ended_with_its_process() {
    let daemon = Daemon::running("");
    daemon.with_one_task(&["authenticate", "get-my-task", "write:begun", "sleep:600"]);
    let pid = daemon.written_pid("begun");
    let sessions = get(&daemon, "/sessions?open=true&agent=agt");
    let [id] = ids(&sessions)[..] else { panic!("{sessions}") };
    assert_eq!(get(&daemon, "/sessions?project=other"), json!([]));
    let shown = get(&daemon, &format!("/sessions/{id}"));
    assert_eq!(
        (&shown["agentId"], &shown["purpose"], shown.get("endedAt")),
        (&"agt".into(), &"task".into(), None)
    );
    assert!(!shown.to_string().contains("sess_"), "{shown}");

    let executions = get(&daemon, "/executions?task=tsk&agent=agt&open=true");
    assert_eq!(ids(&executions).len(), 1, "{executions}");
    assert_eq!(
        (&executions[0]["taskId"], &executions[0]["launchId"]),
        (&"tsk".into(), &shown["launchId"])
    );

    // Its work is taken away. It gets a notice, and the lists show that.
    ask(&daemon, "PATCH", "/tasks/tsk", "", r#"{"status": "blocked"}"#);
    let notices = get(&daemon, "/notices?open=true&agent=agt");
    assert_eq!(
        (&notices[0]["action"], &notices[0]["type"]),
        (&"blocked".into(), &"status_change".into())
    );

    // The command line shows the same.
    let listed = daemon.json(&["session", "list", "--agent", "agt"]);
    assert_eq!((listed[0]["id"].as_str(), listed.as_array().unwrap().len()), (Some(id), 1));
    assert!(daemon.done(&["execution", "list", "--task", "tsk", "--open"]).contains("working"));
    assert!(daemon.done(&["notice", "list", "--project", "prj"]).contains("blocked"));
    assert!(daemon.done(&["task", "history", "tsk"]).contains("task.created"));
    assert_eq!(daemon.done(&["session", "list", "--agent", "nobody"]), "No sessions.\n");

    assert_eq!(ask(&daemon, "DELETE", &format!("/sessions/{id}"), "", "").0, 200);
    daemon.until_ended("agt");
    assert!(crate::support::is_gone(pid));
    let ended = get(&daemon, &format!("/sessions/{id}"));
    assert_eq!(ended["endReason"], "process_exited", "{ended}");
    assert_eq!(ask(&daemon, "POST", &format!("/sessions/{id}"), "", "").json(), ended);
    assert_eq!(daemon.done(&["session", "end", id]), format!("{id} has ended\n"));
    let executions = get(&daemon, "/executions?task=tsk");
    assert!(
        executions[0]["endedAt"].is_string() && executions[0]["outcome"].is_string(),
        "{executions}"
    );
    assert_eq!(get(&daemon, "/notices?open=true"), json!([]));
    let settled = get(&daemon, &format!("/notices?launch={}", shown["launchId"].as_str().unwrap()));
    assert!(settled[0]["settledAt"].is_string(), "{settled}");

    let history = get(&daemon, "/tasks/tsk/history");
    let kinds: Vec<&str> =
        history.as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds[0], "task.created");
    assert!(kinds.contains(&"execution.ended") && kinds.contains(&"task.status"), "{kinds:?}");
}

#[test]
fn work_that_is_reported_ends_once() {
    // An agent may report without a look at its task.
    for steps in [
        &["authenticate", "get-my-task", "report:success"][..],
        &["authenticate", "report:success"],
    ] {
        let daemon = Daemon::running("");
        daemon.project("prj");
        daemon.agent("agt", "prj", steps);
        daemon.task("tsk", "prj", "agt");
        daemon.until_ended("agt");
        let history = get(&daemon, "/tasks/tsk/history");
        let kinds = history.as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap());
        let of_work: Vec<&str> = kinds.filter(|kind| kind.starts_with("execution.")).collect();
        // The end of the launch adds its outcome.
        let expected = ["execution.started", "execution.ended", "execution.changed"];
        assert_eq!(of_work, expected, "{steps:?}");
        assert_eq!(get(&daemon, "/executions?task=tsk")[0]["outcome"], "completed");
    }
}

#[test]
fn what_is_unknown_or_strange_says_so() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    refused(&daemon, "GET", "/sessions/none", 404, "session_not_found");
    refused(&daemon, "DELETE", "/sessions/none", 404, "session_not_found");
    refused(&daemon, "GET", "/tasks/none/history", 404, "task_not_found");
    refused(&daemon, "PUT", "/projects/prj/agents/none", 404, "agent_not_found");
    refused(&daemon, "DELETE", "/projects/none/agents/none", 404, "agent_not_found");
    for path in ["/sessions", "/executions", "/notices"] {
        refused(&daemon, "GET", &format!("{path}?limit=0"), 400, "invalid_query");
        refused(&daemon, "GET", &format!("{path}?limit=1001"), 400, "invalid_query");
        refused(&daemon, "GET", &format!("{path}?since=1"), 400, "invalid_query");
        refused(&daemon, "GET", &format!("{path}?agent=..%2fx"), 400, "invalid_query");
        assert_eq!(get(&daemon, &format!("{path}?cursor=none")), json!([]));
    }
    refused(&daemon, "GET", "/tasks?limit=1&cursor=none", 409, "unknown_cursor");
    for id in ["..%2f..", "%00", "%ff", "a%2fb"] {
        refused(&daemon, "GET", &format!("/sessions/{id}"), 400, "invalid_path");
        refused(&daemon, "PUT", &format!("/projects/prj/agents/{id}"), 400, "invalid_path");
    }
    let not_utf8 = ask(&daemon, "GET", "/tasks?status=%ff", "", "");
    assert_eq!(not_utf8.0, 400, "{}", not_utf8.2);
}

#[test]
fn agents_are_assigned_and_taken_away() {
    let daemon = Daemon::running("");
    daemon.apply("agents: { agt_a: {}, agt_b: {} }\nprojects: { prj: { working_directory: work, agents: [agt_a] } }");
    let both = json!([{ "projectId": "prj", "agentId": "agt_a" }, { "projectId": "prj", "agentId": "agt_b" }]);
    for _ in 0..2 {
        assert_eq!(ask(&daemon, "PUT", "/projects/prj/agents/agt_b", "", "").json(), both[1]);
    }
    assert_eq!(get(&daemon, "/assignments?project=prj"), both);
    for _ in 0..2 {
        assert_eq!(ask(&daemon, "DELETE", "/projects/prj/agents/agt_a", "", "").0, 204);
    }
    assert_eq!(get(&daemon, "/assignments"), json!([both[1]]));
    assert_eq!(get(&daemon, "/assignments?agent=agt_a"), json!([]));
}

#[test]
fn lists_come_in_parts() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    for n in 0..5 {
        let body =
            json!({ "id": format!("tsk_{n}"), "projectId": "prj", "title": "t" }).to_string();
        assert_eq!(ask(&daemon, "POST", "/tasks", "", &body).0, 201);
    }
    let all: Vec<String> = ids(&get(&daemon, "/tasks")).into_iter().map(str::to_owned).collect();
    let (mut seen, mut path) = (Vec::new(), "/tasks?project=prj&limit=2".to_owned());
    loop {
        let part = ask(&daemon, "GET", &path, "", "");
        seen.extend(ids(&part.json()).into_iter().map(str::to_owned));
        let Some(link) = part.header("link") else {
            break;
        };
        let query =
            link.strip_prefix("<").and_then(|link| link.strip_suffix(">; rel=\"next\"")).unwrap();
        path = format!("/tasks{query}");
    }
    assert_eq!(seen, all);
}

#[test]
fn what_is_known_is_not_sent_again_and_what_changed_is_not_overwritten() {
    let daemon = Daemon::running("");
    daemon.apply(
        "agents: { agt: {} }\nprojects: { prj: { working_directory: work } }\ntasks: { tsk: { project: prj, title: t } }",
    );
    for path in ["/tasks", "/tasks/tsk", "/agents", "/projects/prj", "/assignments"] {
        let first = ask(&daemon, "GET", path, "", "");
        let tag = first.header("etag").unwrap_or_else(|| panic!("{path}")).to_owned();
        let again = ask(&daemon, "GET", path, &format!("if-none-match: {tag}\r\n"), "");
        assert_eq!(
            (again.0, again.2.as_str(), again.header("etag")),
            (304, "", Some(tag.as_str())),
            "{path}"
        );
        assert_eq!(ask(&daemon, "GET", path, "if-none-match: \"other\"\r\n", "").0, 200);
    }
    for (path, body) in [
        ("/tasks/tsk", r#"{"title": "another"}"#),
        ("/agents/agt", r#"{"name": "another"}"#),
        ("/projects/prj", r#"{"name": "another"}"#),
    ] {
        let tag = ask(&daemon, "GET", path, "", "").header("etag").unwrap().to_owned();
        let seen = format!("if-match: {tag}\r\n");
        assert_eq!(ask(&daemon, "PATCH", path, &seen, body).0, 200, "{path}");
        // The same edit once more changes nothing, so only another one comes too late.
        let other = body.replace("another", "a third");
        let late = ask(&daemon, "PATCH", path, &seen, &other);
        assert_eq!(
            (late.0, late.json()["code"].as_str()),
            (412, Some("precondition_failed")),
            "{path}: {}",
            late.2
        );
        assert_eq!(ask(&daemon, "PATCH", path, "if-match: garbage\r\n", &other).0, 412);
        assert_eq!(ask(&daemon, "PATCH", path, "if-match: *\r\n", body).0, 200);
        assert_ne!(ask(&daemon, "GET", path, "", "").header("etag"), Some(tag.as_str()));
    }
}

#[test]
fn settings_are_shown_without_their_secrets() {
    let daemon = Daemon::running("coordinator_token: coord_a_secret_of_ours\nmax_concurrent: 7\n");
    let shown = get(&daemon, "/settings");
    assert!(!shown.to_string().contains("a_secret_of_ours"), "{shown}");
    let find = |name: &str| {
        let all = shown["settings"].as_array().unwrap();
        all.iter()
            .find(|setting| setting["setting"] == name)
            .unwrap_or_else(|| panic!("{name}"))
            .clone()
    };
    let line_of = |name: &str| find(name)["line"].as_u64();
    assert_eq!(line_of("max_concurrent"), line_of("coordinator_token").map(|line| line + 1));
    assert_eq!(line_of("notice.grace"), None);
    let find = |name: &str| {
        let mut found = find(name);
        found.as_object_mut().unwrap().remove("line");
        found
    };
    let expected =
        json!({ "setting": "max_concurrent", "value": "7", "isDefault": false, "applies": "now" });
    assert_eq!(find("max_concurrent"), expected);
    assert_eq!(
        find("coordinator_token"),
        json!({ "setting": "coordinator_token", "isDefault": false, "applies": "now" })
    );
    assert_eq!(
        (&find("notice.grace")["isDefault"], &find("state_dir")["applies"]),
        (&true.into(), &"after_restart".into())
    );
    assert!(shown["configuration"]["file"].is_string());
}

#[test]
fn what_a_coordinator_does_has_a_name_of_its_own() {
    let daemon = Daemon::running("");
    assert_eq!(ask(&daemon, "POST", "/coordinator/pause", "", "").0, 204);
    assert_eq!(get(&daemon, "/coordinator")["paused"], true);
    assert_eq!(ask(&daemon, "POST", "/coordinator/resume", "", r#"{"all": true}"#).0, 204);
    assert_eq!(ask(&daemon, "POST", "/coordinator/refresh", "", "").0, 204);
    until("it is paused no more", || get(&daemon, "/coordinator")["paused"] == false);
}
