//! `/metrics`: metrics for monitoring, in Prometheus' text form.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::header::{self, HeaderName};

use super::status::status_body;
use super::{store, totals};
use crate::openapi::{Api, about};
use crate::{Problem, RestState};
use api::status::StatusBody;
use domain::counters::Counters;
use domain::totals::Totals;
use domain::{AttentionKind, Purpose};
use runtime::telemetry::counters::{Exposition, Label, MEDIA_TYPE};
use service::{CoordinatorStatus, TaskFigures};

/// A text with its media type.
pub(super) type Metrics = ([(HeaderName, &'static str); 1], String);

pub(super) fn routes() -> Api {
    Api::new().get("/metrics", metrics, about("Figures for Prometheus").gives_text("text/plain"))
}

async fn metrics(State(state): State<RestState>) -> Result<Metrics, Problem> {
    let view = state.service.status().await?;
    let totals = state.service.launches.totals();
    let figures = ServerFigures {
        // The other figures show that the store fails.
        tasks: if view.has_rows {
            state.service.tasks.figures().await?
        } else {
            TaskFigures::default()
        },
        attention: if view.has_rows {
            state
                .service
                .count_attention(state.configuration.configuration_state().rejected)
                .await?
        } else {
            BTreeMap::new()
        },
        n_held: view.held.len(),
        n_parked: view.parked.len(),
        store_bytes: database_size(&view.store.database.url),
    };
    let coordinators: Vec<CoordinatorStatus> =
        view.coordinators.iter().map(|each| each.status.clone()).collect();
    Ok(describe(&status_body(view), &coordinators, &totals, Some(&figures)))
}

/// The figures that only a server has.
pub(super) struct ServerFigures {
    tasks: TaskFigures,
    attention: BTreeMap<AttentionKind, u64>,
    n_held: usize,
    n_parked: usize,
    /// `None` for a database that is not a file.
    store_bytes: Option<u64>,
}

/// Returns the size of an SQLite file and its log, in bytes.
fn database_size(url: &str) -> Option<u64> {
    let path = url.strip_prefix("sqlite:")?;
    let size = |path: &str| std::fs::metadata(path).map(|found| found.len());
    Some(size(path).ok()? + size(&format!("{path}-wal")).unwrap_or_default())
}

/// Adds the figures of a server.
fn describe_server(status: &StatusBody, figures: &ServerFigures, text: &mut Exposition) {
    let n = |of: usize| [(Vec::new(), u64::try_from(of).unwrap_or(u64::MAX))];
    let by_status: Vec<(String, u64)> =
        figures.tasks.by_status.iter().map(|(status, n)| (status.to_string(), *n)).collect();
    text.gauge(
        "agent_coordinator_tasks",
        "Tasks, by status.",
        by_status.iter().map(|(status, n)| (vec![("status", status.as_str())], *n)),
    );
    text.gauge(
        "agent_coordinator_oldest_waiting_seconds",
        "How long the oldest task in progress waits for an agent; 0 if none waits.",
        [(Vec::new(), figures.tasks.oldest_waiting.map_or(0, |lasts| lasts.as_secs()))],
    );
    text.gauge(
        "agent_coordinator_paused",
        "1 while no agents are started.",
        n(usize::from(status.paused || status.pause_file)),
    );
    text.gauge(
        "agent_coordinator_attention_open",
        "Conditions that need a person, by kind, also those put off or marked as done.",
        figures.attention.iter().map(|(kind, n)| (vec![("kind", kind.as_str())], *n)),
    );
    text.gauge("agent_coordinator_held", "Pairs that a person stopped.", n(figures.n_held));
    text.gauge(
        "agent_coordinator_suspended",
        "Pairs with work that failed so often that only a person resumes them.",
        n(figures.tasks.n_suspended),
    );
    text.gauge(
        "agent_coordinator_parked",
        "Accounts of providers whose agents are not started.",
        n(figures.n_parked),
    );
    let chats = status.instances.iter().filter(|each| each.launch.purpose == Purpose::Chat);
    text.gauge("agent_coordinator_chats", "Open chats.", n(chats.count()));
    text.gauge(
        "agent_coordinator_store_size_bytes",
        "Size of the database file and its log.",
        figures.store_bytes.map(|bytes| (Vec::new(), bytes)),
    );
    // A host with several entries has one sample, which is that of its worst entry.
    let mut forges: BTreeMap<&str, bool> = BTreeMap::new();
    for forge in &status.forges {
        *forges.entry(&forge.host).or_insert(true) &= forge.health == "ok";
    }
    text.gauge(
        "agent_coordinator_forge_up",
        "1 if the forge answered the last request.",
        forges.into_iter().map(|(host, is_up)| (vec![("host", host)], u64::from(is_up))),
    );
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
    of_server: Option<&ServerFigures>,
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
    if let Some(figures) = of_server {
        describe_server(status, figures, &mut text);
    }
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
