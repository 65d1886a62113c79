//! `/status`: an overview; `/health/live` and `/health/ready`.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use crate::openapi::{Api, about};
use crate::routes::forge::host_body;
use crate::routes::launches::add_exit_hints;
use crate::{MissingProgram, Problem, Programs, RestState};
use api::forge::ForgeItemBody;
use api::launches::LaunchBody;
use api::status::{
    CoordinatorBody, DeferredBody, HttpBody, InstanceBody, LimitsBody, NotInstalledBody,
    ParkedBody, StatusBody, StuckBody, ToMergeBody,
};
use api::store::StoreBody;
use api::totals::TotalsBody;
use domain::counters::Counters;
use domain::plan::Deferred;
use domain::start_history::StartReason;
use domain::{Agent, Instance, InstanceKey, LaunchId, Purpose, StartHistory};
use service::{CoordinatorStatus, CoordinatorView, StatusView};

/// Describes a coordinator as its server sees it.
pub(super) fn coordinator_body(view: &CoordinatorView) -> CoordinatorBody {
    let CoordinatorStatus { coordinator, limits, instances, machine, .. } = &view.status;
    CoordinatorBody {
        coordinator_id: coordinator.clone(),
        heard_at: view.heard_at,
        is_there: view.is_there,
        max_concurrent: limits.max_concurrent,
        running: instances.iter().filter(|instance| instance.is_live()).count(),
        machine: machine.clone(),
    }
}

/// Returns the missing programs of the providers of `agents`. There are none if another
/// coordinator may start these agents on a host of its own.
pub(crate) async fn not_installed(
    programs: &Programs,
    agents: &[Agent],
    coordinators: &[CoordinatorBody],
) -> Vec<NotInstalledBody> {
    if coordinators.iter().filter(|each| each.is_there).count() > 1 {
        return Vec::new();
    }
    let shown = agents.iter().filter(|agent| !agent.is_archived());
    let providers: BTreeSet<String> = shown.map(|agent| agent.ai_type.clone()).collect();
    let missing = programs.find_missing(providers).await.into_iter();
    let body = |(provider, MissingProgram { program, remedy })| NotInstalledBody {
        provider,
        program,
        remedy,
    };
    missing.map(body).collect()
}

/// Describes everything, except what only a route knows.
pub(crate) fn status_body(view: StatusView) -> StatusBody {
    let processes: BTreeMap<LaunchId, &Instance> = view
        .coordinators
        .iter()
        .flat_map(|coordinator| &coordinator.status.instances)
        .map(|instance| (instance.launch.clone(), instance))
        .collect();
    let deferred: Vec<DeferredBody> =
        all_deferred(&view).into_iter().map(DeferredBody::from).collect();
    let held = view.held.iter().map(|record| DeferredBody {
        agent_id: record.key.agent.clone(),
        project_id: record.key.project.clone(),
        purpose: record.key.purpose,
        reason: StartReason::Held,
        until: None,
        detail: None,
    });
    // A person holds the pair for both purposes. One line is enough, and none is needed if
    // waiting work shows it already.
    let held: Vec<DeferredBody> = held
        .filter(|held| held.purpose == Purpose::Task || !is_held_for_tasks(&view.held, held))
        .filter(|held| !deferred.iter().any(|other| is_same_key(held, other)))
        .collect();
    let counters =
        view.coordinators.iter().fold(Counters::default(), |sum, coordinator| Counters {
            cycles: sum.cycles.saturating_add(coordinator.status.counters.cycles),
            starts: sum.starts.saturating_add(coordinator.status.counters.starts),
            adoptions: sum.adoptions.saturating_add(coordinator.status.counters.adoptions),
            leaked: sum.leaked.saturating_add(coordinator.status.counters.leaked),
            found_by_poll_only: sum
                .found_by_poll_only
                .saturating_add(coordinator.status.counters.found_by_poll_only),
        });
    let there = || view.coordinators.iter().filter(|coordinator| coordinator.is_there);
    let running = if view.has_rows {
        view.open.iter().filter(|launch| launch.is_kept()).count()
    } else {
        processes.values().filter(|instance| instance.is_live()).count()
    };
    let limits = LimitsBody {
        max_concurrent: there()
            .fold(0, |sum: usize, each| sum.saturating_add(each.status.limits.max_concurrent)),
        running,
    };
    let of_processes = processes.values().filter(|_| !view.has_rows);
    let of_processes = of_processes.map(|instance| InstanceBody::from(*instance));
    let mut instances: Vec<InstanceBody> = view
        .open
        .into_iter()
        .map(|launch| InstanceBody::of(processes.get(&launch.id), &view.abandoned, launch))
        .chain(of_processes)
        .collect();
    let mut ended: Vec<LaunchBody> = view.ended.into_iter().map(LaunchBody::from).collect();
    let running_launches = instances.iter_mut().map(|instance| &mut instance.launch);
    for launch in running_launches.chain(&mut ended) {
        launch.add_short_id(&view.short_ids);
    }
    let crowds = there().flat_map(|each| each.status.crowds.clone()).collect();
    let failed_snapshots = there().flat_map(|each| each.status.failed_snapshots.clone()).collect();
    let mut forge_items: Vec<ForgeItemBody> =
        view.forge_items.into_iter().map(ForgeItemBody::from).collect();
    for item in &mut forge_items {
        item.add_short_id(&view.short_ids);
    }
    let parked = view.parked.into_iter();
    let parked = parked.filter_map(|account| ParkedBody::of(account, view.parking));
    let to_merge = view.to_merge.into_iter();
    let to_merge = to_merge.map(|(project_id, n_results)| ToMergeBody { project_id, n_results });
    StatusBody {
        crowds,
        failed_snapshots,
        to_merge: to_merge.collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        health: if view.has_rows { "ok" } else { "store_unavailable" }.to_owned(),
        at: view.at,
        paused: view.paused_since.is_some(),
        paused_since: view.paused_since,
        store: Some(StoreBody::of(&view.store, view.at)),
        limits,
        coordinators: view.coordinators.iter().map(coordinator_body).collect(),
        unlisted_coordinator_at: view.unlisted_coordinator_at,
        instances,
        deferred: deferred.into_iter().chain(held).collect(),
        parked: parked.collect(),
        pause_file: view.pause_file.is_some(),
        pause_file_path: view.pause_file,
        forges: view.forges.into_iter().map(host_body).collect(),
        forge_items,
        stuck: view.stuck.into_iter().map(StuckBody::from).collect(),
        ended,
        counters,
        totals: Some(TotalsBody::from(&view.totals)),
        ..StatusBody::default()
    }
}

/// Returns the waiting starts, each once, although several coordinators may report one. The report
/// of a coordinator without a passkey for the agent has the lowest rank.
fn all_deferred(view: &StatusView) -> Vec<&Deferred> {
    let mut all: Vec<&Deferred> = view
        .coordinators
        .iter()
        .filter(|each| each.is_there)
        .flat_map(|each| &each.status.deferred)
        .collect();
    all.sort_by_key(|deferred| deferred.reason == StartReason::NoPasskey);
    let mut seen: BTreeSet<&InstanceKey> = view.open.iter().map(|launch| &launch.key).collect();
    all.retain(|deferred| seen.insert(&deferred.key));
    all
}

fn is_held_for_tasks(held: &[StartHistory], other: &DeferredBody) -> bool {
    held.iter().any(|record| {
        record.key.purpose == Purpose::Task
            && record.key.agent == other.agent_id
            && record.key.project == other.project_id
    })
}

fn is_same_key(a: &DeferredBody, b: &DeferredBody) -> bool {
    a.agent_id == b.agent_id && a.project_id == b.project_id && a.purpose == b.purpose
}

pub(super) fn routes() -> Api {
    let text = "Everything at a glance";
    Api::new().get("/status", status, about(text).gives::<StatusBody>()).get(
        "/coordinator",
        status,
        about(text).gives::<StatusBody>(),
    )
}

pub(super) fn health() -> Api {
    Api::new()
        .get(
            "/health/live",
            live,
            about("Whether the server lives").gives_text("text/plain").for_everybody(),
        )
        .get(
            "/health/ready",
            ready,
            about("The readiness of the server").gives_text("text/plain").for_everybody(),
        )
}

async fn status(State(state): State<RestState>) -> Result<Json<StatusBody>, Problem> {
    let mut body = status_body(state.service.status().await?);
    add_exit_hints(&state, &mut body.ended).await;
    let http = state.http.map(|address| HttpBody { address });
    // Without rows, the agents are not known.
    let agents = match body.health.as_str() {
        "ok" => state.service.catalog.agents().await.unwrap_or_default(),
        _ => Vec::new(),
    };
    let not_installed = not_installed(&state.programs, &agents, &body.coordinators).await;
    Ok(Json(StatusBody {
        http,
        not_installed,
        configuration: Some(state.configuration.configuration_state()),
        ..body
    }))
}

async fn live() -> &'static str {
    "ok\n"
}

/// Checks whether the server would answer calls: its store answers, and it is not stopping.
async fn ready(State(state): State<RestState>) -> Result<&'static str, Problem> {
    if state.closing.is_cancelled() {
        return Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "stopping",
            "the server is stopping",
        ));
    }
    state.service.check_store().await?;
    Ok("ok\n")
}
