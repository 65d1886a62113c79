//! One HTTP/1 connection, from the accept to the close.
//!
//! ```text
//!        first byte          head complete         body complete
//! Idle ─────────────► Head ─────────────────► Body ─────────────► Answering ──┐
//!  ▲    limit: idle         limit: head             limit: body     no limit  │
//!  └──────────────────────── the answer is handed over ◄──────────────────────┘
//! ```
//! In all states but `Answering` it is the client's turn. A new connection is in `Head`: it owes its first request.
//!
//! While it is ours, the connection is read ahead a little, because the library doesn't: that is how a client that goes is
//! noticed before its answer is there. Handlers are told ([`ClientGone`]); most don't care.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::connect_info::ConnectInfo;
use futures::FutureExt as _;
use hyper::Request;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Limits;
use super::body::Timed;
use super::crowd::{Place, Standing};

/// For the rest of a request that was answered before it was read: closing at once would take the answer away from a client
/// that still sends.
const LINGER: Duration = Duration::from_secs(1);
/// After the end of a client's input. Some say that they send no more and still read; TCP doesn't tell them from those who are
/// gone, until something is written.
const HALF_OPEN: Duration = Duration::from_secs(2);
/// What is read while an answer is being made.
const READ_AHEAD: usize = 1024;
/// At the end of the serving, for what is in the middle of being sent.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// To a client that began a request and took too long. There is no request that a handler could answer.
const TOO_SLOW: &str = "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/problem+json\r\n\
    content-length: 131\r\n\r\n\
    {\"type\":\"about:blank\",\"title\":\"Request Timeout\",\"status\":408,\
    \"detail\":\"the request did not come in time\",\"code\":\"request_too_slow\"}";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Head(Seen),
    Body,
    Answering,
}

/// What has come of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    Something,
}

/// What a connection is at, as its parts note it. All of them run in the connection's task.
#[derive(Debug, Clone)]
pub(super) struct Activity(Arc<Noted>);

#[derive(Debug)]
struct Noted {
    facts: Mutex<Facts>,
    standing: Arc<Standing>,
    limits: Limits,
}

#[derive(Debug)]
struct Facts {
    state: State,
    /// Nobody will read the rest of the last request.
    has_left_body: bool,
    input: Input,
    /// Of the answer that is being sent, if it has one.
    read_within: Option<ReadWithin>,
    /// Since when the client takes nothing of what there is for it.
    stuck_since: Option<Instant>,
}

/// What may come of the client, as far as it was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Open,
    /// Nothing; until then, it may still read.
    Ended {
        gone_at: Instant,
    },
    /// Nothing, and handlers were told so.
    Gone,
}

/// Cancelled once the client of a request seems to be gone, before it has its answer: an extension of every request. Nobody has to
/// heed it.
#[derive(Debug, Clone, Default)]
pub struct ClientGone(pub CancellationToken);

/// How long the client of an answer may take nothing of it before it is closed: an extension of answers that never end. Others are
/// waited for.
#[derive(Debug, Clone, Copy)]
pub struct ReadWithin(pub Duration);

impl Activity {
    fn new(standing: Arc<Standing>, limits: Limits) -> Self {
        standing.waits(limits.head);
        let facts = Facts {
            state: State::Head(Seen::Nothing),
            has_left_body: false,
            input: Input::Open,
            read_within: None,
            stuck_since: None,
        };
        Self(Arc::new(Noted { facts: Mutex::new(facts), standing, limits }))
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        self.facts().state = state;
        let (standing, limits) = (&self.0.standing, &self.0.limits);
        match state {
            State::Idle => standing.waits(limits.idle),
            State::Head(_) => standing.waits(limits.head),
            // The body itself ends in time; this is for a handler that doesn't read it.
            State::Body => standing.waits(limits.body.saturating_mul(2)),
            State::Answering => standing.works(),
        }
    }

    /// Bytes came.
    fn received(&self) {
        let state = self.facts().state;
        match state {
            State::Idle => self.set(State::Head(Seen::Something)),
            // The time of the first one runs from the connection.
            State::Head(_) => self.facts().state = State::Head(Seen::Something),
            State::Body | State::Answering => {}
        }
    }

    /// Nothing more goes, until the client reads.
    fn stuck(&self) {
        self.facts().stuck_since.get_or_insert_with(Instant::now);
    }

    /// When a client that reads nothing of an endless answer is closed.
    fn unread_at(&self) -> Option<Instant> {
        let facts = self.facts();
        Some(facts.stuck_since? + facts.read_within?.0)
    }

    /// Bytes went: whoever reads its answer slowly isn't idle.
    fn sent(&self) {
        self.facts().stuck_since = None;
        let state = self.facts().state;
        if state == State::Idle {
            self.set(State::Idle);
        }
        if let Input::Ended { gone_at } = &mut self.facts().input {
            *gone_at = Instant::now() + HALF_OPEN;
        }
    }

    /// Looks for the end of the input, if an answer is being made; says when the client is taken for gone.
    fn look<S: AsyncRead + Unpin>(&self, stream: &Mutex<Watched<S>>, cx: &mut Context<'_>) -> Option<Instant> {
        let mut facts = self.facts();
        if facts.state != State::Answering {
            return None;
        }
        if facts.input == Input::Open && locked(stream).poll_input_ended(cx).is_ready() {
            facts.input = Input::Ended { gone_at: Instant::now() + HALF_OPEN };
        }
        match facts.input {
            Input::Ended { gone_at } => Some(gone_at),
            Input::Open | Input::Gone => None,
        }
    }

    /// A request has come, perhaps without its body.
    fn begins(&self, body: &Incoming) {
        self.facts().has_left_body = false;
        self.set(if body.is_end_stream() { State::Answering } else { State::Body });
    }

    /// Nothing more of the request is awaited.
    pub(super) fn answers(&self) {
        let state = self.facts().state;
        if state == State::Body {
            self.set(State::Answering);
        }
    }

    /// Nobody will read the rest of the request.
    pub(super) fn left_body(&self) {
        self.facts().has_left_body = true;
    }
}

/// How it came to its end.
enum End {
    /// By itself: by its client, a broken request, or because the serving ends.
    Done(hyper::Result<()>),
    TooSlow,
    /// Another needs its place.
    GaveWay,
    /// Nobody reads what would never end.
    Unread,
}

/// Serves one connection until its end.
pub(super) async fn serve<S, I>(
    stream: S,
    router: Router,
    info: I,
    place: Place,
    limits: Limits,
    cancel: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    I: Clone + Send + Sync + 'static,
{
    let standing = Arc::clone(place.standing());
    let activity = Activity::new(Arc::clone(&standing), limits.clone());
    let gone = ClientGone::default();
    let router = TowerToHyperService::new(router);
    let service = service_fn(|request: Request<Incoming>| {
        activity.begins(request.body());
        let mut request = request.map(|body| Body::new(Timed::new(body, activity.clone(), limits.body)));
        request.extensions_mut().insert(ConnectInfo(info.clone()));
        request.extensions_mut().insert(gone.clone());
        let (answer, activity) = (router.call(request), activity.clone());
        async move {
            let answer = answer.await?;
            activity.facts().read_within = answer.extensions().get().copied();
            Ok::<_, Infallible>(answer.map(|body| Answer { body, activity }))
        }
        .boxed()
    });
    let stream = Arc::new(Mutex::new(Watched { stream, ahead: Vec::new() }));
    let io = TokioIo::new(Noticed { stream: Arc::clone(&stream), activity: activity.clone() });
    let mut connection = http1::Builder::new()
        // A client that says it will send no more still gets its answer.
        .half_close(true)
        .max_header_size(limits.head_size)
        .serve_connection(io, service);
    let mut cancelled = pin!(cancel.cancelled());
    let mut gives_way = pin!(standing.gives_way().cancelled());
    let mut alarm = pin!(tokio::time::sleep(limits.head));
    let mut leaves_by = None;
    let end = poll_fn(|cx| {
        if gives_way.as_mut().poll(cx).is_ready() {
            return Poll::Ready(End::GaveWay);
        }
        if leaves_by.is_none() && cancelled.as_mut().poll(cx).is_ready() {
            leaves_by = Some(Instant::now() + LAST_WORDS);
            Pin::new(&mut connection).graceful_shutdown();
        }
        if let Poll::Ready(result) = connection.poll_without_shutdown(cx) {
            return Poll::Ready(End::Done(result));
        }
        // After the poll, which may have changed them.
        let gone_at = activity.look(&stream, cx);
        let too_slow_at = standing.deadline().map(|deadline| leaves_by.map_or(deadline, |by| by.min(deadline)));
        let unread_at = activity.unread_at();
        if let Some(deadline) = gone_at.or(too_slow_at).into_iter().chain(unread_at).min() {
            if alarm.deadline() != deadline {
                alarm.as_mut().reset(deadline);
            }
            if alarm.as_mut().poll(cx).is_ready() {
                if unread_at == Some(deadline) {
                    return Poll::Ready(End::Unread);
                }
                if gone_at.is_none() {
                    return Poll::Ready(End::TooSlow);
                }
                activity.facts().input = Input::Gone;
                gone.0.cancel();
            }
        }
        Poll::Pending
    })
    .await;

    // What was being done for the client ends with this.
    drop(connection);
    let Some(Watched { mut stream, .. }) =
        Arc::into_inner(stream).map(|stream| stream.into_inner().unwrap_or_else(PoisonError::into_inner))
    else {
        unreachable!("the connection had the only other handle")
    };
    let lingers = match end {
        End::GaveWay | End::Unread => return,
        End::Done(result) => result.is_err() || activity.facts().has_left_body,
        End::TooSlow if activity.facts().state == State::Head(Seen::Something) && leaves_by.is_none() => {
            // If it can't be written at once, then not at all.
            let _ = stream.write_all(TOO_SLOW.as_bytes()).now_or_never();
            true
        }
        End::TooSlow => false,
    };
    standing.waits(LINGER);
    let close = async {
        let _ = stream.shutdown().await;
        let mut rest = vec![0; 8192];
        while lingers && stream.read(&mut rest).await.is_ok_and(|n_read| n_read > 0) {}
    };
    tokio::select! {
        () = close => {}
        () = standing.overstays() => {}
    }
}

/// A stream, and what was read of it before anybody asked.
struct Watched<S> {
    stream: S,
    ahead: Vec<u8>,
}

impl<S: AsyncRead + Unpin> Watched<S> {
    /// Ready once the client sends no more, as far as that can be seen without reading on and on.
    fn poll_input_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.ahead.is_empty() {
            return Poll::Pending;
        }
        let mut bytes = [0; READ_AHEAD];
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                self.ahead.extend_from_slice(buffer.filled());
                Poll::Pending
            }
            Poll::Ready(Ok(()) | Err(_)) => Poll::Ready(()),
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let n_taken = self.ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.ahead[..n_taken]);
        self.ahead.drain(..n_taken);
        Poll::Ready(Ok(()))
    }
}

fn locked<S>(stream: &Mutex<Watched<S>>) -> MutexGuard<'_, Watched<S>> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream whose bytes are noticed. It is shared within one task: nobody waits for the lock.
struct Noticed<S> {
    stream: Arc<Mutex<Watched<S>>>,
    activity: Activity,
}

impl<S: AsyncRead + Unpin> AsyncRead for Noticed<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let n_before = buffer.filled().len();
        let read = locked(&self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > n_before {
            self.activity.received();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noticed<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut locked(&self.stream).stream).poll_write(cx, bytes);
        match written {
            Poll::Ready(Ok(_)) => self.activity.sent(),
            Poll::Pending => self.activity.stuck(),
            Poll::Ready(Err(_)) => {}
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut locked(&self.stream).stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut locked(&self.stream).stream).poll_shutdown(cx)
    }
}

/// The body of an answer; its end is the end of our turn.
struct Answer {
    body: Body,
    activity: Activity,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.activity.set(State::Idle);
    }
}
