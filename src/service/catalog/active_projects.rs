//! The active projects with their active agents.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::domain::Project;
use crate::domain::agent::{AgentStatus, ProjectStatus};
use crate::domain::id::{AgentId, ProjectId};
use crate::rows::{agents, assignments, projects};
use crate::store::{Read, StoreError};

use super::Catalog;
use crate::service::ServiceError;

/// An active project with its active agents, by id.
#[derive(Debug, Clone)]
pub struct ActiveProject {
    pub id: ProjectId,
    pub name: String,
    pub working_directory: PathBuf,
    pub agents: Vec<AgentId>,
}

impl Catalog {
    /// Returns the active projects with their active agents, by id.
    pub async fn active_projects(&self) -> Result<Vec<ActiveProject>, ServiceError> {
        self.core.read(|tx| Ok(active_projects(tx)?)).await
    }
}

/// Returns the active projects with their active agents, by id.
pub(in crate::service) fn active_projects(
    tx: &mut Read<'_>,
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
    projects.retain(|project| project.status == ProjectStatus::Active);
    let with_members = |project: Project| ActiveProject {
        agents: members.remove(&project.id).unwrap_or_default(),
        id: project.id,
        name: project.name,
        working_directory: project.working_directory,
    };
    Ok(projects.into_iter().map(with_members).collect())
}
