//! `events` prints events when they happen.

use std::io;

use super::client::Client;
use super::error::CliError;
use super::named::{Named, id_of};
use super::output::{Form, print_json_line, print_line};
use crate::domain::{AgentId, LaunchId, ProjectId};
use crate::rest::routes::events::EventBody;

/// The selection of events.
#[derive(Debug, clap::Args)]
pub(super) struct EventsArguments {
    /// Continue until interrupted. This is the default; the option exists because `logs` and `tail`
    /// have it
    #[arg(short = 'f', long)]
    follow: bool,
    /// Begin after the event with this number; 0 begins with the oldest event that is kept
    /// [default: from now on]
    #[arg(long, value_name = "NUMBER")]
    after: Option<i64>,
    /// Select this agent
    #[arg(long)]
    agent: Option<Named<AgentId>>,
    /// Select this project
    #[arg(long)]
    project: Option<Named<ProjectId>>,
    /// Select this launch
    #[arg(long)]
    launch: Option<LaunchId>,
    #[command(flatten)]
    form: Form,
}

impl EventsArguments {
    pub(super) async fn print(self, client: &Client) -> Result<(), CliError> {
        let agent = id_of(self.agent.as_ref(), client).await?;
        let project = id_of(self.project.as_ref(), client).await?;
        let query = [
            self.after.map(|after| format!("after={after}")),
            agent.map(|agent| format!("agent={agent}")),
            project.map(|project| format!("project={project}")),
            self.launch.map(|launch| format!("launch={launch}")),
        ];
        let path = format!("/events?{}", query.into_iter().flatten().collect::<Vec<_>>().join("&"));
        let mut rest = Vec::new();
        let json = self.form.json;
        client
            .stream(&path, |bytes| {
                rest.extend_from_slice(bytes);
                while let Some(end) = rest.windows(2).position(|two| two == b"\n\n") {
                    let block: Vec<u8> = rest.drain(..end + 2).collect();
                    print(&String::from_utf8_lossy(&block), json).map_err(back)?;
                }
                Ok(())
            })
            .await?;
        Ok(())
    }
}

/// Converts an error of printing into the error type of the function that reads the stream.
fn back(error: CliError) -> io::Error {
    match error {
        CliError::Hushed => io::ErrorKind::BrokenPipe.into(),
        CliError::Failed(text) | CliError::Usage(text) | CliError::File(text) => {
            io::Error::other(text)
        }
        CliError::NoDaemon { .. } | CliError::Configuration(_) => {
            io::Error::other("the daemon went away")
        }
    }
}

/// Prints the event of the block. A block without an event, such as a keep-alive, is left out.
fn print(block: &str, json: bool) -> Result<(), CliError> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
    if field("event: ") == Some("reset") {
        return if json {
            Ok(())
        } else {
            print_line("some of what happened before is not kept any more")
        };
    }
    let event = field("data: ").and_then(|data| serde_json::from_str::<EventBody>(data).ok());
    let Some(event) = event else { return Ok(()) };
    if json {
        return print_json_line(&event);
    }
    print_line(&line_of(&event))
}

pub(super) fn line_of(event: &EventBody) -> String {
    let short_id = event.task_short_id.as_ref().map(ToString::to_string);
    let task = short_id.or_else(|| event.task_id.as_ref().map(ToString::to_string));
    let named = [
        event.agent_id.as_ref().map(ToString::to_string),
        event.project_id.as_ref().map(ToString::to_string),
        task,
        event.launch_id.as_ref().map(ToString::to_string),
        event.detail.as_deref().map(super::output::plain),
    ];
    let named = named.into_iter().flatten().collect::<Vec<_>>().join(" ");
    format!("{}  {:<19} {named}", event.at, event.kind).trim_end().to_owned()
}
