//! `agent-coordinator mcp`: the agents' interface on standard input and output.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::support::until_some;

struct Bridge {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Bridge {
    fn to(daemon: &Daemon) -> Self {
        let mut command = daemon.command();
        command.arg("mcp").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn request(&mut self, id: u64, method: &str, params: &Value) -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(self.input.as_mut().unwrap(), "{request}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    fn is_well(&mut self, id: u64) -> bool {
        let answer =
            self.request(id, "tools/call", &json!({ "name": "health_check", "arguments": {} }));
        answer["id"] == id && answer["result"]["structuredContent"]["status"] == "ok"
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_bridge_to_a_socket_asks_nothing_over_http() {
    let daemon = Daemon::configured("");
    let socket = daemon.folder().join("later.sock");
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    web.set_nonblocking(true).unwrap();
    let mut command = daemon.command();
    command.arg("mcp").env("COORDINATOR_MCP_SOCKET", &socket);
    command.env("COORDINATOR_MCP_URL", format!("http://{}/mcp", web.local_addr().unwrap()));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.as_mut().unwrap(), r#"{{"id":1,"method":"x"}}"#).unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("no server at") && said.contains("later.sock"), "{said}");
    // The line waits for the socket, however long only the address is known.
    let listener = UnixListener::bind(&socket).unwrap();
    let mut connection = BufReader::new(listener.accept().unwrap().0);
    let mut line = String::new();
    connection.read_line(&mut line).unwrap();
    assert_eq!(line, "{\"id\":1,\"method\":\"x\"}\n");
    connection.get_mut().write_all(b"{\"id\":1,\"result\":{}}\n").unwrap();
    drop(child.stdin.take());
    assert!(until_some("the bridge has ended", || child.try_wait().unwrap()).success());
    assert_eq!(web.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_client_on_standard_input_is_served_across_a_restart_until_it_ends() {
    let mut daemon = Daemon::running("");
    let mut bridge = Bridge::to(&daemon);
    let client = json!({ "name": "a test", "version": "1" });
    let hello =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    assert_eq!(
        bridge.request(1, "initialize", &hello)["result"]["serverInfo"]["name"],
        "agent-coordinator"
    );
    assert!(
        bridge.request(2, "tools/list", &json!({}))["result"]["tools"].as_array().unwrap().len()
            > 7
    );
    assert!(bridge.is_well(3));
    assert!(daemon.terminate().success());
    daemon.start();
    assert!(bridge.is_well(4));
    bridge.input = None;
    let status = until_some("the bridge has ended", || bridge.child.try_wait().unwrap());
    assert!(status.success());
}
