//! Totals of launches that ended: how many with each outcome, how long they ran, and what they
//! used.

use std::collections::BTreeMap;
use std::time::Duration;

use super::activity::Usage;
use super::id::{AgentId, ProjectId};
use super::launch::Launch;
use super::time::Timestamp;

/// The launches that are counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TotalKey {
    /// The provider.
    pub ai_type: String,
    pub agent: AgentId,
    pub project: ProjectId,
    /// The outcome without its detail.
    pub outcome: String,
}

/// The sums over some launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Total {
    pub n_launches: u64,
    /// The time from the start of the process to the end of the launch.
    pub run_time: Duration,
    /// The usage that the agents' CLIs reported.
    pub usage: Usage,
    /// The number of the launches that reported any usage.
    pub n_with_usage: u64,
}

impl Total {
    /// Returns the total of one launch.
    pub fn of_one(started_at: Option<Timestamp>, ended_at: Timestamp, usage: Usage) -> Self {
        Self {
            n_launches: 1,
            run_time: started_at.map_or(Duration::ZERO, |started_at| ended_at.since(started_at)),
            usage,
            n_with_usage: u64::from(!usage.is_none()),
        }
    }

    /// Returns the sums over both totals.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            n_launches: self.n_launches.saturating_add(other.n_launches),
            run_time: self.run_time.saturating_add(other.run_time),
            usage: self.usage.plus(other.usage),
            n_with_usage: self.n_with_usage.saturating_add(other.n_with_usage),
        }
    }
}

/// A launch that has ended, for the count and the cost of a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedLaunch {
    pub claimed_at: Timestamp,
    /// True if people want to look at it.
    pub is_bad: bool,
    pub cost_usd_micros: u64,
}

/// Totals by provider, agent, project and outcome.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals(BTreeMap<TotalKey, Total>);

impl FromIterator<(TotalKey, Total)> for Totals {
    fn from_iter<T: IntoIterator<Item = (TotalKey, Total)>>(all: T) -> Self {
        let mut totals = Self::default();
        all.into_iter().for_each(|(key, total)| totals.add(key, total));
        totals
    }
}

impl IntoIterator for Totals {
    type Item = (TotalKey, Total);
    type IntoIter = std::collections::btree_map::IntoIter<TotalKey, Total>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Totals {
    /// Adds `total` to the total of `key`.
    pub fn add(&mut self, key: TotalKey, total: Total) {
        let sum = self.0.entry(key).or_default();
        *sum = sum.plus(total);
    }

    pub fn iter(&self) -> impl Iterator<Item = (&TotalKey, &Total)> {
        self.0.iter()
    }
}

/// Returns the key and the total of an ended launch; `None` for one that is open.
pub fn of_ended(launch: &Launch) -> Option<(TotalKey, Total)> {
    let (outcome, ended_at) = launch.as_ended()?;
    let key = TotalKey {
        ai_type: launch.ai_type.clone(),
        agent: launch.key.agent.clone(),
        project: launch.key.project.clone(),
        outcome: outcome.as_str().to_owned(),
    };
    let total = Total::of_one(launch.started_at, ended_at, launch.activity.usage);
    Some((key, total))
}
