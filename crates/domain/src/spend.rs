//! The usage of launches by day, as registers that only grow.
//!
//! A report tells the whole usage of a launch until then. The register of a launch on a day is the
//! greatest value of each number that was received until the end of that day. A report that is
//! late, repeated or sent by another coordinator therefore counts once. A server that lost a report
//! with a crash gets the same numbers with the next one.
//!
//! The usage of a day is the register of the day without the register of the last day before it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::activity::Usage;
use super::id::{AgentId, LaunchId, ProjectId, TaskId};
use super::launch::Launch;
use super::time::Timestamp;
use super::words::words;

const MILLIS_OF_DAY: i64 = 86_400_000;

/// A day in UTC, as the number of days since 1970-01-01. It is written as `2026-11-30`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(i64);

impl Day {
    pub const fn of(at: Timestamp) -> Self {
        Self(at.as_millis().div_euclid(MILLIS_OF_DAY))
    }

    pub const fn from_number(number: i64) -> Self {
        Self(number)
    }

    pub const fn number(self) -> i64 {
        self.0
    }

    /// Returns the month, such as `2026-11`.
    fn month(self) -> String {
        let mut day = self.to_string();
        day.truncate("2026-11".len());
        day
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begin = Timestamp::from_millis(self.0.saturating_mul(MILLIS_OF_DAY)).to_string();
        f.pad(begin.split('T').next().unwrap_or_default())
    }
}

impl FromStr for Day {
    type Err = InvalidDay;

    fn from_str(text: &str) -> Result<Self, InvalidDay> {
        let begin = text.parse::<Date>().and_then(|date| date.to_zoned(TimeZone::UTC));
        let begin = begin.map_err(|_| InvalidDay)?.timestamp();
        Ok(Self::of(Timestamp::from_millis(begin.as_millisecond())))
    }
}

/// The error for a text that is not a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a day such as 2026-11-30")]
pub struct InvalidDay;

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Day {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Day {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Day".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date" })
    }
}

/// The register of a launch on a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register {
    pub day: Day,
    pub usage: Usage,
}

impl Register {
    /// Returns the register after `report`, which was received on its day. `newest` is the register
    /// of the newest day of the launch. Returns `None` if the report adds nothing.
    ///
    /// If the clock goes back, usage counts in the newest day that has a register. So the registers
    /// of earlier days stay as they are.
    pub fn after(newest: Option<Self>, report: Self) -> Option<Self> {
        let Some(newest) = newest else {
            return (!report.usage.is_none()).then_some(report);
        };
        let usage = newest.usage.at_least(report.usage);
        let day = newest.day.max(report.day);
        (usage != newest.usage).then_some(Self { day, usage })
    }

    /// Returns the usage since `earlier`, the register of the last day before.
    pub fn since(self, earlier: Option<Self>) -> Usage {
        self.usage.less(earlier.map_or_else(Usage::default, |earlier| earlier.usage))
    }
}

words! {
    /// The property that the launches of one sum share. `provider` is the AI type. Days and months
    /// are in UTC.
    pub enum SpendBy as "kind of sum" {
        Task = "task",
        Agent = "agent",
        Project = "project",
        Provider = "provider",
        Day = "day",
        Month = "month",
    }
}

/// The launch that used something. A launch counts for its last task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spender {
    pub launch: LaunchId,
    pub task: Option<TaskId>,
    pub agent: AgentId,
    pub project: ProjectId,
    pub ai_type: String,
}

impl From<&Launch> for Spender {
    fn from(launch: &Launch) -> Self {
        Self {
            launch: launch.id.clone(),
            task: launch.task.clone(),
            agent: launch.key.agent.clone(),
            project: launch.key.project.clone(),
            ai_type: launch.ai_type.clone(),
        }
    }
}

/// The sums over the usage of launches from a day on.
#[derive(Debug)]
pub struct SpendSums {
    by: SpendBy,
    since: Option<Day>,
    /// The last register that was added.
    last: Option<(LaunchId, Register)>,
    sums: BTreeMap<Option<String>, Usage>,
}

impl SpendSums {
    pub const fn new(by: SpendBy, since: Option<Day>) -> Self {
        Self { by, since, last: None, sums: BTreeMap::new() }
    }

    /// Adds the register of a day. The caller adds the registers of a launch one after the other,
    /// the oldest day first.
    pub fn add(&mut self, of: &Spender, register: Register) {
        let last = self.last.take().filter(|(launch, _)| *launch == of.launch);
        let used = register.since(last.map(|(_, earlier)| earlier));
        self.last = Some((of.launch.clone(), register));
        self.add_used(of, register.day, used);
    }

    /// Adds the usage of a launch in a day.
    pub fn add_used(&mut self, of: &Spender, day: Day, used: Usage) {
        if used.is_none() || self.since.is_some_and(|since| day < since) {
            return;
        }
        let key = match self.by {
            SpendBy::Task => of.task.as_ref().map(ToString::to_string),
            SpendBy::Agent => Some(of.agent.to_string()),
            SpendBy::Project => Some(of.project.to_string()),
            SpendBy::Provider => Some(of.ai_type.clone()),
            SpendBy::Day => Some(day.to_string()),
            SpendBy::Month => Some(day.month()),
        };
        let sum = self.sums.entry(key).or_default();
        *sum = sum.plus(used);
    }

    /// Returns the sums by their keys. The sum of the launches without a task has no key.
    pub fn into_sums(self) -> impl Iterator<Item = (Option<String>, Usage)> {
        self.sums.into_iter()
    }
}

#[cfg(test)]
mod tests;
