//! `call` makes one MCP tool call, for agents that are scripts and for people.
//!
//! A secret doesn't belong in an argument list, because every user of the machine can read it.
//! Therefore arguments that the JSON lacks are taken from the environment that the coordinator
//! gives its agents.

use std::io::Read as _;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::error::CliError;
use super::kept_report::{Mailbox, REPORT, is_unavailable, report_of};
use super::output::print_answer;
use super::tool_help;
use super::waits::{FIRST_PAUSE, LONGEST_PAUSE, TIMEOUT};
use client::{Lost, McpClient, RequestError};
use config::Environment;
use domain::ServerAddress;
use runtime::clock;

/// The variable in which a script keeps the token that `authenticate` returned.
const SESSION_VARIABLE: &str = "AGENT_SESSION_TOKEN";
/// The variable for the token of a script that calls a coordinator's tools.
const COORDINATOR_VARIABLE: &str = "COORDINATOR_TOKEN";
/// The arguments of `authenticate` that are taken from the environment, with their variables.
const FROM_ENVIRONMENT: [(&str, &str); 3] =
    [("agent_id", "AGENT_ID"), ("passkey", "AGENT_PASSKEY"), ("project_id", "PROJECT_ID")];

/// JSON-RPC's code for errors of an implementation.
pub(super) const CONNECTION_LOST: i64 = -32000;
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
    disable_help_flag = true,
    after_help = "`authenticate` takes agent_id, passkey and project_id from AGENT_ID, AGENT_PASSKEY and \
                  PROJECT_ID if the JSON has none. Other tools take session_token from \
                  AGENT_SESSION_TOKEN and coordinator_token from COORDINATOR_TOKEN. \
                  COORDINATOR_MCP_SOCKET or COORDINATOR_MCP_URL name the server; otherwise the \
                  configuration does. In an agent, the command waits up to a minute for a server that \
                  restarts.\n\nExit codes: 0 done, 1 refused or failed, 2 usage, 69 no daemon, 78 configuration."
)]
pub(super) struct CallArguments {
    /// Name of the tool
    #[arg(required_unless_present_any = ["list", "help"])]
    tool: Option<String>,
    /// Its arguments as a JSON object; `-` reads them from standard input
    arguments: Option<String>,
    /// Print only this field of the answer, a text without quotes
    #[arg(long, value_name = "FIELD")]
    get: Option<String>,
    /// List the tools
    #[arg(long, conflicts_with_all = ["tool", "arguments", "get", "help"])]
    list: bool,
    /// Print JSON: the list, or the schema of the tool's arguments
    #[arg(long, conflicts_with = "get")]
    json: bool,
    /// Print help; after TOOL, the help of the tool
    #[arg(short, long)]
    help: bool,
}

impl CallArguments {
    /// Prints the list of the tools or a help text, without a daemon. Returns `None` if the
    /// arguments ask for a call.
    pub(super) fn explain(&self) -> Option<Result<(), CliError>> {
        match (&self.tool, self.list, self.help) {
            (_, true, _) => Some(tool_help::print_list(self.json)),
            (Some(tool), _, true) => Some(tool_help::print_tool(tool, self.json)),
            (None, _, _) => Some(tool_help::print_command()),
            (Some(_), _, false) => None,
        }
    }

    pub(super) fn call(
        self,
        environment: &Environment,
        server: &ServerAddress,
    ) -> Result<(), CliError> {
        let tool = self.tool.as_deref().unwrap_or_default();
        let arguments = complete(tool, self.parse_arguments(tool)?, environment);
        // An agent outlives a restart of its server, and so must its calls. A person wants to know
        // at once.
        let timeout = if environment.variable("AGENT_LAUNCH_ID").is_some() {
            TIMEOUT
        } else {
            Duration::ZERO
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let result = runtime.block_on(exchange(
            server,
            tool,
            arguments,
            timeout,
            &Mailbox::of(environment),
        ))?;
        let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
        let answer = result.get("structuredContent").unwrap_or(&result);
        match &self.get {
            Some(field) if !is_error => match answer.get(field) {
                Some(Value::String(text)) => print_answer(text)?,
                Some(value) => print_answer(&value.to_string())?,
                None => {
                    return Err(CliError::Failed(format!(
                        "the answer of {tool} has no field `{field}`"
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
            return Err(CliError::Failed(format!("{tool}: {error}")));
        }
        Ok(())
    }

    fn parse_arguments(&self, tool: &str) -> Result<Map<String, Value>, CliError> {
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
            CliError::Usage(format!("the arguments of {tool} are no JSON object: {error}"))
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

/// Calls the tool once and returns its result. With `timeout`, it waits for a server that is away,
/// and repeats a repeatable call whose answer was lost, or for which the store was away. A report
/// that has no answer even then goes into `mailbox`.
async fn exchange(
    server: &ServerAddress,
    tool: &str,
    arguments: Map<String, Value>,
    timeout: Duration,
    mailbox: &Mailbox,
) -> Result<Value, CliError> {
    let answer = repeat(server, tool, arguments, clock::now() + timeout, mailbox).await;
    answer.map_err(|error| match (error, server) {
        (RequestError::Refused { message, .. }, _) => CliError::Failed(message),
        (RequestError::Lost(Lost::NoServer(_)), ServerAddress::Socket(socket)) => {
            CliError::NoDaemon { at: socket.display().to_string() }
        }
        (RequestError::Lost(Lost::NoServer(problem)), ServerAddress::Url(url)) => {
            CliError::NoDaemon { at: format!("{url} ({problem})") }
        }
        (RequestError::Lost(lost), _) => CliError::Failed(format!("{tool}: {lost}")),
    })
}

/// Sends a report again whose answer was lost, until `give_up_at`, and keeps it in `mailbox` then.
/// Returns the answer of JSON-RPC; `None` if the request is not a report.
pub(super) async fn send_again(
    server: &ServerAddress,
    request: &Value,
    give_up_at: Instant,
    mailbox: &Mailbox,
) -> Option<Value> {
    let arguments = report_of(request)?.clone();
    let repeated = repeat(server, REPORT, arguments, give_up_at, mailbox);
    // A server that stands still gives no answer.
    let answer = tokio::time::timeout_at(give_up_at, repeated).await;
    let answer = answer.unwrap_or_else(|_| {
        let kept = mailbox.keep(REPORT, &request["params"]["arguments"]);
        kept.ok_or_else(|| Lost::Answer("the server does not answer".to_owned()).into())
    });
    let mut message = json!({ "jsonrpc": "2.0", "id": request["id"] });
    match answer {
        Ok(result) => message["result"] = result,
        Err(error) => {
            let code = match error {
                RequestError::Refused { code: Some(code), .. } => code,
                RequestError::Refused { .. } | RequestError::Lost(_) => CONNECTION_LOST,
            };
            message["error"] = json!({ "code": code, "message": error.to_string() });
        }
    }
    Some(message)
}

/// Returns the error for a request without an answer.
pub(super) fn unanswered(id: &Value, text: &str) -> Value {
    let error = json!({ "code": CONNECTION_LOST, "message": text });
    json!({ "jsonrpc": "2.0", "id": id, "error": error })
}

/// Calls the tool until it has an answer or `give_up_at` has passed, as [`exchange`] does.
async fn repeat(
    server: &ServerAddress,
    tool: &str,
    arguments: Map<String, Value>,
    give_up_at: Instant,
    mailbox: &Mailbox,
) -> Result<Value, RequestError> {
    let is_repeatable = REPEATABLE.contains(&tool);
    let mut pause = FIRST_PAUSE;
    loop {
        // A server of this program takes a call without a handshake.
        let asked =
            async { McpClient::open(server, None).await?.call_raw(tool, arguments.clone()).await };
        let answer = asked.await;
        let may_repeat = match &answer {
            Ok(result) => is_repeatable && is_unavailable(result),
            Err(RequestError::Refused { .. } | RequestError::Lost(Lost::Refused(_))) => false,
            Err(RequestError::Lost(lost)) => is_repeatable || !matches!(lost, Lost::Answer(_)),
        };
        if !may_repeat || clock::now() + pause > give_up_at {
            if may_repeat && let Some(kept) = mailbox.keep(tool, &Value::Object(arguments)) {
                return Ok(kept);
            }
            return answer;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;

    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_call_is_made_again_when_the_server_had_no_room_or_no_store_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("mcp.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let refusal = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32000, "message": "it is full" } });
        let away = json!({ "isError": true, "structuredContent": { "error_code": "unavailable" } });
        let away = json!({ "jsonrpc": "2.0", "id": 1, "result": away });
        let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": { "done": true } });
        let server = std::thread::spawn(move || {
            for message in [&refusal, &refusal, &away, &answer] {
                let (mut stream, _) = listener.accept().unwrap();
                writeln!(stream, "{message}").unwrap();
            }
        });
        let server_at = ServerAddress::Socket(socket);
        let mailbox = Mailbox::default();
        let ask = |timeout| exchange(&server_at, "report_completed", Map::new(), timeout, &mailbox);
        let Err(CliError::Failed(refused)) = ask(Duration::ZERO).await else {
            panic!("it is refused")
        };
        assert_eq!(refused, "report_completed: it is full");
        assert_eq!(ask(TIMEOUT).await.ok(), Some(json!({ "done": true })));
        server.join().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_that_finds_no_server_for_a_minute_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mailbox = Mailbox::made_in(folder.path());
        let nowhere = ServerAddress::Socket(folder.path().join("mcp.sock"));
        for (tool, is_kept) in [("report_completed", true), ("get_my_task", false)] {
            let arguments = [("session_token", "sess_1"), ("result", "success")];
            let arguments = arguments.map(|(name, value)| (name.to_owned(), value.into()));
            let arguments = Map::from_iter(arguments);
            let answer = exchange(&nowhere, tool, arguments, TIMEOUT, &mailbox).await;
            assert_eq!(answer.is_ok(), is_kept, "{tool}");
        }
    }
}
