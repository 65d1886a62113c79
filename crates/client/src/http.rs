//! The MCP endpoint of a server over HTTP. A POST carries one JSON-RPC message, and its answer
//! carries the messages of the server.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use futures::StreamExt as _;
use reqwest::StatusCode;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use serde_json::Value;

use super::{Lost, MAX_MESSAGE};
use domain::Secret;
use machine::locks::lock;

/// The first revision in which headers repeat parts of a request (SEP-2243).
const STANDARD_HEADERS: &str = "2026-07-28";
/// The key of the revision in a request of such a revision.
const VERSION_IN_META: &str = "io.modelcontextprotocol/protocolVersion";
/// The header of a session.
const SESSION: &str = "mcp-session-id";
/// The timeout of a request. The server answers a held request within a minute.
const TIMEOUT: Duration = Duration::from_mins(10);
/// The deadline for a TCP connection alone.
const TCP_TIMEOUT: Duration = Duration::from_secs(5);
/// The idle time after which a connection is closed. It is shorter than that of servers, because a
/// request on a connection that is just being closed is lost.
const POOL_IDLE: Duration = Duration::from_secs(10);

/// The endpoint of one server, as one client sees it.
pub struct HttpEndpoint {
    http: reqwest::Client,
    url: String,
    token: Option<Secret>,
    /// The session id that the server gave this client to repeat with each request (MCP 2025-03-26,
    /// session management).
    session: Mutex<Option<HeaderValue>>,
}

impl HttpEndpoint {
    /// Makes no connection yet. `token` is sent as a bearer token.
    ///
    /// # Errors
    /// Fails if the certificates of the machine can't be read.
    pub fn new(url: &str, token: Option<Secret>) -> Result<Self, reqwest::Error> {
        let url = url.to_owned();
        Ok(Self { http: http_client()?, url, token, session: Mutex::default() })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sends `message` unchanged and hands each message of the answer to `take`. `version` is the
    /// revision that the handshake agreed on.
    ///
    /// # Errors
    /// Returns [`Lost`] if no answer comes.
    pub async fn post(
        &self,
        message: &[u8],
        version: Option<&str>,
        mut take: impl FnMut(Vec<u8>),
    ) -> Result<(), Lost> {
        let mut request = self
            .http
            .post(&self.url)
            .timeout(TIMEOUT)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream");
        for (name, value) in headers(message, version) {
            request = request.header(name, value);
        }
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.reveal());
        }
        if let Some(session) = self.session().clone() {
            request = request.header(SESSION, session);
        }
        let response = request.body(message.to_vec()).send().await.map_err(|error| {
            // Only a connection that was never made has certainly carried nothing.
            let text = root_of(&error);
            if error.is_connect() { Lost::NoServer(text) } else { Lost::Answer(text) }
        })?;
        let status = response.status();
        if let Some(session) = response.headers().get(SESSION) {
            *self.session() = Some(session.clone());
        }
        let kind = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default();
        let is_stream = kind.starts_with("text/event-stream");
        let mut body = response.bytes_stream();
        let mut received = Received::default();
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| Lost::Answer(root_of(&error)))?;
            received.bytes.extend_from_slice(&piece);
            if received.bytes.len() > MAX_MESSAGE {
                return Err(Lost::Answer(format!("an answer of more than {MAX_MESSAGE} bytes")));
            }
            while is_stream && let Some(event) = received.next_event() {
                if !event.is_empty() {
                    take(event);
                }
            }
        }
        let rest = received.bytes.trim_ascii();
        if !status.is_success() && !is_error_about(message, rest) {
            let text = refusal(status, rest);
            let is_final = status.is_client_error()
                && !matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
            return Err(if is_final { Lost::Refused(text) } else { Lost::Answer(text) });
        }
        if !is_stream && !rest.is_empty() {
            take(rest.to_vec());
        }
        Ok(())
    }

    fn session(&self) -> MutexGuard<'_, Option<HeaderValue>> {
        lock(&self.session)
    }
}

/// Returns a client for HTTP and HTTPS with the certificates of the machine.
///
/// # Errors
/// Fails if the certificates can't be read.
pub fn http_client() -> Result<reqwest::Client, reqwest::Error> {
    // No other code in this program installs a provider. A second call changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .connect_timeout(TCP_TIMEOUT)
        .pool_idle_timeout(POOL_IDLE)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("agent-coordinator/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Returns the text of the innermost cause, such as a refused connection, an unknown host or an
/// untrusted certificate.
fn root_of(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Returns the headers that repeat parts of the message.
fn headers(message: &[u8], agreed: Option<&str>) -> Vec<(&'static str, String)> {
    let message: Value = serde_json::from_slice(message).unwrap_or(Value::Null);
    let params = &message["params"];
    let version = params["_meta"][VERSION_IN_META].as_str().or(agreed);
    let Some(version) =
        version.filter(|version| version.bytes().all(|byte| byte.is_ascii_graphic()))
    else {
        return Vec::new();
    };
    let mut headers = vec![("mcp-protocol-version", version.to_owned())];
    if version >= STANDARD_HEADERS {
        let texts =
            [("mcp-method", message["method"].as_str()), ("mcp-name", params["name"].as_str())];
        let plain = |text: &&str| text.bytes().all(|byte| byte.is_ascii_graphic());
        headers.extend(
            texts
                .into_iter()
                .filter_map(|(name, text)| Some((name, text.filter(plain)?.to_owned()))),
        );
    }
    headers
}

/// The part of a body that was received and not taken yet.
#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    /// The number of bytes in which no event ends. They are not searched again. Otherwise the time
    /// for a long event would grow with the square of its length.
    n_searched: usize,
}

impl Received {
    /// Takes the first complete event of a stream, and returns its data.
    fn next_event(&mut self) -> Option<Vec<u8>> {
        let end_of = |line_feed: usize| match &self.bytes[..line_feed] {
            [.., b'\r', b'\n', b'\r'] => Some((line_feed - 3, line_feed + 1)),
            [.., b'\n'] => Some((line_feed - 1, line_feed + 1)),
            _ => None,
        };
        let mut unsearched = self.n_searched..self.bytes.len();
        let end = unsearched.find_map(|i| (self.bytes[i] == b'\n').then(|| end_of(i))?);
        let Some((at, next)) = end else {
            self.n_searched = self.bytes.len();
            return None;
        };
        let lines = self.bytes[..at]
            .split(|byte| *byte == b'\n')
            .filter_map(|line| line.strip_prefix(b"data:"));
        let data: Vec<&[u8]> = lines.map(<[u8]>::trim_ascii).collect();
        let data = data.join(&b'\n');
        self.bytes.drain(..next);
        self.n_searched = 0;
        Some(data)
    }
}

/// Returns whether `body` is a JSON-RPC error about `message`. Such a body is the answer under each
/// HTTP status. A notification has no answer.
fn is_error_about(message: &[u8], body: &[u8]) -> bool {
    let [message, body] =
        [message, body].map(|text| serde_json::from_slice(text).unwrap_or(Value::Null));
    let is_notification = message.get("method").is_some() && message.get("id").is_none();
    !is_notification && body["error"].is_object() && body["id"] == message["id"]
}

/// Returns the server's text about a refusal: problem+json, a JSON-RPC error, or any text.
fn refusal(status: StatusCode, body: &[u8]) -> String {
    let json: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let said = json["detail"].as_str().or_else(|| json["error"]["message"].as_str());
    let text = String::from_utf8_lossy(body);
    let said = said.unwrap_or_else(|| text.lines().next().unwrap_or_default());
    let said: String = said.chars().filter(|c| !c.is_control()).take(200).collect();
    format!("HTTP {status}: {said}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_cut_out_whole() {
        // Each stream arrives as a whole and byte by byte.
        let events_of = |stream: &[u8]| {
            [stream.len(), 1].map(|length| {
                let mut received = Received::default();
                let events = stream.chunks(length).flat_map(|piece| {
                    received.bytes.extend_from_slice(piece);
                    std::iter::from_fn(|| received.next_event()).collect::<Vec<_>>()
                });
                events.collect::<Vec<_>>()
            })
        };
        let check = |stream: &[u8], events: &[&[u8]]| {
            assert_eq!(events_of(stream), [events, events]);
        };
        check(b"data: {\"a\":1}\n", &[]);
        check(b"id: 0\nretry: 3000\ndata:\n\ndata: {\"a\":1}\n\n", &[b"", b"{\"a\":1}"]);
        check(b"data: x\r\ndata: y\r\n\r\nrest", &[b"x\ny"]);
        // Data that is not valid UTF-8 passes unchanged.
        check(b"data: \xff\xff\n\n", &[b"\xff\xff"]);
    }

    #[test]
    fn an_error_is_about_the_message_with_its_id() {
        let of_none = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}"#;
        let of_one = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"no"}}"#;
        let request = br#"{"id":1,"method":"x"}"#;
        let notification = br#"{"method":"x"}"#;
        assert!(is_error_about(b"garbage", of_none) && is_error_about(request, of_one));
        // A client would not take these for the answer to its request.
        assert!(!is_error_about(request, of_none) && !is_error_about(b"garbage", of_one));
        assert!(!is_error_about(notification, of_none));
        assert!(
            !is_error_about(b"garbage", br#"{"status":400,"detail":"no"}"#)
                && !is_error_about(request, b"")
        );
    }

    #[test]
    fn a_request_repeats_its_revision_outside() {
        let old = headers(br#"{"method":"tools/call","params":{"name":"x"}}"#, Some("2025-06-18"));
        assert_eq!(old, [("mcp-protocol-version", "2025-06-18".to_owned())]);
        let new = br#"{"method":"tools/call","params":{"name":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        assert_eq!(headers(new, None).len(), 3);
        assert_eq!(headers(b"no json", None), []);
    }

    /// Answers one call with `head` and `body`, and returns what came of the call.
    async fn post_to_a_server(head: &str, body: &[u8]) -> Result<(), Lost> {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let endpoint = HttpEndpoint::new(&url, None).unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            // The client may close the connection before the end.
            let _ = stream.write_all(body).await;
        };
        tokio::join!(endpoint.post(b"{}", None, drop), server).0
    }

    #[tokio::test]
    async fn an_answer_without_an_end_is_dropped_at_once() {
        let body = vec![b'x'; 4 * MAX_MESSAGE];
        for kind in ["application/json", "text/event-stream"] {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n\r\ndata: ");
            let began = std::time::Instant::now();
            let posted = post_to_a_server(&head, &body).await;
            assert!(matches!(posted, Err(Lost::Answer(_))), "{posted:?}");
            // A call times out after ten seconds.
            assert!(began.elapsed() < Duration::from_secs(10), "{kind}: {:?}", began.elapsed());
        }
    }

    #[tokio::test]
    async fn a_call_that_was_taken_is_lost_and_not_taken_for_unsent() {
        use tokio::io::AsyncReadExt as _;

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let endpoint = HttpEndpoint::new(&url, None).unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
        };
        let (posted, ()) = tokio::join!(endpoint.post(b"{}", None, drop), server);
        assert!(matches!(posted, Err(Lost::Answer(_))), "{posted:?}");
        drop(listener);
        let posted = endpoint.post(b"{}", None, drop).await;
        assert!(matches!(posted, Err(Lost::NoServer(_))), "{posted:?}");
    }
}
