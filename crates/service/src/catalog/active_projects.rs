//! The active projects with their active agents.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use domain::Project;
use domain::agent::{AgentStatus, ProjectStatus};
use domain::id::{AgentId, ProjectId};
use store::rows::{agents, assignments, projects};
use store::{Read, StoreError};

use super::Catalog;
use crate::ServiceError;

/// An active project with its active agents.
#[derive(Debug, Clone)]
pub struct ActiveProject {
    pub id: ProjectId,
    pub name: String,
    pub working_directory: PathBuf,
    pub agents: Vec<AgentId>,
}

impl Catalog {
    /// Returns the active projects with their active agents, in the order of their creation. They
    /// begin after the project `after`, or with the first one if there is no such project.
    pub async fn active_projects(
        &self,
        after: Option<ProjectId>,
    ) -> Result<Vec<ActiveProject>, ServiceError> {
        self.core.read(move |tx| Ok(active_projects(tx, after.as_ref())?)).await
    }
}

/// Returns the active projects as [`Catalog::active_projects`] does.
pub(crate) fn active_projects(
    tx: &mut Read<'_>,
    after: Option<&ProjectId>,
) -> Result<Vec<ActiveProject>, StoreError> {
    let mut agents = agents::list(tx)?;
    agents.retain(|agent| agent.status == AgentStatus::Active);
    let active: BTreeSet<AgentId> = agents.into_iter().map(|agent| agent.id).collect();
    let mut members: BTreeMap<ProjectId, Vec<AgentId>> = BTreeMap::new();
    for assignment in assignments::list(tx)? {
        if active.contains(&assignment.agent) {
            members.entry(assignment.project).or_default().push(assignment.agent);
        }
    }
    let mut projects = projects::list(tx)?;
    projects.sort_by_key(|project| project.created_at);
    // A project that was paused since the last page still has its place.
    let last = projects.iter().position(|project| Some(&project.id) == after);
    let mut projects = projects.split_off(last.map_or(0, |last| last + 1));
    projects.retain(|project| project.status == ProjectStatus::Active);
    let with_members = |project: Project| ActiveProject {
        agents: members.remove(&project.id).unwrap_or_default(),
        id: project.id,
        name: project.name,
        working_directory: project.working_directory,
    };
    Ok(projects.into_iter().map(with_members).collect())
}
