//! Reading the body of a request: with an end, in time and in size.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use tower_http::timeout::{DeadlineBody, TimeoutError};

use super::connection::Exchange;
use super::problem::Problem;

/// The body of a request. It fails once its time is up. The exchange notes its end.
pub(super) struct Received {
    body: Pin<Box<DeadlineBody<Incoming>>>,
    exchange: Exchange,
    has_ended: bool,
}

impl Received {
    pub(super) fn new(body: Incoming, exchange: Exchange, limit: Duration) -> Self {
        let has_ended = body.is_end_stream();
        Self { body: Box::pin(DeadlineBody::new(limit, body)), exchange, has_ended }
    }
}

impl hyper::body::Body for Received {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let polled = this.body.as_mut().poll_frame(cx);
        if let Poll::Ready(frame) = &polled
            && (frame.is_none() || this.body.is_end_stream())
        {
            this.has_ended = true;
            this.exchange.request_ends(false);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if !self.has_ended {
            self.exchange.request_ends(true);
        }
    }
}

/// Returns the whole body, of at most `most` bytes.
///
/// # Errors
/// 413 for a longer body, 408 for a body that takes too long, 400 for a body that breaks off.
pub async fn collect(body: Body, most: usize) -> Result<Bytes, Problem> {
    collect_noting(body, most, |_| {}).await
}

/// Reads a body like [`collect`], and calls `note` with the length of each piece that arrives.
pub(super) async fn collect_noting(
    mut body: Body,
    most: usize,
    note: impl Fn(usize),
) -> Result<Bytes, Problem> {
    // If the length is known, a client that waits for permission to send its body gets the answer
    // at once.
    if usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX) > most {
        return Err(too_large(most));
    }
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| unreadable(&error))?.into_data() else {
            continue;
        };
        if bytes.len() + data.len() > most {
            return Err(too_large(most));
        }
        if bytes.is_empty() && body.is_end_stream() {
            return Ok(data);
        }
        note(data.len());
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.into())
}

/// Returns the answer to a body of more than `most` bytes.
pub fn too_large(most: usize) -> Problem {
    let detail = format!("the body is longer than {most} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
}

/// Returns the answer to a body that takes too long.
pub fn too_slow() -> Problem {
    Problem::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", "the body did not come in time")
}

/// Returns the answer to a body that could not be read to its end.
pub fn unreadable(error: &axum::Error) -> Problem {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<TimeoutError>() {
            return too_slow();
        }
        cause = error.source();
    }
    Problem::new(
        StatusCode::BAD_REQUEST,
        "broken_body",
        format!("the connection closed during the body: {error}"),
    )
}
