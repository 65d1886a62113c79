//! Webhooks of forges. A webhook is a signed message that something has changed, upon which the
//! forge is asked at once. Nothing else of its content is used: the facts come from the forge's
//! answer.
//!
//! Any client can send a request here. Therefore the head of a request is checked before its body
//! is read, and only a few bodies are read at the same time. The signature is computed while a body
//! comes, and only a body that is short enough to be parsed is kept.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use sha2::Sha256;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::problem::Problem;
use config::{Forges, Webhook};
use domain::Secret;
use runtime::http::body::{too_large, too_slow, unreadable};
use runtime::http::problem::method_not_allowed;
use runtime::nudge::Nudges;

/// The longest body, in bytes: GitHub's limit. A longer body is not a webhook.
const MAX_BODY: usize = 25 * 1024 * 1024;
/// The number of bytes of a body that are kept until its signature is known. For a longer body only
/// the signature is checked, and all forges are asked.
const MAX_KEPT: usize = 256 * 1024;
/// The number of bodies of unauthenticated senders that are read at the same time.
const N_SLOTS: usize = 8;
/// The longest time that a request waits for a slot.
const SLOT_WAIT: Duration = Duration::from_secs(5);
/// The longest time that a body may take.
const BODY_TIME: Duration = Duration::from_secs(10);
/// The time after which a sender that found no slot may come again, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("10");

/// The endpoint of webhooks, and the forge workers that they wake.
#[derive(Clone)]
pub struct WebhookEndpoint {
    /// The settings in use.
    forges: watch::Receiver<Forges>,
    /// The wake-ups by the name of the repository, in lower case.
    pokes: Nudges<String>,
    slots: Arc<Semaphore>,
}

impl WebhookEndpoint {
    pub fn new(forges: watch::Receiver<Forges>, pokes: Nudges<String>) -> Self {
        Self { forges, pokes, slots: Arc::new(Semaphore::new(N_SLOTS)) }
    }
}

/// Takes requests for the path of webhooks, and passes on all others.
pub(super) async fn take(
    State(endpoint): State<WebhookEndpoint>,
    request: Request,
    next: Next,
) -> Response {
    let webhook = endpoint.forges.borrow().webhook.clone();
    let Some(webhook) = webhook.filter(|webhook| webhook.path == request.uri().path()) else {
        return next.run(request).await;
    };
    if request.method() != Method::POST {
        let method = request.method().clone();
        let uri = request.uri().clone();
        return method_not_allowed(method, uri).await.into_response();
    }
    let (parts, body) = request.into_parts();
    match names_of(&webhook, &parts.headers, body, &endpoint.slots).await {
        Ok(names) => {
            // If no repository has the name, perhaps because it was renamed, all are woken.
            if endpoint.pokes.wake_where(|name| names.contains(name)) == 0 {
                endpoint.pokes.wake_where(|_| true);
            }
            StatusCode::ACCEPTED.into_response()
        }
        Err(problem) => {
            tracing::info!(route = webhook.path, reason = %problem.code, "webhook refused");
            let is_busy = problem.status == StatusCode::SERVICE_UNAVAILABLE;
            let mut response = problem.into_response();
            if is_busy {
                response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
            }
            response
        }
    }
}

/// Returns the names of the repository that a webhook is about.
///
/// # Errors
/// Fails if the request is not a webhook with the right signature.
async fn names_of(
    webhook: &Webhook,
    headers: &HeaderMap,
    body: Body,
    slots: &Semaphore,
) -> Result<Vec<String>, Problem> {
    let proof = checked_head(webhook, headers)?;
    let (_slot, mut mac) = match &proof {
        // The sender has shown the secret already.
        Proof::Shown => (None, None),
        Proof::Signature(_) => {
            let slot = timeout(SLOT_WAIT, slots.acquire())
                .await
                .ok()
                .and_then(Result::ok)
                .ok_or_else(busy)?;
            (Some(slot), Some(mac_of(&webhook.secret).ok_or_else(not_signed)?))
        }
    };
    let update = |data: &[u8]| mac.iter_mut().for_each(|mac| mac.update(data));
    let kept =
        timeout(BODY_TIME, read(body, update)).await.unwrap_or_else(|_| Err(too_slow().into()))?;
    if let (Proof::Signature(signature), Some(mac)) = (proof, mac) {
        // The comparison takes a time that reveals nothing.
        mac.verify_slice(&signature).map_err(|_| not_signed())?;
    }
    Ok(kept.map(|body| names_in(&body)).unwrap_or_default())
}

/// The proof that the sender of a webhook knows the secret.
#[derive(Debug, PartialEq, Eq)]
enum Proof {
    /// The sender shows the secret (GitLab).
    Shown,
    /// The sender signs the body (GitHub).
    Signature([u8; 32]),
}

/// Checks the head of a webhook, without which the body need not be read, and returns the proof in
/// it.
fn checked_head(webhook: &Webhook, headers: &HeaderMap) -> Result<Proof, Problem> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let proof = match (text("x-gitlab-token"), text("x-hub-signature-256").and_then(signature_of)) {
        (Some(shown), _) if Secret::new(shown) == webhook.secret => Proof::Shown,
        (None, Some(signature)) => Proof::Signature(signature),
        _ => return Err(not_signed()),
    };
    if text("x-github-event").or_else(|| text("x-gitlab-event")).is_none_or(str::is_empty) {
        let detail = "expected the header X-GitHub-Event or X-Gitlab-Event, which every webhook of a forge has";
        return Err(Problem::new(StatusCode::BAD_REQUEST, "no_event", detail));
    }
    let content_type =
        text("content-type").unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if !["application/json", "application/x-www-form-urlencoded"]
        .iter()
        .any(|known| content_type.eq_ignore_ascii_case(known))
    {
        let detail = format!(
            "the content type of a webhook is application/json, and this one has `{content_type}`"
        );
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", detail));
    }
    if text("content-length")
        .and_then(|length| length.parse().ok())
        .is_some_and(|length: usize| length > MAX_BODY)
    {
        return Err(too_large(MAX_BODY).into());
    }
    Ok(proof)
}

fn not_signed() -> Problem {
    let detail = "expected X-Hub-Signature-256 or X-Gitlab-Token, made with forge.webhook.secret";
    Problem::new(StatusCode::UNAUTHORIZED, "not_signed", detail)
}

fn busy() -> Problem {
    let detail = "too many webhooks are being read; nothing is lost, because the daemon also polls the forges";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_webhooks", detail)
}

/// Reads a body to its end, and passes each part of it to `update`. Returns the body, or `None` if
/// it is longer than [`MAX_KEPT`].
async fn read(mut body: Body, mut update: impl FnMut(&[u8])) -> Result<Option<Vec<u8>>, Problem> {
    let mut kept = Some(Vec::new());
    let mut n_read = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| unreadable(&error))?.into_data() else {
            continue;
        };
        n_read += data.len();
        if n_read > MAX_BODY {
            return Err(too_large(MAX_BODY).into());
        }
        update(&data);
        kept = kept.filter(|_| n_read <= MAX_KEPT);
        if let Some(kept) = &mut kept {
            kept.extend_from_slice(&data);
        }
    }
    Ok(kept)
}

/// The part of a payload that names its repository: GitHub's `repository`, or GitLab's `project` by
/// its path and its number.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Payload {
    repository: Repository,
    project: Project,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Repository {
    full_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Project {
    path_with_namespace: Option<String>,
    id: Option<u64>,
}

/// Returns the names of the repository in the payload, in lower case.
fn names_in(body: &[u8]) -> Vec<String> {
    let Payload { repository, project } = serde_json::from_slice(body).unwrap_or_default();
    let names = [repository.full_name, project.path_with_namespace].into_iter().flatten();
    names.map(|name| name.to_lowercase()).chain(project.id.map(|id| id.to_string())).collect()
}

fn mac_of(secret: &Secret) -> Option<Hmac<Sha256>> {
    Hmac::<Sha256>::new_from_slice(secret.reveal().as_bytes()).ok()
}

/// Returns the bytes of GitHub's `sha256=` and 64 digits.
fn signature_of(header: &str) -> Option<[u8; 32]> {
    let digits = header.strip_prefix("sha256=")?.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Bytes;
    use futures::stream;
    use tokio::time::Instant;

    use super::*;

    /// The example of GitHub's documentation.
    const SECRET: &str = "It's a Secret to Everybody";
    const BODY: &str = "Hello, World!";
    const RIGHT: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    fn webhook() -> Webhook {
        Webhook { path: "/webhooks/forge".to_owned(), secret: Secret::new(SECRET) }
    }

    /// Returns a head that is right for [`BODY`], with `others` in place of its own headers.
    fn head(others: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let usual = [
            ("x-hub-signature-256", RIGHT),
            ("x-github-event", "issues"),
            ("content-type", "application/json"),
        ];
        for (name, value) in usual.iter().chain(others) {
            headers.insert(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    /// Returns the code of the refusal; empty for an accepted webhook.
    async fn outcome(headers: &HeaderMap, body: Body) -> String {
        let slots = Semaphore::new(1);
        names_of(&webhook(), headers, body, &slots)
            .await
            .map_or_else(|problem| problem.code.to_string(), |_| String::new())
    }

    #[track_caller]
    fn check_signature(body: &[u8], header: &str, expected: bool) {
        let signature = signature_of(header);
        let is_right = signature.is_some_and(|signature| {
            let mut mac = mac_of(&Secret::new(SECRET)).unwrap();
            body.chunks(3).for_each(|part| mac.update(part));
            mac.verify_slice(&signature).is_ok()
        });
        assert_eq!(is_right, expected, "{header}");
    }

    fn signed(body: &[u8]) -> String {
        let mut mac = mac_of(&Secret::new(SECRET)).unwrap();
        mac.update(body);
        mac.finalize()
            .into_bytes()
            .iter()
            .fold("sha256=".to_owned(), |text, byte| format!("{text}{byte:02x}"))
    }

    #[test]
    fn a_webhook_names_its_repository() {
        assert_eq!(names_in(br#"{"repository":{"full_name":"Ann/site","id":7}}"#), ["ann/site"]);
        assert_eq!(
            names_in(
                br#"{"project":{"id":7,"path_with_namespace":"a/b/c"},"repository":{"name":"c"}}"#
            ),
            ["a/b/c", "7"]
        );
        assert!(names_in(b"{}").is_empty() && names_in(b"payload=%7B").is_empty());
    }

    #[test]
    fn only_the_right_signature_counts() {
        check_signature(b"Hello, World!", RIGHT, true);
        check_signature(b"Hello, World?", RIGHT, false);
        for malformed in [
            "",
            "sha256=",
            "sha1=757107ea",
            "sha256=75zz",
            "sha256=日本",
            &RIGHT[..70],
            &format!("{RIGHT}00"),
        ] {
            check_signature(b"Hello, World!", malformed, false);
        }
    }

    #[tokio::test]
    async fn a_body_is_not_read_if_its_head_is_not_that_of_a_webhook() {
        let unread = || {
            Body::from_stream(stream::poll_fn(
                |_| -> std::task::Poll<Option<Result<Bytes, Infallible>>> {
                    panic!("the body was read")
                },
            ))
        };
        for (others, code) in [
            (("x-hub-signature-256", "sha256=00"), "not_signed"),
            (("x-gitlab-token", "guessed"), "not_signed"),
            (("x-github-event", ""), "no_event"),
            (("content-type", "text/plain"), "not_json"),
            (("content-length", "26214401"), "body_too_large"),
        ] {
            assert_eq!(outcome(&head(&[others]), unread()).await, code);
        }
        assert_eq!(outcome(&head(&[]), Body::from(BODY)).await, "");
        assert_eq!(outcome(&head(&[]), Body::from("Hello, World?")).await, "not_signed");
        let form = ("content-type", "Application/X-WWW-Form-Urlencoded; charset=utf-8");
        assert_eq!(outcome(&head(&[form]), Body::from(BODY)).await, "");
        // GitLab shows the secret itself.
        assert_eq!(outcome(&head(&[("x-gitlab-token", SECRET)]), Body::from("whatever")).await, "");
    }

    #[tokio::test]
    async fn a_long_body_is_checked_although_it_is_not_kept() {
        let text = format!(
            r#"{{"repository":{{"full_name":"ann/site"}},"x":"{}"}}"#,
            "x".repeat(MAX_KEPT)
        );
        let signature = signed(text.as_bytes());
        let slots = Semaphore::new(1);
        let names = names_of(
            &webhook(),
            &head(&[("x-hub-signature-256", &signature)]),
            Body::from(text),
            &slots,
        )
        .await;
        assert_eq!(names.unwrap(), Vec::<String>::new());
        let short = r#"{"repository":{"full_name":"ann/site"}}"#;
        let signature = signed(short.as_bytes());
        let names = names_of(
            &webhook(),
            &head(&[("x-hub-signature-256", &signature)]),
            Body::from(short),
            &slots,
        )
        .await;
        assert_eq!(names.unwrap(), ["ann/site"]);
        // This body has no length in its head.
        let endless = || {
            Body::from_stream(stream::repeat_with(|| {
                Ok::<_, Infallible>(Bytes::from(vec![b' '; 1 << 20]))
            }))
        };
        assert_eq!(outcome(&head(&[]), endless()).await, "body_too_large");
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_slot_waits_a_moment_and_slow_bodies_hold_none_for_long() {
        let never = || Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let began = Instant::now();
        let slots = Semaphore::new(1);
        let webhook = webhook();
        let headers = head(&[]);
        let slow = names_of(&webhook, &headers, never(), &slots);
        let next = names_of(&webhook, &headers, Body::from(BODY), &slots);
        let next = async { (next.await.unwrap_err().code.clone(), began.elapsed()) };
        let (slow, next) = tokio::join!(slow, next);
        assert_eq!(next, ("too_many_webhooks".into(), SLOT_WAIT));
        assert_eq!(
            (slow.unwrap_err().code.as_ref(), began.elapsed()),
            ("body_too_slow", BODY_TIME)
        );
        assert!(names_of(&webhook, &headers, Body::from(BODY), &slots).await.is_ok());
    }
}
