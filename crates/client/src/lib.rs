//! A client of an MCP server over its Unix socket or its URL. It connects, and calls tools.
//!
//! A failed connection is not repaired: its owner makes another one. This crate knows no tool.
//!
//! The coordinator in `supervisor` asks a remote server with an [`McpClient`], and the command
//! `call` makes single calls with one. The bridge of `cli` to a URL carries messages by [`http`]
//! alone. `forge` uses only [`http::http_client`], which knows the certificates of the machine.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests may wait and ask the time"))]

pub mod http;
mod socket;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use domain::{Secret, ServerAddress};
use http::HttpEndpoint;
use socket::Socket;

/// The deadline for the connection, the handshake and the list of tools together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest message of a server, in bytes.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;
/// The revision of the protocol that the client asks for. It is the first one with structured
/// answers, and servers of every later revision speak it.
const REVISION: &str = "2025-06-18";
/// JSON-RPC's code for an unknown method.
const UNKNOWN_METHOD: i64 = -32601;
/// JSON-RPC's codes for a fault inside of the server: its internal error, and those of an
/// implementation.
const INTERNAL_ERROR: i64 = -32603;
const SERVER_ERRORS: RangeInclusive<i64> = -32099..=-32000;

/// A connection to a server.
pub struct McpClient {
    transport: Transport,
    n_requests: AtomicU64,
    /// The server's tools, each with the names of its arguments. Empty without a handshake, and for
    /// a server that does not list them.
    tools: BTreeMap<String, Vec<String>>,
}

enum Transport {
    Socket(Socket),
    /// The socket of a server that closes the connection after each answer. Each request makes a
    /// connection.
    SocketPerRequest(PathBuf),
    Http {
        endpoint: HttpEndpoint,
        /// The revision that the handshake agreed on.
        agreed: OnceLock<String>,
    },
}

/// The reason for a missing answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// No server listens at the address.
    #[error("{0}")]
    NoServer(String),
    /// The server is there and did not take the request.
    #[error("{0}")]
    Unsent(String),
    /// The server refused the request by the status of HTTP, and would refuse it again.
    #[error("{0}")]
    Refused(String),
    /// The request was sent. It is not known whether it was carried out.
    #[error("{0}")]
    Answer(String),
}

impl Lost {
    fn unanswered() -> Self {
        Self::Answer("the server closed the connection without answering".to_owned())
    }
}

/// A request without a result.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The server answered with an error of JSON-RPC.
    #[error("{message}")]
    Refused { code: Option<i64>, message: String },
}

impl RequestError {
    /// Returns whether the server does not know the method. Servers say so with several codes, and
    /// only those of a fault mean something else.
    fn is_unknown_method(&self) -> bool {
        match self {
            Self::Lost(_) => false,
            Self::Refused { code, .. } => {
                code.is_none_or(|code| code != INTERNAL_ERROR && !SERVER_ERRORS.contains(&code))
            }
        }
    }
}

/// The error for a connection that could not be made.
#[derive(Debug, thiserror::Error)]
#[error("could not connect to the server at {address}")]
pub struct ConnectError {
    address: ServerAddress,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// A call without a result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The tool refused the call.
    #[error("{tool}: {message}")]
    Refused { tool: String, code: String, message: String },
    /// No answer came. It is not known whether the call was carried out.
    #[error("no answer to {tool}")]
    Lost {
        tool: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The answer does not have the form of the tool's answers.
    #[error("the answer to {tool} is not valid: {problem}")]
    NotUnderstood { tool: String, problem: String },
}

impl McpClient {
    /// Connects, does the handshake and learns the tools. `token` is sent as a bearer token over
    /// HTTP, and not at all over a socket.
    ///
    /// # Errors
    /// Returns [`ConnectError`], after at most ten seconds.
    pub async fn connect(
        address: &ServerAddress,
        token: Option<&Secret>,
    ) -> Result<Self, ConnectError> {
        let connecting = async {
            let mut client = Self::open(address, token).await?;
            client.shake_hands(address).await?;
            Ok::<_, RequestError>(client)
        };
        let source = match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(client)) => return Ok(client),
            Ok(Err(error)) => error.into(),
            Err(elapsed) => elapsed.into(),
        };
        Err(ConnectError { address: address.clone(), source })
    }

    /// Makes a client that calls without a handshake, as servers of this program allow.
    ///
    /// # Errors
    /// Returns [`Lost`], never as an answer.
    pub async fn open(address: &ServerAddress, token: Option<&Secret>) -> Result<Self, Lost> {
        let transport = match address {
            ServerAddress::Socket(path) => Transport::Socket(Socket::connect(path).await?),
            ServerAddress::Url(url) => {
                let endpoint = HttpEndpoint::new(url, token.cloned());
                let endpoint = endpoint
                    .map_err(|error| Lost::Unsent(format!("could not use HTTP: {error}")))?;
                Transport::Http { endpoint, agreed: OnceLock::new() }
            }
        };
        Ok(Self { transport, n_requests: AtomicU64::new(0), tools: BTreeMap::new() })
    }

    /// Does the handshake and learns the tools. A server that does not know the handshake or the
    /// list is asked without it: one of the specification's form needs `tools/call` only.
    async fn shake_hands(&mut self, address: &ServerAddress) -> Result<(), RequestError> {
        let hello = json!({
            "protocolVersion": REVISION,
            "capabilities": {},
            "clientInfo": { "name": "agent-coordinator", "version": env!("CARGO_PKG_VERSION") },
        });
        match self.request("initialize", hello).await {
            Ok(answer) => self.confirm(&answer).await?,
            Err(error) if error.is_unknown_method() => {}
            Err(error) => return Err(error),
        }
        let listed = self.list_tools(json!({})).await;
        let mut page = match (listed, address) {
            // It may close the connection after each answer.
            (Err(RequestError::Lost(_)), ServerAddress::Socket(path)) => {
                self.transport = Transport::SocketPerRequest(path.clone());
                self.list_tools(json!({})).await?
            }
            (listed, _) => listed?,
        };
        loop {
            for tool in page["tools"].as_array().into_iter().flatten() {
                let arguments = tool["inputSchema"]["properties"].as_object();
                let names = arguments.into_iter().flat_map(|all| all.keys().cloned()).collect();
                self.tools.insert(tool["name"].as_str().unwrap_or_default().to_owned(), names);
            }
            let Some(cursor) = page["nextCursor"].as_str() else { return Ok(()) };
            page = self.list_tools(json!({ "cursor": cursor })).await?;
        }
    }

    /// Tells the server that its answer to `initialize` arrived.
    async fn confirm(&self, answer: &Value) -> Result<(), Lost> {
        if let (Transport::Http { agreed, .. }, Some(revision)) =
            (&self.transport, answer["protocolVersion"].as_str())
        {
            let _ = agreed.set(revision.to_owned());
        }
        let message = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        match &self.transport {
            Transport::Socket(socket) => {
                // The next request finds out if the connection is closed.
                let _ = socket.notify(&message).await;
                Ok(())
            }
            Transport::SocketPerRequest(_) => Ok(()),
            Transport::Http { endpoint, agreed } => {
                let version = agreed.get().map(String::as_str);
                endpoint.post(message.to_string().as_bytes(), version, drop).await
            }
        }
    }

    /// Returns a page of the list of tools; an empty one from a server that does not know the list.
    async fn list_tools(&self, params: Value) -> Result<Value, RequestError> {
        match self.request("tools/list", params).await {
            Err(error) if error.is_unknown_method() => Ok(Value::Null),
            page => page,
        }
    }

    /// Returns whether the server has this tool.
    pub fn offers(&self, tool: &str) -> bool {
        self.tools.contains_key(tool)
    }

    /// Returns whether the server's tool has this argument.
    pub fn takes(&self, tool: &str, argument: &str) -> bool {
        self.tools.get(tool).is_some_and(|arguments| arguments.iter().any(|each| each == argument))
    }

    /// Calls a tool. It is cancel-safe on this side only: the server may carry out a request that
    /// was sent.
    ///
    /// # Errors
    /// Returns [`CallError`], which is `Lost` after `timeout`.
    pub async fn call<T: DeserializeOwned>(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        timeout: Duration,
    ) -> Result<T, CallError> {
        let refused = |code: &str, message: String| CallError::Refused {
            tool: tool.to_owned(),
            code: code.to_owned(),
            message,
        };
        let lost = |source| CallError::Lost { tool: tool.to_owned(), source };
        let result = match tokio::time::timeout(timeout, self.call_raw(tool, arguments)).await {
            Err(elapsed) => return Err(lost(elapsed.into())),
            Ok(Err(RequestError::Refused { message, .. })) => {
                return Err(refused("protocol_error", message));
            }
            Ok(Err(RequestError::Lost(error))) => return Err(lost(error.into())),
            Ok(Ok(result)) => result,
        };
        let is_error = result["isError"] == true;
        let answer = answer_of(result);
        if is_error || answer.get("success") == Some(&Value::Bool(false)) {
            let text = |name: &str| answer.get(name).and_then(Value::as_str);
            let message = text("error").or(answer.as_str()).unwrap_or("refused").to_owned();
            return Err(refused(text("error_code").unwrap_or("refused"), message));
        }
        serde_json::from_value(answer).map_err(|error| CallError::NotUnderstood {
            tool: tool.to_owned(),
            problem: error.to_string(),
        })
    }

    /// Calls a tool and returns the result as the server sent it. It has no deadline over a socket.
    ///
    /// # Errors
    /// Returns [`RequestError`].
    pub async fn call_raw(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<Value, RequestError> {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// Returns whether the connection is over. Further calls are lost then.
    pub fn is_closed(&self) -> bool {
        match &self.transport {
            Transport::Socket(socket) => socket.is_closed(),
            Transport::SocketPerRequest(_) | Transport::Http { .. } => false,
        }
    }

    async fn request(&self, method: &str, params: Value) -> Result<Value, RequestError> {
        let id = self.n_requests.fetch_add(1, Ordering::Relaxed) + 1;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let mut answer = match &self.transport {
            Transport::Socket(socket) => socket.request(id, &message).await?,
            Transport::SocketPerRequest(path) => {
                Socket::connect(path).await?.request(id, &message).await?
            }
            Transport::Http { endpoint, agreed } => {
                let mut answer = Err(Lost::unanswered());
                let take = |message: Vec<u8>| match serde_json::from_slice::<Value>(&message) {
                    Ok(message) if message["id"] == id => answer = Ok(message),
                    Ok(_) => {}
                    Err(error) => {
                        answer = Err(Lost::Answer(format!("the answer is not valid: {error}")));
                    }
                };
                let version = agreed.get().map(String::as_str);
                endpoint.post(message.to_string().as_bytes(), version, take).await?;
                answer?
            }
        };
        match answer.get("error") {
            None => Ok(answer["result"].take()),
            Some(error) => {
                let message = error["message"].as_str().unwrap_or("unknown error").to_owned();
                Err(RequestError::Refused { code: error["code"].as_i64(), message })
            }
        }
    }
}

/// Returns the answer in the result of a call. Servers of the older system answer with text alone.
fn answer_of(mut result: Value) -> Value {
    if let Some(answer) = result.get_mut("structuredContent").filter(|answer| !answer.is_null()) {
        return answer.take();
    }
    let text = result["content"][0]["text"].as_str();
    text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap_or_else(|_| text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_is_not_there_is_told_in_plain_words() {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|free| free.local_addr())
            .expect("a port")
            .port();
        let address: ServerAddress =
            format!("http://127.0.0.1:{port}").parse().expect("an address");
        let failed = McpClient::connect(&address, None).await.err().expect("nobody listens");
        let text = failed.source.to_string();
        assert!(text.starts_with("Connection refused"), "{text}");
    }

    /// A server at a socket.
    #[derive(Clone, Copy)]
    struct Served {
        known: &'static [&'static str],
        /// The code with which it refuses other methods, as JSON.
        code: &'static str,
        /// The number of answers after which it closes a connection.
        n_answers: usize,
    }

    fn serve(listener: &std::os::unix::net::UnixListener, served: Served) {
        use std::io::{BufRead as _, BufReader, Write as _};
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
            let requests = lines
                .map_while(Result::ok)
                .map(|line| serde_json::from_str::<Value>(&line).expect("JSON"))
                .filter(|request| request.get("id").is_some());
            for request in requests.take(served.n_answers) {
                let method = request["method"].as_str().expect("a method");
                let mut answer = json!({ "jsonrpc": "2.0", "id": request["id"] });
                if served.known.contains(&method) {
                    answer["result"] = json!({
                        "tools": [{ "name": "health_check" }],
                        "structuredContent": { "status": "ok" },
                    });
                } else {
                    answer["error"] = json!({ "message": "not this one" });
                    if !served.code.is_empty() {
                        answer["error"]["code"] = served.code.parse().expect("JSON");
                    }
                }
                if writeln!(stream, "{answer}").is_err() {
                    break;
                }
            }
        }
    }

    /// Starts a server in `folder` and connects to it. The server ends with the process of the
    /// tests.
    async fn connected(
        folder: &std::path::Path,
        served: Served,
    ) -> Result<McpClient, ConnectError> {
        let path = folder.join("mcp.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        std::thread::spawn(move || serve(&listener, served));
        McpClient::connect(&ServerAddress::Socket(path), None).await
    }

    #[tokio::test]
    async fn a_server_with_a_fault_does_not_count_as_one_of_another_form() {
        let all = &["initialize", "tools/list", "tools/call"][..];
        for known in [&all[1..], &all[..1]] {
            for code in ["-32603", "-32000", "-32099"] {
                let folder = tempfile::tempdir().expect("a folder");
                let served = Served { known, code, n_answers: 99 };
                let failed = connected(folder.path(), served).await.err().expect("a fault");
                assert_eq!(failed.source.to_string(), "not this one", "{known:?} {code}");
            }
        }
    }

    #[tokio::test]
    async fn a_server_of_another_form_may_refuse_the_handshake_with_any_code() {
        for code in ["", "\"unknown\"", "-32601", "-32600", "-32602", "-32100", "404"] {
            let folder = tempfile::tempdir().expect("a folder");
            let served = Served { known: &["tools/call"], code, n_answers: 99 };
            let client = connected(folder.path(), served).await;
            let client = client.unwrap_or_else(|error| panic!("{code}: {:?}", error.source));
            assert!(!client.offers("health_check"), "{code}");
        }
    }

    #[tokio::test]
    async fn a_server_may_close_after_each_answer_and_know_no_handshake() {
        let all = &["initialize", "tools/list", "tools/call"][..];
        for (known, n_answers) in [(all, 1), (&all[1..], 1), (&all[2..], 1), (&all[2..], 99)] {
            let folder = tempfile::tempdir().expect("a folder");
            let served = Served { known, code: "-32601", n_answers };
            let client = connected(folder.path(), served).await;
            let client = client.unwrap_or_else(|error| panic!("{known:?}: {:?}", error.source));
            assert_eq!(client.offers("health_check"), known.contains(&"tools/list"), "{known:?}");
            for _ in 0..2 {
                let timeout = Duration::from_secs(20);
                let answer: Result<Value, CallError> =
                    client.call("health_check", Map::new(), timeout).await;
                assert_eq!(answer.expect("an answer"), json!({ "status": "ok" }), "{known:?}");
                assert!(!client.is_closed());
            }
        }
    }

    #[test]
    fn an_answer_is_structured_or_text() {
        let text = |text: &str| json!({ "content": [{ "type": "text", "text": text }] });
        assert_eq!(answer_of(json!({ "structuredContent": { "a": 1 } })), json!({ "a": 1 }));
        assert_eq!(answer_of(text(r#"{"a":1}"#)), json!({ "a": 1 }));
        assert_eq!(answer_of(text("broken")), "broken");
        assert_eq!(answer_of(json!({})), Value::Null);
    }
}
