//! Decides whether a caller may open a session, and on which launch.

use super::agent::{Agent, AgentStatus, Project, ProjectStatus};
use super::id::{AgentId, LaunchId, ProjectId};
use super::key::Purpose;
use super::launch::{Launch, LaunchState};
use super::refusal::Refusal;

/// The kind of passkey that the caller presented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// Neither the agent's passkey nor a ticket of one of its launches.
    None,
    /// The agent's own passkey.
    Passkey,
    /// The ticket of this launch.
    Ticket(Box<Launch>),
}

/// The facts that the decision needs.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    pub agent_id: &'a AgentId,
    pub project_id: &'a ProjectId,
    pub agent: Option<&'a Agent>,
    pub project: Option<&'a Project>,
    pub is_assigned: bool,
    pub proof: Proof,
    /// The launch below whose shim the caller is, if it is known. No agent can use the ticket of
    /// another launch.
    pub presented_by: Option<&'a LaunchId>,
    /// Open launches of the agent in the project, the oldest first.
    pub open: &'a [Launch],
    /// True if a person wants to chat with the agent.
    pub is_chat_wanted: bool,
}

/// The launch on which the session opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// The session opens on this launch. It supersedes a session that the launch already has.
    On(Box<Launch>),
    /// The session opens on a new launch for this purpose, because a person started the agent by
    /// hand.
    OnNewLaunch(Purpose),
}

/// Returns whether a session counts towards the limit for opening sessions. The first session by
/// the ticket of a launch does not count, because the coordinator limits its launches.
pub fn is_limited(proof: &Proof) -> bool {
    !matches!(proof, Proof::Ticket(launch) if launch.authenticated_at.is_none())
}

/// Decides about an `authenticate` call by a passkey or a ticket.
///
/// # Errors
/// Returns the first refusal in this order: the credentials, the project, the assignment, the
/// state. An agent learns what is wrong with the project only after it has proven its identity.
pub fn decide(facts: &Facts<'_>) -> Result<Grant, Refusal> {
    let agent = match (&facts.proof, facts.agent) {
        (Proof::None, _) | (_, None) => return Err(Refusal::InvalidCredentials),
        (Proof::Passkey | Proof::Ticket(_), Some(agent)) => agent,
    };
    let project = facts
        .project
        .ok_or_else(|| Refusal::ProjectNotFound { project: facts.project_id.clone() })?;
    if let Proof::Ticket(launch) = &facts.proof {
        return with_ticket(launch, facts);
    }
    if !facts.is_assigned {
        return Err(Refusal::NotAssigned { agent: agent.id.clone(), project: project.id.clone() });
    }
    if agent.status != AgentStatus::Active || project.status != ProjectStatus::Active {
        return Err(Refusal::Inactive);
    }
    if let Some(starting) =
        facts.open.iter().find(|launch| matches!(launch.state, LaunchState::Starting { .. }))
    {
        return Ok(Grant::On(Box::new(starting.clone())));
    }
    // Only after the passkey is proven, and for each purpose: a chat and a task do not count for
    // each other.
    let is_open = |purpose| facts.open.iter().any(|launch| launch.key.purpose == purpose);
    // A person waits for a chat. The wish for a chat ends here, while a task would stay one.
    if facts.is_chat_wanted && !is_open(Purpose::Chat) {
        Ok(Grant::OnNewLaunch(Purpose::Chat))
    } else if is_open(Purpose::Task) {
        Err(Refusal::AlreadyRunning)
    } else {
        Ok(Grant::OnNewLaunch(Purpose::Task))
    }
}

/// Returns whether the presenter of its token may use a session on `launch`. If a shim runs the
/// launch, the session belongs to the processes below that shim. An agent without a shim may
/// have been started by another agent.
pub fn is_presented_by_its_own(launch: &Launch, presented_by: Option<&LaunchId>) -> bool {
    !launch.is_kept() || presented_by.is_none_or(|presenter| *presenter == launch.id)
}

fn with_ticket(launch: &Launch, facts: &Facts<'_>) -> Result<Grant, Refusal> {
    let is_theirs = launch.key.agent == *facts.agent_id
        && launch.key.project == *facts.project_id
        && facts.presented_by.is_none_or(|presenter| *presenter == launch.id);
    if !is_theirs {
        return Err(Refusal::InvalidCredentials);
    }
    match launch.state {
        LaunchState::Starting { .. } | LaunchState::Running { .. } => {
            Ok(Grant::On(Box::new(launch.clone())))
        }
        LaunchState::Stopping { .. } | LaunchState::Ending | LaunchState::Ended { .. } => {
            Err(Refusal::LaunchEnded)
        }
    }
}

#[cfg(test)]
mod tests;
