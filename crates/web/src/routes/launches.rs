//! `/launches`: past and running launches, and their output.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Extension, Json};
use futures::{Stream, StreamExt as _};
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::events::Places;
use crate::extract::{InPath, InQuery};
use crate::openapi::{Api, about};
use crate::page::{MAX_LIMIT, Page, limit_of};
use crate::{Problem, RestState};
use api::activity::ActivityBody;
use domain::instance::ExitHint;
use domain::{AgentId, Launch, LaunchId, ProjectId, Purpose, ShortId, TaskId, Timestamp};
use service::LaunchFilter;

/// A launch as it is shown.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LaunchBody {
    pub launch_id: LaunchId,
    pub agent_id: AgentId,
    pub project_id: ProjectId,
    pub purpose: Purpose,
    /// Only the server knows it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ai_type: String,
    /// `starting`, `running`, `stopping`, `ending`, `ended`.
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// The short id of the task, such as `SHOP-12`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_short_id: Option<ShortId>,
    /// The task that ordered its start; absent after the agent took a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_task_id: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    pub claimed_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authenticated_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// The detail of the outcome, or why it is being stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Facts about the exit that the exit status does not contain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exit_hints: Vec<ExitHint>,
    #[serde(flatten)]
    pub activity: ActivityBody,
}

/// Which launches to list, the newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LaunchQuery {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<Purpose>,
    /// At most so many; 100 without it, 1000 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    pub limit: Option<usize>,
    /// The last one of the part before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<LaunchId>,
}

/// The options for reading output.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutputQuery {
    /// Goes on until the launch has ended.
    #[serde(default)]
    pub follow: bool,
}

impl LaunchBody {
    /// Adds the short id of its task, if `short_ids` has it.
    pub(super) fn add_short_id(&mut self, short_ids: &BTreeMap<TaskId, ShortId>) {
        self.task_short_id = self.task_id.as_ref().and_then(|task| short_ids.get(task).cloned());
    }
}

impl From<Launch> for LaunchBody {
    fn from(launch: Launch) -> Self {
        let (ended_at, outcome, reason) = match launch.as_ended() {
            Some((outcome, at)) => (Some(at), Some(outcome.as_str().to_owned()), outcome.reason()),
            None => (None, None, launch.stop_reason.map(|reason| reason.to_string())),
        };
        Self {
            state: launch.state.as_str().to_owned(),
            launch_id: launch.id,
            agent_id: launch.key.agent,
            project_id: launch.key.project,
            purpose: launch.key.purpose,
            ai_type: launch.ai_type,
            claimed_task_id: launch.claimed_task.filter(|_| launch.task.is_none()),
            task_id: launch.task,
            task_short_id: None,
            pid: launch.pid,
            claimed_at: launch.claimed_at,
            started_at: launch.started_at,
            authenticated_at: launch.authenticated_at,
            ended_at,
            outcome,
            reason,
            exit_code: launch.exit.exit_code,
            signal: launch.exit.signal,
            exit_hints: Vec::new(),
            activity: launch.activity.into(),
        }
    }
}

pub(super) fn routes() -> Api {
    let output_of = "The output of a launch; with `follow`, until the launch has ended";
    Api::new()
        .get(
            "/launches",
            list,
            about("Launches, the newest first").query::<LaunchQuery>().gives::<Vec<LaunchBody>>(),
        )
        .get("/launches/{id}", show, about("One launch").gives::<LaunchBody>())
        .route(
            "get",
            "/launches/{id}/output",
            get(output).layer(Extension(Places::of_output())),
            about(output_of).query::<OutputQuery>().gives_text("text/plain"),
        )
}

async fn list(
    State(state): State<RestState>,
    InQuery(query): InQuery<LaunchQuery>,
    raw: RawQuery,
) -> Result<Page<LaunchBody>, Problem> {
    let limit = limit_of(query.limit)?;
    let filter = LaunchFilter {
        agent: query.agent,
        project: query.project,
        purpose: query.purpose,
        after: query.cursor,
        // One more row shows whether there is more.
        limit: limit + 1,
        ..LaunchFilter::default()
    };
    let mut launches = state
        .service
        .launches
        .list(&filter)
        .await?
        .into_iter()
        .map(LaunchBody::from)
        .collect::<Vec<_>>();
    add_exit_hints(&state, &mut launches).await;
    add_short_ids(&state, &mut launches).await?;
    Ok(Page::of(launches, limit, raw, |launch| launch.launch_id.to_string()))
}

async fn show(
    State(state): State<RestState>,
    InPath(id): InPath<LaunchId>,
) -> Result<Json<LaunchBody>, Problem> {
    let mut launch = [LaunchBody::from(state.service.launches.get(&id).await?)];
    add_exit_hints(&state, &mut launch).await;
    add_short_ids(&state, &mut launch).await?;
    let [launch] = launch;
    Ok(Json(launch))
}

/// Adds the exit hints of the launches whose folders are still on this machine.
pub(super) async fn add_exit_hints(state: &RestState, launches: &mut [LaunchBody]) {
    let exited =
        launches.iter().filter(|launch| launch.exit_code.is_some() || launch.signal.is_some());
    let mut hints = state
        .service
        .launches
        .exit_hints(exited.map(|launch| launch.launch_id.clone()).collect())
        .await;
    for launch in launches {
        launch.exit_hints = hints.remove(&launch.launch_id).unwrap_or_default();
    }
}

async fn add_short_ids(state: &RestState, launches: &mut [LaunchBody]) -> Result<(), Problem> {
    let tasks = launches.iter().filter_map(|launch| launch.task_id.clone()).collect();
    let short_ids = state.service.tasks.short_ids(tasks).await?;
    for launch in launches {
        launch.add_short_id(&short_ids);
    }
    Ok(())
}

/// Returns the output as plain text, as the agent printed it, without secrets.
async fn output(
    State(state): State<RestState>,
    Extension(places): Extension<Places>,
    InPath(id): InPath<LaunchId>,
    InQuery(query): InQuery<OutputQuery>,
) -> Result<Response, Problem> {
    let launch = state.service.launches.get(&id).await?;
    let place = query.follow.then(|| places.take("output of launches")).transpose()?;
    let Some(output) = state.service.launches.output(&launch.id, query.follow)? else {
        if let Some(tail) = state.service.launches.output_elsewhere(&launch.id).await? {
            return Ok(
                ([(OUTPUT_IS, TAIL), (header::CONTENT_TYPE.as_str(), TEXT)], tail).into_response()
            );
        }
        let detail =
            format!("the output of launch `{id}` is not on this machine, or was never written");
        return Err(Problem::new(StatusCode::NOT_FOUND, "no_output", detail));
    };
    Ok(as_text(output, place, state.closing.clone()))
}

/// The header that marks an incomplete output.
pub const OUTPUT_IS: &str = "output-is";
/// The value of [`OUTPUT_IS`] for the end of an output on another host.
pub const TAIL: &str = "tail";

const TEXT: &str = "text/plain; charset=utf-8";

/// Returns output as a stream that ends when its client is gone or the daemon closes. A follower
/// keeps its place until then.
pub(super) fn as_text(
    output: impl Stream<Item = std::io::Result<Vec<u8>>> + Send + 'static,
    place: Option<OwnedSemaphorePermit>,
    closing: CancellationToken,
) -> Response {
    let output = output.map(move |chunk| {
        let _taken_as_long_as_this = &place;
        chunk
    });
    let stream = output.take_until(closing.cancelled_owned());
    ([(header::CONTENT_TYPE, TEXT)], Body::from_stream(stream)).into_response()
}
