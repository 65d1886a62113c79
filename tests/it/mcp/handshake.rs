//! How a connection begins, and what tools there are.

use serde_json::{Value, json};

use crate::daemon::{Client, Daemon};

fn initialize(client: &mut Client, version: &str) -> Value {
    let client_info = json!({ "name": "a test", "version": "1" });
    let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client_info });
    client.request("initialize", &params)["result"].clone()
}

fn list_tools(client: &mut Client) -> Vec<Value> {
    client.request("tools/list", &json!({}))["result"]["tools"].as_array().unwrap().clone()
}

#[test]
fn a_client_with_a_handshake_is_told_what_there_is() {
    let daemon = Daemon::running("");
    let mut client = daemon.client();
    let mut hello = initialize(&mut client, "2025-06-18");
    hello["serverInfo"]["version"] = "[version]".into();
    insta::assert_json_snapshot!(hello, @r#"
    {
      "capabilities": {
        "tools": {}
      },
      "instructions": "Begin with authenticate, then get_my_task. Work on the task in your current directory. End with report_completed.",
      "protocolVersion": "2025-06-18",
      "serverInfo": {
        "name": "agent-coordinator",
        "version": "[version]"
      }
    }
    "#);
    client.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
    insta::assert_json_snapshot!("tools", list_tools(&mut client));
    assert_eq!(client.call("health_check", &json!({}))["status"], "ok");
}

#[test]
fn a_client_is_answered_in_its_own_version_of_the_protocol() {
    let daemon = Daemon::running("");
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        assert_eq!(initialize(&mut daemon.client(), version)["protocolVersion"], version);
    }
    let newest = initialize(&mut daemon.client(), "1999-12-31")["protocolVersion"].clone();
    assert!(newest.as_str().unwrap() >= "2025-11-25", "{newest}");
}

#[test]
fn a_call_may_be_the_first_line_of_a_connection() {
    let daemon = Daemon::running("");
    for id in [json!(1), json!("one"), json!(1)] {
        let mut client = daemon.client();
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "health_check" } });
        client.send(format!("{call}\r\n").as_bytes());
        let answer = client.receive().unwrap();
        assert_eq!((&answer["id"], &answer["result"]["isError"]), (&id, &false.into()), "{answer}");
    }
}

#[test]
fn a_schema_has_nothing_that_some_client_does_not_take() {
    let daemon = Daemon::running("");
    let tools = list_tools(&mut daemon.client());
    let agent_tools = [
        "get_my_task",
        "update_task_status",
        "report_completed",
        "logout",
        "get_pending_tasks",
        "report_execution_start",
        "report_execution_complete",
    ];
    for tool in &tools {
        let (name, schema) = (tool["name"].as_str().unwrap(), &tool["inputSchema"]);
        let text = schema.to_string();
        for odd in ["null", "$ref", "$defs", "anyOf", "oneOf", "uint", "$schema"] {
            assert!(!text.contains(odd), "{name} has {odd}: {text}");
        }
        assert_eq!(schema["type"], "object", "{name}");
        for (argument, shape) in schema["properties"].as_object().unwrap() {
            assert!(shape["type"].is_string() && shape["description"].is_string(), "{name}, {argument}: {shape}");
        }
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        assert_eq!(required.contains(&"session_token".into()), agent_tools.contains(&name), "{name}: {text}");
        assert!(tool["description"].as_str().unwrap().len() > 20 && tool["outputSchema"].is_null(), "{tool}");
    }
}

#[test]
fn what_is_not_declared_is_not_there() {
    let daemon = Daemon::running("");
    let mut client = daemon.client();
    for method in ["prompts/list", "resources/list", "resources/templates/list", "completion/complete", "no/such"] {
        let params = json!({ "ref": { "type": "ref/prompt", "name": "x" }, "argument": { "name": "x", "value": "x" } });
        let error = &client.request(method, &params)["error"];
        assert_eq!(error["code"], -32601, "{method}: {error}");
        assert!(error["message"].as_str().unwrap().contains(method), "{method}: {error}");
    }
    assert_eq!(client.request("ping", &json!({}))["result"], json!({}));
}
