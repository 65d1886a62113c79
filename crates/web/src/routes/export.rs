//! `/export` and `/import`: projects, agents, tasks and chats as JSON lines. Only people who may
//! change everything use them.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Extension, Json};
use futures::stream::try_unfold;
use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;

use crate::auth::{Operator, Role};
use crate::extract::InQuery;
use crate::openapi::{Api, about};
use crate::{FieldProblem, Problem, RestState};
use api::export::{ExportQuery, ImportQuery};
use domain::ProjectId;
use domain::export::MAX_FILE;
use domain::export::check::Starts;
use domain::export::lines::LineSplitter;
use domain::export::problems::Problems;
use domain::export::read::{ExportFile, FileReader};
use runtime::http::body::{too_large, unreadable};
use runtime::telemetry::ErrorChain;
use service::{Existing, ImportError, ImportMode, ImportReport, ImportWish, Service, ServiceError};

/// The media type of JSON lines.
const JSON_LINES: &str = "application/x-ndjson";

/// Lets one import at a time be read on a listener, because its objects are in memory.
#[derive(Clone)]
struct ImportSlot(Arc<Semaphore>);

pub(super) fn routes() -> Api {
    let one_at_a_time = post(import).layer(Extension(ImportSlot(Arc::new(Semaphore::new(1)))));
    let exports = "Projects, agents, tasks and chats as JSON lines; no passkeys and no tokens";
    let imports = "Adds the objects of an export, all or none of them. The body has JSON lines";
    Api::new()
        .get("/export", export, about(exports).query::<ExportQuery>().gives_text(JSON_LINES))
        .route(
            "post",
            "/import",
            one_at_a_time,
            about(imports).query::<ImportQuery>().takes_text("text/plain").gives::<ImportReport>(),
        )
}

async fn export(
    State(state): State<RestState>,
    operator: Operator,
    InQuery(query): InQuery<ExportQuery>,
) -> Result<Response, Problem> {
    check_role(&operator)?;
    let selected = query.projects.as_deref().map(selected).transpose()?;
    let export = state.service.begin_export(selected).await?;
    tracing::info!("export begun");
    let parts = try_unfold((state.service, export), async |(service, mut export)| {
        let part = service.next_part(&mut export).await.inspect_err(note_failure)?;
        Ok::<_, ServiceError>(part.map(|part| (part, (service, export))))
    });
    let headers = [(header::CONTENT_TYPE, JSON_LINES), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(parts)).into_response())
}

fn note_failure(error: &ServiceError) {
    tracing::warn!(error = %ErrorChain(error), "an export ended early; its file is not whole");
}

fn selected(projects: &str) -> Result<BTreeSet<ProjectId>, Problem> {
    let ids = projects.split(',').map(str::parse);
    ids.collect::<Result<_, _>>().map_err(|error| {
        Problem::new(StatusCode::BAD_REQUEST, "invalid_query", format!("projects: {error}"))
    })
}

/// Checks that an operator, not a viewer, reads everything at once.
fn check_role(operator: &Operator) -> Result<(), Problem> {
    if operator.role == Role::Operator {
        return Ok(());
    }
    let detail = format!("`{}` is a viewer, and only operators export", operator.name);
    Err(Problem::new(StatusCode::FORBIDDEN, "viewer_may_not", detail))
}

async fn import(
    State(state): State<RestState>,
    Extension(ImportSlot(slot)): Extension<ImportSlot>,
    InQuery(query): InQuery<ImportQuery>,
    body: Body,
) -> Result<Json<ImportReport>, Problem> {
    let Ok(_slot) = slot.try_acquire() else {
        let detail = "another import is under way: repeat this one when it has ended";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "import_under_way", detail));
    };
    let file =
        read(body).await?.map_err(|problems| Problem::from(ImportError::Problems(problems)))?;
    let report = run(&state.service, file, query).await?;
    Ok(Json(report))
}

async fn run(
    service: &Service,
    file: ExportFile,
    query: ImportQuery,
) -> Result<ImportReport, ImportError> {
    let wish = ImportWish {
        starts: if query.start { Starts::AsInFile } else { Starts::Nothing },
        existing: if query.merge { Existing::Leave } else { Existing::Refuse },
        mode: if query.dry_run { ImportMode::DryRun } else { ImportMode::Import },
    };
    let report = service.import(file, wish).await?;
    if !report.dry_run {
        let added = report.added;
        tracing::info!(
            n_agents = added.agents,
            n_projects = added.projects,
            n_tasks = added.tasks,
            n_messages = added.messages,
            n_started = report.n_started,
            "objects imported"
        );
    }
    Ok(report)
}

/// Reads the lines of a body while they come.
async fn read(mut body: Body) -> Result<Result<ExportFile, Problems>, Problem> {
    let mut splitter = LineSplitter::default();
    let mut reader = FileReader::default();
    let mut n_bytes = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| unreadable(&error))?.into_data() else {
            continue;
        };
        n_bytes += data.len();
        if n_bytes > MAX_FILE {
            return Err(too_large(MAX_FILE).into());
        }
        if let Err(too_long) = splitter.push(&data, |line, bytes| reader.take(line, bytes)) {
            reader.stop(too_long);
            break;
        }
    }
    let n_lines = splitter.finish(|line, bytes| reader.take(line, bytes));
    Ok(reader.finish(n_lines))
}

impl From<ImportError> for Problem {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Service(error) => error.into(),
            ImportError::Problems(problems) => {
                let Problems { told, n_more } = problems;
                let places = told.into_iter().map(|problem| FieldProblem {
                    path: format!("line {}", problem.line),
                    message: problem.message,
                });
                let mut places: Vec<FieldProblem> = places.collect();
                let lines = places.iter().map(|place| format!("{}: {}", place.path, place.message));
                let mut detail = lines.collect::<Vec<_>>().join("; ");
                if n_more > 0 {
                    let path = "further lines".to_owned();
                    let message = format!("{n_more} more problems");
                    detail = format!("{detail}; {path}: {message}");
                    places.push(FieldProblem { path, message });
                }
                Self::new(StatusCode::CONFLICT, "invalid_import", detail).with_problems(places)
            }
        }
    }
}
