//! `report_activity`: a coordinator reports facts from the output of an agent, while the agent runs
//! and once more before its end.

use serde::Deserialize;

use super::{Done, Effect, ToolSpec};
use crate::domain::{Activity, Failure, FailureClass, LaunchId, Timestamp, Usage};
use crate::mcp::envelope::Coordinator;
use crate::service::{Service, ServiceError};

pub(in crate::mcp) struct ReportActivity;

#[derive(Deserialize, schemars::JsonSchema)]
pub(in crate::mcp) struct Input {
    /// The launch, as should_start named it.
    #[schemars(with = "String")]
    launch_id: LaunchId,
    /// Tokens that its model read until now, those from a cache not counted.
    #[serde(default)]
    input_tokens: u64,
    /// Tokens that its model wrote until now.
    #[serde(default)]
    output_tokens: u64,
    /// Tokens that its model read from a cache.
    #[serde(default)]
    cache_read_tokens: u64,
    /// Tokens that were written to a cache.
    #[serde(default)]
    cache_write_tokens: u64,
    /// What that costs, in millionths of a US dollar.
    #[serde(default)]
    cost_usd_micros: u64,
    /// Answers of its model until now.
    #[serde(default)]
    turns: u64,
    /// The last thing it did, in one line; 160 characters of it are kept.
    #[serde(default)]
    #[schemars(with = "String")]
    progress: Option<String>,
    /// What is wrong with it at present: auth, quota, overload, config or crash. Nothing, if it goes on.
    #[serde(default)]
    #[schemars(with = "FailureClass")]
    failure: Option<FailureClass>,
    /// When its quota begins anew (RFC 3339).
    #[serde(default)]
    #[schemars(with = "String")]
    failure_resets_at: Option<Timestamp>,
}

impl From<Input> for Activity {
    fn from(input: Input) -> Self {
        Self {
            usage: Usage {
                input_tokens: input.input_tokens,
                output_tokens: input.output_tokens,
                cache_read_tokens: input.cache_read_tokens,
                cache_write_tokens: input.cache_write_tokens,
                cost_usd_micros: input.cost_usd_micros,
                turns: input.turns,
            },
            progress: input.progress,
            failure: input
                .failure
                .map(|class| Failure { class, resets_at: input.failure_resets_at }),
        }
    }
}

impl ToolSpec for ReportActivity {
    const NAME: &'static str = "report_activity";
    const TEXT: &'static str = "For coordinators: what the output of an agent tells of its progress, its usage so far, and its trouble. Usage never \
         shrinks: of each number the greatest counts.";
    const EFFECT: Effect = Effect::ChangesOnce;
    type Who = Coordinator;
    type Input = Input;
    type Output = Done;

    async fn call(service: &Service, who: Coordinator, input: Input) -> Result<Done, ServiceError> {
        let launch = service.launches.launch_of(who.id.as_ref(), &input.launch_id).await?;
        service.launches.report_activity(&launch.id, input.into()).await?;
        Ok(Done::DONE)
    }
}
