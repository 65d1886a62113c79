//! Limits the answers to one operator that are in memory before they are read. A client that
//! requests long lists again and again, and reads none, waits only for its own answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::auth::Operator;
use super::problem::Problem;
use domain::CredentialId;
use machine::locks::lock;

/// The limit for the answers to one operator, in KiB.
const MOST: u32 = 32 * 1024;
/// The room that is reserved for an answer while it is made, because its size is not known yet, in
/// KiB.
const RESERVED: u32 = 4 * 1024;
/// The size up to which an answer is not counted, in KiB.
const SMALL: u32 = 64;
/// The longest time that a request waits for its turn.
const WAIT: Duration = Duration::from_secs(10);
/// The time after which a client that waited in vain may ask again, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("10");

/// The client: its credential, or the user on the control socket.
type Asker = (String, Option<CredentialId>);

/// The room for further answers to each operator, in KiB.
#[derive(Debug, Clone, Default)]
pub(super) struct Answers(Arc<Mutex<HashMap<Asker, Weak<Semaphore>>>>);

impl Answers {
    fn of(&self, operator: &Operator) -> Arc<Semaphore> {
        let asker = (operator.name.clone(), operator.credential.clone());
        let mut askers = lock(&self.0);
        if let Some(room) = askers.get(&asker).and_then(Weak::upgrade) {
            return room;
        }
        askers.retain(|_, room| room.strong_count() > 0);
        let room = Arc::new(Semaphore::new(MOST as usize));
        askers.insert(asker, Arc::downgrade(&room));
        room
    }
}

/// Answers a request when there is room for its answer.
pub(super) async fn bounded(
    State(answers): State<Answers>,
    request: Request,
    next: Next,
) -> Response {
    let room = request.extensions().get::<Operator>().map(|operator| answers.of(operator));
    let Some(room) = room.filter(|_| request.method().is_safe()) else {
        return next.run(request).await;
    };
    let Ok(Ok(mut reserved)) =
        tokio::time::timeout(WAIT, Arc::clone(&room).acquire_many_owned(RESERVED)).await
    else {
        return busy();
    };
    let (head, body) = next.run(request).await.into_parts();
    let size =
        body.size_hint().exact().map(|size| u32::try_from(size.div_ceil(1024)).unwrap_or(MOST));
    let Some(size) = size.filter(|size| *size > SMALL) else {
        return Response::from_parts(head, body);
    };
    if size < RESERVED {
        drop(reserved.split((RESERVED - size) as usize));
    } else if let Ok(more) = room.try_acquire_many_owned(size - RESERVED) {
        reserved.merge(more);
    }
    match body.collect().await {
        Ok(body) => {
            let held = HeldAnswer { bytes: body.to_bytes(), _room: reserved };
            Response::from_parts(head, Body::from(Bytes::from_owner(held)))
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn busy() -> Response {
    let detail = format!(
        "{} MiB of earlier answers are waiting to be read by this client; read them first",
        MOST / 1024
    );
    let mut response =
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_unread", detail).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    response
}

/// An answer, which holds its room until its last byte is sent.
struct HeldAnswer {
    bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for HeldAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
