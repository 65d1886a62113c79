//! Chats at rest give their slots to starts that wait. The next message of a person starts the agent
//! of such a chat again.

use super::{Action, Snapshot};
use crate::domain::key::{InstanceKey, Purpose};
use crate::domain::launch::{LaunchFacts, LaunchState, StopReason};
use crate::domain::start_history::{Candidate, StartReason};

/// Returns the ends of chats at rest that free the slots for these starts, one chat for each start.
/// `n_for_tasks` is the number of tasks that may use such slots.
pub(super) fn ending_for<'a>(
    waiting: impl Iterator<Item = (&'a Candidate, StartReason)>,
    mut n_for_tasks: usize,
    snapshot: &'a Snapshot,
) -> Vec<Action> {
    let is_own = |launch: &&LaunchFacts| launch.coordinator.as_ref() == Some(&snapshot.coordinator);
    let own = || snapshot.launches.iter().filter(is_own);
    // The slots of these are about to be free.
    let mut n_ending = own().filter(|launch| is_ending(launch)).count();
    let mut resting: Vec<&LaunchFacts> = own()
        .filter(|launch| launch.is_at_rest && matches!(launch.state, LaunchState::Running { .. }))
        .collect();
    let mut ends = Vec::new();
    for (candidate, reason) in waiting {
        if !matches!(
            reason,
            StartReason::NoFreeSlot
                | StartReason::ProjectLimit
                | StartReason::AgentLimit
                | StartReason::ProviderLimit
        ) {
            continue;
        }
        if candidate.key.purpose != Purpose::Chat {
            if n_for_tasks == 0 {
                continue;
            }
            n_for_tasks -= 1;
        }
        if reason == StartReason::NoFreeSlot && n_ending > 0 {
            n_ending -= 1;
            continue;
        }
        let place = resting.iter().position(|chat| frees(reason, chat, candidate));
        if let Some(place) = place {
            let launch = resting.remove(place).id.clone();
            ends.push(Action::WantStop { launch, reason: StopReason::ChatIdle });
        }
    }
    ends
}

const fn is_ending(launch: &LaunchFacts) -> bool {
    matches!(launch.state, LaunchState::Stopping { .. } | LaunchState::Ending)
}

/// Returns whether the end of the chat frees a slot of the limit that is the reason.
fn frees(reason: StartReason, chat: &LaunchFacts, candidate: &Candidate) -> bool {
    match reason {
        StartReason::ProviderLimit => chat.ai_type == candidate.ai_type,
        reason => counts_for(reason, &chat.key, &candidate.key),
    }
}

/// Returns whether an agent uses a slot of the limit that keeps another one from its start, as far
/// as their keys tell.
pub fn counts_for(reason: StartReason, running: &InstanceKey, waiting: &InstanceKey) -> bool {
    match reason {
        StartReason::NoFreeSlot => true,
        StartReason::ProjectLimit => running.project == waiting.project,
        StartReason::AgentLimit => running.agent == waiting.agent,
        _ => false,
    }
}
