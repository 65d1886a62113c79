//! `agent-coordinator mcp`: the agents' door on standard input and output.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead as _, BufReader, Write as _};
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
        let answer = self.request(id, "tools/call", &json!({ "name": "health_check", "arguments": {} }));
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
fn a_client_on_standard_input_is_served_across_a_restart_until_it_ends() {
    let mut daemon = Daemon::running("");
    let mut bridge = Bridge::to(&daemon);
    let client = json!({ "name": "a test", "version": "1" });
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    assert_eq!(bridge.request(1, "initialize", &hello)["result"]["serverInfo"]["name"], "agent-coordinator");
    assert!(bridge.request(2, "tools/list", &json!({}))["result"]["tools"].as_array().unwrap().len() > 7);
    assert!(bridge.is_well(3));
    assert!(daemon.terminate().success());
    daemon.start();
    assert!(bridge.is_well(4));
    bridge.input = None;
    let status = until_some("the bridge has ended", || bridge.child.try_wait().unwrap());
    assert!(status.success());
}
