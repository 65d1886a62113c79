//! The usage of the current day, and the last end of each agent in each project.

use std::collections::BTreeMap;

use super::shown::{LastEnd, Short, cost_of};
use super::words::Words;
use crate::domain::{AgentId, Launch, ProjectId, Timestamp, Usage};
use crate::rest::{Problem, RestState};

/// The usage of launches that go on or ended since midnight in the time zone of the server.
#[derive(Debug, Default)]
pub(super) struct Today {
    pairs: BTreeMap<(AgentId, ProjectId), OfPair>,
}

#[derive(Debug, Default)]
struct OfPair {
    usage: Usage,
    /// The newest ended launch.
    last: Option<Launch>,
}

impl Today {
    /// Reads the launches of the day. `recent` are ended launches of any day, the newest first.
    pub(super) async fn read(state: &RestState, recent: &[Launch]) -> Result<Self, Problem> {
        let since = midnight(state.service.time());
        let ended = state.service.launches.ended_since(since).await?;
        let open = state.service.launches.open().await?;
        let mut today = Self::default();
        for launch in open.iter().chain(&ended) {
            let of = today.of_pair(launch);
            of.usage = of.usage.plus(launch.activity.usage);
        }
        for launch in ended.iter().chain(recent) {
            today.of_pair(launch).last.get_or_insert_with(|| launch.clone());
        }
        Ok(today)
    }

    fn of_pair(&mut self, launch: &Launch) -> &mut OfPair {
        let pair = (launch.key.agent.clone(), launch.key.project.clone());
        self.pairs.entry(pair).or_default()
    }

    /// Returns the usage of an agent in some projects.
    pub(super) fn usage<'a>(
        &self,
        agent: &AgentId,
        projects: impl IntoIterator<Item = &'a ProjectId>,
    ) -> Usage {
        let of = |project: &ProjectId| self.pairs.get(&(agent.clone(), project.clone()));
        let found = projects.into_iter().filter_map(of);
        found.fold(Usage::default(), |sum, of| sum.plus(of.usage))
    }

    /// Returns the usage of all agents.
    pub(super) fn total(&self) -> Usage {
        self.pairs.values().fold(Usage::default(), |sum, of| sum.plus(of.usage))
    }

    /// Returns the newest end of an agent in some projects.
    pub(super) fn last_end<'a>(
        &self,
        w: &'static Words,
        agent: &AgentId,
        projects: impl IntoIterator<Item = &'a ProjectId>,
    ) -> Option<LastEnd> {
        let of = |project: &ProjectId| self.pairs.get(&(agent.clone(), project.clone()));
        let found = projects.into_iter().filter_map(of).filter_map(|of| of.last.as_ref());
        let ended_at = |launch: &&Launch| launch.as_ended().map(|(_, at)| at);
        LastEnd::of(w, found.max_by_key(ended_at)?)
    }
}

/// Returns a cost and a number of tokens, such as `$0.42 · 61k tokens`.
pub(super) fn usage_text(w: &'static Words, usage: Usage) -> String {
    let cost = cost_of(usage).unwrap_or_else(|| "$0.00".to_owned());
    format!("{cost} · {} {}", Short(usage.tokens()), w.tokens)
}

/// Returns the last midnight in the time zone of the server. If the clock shows a time that no
/// calendar has, the day begins now.
fn midnight(now: Timestamp) -> Timestamp {
    let at = jiff::Timestamp::from_millisecond(now.as_millis());
    let day = at.and_then(|at| at.to_zoned(jiff::tz::TimeZone::system()).start_of_day());
    day.map_or(now, |day| Timestamp::from_millis(day.timestamp().as_millisecond()))
}
