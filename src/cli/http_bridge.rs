//! The bridge for a server that is reached by a URL. Each line of the input is a POST. Each message
//! of its answer is a line of the output. The bridge gives up a request that the client cancels,
//! which tells servers of every revision.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, Split};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call::{send_again, unanswered};
use super::error::CliError;
use super::kept_report::{Mailbox, is_put_off};
use super::waits::{FIRST_PAUSE, LAST_ANSWERS, LAST_LINES, LONGEST_PAUSE, TIMEOUT};
use client::Lost;
use client::http::HttpEndpoint;
use domain::ServerAddress;
use machine::locks::lock;
use runtime::clock;
use runtime::nudge::sleep_until;

/// The number of requests on their way at the same time. Further lines wait in the input.
const MAX_IN_FLIGHT: usize = 64;

/// Carries messages until the input ends, and the answers until `client_gone`. A message that waits
/// for a slot then is not carried.
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
        closing: CancellationToken::new(),
    });
    let slots = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
    let lines = BufReader::new(input).split(b'\n');
    let mut input = Input { lines, ahead: VecDeque::new(), ended: None };
    let mut requests = JoinSet::new();
    let mut client_gone = std::pin::pin!(client_gone);
    let carried = async {
        while let Some(line) = input.next_line().await? {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let message: Value = serde_json::from_slice(&line).unwrap_or(Value::Null);
            if message["method"] == "initialize" {
                // Later messages use the revision that the handshake agreed on.
                let gone = client_gone.as_mut();
                let carried = bridge.carry_handshake(&line, &message, &mut input, gone).await;
                if !matches!(carried, Ok(true)) {
                    input.ahead.push_front(line);
                    return carried.map(drop);
                }
                continue;
            }
            if message["method"] == "notifications/cancelled" {
                bridge.give_up(&message["params"]["requestId"]);
            }
            let cancelled = bridge.begin(&message);
            let slot = tokio::select! {
                // A free slot counts, even if the client has left.
                biased;
                slot = Arc::clone(&slots).acquire_owned() => slot,
                () = client_gone.as_mut() => {
                    bridge.closing.cancel();
                    input.ahead.push_front(line);
                    return Ok(());
                }
            };
            let slot = slot.expect("the semaphore is never closed");
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
        Ok::<(), CliError>(())
    };
    let carried = carried.await;
    let mut written = Ok(());
    for line in input.rest().await {
        written = written.and(bridge.answer_uncarried(&line).await);
    }
    let give_up_at = input.ended.unwrap_or_else(|| clock::now() + LAST_ANSWERS);
    tokio::select! {
        _ = tokio::time::timeout_at(give_up_at, all_ended(&mut requests)) => {}
        () = &mut client_gone, if !bridge.closing.is_cancelled() => {}
    }
    // The requests that are left end now, and keep their reports.
    bridge.closing.cancel();
    let _ = tokio::time::timeout(LONGEST_PAUSE, all_ended(&mut requests)).await;
    carried.and(written)
}

async fn all_ended(requests: &mut JoinSet<Result<(), CliError>>) {
    while requests.join_next().await.is_some() {}
}

/// The lines of the client.
struct Input<I> {
    lines: Split<BufReader<I>>,
    /// The lines that were read and not carried.
    ahead: VecDeque<Vec<u8>>,
    /// The deadline for the last answers, after the end of the input.
    ended: Option<Instant>,
}

impl<I: AsyncRead + Unpin> Input<I> {
    /// Returns the next line, and `None` at the end.
    async fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.ahead.is_empty() {
            self.read().await?;
        }
        Ok(self.ahead.pop_front())
    }

    /// Reads a line ahead, or notes the end. Cancel-safe.
    async fn read(&mut self) -> io::Result<()> {
        if self.ended.is_some() {
            return Ok(());
        }
        match self.lines.next_segment().await? {
            Some(line) => self.ahead.push_back(line),
            None => self.ended = Some(clock::now() + LAST_ANSWERS),
        }
        Ok(())
    }

    /// Returns the lines that were not carried, also those that the client has written and that
    /// were not read yet.
    async fn rest(&mut self) -> VecDeque<Vec<u8>> {
        let reading = async { while self.ended.is_none() && self.read().await.is_ok() {} };
        let _ = tokio::time::timeout(LAST_LINES, reading).await;
        std::mem::take(&mut self.ahead)
    }
}

struct Bridge<O> {
    endpoint: HttpEndpoint,
    mailbox: Mailbox,
    output: tokio::sync::Mutex<O>,
    /// The revision that the handshake agreed on.
    version: Mutex<Option<String>>,
    /// The open requests by their ids as text.
    underway: Mutex<HashMap<String, CancellationToken>>,
    /// It is cancelled when no more answers are waited for.
    closing: CancellationToken,
}

impl<O: AsyncWrite + Unpin> Bridge<O> {
    /// Registers the message, if it is a request, so that it can be given up from now on.
    fn begin(&self, message: &Value) -> CancellationToken {
        let cancelled = CancellationToken::new();
        if let Some(id) = request_id(message) {
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

    /// Carries a handshake, and reads lines ahead meanwhile. Returns `false` if the client leaves
    /// before the answer.
    ///
    /// # Errors
    /// `NoDaemon` if the answer does not come soon after the end of the input. It fails if the
    /// output is closed, too.
    async fn carry_handshake<I: AsyncRead + Unpin>(
        &self,
        line: &[u8],
        message: &Value,
        input: &mut Input<I>,
        mut client_gone: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<bool, CliError> {
        let never = CancellationToken::new();
        let mut handshake = std::pin::pin!(self.carry(line, message, &never));
        loop {
            let ended = input.ended;
            let may_read = ended.is_none() && input.ahead.len() < MAX_IN_FLIGHT;
            let may_leave = ended.is_some() || !input.ahead.is_empty();
            tokio::select! {
                carried = &mut handshake => return carried.map(|()| true),
                read = input.read(), if may_read => read?,
                () = sleep_until(ended) => {
                    return Err(CliError::NoDaemon { at: self.endpoint.url().to_owned() });
                }
                () = &mut client_gone, if may_leave => {
                    self.closing.cancel();
                    return Ok(false);
                }
            }
        }
    }

    /// Answers the request of a line that was not carried to its end. Its report is kept.
    async fn answer_uncarried(&self, line: &[u8]) -> Result<(), CliError> {
        let message: Value = serde_json::from_slice(line).unwrap_or(Value::Null);
        let Some(id) = request_id(&message) else { return Ok(()) };
        let answer = self.mailbox.answer(&message);
        let answer = answer.unwrap_or_else(|| unanswered(id, "no answer from the coordinator"));
        self.write(answer.to_string().as_bytes()).await
    }

    /// Carries one message and its answers until it is `cancelled`. A report that has no answer is
    /// kept then, and at the end of the bridge.
    ///
    /// # Errors
    /// Fails if the output is closed.
    async fn carry(
        &self,
        line: &[u8],
        message: &Value,
        cancelled: &CancellationToken,
    ) -> Result<(), CliError> {
        let mut is_answered = false;
        let carried = self.carry_on(line, message, cancelled, &mut is_answered);
        let carried = self.closing.run_until_cancelled(carried).await;
        let is_cancelled = cancelled.is_cancelled();
        if is_answered || (carried.is_some() && !is_cancelled) {
            return carried.unwrap_or(Ok(()));
        }
        match self.mailbox.answer(message) {
            // A caller that cancelled its request expects no answer.
            Some(kept) if !is_cancelled => self.write(kept.to_string().as_bytes()).await,
            _ => carried.unwrap_or(Ok(())),
        }
    }

    /// Carries one message and its answers, and notes whether its own answer was written. It waits
    /// for a server that is away. If a call was lost, its caller gets an error, because the bridge
    /// can't know whether the server carried the call out. A report that was lost is sent again,
    /// and is kept at last, if it can be.
    async fn carry_on(
        &self,
        line: &[u8],
        message: &Value,
        cancelled: &CancellationToken,
        is_answered: &mut bool,
    ) -> Result<(), CliError> {
        let give_up_at = clock::now() + TIMEOUT;
        let mut pause = FIRST_PAUSE;
        let id = request_id(message);
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
            let mut is_away = false;
            let writing = async {
                while let Some(answer) = written.recv().await {
                    self.note_version(&answer);
                    let content = serde_json::from_slice(&answer).unwrap_or(Value::Null);
                    let is_its = id.is_some_and(|id| content.get("id") == Some(id))
                        && content.get("method").is_none();
                    if is_its && is_put_off(message, &content) {
                        is_away = true;
                        continue;
                    }
                    self.write(&answer).await?;
                    *is_answered |= is_its;
                }
                Ok::<_, CliError>(())
            };
            let (posted, written) = tokio::join!(posting, writing);
            written?;
            if *is_answered {
                return Ok(());
            }
            match posted {
                Ok(()) if is_away => {
                    break Lost::Answer("the store of the server is away".to_owned());
                }
                Ok(()) => return Ok(()),
                Err(lost @ (Lost::Answer(_) | Lost::Unsent(_) | Lost::Refused(_))) => break lost,
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
        let Some(id) = id else { return Ok(()) };
        let is_refused = matches!(lost, Lost::Refused(_));
        let text = if is_refused {
            format!("the coordinator refused the request: {lost}")
        } else {
            format!("no answer from the coordinator: {lost}")
        };
        let mut answer = unanswered(id, &text);
        if !is_refused {
            let server = ServerAddress::Url(self.endpoint.url().to_owned());
            let again = send_again(&server, message, give_up_at, &self.mailbox);
            match cancelled.run_until_cancelled(again).await {
                Some(Some(again)) => answer = again,
                Some(None) => {}
                None => return Ok(()),
            }
        }
        self.write(answer.to_string().as_bytes()).await?;
        *is_answered = true;
        Ok(())
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

/// Returns the id of a request. A notification has no caller that waits for an answer.
fn request_id(message: &Value) -> Option<&Value> {
    message.get("id").filter(|_| message.get("method").is_some())
}

#[cfg(test)]
mod tests;
