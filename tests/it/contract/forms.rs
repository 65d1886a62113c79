//! The form of answers, of refusals, of errors, and of the list of tools.

use serde_json::{Value, json};

use super::bed::{Bed, TOKEN};
use crate::mcp::credentials;

/// [`super::client::Answer`] checks each answer in this way. This test checks it for its own sake.
pub fn an_answer_is_the_same_as_structure_and_as_text(bed: &Bed) {
    let mut client = bed.client();
    let id = client.begin("health_check", &json!({}));
    let line = client.answer_line(id);
    let message: Value = serde_json::from_str(&line).unwrap();
    let (_, structure) = line.split_once("\"structuredContent\":").unwrap();
    assert!(
        structure.starts_with(message["result"]["content"][0]["text"].as_str().unwrap()),
        "{line}"
    );
    assert_eq!(
        (&message["id"], &message["result"]["isError"]),
        (&id.into(), &false.into()),
        "{line}"
    );
}

pub fn a_refusal_has_one_form(bed: &Bed) {
    let refusal = bed
        .client()
        .call("get_my_task", &json!({ "session_token": "sess_x" }))
        .refusal("invalid_session");
    let hint = "call authenticate and use the session_token of its answer";
    let expected = json!({ "success": false, "error": "Invalid session token", "error_code": "invalid_session", "hint": hint });
    assert_eq!(refusal, expected);
}

pub fn a_negative_answer_is_no_refusal(bed: &Bed) {
    bed.with_a_task();
    let mut coordinator = bed.nameless_coordinator();
    let no = coordinator.done("should_start", json!({ "agent_id": "agt_b", "project_id": "prj" }));
    assert_eq!(no, json!({ "should_start": false, "reason": "no_work" }));
    assert_eq!(
        bed.agent("agt_b").done("get_my_task", json!({})),
        json!({
            "success": true, "has_task": false, "hint": "Call logout and exit.",
            "instruction": "There is no task for you at present.",
        })
    );
}

const MALFORMED: i64 = -32602;

pub fn a_malformed_call_names_the_argument(bed: &Bed) {
    bed.with_a_task();
    let token = bed.agent("agt_a").shows("session_token").to_owned();
    let mut client = bed.client();
    let mut check = |tool: &str, mut arguments: Value, expected: &str| {
        arguments["coordinator_token"] = TOKEN.into();
        let refusal = client.call(tool, &arguments).refusal("invalid_arguments");
        assert_eq!(refusal["error"], expected, "{tool}");
        assert!(
            refusal["hint"].as_str().unwrap().starts_with("correct the arguments and call again"),
            "{refusal}"
        );
        // The agent can call again with other arguments.
        assert_eq!(
            (&refusal["action"], &refusal["notification"]),
            (&Value::Null, &Value::Null),
            "{refusal}"
        );
    };
    check("authenticate", json!({}), "arguments: missing field `agent_id`");
    check(
        "authenticate",
        json!({ "agent_id": "a", "project_id": "p" }),
        "arguments: missing field `passkey`",
    );
    check(
        "authenticate",
        json!({ "agent_id": ["a"], "passkey": "p", "project_id": "x" }),
        "argument `agent_id`: invalid type: sequence, expected a string",
    );
    check("get_my_task", json!({}), "argument `session_token` is missing");
    check("logout", json!({ "session_token": null }), "argument `session_token` is missing");
    check(
        "report_completed",
        json!({ "session_token": 7, "result": "success" }),
        "argument `session_token` must be a string, not a number",
    );
    check(
        "should_start",
        json!({ "agent_id": "a", "project_id": "p", "coordinator_id": {} }),
        "argument `coordinator_id` must be a string, not an object",
    );
    check(
        "list_active_projects_with_agents",
        json!({ "limit": "many" }),
        "argument `limit`: invalid type: string \"many\", expected a nonzero usize",
    );
    check(
        "report_process_started",
        json!({ "launch_id": "lch_x" }),
        "arguments: missing field `pid`",
    );
    check(
        "report_completed",
        json!({ "session_token": token, "result": "great" }),
        "argument `result`: unknown variant `great`, expected one of `success`, `failed`, `blocked`",
    );
    check(
        "report_completed",
        json!({ "session_token": token }),
        "arguments: missing field `result`",
    );
    check(
        "update_task_status",
        json!({ "session_token": token, "task_id": "tsk", "status": "finished" }),
        "argument `status`: unknown variant `finished`, expected one of `backlog`, `todo`, `in_progress`, `blocked`, `done`, \
         `cancelled`",
    );
}

pub fn a_refusal_of_wrong_arguments_has_a_hint_and_tells_of_notices(bed: &Bed) {
    bed.with_a_task();
    let mut agent = bed.agent("agt_a");
    agent.done("get_my_task", json!({}));
    bed.set_task("tsk", "blocked");
    let refusal = agent.call("report_completed", json!({ "result": "great", "summary": "s" }));
    let expected = json!({
        "success": false,
        "error": "argument `result`: unknown variant `great`, expected one of `success`, `failed`, `blocked`",
        "error_code": "invalid_arguments",
        "hint": "correct the arguments and call again; required: result, session_token; optional: next_steps, summary",
        "notification": "There is a notification. Call get_notifications and read it.",
    });
    assert_eq!(refusal.refusal("invalid_arguments"), expected);
    agent.done("report_completed", json!({ "result": "blocked" }));
}

/// Answers of tools that are not for agents mention the notices, too.
pub fn every_answer_to_an_agent_tells_of_its_notices(bed: &Bed) {
    bed.with_a_task();
    let mut agent = bed.agent("agt_a");
    agent.done("get_my_task", json!({}));
    assert_eq!(agent.done("health_check", json!({}))["notification"], Value::Null);
    bed.set_task("tsk", "blocked");
    let notification = "There is a notification. Call get_notifications and read it.";
    assert_eq!(agent.done("health_check", json!({}))["notification"], notification);
    let token = agent.shows("session_token").to_owned();
    let refused = agent.call("respond_chat", json!({ "content": "x" })).refusal("wrong_purpose");
    assert_eq!(refused["notification"], notification, "{refused}");
    let refused = agent
        .call("list_managed_agents", json!({ "coordinator_token": token }))
        .refusal("coordinator_only");
    assert_eq!(refused["notification"], notification, "{refused}");
    // Other callers get no such mention.
    assert_eq!(
        bed.client().call("health_check", &json!({})).success()["notification"],
        Value::Null
    );
    assert_eq!(bed.agent("agt_b").done("health_check", json!({}))["notification"], Value::Null);
    assert_eq!(
        bed.coordinator("crd_x").done("health_check", json!({}))["notification"],
        Value::Null
    );
    agent.done("report_completed", json!({ "result": "blocked" }));
    assert_eq!(agent.done("health_check", json!({}))["notification"], Value::Null);
}

/// Coordinators of other versions may send more arguments.
pub fn a_tool_of_coordinators_ignores_what_it_does_not_know(bed: &Bed) {
    bed.with_a_task();
    let more = json!({ "verbose": true, "coordinator_id": "crd_x", "session_token": "sess_x", "limit": "many" });
    assert_eq!(bed.client().call("health_check", &more).success()["status"], "ok");
    let mut coordinator = bed.coordinator("crd_x");
    let more = json!({ "verbose": true, "agent_id": "agt_b", "project_id": "prj", "since": [1, { "a": null }] });
    assert_eq!(coordinator.done("list_active_projects_with_agents", more.clone())["success"], true);
    assert_eq!(coordinator.done("should_start", more)["reason"], "no_work");
}

pub fn a_tool_of_agents_refuses_what_it_does_not_know(bed: &Bed) {
    bed.with_a_task();
    let mut agent = bed.agent("agt_a");
    let mut check = |tool: &str, arguments: Value, expected: &str| {
        let refusal = agent.call(tool, arguments).refusal("invalid_arguments");
        assert_eq!(refusal["error"], expected, "{tool}");
    };
    let unknown = "argument `parent_id` is unknown, the nearest is `parent_task_id`";
    check("create_task", json!({ "title": "t", "parent_id": "tsk" }), unknown);
    let part = json!({ "local_id": "a", "title": "t", "parent_id": "tsk" });
    let unknown = "argument `tasks[0].parent_id` is unknown, the nearest is `parent_task_id`";
    check("create_tasks_batch", json!({ "tasks": [part] }), unknown);
    check("get_my_task", json!({ "verbose": true }), "argument `verbose` is unknown");
    check("logout", json!({ "since": [1, { "a": null }] }), "argument `since` is unknown");
    let misspelt = "argument `sumary` is unknown, the nearest is `summary`";
    check("report_completed", json!({ "result": "success", "sumary": "s" }), misspelt);
    let foreign =
        "argument `agent_id`: this session is of `agt_a`, not of `agt_b`; leave the argument out";
    check("get_my_task", json!({ "agent_id": "agt_b" }), foreign);
    let foreign =
        "argument `project_id`: this session is of `prj`, not of `prj_2`; leave the argument out";
    check("report_completed", json!({ "result": "success", "project_id": "prj_2" }), foreign);

    let mut arguments = credentials("agt_b", "key_b", "prj");
    arguments["role"] = "admin".into();
    let refusal = bed.client().call("authenticate", &arguments).refusal("invalid_arguments");
    assert_eq!(
        (&refusal["error"], &refusal["action"]),
        (&"argument `role` is unknown".into(), &Value::Null)
    );

    // Every tool accepts the arguments that identify the caller, and null counts as absent.
    let more = json!({ "agent_id": "agt_a", "project_id": "prj", "coordinator_token": null, "verbose": null });
    assert_eq!(agent.done("get_my_task", more)["task"]["task_id"], "tsk");
    let more = json!({ "coordinator_token": TOKEN, "token": "x", "wait_for_previous": true });
    assert_eq!(agent.done("get_my_task_progress", more)["tasks"][0]["id"], "tsk");
}

pub fn an_unknown_tool_and_params_that_are_none_are_told_so(bed: &Bed) {
    let tools = list_tools(bed);
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let mut client = bed.client();
    let mut check = |method: &str, params: Value, expected: &str| {
        let error = client.request(method, &params)["error"].clone();
        assert_eq!((&error["code"], &error["message"]), (&MALFORMED.into(), &expected.into()));
    };
    check(
        "tools/call",
        json!({ "name": "no_such_tool", "arguments": {} }),
        &format!("unknown tool `no_such_tool`; there are: {}", names.join(", ")),
    );
    let malformed =
        "tools/call: params must have `name`, a string, and may have `arguments`, an object";
    check("tools/call", json!({}), malformed);
    check("tools/call", json!({ "name": 7 }), malformed);
    check("tools/call", json!({ "name": "health_check", "arguments": [] }), malformed);
    let incomplete = "initialize: params must have protocolVersion, capabilities and clientInfo";
    check("initialize", json!({}), incomplete);
}

pub fn an_id_has_a_grammar(bed: &Bed) {
    let mut coordinator = bed.nameless_coordinator();
    let mut ask = |project: &str| {
        coordinator.call("should_start", json!({ "agent_id": "agt_a", "project_id": project }))
    };
    for project in ["", "../etc", "_x", "-x", ".x", "a b", "a/b", "é", "a\u{202e}", &"x".repeat(65)]
    {
        let refusal = ask(project).refusal("invalid_arguments");
        let words = refusal["error"].as_str().unwrap();
        let expected = "is not a valid project id: expected 1 to 64 of letters, digits, `.`, `_`, `-`, beginning with a \
                        letter or digit";
        assert!(
            words.starts_with("argument `project_id`: `") && words.ends_with(expected),
            "{words}"
        );
    }
    for project in ["x", "7", "X._-9", &"x".repeat(64)] {
        assert_eq!(ask(project).success()["reason"], "unknown", "{project}");
    }
    // `authenticate` does not say what is wrong with an id.
    for agent in ["", "../etc", &"x".repeat(65)] {
        bed.client()
            .call("authenticate", &credentials(agent, "key_a", "prj"))
            .refusal("invalid_credentials");
    }
}

pub fn what_is_no_request_is_told_so(bed: &Bed) {
    let mut client = bed.client();
    for (text, code, words, id) in [
        ("garbage", -32700, " is not valid JSON", Value::Null),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,", -32700, " is not valid JSON", Value::Null),
        ("\"text\"", -32600, "a request is a JSON object", Value::Null),
        ("[]", -32600, "batch", Value::Null),
        ("{}", -32600, "not a JSON-RPC 2.0 request", Value::Null),
        ("{\"id\":3,\"method\":\"ping\"}", -32600, "not a JSON-RPC 2.0 request", json!(3)),
        (
            "{\"jsonrpc\":\"1.0\",\"id\":\"x\",\"method\":\"ping\"}",
            -32600,
            "not a JSON-RPC 2.0 request",
            json!("x"),
        ),
    ] {
        client.send(text);
        let answer: Value = serde_json::from_str(&client.receive()).unwrap();
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&code.into(), &id),
            "{text}: {answer}"
        );
        assert!(answer["error"]["message"].as_str().unwrap().contains(words), "{text}: {answer}");
    }
    assert_eq!(client.request("ping", &json!({}))["result"], json!({}));
}

/// Returns a batch of two calls, a notification, a request of an unknown method, and an object that
/// is not a request.
fn batch() -> String {
    let call = |id: u32, tool: &str| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool, "arguments": {} } });
    let unknown = json!({ "jsonrpc": "2.0", "id": "three", "method": "no/such" });
    let notification = json!({ "jsonrpc": "2.0", "method": "notifications/of/no/kind" });
    json!([call(101, "health_check"), notification, call(102, "get_my_task"), unknown, { "id": 104 }]).to_string()
}

pub fn a_batch_is_answered_in_the_revision_that_has_batches(bed: &Bed) {
    let mut client = bed.client();
    let hello = json!({
        "protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" },
    });
    assert_eq!(client.request("initialize", &hello)["result"]["protocolVersion"], "2025-03-26");
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    client.send(&batch());
    let answers: Value = serde_json::from_str(&client.receive()).unwrap();
    let answer =
        |id: Value| answers.as_array().unwrap().iter().find(|answer| answer["id"] == id).unwrap();
    assert_eq!(answers.as_array().unwrap().len(), 4, "{answers}");
    assert_eq!(answer(json!(101))["result"]["structuredContent"]["status"], "ok", "{answers}");
    assert_eq!(answer(json!(102))["result"]["isError"], true, "{answers}");
    assert_eq!(answer(json!("three"))["error"]["code"], -32601, "{answers}");
    assert_eq!(answer(json!(104))["error"]["code"], -32600, "{answers}");
    for (text, words) in
        [("[]", "a batch has 1 to 64 messages, not 0"), ("[7]", "a request is a JSON object")]
    {
        client.send(text);
        let answer = client.receive();
        assert!(answer.contains(words) && answer.contains("-32600"), "{text}: {answer}");
    }
    let again = json!([{ "jsonrpc": "2.0", "id": 7, "method": "initialize", "params": hello }]);
    client.send(&again.to_string());
    let answer = client.receive();
    assert!(answer.contains("initialize can't be part of a batch"), "{answer}");
    assert_eq!(client.request("ping", &json!({}))["result"], json!({}));
}

fn list_tools(bed: &Bed) -> Vec<Value> {
    bed.client().request("tools/list", &json!({}))["result"]["tools"].as_array().unwrap().clone()
}

pub fn the_tools_are_listed(bed: &Bed) {
    insta::assert_json_snapshot!("tools", list_tools(bed));
}

pub fn a_schema_has_nothing_that_some_client_does_not_take(bed: &Bed) {
    let for_others = [
        "health_check",
        "list_active_projects_with_agents",
        "should_start",
        "wait_for_work",
        "list_stop_requests",
        "report_process_started",
        "report_process_stopping",
        "report_process_exit",
        "report_status",
        "report_activity",
        "get_agent_action",
        "authenticate",
        "list_managed_agents",
        "invalidate_session",
        "register_execution_log_file",
    ];
    for tool in &list_tools(bed) {
        let (name, schema) = (tool["name"].as_str().unwrap(), &tool["inputSchema"]);
        let text = schema.to_string();
        for odd in ["null", "$ref", "$defs", "anyOf", "oneOf", "uint", "$schema"] {
            assert!(!text.contains(odd), "{name} has {odd}: {text}");
        }
        assert_eq!(schema["type"], "object", "{name}");
        for (argument, shape) in schema["properties"].as_object().unwrap() {
            assert!(
                shape["type"].is_string() && shape["description"].is_string(),
                "{name}, {argument}: {shape}"
            );
        }
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let is_for_sessions = !for_others.contains(&name);
        assert_eq!(required.contains(&"session_token".into()), is_for_sessions, "{name}: {text}");
        let is_closed = schema["additionalProperties"] == false;
        assert_eq!(is_closed, is_for_sessions || name == "authenticate", "{name}: {text}");
        assert!(
            tool["description"].as_str().unwrap().len() > 20 && tool["outputSchema"].is_null(),
            "{tool}"
        );
    }
}

pub fn what_is_not_declared_is_not_there(bed: &Bed) {
    let mut client = bed.client();
    for method in [
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "completion/complete",
        "no/such",
    ] {
        let params = json!({ "ref": { "type": "ref/prompt", "name": "x" }, "argument": { "name": "x", "value": "x" } });
        let error = &client.request(method, &params)["error"];
        assert_eq!(error["code"], -32601, "{method}: {error}");
        assert!(error["message"].as_str().unwrap().contains(method), "{method}: {error}");
    }
    assert_eq!(client.request("ping", &json!({}))["result"], json!({}));
}
