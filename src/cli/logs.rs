//! `logs`: what an agent printed.

use std::io::{self, IsTerminal as _, Write as _};

use super::Pair;
use super::client::Client;
use super::error::CliError;
use crate::domain::{LaunchId, printable};
use crate::rest::routes::launches::{LaunchBody, OUTPUT_IS, TAIL};

#[derive(Debug, clap::Args)]
pub(super) struct LogsArguments {
    #[command(flatten)]
    pair: Pair,
    /// Go on until the agent has ended
    #[arg(short, long)]
    follow: bool,
    /// This launch instead of the newest
    #[arg(long, value_name = "ID")]
    launch: Option<LaunchId>,
}

impl LogsArguments {
    pub(super) async fn print(&self, client: &Client) -> Result<(), CliError> {
        let Pair { agent, project, purpose } = &self.pair;
        let launch = if let Some(launch) = &self.launch {
            let found: LaunchBody = client.get(&format!("/launches/{launch}")).await?;
            if found.agent_id != *agent || found.project_id != *project {
                let (agent, project) = (found.agent_id, found.project_id);
                return Err(CliError::Failed(format!("launch {launch} is one of {agent} in {project}")));
            }
            launch.clone()
        } else {
            let purpose = purpose.map(|purpose| format!("&purpose={purpose}")).unwrap_or_default();
            let query = format!("/launches?agent={agent}&project={project}&limit=1{purpose}");
            let newest: Vec<LaunchBody> = client.get(&query).await?;
            let newest = newest.into_iter().next();
            newest.ok_or_else(|| CliError::Failed(format!("{agent} has not been started in {project}")))?.launch_id
        };
        let mut stdout = io::stdout().lock();
        let mut for_terminal = stdout.is_terminal().then(ForTerminal::default);
        let headers = client
            .stream(&format!("/launches/{launch}/output?follow={}", self.follow), |piece| {
                match &mut for_terminal {
                    Some(for_terminal) => stdout.write_all(for_terminal.shown(piece).as_bytes())?,
                    None => stdout.write_all(piece)?,
                }
                stdout.flush()
            })
            .await?;
        if headers.get(OUTPUT_IS).is_some_and(|what| what == TAIL) {
            eprintln!("agent-coordinator: this is the end of it; the whole output is on its coordinator's host");
        }
        Ok(())
    }
}

/// Its keeper has cleaned what an agent printed, but the file was in the agent's reach.
#[derive(Default)]
struct ForTerminal {
    /// The beginning of a character whose end is in the next piece.
    incomplete: Vec<u8>,
}

impl ForTerminal {
    fn shown(&mut self, piece: &[u8]) -> String {
        self.incomplete.extend_from_slice(piece);
        let n_complete = match std::str::from_utf8(&self.incomplete) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Ok(_) | Err(_) => self.incomplete.len(),
        };
        let complete: Vec<u8> = self.incomplete.drain(..n_complete).collect();
        printable::lines(&String::from_utf8_lossy(&complete)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_between_two_pieces_is_shown_and_a_sequence_is_not() {
        let text = "日\u{1b}[31m\n\u{202e}é".as_bytes();
        for at in 0..text.len() {
            let mut for_terminal = ForTerminal::default();
            let shown = for_terminal.shown(&text[..at]) + &for_terminal.shown(&text[at..]);
            assert_eq!(shown, "日 [31m\n é");
        }
    }
}
