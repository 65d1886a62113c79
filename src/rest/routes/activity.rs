//! The activity and the usage of an agent, as launches and executions show them.

use serde::{Deserialize, Serialize};

use crate::domain::{Activity, Failure, FailureClass, Timestamp, Usage};

/// What the output of an agent told.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActivityBody {
    /// Absent where the agent said nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageBody>,
    /// The last thing it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// What is wrong with it, or was at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureBody>,
}

/// What an agent took from its model.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageBody {
    pub turns: u64,
    /// Those from a cache not counted.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    /// Millionths of a US dollar; absent where the agent doesn't say what it costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd_micros: Option<u64>,
}

/// Trouble, by whose it is to mend.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureBody {
    pub class: FailureClass,
    /// When a quota begins anew.
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
        })
    }
}
