//! Who works where: the active projects with their active agents (seed 004, step 2).

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::domain::Agent;
use crate::domain::agent::{AgentStatus, ProjectStatus};
use crate::domain::id::{AgentId, ProjectId};

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
    /// Active projects with their active agents, by id.
    pub async fn active_projects(&self) -> Result<Vec<ActiveProject>, ServiceError> {
        let agents: BTreeMap<AgentId, Agent> = self
            .core
            .store
            .agents()
            .await?
            .into_iter()
            .map(|agent| (agent.id.clone(), agent))
            .collect();
        let mut members: BTreeMap<ProjectId, Vec<AgentId>> = BTreeMap::new();
        for assignment in self.core.store.assignments().await? {
            if agents
                .get(&assignment.agent)
                .is_some_and(|agent| agent.status == AgentStatus::Active)
            {
                members.entry(assignment.project).or_default().push(assignment.agent);
            }
        }
        let projects = self.core.store.projects().await?;
        Ok(projects
            .into_iter()
            .filter(|project| project.status == ProjectStatus::Active)
            .map(|project| ActiveProject {
                agents: members.remove(&project.id).unwrap_or_default(),
                id: project.id,
                name: project.name,
                working_directory: project.working_directory,
            })
            .collect())
    }
}
