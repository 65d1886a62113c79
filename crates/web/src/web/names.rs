//! The names of agents and projects, which pages show in place of ids.

use std::collections::BTreeMap;

use crate::{Problem, RestState};
use domain::{AgentId, ProjectId, Removable};

/// The names of all agents and projects, read together.
pub(super) struct Names {
    agents: BTreeMap<AgentId, String>,
    projects: BTreeMap<ProjectId, String>,
}

impl Names {
    pub(super) async fn read(state: &RestState) -> Result<Self, Problem> {
        let agents = state.service.catalog.agents().await?.into_iter();
        let projects = state.service.catalog.projects().await?.into_iter();
        let mut names = Self {
            agents: agents.map(|agent| (agent.id, agent.name)).collect(),
            projects: projects.map(|(project, _)| (project.id, project.name)).collect(),
        };
        for (of, name) in state.service.removals.names().await? {
            match of {
                Removable::Agent(id) => drop(names.agents.insert(id, name)),
                Removable::Project(id) => drop(names.projects.insert(id, name)),
                Removable::Task(_) => {}
            }
        }
        Ok(names)
    }

    /// Returns the name of an agent; the last one if it is deleted, and the id if it never was.
    pub(super) fn agent<'a>(&'a self, id: &'a AgentId) -> &'a str {
        self.agents.get(id).map_or(id.as_str(), String::as_str)
    }

    /// Does the same as [`Names::agent`] for a project.
    pub(super) fn project<'a>(&'a self, id: &'a ProjectId) -> &'a str {
        self.projects.get(id).map_or(id.as_str(), String::as_str)
    }
}

/// Returns a text that the words around it cannot reorder, and that does not reorder them, where no
/// element can do that (Unicode UAX 9, FSI and PDI).
pub(super) fn isolated(text: &str) -> String {
    format!("\u{2068}{text}\u{2069}")
}
