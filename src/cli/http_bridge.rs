//! The bridge where the server is reached by a URL: each line of the input is a POST, each message of its answer a line of the
//! output. A request that the client cancels is given up, which tells servers of every revision.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::CliError;
use super::http_door::{HttpDoor, Lost};

/// How long a server may be away: a restart takes a moment, an upgrade some more.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two attempts to connect, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// After the end of the input, for calls that are being answered.
const LAST_ANSWERS: Duration = Duration::from_secs(10);
/// Requests on their way at the same time; further lines wait in the input.
const MAX_IN_FLIGHT: usize = 64;
/// JSON-RPC's code for errors of an implementation.
const CONNECTION_LOST: i32 = -32000;

/// Carries messages until the input ends, and the answers until `client_gone`.
pub(super) async fn run<O: AsyncWrite + Unpin + Send + 'static>(
    url: &str,
    input: impl AsyncRead + Unpin,
    output: O,
    client_gone: impl Future<Output = ()>,
) -> Result<(), CliError> {
    let door = HttpDoor::new(url)
        .map_err(|error| CliError::Failed(format!("could not use HTTP: {error}")))?;
    let bridge = Arc::new(Bridge {
        door,
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
            // What comes after the handshake goes by what it agreed on.
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
    door: HttpDoor,
    output: tokio::sync::Mutex<O>,
    /// The revision that the handshake agreed on.
    version: Mutex<Option<String>>,
    /// Requests by their ids, as text.
    underway: Mutex<HashMap<String, CancellationToken>>,
}

impl<O: AsyncWrite + Unpin> Bridge<O> {
    /// From now on the message can be given up, if it is a request.
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

    /// Ends the request with this id, if it still goes on. Its caller expects no answer.
    fn give_up(&self, id: &Value) {
        self.underway().remove(&id.to_string()).inspect(CancellationToken::cancel);
    }

    fn underway(&self) -> MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.underway.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One message and all that comes of it, until it is `cancelled`. A server that isn't there is waited for; a call that was lost is told to its caller,
    /// for nobody knows whether it was carried out.
    ///
    /// # Errors
    /// When the output is closed, or the server stays away.
    async fn carry(
        &self,
        line: &[u8],
        message: &Value,
        cancelled: &CancellationToken,
    ) -> Result<(), CliError> {
        let give_up_at = Instant::now() + PATIENCE;
        let mut pause = FIRST_PAUSE;
        let lost = loop {
            let version = self.version.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let (answers, mut written) = mpsc::unbounded_channel();
            let posting = async {
                // The sender goes with it: then no more answers come.
                let answers = answers;
                let take = |answer| drop(answers.send(answer));
                let posted = self.door.post(line, version.as_deref(), take);
                cancelled.run_until_cancelled(posted).await.unwrap_or(Ok(()))
            };
            let writing = async {
                while let Some(answer) = written.recv().await {
                    self.note_version(&answer);
                    self.write(&answer).await?;
                }
                Ok::<_, CliError>(())
            };
            let (posted, written) = tokio::join!(posting, writing);
            written?;
            match posted {
                Ok(()) => return Ok(()),
                Err(Lost::Answer(problem)) => break problem,
                Err(Lost::Connection(_)) if Instant::now() + pause < give_up_at => {
                    if pause == FIRST_PAUSE {
                        eprintln!(
                            "agent-coordinator mcp: no server at {} yet; waiting for it",
                            self.door.url()
                        );
                    }
                    if cancelled.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                        return Ok(());
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(Lost::Connection(problem)) => break problem,
            }
        };
        eprintln!("agent-coordinator mcp: {}: {lost}", self.door.url());
        // A notification has nobody who waits.
        let Some(id) = message.get("id").filter(|_| message.get("method").is_some()) else {
            return Ok(());
        };
        let text = format!("no answer from the coordinator: {lost}");
        let error = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": CONNECTION_LOST, "message": text } });
        self.write(error.to_string().as_bytes()).await
    }

    fn note_version(&self, answer: &[u8]) {
        if self.version.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return;
        }
        let answer: Value = serde_json::from_slice(answer).unwrap_or(Value::Null);
        if let Some(version) = answer["result"]["protocolVersion"].as_str() {
            *self.version.lock().unwrap_or_else(PoisonError::into_inner) = Some(version.to_owned());
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
