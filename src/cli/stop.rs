//! `stop` and `resume`.

use std::time::Duration;

use super::client::Client;
use super::error::CliError;
use super::named::{Named, id_of};
use super::output::print_line;
use super::status::{parked_line, pause_file_line};
use crate::domain::{AgentId, LaunchId, ProjectId, Purpose};
use crate::rest::routes::launches::LaunchBody;
use crate::rest::routes::operate::{StoppedBody, TargetRequest};
use crate::rest::routes::status::StatusBody;

#[derive(Debug, clap::Args)]
pub(super) struct StopArguments {
    /// Agent: its id, its name, or the beginning of its id
    #[arg(requires = "project", required_unless_present = "all")]
    agent: Option<Named<AgentId>>,
    /// Project: its id, its key, its name, or the beginning of its id
    project: Option<Named<ProjectId>>,
    /// Select one purpose: task or chat
    #[arg(long)]
    purpose: Option<Purpose>,
    /// Stop every agent and start none until `resume`
    #[arg(long, conflicts_with_all = ["agent", "project", "purpose"])]
    all: bool,
    /// Record the end of a launch whose coordinator is gone. Make sure first that its processes are
    /// gone
    #[arg(long)]
    force: bool,
    /// Return without waiting for the end of the agents
    #[arg(long)]
    no_wait: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ResumeArguments {
    /// Agent: its id, its name, or the beginning of its id
    #[arg(requires = "project")]
    agent: Option<Named<AgentId>>,
    /// Project: its id, its key, its name, or the beginning of its id
    project: Option<Named<ProjectId>>,
    /// Select one purpose: task or chat
    #[arg(long, requires = "agent")]
    purpose: Option<Purpose>,
    /// Start agents of this ai_type again although its account is parked
    #[arg(long, value_name = "AI_TYPE", conflicts_with_all = ["agent", "project", "purpose"])]
    provider: Option<String>,
}

/// The number of looks until a person is told what the command waits for, and a forced end is
/// requested again.
const LOOKS_UNTIL_A_WORD: u32 = 100;
/// The time between two looks at a launch that is being stopped.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl StopArguments {
    pub(super) async fn stop(self, client: &Client) -> Result<(), CliError> {
        let target = TargetRequest {
            all: self.all,
            agent_id: id_of(self.agent.as_ref(), client).await?,
            project_id: id_of(self.project.as_ref(), client).await?,
            purpose: self.purpose,
            force: self.force,
            provider: None,
        };
        let stopped: StoppedBody = client.post("/stop", &target).await?;
        if stopped.launches.is_empty() && stopped.abandoned.is_empty() {
            print_line("nothing was running")?;
        }
        for launch in &stopped.launches {
            if self.no_wait {
                print_line(&format!("{launch} is being stopped"))?;
            } else {
                wait_until_ended(client, launch, &target).await?;
            }
        }
        for launch in &stopped.abandoned {
            eprintln!(
                "agent-coordinator: {launch} belongs to a coordinator that is not connected, so that it can't be ended. \
                 Start that coordinator again, or make sure that its processes are gone and repeat this with --force."
            );
        }
        match (&target.agent_id, &target.project_id) {
            (Some(agent), Some(project)) => print_line(&format!(
                "{agent} in {project} is held until `resume {agent} {project}`, or until a task of it is set in_progress again"
            )),
            _ => print_line("paused: no agent is started until `resume`"),
        }?;
        if stopped.abandoned.is_empty() {
            Ok(())
        } else {
            Err(CliError::Failed("some launches could not be ended".to_owned()))
        }
    }
}

async fn wait_until_ended(
    client: &Client,
    launch: &LaunchId,
    target: &TargetRequest,
) -> Result<(), CliError> {
    let mut n_looks = 0;
    loop {
        n_looks += 1;
        if n_looks % LOOKS_UNTIL_A_WORD == 0 {
            if n_looks == LOOKS_UNTIL_A_WORD {
                eprintln!(
                    "agent-coordinator: waiting for {launch} to end; Ctrl-C stops the waiting only. If its coordinator is \
                     lost, --force ends it two minutes after its last contact."
                );
            }
            if target.force {
                let _: StoppedBody = client.post("/stop", target).await?;
            }
        }
        let now: LaunchBody = client.get(&format!("/launches/{launch}")).await?;
        if let Some(outcome) = now.outcome {
            return print_line(&format!("{} in {}: {outcome}", now.agent_id, now.project_id));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

impl ResumeArguments {
    pub(super) async fn resume(self, client: &Client) -> Result<(), CliError> {
        let all = self.agent.is_none() && self.provider.is_none();
        let Self { agent, project, purpose, provider } = self;
        let agent_id = id_of(agent.as_ref(), client).await?;
        let project_id = id_of(project.as_ref(), client).await?;
        let target = TargetRequest { all, agent_id, project_id, purpose, force: false, provider };
        client.post_only("/resume", &target).await?;
        print_line("resumed")?;
        // The pause file and parked providers have conditions of their own, which this command does
        // not end.
        let status: StatusBody = client.get("/status").await?;
        if let Some(path) = &status.pause_file_path {
            print_line(&pause_file_line(path))?;
        }
        status
            .parked
            .iter()
            .try_for_each(|parked| print_line(&format!("still {}", parked_line(parked, status.at))))
    }
}
