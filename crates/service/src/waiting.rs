//! The listeners of changes: coordinators, waiting agents, and the loops that end overdue things.

use std::collections::BTreeSet;
use std::time::Duration;

use domain::{Assignment, CredentialId, InstanceKey, Purpose};
use runtime::nudge::{Nudge, Nudges};
use store::rows::Wake;

/// The delay in which a loop that looks at everything collects several changes for one pass.
pub(super) const SOON: Duration = Duration::from_millis(10);

/// The listeners that a change may wake.
#[derive(Clone, Default)]
pub(super) struct Waiting {
    /// The coordinators, which decide what is started and stopped, and the loops that claim and
    /// settle items of forges.
    pub(super) coordinators: Nudge,
    /// Agents that wait for their next action.
    pub(super) agents: Nudges<InstanceKey>,
    /// People who watch a chat.
    pub(super) watchers: Nudges<Assignment>,
    /// The loop that mirrors chats.
    pub(super) export: Nudge,
    /// The loop that ends overdue things. It wakes when there is a new deadline.
    pub(super) deadlines: Nudge,
    /// The loop that carries out pending writes for items of forges. It wakes when there is a new
    /// one.
    pub(super) forges: Nudge,
    /// The loop that polls forges. It polls at once when it wakes.
    pub(super) forge_looks: Nudge,
    /// Streams whose readers may lose access.
    pub(super) credentials: Nudges<CredentialId>,
    /// The loop that sends events to followers.
    pub(super) events: Nudge,
    /// The loop that sends events, when a coordinator has reported another status.
    pub(super) reports: Nudge,
}

impl Waiting {
    /// Wakes all listeners of changes of the store.
    fn wake_all(&self) {
        let Self { coordinators, agents, watchers, export, deadlines, forges, .. } = self;
        // `forge_looks` and `reports` are not about the store.
        let Self { credentials, events, forge_looks: _, reports: _, .. } = self;
        for nudge in [coordinators, export, deadlines, forges, events] {
            nudge.wake();
        }
        agents.wake_where(|_| true);
        watchers.wake_where(|_| true);
        credentials.wake_where(|_| true);
    }

    /// Wakes the listeners of a transaction.
    pub(super) fn wake(&self, wakes: BTreeSet<Wake>) {
        let mut projects = BTreeSet::new();
        for wake in wakes {
            match wake {
                Wake::Coordinators => self.coordinators.wake(),
                Wake::Agent(key) => self.agents.wake(&key),
                Wake::AgentsOf(project) => drop(projects.insert(project)),
                Wake::Chat(chat) => self.watchers.wake(&chat),
                Wake::ChatExport => self.export.wake(),
                Wake::Credential(id) => self.credentials.wake(&id),
                Wake::Deadlines => self.deadlines.wake(),
                Wake::Events => self.events.wake(),
                Wake::Forges => self.forges.wake(),
                Wake::Everything => self.wake_all(),
            }
        }
        if !projects.is_empty() {
            let works = |key: &InstanceKey| key.purpose == Purpose::Task;
            self.agents.wake_where(|key| works(key) && projects.contains(&key.project));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn what_another_server_may_have_changed_wakes_all_listeners() {
        let waiting = Waiting::default();
        let key: InstanceKey =
            InstanceKey::new("a".parse().unwrap(), "p".parse().unwrap(), Purpose::Chat);
        let mut agent = waiting.agents.listen(key.clone());
        let chat = Assignment { project: key.project, agent: key.agent };
        let mut watcher = waiting.watchers.listen(chat);
        let nudges = [
            &waiting.coordinators,
            &waiting.export,
            &waiting.deadlines,
            &waiting.forges,
            &waiting.events,
        ];
        let before: Vec<u64> = nudges.iter().map(|nudge| nudge.n_wakeups()).collect();
        waiting.wake(BTreeSet::from([Wake::Everything]));
        assert!(agent.woken().now_or_never().is_some());
        assert!(watcher.woken().now_or_never().is_some());
        let after: Vec<u64> = nudges.iter().map(|nudge| nudge.n_wakeups()).collect();
        assert!(before.iter().zip(&after).all(|(before, after)| before < after));
    }
}
