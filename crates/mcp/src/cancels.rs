//! Finds the call that a `notifications/cancelled` over HTTP means.
//!
//! The notification is a separate request, and all clients number their calls alike. So the server
//! gives each client an id at the handshake, which the client repeats. The id has no other use, and
//! the server keeps no state for it. The newest revision does not need it: there, a client cancels
//! a call by closing its stream. `http` calls this module.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use machine::locks::lock;

/// The header in which a client repeats its id.
pub(super) const CLIENT_ID: &str = "mcp-session-id";
/// The length of the ids that the server gives, in characters. Other ids belong to no client.
const ID_LENGTH: usize = 32;

/// The part of a message that shows its subject.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Gist {
    method: String,
    id: Value,
    params: Params,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Params {
    request_id: Value,
}

impl Gist {
    /// Reads the subject of a body. A body that is not a message has an empty subject.
    pub(super) fn of(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }

    pub(super) fn is_handshake(&self) -> bool {
        self.method == "initialize"
    }
}

/// The id of a client, and its number for one of its calls.
type CallId = (String, String);

/// The requests that are being answered to clients with an id.
#[derive(Debug, Clone, Default)]
pub(super) struct Cancels(Arc<Mutex<HashMap<CallId, CancellationToken>>>);

/// A message whose answer is not complete.
pub(super) struct Underway {
    cancelled: CancellationToken,
    known: Option<(Cancels, CallId)>,
}

impl Cancels {
    /// Notes a message. It is cancelled in any case when its client is `gone`. A request without a
    /// client's id is cancelled only by that. The same holds for a request with the number of
    /// another open request, because the two cannot be distinguished.
    pub(super) fn notice(
        &self,
        headers: &HeaderMap,
        gist: &Gist,
        gone: &CancellationToken,
    ) -> Underway {
        let mut underway = Underway { cancelled: gone.child_token(), known: None };
        let client = headers
            .get(CLIENT_ID)
            .and_then(|id| id.to_str().ok())
            .filter(|id| id.len() == ID_LENGTH);
        let Some(client) = client.map(str::to_owned) else {
            return underway;
        };
        if gist.method == "notifications/cancelled" {
            let cancelled = self.calls().remove(&(client, gist.params.request_id.to_string()));
            cancelled.inspect(CancellationToken::cancel);
        } else if !gist.id.is_null()
            && let Entry::Vacant(vacant) = self.calls().entry((client, gist.id.to_string()))
        {
            underway.known = Some((self.clone(), vacant.key().clone()));
            vacant.insert(underway.cancelled.clone());
        }
        underway
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<CallId, CancellationToken>> {
        lock(&self.0)
    }
}

impl Underway {
    /// Returns a token that is cancelled when the client cancels the message or is gone.
    pub(super) fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// Returns the answer as a stream that ends when the message is cancelled.
    pub(super) fn until_cancelled(self, answer: Response) -> Response {
        answer.map(|body| {
            let cancelled = async move { self.cancelled.cancelled().await };
            Body::from_stream(body.into_data_stream().take_until(Box::pin(cancelled)))
        })
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        if let Some((cancels, id)) = &self.known {
            cancels.calls().remove(id);
        }
    }
}

/// Returns an id that cannot be guessed.
pub(super) fn client_id() -> HeaderValue {
    let mut bytes = [0; ID_LENGTH / 2];
    getrandom::fill(&mut bytes).expect("the kernel has random numbers");
    let id = format!("{:032x}", u128::from_be_bytes(bytes));
    HeaderValue::try_from(id).expect("digits are fit for a header")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(id: &str) -> HeaderMap {
        HeaderMap::from_iter([(CLIENT_ID.parse().unwrap(), HeaderValue::try_from(id).unwrap())])
    }

    fn request(id: &str) -> Gist {
        Gist::of(
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"x"}}}}"#
            )
            .as_bytes(),
        )
    }

    fn cancel(id: &str) -> Gist {
        let text = format!(
            r#"{{"method":"notifications/cancelled","params":{{"requestId":{id},"reason":"x"}}}}"#
        );
        Gist::of(text.as_bytes())
    }

    #[test]
    fn a_cancel_means_the_call_of_its_client_with_that_number() {
        let cancels = Cancels::default();
        let here = CancellationToken::new();
        let one = headers(&"1".repeat(ID_LENGTH));
        let two = headers(&"2".repeat(ID_LENGTH));
        let call = cancels.notice(&one, &request("7"), &here);
        let others = [(&one, "\"7\""), (&two, "7")]
            .map(|(client, id)| cancels.notice(client, &request(id), &here));
        for (client, id) in [(&one, "8"), (&two, "\"7\""), (&one, "null"), (&one, "[]")] {
            cancels.notice(client, &cancel(id), &here);
        }
        assert!(!call.cancelled.is_cancelled());
        cancels.notice(&one, &cancel("7"), &here);
        assert!(call.cancelled.is_cancelled());
        assert!(others.iter().all(|other| !other.cancelled.is_cancelled()));
        drop(others);
        drop(call);
        assert!(cancels.calls().is_empty());
    }

    #[test]
    fn who_has_no_id_of_ours_has_no_call_to_cancel_but_may_go() {
        let cancels = Cancels::default();
        let here = CancellationToken::new();
        let calls =
            [HeaderMap::new(), headers("short"), headers(&"x".repeat(1000))].map(|headers| {
                let call = cancels.notice(&headers, &request("7"), &here);
                cancels.notice(&headers, &cancel("7"), &here);
                call
            });
        assert!(
            cancels.calls().is_empty() && calls.iter().all(|call| !call.cancelled.is_cancelled())
        );
        let ours = HeaderMap::from_iter([(CLIENT_ID.parse().unwrap(), client_id())]);
        let call = cancels.notice(&ours, &request("7"), &here);
        assert!(
            call.known.is_some()
                && cancels.notice(&ours, &Gist::of(b"no json"), &here).known.is_none()
        );
        here.cancel();
        assert!(
            call.cancelled.is_cancelled() && calls.iter().all(|call| call.cancelled.is_cancelled())
        );
    }
}
