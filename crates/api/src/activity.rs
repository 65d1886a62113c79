//! The activity and the usage of an agent, as launches and executions show them.

use serde::{Deserialize, Serialize};

use domain::{Activity, Failure, FailureClass, Timestamp, Usage};

/// The facts that the daemon read from the output of an agent.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActivityBody {
    /// Absent if the agent did not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageBody>,
    /// The last action of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// The failure of the agent, now or at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureBody>,
}

/// The use of a model by an agent.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageBody {
    pub turns: u64,
    /// The input tokens without those from a cache.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    /// The cost in millionths of a US dollar; absent if the agent does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd_micros: Option<u64>,
    /// True if a part is an estimate, because no source reported it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

/// A failure with its class.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureBody {
    pub class: FailureClass,
    /// The time at which a quota begins anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<Timestamp>,
}

impl From<Activity> for ActivityBody {
    fn from(activity: Activity) -> Self {
        let Activity { usage, progress, failure } = activity;
        Self { usage: UsageBody::of(usage), progress, failure: failure.map(FailureBody::from) }
    }
}

impl From<Failure> for FailureBody {
    fn from(failure: Failure) -> Self {
        Self { class: failure.class, resets_at: failure.resets_at }
    }
}

impl UsageBody {
    /// Returns `None` if nothing is known of the usage.
    pub fn of(usage: Usage) -> Option<Self> {
        (!usage.is_none()).then(|| Self {
            turns: usage.turns,
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cache_read_tokens: usage.cache_read_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            cost_usd_micros: Some(usage.cost_usd_micros).filter(|cost| *cost > 0),
            estimated: usage.is_estimated,
        })
    }
}
