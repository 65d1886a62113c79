//! `/launches`: past and running launches, and their output.

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Extension, Json};
use futures::{Stream, StreamExt as _};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::events::Places;
use crate::extract::{InPath, InQuery};
use crate::openapi::{Api, about};
use crate::page::{Page, limit_of};
use crate::{Problem, RestState};
use api::launches::{LaunchBody, LaunchQuery, OUTPUT_IS, OutputQuery, TAIL};
use domain::LaunchId;
use service::LaunchFilter;

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
