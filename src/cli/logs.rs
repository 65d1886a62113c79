//! `logs`: what an agent printed.

use std::io::{self, Write as _};

use super::Pair;
use super::client::Client;
use super::error::CliError;
use crate::domain::LaunchId;
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
        let headers = client
            .stream(&format!("/launches/{launch}/output?follow={}", self.follow), |piece| {
                stdout.write_all(piece)?;
                stdout.flush()
            })
            .await?;
        if headers.get(OUTPUT_IS).is_some_and(|what| what == TAIL) {
            eprintln!("agent-coordinator: this is the end of it; the whole output is on its coordinator's host");
        }
        Ok(())
    }
}
