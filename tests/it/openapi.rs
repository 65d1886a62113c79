//! Checks `/api/openapi.json`: every operation exists, and the daemon's answers match their
//! descriptions.
#![allow(clippy::unwrap_used, reason = "a test")]

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::resources::ask;

/// The document with its descriptions of answers.
struct Document(Value);

impl Document {
    fn of(daemon: &Daemon) -> Self {
        Self(ask(daemon, "GET", "/openapi.json", "", "").json())
    }

    /// Checks that an answer matches the document. `place` is for people.
    #[track_caller]
    fn check(&self, path: &str, method: &str, status: u16, answer: &Value) {
        let responses = &self.0["paths"][path][method]["responses"];
        let (response, kind) = match &responses[status.to_string()] {
            Value::Null => (&responses[format!("{}XX", status / 100)], "application/problem+json"),
            response => (response, "application/json"),
        };
        let schema = &response["content"][kind]["schema"];
        assert!(schema.is_object(), "{method} {path} {status}: {response}");
        let mut problems = Vec::new();
        self.validate(schema, answer, path, &mut problems);
        assert!(problems.is_empty(), "{method} {path}: {problems:#?}\n{answer:#}");
    }

    /// Validates a value with the part of JSON Schema that the document uses. An unknown keyword is
    /// a problem.
    fn validate(&self, schema: &Value, value: &Value, place: &str, problems: &mut Vec<String>) {
        let Some(schema) = schema.as_object() else {
            return;
        };
        for (word, rule) in schema {
            match word.as_str() {
                "$ref" => {
                    let target =
                        self.0.pointer(rule.as_str().unwrap().trim_start_matches('#')).unwrap();
                    self.validate(target, value, place, problems);
                }
                "type" => {
                    let is = |kind: &Value| match kind.as_str().unwrap() {
                        "object" => value.is_object(),
                        "array" => value.is_array(),
                        "string" => value.is_string(),
                        "integer" => value.is_i64() || value.is_u64(),
                        "number" => value.is_number(),
                        "boolean" => value.is_boolean(),
                        "null" => value.is_null(),
                        other => panic!("{other}"),
                    };
                    let fits =
                        rule.as_array().map_or_else(|| is(rule), |kinds| kinds.iter().any(is));
                    if !fits {
                        problems.push(format!("{place}: {value} is not {rule}"));
                    }
                }
                "enum" if !rule.as_array().unwrap().contains(value) => {
                    problems.push(format!("{place}: {value} is none of {rule}"));
                }
                "const" if rule != value => {
                    problems.push(format!("{place}: {value} is not {rule}"));
                }
                "required" => {
                    for name in rule.as_array().unwrap() {
                        if value.get(name.as_str().unwrap()).is_none() {
                            problems.push(format!("{place}: {name} is missing"));
                        }
                    }
                }
                "properties" => {
                    let properties = rule.as_object().unwrap();
                    for (name, value) in value.as_object().into_iter().flatten() {
                        match properties.get(name) {
                            Some(schema) => {
                                self.validate(schema, value, &format!("{place}/{name}"), problems);
                            }
                            None if schema.contains_key("allOf") || schema.contains_key("$ref") => {
                            }
                            None => problems.push(format!("{place}: nothing is said of {name}")),
                        }
                    }
                }
                // This is for maps, whose keys are all of one kind here.
                "patternProperties" => {
                    let schema = rule.as_object().unwrap().values().next().unwrap();
                    for (name, value) in value.as_object().into_iter().flatten() {
                        self.validate(schema, value, &format!("{place}/{name}"), problems);
                    }
                }
                "items" => {
                    for (n, value) in value.as_array().into_iter().flatten().enumerate() {
                        self.validate(rule, value, &format!("{place}/{n}"), problems);
                    }
                }
                "anyOf" | "oneOf" => {
                    let fits = |schema: &Value| {
                        let mut found = Vec::new();
                        self.validate(schema, value, place, &mut found);
                        found.is_empty()
                    };
                    if !rule.as_array().unwrap().iter().any(fits) {
                        problems.push(format!("{place}: {value} is none of {rule}"));
                    }
                }
                "allOf" => {
                    for schema in rule.as_array().unwrap() {
                        self.validate(schema, value, place, problems);
                    }
                }
                "enum"
                | "const"
                | "description"
                | "format"
                | "pattern"
                | "default"
                | "minimum"
                | "maximum"
                | "title"
                | "additionalProperties"
                | "maxItems"
                | "minItems"
                | "maxLength" => {}
                other => problems
                    .push(format!("{place}: the schema says {other}, which nobody knows here")),
            }
        }
    }
}

#[test]
fn what_is_described_is_there() {
    let daemon = Daemon::running("");
    let document = Document::of(&daemon);
    assert_eq!(document.0["openapi"], "3.1.0");
    let paths = document.0["paths"].as_object().unwrap();
    assert!(paths.len() > 35, "{}", paths.len());
    for (path, operations) in paths {
        // These would end the tested daemon, or answer forever.
        if path == "/events" {
            continue;
        }
        let asked = path.split('/').map(|part| if part.starts_with('{') { "none" } else { part });
        let asked = asked.collect::<Vec<_>>().join("/");
        for method in operations.as_object().unwrap().keys() {
            let answer = ask(&daemon, &method.to_uppercase(), &asked, "", "");
            if answer.0 >= 400 {
                let problem = answer.json();
                document.check(path, method, answer.0, &problem);
                assert_ne!(problem["code"], "no_such_route", "{method} {path}");
                assert_ne!(problem["code"], "method_not_allowed", "{method} {path}");
            }
        }
    }
}

#[test]
fn what_is_answered_is_as_described() {
    let daemon = Daemon::running("");
    let document = Document::of(&daemon);
    daemon.with_one_task(&["authenticate", "get-my-task", "print:hello", "report:success"]);
    daemon.until_ended("agt");
    let launch = daemon.ended("agt")[0]["launch_id"].as_str().unwrap().to_owned();
    let sessions = ask(&daemon, "GET", "/sessions", "", "").json();
    let session = sessions[0]["id"].as_str().unwrap();
    for (path, asked) in [
        ("/status", "/status".to_owned()),
        ("/agents", "/agents".to_owned()),
        ("/agents/{id}", "/agents/agt".to_owned()),
        ("/projects", "/projects".to_owned()),
        ("/projects/{project}", "/projects/prj".to_owned()),
        ("/assignments", "/assignments".to_owned()),
        ("/tasks", "/tasks".to_owned()),
        ("/tasks/{id}", "/tasks/tsk".to_owned()),
        ("/tasks/{id}/history", "/tasks/tsk/history".to_owned()),
        ("/launches", "/launches".to_owned()),
        ("/launches/{id}", format!("/launches/{launch}")),
        ("/sessions", "/sessions".to_owned()),
        ("/sessions/{id}", format!("/sessions/{session}")),
        ("/executions", "/executions".to_owned()),
        ("/spend", "/spend?by=agent&since=2026-11-30".to_owned()),
        ("/notices", "/notices".to_owned()),
        ("/completions", "/completions?kind=task&text=PRJ-".to_owned()),
        ("/settings", "/settings".to_owned()),
        ("/projects/{project}/agents/{agent}/why", "/projects/prj/agents/agt/why".to_owned()),
        ("/projects/{project}/agent-sessions", "/projects/prj/agent-sessions".to_owned()),
        (
            "/projects/{project}/agents/{agent}/chat/messages",
            "/projects/prj/agents/agt/chat/messages".to_owned(),
        ),
    ] {
        let answer = ask(&daemon, "GET", &asked, "", "");
        assert_eq!(answer.0, 200, "{asked}: {}", answer.2);
        document.check(path, "get", answer.0, &answer.json());
    }
    let made = ask(
        &daemon,
        "POST",
        "/tasks",
        "",
        &json!({ "projectId": "prj", "title": "t" }).to_string(),
    );
    document.check("/tasks", "post", made.0, &made.json());
    let made = ask(&daemon, "POST", "/agents", "", &json!({ "generatePasskey": true }).to_string());
    document.check("/agents", "post", made.0, &made.json());
    let said = json!({ "content": "hello" }).to_string();
    let said = ask(&daemon, "POST", "/projects/prj/agents/agt/chat/messages", "", &said);
    document.check(
        "/projects/{project}/agents/{agent}/chat/messages",
        "post",
        said.0,
        &said.json(),
    );
    let refused = ask(&daemon, "PATCH", "/tasks/tsk", "", "garbage");
    document.check("/tasks/{id}", "patch", refused.0, &refused.json());
}

/// Checks one keyword of the schema at a place of the document.
#[track_caller]
fn check_word(document: &Document, pointer: &str, word: &str, expected: &Value) {
    let schema = document.0.pointer(pointer).unwrap_or_else(|| panic!("{pointer}"));
    assert_eq!(&schema[word], expected, "{pointer}: {schema}");
}

/// Returns the place of the schema of an operation's body.
fn body(path: &str, method: &str) -> String {
    format!(
        "/paths/{}/{method}/requestBody/content/application~1json/schema",
        path.replace('/', "~1")
    )
}

#[test]
fn bounds_patterns_required_bodies_and_rules_are_described() {
    let daemon = Daemon::running("");
    let document = Document::of(&daemon);
    let (tasks, stop) = (body("/tasks", "post"), body("/stop", "post"));
    check_word(&document, &format!("{tasks}/properties/title"), "maxLength", &json!(500));
    check_word(&document, &format!("{tasks}/properties/description"), "maxLength", &json!(50_000));
    check_word(&document, &tasks, "required", &json!(["projectId", "title"]));
    check_word(&document, &body("/projects", "post"), "required", &json!(["workingDirectory"]));
    check_word(
        &document,
        &format!("{}/properties/expiresIn", body("/tokens", "post")),
        "minimum",
        &json!(1),
    );
    assert_eq!(
        document.0.pointer(&format!("{stop}/anyOf")).and_then(Value::as_array).map(Vec::len),
        Some(2)
    );
    for (path, is_required) in
        [("/tasks", true), ("/stop", true), ("/tokens", false), ("/apply", false)]
    {
        let operation = &document.0["paths"][path]["post"];
        assert_eq!(operation["requestBody"]["required"], is_required, "{path}");
    }
    for (path, operations) in document.0["paths"].as_object().unwrap() {
        let parameters = operations["get"]["parameters"].as_array().into_iter().flatten();
        for limit in parameters.filter(|each| each["name"] == "limit") {
            let (least, most) = (&limit["schema"]["minimum"], &limit["schema"]["maximum"]);
            assert_eq!((least, most), (&json!(1), &json!(1000)), "{path}");
            let path = path
                .replace("{id}", "none")
                .replace("{project}", "none")
                .replace("{agent}", "none");
            for limit in ["0", "1001"] {
                let answer = ask(&daemon, "GET", &format!("{path}?limit={limit}"), "", "");
                assert_eq!(
                    (answer.0, answer.json()["code"].clone()),
                    (400, "invalid_query".into()),
                    "{path} {limit}"
                );
            }
        }
    }
}

#[test]
fn who_may_ask_is_described() {
    let daemon = Daemon::running("");
    let document = Document::of(&daemon).0;
    assert_eq!(document["security"], json!([{ "token": [] }, { "cookie": [] }]));
    let schemes = &document["components"]["securitySchemes"];
    assert_eq!(
        (&schemes["token"]["scheme"], &schemes["cookie"]["in"]),
        (&"bearer".into(), &"cookie".into())
    );
    assert_eq!(document["paths"]["/health/live"]["get"]["security"], json!([]));
    assert!(document["paths"]["/status"]["get"]["security"].is_null());
}

#[test]
fn a_blocked_task_has_one_name_for_its_reason_in_both_directions() {
    let daemon = Daemon::running("");
    daemon.with_one_task(&["sleep:600"]);
    let set = |body: Value| ask(&daemon, "PATCH", "/tasks/tsk", "", &body.to_string()).json();
    let by_name = set(json!({ "status": "blocked", "blockedReason": "no network" }));
    assert_eq!(by_name["blockedReason"], "no network", "{by_name}");
    set(json!({ "status": "todo" }));
    set(json!({ "status": "in_progress" }));
    let by_older_name = set(json!({ "status": "blocked", "reason": "no disk" }));
    assert_eq!(by_older_name["blockedReason"], "no disk", "{by_older_name}");
    let described =
        Document::of(&daemon).0.pointer(&body("/tasks/{id}", "patch")).cloned().unwrap();
    assert!(described["properties"]["blockedReason"].is_object(), "{described}");
}
