//! `health_check` (seed 004): is the server there, and does its store answer?

use serde::Serialize;

use super::{Effect, NoInput, ToolSpec};
use crate::domain::Timestamp;
use crate::mcp::envelope::Anyone;
use crate::service::{Service, ServiceError};

pub(in crate::mcp) struct HealthCheck;

#[derive(Serialize)]
pub(in crate::mcp) struct Output {
    status: &'static str,
    version: &'static str,
    timestamp: Timestamp,
    agent_count: u64,
    project_count: u64,
}

impl ToolSpec for HealthCheck {
    const NAME: &'static str = "health_check";
    const TEXT: &'static str = "Checks that the coordinator's server is running and its store answers.";
    const EFFECT: Effect = Effect::Reads;
    type Who = Anyone;
    type Input = NoInput;
    type Output = Output;

    async fn call(service: &Service, _: Anyone, _: NoInput) -> Result<Output, ServiceError> {
        let health = service.health().await?;
        Ok(Output {
            status: "ok",
            version: env!("CARGO_PKG_VERSION"),
            timestamp: health.timestamp,
            agent_count: health.n_agents,
            project_count: health.n_projects,
        })
    }
}
