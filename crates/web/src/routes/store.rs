//! The database of the store, as `/metrics` shows it.

use api::store::{LatencyBody, StoreBody};
use domain::Timestamp;
use domain::store_state::Spread;
use runtime::telemetry::counters::{Exposition, Label};

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
    use std::time::Duration;

    use super::*;
    use domain::store_state::{Access, Database, DatabaseKind, StoreFailure, StoreState};

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
