//! `pause` and `drain`: no agent is started any more, and the running ones come to their end.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::client::Client;
use super::error::CliError;
use super::output::{Form, print_json, print_line};
use api::launches::LaunchBody;
use api::operate::{StoppedBody, TargetRequest};
use domain::LaunchId;

#[derive(Debug, clap::Args)]
pub(super) struct DrainArguments {
    /// Stop what still runs after this time, such as 30m [default: wait without limit]
    #[arg(long, value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    form: Form,
}

/// The answer of `drain` for programs.
#[derive(Serialize)]
struct Drained {
    ended: Vec<LaunchBody>,
}

/// The time between two looks at a launch that comes to its end.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

pub(super) async fn pause(client: &Client, form: Form) -> Result<(), CliError> {
    client.post_only("/pause", &()).await?;
    if form.json {
        return print_json(&json!({ "isPaused": true }));
    }
    print_line("paused: no agent is started until `resume`; what runs goes on")
}

pub(super) async fn refresh(client: &Client, form: Form) -> Result<(), CliError> {
    client.post_only("/refresh", &()).await?;
    if form.json {
        return print_json(&json!({ "isRequested": true }));
    }
    print_line("coordinators look again")
}

impl DrainArguments {
    pub(super) async fn drain(self, client: &Client) -> Result<(), CliError> {
        let form = self.form;
        // A program gets one answer at the end.
        let say = |text: &str| if form.json { Ok(()) } else { print_line(text) };
        let running: StoppedBody = client.post("/drain", &()).await?;
        say(&format!("paused; {} still running", running.launches.len()))?;
        let mut ended = Vec::with_capacity(running.launches.len());
        let ends = async {
            for launch in &running.launches {
                ended.push(until_ended(client, launch, form).await?);
            }
            Ok::<_, CliError>(())
        };
        let is_over = match self.timeout {
            Some(timeout) => match tokio::time::timeout(timeout, ends).await {
                Ok(ends) => ends.map(|()| false)?,
                Err(_) => true,
            },
            None => ends.await.map(|()| false)?,
        };
        if is_over {
            say("the time is over; stopping the rest")?;
            let all = TargetRequest { all: true, ..TargetRequest::default() };
            let stopped: StoppedBody = client.post("/stop", &all).await?;
            for launch in &stopped.launches {
                ended.push(until_ended(client, launch, form).await?);
            }
        }
        if form.json {
            return print_json(&Drained { ended });
        }
        print_line("drained: nothing runs; `resume` starts agents again")
    }
}

/// Waits until a launch has ended, and returns it. Without JSON it prints the end.
async fn until_ended(
    client: &Client,
    launch: &LaunchId,
    form: Form,
) -> Result<LaunchBody, CliError> {
    loop {
        let now: LaunchBody = client.get(&format!("/launches/{launch}")).await?;
        if let Some(outcome) = &now.outcome {
            if !form.json {
                print_line(&format!("{} in {}: {outcome}", now.agent_id, now.project_id))?;
            }
            return Ok(now);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
