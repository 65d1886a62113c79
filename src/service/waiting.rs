//! The listeners of changes: coordinators, waiting agents, and the loops that end overdue things.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::domain::{Assignment, CredentialId, InstanceKey, Purpose};
use crate::nudge::{Nudge, Nudges};
use crate::rows::Wake;

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
    /// Chats with messages that are not mirrored yet.
    pub(super) unmirrored: Unmirrored,
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

/// Chats whose mirrors are behind, and the new working directories of projects.
#[derive(Clone, Default)]
pub(super) struct Unmirrored {
    chats: Arc<Mutex<BTreeSet<Assignment>>>,
    directories: Arc<Mutex<BTreeSet<PathBuf>>>,
    pub(super) nudge: Nudge,
}

impl Unmirrored {
    /// Takes the chats that are not mirrored.
    pub(super) fn take(&self) -> BTreeSet<Assignment> {
        std::mem::take(&mut *self.lock())
    }

    /// Takes the new working directories since the last call.
    pub(super) fn take_directories(&self) -> BTreeSet<PathBuf> {
        std::mem::take(&mut *self.directories.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, chats: Vec<Assignment>) {
        self.lock().extend(chats);
        self.nudge.wake();
    }

    fn add_directories(&self, directories: Vec<PathBuf>) {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner).extend(directories);
        self.nudge.wake();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Assignment>> {
        self.chats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Wakes the listeners of a transaction.
    pub(super) fn wake(&self, wakes: BTreeSet<Wake>) {
        let mut projects = BTreeSet::new();
        let (mut chats, mut directories) = (Vec::new(), Vec::new());
        for wake in wakes {
            match wake {
                Wake::Coordinators => self.coordinators.wake(),
                Wake::Agent(key) => self.agents.wake(&key),
                Wake::AgentsOf(project) => drop(projects.insert(project)),
                Wake::Chat(chat) => {
                    self.watchers.wake(&chat);
                    chats.push(chat);
                }
                Wake::Directory(directory) => directories.push(directory),
                Wake::Credential(id) => self.credentials.wake(&id),
                Wake::Deadlines => self.deadlines.wake(),
                Wake::Events => self.events.wake(),
                Wake::Forges => self.forges.wake(),
            }
        }
        if !chats.is_empty() {
            self.unmirrored.add(chats);
        }
        if !directories.is_empty() {
            self.unmirrored.add_directories(directories);
        }
        if !projects.is_empty() {
            let works = |key: &InstanceKey| key.purpose == Purpose::Task;
            self.agents.wake_where(|key| works(key) && projects.contains(&key.project));
        }
    }
}
