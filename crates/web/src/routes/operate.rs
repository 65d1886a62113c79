//! `/stop`, `/resume`, `/pause`, `/drain` and `/refresh`: actions of people on running agents.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::Schema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::extract::InBody;
use crate::openapi::{Api, about};
use crate::{Problem, RestState};
use api::operate::{StoppedBody, TargetRequest};
use service::{Force, StopTarget};

/// Whom a stop concerns.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
#[schemars(transform = of_stop)]
struct StopRequest(TargetRequest);

/// Whom a resume concerns.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
#[schemars(transform = of_resume)]
struct ResumeRequest(TargetRequest);

/// Describes the values that [`target_of`] takes.
fn targets() -> [Value; 2] {
    let all = json!({
        "title": "All",
        "required": ["all"],
        "properties": {
            "all": { "const": true },
            "agentId": { "type": "null" },
            "projectId": { "type": "null" },
            "purpose": { "type": "null" },
            "provider": { "type": "null" },
        },
    });
    let pair = json!({
        "title": "Pair",
        "required": ["agentId", "projectId"],
        "properties": {
            "all": { "const": false },
            "agentId": { "type": "string" },
            "projectId": { "type": "string" },
            "provider": { "type": "null" },
        },
    });
    [all, pair]
}

fn of_stop(schema: &mut Schema) {
    schema.insert("anyOf".to_owned(), targets().to_vec().into());
}

/// Does the same as [`of_stop`] for the values that only [`resume`] takes.
fn of_resume(schema: &mut Schema) {
    let provider = json!({
        "title": "Provider",
        "required": ["provider"],
        "properties": {
            "all": { "const": false },
            "agentId": { "type": "null" },
            "projectId": { "type": "null" },
            "purpose": { "type": "null" },
            "force": { "const": false },
            "provider": { "type": "string" },
        },
    });
    let [all, pair] = targets();
    schema.insert("anyOf".to_owned(), json!([all, pair, provider]));
}

fn target_of(request: TargetRequest) -> Result<StopTarget, Problem> {
    match (request.all, request.agent_id, request.project_id) {
        _ if request.provider.is_some() => Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "invalid_body",
            "only `resume` takes `provider`, and without other fields",
        )),
        (true, None, None) if request.purpose.is_none() => Ok(StopTarget::All),
        (false, Some(agent), Some(project)) => {
            Ok(StopTarget::Pair { agent, project, purpose: request.purpose })
        }
        _ => {
            let detail =
                "expected either agentId and projectId (and perhaps purpose), or all: true alone";
            Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_body", detail))
        }
    }
}

/// Returns a span with the target, for log lines.
fn span_of(target: &StopTarget) -> tracing::Span {
    match target {
        StopTarget::All => tracing::info_span!("operate", all = true),
        StopTarget::Pair { agent, project, purpose } => tracing::info_span!(
            "operate", agent_id = %agent, project_id = %project, purpose = purpose.map(tracing::field::display)
        ),
    }
}

pub(super) fn routes() -> Api {
    Api::new()
        .post(
            "/stop",
            stop,
            about("Stops an agent in a project, or all agents")
                .takes::<StopRequest>()
                .gives::<StoppedBody>(),
        )
        .post(
            "/resume",
            resume,
            about("Resumes an agent in a project, a provider, or all agents")
                .takes::<ResumeRequest>(),
        )
        .post("/pause", pause, about("Starts nothing more"))
        .post("/drain", drain, about("Pauses all starts and ends chats").gives::<StoppedBody>())
        .post(
            "/refresh",
            refresh,
            about("Makes coordinators look for work and ask the forges at once"),
        )
        .also_below("/coordinator")
}

async fn stop(
    State(state): State<RestState>,
    InBody(StopRequest(request)): InBody<StopRequest>,
) -> Result<Json<StoppedBody>, Problem> {
    let force = if request.force { Force::Yes } else { Force::No };
    let target = target_of(request)?;
    let stopped = state.service.launches.stop(&target, force).await?;
    let _span = span_of(&target).entered();
    tracing::info!(n_launches = stopped.launches.len(), "a person stopped agents");
    Ok(Json(StoppedBody { launches: stopped.launches, abandoned: stopped.abandoned }))
}

async fn resume(
    State(state): State<RestState>,
    InBody(ResumeRequest(request)): InBody<ResumeRequest>,
) -> Result<StatusCode, Problem> {
    if let TargetRequest {
        all: false,
        agent_id: None,
        project_id: None,
        purpose: None,
        force: false,
        provider: Some(provider),
    } = &request
    {
        state.service.launches.release_provider(provider).await?;
        tracing::info!(provider, "a person resumed a provider");
        return Ok(StatusCode::NO_CONTENT);
    }
    let target = target_of(request)?;
    state.service.launches.resume(&target).await?;
    let _span = span_of(&target).entered();
    tracing::info!("a person resumed agents");
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn pause(State(state): State<RestState>) -> Result<StatusCode, Problem> {
    state.service.launches.pause().await?;
    tracing::info!("a person paused all starts");
    Ok(StatusCode::NO_CONTENT)
}

async fn drain(State(state): State<RestState>) -> Result<Json<StoppedBody>, Problem> {
    let open = state.service.launches.drain().await?;
    tracing::info!(n_launches = open.len(), "a person started a drain");
    let launches = open.into_iter().map(|launch| launch.id).collect();
    Ok(Json(StoppedBody { launches, abandoned: Vec::new() }))
}

pub(crate) async fn refresh(State(state): State<RestState>) -> StatusCode {
    state.service.refresh();
    StatusCode::NO_CONTENT
}
