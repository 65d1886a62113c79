//! The database of the store, as `/status` and `/metrics` show it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use domain::Timestamp;
use domain::store_state::{Database, Spread, StoreProblem, StoreState};
use runtime::telemetry::counters::{Exposition, Label};

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
    /// Since when it is stuck or failing.
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
    pub(super) fn of(state: &StoreState, now: Timestamp) -> Self {
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

/// A latency as a metric.
struct Latency {
    name: &'static str,
    help: &'static str,
    of: fn(&StoreBody) -> Option<LatencyBody>,
}

const LATENCIES: [Latency; 3] = [
    Latency {
        name: "agent_coordinator_store_round_trip_seconds",
        help: "One statement without work, of the last transactions that read.",
        of: |store| store.round_trip,
    },
    Latency {
        name: "agent_coordinator_store_lock_wait_seconds",
        help: "Until a transaction may write, of the last transactions; includes one round trip.",
        of: |store| store.lock_wait,
    },
    Latency {
        name: "agent_coordinator_store_transaction_seconds",
        help: "The last transactions that wrote, from their begin to the answer to their commit.",
        of: |store| store.transaction,
    },
];

/// Writes the state of the store at `now` as metrics.
pub(super) fn describe(store: &StoreBody, now: Timestamp, text: &mut Exposition) {
    let labels: Vec<Label<'_>> = vec![("kind", &store.kind), ("version", &store.version)];
    text.gauge("agent_coordinator_store_info", "The database of the store.", [(labels, 1)]);
    let one = |value: u64| [(Vec::new(), value)];
    text.gauge(
        "agent_coordinator_store_up",
        "1 if the last transactions worked, 0 while the store fails.",
        one(u64::from(store.health != "failing")),
    );
    text.gauge(
        "agent_coordinator_store_blocked_seconds",
        "How long the store has failed, or a transaction has not gone on.",
        one(store.since.map_or(0, |since| now.since(since).as_secs())),
    );
    text.counter(
        "agent_coordinator_store_transactions_total",
        "Transactions that wrote and were committed; those that come at once share one.",
        one(store.n_transactions),
    );
    for Latency { name, help, of } in LATENCIES {
        let spread = of(store).map(Spread::from);
        let samples = spread.into_iter().flat_map(|spread| {
            [("0.5", spread.median), ("1", spread.max)]
                .map(|(quantile, duration)| (vec![("quantile", quantile)], duration))
        });
        text.gauge_of_time(name, help, samples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::store_state::{Access, DatabaseKind, StoreFailure};

    #[test]
    fn a_store_that_fails_is_told_with_its_figures() {
        let database = Database {
            kind: DatabaseKind::Postgres,
            version: "17.2".to_owned(),
            url: "postgres://u@h/d".to_owned(),
        };
        let failure = StoreFailure {
            access: Access::Write,
            lasts: Duration::from_secs(12),
            error: "connection refused".to_owned(),
        };
        let (median, max) = (Duration::from_micros(210), Duration::from_millis(52));
        let state = StoreState {
            database,
            round_trip: Some(Spread { median, max }),
            lock_wait: None,
            transaction: None,
            failure: Some(failure),
            step: None,
            n_transactions: 7,
        };
        let now = Timestamp::from_millis(20_000);
        let store = StoreBody::of(&state, now);
        let json = serde_json::to_value(&store).unwrap();
        assert_eq!(json["health"], "failing");
        assert_eq!(json["since"], serde_json::to_value(Timestamp::from_millis(8_000)).unwrap());
        assert_eq!(json["roundTrip"]["maxMs"], 52.0);
        assert_eq!(store.name(), "PostgreSQL 17.2");
        assert_eq!(store.figures(), [("statement", Spread { median, max })]);

        let mut text = Exposition::default();
        describe(&store, now, &mut text);
        let text = text.into_text();
        for line in [
            "agent_coordinator_store_info{kind=\"postgres\",version=\"17.2\"} 1",
            "agent_coordinator_store_up 0",
            "agent_coordinator_store_blocked_seconds 12",
            "agent_coordinator_store_transactions_total 7",
            "agent_coordinator_store_round_trip_seconds{quantile=\"0.5\"} 0.00021",
            "agent_coordinator_store_round_trip_seconds{quantile=\"1\"} 0.052",
        ] {
            assert!(text.lines().any(|each| each == line), "{line}: {text}");
        }
        assert!(!text.contains("lock_wait_seconds{"), "{text}");
    }
}
