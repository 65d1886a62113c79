//! A client of an MCP server over its Unix socket or its URL. It connects, and calls tools.
//!
//! Every wait here has a deadline. A failed connection is not repaired: its owner makes another
//! one. This module knows no tool. `coordinator` and `cli` call it.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rmcp::model::{CallToolRequestParams, JsonObject};
use rmcp::service::{ClientInitializeError, RoleClient, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransportConfig, StreamableHttpError,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::UnixStream;

use crate::domain::{Secret, ServerAddress};

/// The deadline for the connection, the handshake and the list of tools together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The deadline for a TCP connection alone.
const TCP_TIMEOUT: Duration = Duration::from_secs(5);
/// The idle time after which a connection is closed. It is shorter than that of servers, because a
/// request on a connection that is just being closed is lost.
const POOL_IDLE: Duration = Duration::from_secs(10);
/// The longest line of a server on a socket, in bytes. The library has the same limit for a body
/// over HTTP.
const MAX_LINE: usize = 16 * 1024 * 1024;
/// The number of requests on their way at the same time over HTTP.
const MAX_REQUESTS: usize = 32;

/// A connection to a server.
pub struct McpClient {
    running: RunningService<RoleClient, ()>,
    /// The server's tools, each with the names of its arguments.
    tools: BTreeMap<String, Vec<String>>,
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
    #[error("the answer to {tool} is not understood: {problem}")]
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
        let failed =
            |source| ConnectError { address: address.clone(), source: without_internals(source) };
        match tokio::time::timeout(CONNECT_TIMEOUT, Self::try_connect(address, token)).await {
            Ok(connected) => connected.map_err(failed),
            Err(elapsed) => Err(failed(elapsed.into())),
        }
    }

    async fn try_connect(
        address: &ServerAddress,
        token: Option<&Secret>,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let running = match address {
            ServerAddress::Socket(path) => {
                let (reader, writer) = UnixStream::connect(path).await?.into_split();
                rmcp::serve_client((), (CappedLines::new(reader), writer)).await?
            }
            ServerAddress::Url(url) => {
                let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                    .max_concurrent_requests(MAX_REQUESTS);
                let config = match token {
                    Some(token) => config.auth_header(token.reveal()),
                    None => config,
                };
                let transport = StreamableHttpClientTransport::with_client(http_client()?, config);
                rmcp::serve_client((), transport).await?
            }
        };
        let tools = running.list_all_tools().await?;
        let arguments = |schema: &JsonObject| -> Vec<String> {
            let properties = schema.get("properties").and_then(Value::as_object);
            properties.map(|properties| properties.keys().cloned().collect()).unwrap_or_default()
        };
        let tools = tools
            .into_iter()
            .map(|tool| (tool.name.to_string(), arguments(&tool.input_schema)))
            .collect();
        Ok(Self { running, tools })
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
    /// Returns [`CallError`], which is `Lost` after `patience`.
    pub async fn call<T: DeserializeOwned>(
        &self,
        tool: &str,
        arguments: JsonObject,
        patience: Duration,
    ) -> Result<T, CallError> {
        let lost = |source| CallError::Lost { tool: tool.to_owned(), source };
        let request = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let result = match tokio::time::timeout(patience, self.running.call_tool(request)).await {
            Err(elapsed) => return Err(lost(elapsed.into())),
            Ok(Err(ServiceError::McpError(error))) => {
                let (tool, message) = (tool.to_owned(), error.message.into_owned());
                return Err(CallError::Refused {
                    tool,
                    code: "protocol_error".to_owned(),
                    message,
                });
            }
            Ok(Err(error)) => return Err(lost(error.into())),
            Ok(Ok(result)) => result,
        };
        let is_error = result.is_error.unwrap_or(false);
        // Servers of the older system answer with text alone.
        let answer = result.structured_content.or_else(|| {
            let text = result.content.first()?.as_text()?;
            serde_json::from_str(&text.text).ok().or_else(|| Some(Value::String(text.text.clone())))
        });
        let answer = answer.unwrap_or(Value::Null);
        if is_error || answer.get("success") == Some(&Value::Bool(false)) {
            let text = |name: &str| answer.get(name).and_then(Value::as_str);
            let message = text("error").or(answer.as_str()).unwrap_or("refused").to_owned();
            let code = text("error_code").unwrap_or("refused").to_owned();
            return Err(CallError::Refused { tool: tool.to_owned(), code, message });
        }
        serde_json::from_value(answer).map_err(|error| CallError::NotUnderstood {
            tool: tool.to_owned(),
            problem: error.to_string(),
        })
    }

    /// Returns whether the connection is over. Further calls are lost then.
    pub fn is_closed(&self) -> bool {
        self.running.is_closed()
    }
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Returns the failure of the transport itself, without the library's text around it, which only
/// names its own types.
fn without_internals(error: AnyError) -> AnyError {
    match error.downcast::<ClientInitializeError>().map(|error| *error) {
        Ok(ClientInitializeError::TransportError { error, .. }) => match error.error.downcast_ref()
        {
            Some(StreamableHttpError::Client::<reqwest::Error>(http)) => root_of(http).into(),
            _ => error.error,
        },
        Ok(other) => other.into(),
        Err(error) => error,
    }
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

/// Ends a stream with an endless line, because the library reads a line of any length into memory.
struct CappedLines<R> {
    inner: R,
    /// The number of bytes since the last line end.
    n_bytes: usize,
}

impl<R> CappedLines<R> {
    const fn new(inner: R) -> Self {
        Self { inner, n_bytes: 0 }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for CappedLines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let n_before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        let read = &buffer.filled()[n_before..];
        self.n_bytes = match read.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => read.len() - end - 1,
            None => self.n_bytes + read.len(),
        };
        if self.n_bytes > MAX_LINE {
            buffer.set_filled(n_before);
            return Poll::Ready(Err(io::Error::other(format!(
                "a line of more than {MAX_LINE} bytes"
            ))));
        }
        Poll::Ready(Ok(()))
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

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
        assert!(text.contains("Connection refused") && !text.contains("rmcp"), "{text}");
    }

    #[tokio::test]
    async fn a_line_without_an_end_ends_the_stream() {
        let mut lines = b"one\n".to_vec();
        lines.resize(MAX_LINE + 4, b'x');
        let mut read = Vec::new();
        CappedLines::new(&lines[..]).read_to_end(&mut read).await.expect("as long as may be");
        lines.push(b'x');
        assert!(CappedLines::new(&lines[..]).read_to_end(&mut read).await.is_err());
    }
}
