//! The bridge for a server that is reached by a URL. Each line of the input is a POST. Each message
//! of its answer is a line of the output. The bridge gives up a request that the client cancels,
//! which tells servers of every revision.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::error::CliError;
use super::kept_report::Mailbox;

use crate::clock;
use crate::locks::lock;
use crate::mcp_client::Lost;
use crate::mcp_client::http::HttpEndpoint;

/// The longest absence of a server: a restart takes a moment, an upgrade takes longer.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The first and the longest pause between two attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The time for pending answers after the end of the input.
const LAST_ANSWERS: Duration = Duration::from_secs(10);
/// The number of requests on their way at the same time. Further lines wait in the input.
const MAX_IN_FLIGHT: usize = 64;
/// JSON-RPC's code for errors of an implementation.
const CONNECTION_LOST: i32 = -32000;

/// Carries messages until the input ends, and the answers until `client_gone`.
pub(super) async fn run<O: AsyncWrite + Unpin + Send + 'static>(
    url: &str,
    mailbox: Mailbox,
    input: impl AsyncRead + Unpin,
    output: O,
    client_gone: impl Future<Output = ()>,
) -> Result<(), CliError> {
    let endpoint = HttpEndpoint::new(url, None)
        .map_err(|error| CliError::Failed(format!("could not use HTTP: {error}")))?;
    let bridge = Arc::new(Bridge {
        endpoint,
        mailbox,
        output: tokio::sync::Mutex::new(output),
        version: Mutex::new(None),
        underway: Mutex::default(),
    });
    let slots = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
    let mut lines = BufReader::new(input).split(b'\n');
    let mut requests = JoinSet::new();
    while let Some(line) = lines.next_segment().await? {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let message: Value = serde_json::from_slice(&line).unwrap_or(Value::Null);
        if message["method"] == "initialize" {
            // Later messages use the revision that the handshake agreed on.
            bridge.carry(&line, &message, &CancellationToken::new()).await?;
            continue;
        }
        if message["method"] == "notifications/cancelled" {
            bridge.give_up(&message["params"]["requestId"]);
        }
        let cancelled = bridge.begin(&message);
        let slot = Arc::clone(&slots).acquire_owned().await.expect("the semaphore is never closed");
        let bridge = Arc::clone(&bridge);
        requests.spawn(async move {
            let carried = bridge.carry(&line, &message, &cancelled).await;
            bridge.end(&message);
            drop(slot);
            carried
        });
        while let Some(carried) = requests.try_join_next() {
            carried.unwrap_or(Ok(()))?;
        }
    }
    let rest = async { while requests.join_next().await.is_some() {} };
    tokio::select! {
        _ = tokio::time::timeout(LAST_ANSWERS, rest) => {}
        () = client_gone => {}
    }
    Ok(())
}

struct Bridge<O> {
    endpoint: HttpEndpoint,
    mailbox: Mailbox,
    output: tokio::sync::Mutex<O>,
    /// The revision that the handshake agreed on.
    version: Mutex<Option<String>>,
    /// The open requests by their ids as text.
    underway: Mutex<HashMap<String, CancellationToken>>,
}

impl<O: AsyncWrite + Unpin> Bridge<O> {
    /// Registers the message, if it is a request, so that it can be given up from now on.
    fn begin(&self, message: &Value) -> CancellationToken {
        let cancelled = CancellationToken::new();
        if let Some(id) = message.get("id").filter(|_| message.get("method").is_some()) {
            self.underway().insert(id.to_string(), cancelled.clone());
        }
        cancelled
    }

    fn end(&self, message: &Value) {
        if let Some(id) = message.get("id") {
            self.underway().remove(&id.to_string());
        }
    }

    /// Ends the request with this id, if it is still open. Its caller expects no answer.
    fn give_up(&self, id: &Value) {
        self.underway().remove(&id.to_string()).inspect(CancellationToken::cancel);
    }

    fn underway(&self) -> MutexGuard<'_, HashMap<String, CancellationToken>> {
        lock(&self.underway)
    }

    /// Carries one message and its answers until it is `cancelled`. It waits for a server that is
    /// away. If a call was lost, its caller gets an error, because the bridge can't know whether
    /// the server carried the call out. A report that was lost is kept, if it can be.
    ///
    /// # Errors
    /// Fails if the output is closed or the server stays away.
    async fn carry(
        &self,
        line: &[u8],
        message: &Value,
        cancelled: &CancellationToken,
    ) -> Result<(), CliError> {
        let give_up_at = clock::now() + TIMEOUT;
        let mut pause = FIRST_PAUSE;
        let lost = loop {
            let version = lock(&self.version).clone();
            let (answers, mut written) = mpsc::unbounded_channel();
            let posting = async {
                // This block owns the sender, so that `written` ends when no more answers come.
                let answers = answers;
                let take = |answer| drop(answers.send(answer));
                let posted = self.endpoint.post(line, version.as_deref(), take);
                cancelled.run_until_cancelled(posted).await.unwrap_or(Ok(()))
            };
            let writing = async {
                while let Some(answer) = written.recv().await {
                    self.note_version(&answer);
                    let kept = serde_json::from_slice::<Value>(&answer)
                        .ok()
                        .and_then(|answer| self.mailbox.replace(message, &answer))
                        .map(|kept| kept.to_string().into_bytes());
                    self.write(&kept.unwrap_or(answer)).await?;
                }
                Ok::<_, CliError>(())
            };
            let (posted, written) = tokio::join!(posting, writing);
            written?;
            match posted {
                Ok(()) => return Ok(()),
                Err(lost @ (Lost::Answer(_) | Lost::Unsent(_))) => break lost,
                Err(Lost::NoServer(_)) if clock::now() + pause < give_up_at => {
                    if pause == FIRST_PAUSE {
                        eprintln!(
                            "agent-coordinator mcp: no server at {} yet; waiting for it",
                            self.endpoint.url()
                        );
                    }
                    if cancelled.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                        return Ok(());
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(lost @ Lost::NoServer(_)) => break lost,
            }
        };
        eprintln!("agent-coordinator mcp: {}: {lost}", self.endpoint.url());
        // A notification has no caller that waits for an answer.
        let Some(id) = message.get("id").filter(|_| message.get("method").is_some()) else {
            return Ok(());
        };
        let text = format!("no answer from the coordinator: {lost}");
        let error = json!({ "code": CONNECTION_LOST, "message": text });
        let error = || json!({ "jsonrpc": "2.0", "id": id, "error": error });
        let answer = self.mailbox.answer(message).unwrap_or_else(error);
        self.write(answer.to_string().as_bytes()).await
    }

    fn note_version(&self, answer: &[u8]) {
        if lock(&self.version).is_some() {
            return;
        }
        let answer: Value = serde_json::from_slice(answer).unwrap_or(Value::Null);
        if let Some(version) = answer["result"]["protocolVersion"].as_str() {
            *lock(&self.version) = Some(version.to_owned());
        }
    }

    async fn write(&self, message: &[u8]) -> Result<(), CliError> {
        let mut output = self.output.lock().await;
        // A pretty-printed answer is still one line.
        let line: Vec<u8> = message
            .iter()
            .copied()
            .filter(|byte| !matches!(byte, b'\n' | b'\r'))
            .chain([b'\n'])
            .collect();
        output.write_all(&line).await?;
        output.flush().await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io::Cursor;

    use tokio::io::{AsyncReadExt as _, duplex};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_report_whose_answer_is_lost_or_unavailable_is_kept() {
        let away = json!({ "structuredContent": { "error_code": "unavailable" } });
        let away = json!({ "jsonrpc": "2.0", "id": 1, "result": away }).to_string();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length:";
        let arguments = json!({ "session_token": "sess_1", "result": "success" });
        let call = json!({ "name": "report_completed", "arguments": arguments });
        let request = json!({ "id": 1, "method": "tools/call", "params": call }).to_string();
        for response in [String::new(), format!("{head} {}\r\n\r\n{away}", away.len())] {
            let folder = tempfile::tempdir().unwrap();
            let mailbox = Mailbox::made_in(folder.path());
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let server = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut received = Vec::new();
                while !received.ends_with(request.as_bytes()) {
                    stream.read_buf(&mut received).await.unwrap();
                }
                stream.write_all(response.as_bytes()).await.unwrap();
            };
            let (output, mut written) = duplex(4096);
            let input = Cursor::new(request.clone().into_bytes());
            let (ended, ()) = tokio::join!(run(&url, mailbox, input, output, pending()), server);
            ended.unwrap();
            let mut answer = String::new();
            written.read_to_string(&mut answer).await.unwrap();
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(answer["result"]["structuredContent"]["success"], true, "{answer}");
        }
    }
}
