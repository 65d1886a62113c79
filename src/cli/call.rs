//! `call` makes one MCP tool call, for agents that are scripts and for people.
//!
//! A secret doesn't belong in an argument list, because every user of the machine can read it.
//! Therefore arguments that the JSON lacks are taken from the environment that the coordinator
//! gives its agents.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::error::CliError;
use super::http_door::{self, HttpDoor};
use super::output::print_answer;
use crate::clock;
use crate::config::Environment;
use crate::domain::ServerAddress;

/// The variable in which a script keeps the token that `authenticate` returned.
const SESSION_VARIABLE: &str = "AGENT_SESSION_TOKEN";
/// The variable for the token of a script that calls a coordinator's tools.
const COORDINATOR_VARIABLE: &str = "COORDINATOR_TOKEN";
/// The arguments of `authenticate` that are taken from the environment, with their variables.
const FROM_ENVIRONMENT: [(&str, &str); 3] =
    [("agent_id", "AGENT_ID"), ("passkey", "AGENT_PASSKEY"), ("project_id", "PROJECT_ID")];

/// The time that an agent's call waits for a server that is away.
const AGENTS_PATIENCE: Duration = Duration::from_mins(1);
/// The first and the longest pause between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The code of the JSON-RPC error for a server that has no room now.
const NO_ROOM: i64 = -32000;
/// The tools that can be called again: a second call gives the same answer or changes nothing
/// further.
const REPEATABLE: [&str; 10] = [
    "authenticate",
    "get_my_task",
    "get_next_action",
    "get_notifications",
    "get_pending_messages",
    "health_check",
    "report_completed",
    "respond_chat",
    "should_start",
    "update_task_status",
];

#[derive(Debug, clap::Args)]
#[command(
    after_help = "authenticate takes agent_id, passkey and project_id from AGENT_ID, AGENT_PASSKEY and PROJECT_ID where \
                        the JSON doesn't say them; every other tool takes session_token from AGENT_SESSION_TOKEN and coordinator_token from COORDINATOR_TOKEN. The server is the one \
                        of COORDINATOR_MCP_SOCKET or COORDINATOR_MCP_URL, else that of the configuration. Called by an agent, it waits up to a \
                        minute for a server that is being restarted."
)]
pub(super) struct CallArguments {
    /// Name of the tool
    tool: String,
    /// Its arguments as a JSON object; `-` reads them from standard input
    arguments: Option<String>,
    /// Print only this field of the answer, a text without quotes
    #[arg(long, value_name = "FIELD")]
    get: Option<String>,
}

impl CallArguments {
    pub(super) fn call(
        self,
        environment: &Environment,
        server: &ServerAddress,
    ) -> Result<(), CliError> {
        let arguments = complete(&self.tool, self.parse_arguments()?, environment);
        // An agent outlives a restart of its server, and so must its calls. A person wants to know
        // at once.
        let patience = if environment.variable("AGENT_LAUNCH_ID").is_some() {
            AGENTS_PATIENCE
        } else {
            Duration::ZERO
        };
        let result = exchange(server, &self.tool, arguments, patience)?;
        let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
        let answer = result.get("structuredContent").unwrap_or(&result);
        match &self.get {
            Some(field) if !is_error => match answer.get(field) {
                Some(Value::String(text)) => print_answer(text)?,
                Some(value) => print_answer(&value.to_string())?,
                None => {
                    return Err(CliError::Failed(format!(
                        "the answer of {} has no field `{field}`",
                        self.tool
                    )));
                }
            },
            // A script takes the output of `--get` for the value of the field, so a refusal prints
            // nothing there.
            Some(_) => {}
            None => print_answer(&answer.to_string())?,
        }
        if is_error {
            let error = answer.get("error").and_then(Value::as_str).unwrap_or("refused");
            return Err(CliError::Failed(format!("{}: {error}", self.tool)));
        }
        Ok(())
    }

    fn parse_arguments(&self) -> Result<Map<String, Value>, CliError> {
        let text = match self.arguments.as_deref() {
            None => return Ok(Map::new()),
            Some("-") => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text)?;
                text
            }
            Some(text) => text.to_owned(),
        };
        serde_json::from_str(&text).map_err(|error| {
            CliError::Usage(format!("the arguments of {} are no JSON object: {error}", self.tool))
        })
    }
}

/// Returns the arguments, completed from the environment.
fn complete(
    tool: &str,
    mut arguments: Map<String, Value>,
    environment: &Environment,
) -> Map<String, Value> {
    let mut add = |name: &str, variable: &str| {
        if let (false, Some(value)) = (arguments.contains_key(name), environment.variable(variable))
        {
            arguments.insert(name.to_owned(), value.into());
        }
    };
    if tool == "authenticate" {
        for (name, variable) in FROM_ENVIRONMENT {
            add(name, variable);
        }
    } else {
        add("session_token", SESSION_VARIABLE);
        add("coordinator_token", COORDINATOR_VARIABLE);
    }
    arguments
}

/// Makes one request and returns its answer. The server takes a call without a handshake. With
/// `patience`, it waits for a server that is away, and repeats a repeatable call whose answer was
/// lost.
#[allow(clippy::disallowed_methods, reason = "the command has no other work")]
fn exchange(
    server: &ServerAddress,
    tool: &str,
    arguments: Map<String, Value>,
    patience: Duration,
) -> Result<Value, CliError> {
    let params = json!({ "name": tool, "arguments": Value::Object(arguments) });
    let request =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let give_up_at = clock::unpaused() + patience;
    let mut pause = FIRST_PAUSE;
    loop {
        let asked = match server {
            ServerAddress::Socket(socket) => connect_and_ask(socket, tool, &request),
            ServerAddress::Url(url) => post(url, tool, &request),
        };
        let error = match asked {
            Ok(answer) => return answer,
            Err(Lost::Connection(error)) => error,
            Err(Lost::Answer(error)) if REPEATABLE.contains(&tool) => error,
            Err(Lost::Answer(error)) => return Err(error),
        };
        if clock::unpaused() + pause > give_up_at {
            return Err(error);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The reason for a missing answer.
enum Lost {
    /// The request did not reach a server.
    Connection(CliError),
    /// The request was sent. It is not known whether the call was carried out.
    Answer(CliError),
}

fn connect_and_ask(
    socket: &Path,
    tool: &str,
    request: &str,
) -> Result<Result<Value, CliError>, Lost> {
    let mut stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
            Lost::Connection(CliError::NoDaemon { at: socket.display().to_string() })
        }
        _ => Lost::Connection(CliError::Failed(format!(
            "could not reach the server at {}: {error}",
            socket.display()
        ))),
    })?;
    let lost = |error: std::io::Error| {
        Lost::Answer(CliError::Failed(format!("the server did not answer {tool}: {error}")))
    };
    // A server without room for the connection says so before it closes, perhaps without taking the
    // request.
    let written = writeln!(stream, "{request}");
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(lost)?;
        if let Some(problem) = no_room(line.as_bytes()) {
            return Err(Lost::Connection(CliError::Failed(format!("{tool}: {problem}"))));
        }
        if let Some(answer) = read(tool, line.as_bytes()) {
            return Ok(answer);
        }
    }
    written.map_err(lost)?;
    Err(unanswered(tool))
}

/// Returns the reason why the server has no room for the connection or the request, if the message
/// gives one. The server has carried out nothing then.
fn no_room(message: &[u8]) -> Option<String> {
    let message: Value = serde_json::from_slice(message).ok()?;
    let error = message.get("error").filter(|error| error["code"] == NO_ROOM)?;
    message
        .get("id")?
        .is_null()
        .then(|| error["message"].as_str().unwrap_or("the server has no room").to_owned())
}

fn unanswered(tool: &str) -> Lost {
    Lost::Answer(CliError::Failed(format!(
        "the server closed the connection without answering {tool}"
    )))
}

/// Returns the answer in a message of the server, or `None` for any other message.
fn read(tool: &str, message: &[u8]) -> Option<Result<Value, CliError>> {
    let mut answer: Value = match serde_json::from_slice(message) {
        Ok(answer) => answer,
        Err(error) => {
            let problem = format!("the server's answer to {tool} is not understood: {error}");
            return Some(Err(CliError::Failed(problem)));
        }
    };
    if answer.get("id") != Some(&json!(1)) {
        return None;
    }
    if let Some(error) = answer.get("error") {
        let message = error.get("message").and_then(Value::as_str).unwrap_or("unknown error");
        return Some(Err(CliError::Failed(message.to_owned())));
    }
    Some(Ok(answer["result"].take()))
}

/// Makes the request over HTTP.
fn post(url: &str, tool: &str, request: &str) -> Result<Result<Value, CliError>, Lost> {
    let failed = |error: &dyn std::fmt::Display| {
        Lost::Connection(CliError::Failed(format!("could not use HTTP: {error}")))
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(&error))?;
    let door = HttpDoor::new(url).map_err(|error| failed(&error))?;
    let mut answer = None;
    let take = |message: Vec<u8>| answer = read(tool, &message).or(answer.take());
    match runtime.block_on(door.post(request.as_bytes(), None, take)) {
        Ok(()) => answer.ok_or_else(|| unanswered(tool)),
        Err(http_door::Lost::Connection(problem)) => {
            Err(Lost::Connection(CliError::NoDaemon { at: format!("{url} ({problem})") }))
        }
        Err(http_door::Lost::Answer(problem)) => Err(Lost::Answer(CliError::Failed(format!(
            "the server did not answer {tool}: {problem}"
        )))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_call_is_made_again_when_the_server_had_no_room_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("mcp.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let refusal = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": NO_ROOM, "message": "it is full" } });
        let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": { "done": true } });
        let server = std::thread::spawn(move || {
            for message in [&refusal, &refusal, &answer] {
                let (mut stream, _) = listener.accept().unwrap();
                writeln!(stream, "{message}").unwrap();
            }
        });
        let server_at = ServerAddress::Socket(socket);
        let ask = |patience| exchange(&server_at, "report_completed", Map::new(), patience);
        let Err(CliError::Failed(refused)) = ask(Duration::ZERO) else { panic!("it is refused") };
        assert_eq!(refused, "report_completed: it is full");
        assert_eq!(ask(AGENTS_PATIENCE).ok(), Some(json!({ "done": true })));
        server.join().unwrap();
    }
}
