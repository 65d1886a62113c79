//! The reasons that keep an agent from starting, in words for people.

use crate::domain::start_history::StartReason;
use crate::domain::waiting::sentence_of_start;
use crate::domain::{AgentId, Language, ProjectId, Purpose};

/// Returns the sentence of a reason.
pub(super) const fn sentence(reason: StartReason, purpose: Purpose) -> &'static str {
    match (reason, purpose) {
        (StartReason::NoWork, Purpose::Task) => "No task of it is in progress",
        (StartReason::NoWork, Purpose::Chat) => "No person wants to chat with it",
        (StartReason::NoWork, Purpose::Check) => "No task of it is to be checked",
        (StartReason::Starting, _) => "It is starting already",
        (StartReason::Running, _) => "It is running already",
        (StartReason::Stopping, _) => "It is stopping, and has not ended yet",
        _ => sentence_of_start(reason, Language::English),
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
        StartReason::WorkspaceDisk => Some(
            "`task merge` or `task discard` lets a clone of a closed task be removed; \
             `workspace.max_disk` is the limit"
                .to_owned(),
        ),
        StartReason::HookFailed => {
            Some("the log has its output; mend `workspace.hooks` or what it needs".to_owned())
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
            | StartReason::WorkspaceDisk
            | StartReason::NoPasskey
    )
}
