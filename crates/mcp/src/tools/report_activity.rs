//! `report_activity`: a coordinator reports facts from the output of an agent, while the agent runs
//! and once more before its end.

use serde::Deserialize;

use super::{Done, Effect, ToolSpec};
use crate::envelope::Coordinator;
use domain::{Activity, Failure, FailureClass, LaunchId, Timestamp, Usage};
use service::{Service, ServiceError};

pub(crate) struct ReportActivity;

#[derive(Deserialize, schemars::JsonSchema)]
pub(crate) struct Input {
    /// The launch_id that should_start returned.
    #[schemars(with = "String")]
    launch_id: LaunchId,
    /// The tokens that its model has read so far, without those from a cache.
    #[serde(default)]
    input_tokens: u64,
    /// The tokens that its model has written so far.
    #[serde(default)]
    output_tokens: u64,
    /// The tokens that its model has read from a cache.
    #[serde(default)]
    cache_read_tokens: u64,
    /// The tokens that were written to a cache.
    #[serde(default)]
    cache_write_tokens: u64,
    /// The cost so far, in millionths of a US dollar.
    #[serde(default)]
    cost_usd_micros: u64,
    /// The number of answers of its model so far.
    #[serde(default)]
    turns: u64,
    /// True if a part of these numbers is an estimate.
    #[serde(default)]
    estimated: bool,
    /// The last thing that it did, in one line. The server keeps 160 characters.
    #[serde(default)]
    #[schemars(with = "String")]
    progress: Option<String>,
    /// Its present problem: auth, quota, overload, config or crash. Leave it out if it has none.
    #[serde(default)]
    #[schemars(with = "FailureClass")]
    failure: Option<FailureClass>,
    /// The time when its quota begins again (RFC 3339).
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
                is_estimated: input.estimated,
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
    const TEXT: &'static str = "For coordinators: reports the progress, usage and present \
                                problem of an agent, as its output shows them. Usage never \
                                shrinks: the greatest value of each number counts.";
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
