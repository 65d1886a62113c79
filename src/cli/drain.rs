//! `pause` and `drain`: no agent is started any more, and the running ones come to their end.

use std::time::Duration;

use super::client::Client;
use super::error::CliError;
use super::output::print_line;
use crate::domain::LaunchId;
use crate::rest::routes::launches::LaunchBody;
use crate::rest::routes::operate::{StoppedBody, TargetRequest};

#[derive(Debug, clap::Args)]
pub(super) struct DrainArguments {
    /// Stop what still runs after this time, such as 30m [default: wait without limit]
    #[arg(long, value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
}

/// The time between two looks at a launch that comes to its end.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

pub(super) async fn pause(client: &Client) -> Result<(), CliError> {
    client.post_only("/pause", &()).await?;
    print_line("paused: no agent is started until `resume`; what runs goes on")
}

pub(super) async fn refresh(client: &Client) -> Result<(), CliError> {
    client.post_only("/refresh", &()).await?;
    print_line("coordinators look again")
}

impl DrainArguments {
    pub(super) async fn drain(self, client: &Client) -> Result<(), CliError> {
        let running: StoppedBody = client.post("/drain", &()).await?;
        print_line(&format!("paused; {} still running", running.launches.len()))?;
        let ends = async {
            for launch in &running.launches {
                until_ended(client, launch).await?;
            }
            Ok::<_, CliError>(())
        };
        let Some(timeout) = self.timeout else {
            ends.await?;
            return print_line("drained: nothing runs; `resume` starts agents again");
        };
        if let Ok(ended) = tokio::time::timeout(timeout, ends).await {
            ended?;
            return print_line("drained: nothing runs; `resume` starts agents again");
        }
        print_line("the time is over; stopping the rest")?;
        let all = TargetRequest { all: true, ..TargetRequest::default() };
        let stopped: StoppedBody = client.post("/stop", &all).await?;
        for launch in &stopped.launches {
            until_ended(client, launch).await?;
        }
        print_line("drained: nothing runs; `resume` starts agents again")
    }
}

async fn until_ended(client: &Client, launch: &LaunchId) -> Result<(), CliError> {
    loop {
        let now: LaunchBody = client.get(&format!("/launches/{launch}")).await?;
        if let Some(outcome) = now.outcome {
            return print_line(&format!("{} in {}: {outcome}", now.agent_id, now.project_id));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
