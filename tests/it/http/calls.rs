//! The requests of clients of all revisions, and their answers.

use serde_json::{Value, json};

use super::entry::token;
use super::{HEALTH, JSON, LISTENING, WORLD, Web};
use crate::daemon::Daemon;
use crate::support::until;

fn bearer(token: &Value) -> String {
    format!("Authorization: Bearer {}\r\n", token.as_str().unwrap())
}

fn credentials() -> Value {
    json!({ "agent_id": "agt_a", "passkey": "key_a", "project_id": "prj" })
}

#[test]
fn an_agent_does_its_task_with_plain_posts() {
    let daemon = Daemon::crowded(LISTENING, WORLD);
    let mut web = Web::to(&daemon);
    let hello = web.call("authenticate", &credentials());
    let token = hello["session_token"].clone();
    assert!(token.as_str().unwrap().starts_with("sess_"), "{hello}");
    // The token is an argument or the header of HTTP. Each call has a connection of its own,
    // because no state belongs to a connection.
    let task = Web::to(&daemon).call("get_my_task", &json!({ "session_token": token }));
    assert_eq!(task["task"]["task_id"], "tsk");
    let task = Web::to(&daemon).call_with(&bearer(&token), "get_my_task", &json!({}));
    assert_eq!(task["task"]["title"], "Login page");
    let report = json!({ "result": "success", "summary": "done" });
    assert_eq!(web.call_with(&bearer(&token), "report_completed", &report)["success"], true);
    assert_eq!(daemon.task_status("tsk"), "done");
    let again = web.call_with(&bearer(&token), "get_my_task", &json!({}));
    assert_eq!(again["error_code"], "session_ended", "{again}");
    for secret in ["key_a", token.as_str().unwrap()] {
        assert!(!daemon.log().contains(secret), "{}", daemon.log());
    }
}

#[test]
fn an_argument_counts_more_than_the_header() {
    let daemon = Daemon::crowded(LISTENING, WORLD);
    let mut web = Web::to(&daemon);
    let token = web.call("authenticate", &credentials())["session_token"].clone();
    let wrong = json!({ "session_token": "sess_other" });
    assert_eq!(
        web.call_with(&bearer(&token), "get_my_task", &wrong)["error_code"],
        "invalid_session"
    );
    assert_eq!(web.call_with("", "get_my_task", &wrong)["error_code"], "invalid_session");
    let refusal = web.call_with("", "get_my_task", &json!({}));
    assert_eq!(refusal["error"], "argument `session_token` is missing");
    // These are not valid forms of a token.
    for wrong in ["Basic dTpw", "Bearer", "Bearer  ", "sess_1"] {
        let answer = web.request(&format!("Authorization: {wrong}\r\n"), "ping", &json!({}));
        answer.check_problem(401, "no_bearer_token", "expected `Bearer`");
    }
    web.check_well();
}

#[test]
fn a_coordinator_over_http_always_needs_the_token() {
    let daemon = Daemon::crowded(LISTENING, WORLD);
    let mut web = Web::to(&daemon);
    let pair = json!({ "agent_id": "agt_a", "project_id": "prj", "coordinator_id": "crd_far" });
    assert_eq!(web.call("should_start", &pair)["error_code"], "coordinator_only");
    // The same process needs no token on the socket.
    assert_eq!(daemon.client().call("should_start", &pair)["should_start"], true);
    for wrong in ["", "coord_", "coord_0000000000000000000000000000000000000000"] {
        let mut asked = pair.clone();
        asked["coordinator_token"] = wrong.into();
        assert_eq!(web.call("should_start", &asked)["error_code"], "coordinator_only");
    }
    let session = web.call("authenticate", &credentials())["session_token"].clone();
    assert_eq!(
        web.call_with(&bearer(&session), "should_start", &pair)["error_code"],
        "coordinator_only"
    );
    let token = std::fs::read_to_string(daemon.state().join("coordinator_token")).unwrap();
    let token = json!(token.trim());
    let list = web.call_with(&bearer(&token), "list_active_projects_with_agents", &json!({}));
    assert_eq!(list["success"], true, "{list}");
    let mut asked = pair.clone();
    asked["coordinator_token"] = token.clone();
    assert_eq!(web.call("should_start", &asked)["reason"], "running");
    assert!(!daemon.log().contains(token.as_str().unwrap()), "{}", daemon.log());
}

#[test]
fn the_token_of_the_configuration_is_the_one_that_counts() {
    let daemon =
        Daemon::running(&format!("{LISTENING}coordinator_token: a token that somebody chose\n"));
    let list = |token: &str| {
        Web::to(&daemon).call(
            "list_active_projects_with_agents",
            &json!({ "coordinator_token": token }),
        )["success"]
            .clone()
    };
    assert_eq!(list("a token that somebody chose"), true);
    let kept = std::fs::read_to_string(daemon.state().join("coordinator_token")).unwrap();
    assert_eq!(list(kept.trim()), false);
}

#[test]
fn wrong_tokens_and_passkeys_are_answered_later_and_later() {
    let daemon = Daemon::crowded(LISTENING, WORLD);
    let mut web = Web::to(&daemon);
    let wrong = json!({ "agent_id": "agt_a", "project_id": "prj", "coordinator_token": "wrong" });
    let began = std::time::Instant::now();
    // The delays are 50, 100 and 200 ms.
    for _ in 0..3 {
        assert_eq!(web.call("should_start", &wrong)["error_code"], "coordinator_only");
    }
    assert!(began.elapsed().as_millis() >= 350, "{:?}", began.elapsed());
    let began = std::time::Instant::now();
    let guess = json!({ "agent_id": "agt_a", "passkey": "guess", "project_id": "prj" });
    for _ in 0..3 {
        assert_eq!(web.call("authenticate", &guess)["error_code"], "invalid_credentials");
    }
    assert!(began.elapsed().as_millis() >= 350, "{:?}", began.elapsed());
    // A caller with the right passkey is not delayed.
    assert_eq!(web.call("authenticate", &credentials())["success"], true);
}

#[test]
fn only_who_shows_a_token_learns_how_many_agents_there_are() {
    let daemon =
        Daemon::crowded(&format!("{LISTENING}coordinator_token: coord_of_this_test\n"), WORLD);
    let counts =
        |health: &Value| (health["agent_count"].as_u64(), health["project_count"].as_u64());
    let mut web = Web::to(&daemon);
    let health = web.call("health_check", &json!({}));
    assert_eq!(
        (health["status"].as_str(), counts(&health)),
        (Some("ok"), (None, None)),
        "{health}"
    );
    for wrong in ["op_guessed", "coord_guessed"] {
        let health = web.call_with(
            &format!("Authorization: Bearer {wrong}\r\n"),
            "health_check",
            &json!({}),
        );
        assert_eq!(
            (health["status"].as_str(), counts(&health)),
            (Some("ok"), (None, None)),
            "{health}"
        );
    }
    let session = web.call("authenticate", &credentials());
    let session =
        session["session_token"].as_str().unwrap_or_else(|| panic!("{session}")).to_owned();
    let expected = counts(&daemon.client().call("health_check", &json!({})));
    assert!(expected.0.is_some() && expected.1.is_some());
    for token in ["coord_of_this_test", &token(&daemon, &[]), &session] {
        let health = web.call_with(
            &format!("Authorization: Bearer {token}\r\n"),
            "health_check",
            &json!({}),
        );
        assert_eq!(counts(&health), expected, "{health}");
    }
    assert_eq!(counts(&web.call("health_check", &json!({ "session_token": session }))), expected);
}

#[test]
fn clients_of_every_revision_are_served() {
    let daemon = Daemon::running(LISTENING);
    let mut web = Web::to(&daemon);
    let both = "Accept: application/json, text/event-stream\r\n";
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let client = json!({ "name": "a test", "version": "1" });
        let hello = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
        let answer = web.request(both, "initialize", &hello);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json()["result"]["protocolVersion"], version);
        let headers = format!("{both}MCP-Protocol-Version: {version}\r\n");
        let known = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string();
        let answer = web.post(&format!("{JSON}{headers}"), known.as_bytes()).unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (202, ""));
        let tools = web.request(&headers, "tools/list", &json!({})).json();
        assert!(tools["result"]["tools"].as_array().unwrap().len() > 7, "{tools}");
        assert_eq!(
            web.call_with(&headers, "health_check", &json!({}))["status"],
            "ok",
            "{version}"
        );
    }
    // The newest revision has no handshake, so each request contains everything.
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "a test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let newest = |method: &str| {
        format!("{both}MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n")
    };
    let found = web
        .request(&newest("server/discover"), "server/discover", &json!({ "_meta": meta }))
        .json();
    assert_eq!(found["result"]["supportedVersions"].as_array().map(Vec::len), Some(5), "{found}");
    let none = web.request(&newest("initialize"), "initialize", &json!({ "_meta": meta }));
    assert_eq!((none.status, &none.json()["error"]["code"]), (404, &json!(-32601)), "{none:?}");
    let tools = web.request(&newest("tools/list"), "tools/list", &json!({ "_meta": meta })).json();
    assert!(tools["result"]["tools"].as_array().unwrap().len() > 7, "{tools}");
    let call = json!({ "name": "health_check", "arguments": {}, "_meta": meta });
    let headers = format!("{}Mcp-Name: health_check\r\n", newest("tools/call"));
    let answer = web.request(&headers, "tools/call", &call);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["result"]["structuredContent"]["status"], "ok", "{answer:?}");
}

#[test]
fn a_client_is_answered_in_the_form_it_takes() {
    let daemon = Daemon::running(LISTENING);
    let mut web = Web::to(&daemon);
    let json_forms = [
        "",
        "Accept:\r\n",
        "Accept: */*\r\n",
        "Accept: application/json\r\n",
        "Accept: Application/JSON;q=0.5\r\n",
        "Accept: application/*\r\n",
        "Accept: text/html, */*;q=0.1\r\n",
        "Accept: application/json, text/event-stream\r\n",
        "Accept: text/event-stream\r\nAccept: application/json\r\n",
    ];
    for accept in json_forms {
        assert_eq!(web.call_with(accept, "health_check", &json!({}))["status"], "ok", "{accept}");
    }
    for accept in
        ["Accept: text/event-stream\r\n", "Accept: text/event-stream, application/json;q=0\r\n"]
    {
        let answer = web.post(&format!("{JSON}{accept}"), HEALTH.as_bytes()).unwrap();
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, Some("text/event-stream")),
            "{accept}"
        );
        let event = answer.body.lines().find_map(|line| line.strip_prefix("data:")).unwrap();
        let event: Value = serde_json::from_str(event.trim()).unwrap();
        assert_eq!(event["result"]["structuredContent"]["status"], "ok");
    }
    web.check_well();
}

#[test]
fn a_hundred_requests_at_once_are_answered_and_a_client_that_goes_leaves_nothing() {
    let daemon = Daemon::running(LISTENING);
    let one = format!("{}{HEALTH}", super::request_head(JSON, HEALTH.len()));
    let sockets = || {
        let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().flatten();
        open.filter(|fd| {
            fd.path().read_link().is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
        })
        .count()
    };
    let mut web = Web::to(&daemon);
    web.send(one.repeat(100));
    assert!((0..100).all(|_| web.receive().unwrap().status == 200));
    // One of these is `web`.
    let before = sockets();
    for _ in 0..20 {
        Web::to(&daemon).send(one.repeat(100));
    }
    Web::to(&daemon).check_well();
    until("the connections are gone", || sockets() <= before);
}

#[test]
fn an_agent_of_the_daemon_finds_the_door_in_its_environment() {
    let daemon = Daemon::running(LISTENING);
    daemon.with_one_task(&["env:environment", "report:success"]);
    daemon.until_ended("agt");
    let environment = std::fs::read_to_string(daemon.work().join("environment")).unwrap();
    let url = format!("COORDINATOR_MCP_URL=http://{}/mcp", super::address(&daemon));
    assert!(environment.lines().any(|line| line == url), "{environment}");
}
