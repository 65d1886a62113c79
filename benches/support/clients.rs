//! Blocking clients of the two sockets: as little of a client as there can be, so that the server is what is measured.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

/// Longer than anything here may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

fn connect(socket: &Path) -> Result<BufReader<UnixStream>> {
    let stream = UnixStream::connect(socket).with_context(|| format!("could not connect to `{}`", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
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

    /// Calls a tool; its answer.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        let request = request(tool, arguments);
        let mut answer: Value = serde_json::from_str(self.exchange(&request)?)?;
        ensure!(answer["result"]["isError"] != true, "{tool}: {answer}");
        Ok(answer["result"]["structuredContent"].take())
    }

    /// One line to the server, one line back.
    pub fn exchange(&mut self, request: &str) -> Result<&str> {
        self.lines.get_mut().write_all(request.as_bytes())?;
        self.line.clear();
        let n_read = self.lines.read_line(&mut self.line)?;
        ensure!(n_read > 0, "the server closed the connection");
        Ok(&self.line)
    }
}

/// A tool call as a line.
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

    pub fn set_status(&mut self, task: &str, status: &str) -> Result<()> {
        self.ask("PATCH", &format!("/tasks/{task}"), &json!({ "status": status }).to_string()).map(drop)
    }

    /// No new starts until `resume`; what runs is stopped.
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
        let status = self.line()?;
        let mut length = 0;
        loop {
            let header = self.line()?.to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let mut text = vec![0; length];
        self.0.read_exact(&mut text)?;
        let is_success = status.split(' ').nth(1).is_some_and(|code| code.starts_with('2'));
        ensure!(is_success, "{method} {path}: {status} {}", String::from_utf8_lossy(&text));
        Ok(if text.is_empty() { Value::Null } else { serde_json::from_slice(&text)? })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the daemon closed the connection");
        Ok(line.trim_end().to_owned())
    }
}
