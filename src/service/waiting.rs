//! Who is told of a change: coordinators and waiting agents look at the world again, and what runs out of time is looked at.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::domain::{Assignment, CredentialId, InstanceKey, Purpose, TaskId};
use crate::nudge::{Nudge, Nudges};
use crate::rows::Wake;

/// The listeners that a change may wake.
#[derive(Clone, Default)]
pub(super) struct Waiting {
    /// The coordinators, which decide what is started and stopped.
    pub(super) coordinators: Nudge,
    /// Agents that wait for their next action.
    pub(super) agents: Nudges<InstanceKey>,
    /// People who look at a chat.
    pub(super) watchers: Nudges<Assignment>,
    /// Chats in which something was said that is not mirrored yet.
    pub(super) unmirrored: Unmirrored,
    /// Whoever ends what has run out of time: there is something new that can.
    pub(super) deadlines: Nudge,
    /// Whoever does what is owed for items of forges: there is something new to do.
    pub(super) forges: Nudge,
    /// Whoever asks forges what is new: it is to ask at once.
    pub(super) forge_looks: Nudge,
    /// Whoever settles those items.
    pub(super) forge_work: ForgeWork,
    /// Streams whose readers may be shut out.
    pub(super) credentials: Nudges<CredentialId>,
    /// Whoever hands out events.
    pub(super) events: Nudge,
    /// The same listener: a coordinator has reported another status.
    pub(super) reports: Nudge,
}

/// The changes that may concern items of forges, collected while the loop that settles them runs.
#[derive(Clone, Default)]
pub(super) struct ForgeWork {
    changed: Arc<Mutex<ChangedWork>>,
    pub(super) nudge: Nudge,
}

/// Tasks that are others now, and whether a launch is.
#[derive(Debug, Default)]
pub(super) struct ChangedWork {
    pub(super) tasks: BTreeSet<TaskId>,
    pub(super) has_launches: bool,
    /// The number of loops: one may end after the next has begun.
    n_interested: usize,
}

/// Changes are collected until this is dropped.
pub(super) struct Interest(ForgeWork);

impl Drop for Interest {
    fn drop(&mut self) {
        let mut changed = self.0.lock();
        changed.n_interested -= 1;
        if changed.n_interested == 0 {
            *changed = ChangedWork::default();
        }
    }
}

impl ForgeWork {
    pub(super) fn interest(&self) -> Interest {
        self.lock().n_interested += 1;
        Interest(self.clone())
    }

    /// Takes the changes since the last call.
    pub(super) fn take(&self) -> ChangedWork {
        let mut changed = self.lock();
        let n_interested = changed.n_interested;
        std::mem::replace(&mut *changed, ChangedWork { n_interested, ..ChangedWork::default() })
    }

    fn add(&self, tasks: Vec<TaskId>, has_launches: bool) {
        let mut changed = self.lock();
        if changed.n_interested > 0 {
            changed.tasks.extend(tasks);
            changed.has_launches |= has_launches;
            self.nudge.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, ChangedWork> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Chats whose mirrors are behind, and working directories that projects were given.
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

    /// The working directories since the last call.
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
        let (mut projects, mut tasks, mut has_launches) = (BTreeSet::new(), Vec::new(), false);
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
                Wake::ForgeTask(task) => tasks.push(task),
                Wake::ForgeLaunches => has_launches = true,
            }
        }
        if !tasks.is_empty() || has_launches {
            self.forge_work.add(tasks, has_launches);
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
