//! `run-once`: the daemon starts an agent one time for its tasks, and its output is printed here.

use std::time::Duration;

use super::client::Client;
use super::error::CliError;
use super::follow::say;
use super::logs;
use super::named::Named;
use super::reasons::{remedy, sentence};
use crate::app::Signals;
use crate::domain::start_history::StartReason;
use crate::domain::{AgentId, LaunchId, ProjectId, Purpose};
use crate::rest::routes::launches::LaunchBody;
use crate::rest::routes::operate::{StoppedBody, TargetRequest};
use crate::rest::routes::why::WhyBody;

/// The time between two looks for the launch.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The exit code if the agent was stopped.
const EXIT_STOPPED: u8 = 3;
/// The exit code if the agent reported that it is blocked.
const EXIT_BLOCKED: u8 = 4;

#[derive(Debug, clap::Args)]
#[command(after_help = "The agent must have a task in progress. A hold, a back-off and earlier \
                  failures do not prevent the start. Ctrl-C stops the agent; a second one does not \
                  wait for its end.\n\nExit codes: 0 the agent completed; 3 it was stopped; 4 it is \
                  blocked; 1 it ended in another way, or was not started; 2 usage, 69 no daemon, \
                  78 configuration.")]
pub(super) struct RunOnceArguments {
    /// Agent: its id, its name, or the beginning of its id
    agent: Named<AgentId>,
    /// Project: its id, its key, its name, or the beginning of its id
    project: Named<ProjectId>,
    /// Print the output unchanged, also on a terminal
    #[arg(long)]
    raw: bool,
}

impl RunOnceArguments {
    pub(super) async fn run(self, client: &Client) -> Result<(), CliError> {
        let agent = self.agent.id(client).await?;
        let project = self.project.id(client).await?;
        let pair = Pair { client, agent, project };
        pair.check(is_refused_before).await?;
        let before = pair.newest().await?.map(|launch| launch.launch_id);
        let mut signals = Signals::listen()?;
        let launch = tokio::select! {
            ended = pair.run(before.as_ref(), self.raw) => {
                let launch = ended?;
                // The hold keeps the daemon from starting it again.
                let _: StoppedBody = client.post("/stop", &pair.target()).await?;
                launch
            }
            _ = signals.next() => {
                say("stopping the agent");
                let stopped = tokio::select! {
                    stopped = pair.stop(before.as_ref()) => stopped?,
                    _ = signals.next() => return Err(CliError::Result(EXIT_STOPPED)),
                };
                let Some(launch) = stopped else {
                    say(&format!("the agent was not started; {}", pair.held()));
                    return Err(CliError::Result(EXIT_STOPPED));
                };
                launch
            }
        };
        let ended: LaunchBody = client.get(&format!("/launches/{launch}")).await?;
        let outcome = ended.outcome.unwrap_or_default();
        let reason = ended.reason.map_or_else(String::new, |reason| format!(" ({reason})"));
        say(&format!("{outcome}{reason}; {}", pair.held()));
        match outcome.as_str() {
            "completed" => Ok(()),
            "stopped" => Err(CliError::Result(EXIT_STOPPED)),
            "blocked" => Err(CliError::Result(EXIT_BLOCKED)),
            _ => Err(CliError::Result(super::error::EXIT_FAILED)),
        }
    }
}

/// Whether a launch had a process, and so has output.
enum Process {
    Began,
    None,
}

async fn wait_for_process(client: &Client, launch: &LaunchId) -> Result<Process, CliError> {
    loop {
        let now: LaunchBody = client.get(&format!("/launches/{launch}")).await?;
        match (now.pid, now.outcome) {
            (Some(_), _) => return Ok(Process::Began),
            (None, Some(_)) => return Ok(Process::None),
            (None, None) => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

async fn wait_for_end(client: &Client, launch: &LaunchId) -> Result<(), CliError> {
    loop {
        let now: LaunchBody = client.get(&format!("/launches/{launch}")).await?;
        if now.outcome.is_some() {
            return Ok(());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

struct Pair<'a> {
    client: &'a Client,
    agent: AgentId,
    project: ProjectId,
}

impl Pair<'_> {
    fn target(&self) -> TargetRequest {
        TargetRequest {
            agent_id: Some(self.agent.clone()),
            project_id: Some(self.project.clone()),
            purpose: Some(Purpose::Task),
            ..TargetRequest::default()
        }
    }

    fn held(&self) -> String {
        format!("it is held until `resume {} {}`", self.agent, self.project)
    }

    /// Stops the agent, and waits for the end of its launch. `None` if it was not started.
    async fn stop(&self, before: Option<&LaunchId>) -> Result<Option<LaunchId>, CliError> {
        let _: StoppedBody = self.client.post("/stop", &self.target()).await?;
        let newest = self.newest().await?.map(|launch| launch.launch_id);
        let launch = newest.filter(|newest| Some(newest) != before);
        if let Some(launch) = &launch {
            wait_for_end(self.client, launch).await?;
        }
        Ok(launch)
    }

    /// Starts the agent and prints its output until it ends. Returns the launch.
    async fn run(&self, before: Option<&LaunchId>, is_raw: bool) -> Result<LaunchId, CliError> {
        let Self { client, agent, project } = self;
        client.post_only("/resume", &self.target()).await?;
        client.post_only("/refresh", &()).await?;
        let launch = self.wait_for_start(before).await?;
        say(&format!("{agent} in {project} runs: {launch}"));
        let printed = match wait_for_process(client, &launch).await? {
            Process::Began => logs::follow(client, &launch, is_raw).await,
            Process::None => Ok(()),
        };
        match printed {
            // The reader of the output is gone. The agent goes on.
            Err(CliError::Hushed) => return Err(CliError::Hushed),
            Err(error) => {
                error.print();
                say("the output is not printed; waiting for the end of the agent");
                wait_for_end(client, &launch).await?;
            }
            Ok(()) => {}
        }
        Ok(launch)
    }

    async fn newest(&self) -> Result<Option<LaunchBody>, CliError> {
        let Self { client, agent, project } = self;
        let query = format!("/launches?agent={agent}&project={project}&purpose=task&limit=1");
        let newest: Vec<LaunchBody> = client.get(&query).await?;
        Ok(newest.into_iter().next())
    }

    /// # Errors
    /// `Failed` with the reason, if it is one of those that `is_refused` names.
    async fn check(&self, is_refused: fn(StartReason) -> bool) -> Result<(), CliError> {
        let Self { client, agent, project } = self;
        let all: Vec<WhyBody> =
            client.get(&format!("/projects/{project}/agents/{agent}/why")).await?;
        let why = all.into_iter().find(|why| why.purpose == Purpose::Task);
        let Some(why) = why.filter(|why| is_refused(why.reason)) else { return Ok(()) };
        let remedy = match why.reason {
            StartReason::NoWork => Some("set a task of it in_progress".to_owned()),
            StartReason::Paused => Some("`resume` ends the pause".to_owned()),
            reason => remedy(reason, agent, project),
        };
        let remedy = remedy.map_or_else(String::new, |remedy| format!("; {remedy}"));
        let detail = why.rules.iter().find(|rule| rule.keeps).and_then(|rule| rule.detail.clone());
        let detail = detail.map_or_else(String::new, |detail| format!(": {detail}"));
        let sentence = sentence(why.reason, Purpose::Task);
        Err(CliError::Failed(format!("{agent} in {project}: {sentence}{detail}{remedy}")))
    }

    async fn wait_for_start(&self, before: Option<&LaunchId>) -> Result<LaunchId, CliError> {
        loop {
            let newest = self.newest().await?.map(|launch| launch.launch_id);
            if let Some(newest) = newest.filter(|newest| Some(newest) != before) {
                return Ok(newest);
            }
            // The coordinator looks again after the `resume`.
            tokio::time::sleep(LOOK_AGAIN).await;
            self.check(is_refused_while_waiting).await?;
        }
    }
}

/// Returns whether the command does not even try. Its own `resume` ends the other reasons, or a
/// short wait does.
const fn is_refused_before(reason: StartReason) -> bool {
    matches!(reason, StartReason::Starting | StartReason::Running | StartReason::Stopping)
        || (is_refused_while_waiting(reason) && !matches!(reason, StartReason::Misconfigured))
}

/// Returns whether no wait helps. While it waits, its own launch is one that is starting.
const fn is_refused_while_waiting(reason: StartReason) -> bool {
    matches!(
        reason,
        StartReason::Unknown
            | StartReason::NotAssigned
            | StartReason::Inactive
            | StartReason::NoWork
            | StartReason::Misconfigured
            | StartReason::Paused
            | StartReason::Parked
            | StartReason::WorkspaceBroken
            | StartReason::WorkspaceDisk
            | StartReason::OnOtherHost
            | StartReason::LowDisk
            | StartReason::LowMemory
            | StartReason::NoPasskey
            | StartReason::NoCoordinator
    )
}
