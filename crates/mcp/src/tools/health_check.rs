//! `health_check`: checks that the server is running and that its store answers.

use serde::Serialize;

use super::{Effect, NoInput, ToolSpec};
use crate::envelope::Visitor;
use service::{Service, ServiceError};

pub(crate) struct HealthCheck;

#[derive(Serialize)]
pub(crate) struct Output {
    status: &'static str,
    version: &'static str,
    /// In whole seconds, as clients of the specification read it.
    timestamp: String,
    /// The counts are only for known callers.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    project_count: Option<u64>,
}

impl ToolSpec for HealthCheck {
    const NAME: &'static str = "health_check";
    const TEXT: &'static str =
        "Checks that the coordinator's server is running and its store answers.";
    const EFFECT: Effect = Effect::Reads;
    type Who = Visitor;
    type Input = NoInput;
    type Output = Output;

    async fn call(service: &Service, visitor: Visitor, _: NoInput) -> Result<Output, ServiceError> {
        let health = service.health().await?;
        Ok(Output {
            status: "ok",
            version: env!("CARGO_PKG_VERSION"),
            timestamp: format!("{:.0}", health.timestamp),
            agent_count: visitor.is_known.then_some(health.n_agents),
            project_count: visitor.is_known.then_some(health.n_projects),
        })
    }
}
