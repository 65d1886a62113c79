//! Chats at rest give their slots to starts that wait. The next message of a person starts the agent
//! of such a chat again.

use std::time::Duration;

use super::shared::WorkTrees;
use super::slots::Slots;
use super::{Action, Snapshot};
use crate::key::{InstanceKey, Purpose};
use crate::launch::{LaunchFacts, LaunchState, StopReason};
use crate::start_history::{Candidate, StartReason};

/// An agent that runs, or a start that waits, as the limits of slots count it.
#[derive(Debug, Clone, Copy)]
pub struct SlotUse<'a> {
    pub key: &'a InstanceKey,
    /// The provider; empty if it is not known.
    pub ai_type: &'a str,
}

impl SlotUse<'_> {
    /// Returns whether its end frees a slot of the limit that keeps another start waiting.
    pub fn frees(self, reason: StartReason, waiting: SlotUse<'_>) -> bool {
        match reason {
            StartReason::NoFreeSlot => true,
            StartReason::ProjectLimit => self.key.project == waiting.key.project,
            StartReason::AgentLimit => self.key.agent == waiting.key.agent,
            StartReason::ProviderLimit => self.ai_type == waiting.ai_type,
            _ => false,
        }
    }
}

/// The time between two looks at chats while a start waits. No event announces that a chat is at
/// rest.
pub(super) const REST_PAUSE: Duration = Duration::from_secs(5);

/// A start that waits, with all reasons for that.
pub(super) struct WaitingStart<'a> {
    slot: SlotUse<'a>,
    reasons: Vec<StartReason>,
}

impl<'a> WaitingStart<'a> {
    pub(super) fn of(
        candidate: &'a Candidate,
        reason: StartReason,
        slots: &Slots<'_>,
        trees: &WorkTrees<'_>,
    ) -> Self {
        let by_probe = candidate.is_probe && slots.has_probe(&candidate.ai_type);
        let mut reasons = vec![reason];
        reasons.extend(by_probe.then_some(StartReason::Parked));
        reasons.extend(slots.keeping(&candidate.key, &candidate.ai_type));
        reasons.extend(trees.keeping(candidate));
        let slot = SlotUse { key: &candidate.key, ai_type: &candidate.ai_type };
        Self { slot, reasons }
    }
}

/// Returns the ends of chats at rest that let these starts begin, one chat for each start.
/// `n_for_tasks` is the number of tasks that may use such slots.
pub(super) fn ending_for<'a>(
    waiting: impl Iterator<Item = WaitingStart<'a>>,
    mut n_for_tasks: usize,
    snapshot: &'a Snapshot,
) -> Vec<Action> {
    let mut ending: Vec<&LaunchFacts> = own(snapshot).filter(|it| is_ending(it)).collect();
    let mut resting: Vec<&LaunchFacts> =
        own(snapshot).filter(|it| it.is_at_rest && is_running_chat(it)).collect();
    let mut ends = Vec::new();
    for WaitingStart { slot, reasons } in waiting {
        let is_enough = |launch: &&LaunchFacts| {
            let used = SlotUse { key: &launch.key, ai_type: &launch.ai_type };
            reasons.iter().all(|reason| used.frees(*reason, slot))
        };
        let is_task = slot.key.purpose != Purpose::Chat;
        if is_task && n_for_tasks == 0 {
            continue;
        }
        if let Some(place) = ending.iter().position(is_enough) {
            ending.remove(place);
        } else if let Some(place) = resting.iter().position(is_enough) {
            let launch = resting.remove(place).id.clone();
            ends.push(Action::WantStop { launch, reason: StopReason::ChatIdle });
        } else {
            continue;
        }
        n_for_tasks -= usize::from(is_task);
    }
    ends
}

/// Returns whether a chat of this coordinator may come to rest, which nothing announces.
pub(super) fn may_rest(snapshot: &Snapshot) -> bool {
    own(snapshot).any(is_running_chat)
}

fn own(snapshot: &Snapshot) -> impl Iterator<Item = &LaunchFacts> {
    let is_own = |it: &&LaunchFacts| it.coordinator.as_ref() == Some(&snapshot.coordinator);
    snapshot.launches.iter().filter(is_own)
}

fn is_running_chat(launch: &LaunchFacts) -> bool {
    launch.key.purpose == Purpose::Chat && matches!(launch.state, LaunchState::Running { .. })
}

const fn is_ending(launch: &LaunchFacts) -> bool {
    matches!(launch.state, LaunchState::Stopping { .. } | LaunchState::Ending)
}
