//! Checks every mistake in a call: the answer names it, in the one form of answers, and nothing has
//! changed. The test uses the server's own list of tools, so that a new tool is covered without a
//! change here.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use serde_json::{Map, Value, json};

use crate::contract::bed::{Bed, Endpoint, TOKEN};
use crate::contract::client::{Answer, Client};
use crate::postgres::Database;

/// The code of the refusal of wrong arguments.
const INVALID: &str = "invalid_arguments";
/// Nearly the length of the longest message, in bytes.
const TOO_LONG: usize = 1_000_000;
/// The longest answer to such a message. A server must not return the megabyte.
const MAX_WORDS: usize = 2_000;

/// The arguments that older clients may leave out although the schema requires them.
const TOLERATED: [(&str, &str); 2] =
    [("authenticate", "project_id"), ("should_start", "project_id")];

/// A tool as the server describes it.
struct Tool {
    name: String,
    arguments: Map<String, Value>,
    required: Vec<String>,
}

fn tools(client: &mut Client) -> Vec<Tool> {
    let listed =
        client.request("tools/list", &json!({}))["result"]["tools"].as_array().unwrap().clone();
    let tool = |tool: Value| Tool {
        name: tool["name"].as_str().unwrap().to_owned(),
        arguments: tool["inputSchema"]["properties"].as_object().unwrap().clone(),
        required: serde_json::from_value(tool["inputSchema"]["required"].clone())
            .unwrap_or_default(),
    };
    listed.into_iter().map(tool).collect()
}

impl Tool {
    fn is_for_sessions(&self) -> bool {
        self.arguments.contains_key("session_token")
    }

    fn is_required(&self, argument: &str) -> bool {
        self.required.iter().any(|required| required == argument)
            && !TOLERATED.contains(&(self.name.as_str(), argument))
    }

    /// Returns arguments of the right form. They refer to existing things if there are some. The
    /// passkey is wrong.
    fn sample(&self, session_token: &str) -> Value {
        let value = |name: &str, schema: &Value| match (name, schema["type"].as_str().unwrap()) {
            ("session_token", _) => session_token.into(),
            ("coordinator_token", _) => TOKEN.into(),
            ("coordinator_id", _) => "crd_test".into(),
            ("agent_id", _) => "agt_a".into(),
            ("project_id", _) => "prj".into(),
            ("task_id", _) => "tsk".into(),
            ("reason", _) if self.name == "report_process_stopping" => "shutdown".into(),
            _ if schema["enum"].is_array() => schema["enum"][0].clone(),
            (_, "string") if schema["description"].as_str().unwrap().contains("RFC 3339") => {
                "2026-01-06T10:00:00Z".into()
            }
            (_, "string") => "x".into(),
            (_, "integer") => schema.get("minimum").cloned().unwrap_or_else(|| 1.into()),
            (_, "boolean") => true.into(),
            (_, "array") => json!([]),
            (_, "object") => json!({}),
            (_, other) => panic!("{}: no sample of {other}", self.name),
        };
        let required = self.arguments.iter().filter(|(name, _)| self.required.contains(name));
        required
            .map(|(name, schema)| (name.clone(), value(name, schema)))
            .collect::<Map<_, _>>()
            .into()
    }

    /// Returns the samples with one wrong argument each, with a description of the mistake.
    fn mistakes(&self, session_token: &str) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        for (name, schema) in &self.arguments {
            let mut add = |kind: Kind, value: Value| {
                let mut arguments = self.sample(session_token);
                let what = format!("{} with {name} = {}", self.name, shortened(&value));
                arguments[name] = value;
                mistakes.push(Mistake { what, argument: name.clone(), kind, arguments });
            };
            if self.is_required(name) {
                add(Kind::Form, Value::Null);
            }
            let of_type = schema["type"].as_str().unwrap();
            for (other, value) in [
                ("integer", json!(7)),
                ("boolean", json!(true)),
                ("string", json!("no word of any list")),
                ("array", json!([1])),
                ("array", json!([])),
                ("object", json!({ "a": null })),
                ("object", json!({})),
                ("number", json!(1.5)),
                ("number", json!(-1e30)),
            ] {
                if other != of_type {
                    add(Kind::Form, value);
                }
            }
            if schema["enum"].is_array() {
                add(Kind::Form, "no such word".into());
                add(Kind::Form, "x".repeat(TOO_LONG).into());
            } else if name.ends_with("_id") || name == "cursor" {
                // `authenticate` does not say what is wrong with an id.
                let kind = if self.name == "authenticate" { Kind::Refused } else { Kind::Form };
                for id in [
                    "",
                    "../etc",
                    "a b",
                    "_x",
                    "é",
                    "a\u{202e}b",
                    &"x".repeat(65),
                    &"x".repeat(TOO_LONG),
                ] {
                    add(kind, id.into());
                }
                add(Kind::Unknown, "nobody.0".into());
                if name.contains("task") {
                    add(Kind::Refused, "tsk_elsewhere".into());
                }
            } else if of_type == "string" {
                add(Kind::TooLong, "x".repeat(TOO_LONG).into());
            }
            if of_type == "array" {
                for element in [json!(null), json!([[]]), json!("x".repeat(1_000))] {
                    add(Kind::Form, json!([element]));
                }
            }
        }
        if !self.required.is_empty() && self.name != "authenticate" {
            let argument = self.required[0].clone();
            let (what, arguments) = (format!("{} without arguments", self.name), json!({}));
            mistakes.push(Mistake { what, argument, kind: Kind::Form, arguments });
        }
        mistakes
    }
}

#[derive(Debug)]
struct Mistake {
    what: String,
    argument: String,
    kind: Kind,
    arguments: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The argument can't have such a form: a refusal that names the argument.
    Form,
    /// Either kind of refusal.
    TooLong,
    Refused,
    /// A negative answer is possible.
    Unknown,
}

impl Mistake {
    #[track_caller]
    fn check(&self, answer: Answer) {
        let length = format!("{answer:?}").len();
        assert!(length < MAX_WORDS, "{}: an answer of {length} bytes", self.what);
        match (self.kind, answer) {
            (_, Answer::Refusal(object)) if object["error_code"] == INVALID => {
                let message = object["error"].as_str().unwrap();
                assert!(message.contains(&self.argument), "{}: {message}", self.what);
                assert!(
                    object["hint"].as_str().unwrap().contains(&self.argument),
                    "{}: {object}",
                    self.what
                );
                assert!(object["action"].is_null(), "{}: {object}", self.what);
                assert!(!message.chars().any(char::is_control), "{}: {message:?}", self.what);
                assert!(self.kind != Kind::Unknown, "{}: {message}", self.what);
            }
            (Kind::TooLong, Answer::Refusal(object)) if object["error_code"] == "too_long" => {
                assert!(
                    object["error"].as_str().unwrap().contains(&self.argument),
                    "{}: {object}",
                    self.what
                );
            }
            (Kind::TooLong | Kind::Refused | Kind::Unknown, Answer::Refusal(object)) => {
                check_fair(&self.what, &object);
            }
            // An agent at its task is told first that a tool of chats is not for it.
            (_, Answer::Refusal(object)) if object["error_code"] == "wrong_purpose" => {}
            (Kind::Unknown, Answer::Success(_)) => {}
            (_, other) => panic!("{}: {other:?}", self.what),
        }
    }
}

/// Checks that a refusal is about the call and not about the number of calls.
#[track_caller]
fn check_fair(what: &str, refusal: &Value) {
    for unfair in ["rate_limited", "unavailable", INVALID] {
        assert_ne!(refusal["error_code"], unfair, "{what}: {refusal}");
    }
}

fn shortened(value: &Value) -> String {
    let text = value.to_string();
    if text.len() < 80 { text } else { format!("{} … ({} bytes)", &text[..40], text.len()) }
}

/// Returns every row of every table.
#[track_caller]
fn dump(bed: &Bed) -> String {
    let dump = bed.database().map_or_else(|| dump_file(&bed.file()), Database::dump);
    assert!(dump.contains("tsk_elsewhere"), "{dump}");
    dump
}

fn dump_file(file: &Path) -> String {
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let all = |sql: &str| -> Vec<String> {
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let mut dump = String::new();
    for table in all("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name") {
        let columns = all(&format!("SELECT name FROM pragma_table_info('{table}')"));
        let columns: Vec<String> =
            columns.iter().map(|name| format!("quote(\"{name}\")")).collect();
        for row in all(&format!("SELECT {} FROM \"{table}\"", columns.join(" || ',' || "))) {
            writeln!(dump, "{table}: {row}").unwrap();
        }
    }
    dump
}

#[track_caller]
fn check_unchanged(before: &str, after: &str, what: &str) {
    let changed: Vec<&str> =
        after.lines().filter(|line| !before.lines().any(|known| known == *line)).collect();
    assert!(before == after, "{what} changed {changed:#?}");
}

/// Starts an agent and returns its ticket. Using the ticket again gives a fresh token.
fn at_work(bed: &Bed) -> String {
    bed.with_a_task();
    let mut coordinator = bed.coordinator("crd_agents");
    let claimed =
        coordinator.done("should_start", json!({ "agent_id": "agt_a", "project_id": "prj" }));
    let ticket = claimed["launch_ticket"].as_str().unwrap().to_owned();
    bed.agent_with("agt_a", &ticket).done("get_my_task", json!({}));
    ticket
}

#[test]
fn a_mistake_in_any_argument_of_any_tool_is_told_and_changes_nothing() {
    let bed = Bed::behind(Endpoint::Socket);
    let ticket = at_work(&bed);
    for tool in tools(&mut bed.client()) {
        let agent = bed.agent_with("agt_a", &ticket);
        let before = dump(&bed);
        let mut client = bed.client();
        // Mistakes of one kind are sent at the same time, because the answers to wrong passkeys are
        // delayed more and more.
        let mistakes = tool.mistakes(agent.shows("session_token"));
        let (of_form, others): (Vec<Mistake>, Vec<Mistake>) =
            mistakes.into_iter().partition(|mistake| mistake.kind == Kind::Form);
        for mistakes in [of_form, others] {
            let asked: Vec<u64> = mistakes
                .iter()
                .map(|mistake| client.begin(&tool.name, &mistake.arguments))
                .collect();
            for (mistake, id) in mistakes.iter().zip(asked) {
                mistake.check(client.answer(id));
            }
        }
        check_unchanged(&before, &dump(&bed), &tool.name);
    }
}

#[test]
fn an_optional_argument_that_is_null_is_not_there() {
    let bed = Bed::behind(Endpoint::InProcess);
    let ticket = at_work(&bed);
    let all = tools(&mut bed.client());
    for tool in &all {
        let mut arguments = tool.sample("");
        for name in tool.arguments.keys().filter(|name| !tool.is_required(name)) {
            arguments[name] = Value::Null;
        }
        if tool.is_for_sessions() {
            // A report by the earlier agent ended its launch.
            arguments["session_token"] = "sess_unknown".into();
        }
        check_read(&tool.name, &bed.client().call(&tool.name, &arguments));
    }
    // These calls have a session, so that their arguments are read.
    let mut agent = bed.agent_with("agt_a", &ticket);
    let nulls = json!({ "reason": null, "token": null, "no_such_argument": null });
    for tool in all.iter().filter(|tool| tool.is_for_sessions() && !is_last_word(&tool.name)) {
        let mut arguments = tool.sample(agent.shows("session_token"));
        arguments.as_object_mut().unwrap().extend(nulls.as_object().unwrap().clone());
        if tool.arguments.contains_key("timeout_seconds") {
            arguments["timeout_seconds"] = 0.into();
        }
        check_read(&tool.name, &agent.call(&tool.name, arguments));
    }
    let last = json!({ "result": "success", "summary": null, "next_steps": null });
    agent.done("report_completed", last);
}

/// Checks that the arguments of a call were accepted.
#[track_caller]
fn check_read(tool: &str, answer: &Answer) {
    match answer {
        Answer::Refusal(object) => check_fair(tool, object),
        Answer::Success(_) => {}
        Answer::Error { .. } => panic!("{tool}: {answer:?}"),
    }
}

fn is_last_word(tool: &str) -> bool {
    ["logout", "report_completed", "report_execution_complete"].contains(&tool)
}

#[test]
fn a_session_that_is_none_any_more_opens_no_tool() {
    let bed = Bed::behind(Endpoint::Socket);
    let ticket = at_work(&bed);
    let superseded = bed.agent_with("agt_a", &ticket);
    let mut reported = bed.agent_with("agt_a", &ticket);
    reported.done("report_completed", json!({ "result": "blocked" }));
    let mut gone = bed.agent("agt_b");
    gone.done("logout", json!({}));
    let before = dump(&bed);
    let codes = ["invalid_session", "session_ended"];
    for tool in tools(&mut bed.client()).iter().filter(|tool| tool.is_for_sessions()) {
        for (what, caller) in
            [("superseded", &superseded), ("reported", &reported), ("logged out", &gone)]
        {
            let what = format!("{}, {what}", tool.name);
            match bed.client().call(&tool.name, &tool.sample(caller.shows("session_token"))) {
                Answer::Refusal(object) => {
                    assert!(
                        codes.contains(&object["error_code"].as_str().unwrap()),
                        "{what}: {object}"
                    );
                }
                // This is the same answer again.
                Answer::Success(_) if what.starts_with("report_") && what.ends_with("reported") => {
                }
                other => panic!("{what}: {other:?}"),
            }
        }
    }
    check_unchanged(&before, &dump(&bed), "a session that is none");
}

#[test]
fn ten_calls_of_a_tool_at_once_are_all_answered() {
    let bed = Bed::behind(Endpoint::InProcess);
    for tool in tools(&mut bed.client()) {
        // Each tool has a bed of its own, because some tools end what the next one needs.
        let bed = Bed::behind(Endpoint::InProcess);
        let ticket = at_work(&bed);
        let agent = bed.agent_with("agt_a", &ticket);
        let mut arguments = tool.sample(agent.shows("session_token"));
        if tool.arguments.contains_key("timeout_seconds") {
            arguments["timeout_seconds"] = 1.into();
        }
        let mut client = bed.client();
        let asked: Vec<u64> = (0..10).map(|_| client.begin(&tool.name, &arguments)).collect();
        for id in asked {
            check_read(&tool.name, &client.answer(id));
        }
        // The call is repeated once all calls are answered.
        check_read(&tool.name, &client.call(&tool.name, &arguments));
        let task = bed.task("tsk");
        let n_executions = task["executions"].as_array().unwrap().len();
        assert!(n_executions <= 1, "{}: {task}", tool.name);
        assert_eq!(bed.client().call("health_check", &json!({})).success()["status"], "ok");
    }
}

#[test]
fn an_unknown_argument_is_refused_by_the_tools_of_agents_only() {
    let bed = Bed::behind(Endpoint::InProcess);
    let ticket = at_work(&bed);
    let agent = bed.agent_with("agt_a", &ticket);
    for tool in tools(&mut bed.client()) {
        let mut arguments = tool.sample(agent.shows("session_token"));
        arguments["no_such_argument"] = 1.into();
        // The tools of chats are refused before their arguments are read.
        match bed.client().call(&tool.name, &arguments) {
            Answer::Refusal(object) if object["error_code"] == INVALID => {
                assert!(
                    tool.is_for_sessions() || tool.name == "authenticate",
                    "{}: {object}",
                    tool.name
                );
                assert_eq!(
                    object["error"], "argument `no_such_argument` is unknown",
                    "{}",
                    tool.name
                );
            }
            Answer::Refusal(object) if object["error_code"] == "wrong_purpose" => {}
            other => assert!(
                !tool.is_for_sessions() && tool.name != "authenticate",
                "{}: {other:?}",
                tool.name
            ),
        }
    }
}

/// The limits are the same on every interface, and the refusal names the text, its length and the
/// limit.
#[test]
fn a_text_that_is_too_long_is_refused_by_name_through_every_door() {
    let bed = Bed::behind(Endpoint::Socket);
    bed.with_a_task();
    let mut agent = bed.agent("agt_a");
    agent.done("get_my_task", json!({}));
    let before = dump(&bed);
    let long = |length: usize| "語".repeat(length);
    for (tool, text, limit, more) in [
        ("update_task_status", "reason", 4_000, json!({ "task_id": "tsk", "status": "blocked" })),
        ("report_completed", "summary", 20_000, json!({ "result": "success" })),
        ("report_completed", "next_steps", 20_000, json!({ "result": "failed" })),
        ("report_execution_complete", "error_message", 20_000, json!({ "exit_code": 1 })),
    ] {
        let mut arguments = more;
        arguments[text] = long(limit + 1).into();
        let refusal = agent.call(tool, arguments).refusal("too_long");
        let words =
            format!("`{text}` is {} characters long, and at most {limit} are taken", limit + 1);
        assert_eq!(
            (&refusal["error"], refusal["hint"].is_string()),
            (&words.into(), true),
            "{tool}"
        );
    }
    let refused = |method: &str, path: &str, body: Value, words: &str| {
        let problem = bed.refused(method, path, &body);
        assert!(problem["detail"].as_str().unwrap().contains(words), "{method} {path}: {problem}");
    };
    let title = "`title` is 501 characters long, and at most 500 are taken";
    refused("POST", "/tasks", json!({ "projectId": "prj", "title": long(501) }), title);
    refused("PATCH", "/tasks/tsk", json!({ "title": long(501) }), title);
    refused(
        "PATCH",
        "/tasks/tsk",
        json!({ "title": "two\nlines" }),
        "`title` has a control character at position 4",
    );
    refused(
        "PATCH",
        "/tasks/tsk",
        json!({ "description": long(50_001) }),
        "`description` is 50001 characters long",
    );
    refused(
        "PATCH",
        "/tasks/tsk",
        json!({ "status": "blocked", "reason": long(4_001) }),
        "`reason` is 4001",
    );
    refused("PATCH", "/agents/agt_a", json!({ "name": long(201) }), "`name` is 201");
    refused(
        "PATCH",
        "/agents/agt_a",
        json!({ "systemPrompt": long(50_001) }),
        "`system_prompt` is 50001",
    );
    refused("PATCH", "/agents/agt_a", json!({ "passkey": long(1_001) }), "`passkey` is 1001");
    refused(
        "PATCH",
        "/projects/prj",
        json!({ "name": "a\u{7}" }),
        "`name` has a control character at position 2",
    );
    refused(
        "PATCH",
        "/projects/prj",
        json!({ "workingDirectory": format!("/{}", long(5_000)) }),
        "`working_directory` is",
    );
    let task = |title: &str| {
        json!({ "id": "tsk_new", "project": "prj", "title": title, "description": "", "assignee": null,
                "status": "todo", "parent": null, "dependencies": [], "priority": "low" })
    };
    let problem = bed.refused("POST", "/apply", &json!({ "tasks": [task(&long(501))] }));
    assert_eq!(
        problem["problems"],
        json!([{ "path": "tasks.tsk_new.title", "message": title }]),
        "{problem}"
    );
    check_unchanged(&before, &dump(&bed), "a text that is too long");
    // A text at the limit is accepted and returned unchanged.
    bed.operate("PATCH", "/tasks/tsk", &json!({ "title": long(500), "description": long(50_000) }));
    let given = agent.done("get_my_task", json!({}));
    assert_eq!(given["task"]["description"], long(50_000));
    agent.done(
        "report_completed",
        json!({ "result": "success", "summary": "one\r\n\ttwo\u{1b}[31m\u{0}" }),
    );
    assert_eq!(bed.task("tsk")["executions"][0]["summary"], "one\n\ttwo[31m");
}
