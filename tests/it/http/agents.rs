//! Agents over HTTP: the sessions that are accepted there, and how HTTP is closed to agents.

use std::fs;

use serde_json::json;

use super::{LISTENING, WORLD, Web};
use crate::daemon::Daemon;

const NO_AGENTS: &str = "http: { listen: '127.0.0.1:0', agents: off }\n";

fn credentials(passkey: &str) -> serde_json::Value {
    json!({ "agent_id": "agt_a", "passkey": passkey, "project_id": "prj" })
}

#[test]
fn a_session_that_was_opened_on_the_socket_is_refused_over_http() {
    let mut daemon = Daemon::crowded(LISTENING, WORLD);
    let opened = daemon.client().call("authenticate", &credentials("key_a"));
    let token = json!({ "session_token": opened["session_token"] });
    let bearer = format!("Authorization: Bearer {}\r\n", opened["session_token"].as_str().unwrap());
    for restart in [false, true] {
        if restart {
            assert!(daemon.terminate().success());
            daemon.start();
        }
        let socket = daemon.state().join("mcp.sock").display().to_string();
        let mut web = Web::to(&daemon);
        let refused = [
            web.call("get_my_task", &token),
            web.call_with(&bearer, "get_my_task", &json!({})),
            web.call(
                "report_completed",
                &json!({ "session_token": opened["session_token"], "result": "failed" }),
            ),
        ];
        for refused in refused {
            assert_eq!(refused["error_code"], "session_of_socket", "{refused}");
            let expected = format!(
                "This session was opened on the Unix socket {socket}: it can't be used over HTTP"
            );
            assert_eq!(refused["error"], expected);
        }
        assert_eq!(daemon.client().call("get_my_task", &token)["task"]["task_id"], "tsk");
    }
    // Only a caller with the token learns that the session belongs to the socket.
    let guess = json!({ "session_token": "sess_socket_0123456789abcdef0123456789abcdef" });
    assert_eq!(Web::to(&daemon).call("get_my_task", &guess)["error_code"], "invalid_session");
    assert_eq!(daemon.task_status("tsk"), "in_progress");
}

#[test]
fn a_session_that_was_opened_over_http_is_taken_on_the_socket() {
    let daemon = Daemon::crowded(LISTENING, WORLD);
    let opened = Web::to(&daemon).call("authenticate", &credentials("key_a"));
    let token = json!({ "session_token": opened["session_token"] });
    assert_eq!(Web::to(&daemon).call("get_my_task", &token)["task"]["task_id"], "tsk");
    assert_eq!(daemon.client().call("get_my_task", &token)["task"]["task_id"], "tsk");
}

#[test]
fn http_agents_off_gives_agents_no_address() {
    let daemon = Daemon::running(NO_AGENTS);
    daemon.with_one_task(&["env:environment", "report:success"]);
    daemon.until_ended("agt");
    let environment = fs::read_to_string(daemon.work().join("environment")).unwrap();
    assert!(environment.contains("COORDINATOR_MCP_SOCKET="), "{environment}");
    assert!(!environment.contains("COORDINATOR_MCP_URL"), "{environment}");
}

#[test]
fn http_agents_off_refuses_agents_over_http_until_a_reload() {
    let daemon = Daemon::crowded(NO_AGENTS, WORLD);
    let mut web = Web::to(&daemon);
    // A wrong passkey gets the same answer, because nothing is checked.
    for passkey in ["key_a", "wrong"] {
        let refused = web.call("authenticate", &credentials(passkey));
        assert_eq!(refused["error_code"], "agents_not_over_http", "{refused}");
        assert_eq!(refused["error"], "Agents are not served over HTTP here (`http.agents` is off)");
        assert_eq!(refused["action"], "exit");
    }
    let without_project = json!({ "agent_id": "agt_a", "passkey": "key_a" });
    assert_eq!(web.call("authenticate", &without_project)["error_code"], "agents_not_over_http");
    let token =
        json!({ "session_token": "sess_0123456789abcdef0123456789abcdef", "result": "failed" });
    for tool in ["get_my_task", "logout", "get_next_action", "report_completed"] {
        assert_eq!(web.call(tool, &token)["error_code"], "agents_not_over_http", "{tool}");
    }
    // Coordinators and people can still use HTTP.
    let coordinator = fs::read_to_string(daemon.state().join("coordinator_token")).unwrap();
    let coordinator = json!({ "coordinator_token": coordinator.trim() });
    assert_eq!(web.call("list_active_projects_with_agents", &coordinator)["success"], true);
    assert_eq!(web.ask("GET", "/health/live", "", "").status, 200);
    assert_eq!(
        daemon.client().call("authenticate", &credentials("wrong"))["error_code"],
        "invalid_credentials"
    );

    let settings = fs::read_to_string(daemon.config()).unwrap();
    fs::write(daemon.config(), settings.replace("agents: off", "agents: on")).unwrap();
    let said = daemon.done(&["reload"]);
    assert!(said.contains("http.agents: off → on"), "{said}");
    assert_eq!(web.call("authenticate", &credentials("key_a"))["success"], true);
}
