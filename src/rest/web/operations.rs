//! The page of the coordinator: the running and the waiting launches, the reasons, and the switches
//! for all of them.

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{Redirect, Response};
use axum::routing::{get, post};

use super::instances::{InstanceRow, instance_rows};
use super::layout::{Frame, NavSection, rendered};
use super::names::Names;
use super::shown::{LaunchRow, When};
use super::spark::Spark;
use super::waits::{About, WhyLine};
use super::words::Words;
use crate::domain::plan::shared::{Crowd, FailedSnapshot};
use crate::domain::series::Series;
use crate::domain::{AgentId, InstanceKey, ProjectId, Purpose};
use crate::rest::routes::forge::{ForgeBody, ForgeItemBody};
use crate::rest::routes::status::{
    CoordinatorBody, DeferredBody, LimitsBody, ParkedBody, StatusBody,
};
use crate::rest::routes::store::StoreBody;
use crate::rest::routes::why::WhyBody;
use crate::rest::{Problem, RestState};
use crate::service::{Counters, Force, StopTarget};

#[derive(Template)]
#[template(path = "operations.html")]
struct OperationsPage {
    frame: Frame,
    names: Names,
    overview: Overview,
}

#[derive(Template)]
#[template(path = "parts/operations.html")]
struct OperationsPart {
    frame: Frame,
    names: Names,
    overview: Overview,
}

/// A start that waits.
struct WaitingStart {
    agent_id: AgentId,
    project_id: ProjectId,
    purpose: Purpose,
    why: WhyLine,
}

impl WaitingStart {
    /// Returns the rows of waiting starts, without those that do not wait any more.
    async fn read(
        frame: &Frame,
        state: &RestState,
        starts: Vec<DeferredBody>,
    ) -> Result<Vec<Self>, Problem> {
        let key =
            |start: DeferredBody| InstanceKey::new(start.agent_id, start.project_id, start.purpose);
        let keys = starts.into_iter().map(key).collect();
        let all = state.service.launches.why_of(keys).await?.into_iter().filter_map(|why| {
            let key = why.key.clone();
            let waiting = WhyBody::from(why).waiting()?;
            let about = About { agent: Some(&key.agent), project: Some(&key.project), task: None };
            let why = WhyLine::of(frame.w, &waiting, about);
            let InstanceKey { agent, project, purpose } = key;
            Some(Self { agent_id: agent, project_id: project, purpose, why })
        });
        Ok(all.collect())
    }
}

/// The charts of the last day.
struct Charts {
    running: Spark,
    waiting: Spark,
    tokens: Spark,
    cost: Spark,
    n_tokens: String,
    spent: String,
}

impl Charts {
    fn of(w: &'static Words, series: &Series, n_slots: usize) -> Self {
        let number = |number: u64| number.to_string();
        let dollars = |micros: u64| format!("${}.{:02}", micros / 1_000_000, micros / 10_000 % 100);
        let limit = u64::try_from(n_slots).ok();
        Self {
            running: Spark::of(w, &series.running, limit, number),
            waiting: Spark::of(w, &series.waiting, None, number),
            tokens: Spark::of(w, &series.tokens, None, number),
            cost: Spark::of(w, &series.cost_usd_micros, None, dollars),
            n_tokens: number(series.tokens.iter().sum()),
            spent: dollars(series.cost_usd_micros.iter().sum()),
        }
    }
}

/// The content of the overview.
struct Overview {
    charts: Charts,
    paused_since: Option<When>,
    is_somebody_there: bool,
    limits: LimitsBody,
    instances: Vec<InstanceRow>,
    deferred: Vec<WaitingStart>,
    parked: Vec<ParkedBody>,
    coordinators: Vec<CoordinatorBody>,
    store: Option<StoreBody>,
    pause_file: bool,
    crowds: Vec<Crowd>,
    failed_snapshots: Vec<FailedSnapshot>,
    forges: Vec<ForgeBody>,
    forge_items: Vec<ForgeItemBody>,
    ended: Vec<LaunchRow>,
    counters: Counters,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/operations", get(page))
        // Its address in earlier versions.
        .route("/ui/coordinator", get(async || Redirect::permanent("/ui/operations")))
        .route("/ui/parts/operations", get(part))
        .route("/ui/do/operations/pause", post(pause))
        .route("/ui/do/operations/resume", post(resume))
        .route("/ui/do/operations/drain", post(drain))
        .route("/ui/do/operations/refresh", post(refresh))
        .route("/ui/do/operations/stop-all", post(stop_all))
}

async fn page(frame: Frame, State(state): State<RestState>) -> Result<Response, Problem> {
    let overview = Overview::read(&frame, &state).await?;
    let names = Names::read(&state).await?;
    Ok(rendered(&OperationsPage { frame: frame.at(NavSection::Operations), names, overview }))
}

async fn part(frame: Frame, State(state): State<RestState>) -> Result<Response, Problem> {
    let overview = Overview::read(&frame, &state).await?;
    let names = Names::read(&state).await?;
    Ok(rendered(&OperationsPart { frame, names, overview }))
}

impl Overview {
    async fn read(frame: &Frame, state: &RestState) -> Result<Self, Problem> {
        let view = state.service.status().await?;
        let ended = view.ended.iter().map(LaunchRow::from).collect();
        let status = StatusBody::from(view);
        let series = state.service.series().await?;
        Ok(Self {
            charts: Charts::of(frame.w, &series, status.limits.max_concurrent),
            paused_since: status.paused_since.map(When),
            is_somebody_there: status.coordinators.iter().any(|each| each.is_there),
            limits: status.limits,
            instances: instance_rows(state, status.instances).await?,
            deferred: WaitingStart::read(frame, state, status.deferred).await?,
            parked: status.parked,
            coordinators: status.coordinators,
            store: status.store,
            pause_file: status.pause_file,
            crowds: status.crowds,
            failed_snapshots: status.failed_snapshots,
            forges: status.forges,
            forge_items: status.forge_items,
            ended,
            counters: status.counters,
        })
    }
}

async fn pause(State(state): State<RestState>) -> Result<StatusCode, Problem> {
    state.service.launches.pause().await?;
    tracing::info!("a person paused all starts");
    Ok(StatusCode::NO_CONTENT)
}

async fn resume(State(state): State<RestState>) -> Result<StatusCode, Problem> {
    state.service.launches.resume(&StopTarget::All).await?;
    tracing::info!("a person resumed agents");
    Ok(StatusCode::NO_CONTENT)
}

async fn drain(State(state): State<RestState>) -> Result<StatusCode, Problem> {
    let open = state.service.launches.drain().await?;
    tracing::info!(n_launches = open.len(), "a person started a drain");
    Ok(StatusCode::NO_CONTENT)
}

async fn refresh(State(state): State<RestState>) -> StatusCode {
    state.service.refresh();
    StatusCode::NO_CONTENT
}

async fn stop_all(State(state): State<RestState>) -> Result<StatusCode, Problem> {
    let stopped = state.service.launches.stop(&StopTarget::All, Force::No).await?;
    tracing::info!(n_launches = stopped.launches.len(), "a person stopped agents");
    Ok(StatusCode::NO_CONTENT)
}
