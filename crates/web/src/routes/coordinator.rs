//! The routes of a coordinator without its server: its launches and their output. The server has
//! all other routes.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{FromRef, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Json, Router};
use tokio_util::sync::CancellationToken;

use super::configuration::{self, ConfigurationHandle};
use super::events::Places;
use super::launches::as_text;
use super::metrics::{Metrics, describe};
use super::status::coordinator_body;
use crate::Problem;
use crate::extract::{InPath, InQuery};
use api::launches::{LaunchBody, LaunchQuery, OutputQuery};
use api::status::{DeferredBody, InstanceBody, LimitsBody, ServerBody, StatusBody};
use api::why::WhyBody;
use domain::totals::Totals;
use domain::{AgentId, LaunchId, ProjectId};
use runtime::folder_watch::shared::SharedFolders;
use service::{CoordinatorStatus, CoordinatorView, read_output};

/// The state of a coordinator at one moment.
#[derive(Debug, Clone)]
pub struct CoordinatorLook {
    pub status: CoordinatorStatus,
    /// The address of its server.
    pub server: String,
    /// The reason why the server gives it no work.
    pub problem: Option<String>,
}

/// The state that these routes need.
#[derive(Clone)]
pub struct CoordinatorState {
    /// Returns the current state of the coordinator.
    pub look: Arc<dyn Fn() -> CoordinatorLook + Send + Sync>,
    /// The configuration in use, and the requests to read it again.
    pub configuration: ConfigurationHandle,
    /// The folder with the output of its agents.
    pub state_dir: PathBuf,
    /// The watched folders of the output, shared by all followers.
    pub output_folders: SharedFolders,
    /// Ends streams that would never end by themselves.
    pub closing: CancellationToken,
}

impl FromRef<CoordinatorState> for ConfigurationHandle {
    fn from_ref(state: &CoordinatorState) -> Self {
        state.configuration.clone()
    }
}

impl From<CoordinatorLook> for StatusBody {
    fn from(look: CoordinatorLook) -> Self {
        let CoordinatorLook { status, server, problem } = look;
        let n_live = status.instances.iter().filter(|instance| instance.is_live()).count();
        let at = status.at;
        let view = CoordinatorView { heard_at: at, is_there: true, status };
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            health: if problem.is_none() { "ok" } else { "cut_off" }.to_owned(),
            at,
            server: Some(ServerBody { address: server, problem }),
            limits: LimitsBody {
                max_concurrent: view.status.limits.max_concurrent,
                running: n_live,
            },
            coordinators: vec![coordinator_body(&view)],
            instances: view.status.instances.iter().map(InstanceBody::from).collect(),
            deferred: view.status.deferred.iter().map(DeferredBody::from).collect(),
            crowds: view.status.crowds.clone(),
            failed_snapshots: view.status.failed_snapshots.clone(),
            counters: view.status.counters,
            ..Self::default()
        }
    }
}

pub(crate) fn routes() -> Router<CoordinatorState> {
    Router::new()
        .route("/status", get(status))
        .route("/metrics", get(metrics))
        .route("/health/live", get(async || "ok\n"))
        .route("/launches", get(list))
        .route("/launches/{id}", get(show))
        .route("/projects/{project}/agents/{agent}/why", get(why))
        .route("/launches/{id}/output", get(output).layer(Extension(Places::of_output())))
        .merge(configuration::routes())
}

/// Answers a request that the server should have got.
pub(crate) async fn ask_the_server(State(state): State<CoordinatorState>, uri: Uri) -> Problem {
    let server = (state.look)().server;
    let path = uri.path();
    let what = path
        .trim_start_matches("/api")
        .trim_start_matches('/')
        .split('/')
        .next()
        .unwrap_or_default();
    let detail = format!(
        "this configuration is a coordinator's, without its server: it knows status, why, logs \
         and reload. Ask the server at {server} for `{what}`, with its --config"
    );
    Problem::new(StatusCode::MISDIRECTED_REQUEST, "not_the_server", detail)
}

async fn status(State(state): State<CoordinatorState>) -> Json<StatusBody> {
    Json(StatusBody {
        configuration: Some(state.configuration.configuration_state()),
        ..(state.look)().into()
    })
}

/// Returns the reasons for which it defers the starts of a pair. The server knows the rest.
async fn why(
    State(state): State<CoordinatorState>,
    InPath((project, agent)): InPath<(ProjectId, AgentId)>,
) -> Result<Json<Vec<WhyBody>>, Problem> {
    let CoordinatorLook { status, server, problem } = (state.look)();
    if let Some(problem) = problem {
        let detail = format!("no agent can start, because of the server {server}: {problem}");
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no_work_known", detail));
    }
    let at = status.at;
    let deferred = status
        .deferred
        .into_iter()
        .filter(|deferred| deferred.key.agent == agent && deferred.key.project == project);
    let reasons: Vec<WhyBody> =
        deferred.map(|deferred| WhyBody::of_coordinator(deferred, at)).collect();
    if reasons.is_empty() {
        let detail = format!(
            "this coordinator defers no start of `{agent}` in `{project}`; the server {server} \
             decides whether the agent is to start"
        );
        return Err(Problem::new(StatusCode::NOT_FOUND, "no_reason", detail));
    }
    Ok(Json(reasons))
}

async fn metrics(State(state): State<CoordinatorState>) -> Metrics {
    let look = (state.look)();
    let coordinators = [look.status.clone()];
    // Its server counts launches.
    describe(&look.into(), &coordinators, &Totals::default(), None)
}

async fn list(
    State(state): State<CoordinatorState>,
    InQuery(query): InQuery<LaunchQuery>,
) -> Result<Json<Vec<LaunchBody>>, Problem> {
    let instances = (state.look)().status.instances;
    let wanted = instances.iter().filter(|instance| {
        let key = &instance.key;
        query.agent.as_ref().is_none_or(|agent| *agent == key.agent)
            && query.project.as_ref().is_none_or(|project| *project == key.project)
            && query.purpose.is_none_or(|purpose| purpose == key.purpose)
    });
    // The ids grow with time.
    let mut wanted: Vec<LaunchBody> = wanted.map(LaunchBody::from).collect();
    wanted.sort_by(|a, b| b.launch_id.cmp(&a.launch_id));
    wanted.truncate(query.limit.unwrap_or(usize::MAX));
    Ok(Json(wanted))
}

async fn show(
    State(state): State<CoordinatorState>,
    InPath(id): InPath<LaunchId>,
) -> Result<Json<LaunchBody>, Problem> {
    let instances = (state.look)().status.instances;
    match instances.iter().find(|instance| instance.launch == id) {
        Some(instance) => Ok(Json(instance.into())),
        None => Err(not_here(&id)),
    }
}

async fn output(
    State(state): State<CoordinatorState>,
    Extension(places): Extension<Places>,
    InPath(id): InPath<LaunchId>,
    InQuery(query): InQuery<OutputQuery>,
) -> Result<Response, Problem> {
    let place = query.follow.then(|| places.take("output of launches")).transpose()?;
    let folders = query.follow.then_some(&state.output_folders);
    let output = read_output(&state.state_dir, &id, folders)?.ok_or_else(|| not_here(&id))?;
    Ok(as_text(output, place, state.closing.clone()))
}

fn not_here(id: &LaunchId) -> Problem {
    let detail =
        format!("launch `{id}` is not one of this coordinator's, or its output was never written");
    Problem::new(StatusCode::NOT_FOUND, "no_output", detail)
}
