//! The usage of the current day, and the last end of each agent in each project.

use std::collections::BTreeMap;

use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::shown::{LastEnd, Short, cost_of};
use super::words::Words;
use crate::{Problem, RestState};
use domain::{AgentId, Launch, ProjectId, Timestamp, Usage};

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
        let since = Days::here().start_of(state.service.time());
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

/// Returns a cost, if it is known, and a number of tokens, such as `$0.42 · 61k tokens`.
pub(super) fn usage_text(w: &'static Words, usage: Usage) -> String {
    let tokens = (usage.tokens() > 0).then(|| format!("{} {}", Short(usage.tokens()), w.tokens));
    let parts: Vec<String> = cost_of(&usage).into_iter().chain(tokens).collect();
    if parts.is_empty() { "–".to_owned() } else { parts.join(" · ") }
}

/// The days of a time zone.
#[derive(Clone)]
pub(super) struct Days(TimeZone);

impl Days {
    /// Returns the days of the time zone of this machine.
    pub(super) fn here() -> Self {
        Self(TimeZone::system())
    }

    /// Returns the name of the time zone.
    pub(super) fn zone(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    pub(super) fn day_of(&self, at: Timestamp) -> Date {
        let at = jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or_default();
        self.0.to_datetime(at).date()
    }

    /// Returns the beginning of the day of a time.
    pub(super) fn start_of(&self, at: Timestamp) -> Timestamp {
        let start = self.day_of(at).to_zoned(self.0.clone());
        start.map_or(at, |start| Timestamp::from_millis(start.timestamp().as_millisecond()))
    }
}
