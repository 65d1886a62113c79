//! `authenticate` and `should_start` without a project. The server finds the project that is meant.

use super::Deprecated;
use domain::session::Presenter;
use domain::{AgentId, InstanceKey, ProjectId, Secret};
use service::{AskedBy, Authenticated, Service, ServiceError, ShouldStart};

static AUTHENTICATE: Deprecated = Deprecated::new(
    "authenticate(agent_id, passkey)",
    "authenticate(agent_id, passkey, project_id)",
);
static SHOULD_START: Deprecated =
    Deprecated::new("should_start(agent_id)", "should_start(agent_id, project_id)");

pub(crate) async fn authenticate(
    service: &Service,
    agent: &AgentId,
    passkey: &Secret,
    presenter: Presenter<'_>,
) -> Result<(ProjectId, Authenticated), ServiceError> {
    AUTHENTICATE.is_used();
    service.authenticate_somewhere(agent, passkey, presenter).await
}

pub(crate) async fn should_start(
    service: &Service,
    agent: &AgentId,
    by: AskedBy<'_>,
) -> Result<(Option<InstanceKey>, ShouldStart), ServiceError> {
    SHOULD_START.is_used();
    service.should_start_anywhere(agent, by).await
}
