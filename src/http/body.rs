//! Reading the body of a request: with an end, in time and in size.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use tokio::time::Sleep;

use super::connection::Activity;
use super::problem::Problem;

/// The client took too long.
#[derive(Debug, thiserror::Error)]
#[error("the body did not come within {} s", .limit.as_secs_f32())]
pub(super) struct TooSlow {
    limit: Duration,
}

/// A body that is being received: an error once its time is up.
pub(super) struct Timed {
    body: Incoming,
    activity: Activity,
    limit: Duration,
    deadline: Pin<Box<Sleep>>,
    has_ended: bool,
}

impl Timed {
    pub(super) fn new(body: Incoming, activity: Activity, limit: Duration) -> Self {
        let has_ended = body.is_end_stream();
        Self { body, activity, limit, deadline: Box::pin(tokio::time::sleep(limit)), has_ended }
    }
}

impl hyper::body::Body for Timed {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Pending => match this.deadline.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Some(Err(TooSlow { limit: this.limit }.into()))),
                Poll::Pending => Poll::Pending,
            },
            Poll::Ready(frame) => {
                if frame.is_none() || this.body.is_end_stream() {
                    this.has_ended = true;
                    this.activity.answers();
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        if !self.has_ended {
            self.activity.left_body();
        }
        self.activity.answers();
    }
}

/// The whole body, of at most `most` bytes.
///
/// # Errors
/// 413 for a longer one, 408 for one that takes too long, 400 for one that breaks off.
pub async fn collect(mut body: Body, most: usize) -> Result<Bytes, Problem> {
    let too_large = || {
        let detail = format!("the body is longer than {most} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
    };
    // Where the length is known, a client that waits for leave to send its body is told at once.
    if usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX) > most {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| unreadable(&error))?.into_data() else { continue };
        if bytes.len() + data.len() > most {
            return Err(too_large());
        }
        if bytes.is_empty() && body.is_end_stream() {
            return Ok(data);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.into())
}

fn unreadable(error: &axum::Error) -> Problem {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(slow) = error.downcast_ref::<TooSlow>() {
            return Problem::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", slow.to_string());
        }
        cause = error.source();
    }
    Problem::new(StatusCode::BAD_REQUEST, "broken_body", format!("the body broke off: {error}"))
}
