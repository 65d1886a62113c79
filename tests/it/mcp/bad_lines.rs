//! Invalid input on the socket, which does not affect other clients.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::daemon::{Client, Daemon};

const HEALTH: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"health_check"}}"#;

/// Returns the answer to this line.
fn answer_to(client: &mut Client, line: &[u8]) -> Value {
    client.send(line);
    client.send(b"\n");
    client.receive().expect("the connection goes on")
}

#[track_caller]
fn check_well(daemon: &Daemon) {
    assert_eq!(daemon.client().call("health_check", &json!({}))["status"], "ok");
}

#[test]
fn a_line_that_is_no_request_is_answered_and_the_connection_goes_on() {
    let daemon = Daemon::running("");
    let client = &mut daemon.client();
    let long = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","x":"{}"}}"#,
        "x".repeat(1024 * 1024)
    );
    let cases: [(&[u8], i64, &str, Value); 12] = [
        (b"garbage", -32700, "not valid JSON", Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,", -32700, "not valid JSON", Value::Null),
        (b"\x00\x01\xff\xfe\x80 binary", -32700, "not valid JSON", Value::Null),
        (b"\"text\"", -32600, "JSON object", Value::Null),
        (b"null", -32600, "JSON object", Value::Null),
        (b"[]", -32600, "only revision 2025-03-26 of the protocol has batches", Value::Null),
        (
            b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
            -32600,
            "only revision 2025-03-26 of the protocol has batches",
            Value::Null,
        ),
        (b"{}", -32600, "not a JSON-RPC 2.0 request", Value::Null),
        (b"{\"id\":3,\"method\":\"ping\"}", -32600, "not a JSON-RPC 2.0 request", json!(3)),
        (
            b"{\"jsonrpc\":\"1.0\",\"id\":\"x\",\"method\":\"ping\"}",
            -32600,
            "not a JSON-RPC 2.0",
            json!("x"),
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}",
            -32600,
            "not a JSON-RPC 2.0",
            Value::Null,
        ),
        (long.as_bytes(), -32600, "longer than 1048576 bytes", Value::Null),
    ];
    for (line, code, message, id) in cases {
        let shown = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
        let answer = answer_to(client, line);
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&code.into(), &id),
            "{shown}: {answer}"
        );
        assert!(
            answer["error"]["message"].as_str().unwrap().contains(message),
            "{shown}: {answer}"
        );
        assert_eq!(answer["jsonrpc"], "2.0");
        // The next line is not taken for a part of it.
        assert_eq!(answer_to(client, HEALTH.as_bytes())["result"]["isError"], false, "{shown}");
    }
}

#[test]
fn a_line_that_needs_no_answer_gets_none() {
    let daemon = Daemon::running("");
    let mut client = daemon.client();
    client.send(b"\n\r\n   \n");
    client.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/of/no/kind\"}\n");
    client.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":99}}\n");
    // A message without an id is a notification, whatever its method is.
    client.send(
        b"{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"params\":{\"name\":\"health_check\"}}\n",
    );
    client.send(b"{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}\n");
    assert_eq!(client.request("ping", &json!({}))["result"], json!({}));
}

#[test]
fn a_connection_of_rubbish_only_is_closed() {
    let daemon = Daemon::running("");
    let mut client = daemon.client();
    client.send("rubbish\n".repeat(16).as_bytes());
    let mut n_complaints = 0;
    while client.receive().is_some() {
        n_complaints += 1;
    }
    assert_eq!(n_complaints, 16);
    check_well(&daemon);
}

#[test]
fn calls_that_were_sent_are_answered_though_nothing_more_will_be_sent() {
    let daemon = Daemon::running("");
    let mut client = daemon.client();
    let calls = (0..100).fold(String::new(), |mut calls, id| {
        let _ = writeln!(calls, "{}", HEALTH.replace("\"id\":1", &format!("\"id\":{id}")));
        calls
    });
    client.send(calls.as_bytes());
    client.half_close();
    let mut ids: Vec<u64> =
        std::iter::from_fn(|| client.receive()).map(|a| a["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..100).collect::<Vec<_>>());

    // A client that doesn't wait for the answers affects no other client.
    for _ in 0..20 {
        let mut client = daemon.client();
        client.send(calls.as_bytes());
    }
    check_well(&daemon);
    assert!(daemon.logged("fail to response message").is_empty(), "{}", daemon.log());
}

#[test]
fn half_a_line_and_silence_harm_nobody() {
    let daemon = Daemon::running("");
    let silent: Vec<Client> = (0..100).map(|_| daemon.client()).collect();
    let mut half = daemon.client();
    half.send(&HEALTH.as_bytes()[..20]);
    check_well(&daemon);
    half.send(&HEALTH.as_bytes()[20..]);
    half.send(b"\n");
    assert_eq!(half.receive().unwrap()["id"], 1);
    let mut cut_off = daemon.client();
    cut_off.send(HEALTH.as_bytes());
    cut_off.half_close();
    assert_eq!(cut_off.receive().unwrap()["id"], 1, "the last line may lack its end");
    let mut broken_off = daemon.client();
    broken_off.send(&HEALTH.as_bytes()[..20]);
    broken_off.half_close();
    assert_eq!(broken_off.receive().unwrap()["error"]["code"], -32700);
    drop(silent);
    check_well(&daemon);
}

#[test]
fn a_peer_that_sends_and_never_reads_waits_and_costs_little() {
    let daemon = Daemon::running("");
    check_well(&daemon);
    let before = daemon.resident_kib();
    let flood = format!("{HEALTH}\n").repeat(1000);
    let floods: Vec<UnixStream> = (0..4)
        .map(|_| {
            let mut stream = UnixStream::connect(daemon.state().join("mcp.sock")).unwrap();
            // The client writes until the server accepts no more.
            stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
            let is_stopped = (0..100).any(|_| stream.write_all(flood.as_bytes()).is_err());
            assert!(is_stopped, "the server took 100,000 calls without an answer being read");
            stream
        })
        .collect();
    check_well(&daemon);
    // This line has no end.
    let mut endless = UnixStream::connect(daemon.state().join("mcp.sock")).unwrap();
    let piece = vec![b'x'; 1024 * 1024];
    for _ in 0..64 {
        endless.write_all(&piece).unwrap();
    }
    check_well(&daemon);
    let grown = daemon.resident_kib().saturating_sub(before);
    assert!(grown < 32 * 1024, "{grown} KiB more");
    // Accepted calls are answered.
    let mut first = [0; 16];
    (&floods[0]).read_exact(&mut first).unwrap();
    assert!(first.starts_with(b"{\"jsonrpc\":"));
}
