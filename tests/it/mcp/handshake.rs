//! The beginning of a connection.

use serde_json::{Value, json};

use crate::daemon::{Client, Daemon};

fn initialize(client: &mut Client, version: &str) -> Value {
    let client_info = json!({ "name": "a test", "version": "1" });
    let params =
        json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client_info });
    client.request("initialize", &params)["result"].clone()
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
      "instructions": "Begin with authenticate and do what its answer says. For a task: get_my_task, work in your current directory, end with report_completed. For a chat: get_next_action again and again, answer with respond_chat.",
      "protocolVersion": "2025-06-18",
      "serverInfo": {
        "name": "agent-coordinator",
        "version": "[version]"
      }
    }
    "#);
    client.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
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
