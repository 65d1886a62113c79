//! `/assignments` and `/projects/{project}/agents/{agent}`: the agents of the projects.

use serde::{Deserialize, Serialize};

use domain::{AgentId, ProjectId};

/// An agent that works in a project.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssignmentBody {
    pub project_id: ProjectId,
    pub agent_id: AgentId,
}

/// The filter of the list of assignments, in the order of their projects, then of their agents.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AssignmentQuery {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
}
