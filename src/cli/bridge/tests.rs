//! Tests of the bridge with a server whose answers the test gives.

use std::future::pending;
use std::io;

use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::cli::call::CONNECTION_LOST;

/// A bridge, its client's ends, and the socket that it connects to.
struct Bed {
    _folder: tempfile::TempDir,
    mailbox: Mailbox,
    listener: UnixListener,
    input: Option<DuplexStream>,
    output: BufReader<DuplexStream>,
    /// Its drop tells the bridge that the client has gone.
    client: Option<oneshot::Sender<()>>,
    bridge: JoinHandle<Result<(), CliError>>,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("mcp.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let (input, bridge_input) = duplex(64);
        let (bridge_output, output) = duplex(64);
        let mailbox = Mailbox::made_in(folder.path());
        let (client, gone) = oneshot::channel();
        let client_gone = async {
            let _ = gone.await;
        };
        let bridge = run(socket, mailbox.clone(), bridge_input, bridge_output, client_gone);
        let bridge = tokio::spawn(bridge);
        Self {
            _folder: folder,
            mailbox,
            listener,
            input: Some(input),
            output: BufReader::new(output),
            client: Some(client),
            bridge,
        }
    }

    async fn accept(&self) -> BufReader<UnixStream> {
        BufReader::new(self.listener.accept().await.unwrap().0)
    }

    async fn send(&mut self, text: &str) {
        self.input.as_mut().unwrap().write_all(text.as_bytes()).await.unwrap();
    }

    async fn answer(&mut self) -> String {
        line(&mut self.output).await
    }

    /// Sends a report. Its answer is lost, or says that the store is away. Returns the
    /// connection over which the bridge sends the report again.
    async fn send_report_in_vain(&mut self, is_answered: bool) -> BufReader<UnixStream> {
        self.send(&format!("{}\n", report())).await;
        let mut server = self.accept().await;
        line(&mut server).await;
        if is_answered {
            let answer = json!({ "id": 7, "result": result("unavailable") });
            server.get_mut().write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        }
        drop(server);
        self.accept().await
    }

    async fn end(&mut self) -> Result<(), CliError> {
        self.input = None;
        (&mut self.bridge).await.unwrap()
    }
}

fn report() -> Value {
    let arguments = json!({ "session_token": "sess_1", "result": "success" });
    let call = json!({ "name": "report_completed", "arguments": arguments });
    json!({ "id": 7, "method": "tools/call", "params": call })
}

/// Returns the line that cancels the report.
fn cancelled() -> String {
    let params = json!({ "requestId": 7 });
    format!("{}\n", json!({ "method": "notifications/cancelled", "params": params }))
}

/// Returns the result of a call with this error code.
fn result(code: &str) -> Value {
    json!({ "structuredContent": { "error_code": code } })
}

async fn line(reader: &mut (impl AsyncBufReadExt + Unpin)) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).await.unwrap();
    line
}

#[tokio::test]
async fn bytes_go_through_as_they_are() {
    let mut bed = Bed::new();
    let request = format!(
        "{{ \"id\" :1,\"method\":\"x\",\"big\":\"{}é\u{1f600}\" }}\r\n",
        "y".repeat(100_000)
    );
    let mut input = bed.input.take().unwrap();
    let (sent, mut server) = tokio::join!(input.write_all(request.as_bytes()), async {
        let mut server = bed.accept().await;
        assert_eq!(line(&mut server).await, request);
        server
    });
    sent.unwrap();
    bed.input = Some(input);
    server.get_mut().write_all(b"{\"id\": 1,  \"result\": {}}\n").await.unwrap();
    assert_eq!(bed.answer().await, "{\"id\": 1,  \"result\": {}}\n");
    bed.end().await.unwrap();
    let mut rest = Vec::new();
    server.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn a_restart_of_the_server_is_outlived_and_lost_calls_are_told() {
    let mut bed = Bed::new();
    bed.send("{\"id\":\"a\",\"method\":\"x\"}\n").await;
    let mut server = bed.accept().await;
    line(&mut server).await;
    drop(server);
    let lost: Value = serde_json::from_str(&bed.answer().await).unwrap();
    assert_eq!((&lost["id"], &lost["error"]["code"]), (&json!("a"), &json!(CONNECTION_LOST)));
    bed.send("{\"id\":\"b\",\"method\":\"x\"}\n").await;
    let mut server = bed.accept().await;
    assert_eq!(line(&mut server).await, "{\"id\":\"b\",\"method\":\"x\"}\n");
    server.get_mut().write_all(b"{\"id\":\"b\",\"result\":{}}\n").await.unwrap();
    assert_eq!(bed.answer().await, "{\"id\":\"b\",\"result\":{}}\n");
    bed.end().await.unwrap();
}

#[tokio::test]
async fn a_line_that_no_connection_took_is_the_first_on_the_next() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let request = b"{\"id\":1,\"method\":\"x\"}\n";
    let input = io::Cursor::new(Vec::<u8>::new());
    let output = Vec::<u8>::new();
    let mut bridge = Bridge::new(PathBuf::new(), Mailbox::default(), input, output);
    bridge.unsent = request.to_vec();
    let server = async {
        let mut server = BufReader::new(theirs);
        assert_eq!(line(&mut server).await.as_bytes(), request);
        server.get_mut().write_all(b"{\"id\":1,\"result\":{}}\n").await.unwrap();
    };
    let client_gone = std::pin::pin!(pending());
    let (carried, ()) = tokio::join!(bridge.carry(ours, client_gone), server);
    assert_eq!(carried.ok(), Some(Carried::InputEnded));
    assert_eq!(bridge.output, b"{\"id\":1,\"result\":{}}\n");
}

#[tokio::test]
async fn a_server_that_takes_no_line_is_asked_again_after_pauses() {
    let mut bed = Bed::new();
    // No buffer of a socket has room for the line.
    let request = format!("{{\"id\":1,\"method\":\"{}\"}}\n", "y".repeat(1 << 20));
    let mut input = bed.input.take().unwrap();
    let began = clock::now();
    let (sent, ()) = tokio::join!(input.write_all(request.as_bytes()), async {
        for _ in 0..4 {
            drop(bed.accept().await);
        }
    });
    sent.unwrap();
    let lasted = clock::now() - began;
    assert!(lasted >= FIRST_PAUSE * (1 + 2 + 4), "{lasted:?}");
    drop(bed.client.take());
    let lost: Value = serde_json::from_str(&bed.answer().await).unwrap();
    assert_eq!(lost["error"]["code"], CONNECTION_LOST);
    bed.end().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_no_line_for_a_minute_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mcp.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    // No buffer of a socket has room for the line.
    let request = format!("{{\"id\":1,\"method\":\"{}\"}}\n", "y".repeat(1 << 20));
    let (mut client, input) = duplex(2 << 20);
    client.write_all(request.as_bytes()).await.unwrap();
    tokio::spawn(async move {
        while let Ok(connection) = listener.accept().await {
            drop(connection);
        }
    });
    let began = clock::now();
    let bridge = run(socket, Mailbox::default(), input, Vec::new(), pending());
    let ended = tokio::time::timeout(TIMEOUT * 3, bridge).await.expect("it gives up");
    assert!(matches!(ended, Err(CliError::NoDaemon { .. })), "{ended:?}");
    let lasted = clock::now() - began;
    assert!((TIMEOUT..TIMEOUT + LONGEST_PAUSE * 3).contains(&lasted), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_reads_no_line_does_not_keep_the_bridge() {
    let request = format!("{{\"id\":1,\"method\":\"{}\"}}", "y".repeat(1 << 20));
    for is_gone in [true, false] {
        let mut bed = Bed::new();
        let mut input = bed.input.take().unwrap();
        input.write_all(request.as_bytes()).await.unwrap();
        if is_gone {
            input.write_all(b"\n").await.unwrap();
            bed.input = Some(input);
        } else {
            drop(input);
        }
        let mut server = bed.accept().await;
        assert!(!server.fill_buf().await.unwrap().is_empty(), "a part of the line is sent");
        if is_gone {
            drop(bed.client.take());
        }
        let answer = tokio::time::timeout(TIMEOUT, bed.answer()).await;
        let lost: Value = serde_json::from_str(&answer.expect("the bridge ends")).unwrap();
        assert_eq!(lost["error"]["code"], CONNECTION_LOST, "{is_gone}");
        bed.end().await.unwrap();
    }
}

#[tokio::test]
async fn an_answer_that_came_before_a_line_found_the_server_gone_is_written() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (mut client, input) = duplex(64);
    let mut bridge = Bridge::new(PathBuf::new(), Mailbox::default(), input, Vec::<u8>::new());
    bridge.unsent = b"{\"id\":1,\"method\":\"x\"}\n".to_vec();
    let server = async {
        let mut server = BufReader::new(theirs);
        line(&mut server).await;
        server.get_mut().write_all(b"{\"id\":1,\"result\":{}}\n").await.unwrap();
        drop(server);
        client.write_all(b"the next\n").await.unwrap();
    };
    let client_gone = std::pin::pin!(pending());
    let (carried, ()) = tokio::join!(bridge.carry(ours, client_gone), server);
    assert_eq!(carried.ok(), Some(Carried::ConnectionLost));
    assert_eq!(bridge.output, b"{\"id\":1,\"result\":{}}\n");
    assert_eq!(bridge.unsent, b"the next\n");
}

#[tokio::test]
async fn a_call_in_flight_is_answered_after_the_end_of_the_input() {
    let mut bed = Bed::new();
    bed.send("{\"id\":1,\"method\":\"x\"}\n").await;
    let mut server = bed.accept().await;
    line(&mut server).await;
    bed.input = None;
    server.get_mut().write_all(b"{\"id\":1,\"result\":{}}\n").await.unwrap();
    assert_eq!(bed.answer().await, "{\"id\":1,\"result\":{}}\n");
    bed.bridge.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stays_away_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let ended = run(
        folder.path().join("mcp.sock"),
        Mailbox::default(),
        io::Cursor::new(b"a line\n"),
        Vec::new(),
        pending(),
    )
    .await;
    assert!(matches!(ended, Err(CliError::NoDaemon { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_report_that_finds_no_server_is_kept_after_a_minute_or_when_the_client_leaves() {
    let other = format!("{}\n", json!({ "id": 1, "method": "ping" }));
    for (is_open, is_gone, longest) in
        [(true, false, TIMEOUT), (false, false, LAST_ANSWERS), (true, true, Duration::ZERO)]
    {
        for n_before in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            let mailbox = Mailbox::made_in(folder.path());
            let (mut client, input) = duplex(1024);
            let lines = format!("{}{}\n", other.repeat(n_before), report());
            client.write_all(lines.as_bytes()).await.unwrap();
            let client = is_open.then_some(client);
            let client_gone = async {
                if !is_gone {
                    pending::<()>().await;
                }
            };
            let mut output = Vec::new();
            let began = clock::now();
            let socket = folder.path().join("mcp.sock");
            let ended = run(socket, mailbox.clone(), input, &mut output, client_gone).await;
            let lasted = clock::now() - began;
            assert!(lasted + LONGEST_PAUSE >= longest, "{lasted:?}, not {longest:?}");
            assert!(lasted < longest + LAST_LINES * 2, "{lasted:?}, not {longest:?}");
            assert_eq!(ended.is_ok(), is_gone, "{ended:?}");
            assert!(mailbox.has_report(), "after {n_before} lines, {longest:?}");
            let answers = String::from_utf8(output).unwrap();
            let mut answers = answers.lines().map(|it| serde_json::from_str::<Value>(it).unwrap());
            let answer = answers.find(|answer| answer["id"] == 7).unwrap();
            assert_eq!(answer["result"]["structuredContent"]["success"], true, "{answer}");
            drop(client);
        }
    }
}

#[tokio::test]
async fn lines_that_came_before_the_server_are_sent_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mcp.sock");
    let (mut client, input) = duplex(1024);
    let bridge = run(socket.clone(), Mailbox::default(), input, Vec::new(), pending());
    let used = async {
        client.write_all(b"first\nsecond\nthi").await.unwrap();
        // There is room for this when the bridge has begun to read.
        client.write_all(&[b'r'; 1024]).await.unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        let mut server = BufReader::new(listener.accept().await.unwrap().0);
        assert_eq!(line(&mut server).await, "first\n");
        assert_eq!(line(&mut server).await, "second\n");
        client.write_all(b"d\nlast").await.unwrap();
        drop(client);
        assert_eq!(line(&mut server).await, format!("thi{}d\n", "r".repeat(1024)));
        assert_eq!(line(&mut server).await, "last");
    };
    let (ended, ()) = tokio::join!(bridge, used);
    ended.unwrap();
}

#[tokio::test]
async fn other_lines_are_carried_while_a_report_is_sent_again() {
    for is_answered in [false, true] {
        let mut bed = Bed::new();
        let mut again = bed.send_report_in_vain(is_answered).await;
        let repeated: Value = serde_json::from_str(&line(&mut again).await).unwrap();
        bed.send("{\"id\":8,\"method\":\"x\"}\n").await;
        let mut server = bed.accept().await;
        assert_eq!(line(&mut server).await, "{\"id\":8,\"method\":\"x\"}\n");
        server.get_mut().write_all(b"{\"id\":8,\"result\":{}}\n").await.unwrap();
        assert_eq!(bed.answer().await, "{\"id\":8,\"result\":{}}\n");
        let answer = json!({ "id": repeated["id"], "result": result("subtasks_open") });
        again.get_mut().write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        let answer: Value = serde_json::from_str(&bed.answer().await).unwrap();
        assert_eq!(answer["id"], 7, "{is_answered}: {answer}");
        bed.end().await.unwrap();
    }
}

#[tokio::test]
async fn a_report_whose_answer_is_lost_or_unavailable_is_sent_again() {
    for is_answered in [false, true] {
        let mut bed = Bed::new();
        let mut again = bed.send_report_in_vain(is_answered).await;
        // The agent can mend this refusal.
        let repeated: Value = serde_json::from_str(&line(&mut again).await).unwrap();
        assert_eq!(repeated["params"], report()["params"]);
        let answer = json!({ "id": repeated["id"], "result": result("subtasks_open") });
        again.get_mut().write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        let answer: Value = serde_json::from_str(&bed.answer().await).unwrap();
        assert_eq!(answer["id"], 7);
        assert_eq!(answer["result"], result("subtasks_open"), "{is_answered}");
        bed.end().await.unwrap();
        assert!(!bed.mailbox.has_report(), "{is_answered}: it was delivered");
    }
}

#[tokio::test]
async fn a_report_is_sent_again_although_the_input_ended_and_the_server_closed() {
    let mut bed = Bed::new();
    bed.send(&format!("{}\n", report())).await;
    let mut server = bed.accept().await;
    line(&mut server).await;
    bed.input = None;
    assert_eq!(line(&mut server).await, "", "the input has ended");
    let answer = json!({ "id": 7, "result": result("unavailable") });
    server.get_mut().write_all(format!("{answer}\n").as_bytes()).await.unwrap();
    drop(server);
    let again = tokio::time::timeout(LAST_ANSWERS, bed.accept()).await;
    let mut again = again.expect("it is sent again");
    let repeated: Value = serde_json::from_str(&line(&mut again).await).unwrap();
    let answer = json!({ "id": repeated["id"], "result": result("subtasks_open") });
    again.get_mut().write_all(format!("{answer}\n").as_bytes()).await.unwrap();
    let answer: Value = serde_json::from_str(&bed.answer().await).unwrap();
    assert_eq!(answer["result"], result("subtasks_open"));
    bed.end().await.unwrap();
    assert!(!bed.mailbox.has_report());
}

#[tokio::test(start_paused = true)]
async fn a_report_whose_answer_is_lost_for_a_minute_is_kept() {
    let mut bed = Bed::new();
    bed.send(&format!("{}\n", report())).await;
    let mut server = bed.accept().await;
    line(&mut server).await;
    let Bed { _folder, listener, input, mut output, bridge, .. } = bed;
    drop(listener);
    drop(server);
    let answer: Value = serde_json::from_str(&line(&mut output).await).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["success"], true, "{answer}");
    drop(input);
    bridge.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_report_without_an_answer_is_kept_when_the_client_leaves() {
    for is_answered in [false, true] {
        let mut bed = Bed::new();
        let mut again = bed.send_report_in_vain(is_answered).await;
        line(&mut again).await;
        let left_at = clock::now();
        drop(bed.client.take());
        let answer: Value = serde_json::from_str(&bed.answer().await).unwrap();
        assert_eq!(answer["result"]["structuredContent"]["success"], true, "{answer}");
        assert!(clock::now() < left_at + LAST_LINES * 2, "{is_answered}: it waited");
        bed.bridge.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn an_answer_that_came_just_before_the_end_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mailbox = Mailbox::made_in(folder.path());
    let input = io::Cursor::new(Vec::<u8>::new());
    let mut bridge = Bridge::new(PathBuf::new(), mailbox.clone(), input, Vec::<u8>::new());
    let repeated = Call { request: report(), is_cancelled: false };
    bridge.repeated.insert("7".to_owned(), repeated);
    let answer = json!({ "id": 7, "result": result("subtasks_open") });
    bridge.repeats.spawn(std::future::ready(Some(answer.clone())));
    tokio::task::yield_now().await;
    bridge.keep_reports().await.unwrap();
    assert_eq!(bridge.output, format!("{answer}\n").into_bytes());
    assert!(!mailbox.has_report());
}

#[tokio::test]
async fn a_cancelled_report_is_kept_without_an_answer_when_the_client_leaves() {
    for is_answered in [false, true] {
        let mut bed = Bed::new();
        let mut again = bed.send_report_in_vain(is_answered).await;
        line(&mut again).await;
        bed.send(&cancelled()).await;
        let mut server = bed.accept().await;
        assert_eq!(line(&mut server).await, cancelled());
        drop(bed.client.take());
        assert_eq!(bed.answer().await, "", "{is_answered}: nothing waits for an answer");
        bed.end().await.unwrap();
        assert!(bed.mailbox.has_report(), "{is_answered}");
    }
}

#[tokio::test]
async fn a_report_that_is_cancelled_before_its_answer_is_lost_or_unavailable_is_sent_again() {
    for is_answered in [false, true] {
        let mut bed = Bed::new();
        bed.send(&format!("{}\n{}", report(), cancelled())).await;
        let mut server = bed.accept().await;
        line(&mut server).await;
        assert_eq!(line(&mut server).await, cancelled());
        if is_answered {
            let answer = json!({ "id": 7, "result": result("unavailable") });
            server.get_mut().write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        }
        drop(server);
        let again = tokio::time::timeout(LAST_ANSWERS, bed.accept()).await;
        let mut again = again.expect("it is sent again");
        let repeated: Value = serde_json::from_str(&line(&mut again).await).unwrap();
        assert_eq!(repeated["params"], report()["params"], "{is_answered}");
        let answer = json!({ "id": repeated["id"], "result": result("subtasks_open") });
        again.get_mut().write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        bed.input = None;
        assert_eq!(bed.answer().await, "", "{is_answered}: nothing waits for an answer");
        bed.end().await.unwrap();
    }
}

#[tokio::test]
async fn a_cancelled_report_that_finds_no_server_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mailbox = Mailbox::made_in(folder.path());
    let (mut client, input) = duplex(1024);
    client.write_all(format!("{}\n{}", report(), cancelled()).as_bytes()).await.unwrap();
    let mut output = Vec::new();
    let socket = folder.path().join("mcp.sock");
    run(socket, mailbox.clone(), input, &mut output, std::future::ready(())).await.unwrap();
    assert_eq!(output, b"");
    assert!(mailbox.has_report());
}

#[tokio::test(start_paused = true)]
async fn a_report_is_kept_although_the_output_is_closed() {
    for is_answered in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("mcp.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let mailbox = Mailbox::made_in(folder.path());
        let other = json!({ "id": 1, "method": "x" });
        let input = io::Cursor::new(format!("{other}\n{}\n", report()).into_bytes());
        let (output, closed) = duplex(64);
        drop(closed);
        let server = async {
            let mut server = BufReader::new(listener.accept().await.unwrap().0);
            drop(listener);
            line(&mut server).await;
            line(&mut server).await;
            if is_answered {
                server.get_mut().write_all(b"{\"id\":1,\"result\":{}}\n").await.unwrap();
            }
        };
        let bridge = run(socket, mailbox.clone(), input, output, pending());
        let (ended, ()) = tokio::join!(bridge, server);
        assert!(matches!(ended, Err(CliError::Hushed)), "{is_answered}: {ended:?}");
        assert!(mailbox.has_report(), "{is_answered}");
    }
}

#[tokio::test]
async fn the_end_of_the_input_ends_the_bridge() {
    let mut bed = Bed::new();
    bed.end().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_of_the_server_before_there_is_a_line() {
    let mut bed = Bed::new();
    bed.send("no line yet").await;
    assert!(tokio::time::timeout(TIMEOUT, bed.accept()).await.is_err());
    bed.send("\n").await;
    let mut server = bed.accept().await;
    assert_eq!(line(&mut server).await, "no line yet\n");
    // The bridge does not connect after the server has closed either.
    drop(server);
    assert!(tokio::time::timeout(TIMEOUT, bed.accept()).await.is_err());
    bed.send("the next\n").await;
    assert_eq!(line(&mut bed.accept().await).await, "the next\n");
    bed.end().await.unwrap();
}
