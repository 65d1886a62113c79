//! `stop` and `resume`.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::client::Client;
use super::error::CliError;
use super::named::{Named, id_of};
use super::output::{Form, print_json, print_line};
use super::status::{parked_line, pause_file_line};
use api::launches::LaunchBody;
use api::operate::{StoppedBody, TargetRequest};
use api::status::StatusBody;
use domain::{AgentId, LaunchId, ProjectId, Purpose};

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
    #[command(flatten)]
    form: Form,
}

/// The answer of `stop` for programs.
#[derive(Serialize)]
struct Stopped {
    ended: Vec<LaunchBody>,
    /// The launches that are being ended, with `--no-wait`.
    stopping: Vec<LaunchId>,
    /// The launches that cannot be ended, because their coordinator is not connected.
    abandoned: Vec<LaunchId>,
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
    #[command(flatten)]
    form: Form,
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
        let form = self.form;
        // A program gets one answer at the end.
        let say = |text: &str| if form.json { Ok(()) } else { print_line(text) };
        if stopped.launches.is_empty() && stopped.abandoned.is_empty() {
            say("nothing was running")?;
        }
        let mut ended = Vec::new();
        for launch in &stopped.launches {
            if self.no_wait {
                say(&format!("{launch} is being stopped"))?;
            } else {
                let launch = wait_until_ended(client, launch, &target).await?;
                if let Some(outcome) = &launch.outcome {
                    say(&format!("{} in {}: {outcome}", launch.agent_id, launch.project_id))?;
                }
                ended.push(launch);
            }
        }
        for launch in &stopped.abandoned {
            eprintln!(
                "agent-coordinator: {launch} belongs to a coordinator that is not connected, so that it can't be ended. \
                 Start that coordinator again, or make sure that its processes are gone and repeat this with --force."
            );
        }
        match (&target.agent_id, &target.project_id) {
            (Some(agent), Some(project)) => say(&format!(
                "{agent} in {project} is held until `resume {agent} {project}`, or until a task of it is set in_progress again"
            )),
            _ => say("paused: no agent is started until `resume`"),
        }?;
        let StoppedBody { launches, abandoned } = stopped;
        let is_complete = abandoned.is_empty();
        if form.json {
            let stopping = if self.no_wait { launches } else { Vec::new() };
            print_json(&Stopped { ended, stopping, abandoned })?;
        }
        if is_complete {
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
) -> Result<LaunchBody, CliError> {
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
        if now.outcome.is_some() {
            return Ok(now);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

impl ResumeArguments {
    pub(super) async fn resume(self, client: &Client) -> Result<(), CliError> {
        let all = self.agent.is_none() && self.provider.is_none();
        let Self { agent, project, purpose, provider, form } = self;
        let agent_id = id_of(agent.as_ref(), client).await?;
        let project_id = id_of(project.as_ref(), client).await?;
        let target = TargetRequest { all, agent_id, project_id, purpose, force: false, provider };
        client.post_only("/resume", &target).await?;
        if !form.json {
            print_line("resumed")?;
        }
        // The pause file and parked providers have conditions of their own, which this command does
        // not end.
        let status: StatusBody = client.get("/status").await?;
        if form.json {
            let StatusBody { pause_file_path, parked, .. } = status;
            return print_json(&json!({
                "isResumed": true, "pauseFilePath": pause_file_path, "parked": parked,
            }));
        }
        if let Some(path) = &status.pause_file_path {
            print_line(&pause_file_line(path))?;
        }
        status
            .parked
            .iter()
            .try_for_each(|parked| print_line(&format!("still {}", parked_line(parked, status.at))))
    }
}
