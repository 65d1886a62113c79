//! `/events`: events as server-sent events when they happen.
//!
//! Each event has its number as id. A client that reconnects with the last id that it has seen
//! misses nothing. Messages without a number (`status`, `reset`) have no content: they tell the
//! client to request the state again.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures::StreamExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::extract::InQuery;
use crate::openapi::{Api, about};
use crate::{Problem, RestState};
use api::events::{EventBody, EventQuery};
use domain::event::Event;
use runtime::http::share_of_descriptors;
use runtime::telemetry::ErrorChain;
use service::{EventUpdate, Follower, ServiceError};

/// The most followers on one listener, if the limit of descriptors allows it. It leaves room for
/// other requests.
const MAX_FOLLOWERS: usize = 240;

/// The most followers of output on one route. Each has files open besides its connection.
const MAX_OUTPUT_FOLLOWERS: usize = 120;

/// The time without an event after which a comment is sent. It detects clients that are gone, and
/// keeps proxies from closing the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The time after which a browser reconnects, in milliseconds.
const RETRY: u32 = 1000;

/// The header in which clients repeat the last id.
const LAST_EVENT_ID: &str = "last-event-id";

/// The places for followers.
#[derive(Clone)]
pub(crate) struct Places(Arc<Semaphore>);

impl Places {
    /// Returns the places of one listener.
    pub(crate) fn of_listener() -> Self {
        Self(Arc::new(Semaphore::new(share_of_descriptors(20, MAX_FOLLOWERS))))
    }

    /// Returns the places of one route to the output of launches.
    pub(super) fn of_output() -> Self {
        Self(Arc::new(Semaphore::new(share_of_descriptors(80, MAX_OUTPUT_FOLLOWERS))))
    }

    /// Takes a place for a follower of `what`, until the result is dropped.
    ///
    /// # Errors
    /// Fails if all places are taken.
    pub(super) fn take(self, what: &str) -> Result<OwnedSemaphorePermit, Problem> {
        self.0.try_acquire_owned().map_err(|_| {
            let detail = format!("too many clients follow the {what} already; try again later");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_followers", detail)
        })
    }
}

pub(super) fn routes() -> Api {
    let text = "Events as they happen: server-sent events of EventBody, and `status` and `reset`";
    let follow = get(follow).layer(Extension(Places::of_listener()));
    Api::new().route(
        "get",
        "/events",
        follow,
        about(text).query::<EventQuery>().gives_text("text/event-stream"),
    )
}

async fn follow(
    State(state): State<RestState>,
    Extension(places): Extension<Places>,
    InQuery(query): InQuery<EventQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let after = query.after;
    stream(&state, places, after, &headers, move |news| text_of(&query, news)).await
}

/// Returns the stream for a follower. It contains the texts that `text_of` makes of the news after
/// `after`, or after the last id that the client has seen.
///
/// # Errors
/// Fails if there is no free place, or if the client's last id is invalid.
pub(crate) async fn stream(
    state: &RestState,
    places: Places,
    after: Option<i64>,
    headers: &HeaderMap,
    text_of: impl Fn(&EventUpdate) -> String + Send + 'static,
) -> Result<Response, Problem> {
    let place = places.take("events")?;
    let after = match headers.get(LAST_EVENT_ID) {
        Some(id) => Some(last_event_id(id.as_bytes())?),
        None => after,
    };
    let follower = state.service.events.follow(after).await?;
    let mut greeting = format!("retry: {RETRY}\n");
    if after.is_none() {
        // A client that is cut off before the first event reconnects with this id.
        let _ = writeln!(greeting, "id: {}", follower.position());
    }
    greeting.push('\n');
    let stream = Stream {
        follower,
        text_of: Box::new(text_of),
        ready: VecDeque::from([greeting]),
        _place: place,
    };
    let stream = futures::stream::unfold(stream, Stream::next)
        .take_until(state.closing.clone().cancelled_owned());
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (X_ACCEL_BUFFERING, "no"),
    ];
    Ok((headers, Body::from_stream(stream)).into_response())
}

/// Tells proxies that heed it not to buffer the stream.
const X_ACCEL_BUFFERING: header::HeaderName = header::HeaderName::from_static("x-accel-buffering");

fn last_event_id(value: &[u8]) -> Result<i64, Problem> {
    let id = std::str::from_utf8(value).ok().and_then(|id| id.trim().parse().ok());
    id.ok_or_else(|| {
        let detail = "Last-Event-ID must be the number of an event of this stream";
        Problem::new(StatusCode::BAD_REQUEST, "invalid_last_event_id", detail)
    })
}

/// The stream of one client.
struct Stream {
    follower: Follower,
    text_of: Box<dyn Fn(&EventUpdate) -> String + Send>,
    ready: VecDeque<String>,
    _place: OwnedSemaphorePermit,
}

impl Stream {
    /// Returns the next piece of text. The stream ends when the store fails, so that the client
    /// reconnects.
    async fn next(mut self) -> Option<(Result<String, ServiceError>, Self)> {
        loop {
            if let Some(text) = self.ready.pop_front() {
                return Some((Ok(text), self));
            }
            let text = match tokio::time::timeout(KEEP_ALIVE, self.follower.next()).await {
                Err(_) => ":\n\n".to_owned(),
                Ok(Ok(news)) => (self.text_of)(&news),
                Ok(Err(error)) => {
                    tracing::warn!(error = %ErrorChain(&error), "could not continue a stream of events; the client will reconnect");
                    return None;
                }
            };
            if !text.is_empty() {
                self.ready.push_back(text);
            }
        }
    }
}

fn text_of(query: &EventQuery, news: &EventUpdate) -> String {
    match news {
        EventUpdate::Status => "event: status\ndata: {}\n\n".to_owned(),
        EventUpdate::Lost { newest } => format!("id: {newest}\nevent: reset\ndata: {{}}\n\n"),
        EventUpdate::Events(events) => {
            events.iter().filter(|event| query.wants(event)).map(text_of_event).collect()
        }
    }
}

fn text_of_event(event: &Event) -> String {
    let body = EventBody::from(event.clone());
    let data = serde_json::to_string(&body).expect("a struct of texts and numbers is JSON");
    format!("id: {}\nevent: {}\ndata: {data}\n\n", body.seq, body.kind)
}
