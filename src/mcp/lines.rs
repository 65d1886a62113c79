//! Newline-delimited JSON-RPC over a stream, with clear answers to lines that are none: too long, not UTF-8, not JSON, not a
//! request. The connection goes on after them, until there are too many. A peer that sends faster than it is answered, or
//! doesn't read its answers, waits. One that says no more still gets its answers; for one that is gone, nothing goes on waiting.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{GetExtensions as _, JsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{MAX_MESSAGE, malformed};
use crate::http::crowd::Standing;
use crate::sys::sockets::ONLY_HANG_UP;

/// So many unreadable lines in a row end the connection: its peer doesn't speak this protocol.
const MAX_BAD_LINES: u32 = 16;

/// So many requests of a connection are answered at the same time, and so many answers wait to be read; what comes after them
/// stays in the socket. The library itself takes whatever comes.
const MAX_IN_FLIGHT: usize = 64;

/// Between two looks at whether a client that says no more is still there. Nothing wakes whoever waits for that.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// What the end of the input is to a runtime: on macOS also input that nobody has read yet, and then one looks all the time.
#[cfg(target_os = "linux")]
const END: Interest = Interest::PRIORITY;
#[cfg(target_os = "macos")]
const END: Interest = Interest::READABLE;

/// So many bytes are read at once. Most lines are shorter, and every connection that waits has a buffer of this size.
const READ_AT_ONCE: usize = 1024;

/// The server's side of one connection.
pub(super) struct LineTransport {
    reader: BufReader<OwnedReadHalf>,
    line: Vec<u8>,
    /// The rest of an oversized line is being skipped. Kept here, because `receive` may be cancelled at each await.
    is_skipping: bool,
    n_bad_lines: u32,
    /// The answer to an unreadable line, while it is being written.
    complaint: Option<JoinHandle<bool>>,
    writer: Arc<Mutex<Option<OwnedWriteHalf>>>,
    /// A request takes one until its handler is done.
    requests: Arc<Semaphore>,
    /// An answer takes one until it is written.
    answers: Arc<Semaphore>,
    /// It waits for its client until the first message, and never again.
    standing: Arc<Standing>,
    /// Ends what waits for the client, once that is gone.
    gone: CancellationToken,
}

/// What became of the next bytes.
enum Next {
    Line,
    TooLong,
    More,
}

impl LineTransport {
    /// `gone` is cancelled when nobody is left to be answered.
    pub(super) fn new(stream: UnixStream, standing: Arc<Standing>, gone: CancellationToken) -> Self {
        let (reader, writer) = stream.into_split();
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
            gone,
        }
    }

    /// Waits for a place for the next request. Cancel-safe.
    async fn room(&self) -> Option<OwnedSemaphorePermit> {
        drop(self.answers.acquire().await);
        Arc::clone(&self.requests).acquire_owned().await.ok()
    }

    /// Waits until no request is being answered. Cancel-safe.
    async fn settled(&self) {
        drop(self.requests.acquire_many(u32::try_from(MAX_IN_FLIGHT).expect("it is small")).await);
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

    /// The next message; `None` at the end of the input, and once the connection is not worth going on with. Cancel-safe.
    async fn next_message(&mut self, slot: OwnedSemaphorePermit) -> Option<RxJsonRpcMessage<RoleServer>> {
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

impl Transport<RoleServer> for LineTransport {
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
        let slot = tokio::select! {
            slot = self.room() => slot?,
            () = hung_up(self.reader.get_ref().as_ref()) => {
                self.gone.cancel();
                return None;
            }
        };
        if let Some(message) = self.next_message(slot).await {
            return Some(message);
        }
        // The library gives a client that says no more five seconds, whether it is there or not.
        tokio::select! {
            () = self.settled() => {}
            () = hung_up(self.reader.get_ref().as_ref()) => self.gone.cancel(),
        }
        None
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.writer.lock().await.take();
        Ok(())
    }
}

/// Returns when nobody is at the other end any more; who only says no more still is. Cancel-safe.
async fn hung_up(stream: &UnixStream) {
    // The end of the input wakes it, also behind what nobody has read yet.
    let _ = stream.ready(END).await;
    while !is_hung_up(stream) {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn is_hung_up(stream: &UnixStream) -> bool {
    let mut ends = [PollFd::new(stream, ONLY_HANG_UP)];
    let n_ready = rustix::event::poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    n_ready.is_err() || ends[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}
