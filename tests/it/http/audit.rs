//! The log of people's changes: the person, the thing, the values before and after, and no secret.

use serde_json::{Value, json};

use super::entry::{OWN, link, log_in, token};
use super::{LISTENING, Web};
use crate::daemon::Daemon;

/// Returns the newest line about one thing.
#[track_caller]
fn told(daemon: &Daemon, what: &str, id: &str) -> Value {
    let lines = daemon.logged("done by a person");
    let about = lines.iter().rfind(|line| line["what"] == what && line["id"] == id);
    let about = about.unwrap_or_else(|| panic!("nothing about {what} {id}: {lines:#?}")).clone();
    assert_eq!((&about["target"], &about["level"]), (&"audit".into(), &"info".into()), "{about}");
    about
}

/// Checks that the line is about this change by this person, and returns the differences.
#[track_caller]
fn check(
    daemon: &Daemon,
    what: &str,
    id: &str,
    by: &str,
    action: &str,
    before: &Value,
    after: &Value,
) {
    let line = told(daemon, what, id);
    let of = |side: &str| {
        line[side].as_str().map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
    };
    assert_eq!((&line["who"], &line["action"]), (&by.into(), &action.into()), "{line}");
    assert_eq!((&of("before"), &of("after")), (before, after), "{line}");
}

fn me() -> String {
    format!("local:{}", nix::unistd::Uid::effective())
}

#[test]
fn what_the_command_line_changes_is_told() {
    let daemon = Daemon::running("");
    let me = &me();
    daemon.project("prj");
    let project = json!({ "name": "prj", "key": "PRJ", "working_directory": daemon.work(), "status": "active",
        "workspace": "shared" });
    check(&daemon, "project", "prj", me, "add", &Value::Null, &project);
    daemon.cli_with_input(
        &["agent", "add", "agt", "--passkey-stdin", "--system-prompt", "my plans"],
        "open sesame",
    );
    let agent = json!({ "name": "agt", "ai_type": "claude", "status": "active", "passkey": "(hidden)",
        "system_prompt": "(8 characters)" });
    check(&daemon, "agent", "agt", me, "add", &Value::Null, &agent);
    daemon.cli_with_input(
        &["agent", "set", "agt", "--passkey-stdin", "--name", "Ann"],
        "close sesame",
    );
    let (before, after) = (
        json!({ "name": "agt", "passkey": "(hidden)" }),
        json!({ "name": "Ann", "passkey": "(hidden)" }),
    );
    check(&daemon, "agent", "agt", me, "change", &before, &after);
    daemon.done(&["project", "set", "prj", "--assign", "agt"]);
    check(&daemon, "assignment", "agt in prj", me, "add", &Value::Null, &Value::Null);
    daemon.done(&[
        "task",
        "add",
        "--id",
        "tsk",
        "--project",
        "prj",
        "--title",
        "a title",
        "--description",
        "the text",
    ]);
    let task = json!({ "project_id": "prj", "title": "a title", "description": "(8 characters)", "status": "todo",
        "priority": "medium", "short_id": "PRJ-1" });
    check(&daemon, "task", "tsk", me, "add", &Value::Null, &task);
    daemon.done(&["task", "set", "tsk", "--title", "another"]);
    check(
        &daemon,
        "task",
        "tsk",
        me,
        "change",
        &json!({ "title": "a title" }),
        &json!({ "title": "another" }),
    );
    daemon.done(&["pause"]);
    assert_eq!(told(&daemon, "coordinator", "starts")["action"], "change");
    daemon.done(&["refresh"]);
    assert_eq!(told(&daemon, "coordinator", "all")["action"], "refresh");
    daemon.done(&["chat", "start", "agt", "prj"]);
    daemon.done(&["chat", "send", "agt", "prj", "my dear"]);
    let n_told = daemon.logged("done by a person").len();
    // Reads are not changes, and neither is a change without a difference.
    daemon.status();
    daemon.done(&["task", "set", "tsk", "--title", "another"]);
    assert_eq!(daemon.logged("done by a person").len(), n_told);
    for secret in ["sesame", "my plans", "the text", "my dear", "sha256$"] {
        assert!(!daemon.log().contains(secret), "{secret}: {}", daemon.log());
    }
}

#[test]
fn who_logs_in_and_acts_is_told_by_name_and_credential() {
    let daemon = Daemon::running(LISTENING);
    let web = &mut Web::to(&daemon);
    let cookie = log_in(web, &daemon, &["--name", "Ann"]);
    let bearer = format!(
        "Authorization: Bearer {}\r\n",
        token(&daemon, &["--name", "ci", "--role", "operator"])
    );
    let listed = daemon.json(&["token", "list"]);
    let id_of = |kind: &str| {
        let all = listed.as_array().unwrap().iter();
        all.filter(|entry| entry["kind"] == kind)
            .map(|entry| entry["id"].as_str().unwrap().to_owned())
            .next()
            .unwrap()
    };
    let (of_cookie, of_token) = (id_of("cookie"), id_of("token"));
    let made = told(&daemon, "credential", &of_token);
    assert_eq!((&made["who"], &made["action"]), (&me().as_str().into(), &"add".into()), "{made}");
    let entered = told(&daemon, "credential", &of_cookie);
    assert_eq!((&entered["who"], &entered["action"]), (&"Ann".into(), &"add".into()), "{entered}");
    assert!(entered["credential_id"].as_str().unwrap().starts_with("key_"), "{entered}");
    web.ask("POST", "/api/pause", &format!("{cookie}{OWN}"), "");
    let paused = told(&daemon, "coordinator", "starts");
    assert_eq!(
        (&paused["who"], &paused["credential_id"]),
        (&"Ann".into(), &of_cookie.as_str().into()),
        "{paused}"
    );
    web.ask("POST", "/api/refresh", &bearer, "");
    let refreshed = told(&daemon, "coordinator", "all");
    assert_eq!(
        (&refreshed["who"], &refreshed["credential_id"]),
        (&"ci".into(), &of_token.as_str().into())
    );
    web.ask("POST", "/logout", &format!("{cookie}{OWN}"), "");
    let left = told(&daemon, "credential", &of_cookie);
    assert_eq!((&left["who"], &left["action"]), (&"Ann".into(), &"change".into()), "{left}");
    // A refused request changes nothing, so there is no line.
    let n_told = daemon.logged("done by a person").len();
    web.ask("POST", "/api/pause", "", "");
    web.ask("POST", "/api/pause", &cookie, "");
    assert_eq!(daemon.logged("done by a person").len(), n_told);
    let (_, secret) = link(&daemon, &[]);
    for secret in [
        secret.as_str(),
        bearer.trim_end().rsplit_once(' ').unwrap().1,
        cookie.trim_end().rsplit_once('=').unwrap().1,
    ] {
        assert!(!daemon.log().contains(secret), "{}", daemon.log());
    }
}

#[test]
fn changes_are_told_whatever_else_is_not() {
    let mut daemon = Daemon::configured("log: { level: error }\n");
    daemon.spawn();
    crate::support::until("the daemon answers", || daemon.cli(&["status"]).code == 0);
    daemon.done(&["pause"]);
    assert_eq!(told(&daemon, "coordinator", "starts")["who"], me().as_str());
    assert!(daemon.logged("ready").is_empty());
}
