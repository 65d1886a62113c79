//! Blocking clients of the two sockets and the HTTP port. They do as little as possible, so that
//! the server is measured.

use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

/// The deadline of a call. Nothing here may take as long.
pub const TIMEOUT: Duration = Duration::from_secs(30);

fn connect(socket: &Path) -> Result<BufReader<UnixStream>> {
    let stream = UnixStream::connect(socket)
        .with_context(|| format!("could not connect to `{}`", socket.display()))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(BufReader::new(stream))
}

/// One connection to the MCP socket, without a handshake.
pub struct Mcp {
    lines: BufReader<UnixStream>,
    line: String,
}

impl Mcp {
    pub fn connect(socket: &Path) -> Result<Self> {
        Ok(Self { lines: connect(socket)?, line: String::new() })
    }

    /// Calls a tool and returns its answer.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        let request = request(tool, arguments);
        let mut answer: Value = serde_json::from_str(self.exchange(&request)?)?;
        ensure!(answer["result"]["isError"] != true, "{tool}: {answer}");
        Ok(answer["result"]["structuredContent"].take())
    }

    /// Sends one line to the server and returns the next line.
    pub fn exchange(&mut self, request: &str) -> Result<&str> {
        self.lines.get_mut().write_all(request.as_bytes())?;
        self.line.clear();
        let n_read = self.lines.read_line(&mut self.line)?;
        ensure!(n_read > 0, "the server closed the connection");
        Ok(&self.line)
    }
}

/// Returns a tool call as a line.
pub fn request(tool: &str, arguments: &Value) -> String {
    let params = json!({ "name": tool, "arguments": arguments });
    format!("{}\n", json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }))
}

/// One connection to the control socket, for any number of requests.
pub struct Control(BufReader<UnixStream>);

impl Control {
    pub fn connect(socket: &Path) -> Result<Self> {
        Ok(Self(connect(socket)?))
    }

    pub fn get(&mut self, path: &str) -> Result<Value> {
        self.ask("GET", path, "")
    }

    pub fn post(&mut self, path: &str, body: &Value) -> Result<Value> {
        self.ask("POST", path, &body.to_string())
    }

    pub fn patch(&mut self, path: &str, body: &Value) -> Result<Value> {
        self.ask("PATCH", path, &body.to_string())
    }

    pub fn set_status(&mut self, task: &str, status: &str) -> Result<()> {
        self.ask("PATCH", &format!("/tasks/{task}"), &json!({ "status": status }).to_string())
            .map(drop)
    }

    /// Stops all agents and all starts until `resume`.
    pub fn stop_all(&mut self) -> Result<()> {
        self.post("/stop", &json!({ "all": true })).map(drop)
    }

    pub fn resume(&mut self) -> Result<()> {
        self.post("/resume", &json!({ "all": true })).map(drop)
    }

    fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<Value> {
        let request = format!(
            "{method} /api{path} HTTP/1.1\r\nhost: agent-coordinator\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.get_mut().write_all(request.as_bytes())?;
        let (status, text) = answer(&mut self.0)?;
        let is_success = status.split(' ').nth(1).is_some_and(|code| code.starts_with('2'));
        ensure!(is_success, "{method} {path}: {status} {}", String::from_utf8_lossy(&text));
        Ok(if text.is_empty() { Value::Null } else { serde_json::from_slice(&text)? })
    }
}

/// A client that follows the events of `path`.
pub struct Follower(BufReader<UnixStream>);

impl Follower {
    pub fn start(socket: &Path, path: &str) -> Result<Self> {
        let mut stream = connect(socket)?;
        stream
            .get_mut()
            .write_all(format!("GET /api{path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes())?;
        let mut follower = Self(stream);
        // This line has the position from which on the follower gets everything.
        follower.until_line(|line| line.starts_with("id:"))?;
        Ok(follower)
    }

    /// Reads up to the event for which `is_it` returns true, given its JSON.
    pub fn until_heard(&mut self, mut is_it: impl FnMut(&str) -> bool) -> Result<()> {
        self.until_line(|line| line.strip_prefix("data:").is_some_and(&mut is_it))
    }

    fn until_line(&mut self, mut is_it: impl FnMut(&str) -> bool) -> Result<()> {
        let mut line = String::new();
        loop {
            line.clear();
            ensure!(self.0.read_line(&mut line)? > 0, "the stream of events ended");
            if is_it(&line) {
                return Ok(());
            }
        }
    }
}

/// One connection to the HTTP port, for any number of tool calls.
pub struct Web {
    stream: BufReader<TcpStream>,
    address: String,
    token: String,
}

impl Web {
    /// Connects like a coordinator with this token.
    pub fn connect(address: &str, token: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)
            .with_context(|| format!("could not connect to {address}"))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::new(stream),
            address: address.to_owned(),
            token: token.to_owned(),
        })
    }

    /// Connects by the URL of the endpoint.
    pub fn of_url(url: &str, token: &str) -> Result<Self> {
        let address = url.trim_start_matches("http://").split('/').next().unwrap_or_default();
        Self::connect(address, token)
    }

    /// Calls a tool and returns its answer.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        let request = self.request(tool, arguments);
        let mut answer: Value = serde_json::from_slice(&self.exchange(&request)?)?;
        ensure!(answer["result"]["isError"] != true, "{tool}: {answer}");
        Ok(answer["result"]["structuredContent"].take())
    }

    /// Returns a call as the text of a request.
    pub fn request(&self, tool: &str, arguments: &Value) -> String {
        let (Self { address, token, .. }, body) = (self, request(tool, arguments));
        let length = body.len();
        format!(
            "POST /mcp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-protocol-version: 2025-11-25\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
    }

    /// Sends one request to the server and returns the body of its answer.
    pub fn exchange(&mut self, request: &str) -> Result<Vec<u8>> {
        self.stream.get_mut().write_all(request.as_bytes())?;
        let (status, body) = answer(&mut self.stream)?;
        ensure!(status.contains(" 200 "), "{status}: {}", String::from_utf8_lossy(&body));
        Ok(body)
    }
}

/// Returns the first line and the body of an HTTP server's answer.
pub fn answer(stream: &mut impl BufRead) -> Result<(String, Vec<u8>)> {
    let status = line(stream)?;
    let mut length = 0;
    loop {
        let header = line(stream)?.to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((status, body))
}

fn line(stream: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    ensure!(!line.is_empty(), "the daemon closed the connection");
    Ok(line.trim_end().to_owned())
}
