//! The contract of the HTTP interface: `/mcp` for all kinds of clients, other requests that reach a
//! port, and the port itself.
#![allow(clippy::unwrap_used, reason = "a test")]

mod agents;
mod audit;
mod bad_requests;
mod calls;
pub mod changes;
mod entry;
mod guesses;
mod hosts;
mod listening;
mod removals;
mod slow_clients;
mod waits;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::support::DEADLINE;

/// The settings of a daemon that listens on a port of its own.
const LISTENING: &str = "http: { listen: '127.0.0.1:0' }\n";

/// A manifest with Ann in a project, with a task for her.
const WORLD: &str = "
agents:
  agt_a: { name: Ann, passkey: key_a }
projects:
  prj: { name: Project, working_directory: work, agents: [agt_a] }
tasks:
  tsk: { project: prj, title: Login page, assignee: agt_a, status: in_progress }
";

/// One connection of a client that does as little as possible.
pub struct Web {
    stream: TcpStream,
    /// The bytes behind the last answer.
    rest: Vec<u8>,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// The headers, with names in lower case.
    headers: Vec<(String, String)>,
    pub body: String,
}

fn address(daemon: &Daemon) -> SocketAddr {
    daemon.status()["http"]["address"].as_str().unwrap().parse().unwrap()
}

impl Web {
    fn to(daemon: &Daemon) -> Self {
        Self::connect(address(daemon))
    }

    pub fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, rest: Vec::new() }
    }

    /// Sends bytes unchanged. A server that has answered already may not accept them.
    fn send(&mut self, text: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(text.as_ref());
    }

    /// Returns the next answer, or `None` when the server has closed.
    fn receive(&mut self) -> Option<Answer> {
        let head_end = loop {
            if let Some(at) = self.rest.windows(4).position(|window| window == b"\r\n\r\n") {
                break at;
            }
            self.more()?;
        };
        let head = String::from_utf8(self.rest.drain(..head_end + 4).collect()).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let mut answer = Answer { status, headers, body: String::new() };
        if status == 100 {
            return Some(answer);
        }
        let body = match answer.header("content-length") {
            Some(length) => self.exactly(length.parse().unwrap())?,
            None if answer.header("transfer-encoding") == Some("chunked") => self.chunks()?,
            None => Vec::new(),
        };
        answer.body = String::from_utf8(body).unwrap();
        Some(answer)
    }

    fn more(&mut self) -> Option<()> {
        let mut piece = [0; 4096];
        let n_read = loop {
            match self.stream.read(&mut piece) {
                // A child process of this test program has ended.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break 0,
                read => break read.unwrap(),
            }
        };
        self.rest.extend_from_slice(&piece[..n_read]);
        (n_read > 0).then_some(())
    }

    fn exactly(&mut self, n_bytes: usize) -> Option<Vec<u8>> {
        while self.rest.len() < n_bytes {
            self.more()?;
        }
        Some(self.rest.drain(..n_bytes).collect())
    }

    fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let at = loop {
                if let Some(at) = self.rest.windows(2).position(|window| window == b"\r\n") {
                    break at;
                }
                self.more()?;
            };
            let size = String::from_utf8(self.exactly(at + 2)?).unwrap();
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            body.extend(self.exactly(size)?);
            self.exactly(2)?;
            if size == 0 {
                return Some(body);
            }
        }
    }

    /// Sends a POST to /mcp with these headers beside the usual ones.
    pub fn post(&mut self, headers: &str, body: &[u8]) -> Option<Answer> {
        self.send(request_head(headers, body.len()));
        self.send(body);
        self.receive()
    }

    /// Sends a simple JSON-RPC request.
    #[track_caller]
    fn request(&mut self, headers: &str, method: &str, params: &Value) -> Answer {
        let request = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        self.post(
            &format!("Content-Type: application/json\r\n{headers}"),
            request.to_string().as_bytes(),
        )
        .unwrap()
    }

    /// Calls a tool and returns the object of its answer. Checks that it is the same as structure
    /// and as text.
    #[track_caller]
    fn call_with(&mut self, headers: &str, tool: &str, arguments: &Value) -> Value {
        let answer =
            self.request(headers, "tools/call", &json!({ "name": tool, "arguments": arguments }));
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, Some("application/json")),
            "{answer:?}"
        );
        let result = answer.json()["result"].clone();
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer:?}"));
        assert_eq!(text, result["structuredContent"].to_string());
        result["structuredContent"].clone()
    }

    #[track_caller]
    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.call_with("", tool, arguments)
    }

    /// Checks that the server carries out a call on this connection.
    #[track_caller]
    fn check_well(&mut self) {
        assert_eq!(self.call("health_check", &json!({}))["status"], "ok");
    }

    /// Sends a GET and returns the answer.
    fn get(&mut self, path: &str, headers: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\n{headers}\r\n"));
        self.receive().unwrap()
    }

    /// Returns a handle by which another thread can close the connection.
    pub fn other_end(&self) -> TcpStream {
        self.stream.try_clone().unwrap()
    }

    fn half_close(&self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns its messages: one, none, or those of a stream.
    pub fn messages(&self) -> Vec<String> {
        if self.header("content-type") == Some("text/event-stream") {
            let data =
                self.body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
            return data.filter(|data| !data.is_empty()).map(str::to_owned).collect();
        }
        Some(self.body.clone()).filter(|body| !body.is_empty()).into_iter().collect()
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// Checks that it is this problem, and that its text contains `words`.
    #[track_caller]
    fn check_problem(&self, status: u16, code: &str, words: &str) {
        assert_eq!(
            (self.status, self.header("content-type")),
            (status, Some("application/problem+json")),
            "{self:?}"
        );
        let problem = self.json();
        assert_eq!(
            (&problem["status"], &problem["code"]),
            (&status.into(), &code.into()),
            "{self:?}"
        );
        assert!(problem["detail"].as_str().unwrap().contains(words), "{self:?}");
    }
}

fn request_head(headers: &str, length: usize) -> String {
    format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{headers}\r\n")
}

pub const JSON: &str = "Content-Type: application/json\r\n";
const HEALTH: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"health_check"}}"#;
