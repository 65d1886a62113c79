//! The database of the store, as `/status` shows it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use domain::Timestamp;
use domain::store_state::{Database, Spread, StoreProblem, StoreState};

/// The database that holds the state of the server, and how it answered the last transactions.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreBody {
    /// `sqlite` or `postgres`.
    pub kind: String,
    /// The version of SQLite or of the PostgreSQL server.
    pub version: String,
    /// The URL, without a password.
    pub url: String,
    /// `ok`, `slow`, `stuck` or `failing`.
    pub health: String,
    /// The time since which it is stuck or failing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The problem in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The time of one statement without work. Absent if there was none in the last minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<LatencyBody>,
    /// The time until a transaction may write; it includes one round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_wait: Option<LatencyBody>,
    /// The time of a transaction that writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transaction: Option<LatencyBody>,
    /// The number of transactions that were committed since the start of the server.
    pub n_transactions: u64,
}

/// Some durations, in milliseconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LatencyBody {
    pub median_ms: f64,
    pub max_ms: f64,
}

impl From<Spread> for LatencyBody {
    fn from(spread: Spread) -> Self {
        let micros = |duration: Duration| u32::try_from(duration.as_micros()).unwrap_or(u32::MAX);
        let ms = |duration| f64::from(micros(duration)) / 1_000.0;
        Self { median_ms: ms(spread.median), max_ms: ms(spread.max) }
    }
}

impl From<LatencyBody> for Spread {
    fn from(latency: LatencyBody) -> Self {
        let duration = |ms: f64| Duration::try_from_secs_f64(ms / 1_000.0).unwrap_or_default();
        Self { median: duration(latency.median_ms), max: duration(latency.max_ms) }
    }
}

impl StoreBody {
    /// Returns the state of the store at `now`.
    pub fn of(state: &StoreState, now: Timestamp) -> Self {
        let problem = state.problem();
        let lasts = match problem {
            Some(StoreProblem::Failing(failure)) => Some(failure.lasts),
            Some(StoreProblem::Stuck(_, lasts)) => Some(lasts),
            _ => None,
        };
        let Database { kind, version, url } = &state.database;
        Self {
            kind: kind.as_str().to_owned(),
            version: version.clone(),
            url: url.clone(),
            health: problem.map_or("ok", |problem| problem.as_str()).to_owned(),
            since: lasts.map(|lasts| now - lasts),
            problem: problem.map(|problem| problem.to_string()),
            round_trip: state.round_trip.map(LatencyBody::from),
            lock_wait: state.lock_wait.map(LatencyBody::from),
            transaction: state.transaction.map(LatencyBody::from),
            n_transactions: state.n_transactions,
        }
    }

    /// Returns its name and version for people, such as `PostgreSQL 17.2`.
    pub fn name(&self) -> String {
        format!("{} {}", if self.is_postgres() { "PostgreSQL" } else { "SQLite" }, self.version)
    }

    /// Returns the figures that say something about this kind of database, each with its name. A
    /// statement of SQLite has no way to go.
    pub fn figures(&self) -> Vec<(&'static str, Spread)> {
        let all = [
            ("statement", self.round_trip.filter(|_| self.is_postgres())),
            ("lock", self.lock_wait.filter(|_| self.is_postgres())),
            ("transaction", self.transaction),
        ];
        all.into_iter().filter_map(|(name, latency)| Some((name, latency?.into()))).collect()
    }

    fn is_postgres(&self) -> bool {
        self.kind == "postgres"
    }
}
