//! Who may open a session, and on which launch.

use super::agent::{Agent, AgentStatus, Project, ProjectStatus};
use super::id::{AgentId, LaunchId, ProjectId};
use super::key::Purpose;
use super::launch::{Launch, LaunchState};
use super::refusal::Refusal;

/// What the presented passkey turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// Neither the agent's passkey nor a ticket of one of its launches.
    None,
    /// The agent's own passkey.
    Passkey,
    /// The ticket of this launch.
    Ticket(Box<Launch>),
}

/// What the decision is made from.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    pub agent_id: &'a AgentId,
    pub project_id: &'a ProjectId,
    pub agent: Option<&'a Agent>,
    pub project: Option<&'a Project>,
    pub is_assigned: bool,
    pub proof: Proof,
    /// The launch below whose keeper the caller is, where that is known: no agent comes in by another's ticket.
    pub presented_by: Option<&'a LaunchId>,
    /// Open launches of the agent in the project, the oldest first.
    pub open: &'a [Launch],
    /// Whether somebody wants to chat with the agent.
    pub is_chat_wanted: bool,
}

/// How the session is to be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// On this launch; a session that it has already is superseded.
    On(Box<Launch>),
    /// On a launch of its own, for this: an agent that someone started by hand.
    OnNewLaunch(Purpose),
}

/// Returns whether a session counts towards the limit of sessions that are opened in a time. The first session by the ticket of a
/// launch does not: the coordinator limits its launches.
pub fn is_limited(proof: &Proof) -> bool {
    !matches!(proof, Proof::Ticket(launch) if launch.authenticated_at.is_none())
}

/// Decides about an `authenticate` call (seed 004; contract.md "Passkey and ticket").
///
/// # Errors
/// The refusals of seed 004 and contract.md, in that order: what is wrong with the project is told only to an agent that has
/// proven who it is.
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
    // Only after the passkey is proven, and per purpose: a chat and a task don't count for each other.
    let is_open = |purpose| facts.open.iter().any(|launch| launch.key.purpose == purpose);
    // A person waits for a chat; and a wish ends here, while a task would go on being one (seed 003).
    if facts.is_chat_wanted && !is_open(Purpose::Chat) {
        Ok(Grant::OnNewLaunch(Purpose::Chat))
    } else if is_open(Purpose::Task) {
        Err(Refusal::AlreadyRunning)
    } else {
        Ok(Grant::OnNewLaunch(Purpose::Task))
    }
}

/// Whether a session on `launch` may be used by who presents its token. The session of a kept launch is that of the processes
/// below its keeper; an agent that someone started by hand may well have been started by another agent.
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
