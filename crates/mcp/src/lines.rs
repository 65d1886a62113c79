//! Newline-delimited JSON-RPC over a stream. Invalid lines get clear answers: too long, not UTF-8,
//! not JSON, not a request. The connection continues after them, until there are too many. A peer
//! that sends faster than it is answered, or does not read its answers, waits. A peer that has
//! stopped sending still gets its answers. If a peer is gone, its waiting calls end.
//!
//! A line that has begun must end within [`MAX_LINE_TIME`]. The lines and requests of a client
//! together are limited as well (`connections`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ClientNotification, GetExtensions as _, JsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::batch::{Answered, Batch, OpenBatches};
use super::connections::{Busy, HeldBytes, SocketConnection};
use super::{MAX_MESSAGE, malformed};
use machine::sys::sockets::ONLY_HANG_UP;
use runtime::clock;
use runtime::nudge::sleep_until;

/// The number of unreadable lines in a row that ends the connection, because its peer does not
/// speak this protocol.
const MAX_BAD_LINES: u32 = 16;

/// The number of requests of a connection that are answered at the same time, and of answers that
/// wait to be read. Further lines stay in the socket. The library itself has no such limit.
const MAX_IN_FLIGHT: usize = 64;

/// The longest time from the first byte of a line to its end. After that, the connection closes.
const MAX_LINE_TIME: Duration = Duration::from_secs(10);

/// The time between two checks of the presence of a client that stopped sending. No event announces
/// that it is gone.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The interest with which a runtime reports the end of the input. On macOS it also reports unread
/// input, and then the check repeats at intervals.
#[cfg(target_os = "linux")]
const END: Interest = Interest::PRIORITY;
#[cfg(target_os = "macos")]
const END: Interest = Interest::READABLE;

/// The number of bytes that are read at once. Most lines are shorter, and every waiting connection
/// has a buffer of this size.
const READ_AT_ONCE: usize = 1024;

/// The server's side of one connection.
pub(super) struct LineTransport {
    reader: BufReader<OwnedReadHalf>,
    line: Vec<u8>,
    /// The capacity of `line`, as counted for the client.
    held: HeldBytes,
    /// The time when the first byte of the line came.
    begun_at: Option<Instant>,
    /// The rest of a line that is not taken is being skipped. Kept here, because `receive` may be
    /// cancelled at each await.
    is_skipping: bool,
    /// The line took too long, and nothing more is read.
    is_over: bool,
    n_bad_lines: u32,
    /// The answer to an unreadable line, while it is being written.
    complaint: Option<JoinHandle<bool>>,
    /// Messages of a batch that are still to be received.
    queued: VecDeque<Received>,
    batches: Arc<OpenBatches>,
    writer: Arc<Mutex<Option<OwnedWriteHalf>>>,
    /// A request takes one until its handler is done.
    requests: Arc<Semaphore>,
    /// An answer takes one until it is written.
    answers: Arc<Semaphore>,
    connection: Arc<SocketConnection>,
    /// Ends what waits for the client, once that is gone.
    gone: CancellationToken,
}

/// The result of reading the next bytes.
enum Next {
    Line,
    /// The line is dropped, and the client gets a complaint.
    Dropped(i32, String),
}

/// A message, with the count of the bytes of its line.
type Received = (RxJsonRpcMessage<RoleServer>, Arc<HeldBytes>);

/// The places that a request takes until its handler is done.
struct InFlight {
    _slot: OwnedSemaphorePermit,
    _busy: Busy,
    _held: Arc<HeldBytes>,
}

impl LineTransport {
    /// Creates the transport. `gone` is cancelled when the client is gone.
    pub(super) fn new(
        stream: UnixStream,
        connection: Arc<SocketConnection>,
        gone: CancellationToken,
    ) -> Self {
        let (reader, writer) = stream.into_split();
        Self {
            reader: BufReader::with_capacity(READ_AT_ONCE, reader),
            line: Vec::new(),
            held: connection.holds_nothing(),
            begun_at: None,
            is_skipping: false,
            is_over: false,
            n_bad_lines: 0,
            complaint: None,
            queued: VecDeque::new(),
            batches: Arc::default(),
            writer: Arc::new(Mutex::new(Some(writer))),
            requests: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
            answers: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
            connection,
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

    /// Reads up to the end of a line; `None` at the end of the stream. Cancel-safe: what was read
    /// is in `self.line`.
    async fn read_line(&mut self) -> Option<Next> {
        loop {
            let available = tokio::select! {
                // Input that came in time counts, however late it is read.
                biased;
                available = self.reader.fill_buf() => available.ok()?,
                () = sleep_until(self.begun_at.map(|begun_at| begun_at + MAX_LINE_TIME)) => {
                    self.is_over = true;
                    self.drop_line();
                    let problem = format!("the line did not end within {} s", MAX_LINE_TIME.as_secs());
                    return Some(Next::Dropped(malformed::INVALID_REQUEST, problem));
                }
            };
            if available.is_empty() {
                // The last line may lack its end.
                return (!self.line.is_empty() && !self.is_skipping).then_some(Next::Line);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let n_taken = end.map_or(available.len(), |end| end + 1);
            let mut dropped = None;
            if !self.is_skipping {
                match make_room(&mut self.line, &mut self.held, n_taken) {
                    Ok(()) => self.line.extend_from_slice(&available[..n_taken]),
                    Err(next) => dropped = Some(next),
                }
            }
            self.reader.consume(n_taken);
            let was_skipping = self.is_skipping;
            self.is_skipping &= end.is_none();
            self.begun_at =
                if end.is_some() { None } else { self.begun_at.or_else(|| Some(clock::now())) };
            if dropped.is_some() {
                self.is_skipping = end.is_none();
                self.drop_line();
                return dropped;
            }
            if end.is_some() && !was_skipping {
                return Some(Next::Line);
            }
        }
    }

    fn drop_line(&mut self) {
        self.line = Vec::new();
        self.held = self.connection.holds_nothing();
    }

    /// Returns the message in `self.line`, or the complaint about it; neither for a line that needs
    /// no answer. The messages of a batch are queued.
    fn parse(&mut self) -> Option<Received> {
        let line = std::mem::take(&mut self.line);
        let held = std::mem::replace(&mut self.held, self.connection.holds_nothing());
        let text = line.trim_ascii();
        if text.is_empty() {
            return None;
        }
        let batch = self.batches.is_agreed().then(|| Batch::parse(text)).flatten();
        match batch {
            Some(Ok(batch)) => {
                self.queue(batch, held);
                return self.queued.pop_front();
            }
            Some(Err(complaint)) => {
                self.complain(&complaint);
                return None;
            }
            None => {}
        }
        match malformed::parse(text, "line") {
            Ok(message) => {
                self.n_bad_lines = 0;
                self.connection.notice_message();
                Some((message, Arc::new(held)))
            }
            Err(complaint) => {
                if let Some(complaint) = complaint {
                    self.complain(&complaint);
                }
                None
            }
        }
    }

    fn queue(&mut self, batch: Batch, held: HeldBytes) {
        let Batch { messages, complaints } = batch;
        let requests =
            messages.iter().filter(|message| matches!(message, JsonRpcMessage::Request(_)));
        if requests.count() == 0 && !complaints.is_empty() {
            self.complain(&Value::Array(complaints));
        } else {
            let complaints = complaints.into_iter().map(|each| each.to_string().into_bytes());
            self.batches.open(
                &messages,
                complaints.map(|line| (line, self.connection.holds_nothing())).collect(),
            );
        }
        if !messages.is_empty() {
            self.n_bad_lines = 0;
            self.connection.notice_message();
        }
        let held = Arc::new(held);
        self.queued.extend(messages.into_iter().map(|message| (message, Arc::clone(&held))));
    }

    /// The next message; `None` at the end of the input, and once the connection is not worth going
    /// on with. Cancel-safe.
    async fn next_message(
        &mut self,
        slot: OwnedSemaphorePermit,
    ) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if !self.deliver_complaint().await {
                return None;
            }
            let received = match self.queued.pop_front() {
                Some(received) => Some(received),
                None => match self.read_line().await? {
                    Next::Line => self.parse(),
                    Next::Dropped(code, problem) => {
                        self.complain(&malformed::complaint(code, &problem, &Value::Null));
                        None
                    }
                },
            };
            let Some((mut message, held)) = received else {
                continue;
            };
            let busy = self.connection.begin();
            match &mut message {
                JsonRpcMessage::Request(request) => {
                    // It travels with the request and is dropped with it, also when that is
                    // cancelled.
                    let in_flight = InFlight { _slot: slot, _busy: busy, _held: held };
                    request.request.extensions_mut().insert(Arc::new(in_flight));
                }
                JsonRpcMessage::Notification(notification) => {
                    if let ClientNotification::CancelledNotification(cancelled) =
                        &notification.notification
                        && let Some(id) = &cancelled.params.request_id
                        && let Some((answers, held)) = self.batches.give_up(id)
                    {
                        self.write_apart(answers, held);
                    }
                }
                JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
            }
            return Some(message);
        }
    }

    fn complain(&mut self, complaint: &Value) {
        self.n_bad_lines += 1;
        self.write_apart(complaint.to_string().into_bytes(), Vec::new());
    }

    #[allow(clippy::disallowed_methods, reason = "`deliver_complaint` awaits the task")]
    fn write_apart(&mut self, mut answer: Vec<u8>, held: Vec<HeldBytes>) {
        answer.push(b'\n');
        let writer = Arc::clone(&self.writer);
        let busy = self.connection.begin();
        // A task of its own, because `receive` may be cancelled in the middle of the line.
        // `deliver_complaint` waits for it.
        self.complaint = Some(tokio::spawn(async move {
            let _until_written = (busy, held);
            match writer.lock().await.as_mut() {
                Some(stream) => stream.write_all(&answer).await.is_ok(),
                None => false,
            }
        }));
    }

    /// Waits until a complaint is written; `false` once the connection is not worth going on with.
    /// Cancel-safe.
    async fn deliver_complaint(&mut self) -> bool {
        if let Some(writing) = &mut self.complaint {
            let is_written = writing.await.unwrap_or(false);
            self.complaint = None;
            if !is_written {
                return false;
            }
        }
        !self.is_over && self.n_bad_lines < MAX_BAD_LINES
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
        let busy = self.connection.begin();
        let mut held = self.connection.holds_nothing();
        let batches = Arc::clone(&self.batches);
        async move {
            let line = serde_json::to_vec(&message)?;
            held.add(line.len());
            let (mut line, held) = match batches.answer(&message, line, held) {
                Answered::Alone(line, held) => (line, vec![held]),
                Answered::Kept => return Ok(()),
                Answered::Whole(array, held) => (array, held),
            };
            drop(message);
            let _until_written = (slot, busy, held);
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

/// Makes room for `more` bytes of a line, if it may be so long and its client may hold so many.
fn make_room(line: &mut Vec<u8>, held: &mut HeldBytes, more: usize) -> Result<(), Next> {
    let length = line.len() + more;
    if length > MAX_MESSAGE {
        let problem = format!("the line is longer than {MAX_MESSAGE} bytes");
        return Err(Next::Dropped(malformed::INVALID_REQUEST, problem));
    }
    if length > line.capacity() {
        let capacity = length.next_power_of_two();
        held.grow_to(capacity)
            .map_err(|error| Next::Dropped(malformed::BUSY, error.to_string()))?;
        line.reserve_exact(capacity - line.len());
    }
    Ok(())
}

/// Returns when the client is gone. A client that only stopped sending is not gone. Cancel-safe.
async fn hung_up(stream: &UnixStream) {
    // The end of the input wakes it, also behind unread input.
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
