//! Who is told of a commit: coordinators and waiting agents look at the world again, and what runs out of time is looked at.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::domain::chat::Sender;
use crate::domain::{Account, Assignment, CredentialId, InstanceKey, ProjectId, Purpose, TaskId};
use crate::nudge::{Nudge, Nudges};
use crate::rows::Wake;
use crate::store::{Change, Commit, CommitError};

use super::Service;
use super::accounts::log_accounts;
use super::audit::Audit;
use super::forge_items::{changed_items, log_item};
use super::told::untold;
use super::totals::ending_with;

/// Everybody who may be waiting for a change.
#[derive(Clone, Default)]
pub(super) struct Waiting {
    /// Those who decide what is started and stopped.
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
    /// The same one: coordinators say something else of themselves.
    pub(super) reports: Nudge,
}

/// What has changed that may concern items of forges, as long as somebody wants to know.
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
    /// How many want to know: one that ends may do so after the next has begun.
    n_interested: usize,
}

/// As long as this is there, changes are kept in mind.
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

    /// What has changed since the last call.
    pub(super) fn take(&self) -> ChangedWork {
        let mut changed = self.lock();
        let n_interested = changed.n_interested;
        std::mem::replace(&mut *changed, ChangedWork { n_interested, ..ChangedWork::default() })
    }

    /// One task is to be looked at once more.
    pub(super) fn again(&self, task: &TaskId) {
        self.add(vec![task.clone()], false);
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
    /// Those that there are; none are left.
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
    /// Wakes everybody whom a transaction concerns.
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

/// Whom a commit concerns.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a listener of its own")]
struct Concerned {
    coordinators: bool,
    deadlines: bool,
    events: bool,
    forges: bool,
    launches: bool,
    tasks: Vec<TaskId>,
    /// They may be good for nothing now.
    credentials: Vec<CredentialId>,
    agents: Vec<InstanceKey>,
    /// Something was said in them.
    chats: Vec<Assignment>,
    /// Their agents look at each other's tasks.
    projects: Vec<ProjectId>,
    /// Projects have them.
    directories: Vec<PathBuf>,
}

impl Concerned {
    fn by(changes: &[Change]) -> Self {
        let mut concerned = Self::default();
        for change in changes {
            match change {
                Change::Project(project) => {
                    concerned.coordinators = true;
                    concerned.directories.push(project.working_directory.clone());
                }
                Change::Agent(_)
                | Change::Assign(_)
                | Change::Unassign(_)
                | Change::Account(_)
                | Change::Pause(_) => {
                    concerned.coordinators = true;
                }
                Change::Pair(record) => concerned.coordinators |= record.concerns_coordinators(),
                Change::Task(task) => {
                    concerned.coordinators = true;
                    concerned.projects.push(task.project.clone());
                    concerned.tasks.push(task.id.clone());
                }
                Change::Launch(launch) => {
                    concerned.coordinators = true;
                    concerned.agents.push(launch.key.clone());
                    concerned.launches = true;
                }
                Change::Message(message) => {
                    let chat = Assignment {
                        project: message.project.clone(),
                        agent: message.agent.clone(),
                    };
                    if message.sender == Sender::User {
                        let (agent, project) = (chat.agent.clone(), chat.project.clone());
                        concerned.agents.push(InstanceKey::new(agent, project, Purpose::Chat));
                    }
                    concerned.chats.push(chat);
                }
                // A message only puts off the end of its chat; a chat that begins has one.
                Change::Session(session) => {
                    concerned.deadlines |=
                        session.revision == 0 && session.key.purpose == Purpose::Chat;
                }
                Change::Notice(_) => concerned.deadlines = true,
                Change::Event(_) => concerned.events = true,
                Change::ForgeItem(_) => concerned.forges = true,
                Change::Credential(credential) => concerned.credentials.push(credential.id.clone()),
                Change::Execution(_)
                | Change::OutputTail(..)
                | Change::ForgetLaunch(_)
                | Change::ForgetEvents(_)
                | Change::ForgetMessages(..)
                | Change::ForgetCredential(_)
                | Change::ForgetItem(_) => {}
            }
        }
        concerned
    }

    fn tell(self, waiting: &Waiting) {
        if self.coordinators {
            waiting.coordinators.wake();
        }
        if self.forges {
            waiting.forges.wake();
        }
        if !self.tasks.is_empty() || self.launches {
            waiting.forge_work.add(self.tasks, self.launches);
        }
        if self.deadlines {
            waiting.deadlines.wake();
        }
        self.credentials.iter().for_each(|id| waiting.credentials.wake(id));
        if self.events {
            waiting.events.wake();
        }
        self.agents.iter().for_each(|key| waiting.agents.wake(key));
        if !self.chats.is_empty() {
            self.chats.iter().for_each(|chat| waiting.watchers.wake(chat));
            waiting.unmirrored.add(self.chats);
        }
        if !self.directories.is_empty() {
            waiting.unmirrored.add_directories(self.directories);
        }
        if !self.projects.is_empty() {
            waiting.agents.wake_where(|key| {
                key.purpose == Purpose::Task && self.projects.contains(&key.project)
            });
        }
    }
}

impl Service {
    /// Makes `commit`, with the events that its rows tell by themselves, and tells whom it concerns, also when nobody waits for the
    /// answer any more: whoever asked may have gone.
    pub(super) async fn commit(&self, mut commit: Commit) -> Result<(), CommitError> {
        for change in &mut commit.changes {
            if let Change::Session(session) = change {
                *session = self.with_last_call(session.clone());
            }
        }
        let untold = untold(&commit.changes, self.now());
        commit.changes.extend(untold.into_iter().map(Change::Event));
        let ending = ending_with(&commit.changes);
        let audit = Audit::of(&self.store, &commit.changes).await?;
        let concerned = Concerned::by(&commit.changes);
        let items = changed_items(&commit.changes);
        let of_account = |change: &Change| {
            if let Change::Account(account) = change { Some(account.clone()) } else { None }
        };
        let accounts: Vec<Account> = commit.changes.iter().filter_map(of_account).collect();
        let (waiting, totals) = (self.waiting.clone(), Arc::clone(&self.totals));
        let publish = move || {
            totals.add(ending);
            concerned.tell(&waiting);
            log_accounts(accounts.iter());
            items.iter().for_each(log_item);
            if let Some(audit) = audit {
                audit.write();
            }
        };
        self.store.commit_then(commit, publish).await
    }
}
