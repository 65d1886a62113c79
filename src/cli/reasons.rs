//! The reasons that keep an agent from starting, in words for people.

use crate::domain::start_history::StartReason;
use crate::domain::{AgentId, ProjectId, Purpose};

/// Returns the reason as the rest of a sentence after "does not start: ".
pub(super) const fn sentence(reason: StartReason, purpose: Purpose) -> &'static str {
    match reason {
        StartReason::Ready => "nothing keeps it",
        StartReason::Unknown => "the agent or the project does not exist",
        StartReason::NotAssigned => "the agent is not assigned to the project",
        StartReason::Inactive => "the agent or the project is not active",
        StartReason::Starting => "it is starting already",
        StartReason::Running => "it is running already",
        StartReason::Stopping => "it is stopping, and has not ended yet",
        StartReason::NoWork => match purpose {
            Purpose::Task => "no task of it is in progress",
            Purpose::Chat => "no person wants to chat with it",
            Purpose::Check => "no task of it is to be checked",
        },
        StartReason::Paused => "starts are paused",
        StartReason::Held => "a person stopped it",
        StartReason::Suspended => "it failed too often",
        StartReason::Misconfigured => "it cannot work as it is configured",
        StartReason::Parked => "the account of its provider does not work",
        StartReason::Backoff => "it waits after a failure",
        StartReason::PreparingWorkspace => "the clone for its task is not ready",
        StartReason::WorkspaceBroken => "the clone for its task needs a person",
        StartReason::OnOtherHost => "the clone for its task is on another host",
        StartReason::DirectoryInUse => {
            "as many agents as may work in its git work tree (`workspace.shared_at_once`)"
        }
        StartReason::TakingSnapshot => "a snapshot of its git work tree is being taken",
        StartReason::NoFreeSlot => "all slots are taken",
        StartReason::ChatReserve => "the free slots are kept for chats (`limits.chat_reserve`)",
        StartReason::ProjectLimit => "its project has as many as it may (`limits.per_project`)",
        StartReason::AgentLimit => "the agent has as many as it may (`limits.per_agent`)",
        StartReason::ProviderLimit => "its provider has as many as it may (`limits.per_provider`)",
        StartReason::LowDisk => "there is too little free disk (`limits.min_free_disk`)",
        StartReason::LowMemory => "there is too little free memory (`limits.min_free_memory`)",
        StartReason::NoPasskey => "its coordinator has no passkey for it",
    }
}

/// Returns the remedy of a person, if there is a simple one.
pub(super) fn remedy(reason: StartReason, agent: &AgentId, project: &ProjectId) -> Option<String> {
    match reason {
        StartReason::NotAssigned => {
            Some(format!("`project set {project} --assign {agent}` assigns it"))
        }
        StartReason::Held => Some(format!("`resume {agent} {project}` lets it start")),
        StartReason::Backoff => Some(format!("`resume {agent} {project}` starts it at once")),
        StartReason::Suspended | StartReason::Misconfigured => {
            Some(format!("mend the cause, then `resume {agent} {project}`"))
        }
        StartReason::WorkspaceBroken => {
            Some("`workspace list` shows the clone; `workspace retry` after mending it".to_owned())
        }
        StartReason::NoPasskey => {
            Some("add its passkey to the configuration of the coordinator".to_owned())
        }
        _ => None,
    }
}

/// Returns whether only a person can end the reason.
pub(super) const fn needs_person(reason: StartReason) -> bool {
    matches!(
        reason,
        StartReason::Suspended
            | StartReason::Misconfigured
            | StartReason::WorkspaceBroken
            | StartReason::NoPasskey
    )
}
