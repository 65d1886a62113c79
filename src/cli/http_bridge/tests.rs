//! Tests of the bridge over HTTP with a server whose answers the test gives.

use std::io::Cursor;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, duplex};
use tokio::net::TcpListener;

use super::*;
use crate::cli::call::CONNECTION_LOST;

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type:";

fn report() -> Value {
    let arguments = json!({ "session_token": "sess_1", "result": "success" });
    let call = json!({ "name": "report_completed", "arguments": arguments });
    json!({ "id": 7, "method": "tools/call", "params": call })
}

/// Returns the response with a result that has this error code.
fn response(id: u32, code: &str) -> String {
    let result = json!({ "structuredContent": { "error_code": code } });
    let body = json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string();
    format!("{HEAD} application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Carries a report to a server that gives these responses, each on a connection of its own.
/// The client leaves after `n_answers` lines. Returns the lines for the client.
async fn carried(responses: &[&str], n_answers: usize) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let mailbox = Mailbox::made_in(folder.path());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (gone, client_gone) = tokio::sync::oneshot::channel::<()>();
    let server = async {
        for response in responses {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut received = Vec::new();
            while !received.ends_with(b"}}") {
                stream.read_buf(&mut received).await.unwrap();
            }
            stream.write_all(response.as_bytes()).await.unwrap();
        }
    };
    let (output, written) = duplex(4096);
    let client = async {
        let mut lines = BufReader::new(written).lines();
        let mut answers = Vec::new();
        while answers.len() < n_answers {
            answers.push(lines.next_line().await.unwrap().unwrap());
        }
        (lines, answers)
    };
    let used = async {
        let ((), (lines, answers)) = tokio::join!(server, client);
        drop(gone);
        (lines, answers)
    };
    let input = Cursor::new(report().to_string().into_bytes());
    let client_gone = async {
        let _ = client_gone.await;
    };
    let (ended, (mut lines, mut answers)) =
        tokio::join!(run(&url, mailbox.clone(), input, output, client_gone), used);
    ended.unwrap();
    while let Some(answer) = lines.next_line().await.unwrap() {
        answers.push(answer);
    }
    let answers: Vec<Value> =
        answers.iter().map(|answer| serde_json::from_str(answer).unwrap()).collect();
    let says_kept = |answer: &Value| answer["result"]["structuredContent"]["success"] == true;
    assert_eq!(mailbox.has_report(), answers.iter().any(says_kept), "{answers:?}");
    answers
}

#[tokio::test]
async fn a_report_whose_answer_is_lost_or_unavailable_is_sent_again() {
    let refused = response(1, "subtasks_open");
    for first in [String::new(), response(7, "unavailable")] {
        let answers = carried(&[first.as_str(), refused.as_str()], 1).await;
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert_eq!(answers[0]["id"], 7);
        let code = &answers[0]["result"]["structuredContent"]["error_code"];
        assert_eq!(code, "subtasks_open", "{first}");
    }
}

#[tokio::test]
async fn a_report_without_an_answer_is_kept_when_the_client_leaves() {
    let answers = carried(&[""], 0).await;
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(answers[0]["result"]["structuredContent"]["success"], true, "{answers:?}");
}

#[tokio::test]
async fn a_cancelled_report_is_kept_without_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let mailbox = Mailbox::made_in(folder.path());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let params = json!({ "requestId": 7 });
    let cancelled = json!({ "method": "notifications/cancelled", "params": params });
    let input = Cursor::new(format!("{}\n{cancelled}\n", report()).into_bytes());
    let client_gone = async {
        while !mailbox.has_report() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let (output, mut written) = duplex(4096);
    let ended = run(&url, mailbox.clone(), input, output, client_gone);
    let ended = tokio::time::timeout(LAST_ANSWERS / 2, ended).await;
    ended.expect("the report is kept").unwrap();
    let mut answers = String::new();
    written.read_to_string(&mut answers).await.unwrap();
    assert_eq!(answers, "");
    drop(listener);
}

#[tokio::test]
async fn a_report_is_kept_although_the_output_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let mailbox = Mailbox::made_in(folder.path());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let other = json!({ "id": 1, "method": "initialize", "params": {} });
    let (mut client, input) = duplex(1024);
    client.write_all(format!("{}\n{other}\n", report()).as_bytes()).await.unwrap();
    let (output, closed) = duplex(64);
    drop(closed);
    // The server answers the handshake alone.
    let server = async {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut received = Vec::new();
            while !received.ends_with(b"}}") {
                stream.read_buf(&mut received).await.unwrap();
            }
            if received.ends_with(other.to_string().as_bytes()) {
                stream.write_all(response(1, "").as_bytes()).await.unwrap();
            }
            open.push(stream);
        }
    };
    let ended = tokio::select! {
        ended = run(&url, mailbox.clone(), input, output, std::future::ready(())) => ended,
        () = server => unreachable!("the server does not end"),
    };
    assert!(matches!(ended, Err(CliError::Hushed)), "{ended:?}");
    assert!(mailbox.has_report());
    drop(client);
}

#[tokio::test]
async fn a_handshake_without_an_answer_ends_when_the_client_leaves() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let input = Cursor::new(b"{\"id\":1,\"method\":\"initialize\"}\n");
    let ended = run(&url, Mailbox::default(), input, Vec::new(), std::future::ready(()));
    let ended = tokio::time::timeout(LAST_ANSWERS / 2, ended).await;
    ended.expect("it does not wait").unwrap();
    drop(listener);
}

/// Carries a handshake and what follows it to a server that does not answer. Returns the end,
/// and the lines for the client.
async fn carried_behind_a_handshake(
    mailbox: &Mailbox,
    is_open: bool,
    client_gone: impl Future<Output = ()>,
) -> (Result<(), CliError>, Vec<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let [first, other] = [(1, "initialize"), (2, "ping")]
        .map(|(id, method)| json!({ "id": id, "method": method, "params": {} }));
    let (mut client, input) = duplex(1024);
    client.write_all(format!("{first}\n{other}\n{}\n", report()).as_bytes()).await.unwrap();
    let client = is_open.then_some(client);
    let (output, mut written) = duplex(4096);
    let ended = run(&url, mailbox.clone(), input, output, client_gone).await;
    let mut answers = String::new();
    written.read_to_string(&mut answers).await.unwrap();
    drop((listener, client));
    (ended, answers.lines().map(|answer| serde_json::from_str(answer).unwrap()).collect())
}

#[tokio::test]
async fn a_report_behind_a_handshake_is_kept_when_the_client_leaves() {
    for is_open in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let mailbox = Mailbox::made_in(folder.path());
        let carried = carried_behind_a_handshake(&mailbox, is_open, std::future::ready(()));
        let ended = tokio::time::timeout(LAST_ANSWERS / 2, carried).await;
        let (ended, _) = ended.expect("it does not wait");
        ended.unwrap();
        assert!(mailbox.has_report(), "{is_open}");
    }
}

#[tokio::test]
async fn a_report_that_waits_for_a_slot_is_kept_when_the_client_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let mailbox = Mailbox::made_in(folder.path());
    // The server answers no request.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (mut client, input) = duplex(64 * 1024);
    for id in 0..MAX_IN_FLIGHT {
        let ping = json!({ "id": format!("ping {id}"), "method": "ping" });
        client.write_all(format!("{ping}\n").as_bytes()).await.unwrap();
    }
    client.write_all(format!("{}\n", report()).as_bytes()).await.unwrap();
    let (output, mut written) = duplex(4096);
    let ended = run(&url, mailbox.clone(), input, output, std::future::ready(()));
    let ended = tokio::time::timeout(LAST_ANSWERS / 2, ended).await;
    ended.expect("it does not wait for a slot").unwrap();
    let mut answers = String::new();
    written.read_to_string(&mut answers).await.unwrap();
    let answer: Value = serde_json::from_str(&answers).unwrap();
    assert_eq!(answer["id"], 7, "{answer}");
    assert_eq!(answer["result"]["structuredContent"]["success"], true, "{answer}");
    assert!(mailbox.has_report());
    drop((listener, client));
}

#[tokio::test(start_paused = true)]
async fn a_handshake_without_an_answer_fails_ten_seconds_after_the_end_of_the_input() {
    let folder = tempfile::tempdir().unwrap();
    let mailbox = Mailbox::made_in(folder.path());
    let began = clock::now();
    let (ended, answers) =
        carried_behind_a_handshake(&mailbox, false, std::future::pending()).await;
    let lasted = clock::now() - began;
    assert!(matches!(ended, Err(CliError::NoDaemon { .. })), "{ended:?}");
    assert!(lasted >= LAST_ANSWERS && lasted < LAST_ANSWERS + LONGEST_PAUSE, "{lasted:?}");
    let ids: Vec<_> = answers.iter().map(|answer| answer["id"].as_u64()).collect();
    assert_eq!(ids, [Some(1), Some(2), Some(7)], "{answers:?}");
    assert_eq!(answers[0]["error"]["code"], CONNECTION_LOST);
    assert_eq!(answers[2]["result"]["structuredContent"]["success"], true);
    assert!(mailbox.has_report());
}

#[tokio::test]
async fn a_status_that_refuses_a_report_is_its_answer() {
    for status in ["401", "404", "413"] {
        let refused = format!("HTTP/1.1 {status} Refused\r\nContent-Length: 0\r\n\r\n");
        let answers = carried(&[refused.as_str()], 1).await;
        assert_eq!(answers.len(), 1, "{answers:?}");
        let text = answers[0]["error"]["message"].as_str().unwrap();
        assert!(text.contains(status), "{text}");
    }
}

#[tokio::test]
async fn a_report_is_answered_once_if_the_stream_breaks_after_its_answer() {
    let event = json!({ "jsonrpc": "2.0", "id": 7, "result": { "done": true } });
    let head = format!("{HEAD} text/event-stream\r\nContent-Length: 1000\r\n\r\n");
    let broken = format!("{head}data: {event}\n\n");
    let answers = carried(&[broken.as_str()], 1).await;
    assert_eq!(answers, [event]);
}
