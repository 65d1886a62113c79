//! `list_active_projects_with_agents`: lists the active projects with their active agents.

use serde::{Deserialize, Serialize};

use super::{Effect, ToolSpec};
use crate::envelope::Coordinator;
use domain::id::{AgentId, ProjectId};
use service::{Service, ServiceError};

pub(crate) struct ListActiveProjectsWithAgents;

#[derive(Deserialize, schemars::JsonSchema)]
pub(crate) struct Input {
    /// The largest number of projects in one answer. Without it the answer has all of them.
    #[serde(default)]
    #[schemars(with = "u32", range(min = 1))]
    limit: Option<std::num::NonZeroUsize>,
    /// The next_cursor of the last answer.
    #[serde(default)]
    #[schemars(with = "String")]
    cursor: Option<ProjectId>,
}

#[derive(Serialize)]
pub(crate) struct Output {
    success: bool,
    projects: Vec<Project>,
    /// The cursor of the next answer, if a limit cut this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<ProjectId>,
}

#[derive(Serialize)]
struct Project {
    project_id: ProjectId,
    project_name: String,
    working_directory: std::path::PathBuf,
    agents: Vec<AgentId>,
}

impl ToolSpec for ListActiveProjectsWithAgents {
    const NAME: &'static str = "list_active_projects_with_agents";
    const TEXT: &'static str =
        "For coordinators: lists the active projects, each with its active agents.";
    const EFFECT: Effect = Effect::Reads;
    type Who = Coordinator;
    type Input = Input;
    type Output = Output;

    async fn call(service: &Service, _: Coordinator, input: Input) -> Result<Output, ServiceError> {
        let projects = service.catalog.active_projects(input.cursor).await?;
        let mut rest = projects.into_iter().map(|project| Project {
            project_id: project.id,
            project_name: project.name,
            working_directory: project.working_directory,
            agents: project.agents,
        });
        let limit = input.limit.map_or(usize::MAX, std::num::NonZeroUsize::get);
        let projects: Vec<Project> = rest.by_ref().take(limit).collect();
        let last = projects.last().map(|project| project.project_id.clone());
        let next_cursor = rest.next().and(last);
        Ok(Output { success: true, projects, next_cursor })
    }
}
