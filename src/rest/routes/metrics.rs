//! `/metrics`: metrics for monitoring, in Prometheus' text form.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::header::{self, HeaderName};

use super::status::StatusBody;
use super::{store, totals};
use crate::domain::totals::Totals;
use crate::rest::api::{Api, about};
use crate::rest::{Problem, RestState};
use crate::service::{CoordinatorStatus, Counters};
use crate::telemetry::counters::{Exposition, Label, MEDIA_TYPE};

/// A text with its media type.
pub(super) type Metrics = ([(HeaderName, &'static str); 1], String);

pub(super) fn routes() -> Api {
    Api::new().get("/metrics", metrics, about("Figures for Prometheus").gives_text("text/plain"))
}

async fn metrics(State(state): State<RestState>) -> Result<Metrics, Problem> {
    let view = state.service.status().await?;
    let totals = state.service.launches.totals();
    let coordinators: Vec<CoordinatorStatus> =
        view.coordinators.iter().map(|each| each.status.clone()).collect();
    Ok(describe(&StatusBody::from(view), &coordinators, &totals))
}

/// A counter of a coordinator, as a metric.
struct Counted {
    name: &'static str,
    help: &'static str,
    of: fn(&Counters) -> u64,
}

const OF_COORDINATORS: [Counted; 5] = [
    Counted {
        name: "agent_coordinator_starts_total",
        help: "Agents that a coordinator started.",
        of: |counters| counters.starts,
    },
    Counted {
        name: "agent_coordinator_adoptions_total",
        help: "Agents that a coordinator found alive at its start.",
        of: |counters| counters.adoptions,
    },
    Counted {
        name: "agent_coordinator_leaked_processes_total",
        help: "Processes that lived on when their agent had ended, and were ended.",
        of: |counters| counters.leaked,
    },
    Counted {
        name: "agent_coordinator_found_by_poll_total",
        help: "Work that only the poll found, and no wake-up had announced; should stay 0.",
        of: |counters| counters.found_by_poll_only,
    },
    Counted {
        name: "agent_coordinator_cycles_total",
        help: "Cycles of a coordinator's loop.",
        of: |counters| counters.cycles,
    },
];

/// Returns the counters of this process and of each coordinator, and the current state.
pub(super) fn describe(
    status: &StatusBody,
    coordinators: &[CoordinatorStatus],
    totals: &Totals,
) -> Metrics {
    let mut text = Exposition::of_process();
    for Counted { name, help, of } in OF_COORDINATORS {
        let samples = coordinators.iter().map(|each| {
            let labels: Vec<Label<'_>> = vec![("coordinator_id", each.coordinator.as_str())];
            (labels, of(&each.counters))
        });
        text.counter(name, help, samples);
    }
    if let Some(of_store) = &status.store {
        store::describe(of_store, status.at, &mut text);
    }
    totals::describe(totals, &mut text);
    let mut by_state: BTreeMap<&str, u64> = BTreeMap::new();
    for instance in &status.instances {
        *by_state.entry(&instance.launch.state).or_default() += 1;
    }
    let by_state = by_state.into_iter().map(|(state, n)| (vec![("state", state)], n));
    text.gauge("agent_coordinator_instances", "Launches that have not ended, by state.", by_state);
    let n = |of: usize| [(Vec::new(), u64::try_from(of).unwrap_or(u64::MAX))];
    let suspended = status.instances.iter().filter(|each| each.suspended_since.is_some()).count();
    text.gauge(
        "agent_coordinator_instances_suspended",
        "Agents that were stopped by a signal.",
        n(suspended),
    );
    let unkillable = status.instances.iter().filter(|each| each.unkillable_since.is_some()).count();
    text.gauge(
        "agent_coordinator_instances_unkillable",
        "Agents with processes that survived SIGKILL.",
        n(unkillable),
    );
    text.gauge(
        "agent_coordinator_slots",
        "Agents that may live at once.",
        n(status.limits.max_concurrent),
    );
    text.gauge("agent_coordinator_deferred", "Starts that wait.", n(status.deferred.len()));
    ([(header::CONTENT_TYPE, MEDIA_TYPE)], text.into_text())
}
