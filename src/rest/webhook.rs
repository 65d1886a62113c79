//! Webhooks of forges: a signed word that something has changed, upon which forges are asked at once. Nothing else is taken from
//! them: what is so, the forge says when it is asked.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http_body_util::{BodyExt as _, Limited};
use serde_json::Value;
use sha2::Sha256;
use tokio::sync::watch;

use super::problem::Problem;
use crate::config::{Forges, Webhook};
use crate::domain::Secret;
use crate::http::problem::method_not_allowed;
use crate::nudge::Nudges;

/// GitHub's longest. What is longer is no webhook.
const MAX_BODY: usize = 25 * 1024 * 1024;

/// Where webhooks come in, and who is woken by them.
#[derive(Clone)]
pub struct WebhookDoor {
    /// What counts now.
    pub forges: watch::Receiver<Forges>,
    /// By the repository, in lower case.
    pub pokes: Nudges<String>,
}

/// Takes what is for the path of webhooks, and hands on everything else.
pub(super) async fn take(State(door): State<WebhookDoor>, request: Request, next: Next) -> Response {
    let webhook = door.forges.borrow().webhook.clone();
    let Some(webhook) = webhook.filter(|webhook| webhook.path == request.uri().path()) else {
        return next.run(request).await;
    };
    if request.method() != Method::POST {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        return method_not_allowed(method, uri).await.into_response();
    }
    let (parts, body) = request.into_parts();
    match heard(&webhook, &parts.headers, body).await {
        Ok(Some(names)) => {
            // Of a repository that nobody knows, perhaps because it has another name by now: whoever it is.
            if door.pokes.wake_where(|name| names.contains(name)) == 0 {
                door.pokes.wake_where(|_| true);
            }
            StatusCode::ACCEPTED.into_response()
        }
        Ok(None) => {
            tracing::warn!(route = webhook.path, "a webhook without the right signature is ignored");
            let detail = "expected X-Hub-Signature-256 or X-Gitlab-Token, made with forge.webhook.secret";
            Problem::new(StatusCode::UNAUTHORIZED, "not_signed", detail).into_response()
        }
        Err(problem) => problem.into_response(),
    }
}

/// How the repository may be called that a webhook is about; `None` without the right signature.
async fn heard(webhook: &Webhook, headers: &HeaderMap, body: Body) -> Result<Option<Vec<String>>, Problem> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let token = text("x-gitlab-token").map(|shown| Secret::new(shown) == webhook.secret);
    if token == Some(false) || (token.is_none() && text("x-hub-signature-256").is_none()) {
        return Ok(None);
    }
    let body = Limited::new(body, MAX_BODY).collect().await.map_err(|error| {
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "unreadable", format!("the webhook could not be read: {error}"))
    })?;
    let body = body.to_bytes();
    let is_signed = token.unwrap_or_else(|| {
        text("x-hub-signature-256").is_some_and(|signature| is_signature(&webhook.secret, &body, signature))
    });
    Ok(is_signed.then(|| names_in(&body)))
}

/// In lower case: GitHub's `repository`, GitLab's `project` by its path and its number.
fn names_in(body: &[u8]) -> Vec<String> {
    let payload: Value = serde_json::from_slice(body).unwrap_or_default();
    let names = [&payload["repository"]["full_name"], &payload["project"]["path_with_namespace"]];
    let names = names.into_iter().filter_map(|name| name.as_str().map(str::to_lowercase));
    names.chain(payload["project"]["id"].as_u64().map(|id| id.to_string())).collect()
}

/// Whether `signature` is GitHub's of `body`; compared in a time that tells nothing.
fn is_signature(secret: &Secret, body: &[u8], signature: &str) -> bool {
    let Some(signature) = signature.strip_prefix("sha256=").and_then(bytes_of) else { return false };
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.reveal().as_bytes()) else { return false };
    mac.update(body);
    mac.verify_slice(&signature).is_ok()
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &[u8], signature: &str, expected: bool) {
        // The example of GitHub's documentation.
        let secret = Secret::new("It's a Secret to Everybody");
        assert_eq!(is_signature(&secret, body, signature), expected, "{signature}");
    }

    #[test]
    fn a_webhook_names_its_repository() {
        assert_eq!(names_in(br#"{"repository":{"full_name":"Ann/site","id":7}}"#), ["ann/site"]);
        assert_eq!(
            names_in(br#"{"project":{"id":7,"path_with_namespace":"a/b/c"},"repository":{"name":"c"}}"#),
            ["a/b/c", "7"]
        );
        assert!(names_in(b"{}").is_empty() && names_in(b"payload=%7B").is_empty());
    }

    #[test]
    fn only_the_right_signature_counts() {
        let right = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        check(b"Hello, World!", right, true);
        check(b"Hello, World?", right, false);
        check(b"Hello, World!", "sha256=", false);
        check(b"Hello, World!", "sha1=757107ea", false);
        check(b"Hello, World!", "sha256=75zz", false);
        check(b"Hello, World!", "sha256=日本", false);
    }
}
