//! Totals of launches, as `/status` shows them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::activity::UsageBody;
use domain::totals::{Total, TotalKey, Totals};
use domain::{AgentId, ProjectId};

/// Totals of the launches that ended: those in the history when the server started, and all since.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TotalsBody {
    pub providers: Vec<TotalBody>,
    pub agents: Vec<TotalBody>,
    pub projects: Vec<TotalBody>,
}

/// The totals of one provider, agent or project.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TotalBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// The number of ended launches.
    pub launches: u64,
    /// The number of ended launches with each outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// The sum of the times from the start of each process to the end of its launch.
    pub run_time_seconds: u64,
    /// The usage that the CLIs reported; absent if none of them reported any. It is a lower bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_usage: Option<UsageBody>,
    /// The number of launches that reported any usage.
    pub launches_with_usage: u64,
}

impl From<&Totals> for TotalsBody {
    fn from(totals: &Totals) -> Self {
        let providers = grouped(totals, |key| &key.ai_type);
        let agents = grouped(totals, |key| &key.agent);
        let projects = grouped(totals, |key| &key.project);
        Self {
            providers: providers
                .map(|(name, body)| TotalBody { provider: Some(name.clone()), ..body })
                .collect(),
            agents: agents
                .map(|(id, body)| TotalBody { agent_id: Some(id.clone()), ..body })
                .collect(),
            projects: projects
                .map(|(id, body)| TotalBody { project_id: Some(id.clone()), ..body })
                .collect(),
        }
    }
}

/// Returns the sums of the totals by the group.
fn grouped<'a, G: Ord + 'a>(
    totals: &'a Totals,
    group: fn(&TotalKey) -> &G,
) -> impl Iterator<Item = (&'a G, TotalBody)> {
    let mut sums: BTreeMap<&G, (Total, BTreeMap<String, u64>)> = BTreeMap::new();
    for (key, total) in totals.iter() {
        let (sum, outcomes) = sums.entry(group(key)).or_default();
        *sum = sum.plus(*total);
        *outcomes.entry(key.outcome.clone()).or_default() += total.n_launches;
    }
    sums.into_iter().map(|(name, (sum, outcomes))| {
        let body = TotalBody {
            launches: sum.n_launches,
            outcomes,
            run_time_seconds: sum.run_time.as_secs(),
            reported_usage: UsageBody::of(sum.usage),
            launches_with_usage: sum.n_with_usage,
            ..TotalBody::default()
        };
        (name, body)
    })
}
