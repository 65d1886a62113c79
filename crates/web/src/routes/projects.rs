//! `/projects`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use schemars::Schema;
use serde::Deserialize;
use serde_json::json;

use super::creation_status;
use crate::conditional::{Revision, SeenRevision};
use crate::extract::{InBody, InPath, InQuery};
use crate::openapi::{Api, about};
use crate::{Problem, RestState};
use api::projects::{ProjectBody, ProjectRequest};
use api::removals::{Archived, ArchivedQuery};
use domain::{AgentId, Project, ProjectId, Sent};
use service::ProjectEdit;

/// A project to be made: it has a working directory.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
#[schemars(transform = needs_working_directory)]
struct NewProjectRequest(ProjectRequest);

fn needs_working_directory(schema: &mut Schema) {
    let key = "workingDirectory";
    schema.insert("required".to_owned(), json!([key]));
    if let Some(kind) = schema.pointer_mut(&format!("/properties/{key}/type")) {
        *kind = "string".into();
    }
}

pub(super) fn routes() -> Api {
    Api::new()
        .get(
            "/projects",
            list,
            about("Projects, by id").query::<ArchivedQuery>().gives::<Vec<ProjectBody>>(),
        )
        .post(
            "/projects",
            add,
            about("Makes a project").takes::<NewProjectRequest>().makes_once::<ProjectBody>(),
        )
        .get("/projects/{project}", show, about("One project").gives::<ProjectBody>())
        .patch(
            "/projects/{project}",
            set,
            about("Changes a project").takes::<ProjectRequest>().gives::<ProjectBody>(),
        )
}

async fn list(
    State(state): State<RestState>,
    InQuery(query): InQuery<ArchivedQuery>,
) -> Result<Json<Vec<ProjectBody>>, Problem> {
    let is_listed = |(project, _): &(Project, Vec<AgentId>)| {
        Archived::has(query.archived, project.is_archived())
    };
    let projects = state.service.catalog.projects().await?.into_iter().filter(is_listed);
    Ok(Json(projects.map(ProjectBody::from).collect()))
}

async fn show(
    State(state): State<RestState>,
    InPath(id): InPath<ProjectId>,
) -> Result<(Extension<Revision>, Json<ProjectBody>), Problem> {
    let project = state.service.catalog.project(&id).await?;
    Ok((Extension(Revision(project.0.revision)), Json(project.into())))
}

async fn add(
    State(state): State<RestState>,
    InBody(NewProjectRequest(mut request)): InBody<NewProjectRequest>,
) -> Result<(StatusCode, Json<ProjectBody>), Problem> {
    let sent = state.service.catalog.add_project(request.id.take(), &request.into()).await?;
    let status = creation_status(&sent);
    if let Sent::First(id) = &sent {
        tracing::info!(project_id = %id, "project added");
    }
    let id = sent.thing();
    Ok((status, Json(state.service.catalog.project(&id).await?.into())))
}

async fn set(
    State(state): State<RestState>,
    InPath(id): InPath<ProjectId>,
    SeenRevision(seen): SeenRevision,
    InBody(request): InBody<ProjectRequest>,
) -> Result<Json<ProjectBody>, Problem> {
    state.service.catalog.set_project(&id, &ProjectEdit { seen, ..request.into() }).await?;
    tracing::info!(project_id = %id, "project changed");
    Ok(Json(state.service.catalog.project(&id).await?.into()))
}
