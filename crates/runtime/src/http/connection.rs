//! One HTTP/1 connection, from the accept to the close.
//!
//! hyper limits the head of a request in size and time. It ends the connection when its client
//! closes it, also while an answer is being made: the future of the request is dropped. This file
//! adds what hyper does not do:
//!
//! - A connection that waits for its client gives way to a new one (`pool`).
//! - An answer that its client does not read ends the connection ([`super::unread`]).
//! - A request that may change something is carried out once it has come, whether or not its client
//!   stays. Its handler can see that the client is gone ([`ClientGone`]).
//! - The rest of a request that was answered before it was read is read for a moment, so that the
//!   client gets its answer.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::connect_info::ConnectInfo;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper::Request;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::HttpLimits;
use super::body::Received;
use super::pool::HttpConnection;
use super::problem::panicked;
use super::unread::Unread;
use crate::connections::ConnectionState;

/// The time for the rest of a request that was answered before it was read. Closing at once would
/// destroy the answer for a client that still sends.
const LINGER: Duration = Duration::from_secs(1);
/// The time at the end of the serving for data that is being sent.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// The number of bytes that are read ahead of a handler, or kept of an answer beside its own body.
const BUFFER: usize = 64 * 1024;
/// The answer to a client that began a request and took too long. There is no request that a
/// handler could answer.
const TOO_SLOW: &str = "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/problem+json\r\n\
    content-length: 131\r\n\r\n\
    {\"type\":\"about:blank\",\"title\":\"Request Timeout\",\"status\":408,\
    \"detail\":\"the request did not come in time\",\"code\":\"request_too_slow\"}";

/// Cancelled when the client of a request has gone before the answer was there. It is an extension
/// of every request that may change something. All other requests are dropped.
#[derive(Debug, Clone)]
pub struct ClientGone(pub CancellationToken);

/// The requests and answers of a connection. It notes which side acts: the client, which sends a
/// request or reads an answer, or the server.
#[derive(Debug, Clone)]
pub(super) struct Exchange(Arc<ExchangeState>);

#[derive(Debug)]
struct ExchangeState {
    connection_state: Arc<ConnectionState>,
    limits: HttpLimits,
    /// The body of the last request is not complete.
    is_receiving: AtomicBool,
    /// The rest of the last request will not be read.
    has_left_body: AtomicBool,
}

impl Exchange {
    fn new(connection_state: Arc<ConnectionState>, limits: HttpLimits) -> Self {
        connection_state.waits(limits.head);
        let is_receiving = AtomicBool::new(false);
        let has_left_body = AtomicBool::new(false);
        Self(Arc::new(ExchangeState { connection_state, limits, is_receiving, has_left_body }))
    }

    fn request_begins(&self, body: &Incoming) {
        let state = &self.0;
        let is_receiving = !body.is_end_stream();
        state.is_receiving.store(is_receiving, Ordering::Relaxed);
        if is_receiving {
            state.connection_state.waits(state.limits.body);
        } else {
            state.connection_state.works();
        }
    }

    /// Notes that nothing more of the request is awaited. With `has_left_body`, a part of it has
    /// not come.
    pub(super) fn request_ends(&self, has_left_body: bool) {
        let state = &self.0;
        if has_left_body {
            state.has_left_body.store(true, Ordering::Relaxed);
        }
        if state.is_receiving.swap(false, Ordering::Relaxed) {
            state.connection_state.works();
        }
    }

    /// Notes that hyper has the whole answer. The client reads it, and sends its next request.
    fn answer_ends(&self) {
        let state = &self.0;
        state.is_receiving.store(false, Ordering::Relaxed);
        state.connection_state.waits(state.limits.head);
    }

    /// Notes that the serving ends. Data that is being sent gets a moment.
    fn hurry(&self) {
        if self.0.connection_state.deadline().is_some() {
            self.0.connection_state.waits(LAST_WORDS);
        }
    }
}

/// Serves one connection until its end. Requests that go on without their client are tasks of
/// `requests`.
pub(super) async fn serve<S, I>(
    stream: S,
    router: Router,
    info: I,
    registered: HttpConnection,
    limits: HttpLimits,
    cancel: CancellationToken,
    requests: TaskTracker,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    I: Clone + Send + Sync + 'static,
{
    let connection_state = Arc::clone(registered.state());
    let exchange = Exchange::new(Arc::clone(&connection_state), limits.clone());
    let router = TowerToHyperService::new(router);
    let service = service_fn(|request: Request<Incoming>| {
        exchange.request_begins(request.body());
        let mut request =
            request.map(|body| Body::new(Received::new(body, exchange.clone(), limits.body)));
        request.extensions_mut().insert(ConnectInfo(info.clone()));
        let answer = answer_to(request, &router, &requests);
        let exchange = exchange.clone();
        async move { Ok::<_, Infallible>(answer.await.map(|body| Answer { body, exchange })) }
            .boxed()
    });
    let io = TokioIo::new(Unread::new(stream, limits.answer));
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_header_size(limits.head_size)
        .max_buf_size(BUFFER)
        .serve_connection(io, service);
    let mut cancelled = pin!(cancel.cancelled());
    let mut is_closing = false;
    let ended = loop {
        tokio::select! {
            biased;
            () = connection_state.gives_way().cancelled() => return,
            () = &mut cancelled, if !is_closing => {
                is_closing = true;
                exchange.hurry();
                Pin::new(&mut connection).graceful_shutdown();
            }
            ended = poll_fn(|cx| connection.poll_without_shutdown(cx)) => break ended,
            () = connection_state.overstays(), if is_closing => return,
        }
    };

    // The work for this client ends here.
    let parts = connection.into_parts();
    let unread = parts.io.into_inner();
    if unread.has_timed_out() {
        return;
    }
    let mut stream = unread.into_inner();
    let is_late = ended.as_ref().is_err_and(hyper::Error::is_timeout);
    if is_late && !parts.read_buf.is_empty() && !is_closing {
        // The answer is written at once or not at all.
        let _ = stream.write_all(TOO_SLOW.as_bytes()).now_or_never();
    }
    let is_idle = is_late && parts.read_buf.is_empty();
    let lingers = (ended.is_err() && !is_idle) || exchange.0.has_left_body.load(Ordering::Relaxed);
    connection_state.waits(LINGER);
    let close = async {
        let _ = stream.shutdown().await;
        let mut rest = vec![0; 8192];
        while lingers && stream.read(&mut rest).await.is_ok_and(|n_read| n_read > 0) {}
    };
    tokio::select! {
        () = close => {}
        () = connection_state.overstays() => {}
    }
}

/// Returns the answer to a request. A request that may change something is carried out even if this
/// future is dropped. Otherwise a change of several commits could stay incomplete.
fn answer_to(
    mut request: Request<Body>,
    router: &TowerToHyperService<Router>,
    requests: &TaskTracker,
) -> BoxFuture<'static, Response> {
    if request.method().is_safe() {
        return router.call(request).map(|Ok(answer)| answer).boxed();
    }
    let gone = CancellationToken::new();
    request.extensions_mut().insert(ClientGone(gone.clone()));
    let answer = requests.spawn(router.call(request));
    let gone = gone.drop_guard();
    async move {
        let answer = answer.await;
        gone.disarm();
        match answer.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(Ok(answer)) => answer,
            Err(Ok(panic)) => panicked(panic),
            // The runtime is ending.
            Err(Err(_)) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        }
    }
    .boxed()
}

/// The body of an answer. The exchange notes its end.
struct Answer {
    body: Body,
    exchange: Exchange,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
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
        self.exchange.answer_ends();
    }
}
