//! Newline-delimited JSON-RPC over a stream, with clear answers to lines that are none: too long, not UTF-8, not JSON, not a
//! request. The connection goes on after them, until there are too many. A peer that sends faster than it is answered, or
//! doesn't read its answers, waits.

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{GetExtensions as _, JsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinHandle;

use super::{MAX_MESSAGE, malformed};
use crate::http::crowd::Standing;

/// So many unreadable lines in a row end the connection: its peer doesn't speak this protocol.
const MAX_BAD_LINES: u32 = 16;

/// So many requests of a connection are answered at the same time, and so many answers wait to be read; what comes after them
/// stays in the socket. The library itself takes whatever comes.
const MAX_IN_FLIGHT: usize = 64;

/// So many bytes are read at once. Most lines are shorter, and every connection that waits has a buffer of this size.
const READ_AT_ONCE: usize = 1024;

/// The server's side of one connection.
pub(super) struct LineTransport<R, W> {
    reader: BufReader<R>,
    line: Vec<u8>,
    /// The rest of an oversized line is being skipped. Kept here, because `receive` may be cancelled at each await.
    is_skipping: bool,
    n_bad_lines: u32,
    /// The answer to an unreadable line, while it is being written.
    complaint: Option<JoinHandle<bool>>,
    writer: Arc<Mutex<Option<W>>>,
    /// A request takes one until its handler is done.
    requests: Arc<Semaphore>,
    /// An answer takes one until it is written.
    answers: Arc<Semaphore>,
    /// It waits for its client until the first message, and never again.
    standing: Arc<Standing>,
}

/// What became of the next bytes.
enum Next {
    Line,
    TooLong,
    More,
}

impl<R, W> LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(super) fn new(reader: R, writer: W, standing: Arc<Standing>) -> Self {
        Self {
            reader: BufReader::with_capacity(READ_AT_ONCE, reader),
            line: Vec::new(),
            is_skipping: false,
            n_bad_lines: 0,
            complaint: None,
            writer: Arc::new(Mutex::new(Some(writer))),
            requests: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
            answers: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
            standing,
        }
    }

    /// Reads up to the end of a line; `None` at the end of the stream. Cancel-safe: what was read is in `self.line`.
    async fn read_line(&mut self) -> Option<Next> {
        loop {
            let available = self.reader.fill_buf().await.ok()?;
            if available.is_empty() {
                // The last line may lack its end.
                return (!self.line.is_empty() && !self.is_skipping).then_some(Next::Line);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let n_taken = end.map_or(available.len(), |end| end + 1);
            let fits = self.line.len() + n_taken <= MAX_MESSAGE;
            let next = match (self.is_skipping, end, fits) {
                (false, Some(_), true) => Next::Line,
                (false, None, true) => Next::More,
                (false, Some(_), false) => Next::TooLong,
                (false, None, false) => {
                    self.is_skipping = true;
                    Next::TooLong
                }
                (true, end, _) => {
                    self.is_skipping = end.is_none();
                    self.reader.consume(n_taken);
                    continue;
                }
            };
            if !matches!(next, Next::TooLong) {
                self.line.extend_from_slice(&available[..n_taken]);
            }
            self.reader.consume(n_taken);
            if !matches!(next, Next::More) {
                return Some(next);
            }
        }
    }

    /// The message in `self.line`, or the complaint about it; neither for a line that needs no answer.
    fn parse(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let line = std::mem::take(&mut self.line);
        let text = line.trim_ascii();
        if text.is_empty() {
            return None;
        }
        match malformed::parse(text, "line") {
            Ok(message) => {
                self.n_bad_lines = 0;
                self.standing.works();
                Some(message)
            }
            Err(complaint) => {
                if let Some(complaint) = complaint {
                    self.complain(&complaint);
                }
                None
            }
        }
    }

    fn complain(&mut self, complaint: &Value) {
        self.n_bad_lines += 1;
        let mut answer = complaint.to_string().into_bytes();
        answer.push(b'\n');
        let writer = Arc::clone(&self.writer);
        // A task of its own, because `receive` may be cancelled in the middle of the line. `deliver_complaint` waits for it.
        self.complaint = Some(tokio::spawn(async move {
            match writer.lock().await.as_mut() {
                Some(stream) => stream.write_all(&answer).await.is_ok(),
                None => false,
            }
        }));
    }

    /// Waits until a complaint is written; `false` once the connection is not worth going on with. Cancel-safe.
    async fn deliver_complaint(&mut self) -> bool {
        if let Some(writing) = &mut self.complaint {
            let is_written = writing.await.unwrap_or(false);
            self.complaint = None;
            if !is_written {
                return false;
            }
        }
        self.n_bad_lines < MAX_BAD_LINES
    }
}

impl<R, W> Transport<RoleServer> for LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = std::io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let writer = Arc::clone(&self.writer);
        // There may be none left: requests that were taken before are answered in any case.
        let slot = Arc::clone(&self.answers).try_acquire_owned();
        async move {
            let _slot = slot;
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            match writer.lock().await.as_mut() {
                Some(stream) => stream.write_all(&line).await,
                None => Err(std::io::ErrorKind::NotConnected.into()),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        drop(self.answers.acquire().await);
        let slot = Arc::clone(&self.requests).acquire_owned().await.ok()?;
        loop {
            if !self.deliver_complaint().await {
                return None;
            }
            match self.read_line().await? {
                Next::Line => {
                    if let Some(mut message) = self.parse() {
                        if let JsonRpcMessage::Request(request) = &mut message {
                            // It travels with the request and is dropped with it, also when that is cancelled.
                            request.request.extensions_mut().insert(Arc::new(slot));
                        }
                        return Some(message);
                    }
                }
                Next::TooLong => {
                    self.line = Vec::new();
                    let problem = format!("the line is longer than {MAX_MESSAGE} bytes");
                    self.complain(&malformed::complaint(malformed::INVALID_REQUEST, &problem, &Value::Null));
                }
                Next::More => {}
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.writer.lock().await.take();
        Ok(())
    }
}
