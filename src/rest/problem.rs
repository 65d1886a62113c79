//! Turns refusals and faults into problems.

use axum::http::StatusCode;

use crate::domain::Refusal;
use crate::service::ServiceError;
use crate::telemetry::ErrorChain;

pub use crate::http::{FieldProblem, Problem};

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let detail = match &refusal {
            Refusal::ProjectNotFound { project } => format!("no project `{project}`"),
            Refusal::AgentNotFound { agent } => format!("no agent `{agent}`"),
            Refusal::TaskNotFound { task } => format!("no task `{task}`"),
            Refusal::LaunchNotFound { launch } => format!("no launch `{launch}`"),
            Refusal::SessionNotFound { session } => format!("no session `{session}`"),
            Refusal::MessageNotFound { message } => format!("no message `{message}` in this chat"),
            Refusal::NotAssigned { agent, project } => {
                format!("agent `{agent}` is not assigned to project `{project}`")
            }
            other => other.to_string(),
        };
        let hint = refusal.hint();
        let mut problem = Self::new(status_of(&refusal), refusal.code(), detail).with_hint(hint);
        if let Refusal::AlreadyExists { field: Some(field), .. } = &refusal {
            problem = problem.at(field);
        }
        problem.refusal = Some(Box::new(refusal));
        problem
    }
}

fn status_of(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::ProjectNotFound { .. }
        | Refusal::AgentNotFound { .. }
        | Refusal::TaskNotFound { .. }
        | Refusal::NoSuchTask { .. }
        | Refusal::LaunchNotFound { .. }
        | Refusal::SessionNotFound { .. }
        | Refusal::MessageNotFound { .. }
        | Refusal::OutputElsewhere { .. }
        | Refusal::NoOpenLaunch { .. }
        | Refusal::CredentialNotFound { .. }
        | Refusal::ProviderNotFound { .. }
        | Refusal::ExecutionNotFound { .. }
        | Refusal::AttentionNotFound { .. }
        | Refusal::NoWorkspace { .. } => StatusCode::NOT_FOUND,
        Refusal::Invalid(_)
        | Refusal::Missing { .. }
        | Refusal::NotAbsolute { .. }
        | Refusal::NeedsProject { .. }
        | Refusal::TooLong { .. }
        | Refusal::NotOneLine { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        Refusal::InBatch { refusal, .. } => status_of(refusal),
        Refusal::TooManyAttempts | Refusal::RateLimited | Refusal::TooManySessions { .. } => {
            StatusCode::TOO_MANY_REQUESTS
        }
        Refusal::InvalidCredentials
        | Refusal::InvalidSession
        | Refusal::SessionEnded
        | Refusal::SessionExpired => StatusCode::UNAUTHORIZED,
        Refusal::CoordinatorOnly
        | Refusal::SessionOfSocket { .. }
        | Refusal::AgentsNotOverHttp
        | Refusal::LinkNotValid(_)
        | Refusal::PeopleOnly { .. }
        | Refusal::NotYourTask { .. }
        | Refusal::NotYourLaunch { .. } => StatusCode::FORBIDDEN,
        Refusal::Changed { .. } => StatusCode::PRECONDITION_FAILED,
        Refusal::ServerStopping => StatusCode::SERVICE_UNAVAILABLE,
        Refusal::NotAssigned { .. }
        | Refusal::DelayOutOfRange { .. }
        | Refusal::StaysInProject { .. }
        | Refusal::PartOfItself { .. }
        | Refusal::DependsOnKin { .. }
        | Refusal::WaitsForItself { .. }
        | Refusal::Inactive
        | Refusal::AlreadyRunning
        | Refusal::LaunchEnded
        | Refusal::ImpossibleStatus { .. }
        | Refusal::NeedsAssignee { .. }
        | Refusal::DependenciesOpen { .. }
        | Refusal::SubtasksOpen { .. }
        | Refusal::ChecksPending { .. }
        | Refusal::ParentClosed { .. }
        | Refusal::NoTaskToSave
        | Refusal::TooManyTasks { .. }
        | Refusal::TooManySubtasks { .. }
        | Refusal::TooManyMessages { .. }
        | Refusal::AmbiguousLaunch { .. }
        | Refusal::OtherTaskBegun { .. }
        | Refusal::WrongPurpose { .. }
        | Refusal::Superseded { .. }
        | Refusal::KeyEdited { .. }
        | Refusal::KeyTaken { .. }
        | Refusal::UnknownAiType { .. }
        | Refusal::WorkspaceModeFixed { .. }
        | Refusal::BadWorkspaceSetting { .. }
        | Refusal::CannotClone { .. }
        | Refusal::NotFinished { .. }
        | Refusal::WorkspaceFailed { .. }
        | Refusal::SnapshotFailed { .. }
        | Refusal::NotRemovable { .. }
        | Refusal::OfForge { .. }
        | Refusal::UnmergedWork { .. }
        | Refusal::UndoOver { .. }
        | Refusal::CannotComeBack { .. }
        | Refusal::DeletedId { .. }
        | Refusal::FormRefused { .. }
        | Refusal::AlreadyExists { .. } => StatusCode::CONFLICT,
    }
}

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Refused(refusal) => refusal.into(),
            ServiceError::Store(_) => {
                tracing::error!(error = %ErrorChain(&error), "request failed");
                Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "unavailable",
                    ErrorChain(&error).to_string(),
                )
            }
        }
    }
}
