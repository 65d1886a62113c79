//! `events` prints events when they happen.

use super::client::Client;
use super::error::CliError;
use super::follow::Following;
use super::named::{Named, id_of};
use super::output::{Form, Zone, print_json_line, print_line};
use api::events::EventBody;
use domain::{AgentId, LaunchId, ProjectId};

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
    zone: Zone,
    #[command(flatten)]
    form: Form,
}

impl EventsArguments {
    /// Prints events until the reader of the output has gone. After a restart of the daemon, it
    /// continues after the last event that it has seen.
    pub(super) async fn print(self, client: &Client) -> Result<(), CliError> {
        let agent = id_of(self.agent.as_ref(), client).await?;
        let project = id_of(self.project.as_ref(), client).await?;
        let filter = [
            agent.map(|agent| format!("&agent={agent}")),
            project.map(|project| format!("&project={project}")),
            self.launch.map(|launch| format!("&launch={launch}")),
        ];
        let filter: String = filter.into_iter().flatten().collect();
        let mut position = Position { after: self.after, rest: Vec::new() };
        let mut following = Following::new();
        loop {
            let after = position.after.map(|after| format!("after={after}")).unwrap_or_default();
            let path = format!("/events?{after}{filter}");
            let read = async {
                let mut stream = client.open(&path).await?;
                following.connected();
                while let Some(piece) = stream.next().await? {
                    for block in position.blocks(&piece) {
                        print(&block, self.zone, self.form.json)?;
                    }
                }
                Ok::<_, CliError>(())
            };
            let ended = || CliError::Lost("the daemon ended the stream of events".to_owned());
            let error = read.await.err().unwrap_or_else(ended);
            // The part of an event that came is sent again.
            position.rest.clear();
            following.lost(error).await?;
        }
    }
}

/// The position of a follower in the stream of events.
struct Position {
    /// The number of the last event that was seen; `None` before the first answer.
    after: Option<i64>,
    /// The beginning of a block whose end has not come yet.
    rest: Vec<u8>,
}

impl Position {
    /// Returns the blocks that are complete with `piece`, and moves behind them.
    fn blocks(&mut self, piece: &[u8]) -> Vec<String> {
        self.rest.extend_from_slice(piece);
        let mut blocks = Vec::new();
        while let Some(end) = self.rest.windows(2).position(|two| two == b"\n\n") {
            let block: Vec<u8> = self.rest.drain(..end + 2).collect();
            let block = String::from_utf8_lossy(&block).into_owned();
            let id = field(&block, "id: ").and_then(|id| id.parse().ok());
            self.after = id.or(self.after);
            blocks.push(block);
        }
        blocks
    }
}

fn field<'b>(block: &'b str, name: &str) -> Option<&'b str> {
    block.lines().find_map(|line| line.strip_prefix(name))
}

/// Returns the event of the block; `None` for a block without one, such as a keep-alive.
pub(super) fn event_of(block: &str) -> Option<EventBody> {
    serde_json::from_str(field(block, "data: ")?).ok()
}

/// Prints the event of the block. A block without an event, such as a keep-alive, is left out.
fn print(block: &str, zone: Zone, json: bool) -> Result<(), CliError> {
    if field(block, "event: ") == Some("reset") {
        return if json {
            Ok(())
        } else {
            print_line("some of what happened before is not kept any more")
        };
    }
    let event = event_of(block);
    let Some(event) = event else { return Ok(()) };
    if json {
        return print_json_line(&event);
    }
    print_line(&line_of(&event, zone))
}

pub(super) fn line_of(event: &EventBody, zone: Zone) -> String {
    let short_id = event.task_short_id.as_ref().map(ToString::to_string);
    let task = short_id.or_else(|| event.task_id.as_ref().map(ToString::to_string));
    let named = [
        event.agent_id.as_ref().map(ToString::to_string),
        event.project_id.as_ref().map(ToString::to_string),
        task,
        event.launch_id.as_ref().map(ToString::to_string),
        event.detail.as_deref().map(super::output::plain),
        event.author.as_deref().map(|author| format!("by {}", super::output::plain(author))),
    ];
    let named = named.into_iter().flatten().collect::<Vec<_>>().join(" ");
    format!("{}  {:<19} {named}", zone.time(event.at), event.kind).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_behind_the_last_complete_event() {
        let mut position = Position { after: None, rest: Vec::new() };
        assert_eq!(position.blocks(b"retry: 1000\nid: 5\n\n:\n\nid: 6\nev").len(), 2);
        assert_eq!(position.after, Some(5));
        assert_eq!(position.blocks(b"ent: a\ndata: {}\n\n"), ["id: 6\nevent: a\ndata: {}\n\n"]);
        assert_eq!(position.after, Some(6));
    }
}
