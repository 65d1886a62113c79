//! Wrong requests get an answer with what was expected. The next valid request is answered
//! nevertheless.

use std::net::Shutdown;

use serde_json::{Value, json};

use super::{HEALTH, JSON, LISTENING, Web, request_head};
use crate::daemon::Daemon;

/// Returns the answer to this, and checks that the same connection goes on after it.
#[track_caller]
fn answer_to(web: &mut Web, headers: &str, body: &[u8]) -> super::Answer {
    let answer = web.post(headers, body).expect("an answer");
    web.check_well();
    answer
}

#[test]
fn a_wrong_content_type_or_accept_is_told() {
    let daemon = Daemon::running(LISTENING);
    let web = &mut Web::to(&daemon);
    for headers in
        ["", "Content-Type: text/plain\r\n", "Content-Type: application/x-www-form-urlencoded\r\n"]
    {
        answer_to(web, headers, HEALTH.as_bytes()).check_problem(
            415,
            "not_json",
            "is `application/json`",
        );
    }
    for headers in
        ["Content-Type: application/json; charset=utf-8\r\n", "content-type: Application/Json\r\n"]
    {
        assert_eq!(answer_to(web, headers, HEALTH.as_bytes()).status, 200, "{headers}");
    }
    for accept in ["text/html", "image/*, text/html;q=0.9", "text/html, */*;q=0"] {
        let answer = answer_to(web, &format!("{JSON}Accept: {accept}\r\n"), HEALTH.as_bytes());
        answer.check_problem(406, "not_acceptable", "application/json or text/event-stream");
    }
}

#[test]
fn a_body_that_is_no_request_is_answered_as_on_the_socket() {
    let daemon = Daemon::running(LISTENING);
    let web = &mut Web::to(&daemon);
    let cases: [(&[u8], i64, &str, Value); 10] = [
        (b"", -32700, "the body is not valid JSON", Value::Null),
        (b"garbage", -32700, "not valid JSON", Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,", -32700, "not valid JSON", Value::Null),
        (b"\x00\x01\xff\xfe\x80 binary", -32700, "not valid JSON", Value::Null),
        (b"\"text\"", -32600, "JSON object", Value::Null),
        (b"[]", -32600, "a batch has 1 to 64 messages, not 0", Value::Null),
        (b"{}", -32600, "not a JSON-RPC 2.0 request", Value::Null),
        (b"{\"id\":3,\"method\":\"ping\"}", -32600, "not a JSON-RPC 2.0 request", json!(3)),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}",
            -32600,
            "not a JSON-RPC 2.0",
            Value::Null,
        ),
        (
            b"{\"jsonrpc\":\"1.0\",\"id\":\"x\",\"method\":\"ping\"}",
            -32600,
            "not a JSON-RPC 2.0",
            json!("x"),
        ),
    ];
    for (body, code, message, id) in cases {
        let answer = answer_to(web, JSON, body);
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (400, Some("application/json")),
            "{answer:?}"
        );
        let error = answer.json();
        assert_eq!((&error["error"]["code"], &error["id"]), (&code.into(), &id), "{answer:?}");
        assert!(error["error"]["message"].as_str().unwrap().contains(message), "{answer:?}");
    }
    // Messages without an answer on the socket get an empty one here.
    for body in [
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/of/no/kind\"}",
        "{\"jsonrpc\":\"1.0\",\"method\":\"x\"}",
    ] {
        let answer = answer_to(web, JSON, body.as_bytes());
        assert_eq!((answer.status, answer.body.as_str()), (202, ""));
    }
    // This is an answer to no request.
    assert_eq!(
        answer_to(web, JSON, b"{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}").json()["error"]["code"],
        -32600
    );
}

#[test]
fn a_call_that_is_wrong_is_told_so_as_on_the_socket() {
    let daemon = Daemon::running(LISTENING);
    let web = &mut Web::to(&daemon);
    let mut check = |method: &str, params: Value, code: i64, words: &str| {
        let answer = web.request("", method, &params);
        let error = &answer.json()["error"];
        assert_eq!((answer.status, &error["code"]), (200, &code.into()), "{answer:?}");
        assert!(error["message"].as_str().unwrap().contains(words), "{answer:?}");
    };
    check("tools/call", json!({ "name": "no_such_tool" }), -32602, "unknown tool `no_such_tool`");
    check("tools/call", json!({ "name": 7 }), -32602, "params must have `name`");
    check(
        "tools/call",
        json!({ "name": "authenticate", "arguments": [] }),
        -32602,
        "may have `arguments`, an object",
    );
    check("no/such", json!({}), -32601, "no/such");
    check("prompts/list", json!({}), -32601, "prompts/list");
    web.check_well();
}

#[test]
fn a_batch_is_answered_in_the_revision_that_has_batches_and_refused_in_others() {
    let daemon = Daemon::running(LISTENING);
    let web = &mut Web::to(&daemon);
    let call = |id: u32| HEALTH.replacen("\"id\":1", &format!("\"id\":{id}"), 1);
    let batch = format!("[{},{}]", call(1), call(2));
    for version in ["", "MCP-Protocol-Version: 2025-03-26\r\n"] {
        let answer = answer_to(web, &format!("{JSON}{version}"), batch.as_bytes());
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, Some("application/json")),
            "{answer:?}"
        );
        let answers = answer.json();
        let status = |n: usize| answers[n]["result"]["structuredContent"]["status"].clone();
        assert_eq!(
            (answers.as_array().unwrap().len(), status(0), status(1)),
            (2, "ok".into(), "ok".into()),
            "{answers}"
        );
    }
    let streamed =
        answer_to(web, &format!("{JSON}Accept: text/event-stream\r\n"), batch.as_bytes());
    assert_eq!(streamed.header("content-type"), Some("text/event-stream"), "{streamed:?}");
    let answers: Value = serde_json::from_str(&streamed.messages()[0]).unwrap();
    assert_eq!(answers.as_array().unwrap().len(), 2, "{answers}");
    let notifications = br#"[{"jsonrpc":"2.0","method":"notifications/initialized"}]"#;
    let answer = answer_to(web, JSON, notifications);
    assert_eq!((answer.status, answer.body.as_str()), (202, ""));
    let answer =
        answer_to(web, &format!("{JSON}MCP-Protocol-Version: 2025-06-18\r\n"), batch.as_bytes());
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (400, &(-32600).into()),
        "{answer:?}"
    );
    let many = format!("[{}]", vec![call(1); 65].join(","));
    let answer = answer_to(web, JSON, many.as_bytes());
    assert_eq!(answer.json()["error"]["message"], "a batch has 1 to 64 messages, not 65");
    web.check_well();
}

#[test]
fn an_unknown_version_of_the_protocol_is_told_which_there_are() {
    let daemon = Daemon::running(LISTENING);
    let web = &mut Web::to(&daemon);
    for version in ["1999-12-31", "2.0", "é"] {
        let headers = format!("{JSON}MCP-Protocol-Version: {version}\r\n");
        let problem = answer_to(web, &headers, HEALTH.as_bytes());
        problem.check_problem(400, "unsupported_protocol_version", "2025-11-25, 2026-07-28");
    }
    // A handshake negotiates the version instead.
    let hello = json!({ "protocolVersion": "1999-12-31", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } });
    let agreed = web.request("", "initialize", &hello).json()["result"]["protocolVersion"].clone();
    assert!(agreed.as_str().unwrap() >= "2025-11-25", "{agreed}");
    // The newest revision has it in each request, too.
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2030-01-01", "io.modelcontextprotocol/clientCapabilities": {} });
    let headers = "MCP-Protocol-Version: 2030-01-01\r\nMcp-Method: ping\r\n";
    let answer = web.request(headers, "ping", &json!({ "_meta": meta }));
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(answer.json()["error"]["code"].is_number(), "{answer:?}");
    web.check_well();
}

#[test]
fn a_body_that_is_too_long_is_told_however_it_comes() {
    let daemon = Daemon::running(LISTENING);
    let long = vec![b' '; 1024 * 1024 + 1];
    let mut web = Web::to(&daemon);
    web.post(JSON, &long).unwrap().check_problem(
        413,
        "body_too_large",
        "longer than 1048576 bytes",
    );
    let mut web = Web::to(&daemon);
    web.send(format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n"
    ));
    for piece in long.chunks(64 * 1024) {
        web.send(format!("{:x}\r\n", piece.len()));
        web.send(piece);
        web.send("\r\n");
    }
    web.receive().unwrap().check_problem(413, "body_too_large", "longer than 1048576 bytes");
    // A client that asks first need not send it.
    let mut web = Web::to(&daemon);
    web.send(request_head(&format!("{JSON}Expect: 100-continue\r\n"), long.len()));
    web.receive().unwrap().check_problem(413, "body_too_large", "longer than 1048576 bytes");
    // A body that just fits is read.
    let mut fits = HEALTH.as_bytes().to_vec();
    fits.resize(1024 * 1024, b' ');
    let mut web = Web::to(&daemon);
    web.send(request_head(&format!("{JSON}Expect: 100-continue\r\n"), fits.len()));
    assert_eq!(web.receive().unwrap().status, 100);
    web.send(&fits);
    assert_eq!(web.receive().unwrap().status, 200);
    web.check_well();
}

#[test]
fn other_methods_and_paths_are_told_what_there_is() {
    let daemon = Daemon::running(LISTENING);
    let web = &mut Web::to(&daemon);
    for method in ["GET", "DELETE", "PUT", "OPTIONS", "PATCH"] {
        for headers in [
            "",
            "Accept: text/event-stream\r\n",
            "Mcp-Session-Id: 1\r\nAccept: text/event-stream\r\n",
        ] {
            web.send(format!("{method} /mcp HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"));
            let answer = web.receive().unwrap();
            answer.check_problem(
                405,
                "method_not_allowed",
                &format!("/mcp takes POST, not {method}"),
            );
            assert_eq!(answer.header("allow"), Some("POST"));
        }
    }
    // A client of MCP that looks for a way to log in must find none.
    let well_known = "/.well-known/oauth-protected-resource";
    for path in ["/mcp/", "/mcp/x", "/nothing", "/api/nothing", well_known, "/%2e%2e/etc/passwd"] {
        web.get(path, "Host: localhost\r\n").check_problem(404, "no_such_route", path);
    }
    for path in ["/health/live", "/health/ready"] {
        let answer = web.get(path, "Host: localhost\r\n");
        assert_eq!((answer.status, answer.body.as_str()), (200, "ok\n"));
    }
    web.check_well();
}

#[test]
fn what_is_no_http_is_refused() {
    let daemon = Daemon::running(LISTENING);
    let bad: [&[u8]; 7] = [
        b"garbage\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /mcp HTTP/9.9\r\nHost: localhost\r\n\r\n",
    ];
    for bytes in bad {
        let mut web = Web::to(&daemon);
        web.send(bytes);
        let _ = web.stream.shutdown(Shutdown::Write);
        let status = web.receive().map(|answer| answer.status);
        assert!(
            status.is_none_or(|status| (400..600).contains(&status)),
            "{status:?}: {}",
            String::from_utf8_lossy(bytes)
        );
        assert!(web.receive().is_none());
    }
    let mut web = Web::to(&daemon);
    web.send(format!(
        "GET /health/live HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
        "x".repeat(40_000)
    ));
    assert_eq!(web.receive().unwrap().status, 431);
    let mut web = Web::to(&daemon);
    let many = "X: x\r\n".repeat(200);
    web.send(format!("GET /health/live HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"));
    assert_eq!(web.receive().unwrap().status, 431);
    // This body breaks off.
    let mut web = Web::to(&daemon);
    web.send(request_head(JSON, HEALTH.len()));
    web.send(&HEALTH.as_bytes()[..20]);
    web.half_close();
    assert!(web.receive().is_none_or(|answer| answer.status == 400));
    Web::to(&daemon).check_well();
}
