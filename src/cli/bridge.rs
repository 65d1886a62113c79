//! `mcp`: the bridge for agents that speak only stdio MCP. It carries lines between standard input
//! and output and the server's socket, byte for byte.
//!
//! The bridge outlives a restart of the server. It connects again, and tells the client which of
//! its calls were lost. Only a lost report is sent again. It connects only when there is a line to
//! send, because a server closes idle connections.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::call::{CONNECTION_LOST, send_again};
use super::error::CliError;
use super::kept_report::{Mailbox, is_put_off, report_of};
use crate::clock;
use crate::domain::ServerAddress;
use crate::nudge::sleep_until;

/// The longest absence of a server: a restart takes a moment, an upgrade takes longer.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The first and the longest pause between two attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The time for pending answers after the end of the input.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// Carries lines until the input ends, and the answers until `client_gone`.
pub(super) async fn run(
    socket: PathBuf,
    mailbox: Mailbox,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
    client_gone: impl Future<Output = ()>,
) -> Result<(), CliError> {
    let mut client_gone = std::pin::pin!(client_gone);
    let mut bridge = Bridge {
        socket,
        mailbox,
        input: BufReader::new(input),
        output,
        unanswered: BTreeMap::new(),
        unsent: Vec::new(),
    };
    while bridge.has_line().await? {
        let stream = match connect(&bridge.socket).await {
            Ok(stream) => stream,
            Err(error) => {
                let line = std::mem::take(&mut bridge.unsent);
                bridge.note_request(&line);
                bridge.say_what_was_lost(clock::now()).await?;
                return Err(error);
            }
        };
        match bridge.carry(stream, client_gone.as_mut()).await {
            Ok(Carried::ConnectionLost) => {}
            // A report without an answer is kept, also if the output is closed.
            ended => {
                let said = bridge.say_what_was_lost(clock::now()).await;
                return ended.and(said);
            }
        }
        eprintln!(
            "agent-coordinator mcp: the server closed the connection; the next line will open another"
        );
        tokio::select! {
            biased;
            said = bridge.say_what_was_lost(clock::now() + TIMEOUT) => said?,
            () = &mut client_gone => return bridge.say_what_was_lost(clock::now()).await,
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carried {
    InputEnded,
    ConnectionLost,
}

struct Bridge<I, O> {
    socket: PathBuf,
    mailbox: Mailbox,
    input: BufReader<I>,
    output: O,
    /// The requests that went to the server and have no answer yet, by their ids as text.
    unanswered: BTreeMap<String, Value>,
    /// The line of the input that is being read, or that the server did not take as a whole.
    unsent: Vec<u8>,
}

impl<I: AsyncRead + Unpin, O: AsyncWrite + Unpin> Bridge<I, O> {
    /// Waits for a line to send. Returns `false` at the end of the input. The last line may lack
    /// its line end.
    async fn has_line(&mut self) -> Result<bool, CliError> {
        if !self.unsent.ends_with(b"\n") {
            self.input.read_until(b'\n', &mut self.unsent).await?;
        }
        Ok(!self.unsent.is_empty())
    }

    /// Carries lines over one connection. The first line is in `unsent` already.
    async fn carry(
        &mut self,
        stream: UnixStream,
        mut client_gone: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Carried, CliError> {
        let (reader, mut writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        let mut answer = Vec::new();
        let mut input_ended = None;
        if !self.send(&mut writer).await {
            return Ok(Carried::ConnectionLost);
        }
        loop {
            if input_ended.is_some() && self.unanswered.is_empty() {
                return Ok(Carried::InputEnded);
            }
            tokio::select! {
                // Both reads are cancel-safe, because the bytes that they have read stay in their
                // buffers.
                read = reader.read_until(b'\n', &mut answer) => match read {
                    Ok(n_read) if n_read > 0 && answer.ends_with(b"\n") => {
                        let give_up_at = input_ended.unwrap_or_else(|| clock::now() + TIMEOUT);
                        let other = tokio::select! {
                            biased;
                            other = self.note_answer(&answer, give_up_at) => other,
                            () = &mut client_gone => return Ok(Carried::InputEnded),
                        };
                        self.write(other.as_deref().unwrap_or(&answer)).await?;
                        answer.clear();
                    }
                    Ok(_) | Err(_) => {
                        return Ok(if input_ended.is_some() { Carried::InputEnded } else { Carried::ConnectionLost });
                    }
                },
                read = self.input.read_until(b'\n', &mut self.unsent), if input_ended.is_none() => {
                    if read? == 0 && self.unsent.is_empty() {
                        input_ended = Some(clock::now() + LAST_ANSWERS);
                        // This tells the server that no more lines come. Its answers still come.
                        let _ = writer.shutdown().await;
                        continue;
                    }
                    if !self.send(&mut writer).await {
                        return Ok(Carried::ConnectionLost);
                    }
                },
                () = sleep_until(input_ended) => return Ok(Carried::InputEnded),
                () = &mut client_gone, if input_ended.is_some() => return Ok(Carried::InputEnded),
            }
        }
    }

    /// Sends the line. The line stays in `unsent` if the server did not take it as a whole. A
    /// server ignores a line without its line end.
    async fn send(&mut self, writer: &mut (impl AsyncWrite + Unpin)) -> bool {
        if writer.write_all(&self.unsent).await.is_err() {
            return false;
        }
        let line = std::mem::take(&mut self.unsent);
        self.note_request(&line);
        true
    }

    fn note_request(&mut self, line: &[u8]) {
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            // The error about such a line has no id.
            if !line.trim_ascii().is_empty() {
                self.unanswered.insert(Value::Null.to_string(), Value::Null);
            }
            return;
        };
        for message in messages(&message) {
            match (message.get("id"), message.get("method")) {
                (Some(id), Some(_)) => {
                    self.unanswered.insert(id.to_string(), message.clone());
                }
                // A cancelled request gets no answer.
                (None, Some(method)) if method == "notifications/cancelled" => {
                    self.unanswered.remove(&message["params"]["requestId"].to_string());
                }
                _ => {}
            }
        }
    }

    /// Notes which requests have their answers. If the line says that the store was away for a
    /// report, sends that report again, and returns the line with the new answer. Cancel-safe: a
    /// report that is being sent again stays unanswered.
    async fn note_answer(&mut self, line: &[u8], give_up_at: Instant) -> Option<Vec<u8>> {
        let mut line: Value = serde_json::from_slice(line).ok()?;
        let mut is_replaced = false;
        let messages = match &mut line {
            Value::Array(batch) => batch.as_mut_slice(),
            one => std::slice::from_mut(one),
        };
        for message in messages {
            let (Some(id), None) = (message.get("id"), message.get("method")) else { continue };
            let id = id.to_string();
            if let Some(request) = self.unanswered.get(&id)
                && is_put_off(request, message)
                && let Some(other) = self.send_again(request, give_up_at).await
            {
                *message = other;
                is_replaced = true;
            }
            self.unanswered.remove(&id);
        }
        is_replaced.then(|| format!("{line}\n").into_bytes())
    }

    /// Reports an error for each unanswered call, except for a report. The call is not sent again,
    /// because the bridge can't know whether the server carried it out. A repeated report changes
    /// nothing, so it is sent again until `give_up_at`, also if the output is closed. Cancel-safe:
    /// a report that is being sent again stays unanswered.
    async fn say_what_was_lost(&mut self, give_up_at: Instant) -> Result<(), CliError> {
        // A line that was no request has no caller that waits for an answer.
        self.unanswered.remove(&Value::Null.to_string());
        let mut calls: Vec<Value> = self.unanswered.values().cloned().collect();
        // The other calls do not wait for the reports.
        calls.sort_by_key(|call| report_of(call).is_some());
        let mut written = Ok(());
        for call in calls {
            let message =
                "the connection to the coordinator was lost before the answer came; call again";
            let error = json!({ "code": CONNECTION_LOST, "message": message });
            let error = || json!({ "jsonrpc": "2.0", "id": call["id"], "error": error });
            let answer = self.send_again(&call, give_up_at).await.unwrap_or_else(error);
            self.unanswered.remove(&call["id"].to_string());
            if written.is_ok() {
                written = self.write(format!("{answer}\n").as_bytes()).await;
            }
        }
        written
    }

    async fn write(&mut self, line: &[u8]) -> Result<(), CliError> {
        self.output.write_all(line).await?;
        self.output.flush().await?;
        Ok(())
    }

    async fn send_again(&self, request: &Value, give_up_at: Instant) -> Option<Value> {
        let server = ServerAddress::Socket(self.socket.clone());
        send_again(&server, request, give_up_at, &self.mailbox).await
    }
}

/// Returns the messages of a line: one, or those of a batch.
fn messages(line: &Value) -> &[Value] {
    line.as_array().map_or(std::slice::from_ref(line), Vec::as_slice)
}

async fn connect(socket: &Path) -> Result<UnixStream, CliError> {
    let give_up_at = clock::now() + TIMEOUT;
    let mut pause = FIRST_PAUSE;
    loop {
        match UnixStream::connect(socket).await {
            Ok(stream) => return Ok(stream),
            Err(_) if pause == FIRST_PAUSE => {
                eprintln!(
                    "agent-coordinator mcp: no server at {} yet; waiting for it",
                    socket.display()
                );
                tokio::time::sleep(pause).await;
            }
            Err(error) if clock::now() + pause > give_up_at => {
                eprintln!("agent-coordinator mcp: {}: {error}", socket.display());
                return Err(CliError::NoDaemon { at: socket.display().to_string() });
            }
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io;

    use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};
    use tokio::net::UnixListener;
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;

    use super::*;

    /// A bridge, its client's ends, and the socket that it connects to.
    struct Bed {
        _folder: tempfile::TempDir,
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
            let bridge = run(socket, mailbox, bridge_input, bridge_output, client_gone);
            let bridge = tokio::spawn(bridge);
            Self {
                _folder: folder,
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

        async fn end(mut self) -> Result<(), CliError> {
            self.input = None;
            self.bridge.await.unwrap()
        }
    }

    fn report() -> Value {
        let arguments = json!({ "session_token": "sess_1", "result": "success" });
        let call = json!({ "name": "report_completed", "arguments": arguments });
        json!({ "id": 7, "method": "tools/call", "params": call })
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
        let mut bridge = Bridge {
            socket: PathBuf::new(),
            mailbox: Mailbox::default(),
            input: BufReader::new(io::Cursor::new(Vec::new())),
            output: Vec::new(),
            unanswered: BTreeMap::new(),
            unsent: request.to_vec(),
        };
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
    async fn a_report_that_finds_no_server_for_a_minute_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mailbox = Mailbox::made_in(folder.path());
        let input = io::Cursor::new(format!("{}\n", report()).into_bytes());
        let mut output = Vec::new();
        let socket = folder.path().join("mcp.sock");
        assert!(run(socket, mailbox, input, &mut output, pending()).await.is_err());
        let answer: Value = serde_json::from_slice(&output).unwrap();
        assert_eq!(answer["result"]["structuredContent"]["success"], true, "{answer}");
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
        }
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
            assert!(clock::now() < left_at + FIRST_PAUSE, "{is_answered}: it waited");
            bed.bridge.await.unwrap().unwrap();
        }
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
        let bed = Bed::new();
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
}
