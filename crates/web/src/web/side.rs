//! The side of a page: the projects and the fleet, with the numbers that change by themselves.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::inbox::count_open;
use super::layout::{Frame, NavSection, rendered};
use super::shown::{Count, hue_of, initial_of};
use crate::auth::Operator;
use crate::extract::InQuery;
use crate::{Problem, RestState};
use domain::ProjectId;
use domain::agent::ProjectStatus;

/// The numbers that the side shows.
#[derive(Debug, Clone)]
pub(super) struct Side {
    /// The active projects.
    pub(super) projects: Vec<SideProject>,
    pub(super) n_agents: u64,
    /// The number of entries of the inbox that are open for the reader.
    pub(super) n_attention: usize,
    /// The number of agents with a process.
    pub(super) n_running: usize,
}

/// A project in the side.
#[derive(Debug, Clone)]
pub(super) struct SideProject {
    pub(super) id: ProjectId,
    pub(super) name: String,
    pub(super) initial: String,
    /// One of eight colours.
    pub(super) hue: u8,
    pub(super) n_open: usize,
    /// True if an agent runs in it.
    pub(super) is_live: bool,
}

impl SideProject {
    pub(super) fn open_text(&self) -> Count {
        self.n_open.into()
    }
}

#[derive(Template)]
#[template(path = "parts/side.html")]
struct SidePart {
    frame: Frame,
    side: Side,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SideQuery {
    place: NavSection,
    #[serde(default)]
    project: String,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new().route("/ui/parts/side", get(part))
}

async fn part(
    frame: Frame,
    State(state): State<RestState>,
    InQuery(query): InQuery<SideQuery>,
) -> Result<Response, Problem> {
    let side = Side::read(&state, frame.operator.as_ref()).await?;
    let frame = frame.at(query.place);
    let frame = Frame { project: query.project.parse().ok(), ..frame };
    Ok(rendered(&SidePart { frame, side }))
}

impl Side {
    /// Returns whether there is another active project.
    pub(super) fn leads_elsewhere(&self, project: &ProjectId) -> bool {
        self.projects.iter().any(|other| other.id != *project)
    }

    /// Reads the numbers. The cost grows with the open tasks and launches.
    pub(super) async fn read(
        state: &RestState,
        reader: Option<&Operator>,
    ) -> Result<Self, Problem> {
        let n_attention = match reader {
            Some(reader) => count_open(state, reader).await?,
            None => 0,
        };
        let projects = state.service.catalog.projects().await?;
        let n_open: BTreeMap<ProjectId, usize> = state.service.tasks.count_open().await?;
        let open = state.service.launches.open().await?;
        let live = || open.iter().filter(|launch| launch.pid.is_some()).map(|launch| &launch.key);
        let agents: BTreeSet<_> = live().map(|key| &key.agent).collect();
        let live: BTreeSet<_> = live().map(|key| &key.project).collect();
        let active = projects.into_iter().map(|(project, _)| project);
        let active = active.filter(|project| project.status == ProjectStatus::Active);
        let shown = |project: domain::Project| SideProject {
            n_open: n_open.get(&project.id).copied().unwrap_or_default(),
            is_live: live.contains(&project.id),
            initial: initial_of(&project.name),
            hue: hue_of(project.id.as_str()),
            name: project.name,
            id: project.id,
        };
        Ok(Self {
            projects: active.map(shown).collect(),
            n_attention,
            n_agents: state.service.count_agents().await?,
            n_running: agents.len(),
        })
    }
}
