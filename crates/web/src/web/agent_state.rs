//! The state of an agent in a project, as its mark shows it, and the line about its work.

use super::instances::InstanceRow;
use super::shown::{AvatarRing, Left};
use super::words::Words;
use domain::start_history::StartReason;
use domain::waiting::{WaitReason, Waiting};
use domain::{Language, Purpose, Why};

/// The groups of agents, in the order in which people look at them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StateGroup {
    NeedsPerson,
    Waits,
    Works,
    Stopped,
    Idle,
}

/// The state of an agent in a project.
#[derive(Debug, Clone)]
pub(super) struct AgentState {
    pub(super) group: StateGroup,
    pub(super) text: &'static str,
    /// The time that is left of a wait.
    pub(super) left: Option<Left>,
}

impl AgentState {
    pub(super) const fn of(group: StateGroup, text: &'static str) -> Self {
        Self { group, text, left: None }
    }

    /// Returns the state of an agent with an open launch.
    pub(super) fn of_instance(w: &'static Words, instance: &InstanceRow) -> Self {
        let (group, text) = match instance.state.as_str() {
            _ if instance.is_unkillable => (StateGroup::NeedsPerson, w.does_not_end),
            _ if instance.is_suspended => (StateGroup::NeedsPerson, w.frozen),
            "starting" => (StateGroup::Works, w.starting),
            "stopping" | "ending" => (StateGroup::Works, w.stopping),
            _ if instance.purpose == Purpose::Chat => (StateGroup::Works, w.in_a_chat),
            _ => (StateGroup::Works, w.works),
        };
        Self::of(group, text)
    }

    /// Returns the state of an agent without an open launch.
    pub(super) fn of_why(w: &'static Words, why: &Why) -> Self {
        match why.waiting_or_stopped() {
            Some(waiting) => Self::of_wait(w, &waiting),
            None if why.reason() == StartReason::Ready => Self::of(StateGroup::Waits, w.starts_now),
            None => Self::of(StateGroup::Idle, w.idle),
        }
    }

    fn of_wait(w: &'static Words, waiting: &Waiting) -> Self {
        let login = waiting.is_not_logged_in();
        let reason = match &waiting.reason {
            WaitReason::Start(reason) => *reason,
            WaitReason::HostSilent => return Self::of(StateGroup::NeedsPerson, w.not_heard),
            _ => return Self::of(StateGroup::Waits, w.waits),
        };
        let (group, text) = match reason {
            StartReason::Held => (StateGroup::Stopped, w.stopped),
            StartReason::Inactive => (StateGroup::Stopped, w.deactivated),
            StartReason::Paused => (StateGroup::Waits, w.paused),
            StartReason::Suspended => (StateGroup::NeedsPerson, w.failed),
            StartReason::Misconfigured => (StateGroup::NeedsPerson, w.misconfigured),
            StartReason::Parked if login => (StateGroup::NeedsPerson, w.not_logged_in),
            StartReason::Parked => (StateGroup::Waits, w.usage_limit),
            StartReason::WorkspaceBroken => (StateGroup::NeedsPerson, w.clone_broken),
            StartReason::NoCoordinator => (StateGroup::NeedsPerson, w.waits),
            _ if waiting.needs_person() => (StateGroup::NeedsPerson, w.needs_attention),
            StartReason::Stopping => (StateGroup::Works, w.stopping),
            _ => (StateGroup::Waits, w.waits),
        };
        let has_time = text == w.waits;
        Self { group, text, left: waiting.until.filter(|_| has_time).map(Left) }
    }

    /// Returns the colour of the mark.
    pub(super) const fn tone(&self) -> &'static str {
        match self.group {
            StateGroup::NeedsPerson => "bad",
            StateGroup::Waits => "wait",
            StateGroup::Works => "good",
            StateGroup::Stopped | StateGroup::Idle => "",
        }
    }

    /// Returns the ring of the avatar.
    pub(super) fn ring(&self, is_live: bool) -> AvatarRing {
        match self.group {
            StateGroup::NeedsPerson => AvatarRing::NeedsPerson,
            _ if is_live => AvatarRing::Live,
            StateGroup::Waits => AvatarRing::Waits,
            StateGroup::Works | StateGroup::Stopped | StateGroup::Idle => AvatarRing::None,
        }
    }

    pub(super) fn works(&self) -> bool {
        self.group == StateGroup::Works
    }
}

/// Returns the ring of an agent that waits. One that a person stopped has none.
pub(super) fn ring_of_wait(waiting: &Waiting) -> AvatarRing {
    AgentState::of_wait(Words::of(Language::English), waiting).ring(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::FailureClass;

    #[track_caller]
    fn check(waiting: &Waiting, group: StateGroup, english: &str, japanese: &str) {
        for (language, text) in [(Language::English, english), (Language::Japanese, japanese)] {
            let state = AgentState::of_wait(Words::of(language), waiting);
            assert_eq!((state.group, state.text), (group, text), "{waiting:?}");
        }
    }

    #[test]
    fn a_mark_names_the_reason_in_both_languages() {
        let start = |reason| Waiting::of(WaitReason::Start(reason));
        let parked = |class| Waiting {
            account: Some(("codex".to_owned(), class)),
            ..start(StartReason::Parked)
        };
        let person = StateGroup::NeedsPerson;
        check(&parked(FailureClass::Auth), person, "Not logged in", "未ログイン");
        check(&parked(FailureClass::Quota), StateGroup::Waits, "Usage limit", "利用上限");
        check(&start(StartReason::Suspended), person, "Failed", "失敗");
        check(&start(StartReason::Misconfigured), person, "Misconfigured", "設定の誤り");
        check(&start(StartReason::Held), StateGroup::Stopped, "Stopped", "停止中");
        check(&start(StartReason::Inactive), StateGroup::Stopped, "Deactivated", "無効");
        check(&start(StartReason::NoFreeSlot), StateGroup::Waits, "Waiting", "待機中");
        check(&start(StartReason::NoCoordinator), person, "Waiting", "待機中");
        check(&Waiting::of(WaitReason::HostSilent), person, "Not responding", "応答なし");
    }

    #[test]
    fn a_ring_is_red_for_a_person_amber_for_a_wait_and_green_for_a_process() {
        let ring = |reason| ring_of_wait(&Waiting::of(WaitReason::Start(reason)));
        assert_eq!(ring(StartReason::Suspended), AvatarRing::NeedsPerson);
        assert_eq!(ring(StartReason::NoFreeSlot), AvatarRing::Waits);
        assert_eq!(ring(StartReason::Held), AvatarRing::None);
        let works = AgentState::of(StateGroup::Works, "");
        assert_eq!([works.ring(true), works.ring(false)], [AvatarRing::Live, AvatarRing::None]);
        assert!(AvatarRing::NeedsPerson > AvatarRing::Live && AvatarRing::Live > AvatarRing::Waits);
    }
}
