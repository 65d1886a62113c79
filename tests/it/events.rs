//! The event stream for people's programs: no event is missed or comes twice, and a client that
//! doesn't read delays no other one.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use serde_json::{Value, json};

use crate::control::send_to;
use crate::daemon::Daemon;
use crate::support::{DEADLINE, until_some};

/// A client that follows.
struct Follower(BufReader<UnixStream>);

/// One event as it was sent.
#[derive(Debug)]
struct Told {
    id: Option<i64>,
    kind: String,
    data: Value,
}

impl Follower {
    fn ask(daemon: &Daemon, query: &str, headers: &str) -> Self {
        let mut stream = UnixStream::connect(daemon.state().join("control.sock")).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        // HTTP/1.0 has no chunks, so that the end of the connection is the end.
        write!(stream, "GET /api/events{query} HTTP/1.0\r\nhost: x\r\n{headers}\r\n").unwrap();
        Self(BufReader::new(stream))
    }

    /// Follows the events from now on.
    fn of(daemon: &Daemon, query: &str, headers: &str) -> Self {
        let mut follower = Self::ask(daemon, query, headers);
        let head = follower.head();
        assert!(
            head.starts_with("http/1.0 200") && head.contains("content-type: text/event-stream"),
            "{head}"
        );
        while follower.line().unwrap().starts_with("retry") {}
        follower
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let n_read = self.0.read_line(&mut line).unwrap();
        (n_read > 0).then(|| line.trim_end().to_owned())
    }

    fn head(&mut self) -> String {
        let mut head = String::new();
        while let Some(line) = self.line().filter(|line| !line.is_empty()) {
            head += &line.to_lowercase();
            head.push('\n');
        }
        head
    }

    /// Returns the next event that isn't about the status, or `None` at the end.
    fn next(&mut self) -> Option<Told> {
        let mut told = Told { id: None, kind: String::new(), data: Value::Null };
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some(("id", id)) => told.id = Some(id.parse().unwrap()),
                Some(("event", kind)) => kind.clone_into(&mut told.kind),
                Some(("data", data)) => told.data = serde_json::from_str(data).unwrap(),
                _ if line.is_empty() && !["", "status"].contains(&told.kind.as_str()) => {
                    return Some(told);
                }
                _ => {}
            }
        }
    }

    fn until(&mut self, kind: &str) -> Told {
        loop {
            let told = self.next().unwrap_or_else(|| panic!("the end came before {kind}"));
            if told.kind == kind {
                return told;
            }
        }
    }

    fn kinds_until(&mut self, last: &str) -> Vec<String> {
        let mut kinds = Vec::new();
        while kinds.last().is_none_or(|kind| kind != last) {
            kinds.push(self.next().unwrap().kind);
        }
        kinds
    }
}

fn ask(daemon: &Daemon, method: &str, path: &str, body: &Value) -> u16 {
    send_to(&daemon.state().join("control.sock"), method, path, body.to_string().as_bytes()).status
}

#[test]
fn what_people_change_is_told_at_once_and_in_order() {
    let daemon = Daemon::running("");
    let mut follower = Follower::of(&daemon, "", "");
    let work = daemon.work();
    ask(&daemon, "POST", "/api/projects", &json!({ "id": "prj", "workingDirectory": work }));
    ask(&daemon, "POST", "/api/agents", &json!({ "id": "agt" }));
    ask(&daemon, "PATCH", "/api/projects/prj", &json!({ "assign": ["agt"] }));
    ask(
        &daemon,
        "POST",
        "/api/tasks",
        &json!({ "id": "tsk", "projectId": "prj", "title": "t", "assigneeId": "agt" }),
    );
    ask(&daemon, "PATCH", "/api/tasks/tsk", &json!({ "title": "another" }));
    ask(&daemon, "POST", "/api/pause", &json!({}));
    ask(&daemon, "PATCH", "/api/tasks/tsk", &json!({ "status": "cancelled" }));
    ask(&daemon, "POST", "/api/stop", &json!({ "agentId": "agt", "projectId": "prj" }));
    let expected = [
        "project.created",
        "agent.created",
        "assignment.added",
        "task.created",
        "task.changed",
        "person.pause",
        "task.status",
        "person.stop",
    ];
    assert_eq!(follower.kinds_until("person.stop"), expected);

    let mut again = Follower::of(&daemon, "?after=0", "");
    let first = again.next().unwrap();
    assert_eq!((first.id, first.kind.as_str()), (Some(1), "project.created"));
    assert_eq!(again.kinds_until("person.stop"), expected[1..]);
    let task = Follower::of(&daemon, "?agent=agt&after=0", "").until("task.status");
    let id = task.id.unwrap();
    let mut told = task.data;
    assert!(told["at"].as_str().unwrap().ends_with('Z'));
    told.as_object_mut().unwrap().remove("at");
    let expected = json!({
        "seq": id, "kind": "task.status", "agentId": "agt", "projectId": "prj", "taskId": "tsk",
        "taskShortId": "PRJ-1", "detail": "cancelled",
        "author": format!("local:{}", nix::unistd::Uid::effective()),
    });
    assert_eq!(told, expected);

    // A client that reconnects continues after its last event. Browsers send this header.
    let mut back = Follower::of(&daemon, "?after=0", &format!("last-event-id: {id}\r\n"));
    assert_eq!(back.next().unwrap().kind, "person.stop");
    // The number belongs to another log than this.
    let mut lost = Follower::of(&daemon, "?after=1000000", "");
    let reset = lost.next().unwrap();
    assert_eq!((reset.kind.as_str(), reset.data), ("reset", json!({})));
    ask(&daemon, "POST", "/api/resume", &json!({ "all": true }));
    assert_eq!(lost.next().unwrap().kind, "person.resume");
    // This client gets only the events of its query.
    let mut narrow = Follower::of(&daemon, "?project=other&after=0", "");
    ask(&daemon, "POST", "/api/projects", &json!({ "id": "other", "workingDirectory": work }));
    assert_eq!(narrow.next().unwrap().kind, "project.created");
}

#[test]
fn the_life_of_an_agent_is_told() {
    let daemon = Daemon::running("");
    let mut follower = Follower::of(&daemon, "", "");
    daemon.with_one_task(&["authenticate", "get-my-task", "report:success"]);
    daemon.until_ended("agt");
    let kinds = follower.kinds_until("launch.ended");
    let seen = |kind: &str| assert!(kinds.iter().any(|told| told == kind), "{kind}: {kinds:?}");
    for kind in [
        "launch.starting",
        "launch.running",
        "session.opened",
        "execution.started",
        "session.ended",
    ] {
        seen(kind);
    }
    let launch = daemon.ended("agt")[0]["launch_id"].as_str().unwrap().to_owned();
    let mut of_launch = Follower::of(&daemon, &format!("?launch={launch}&after=0"), "");
    assert_eq!(of_launch.next().unwrap().kind, "launch.starting");
}

#[test]
fn what_coordinators_say_is_told() {
    let daemon = Daemon::running("");
    let mut stream = Follower::of(&daemon, "", "");
    daemon.with_one_task(&["sleep:600"]);
    until_some("the status is told", || (stream.line()? == "event: status").then_some(()));
}

#[test]
fn who_asks_wrongly_is_told() {
    let daemon = Daemon::running("");
    for (query, headers, code) in [
        ("?after=x", "", "invalid_query"),
        ("?since=1", "", "invalid_query"),
        ("?agent=a%20b", "", "invalid_query"),
        ("", "last-event-id: x\r\n", "invalid_last_event_id"),
    ] {
        let mut asked = Follower::ask(&daemon, query, headers);
        let head = asked.head();
        assert!(
            head.starts_with("http/1.0 400") && head.contains("application/problem+json"),
            "{head}"
        );
        assert!(asked.line().unwrap().contains(code), "{query}");
    }
}

#[test]
fn the_command_line_prints_what_happens() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    let mut printer = daemon.command();
    printer.args(["events", "--after", "0", "--json"]).stdout(std::process::Stdio::piped());
    let mut printer = printer.spawn().unwrap();
    let mut lines = BufReader::new(printer.stdout.take().unwrap()).lines();
    let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((&event["kind"], &event["project_id"]), (&"project.created".into(), &"prj".into()));
    ask(&daemon, "POST", "/api/pause", &json!({}));
    let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(event["kind"], "person.pause");
    printer.kill().unwrap();
    printer.wait().unwrap();
}

#[test]
fn streams_end_with_the_daemon() {
    let mut daemon = Daemon::running("");
    let mut followers: Vec<Follower> = (0..20).map(|_| Follower::of(&daemon, "", "")).collect();
    let before = Instant::now();
    assert!(daemon.terminate().success());
    assert!(before.elapsed() < DEADLINE / 4, "{:?}", before.elapsed());
    assert!(followers.iter_mut().all(|follower| follower.next().is_none()));
}

#[test]
fn two_hundred_follow_and_those_that_do_not_read_delay_nobody() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    ask(&daemon, "POST", "/api/tasks", &json!({ "id": "tsk", "projectId": "prj", "title": "t" }));
    let before = daemon.resident_kib();
    let _silent: Vec<Follower> = (0..100).map(|_| Follower::ask(&daemon, "", "")).collect();
    let mut followers: Vec<Follower> = (0..100).map(|_| Follower::of(&daemon, "", "")).collect();
    for n in 0..300 {
        ask(&daemon, "PATCH", "/api/tasks/tsk", &json!({ "title": format!("title {n}") }));
    }
    ask(&daemon, "POST", "/api/pause", &json!({}));
    for follower in &mut followers {
        let kinds = follower.kinds_until("person.pause");
        assert_eq!(kinds.len(), 301, "each is told once");
    }
    let grown = daemon.resident_kib().saturating_sub(before);
    assert!(grown < 20 * 1024, "{grown} KiB");
}
