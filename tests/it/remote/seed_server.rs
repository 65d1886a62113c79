//! A server of the older system: three steps of its loop on a Unix socket, and
//! `report_process_exit` in its older form.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
    /// The status of its health.
    health: Mutex<&'static str>,
    /// It refuses the list of projects.
    refuses_list: Mutex<bool>,
    form: Form,
    /// The number of connections that it closes before it answers again.
    n_closed: Mutex<u32>,
    /// The number of requests that came before the question in front of them was answered.
    n_early: Mutex<u32>,
    /// The tool calls with their arguments.
    calls: Mutex<Vec<(String, Value)>>,
}

/// The form of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// It knows the handshake and answers many requests on a connection.
    Usual,
    /// It knows `tools/call` only, and closes the connection after each answer.
    Bare,
    /// The question about `gone` ends it. It closes some connections until it is back.
    Fragile,
    /// It answers one question at a time, and takes [`THINKS_FOR`] for each. It has many agents.
    OneAtATime,
}

/// The agents of its project. The server refuses to answer about `bad`, closes the connection
/// without an answer about `gone`, and never answers about `stuck`.
const AGENTS: [&str; 5] = ["bad", "gone", "stuck", "agt", "stranger"];
/// The agents of a server that answers one question at a time.
pub const MANY_AGENTS: [&str; 14] = [
    "agt_1", "agt_2", "agt_3", "agt_4", "agt_5", "agt_6", "agt_7", "agt_8", "agt_9", "agt_10",
    "agt_11", "agt_12", "agt_13", "agt_14",
];
/// The time that a slow answer takes, unless another request comes meanwhile.
const THINKS_FOR: Duration = Duration::from_millis(100);

impl SeedServer {
    pub fn start(work: &Path) -> Self {
        Self::of_form(work, Form::Usual)
    }

    pub fn of_form(work: &Path, form: Form) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("mcp.sock")).unwrap();
        let state = Arc::new(State {
            work: work.to_owned(),
            wanted: Mutex::default(),
            refusal: Mutex::default(),
            health: Mutex::new("ok"),
            refuses_list: Mutex::default(),
            form,
            n_closed: Mutex::default(),
            n_early: Mutex::default(),
            calls: Mutex::default(),
        });
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

    pub fn be(&self, health: &'static str) {
        *self.state.health.lock().unwrap() = health;
    }

    pub fn refuse_list(&self, refuses: bool) {
        *self.state.refuses_list.lock().unwrap() = refuses;
    }

    /// Returns the number of requests that came before the question in front of them was answered.
    pub fn n_early(&self) -> u32 {
        *self.state.n_early.lock().unwrap()
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
        if self.closes() {
            return;
        }
        let mut writer = stream.try_clone().unwrap();
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = String::new();
            if !reader.read_line(&mut line).is_ok_and(|n_bytes| n_bytes > 0) {
                return;
            }
            let request: Value = serde_json::from_str(&line).unwrap();
            if self.form == Form::OneAtATime && request["params"]["name"] == "should_start" {
                self.think(&mut reader);
            }
            if request.get("id").is_none() {
                continue;
            }
            let method = request["method"].as_str().unwrap();
            let id = &request["id"];
            let result = match method {
                "tools/call" => match self.call(&request["params"]) {
                    Some(result) => result,
                    None => return,
                },
                _ if self.form == Form::Bare => {
                    let error = json!({ "code": -32601, "message": "unknown method" });
                    let _ = writeln!(
                        writer,
                        "{}",
                        json!({ "jsonrpc": "2.0", "id": id, "error": error })
                    );
                    return;
                }
                "initialize" => json!({
                    "protocolVersion": "2024-11-05", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "seed", "version": "1" }
                }),
                "tools/list" => json!({ "tools": tools() }),
                _ => json!({}),
            };
            let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
            if writeln!(writer, "{answer}").is_err() || self.form == Form::Bare {
                return;
            }
        }
    }

    /// Takes the time for an answer, and counts a request that comes meanwhile.
    fn think(&self, reader: &mut BufReader<UnixStream>) {
        reader.get_ref().set_read_timeout(Some(THINKS_FOR)).unwrap();
        if reader.fill_buf().is_ok_and(|bytes| !bytes.is_empty()) {
            *self.n_early.lock().unwrap() += 1;
        }
        reader.get_ref().set_read_timeout(None).unwrap();
    }

    /// Returns whether it closes a new connection at once.
    fn closes(&self) -> bool {
        let mut n_closed = self.n_closed.lock().unwrap();
        let closes = *n_closed > 0;
        *n_closed = n_closed.saturating_sub(1);
        closes
    }

    /// Answers with text alone, like servers at that time. Returns `None` to close the connection
    /// without an answer.
    fn call(&self, params: &Value) -> Option<Value> {
        let (tool, arguments) = (params["name"].as_str().unwrap(), &params["arguments"]);
        self.calls.lock().unwrap().push((tool.to_owned(), arguments.clone()));
        let answer = match tool {
            "health_check" => json!({ "status": *self.health.lock().unwrap() }),
            "list_active_projects_with_agents" if *self.refuses_list.lock().unwrap() => {
                json!({ "success": false, "error": "the list is locked" })
            }
            "list_active_projects_with_agents" => {
                let agents: &[&str] =
                    if self.form == Form::OneAtATime { &MANY_AGENTS } else { &AGENTS };
                json!({
                    "success": true,
                    "projects": [{
                        "project_id": "prj", "project_name": "a project",
                        "working_directory": self.work, "agents": agents
                    }]
                })
            }
            "should_start" => {
                if let Some(word) = *self.refusal.lock().unwrap() {
                    return Some(text(&json!({ "success": false, "error_code": word })));
                }
                match arguments["agent_id"].as_str().unwrap() {
                    "bad" => {
                        return Some(text(&json!({ "success": false, "error": "a bad pair" })));
                    }
                    "gone" => {
                        if self.form == Form::Fragile {
                            *self.n_closed.lock().unwrap() = 3;
                        }
                        return None;
                    }
                    "stuck" => forever(),
                    _ => {}
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
        Some(text(&answer))
    }
}

fn text(answer: &Value) -> Value {
    json!({ "content": [{ "type": "text", "text": answer.to_string() }] })
}

/// The thread ends with the process of the tests.
fn forever() -> ! {
    loop {
        std::thread::park();
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
