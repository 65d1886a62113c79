//! A server of the older system: three steps of its loop on a Unix socket, and
//! `report_process_exit` in its older form.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// A running server with its socket in a folder of its own.
pub struct SeedServer {
    folder: tempfile::TempDir,
    state: Arc<State>,
}

struct State {
    /// The working directory of its agents.
    work: PathBuf,
    /// The agents that should start.
    wanted: Mutex<Vec<String>>,
    /// The code with which it refuses `should_start`, if it does.
    refusal: Mutex<Option<&'static str>>,
    /// The tool calls with their arguments.
    calls: Mutex<Vec<(String, Value)>>,
}

const AGENTS: [&str; 2] = ["agt", "stranger"];

impl SeedServer {
    pub fn start(work: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("mcp.sock")).unwrap();
        let (wanted, refusal, calls) = Default::default();
        let state = Arc::new(State { work: work.to_owned(), wanted, refusal, calls });
        let serving = Arc::clone(&state);
        // The thread ends with the process of the tests. It holds nothing but its socket.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (state, stream) = (Arc::clone(&serving), stream.unwrap());
                std::thread::spawn(move || state.talk(stream));
            }
        });
        Self { folder, state }
    }

    pub fn address(&self) -> String {
        format!("unix:{}", self.folder.path().join("mcp.sock").display())
    }

    pub fn want(&self, agents: &[&str]) {
        *self.state.wanted.lock().unwrap() =
            agents.iter().map(|agent| (*agent).to_owned()).collect();
    }

    pub fn refuse(&self, word: Option<&'static str>) {
        *self.state.refusal.lock().unwrap() = word;
    }

    /// Returns the arguments of each call of `tool` so far.
    pub fn calls(&self, tool: &str) -> Vec<Value> {
        let calls = self.state.calls.lock().unwrap();
        calls
            .iter()
            .filter(|(name, _)| name == tool)
            .map(|(_, arguments)| arguments.clone())
            .collect()
    }
}

impl State {
    fn talk(&self, stream: UnixStream) {
        let mut writer = stream.try_clone().unwrap();
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            let request: Value = serde_json::from_str(&line).unwrap();
            if request.get("id").is_none() {
                continue;
            }
            let result = match request["method"].as_str().unwrap() {
                "initialize" => json!({
                    "protocolVersion": "2024-11-05", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "seed", "version": "1" }
                }),
                "tools/list" => json!({ "tools": tools() }),
                "tools/call" => self.call(&request["params"]),
                _ => json!({}),
            };
            let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
            if writeln!(writer, "{answer}").is_err() {
                return;
            }
        }
    }

    /// Answers with text alone, like servers at that time.
    fn call(&self, params: &Value) -> Value {
        let (tool, arguments) = (params["name"].as_str().unwrap(), &params["arguments"]);
        self.calls.lock().unwrap().push((tool.to_owned(), arguments.clone()));
        let answer = match tool {
            "health_check" => json!({ "status": "ok" }),
            "list_active_projects_with_agents" => json!({
                "success": true,
                "projects": [{
                    "project_id": "prj", "project_name": "a project", "working_directory": self.work, "agents": AGENTS
                }]
            }),
            "should_start" => {
                if let Some(word) = *self.refusal.lock().unwrap() {
                    let answer = json!({ "success": false, "error_code": word });
                    return json!({ "content": [{ "type": "text", "text": answer.to_string() }] });
                }
                let is_wanted =
                    self.wanted.lock().unwrap().iter().any(|agent| arguments["agent_id"] == *agent);
                if is_wanted {
                    json!({ "should_start": true, "ai_type": "claude" })
                } else {
                    json!({ "should_start": false })
                }
            }
            _ => json!({ "success": true }),
        };
        json!({ "content": [{ "type": "text", "text": answer.to_string() }] })
    }
}

fn tools() -> Vec<Value> {
    let tool = |name: &str, arguments: &[&str]| {
        let properties: serde_json::Map<String, Value> = arguments
            .iter()
            .map(|argument| ((*argument).to_owned(), json!({ "type": "string" })))
            .collect();
        json!({ "name": name, "inputSchema": { "type": "object", "properties": properties } })
    };
    vec![
        tool("health_check", &[]),
        tool("list_active_projects_with_agents", &[]),
        tool("should_start", &["agent_id", "project_id"]),
        tool("report_process_exit", &["agent_id", "project_id", "exit_code"]),
    ]
}
