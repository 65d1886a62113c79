//! The client of the daemon for the command line: HTTP over its control socket.

use std::io::{self, Write as _};
use std::path::PathBuf;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::error::CliError;
use runtime::http::Problem;

/// A connection to one daemon by its control socket, or to a coordinator that runs without its
/// server. Each request opens a connection of its own, because the command line asks little.
pub(super) struct Client {
    socket: PathBuf,
    coordinator_socket: PathBuf,
}

impl Client {
    pub(super) const fn new(socket: PathBuf, coordinator_socket: PathBuf) -> Self {
        Self { socket, coordinator_socket }
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        read(self.send(Method::GET, path, Bytes::new()).await?).await
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, CliError> {
        read(self.send(Method::POST, path, to_bytes(body)?).await?).await
    }

    /// Sends a POST that creates an object. Says on the standard error if the same request created
    /// it before.
    pub(super) async fn create<T: DeserializeOwned>(
        &self,
        path: &str,
        what: &str,
        body: &impl Serialize,
    ) -> Result<T, CliError> {
        let response = self.send(Method::POST, path, to_bytes(body)?).await?;
        if response.status() == StatusCode::OK {
            let told = format!("this {what} exists already: the same request created it before");
            let _ = writeln!(io::stderr(), "agent-coordinator: {told}");
        }
        read(response).await
    }

    pub(super) async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, CliError> {
        read(self.send(Method::PATCH, path, to_bytes(body)?).await?).await
    }

    /// Sends a POST whose answer has no body.
    pub(super) async fn post_only(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<(), CliError> {
        let response = self.send(Method::POST, path, to_bytes(body)?).await?;
        if response.status().is_success() { Ok(()) } else { Err(refusal(response).await?.into()) }
    }

    /// Sends a DELETE whose answer has no body.
    pub(super) async fn delete(&self, path: &str) -> Result<(), CliError> {
        let response = self.send(Method::DELETE, path, Bytes::new()).await?;
        if response.status().is_success() { Ok(()) } else { Err(refusal(response).await?.into()) }
    }

    /// Sends a DELETE whose answer says what was done.
    pub(super) async fn delete_and_read<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<T, CliError> {
        read(self.send(Method::DELETE, path, Bytes::new()).await?).await
    }

    /// Sends a POST and returns the refusal as a value, for a caller that examines it.
    pub(super) async fn post_or_problem<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Result<T, Problem>, CliError> {
        read_or_problem(self.send(Method::POST, path, to_bytes(body)?).await?).await
    }

    /// Sends a PATCH and returns the refusal as a value.
    pub(super) async fn patch_or_problem<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Result<T, Problem>, CliError> {
        read_or_problem(self.send(Method::PATCH, path, to_bytes(body)?).await?).await
    }

    /// Sends a body that is not JSON, and returns the refusal as a value.
    pub(super) async fn post_text_or_problem<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Bytes,
    ) -> Result<Result<T, Problem>, CliError> {
        read_or_problem(self.send(Method::POST, path, body).await?).await
    }

    /// Hands each piece of the body to `take` as it comes. Returns the headers of the answer.
    pub(super) async fn stream(
        &self,
        path: &str,
        mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<HeaderMap, CliError> {
        let mut opened = self.open(path).await?;
        while let Some(piece) = opened.next().await? {
            take(&piece)?;
        }
        Ok(opened.headers)
    }

    /// Begins to read an answer that comes in pieces.
    pub(super) async fn open(&self, path: &str) -> Result<Opened, CliError> {
        let response = self.send(Method::GET, path, Bytes::new()).await?;
        if !response.status().is_success() {
            return Err(refusal(response).await?.into());
        }
        let (head, body) = response.into_parts();
        Ok(Opened { headers: head.headers, body })
    }

    async fn connect(&self) -> Result<UnixStream, CliError> {
        let is_absent = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
        };
        let failed = match UnixStream::connect(&self.socket).await {
            Ok(stream) => return Ok(stream),
            Err(error) if is_absent(&error) => {
                match UnixStream::connect(&self.coordinator_socket).await {
                    Ok(stream) => return Ok(stream),
                    Err(error) if is_absent(&error) => {
                        return Err(CliError::NoDaemon { at: self.socket.display().to_string() });
                    }
                    Err(error) => (&self.coordinator_socket, error),
                }
            }
            Err(error) => (&self.socket, error),
        };
        let (socket, error) = failed;
        Err(CliError::Failed(format!(
            "could not reach the daemon at {}: {error}",
            socket.display()
        )))
    }

    #[allow(clippy::disallowed_methods, reason = "the connection ends with its request")]
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, CliError> {
        let stream = self.connect().await?;
        let broken =
            |error: hyper::Error| CliError::Lost(format!("the daemon did not answer: {error}"));
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(format!("/api{path}"))
            .header("host", "agent-coordinator")
            .header("content-type", "application/json")
            .body(Full::new(body))
            .map_err(|error| CliError::Usage(format!("not a valid request: {error}")))?;
        sender.send_request(request).await.map_err(broken)
    }
}

/// An answer that comes in pieces.
pub(super) struct Opened {
    pub(super) headers: HeaderMap,
    body: Incoming,
}

impl Opened {
    /// Returns the next piece; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, CliError> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|_| {
                CliError::Lost(
                    "the daemon closed the connection; try again when it runs".to_owned(),
                )
            })?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

/// Returns a text in the form that a query string can contain.
pub(super) fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let bytes = text.bytes().map(|byte| match byte {
        plain if is_plain(plain) => char::from(plain).to_string(),
        other => format!("%{other:02X}"),
    });
    bytes.collect()
}

fn to_bytes(body: &impl Serialize) -> Result<Bytes, CliError> {
    serde_json::to_vec(body).map(Bytes::from).map_err(|error| CliError::Usage(error.to_string()))
}

async fn collect(response: Response<Incoming>) -> Result<Bytes, CliError> {
    let body = response.into_body().collect().await;
    Ok(body
        .map_err(|error| {
            CliError::Lost(format!("the daemon closed the connection during its answer: {error}"))
        })?
        .to_bytes())
}

async fn read<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, CliError> {
    if !response.status().is_success() {
        return Err(refusal(response).await?.into());
    }
    serde_json::from_slice(&collect(response).await?).map_err(|error| {
        CliError::Failed(format!(
            "the daemon's answer is not valid: {error}; is it another version?"
        ))
    })
}

async fn read_or_problem<T: DeserializeOwned>(
    response: Response<Incoming>,
) -> Result<Result<T, Problem>, CliError> {
    if response.status().is_success() {
        Ok(Ok(read(response).await?))
    } else {
        Ok(Err(refusal(response).await?))
    }
}

async fn refusal(response: Response<Incoming>) -> Result<Problem, CliError> {
    let status = response.status();
    let body = collect(response).await?;
    Ok(serde_json::from_slice(&body).unwrap_or_else(|_| {
        let status = if status.is_success() { StatusCode::INTERNAL_SERVER_ERROR } else { status };
        Problem::new(status, "unknown", format!("the daemon answered {status}"))
    }))
}
