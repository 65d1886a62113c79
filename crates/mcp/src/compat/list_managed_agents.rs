//! `list_managed_agents`, deprecated: lists the agents, not grouped by project.

use serde::Serialize;

use super::Deprecated;
use crate::envelope::Coordinator;
use crate::tools::{Effect, NoInput, ToolSpec};
use domain::id::{AgentId, ProjectId};
use service::{Service, ServiceError};

static DEPRECATED: Deprecated =
    Deprecated::new(ListManagedAgents::NAME, "list_active_projects_with_agents");

pub(super) struct ListManagedAgents;

#[derive(Serialize)]
pub(super) struct Output {
    success: bool,
    agents: Vec<Agent>,
}

#[derive(Serialize)]
struct Agent {
    agent_id: AgentId,
    agent_name: String,
    ai_type: String,
    projects: Vec<ProjectId>,
}

impl ToolSpec for ListManagedAgents {
    const NAME: &'static str = "list_managed_agents";
    const TEXT: &'static str = "Deprecated: use list_active_projects_with_agents. For coordinators: lists the active agents.";
    const EFFECT: Effect = Effect::Reads;
    type Who = Coordinator;
    type Input = NoInput;
    type Output = Output;

    async fn call(service: &Service, _: Coordinator, _: NoInput) -> Result<Output, ServiceError> {
        DEPRECATED.is_used();
        let agents = service.managed_agents().await?.into_iter().map(|agent| Agent {
            agent_id: agent.id,
            agent_name: agent.name,
            ai_type: agent.ai_type,
            projects: agent.projects,
        });
        Ok(Output { success: true, agents: agents.collect() })
    }
}
