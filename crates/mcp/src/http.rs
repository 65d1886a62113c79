//! MCP over HTTP, at `/mcp`. Each request stands alone, without sessions, for all revisions of the
//! protocol.
//!
//! A client that accepts JSON gets its answer as one JSON object. It gets a stream of events only
//! when the tool sent something before its answer. Tools do that only for a caller that asked for
//! progress. A client that accepts only streams gets a stream. Older clients name no form, or
//! `*/*`: they get JSON.
//!
//! A tool that waits is told when its client cancels the call, or closes the connection.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{Extension, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use http_body_util::combinators::BoxBody;
use rmcp::model::ProtocolVersion;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;

use super::MAX_MESSAGE;
use super::batch::{self, Batch};
use super::cancels::{CLIENT_ID, Cancels, Gist, client_id};
use super::malformed;
use super::sender::Sender;
use super::server::{Connection, McpServer};
use domain::Secret;
use runtime::http::unfinished::UnfinishedBodies;
use runtime::http::{ClientGone, Problem};
use runtime::peer::Peer;

type Service = StreamableHttpService<Connection, NeverSessionManager>;
/// The answer of the library.
type Handled = Response<BoxBody<Bytes, Infallible>>;

const JSON: &str = "application/json";
const STREAM: &str = "text/event-stream";
/// The header that names the revision of the protocol.
const VERSION: &str = "mcp-protocol-version";

/// The greatest number of bytes of unfinished requests, of all clients together.
const MAX_UNFINISHED: usize = 8 * MAX_MESSAGE;

/// The form of answer that a client takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Always one object.
    Json,
    /// One object, or a stream if there is more to send.
    Either,
    Stream,
}

/// The library's service, once for each form.
#[derive(Clone)]
struct Endpoint {
    json: Arc<Service>,
    stream: Arc<Service>,
    cancels: Cancels,
    bodies: UnfinishedBodies,
}

/// Returns the router of `/mcp`. Its listener must name the caller: `ConnectInfo<Peer>`.
pub fn router(server: &McpServer) -> Router {
    let service = |form: Form| {
        // There are no sessions, so that a client that goes leaves nothing behind and a restart
        // loses nothing. The host and the length of a request are checked before.
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(form != Form::Stream)
            .disable_allowed_hosts()
            .with_max_request_body_bytes(MAX_MESSAGE);
        let server = server.clone();
        Arc::new(Service::new(move || Ok(server.for_requests()), Arc::default(), config))
    };
    let endpoint = Endpoint {
        json: service(Form::Either),
        stream: service(Form::Stream),
        cancels: Cancels::default(),
        bodies: UnfinishedBodies::new(MAX_UNFINISHED),
    };
    Router::new().route("/mcp", post(answer).fallback(other_method)).with_state(endpoint)
}

async fn other_method(method: Method) -> Response {
    let detail = format!(
        "/mcp takes POST, not {method}: there are no sessions, and no streams without a request"
    );
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail);
    ([(header::ALLOW, "POST")], problem).into_response()
}

async fn answer(
    State(endpoint): State<Endpoint>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Extension(gone): Extension<ClientGone>,
    request: Request,
) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    // The body is read first, because a connection goes on after a request that was read to its
    // end, even if the request is wrong.
    let body = endpoint.bodies.collect(body, MAX_MESSAGE).await?;
    let form = form_of_answer(&parts.headers)?;
    if !has_type(&parts.headers, JSON) {
        return Err(not_json(&parts.headers));
    }
    let bearer = take_bearer(&mut parts.headers)?;
    let sender = Sender { peer, bearer, hears_progress: form != Form::Json, gone: gone.0 };
    match has_batches(&parts.headers).then(|| Batch::parse(&body)).flatten() {
        Some(Ok(batch)) => answer_batch(&endpoint, &parts, form, &sender, batch).await,
        Some(Err(complaint)) => {
            Ok((StatusCode::BAD_REQUEST, axum::Json(complaint)).into_response())
        }
        None => answer_message(&endpoint, parts, form, sender, body).await,
    }
}

/// Returns whether requests with these headers may be batches. Revision 2025-03-26 has no header
/// that says so.
fn has_batches(headers: &HeaderMap) -> bool {
    headers.get(VERSION).is_none_or(|version| version == batch::REVISION.as_str())
}

/// Returns the answers to a batch in one array, when all of them are complete.
async fn answer_batch(
    endpoint: &Endpoint,
    parts: &Parts,
    form: Form,
    sender: &Sender,
    batch: Batch,
) -> Result<Response, Problem> {
    let answered = batch.messages.iter().map(|message| async {
        let body = serde_json::to_vec(message).expect("what was parsed can be written");
        let sender = Sender { hears_progress: false, ..sender.clone() };
        let answer =
            answer_message(endpoint, parts.clone(), Form::Json, sender, body.into()).await?;
        let answer = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap_or_default();
        Ok::<_, Problem>(serde_json::from_slice::<Value>(&answer).ok())
    });
    let answered = futures::future::try_join_all(answered).await?;
    let answers: Vec<Value> =
        batch.complaints.into_iter().chain(answered.into_iter().flatten()).collect();
    Ok(match form {
        _ if answers.is_empty() => StatusCode::ACCEPTED.into_response(),
        Form::Json | Form::Either => axum::Json(answers).into_response(),
        Form::Stream => {
            let event = format!("event: message\ndata: {}\n\n", Value::Array(answers));
            ([(header::CONTENT_TYPE, STREAM)], event).into_response()
        }
    })
}

async fn answer_message(
    endpoint: &Endpoint,
    mut parts: Parts,
    form: Form,
    sender: Sender,
    body: Bytes,
) -> Result<Response, Problem> {
    let version = parts.headers.get(VERSION).cloned();
    parts
        .headers
        .insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    let gist = Gist::of(&body);
    let underway = endpoint.cancels.notice(&parts.headers, &gist, &sender.gone);
    parts.extensions.insert(Sender { gone: underway.cancelled().clone(), ..sender });
    let service = if form == Form::Stream { &endpoint.stream } else { &endpoint.json };
    // The answer is read to its end. A waiting call ends when its client does not wait any more.
    let handled = service.handle(Request::from_parts(parts, Body::from(body.clone()))).await;
    if underway.cancelled().is_cancelled() {
        return Ok(StatusCode::ACCEPTED.into_response());
    }
    let mut response = in_form(handled, version.as_ref(), &body).await?;
    if gist.is_handshake() && response.status().is_success() {
        response.headers_mut().insert(CLIENT_ID, client_id());
    }
    Ok(if has_type(response.headers(), STREAM) {
        underway.until_cancelled(response)
    } else {
        response
    })
}

/// Returns the library's answer, with our text if it is a refusal.
async fn in_form(
    response: Handled,
    version: Option<&HeaderValue>,
    body: &Bytes,
) -> Result<Response, Problem> {
    match response.status() {
        // The content type was checked, so this is the library's answer to a text that it cannot
        // read.
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Ok(unreadable(body)),
        status
            if (status.is_client_error() || status.is_server_error())
                && !has_type(response.headers(), JSON) =>
        {
            let text = axum::body::to_bytes(Body::new(response.into_body()), MAX_MESSAGE)
                .await
                .unwrap_or_default();
            Err(in_our_words(status, version, &text))
        }
        _ => Ok(response.map(Body::new)),
    }
}

/// Returns the form that the client takes, from its Accept header.
fn form_of_answer(headers: &HeaderMap) -> Result<Form, Problem> {
    let values =
        headers.get_all(header::ACCEPT).iter().map(|value| value.to_str().unwrap_or_default());
    let ranges: Vec<String> = values
        .flat_map(|value| value.split(','))
        .filter(|range| !is_excluded(range))
        .map(|range| essence(range).to_ascii_lowercase())
        .filter(|range| !range.is_empty())
        .collect();
    let takes = |names: &[&str]| ranges.iter().any(|range| names.contains(&range.as_str()));
    let takes_stream = takes(&[STREAM, "text/*"]);
    if ranges.is_empty() || takes(&[JSON, "application/*", "*/*"]) {
        Ok(if takes_stream { Form::Either } else { Form::Json })
    } else if takes_stream {
        Ok(Form::Stream)
    } else {
        let detail = format!(
            "/mcp answers in application/json or text/event-stream, not in {}",
            ranges.join(", ")
        );
        Err(Problem::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", detail))
    }
}

/// Returns whether a range of Accept is excluded (`q=0`).
fn is_excluded(range: &str) -> bool {
    range.split(';').skip(1).filter_map(|parameter| parameter.split_once('=')).any(
        |(name, value)| {
            name.trim().eq_ignore_ascii_case("q")
                && value.trim().parse::<f32>().is_ok_and(|quality| quality <= 0.0)
        },
    )
}

/// Returns a media type without its parameters.
fn essence(text: &str) -> &str {
    text.split(';').next().unwrap_or_default().trim()
}

fn has_type(headers: &HeaderMap, media_type: &str) -> bool {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    essence(content_type).eq_ignore_ascii_case(media_type)
}

fn not_json(headers: &HeaderMap) -> Problem {
    let found = match headers.get(header::CONTENT_TYPE) {
        Some(value) => format!("`{}`", value.to_str().unwrap_or("?")),
        None => "none".to_owned(),
    };
    let detail =
        format!("the content type of a call is `application/json`, and this one has {found}");
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", detail)
}

/// Takes the token of `Authorization: Bearer` out of the headers, so that later code cannot print
/// it.
fn take_bearer(headers: &mut HeaderMap) -> Result<Option<Secret>, Problem> {
    let Some(value) = headers.remove(header::AUTHORIZATION) else {
        return Ok(None);
    };
    match value.to_str().unwrap_or_default().split_once(' ') {
        Some((scheme, token))
            if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() =>
        {
            Ok(Some(Secret::new(token.trim())))
        }
        _ => {
            let detail = "the Authorization header holds no token: expected `Bearer` and a token";
            Err(Problem::new(StatusCode::UNAUTHORIZED, "no_bearer_token", detail))
        }
    }
}

/// Returns the answer to a body that is not a message.
fn unreadable(body: &Bytes) -> Response {
    match malformed::parse(body, "body") {
        Err(Some(complaint)) => (StatusCode::BAD_REQUEST, axum::Json(complaint)).into_response(),
        Err(None) | Ok(_) => StatusCode::ACCEPTED.into_response(),
    }
}

/// Returns the problem for a refusal of the library in plain text.
fn in_our_words(status: StatusCode, version: Option<&HeaderValue>, text: &[u8]) -> Problem {
    let known: Vec<&str> =
        ProtocolVersion::KNOWN_VERSIONS.iter().map(ProtocolVersion::as_str).collect();
    match version.map(|version| version.to_str().unwrap_or("?")) {
        Some(version) if status == StatusCode::BAD_REQUEST && !known.contains(&version) => {
            let detail = format!(
                "MCP-Protocol-Version `{version}` is not known here; there are: {}",
                known.join(", ")
            );
            Problem::new(status, "unsupported_protocol_version", detail)
        }
        _ => Problem::new(status, "refused", String::from_utf8_lossy(text)),
    }
}
