//! Notices tell an agent that its work was changed by another person or agent while it was working
//! on it.
//!
//! A notice belongs to one launch. It is unread, then read, then settled. It is settled by the
//! agent's report, by the end of its launch, or because its reason is gone. An agent that leaves a
//! notice unsettled for longer than the grace is stopped.

use super::agent::{Agent, AgentStatus, Assignment, Project, ProjectStatus};
use super::id::{AgentId, LaunchId, NoticeId, ProjectId, TaskId};
use super::key::{InstanceKey, Purpose};
use super::launch::Launch;
use super::task::{Task, TaskStatus};
use super::time::Timestamp;
use super::words::words;

words! {
    /// The subject of a notice.
    pub enum NoticeKind as "notice type" {
        /// The status of the task changed.
        StatusChange = "status_change",
        /// The agent itself must stop.
        Stop = "stop",
    }
}

words! {
    /// What happened.
    pub enum NoticeAction as "notice action" {
        /// The task was blocked.
        Blocked = "blocked",
        Cancelled = "cancelled",
        /// A person or another agent set the task to done.
        Done = "done",
        /// The task was put back.
        Todo = "todo",
        /// The task has another assignee now, or none.
        Reassigned = "reassigned",
        /// The project or the agent rests.
        Paused = "paused",
        /// The agent doesn't work in the project any more.
        Unassigned = "unassigned",
        /// The project is closed.
        Closed = "closed",
    }
}

impl NoticeAction {
    pub const fn kind(self) -> NoticeKind {
        match self {
            Self::Blocked | Self::Cancelled | Self::Done | Self::Todo | Self::Reassigned => {
                NoticeKind::StatusChange
            }
            Self::Paused | Self::Unassigned | Self::Closed => NoticeKind::Stop,
        }
    }

    /// Returns whether the notice is obsolete when the project and the agent are active again.
    pub const fn is_a_pause(self) -> bool {
        matches!(self, Self::Paused | Self::Closed)
    }

    /// Returns what the agent of a task in progress is told if the task gets this status; `None` if
    /// the work continues.
    pub const fn of_status(status: TaskStatus) -> Option<Self> {
        match status {
            TaskStatus::Blocked => Some(Self::Blocked),
            TaskStatus::Cancelled => Some(Self::Cancelled),
            TaskStatus::Done => Some(Self::Done),
            TaskStatus::Todo | TaskStatus::Backlog => Some(Self::Todo),
            TaskStatus::InProgress => None,
        }
    }
}

words! {
    /// The action of the agent that settles a notice.
    pub enum NoticeDemand as "notice demand" {
        /// The agent's report: the launch's own task, or the launch itself, is concerned.
        End = "end",
        /// Reading it: a subtask is concerned, and the launch goes on with the rest.
        Read = "read",
    }
}

/// One notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub id: NoticeId,
    pub launch: LaunchId,
    /// The task that was changed.
    pub task: Option<TaskId>,
    pub action: NoticeAction,
    pub demand: NoticeDemand,
    pub created_at: Timestamp,
    /// The time when the agent first asked for it.
    pub read_at: Option<Timestamp>,
    pub settled_at: Option<Timestamp>,
    pub revision: i64,
}

impl Notice {
    pub const fn is_open(&self) -> bool {
        self.settled_at.is_none()
    }

    /// Returns the time when the grace for it began. Reading it begins the grace once more, but
    /// only once. `None` if no action of the agent is awaited.
    pub fn waited_for_since(&self) -> Option<Timestamp> {
        let is_waited_for = self.is_open() && self.demand == NoticeDemand::End;
        is_waited_for.then(|| self.read_at.unwrap_or(self.created_at))
    }

    /// Returns the notice after the agent read it.
    pub fn read(self, at: Timestamp) -> Self {
        let settled_at = match self.demand {
            NoticeDemand::Read => self.settled_at.or(Some(at)),
            NoticeDemand::End => self.settled_at,
        };
        Self { read_at: self.read_at.or(Some(at)), settled_at, ..self }
    }

    pub fn settled(self, at: Timestamp) -> Self {
        Self { settled_at: self.settled_at.or(Some(at)), ..self }
    }
}

/// A change of an agent's work that it did not make itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkChange {
    /// A task was changed.
    Task {
        before: Box<Task>,
        after: Box<Task>,
    },
    /// The agent does not belong to the project any more.
    Unassigned(Assignment),
    Project {
        project: ProjectId,
        status: ProjectStatus,
    },
    Agent {
        agent: AgentId,
        status: AgentStatus,
    },
}

/// The effect of a change on a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// Its agent must be told.
    Tell { task: Option<TaskId>, action: NoticeAction, demand: NoticeDemand },
    /// An earlier notice about the task is obsolete.
    TakeBackTask(TaskId),
    /// An earlier notice about a pause is obsolete.
    TakeBackPause,
}

impl WorkChange {
    /// Returns the change that agents at work must learn after a change of an agent.
    pub fn of_agent(before: &Agent, after: &Agent) -> Option<Self> {
        let agent = after.id.clone();
        let status = after.status;
        (before.status != status).then_some(Self::Agent { agent, status })
    }

    /// Returns the change that agents at work must learn after a change of a project.
    pub fn of_project(before: &Project, after: &Project) -> Option<Self> {
        let project = after.id.clone();
        let status = after.status;
        (before.status != status).then_some(Self::Project { project, status })
    }

    /// Returns the changed task as it was before, if it was work of the agent of `key`.
    pub fn work_before(&self, key: &InstanceKey) -> Option<&Task> {
        let Self::Task { before, .. } = self else { return None };
        let is_theirs =
            before.project == key.project && before.assignee.as_ref() == Some(&key.agent);
        let is_work = before.status == TaskStatus::InProgress && before.checking_since.is_none();
        (is_theirs && is_work).then_some(before)
    }

    /// Returns whether the change ends the chat of `launch`.
    pub fn ends_chat(&self, launch: &Launch) -> bool {
        if matches!(self, Self::Task { .. }) {
            return false;
        }
        let as_if_at_work = Launch {
            key: InstanceKey { purpose: Purpose::Task, ..launch.key.clone() },
            ..launch.clone()
        };
        matches!(self.means(&as_if_at_work), Some(Meaning::Tell { task: None, .. }))
    }

    /// Returns the effect of this change on `launch`, if any. Only task launches are told, because
    /// a chat is not work on a task.
    pub fn means(&self, launch: &Launch) -> Option<Meaning> {
        let stop = |action| Meaning::Tell { task: None, action, demand: NoticeDemand::End };
        if launch.key.purpose != Purpose::Task || !launch.is_open() {
            return None;
        }
        match self {
            Self::Task { before, after } => means_of_task(before, after, launch),
            Self::Unassigned(Assignment { project, agent }) => {
                let is_theirs = launch.key.project == *project && launch.key.agent == *agent;
                is_theirs.then(|| stop(NoticeAction::Unassigned))
            }
            Self::Project { project, .. } if launch.key.project != *project => None,
            Self::Project { status: ProjectStatus::Active, .. } => Some(Meaning::TakeBackPause),
            Self::Project { status: ProjectStatus::Inactive, .. } => {
                Some(stop(NoticeAction::Paused))
            }
            Self::Project { status: ProjectStatus::Archived, .. } => {
                Some(stop(NoticeAction::Closed))
            }
            Self::Agent { agent, .. } if launch.key.agent != *agent => None,
            Self::Agent { status: AgentStatus::Active, .. } => Some(Meaning::TakeBackPause),
            Self::Agent { status: AgentStatus::Inactive, .. } => Some(stop(NoticeAction::Paused)),
            Self::Agent { status: AgentStatus::Archived, .. } => Some(stop(NoticeAction::Closed)),
        }
    }
}

/// Returns the notices of a launch after changes with these meanings: the open ones, some of them
/// settled now, then the new ones. A newer notice replaces an older one about the same subject.
pub fn after_changes(
    open: &[Notice],
    launch: &LaunchId,
    meanings: impl IntoIterator<Item = Meaning>,
    now: Timestamp,
    mut new_id: impl FnMut() -> NoticeId,
) -> Vec<Notice> {
    let mut all = open.to_vec();
    for meaning in meanings {
        for notice in all.iter_mut().filter(|notice| meaning.supersedes(notice)) {
            *notice = notice.clone().settled(now);
        }
        if let Meaning::Tell { task, action, demand } = meaning {
            all.push(Notice {
                id: new_id(),
                launch: launch.clone(),
                task,
                action,
                demand,
                created_at: now,
                read_at: None,
                settled_at: None,
                revision: 0,
            });
        }
    }
    all
}

/// Returns the number of the notices that are not settled.
pub fn n_open(notices: &[Notice]) -> u32 {
    let n_open = notices.iter().filter(|notice| notice.is_open()).count();
    u32::try_from(n_open).unwrap_or(u32::MAX)
}

impl Meaning {
    /// Returns whether this replaces or withdraws an earlier notice.
    fn supersedes(&self, notice: &Notice) -> bool {
        match self {
            Self::Tell { task, action, .. } => {
                notice.task == *task && (task.is_some() || notice.action.kind() == action.kind())
            }
            Self::TakeBackTask(task) => notice.task.as_ref() == Some(task),
            Self::TakeBackPause => {
                notice.action.kind() == NoticeKind::Stop && notice.action.is_a_pause()
            }
        }
    }
}

fn means_of_task(before: &Task, after: &Task, launch: &Launch) -> Option<Meaning> {
    let task = before.id.clone();
    let is_own = launch.task.as_ref() == Some(&task);
    let is_part = before.parent.is_some()
        && launch.task == before.parent
        && before.project == launch.key.project;
    let is_theirs = |task: &Task| task.assignee.as_ref() == Some(&launch.key.agent);
    let demand = match (is_own, is_part && is_theirs(before)) {
        (true, _) => NoticeDemand::End,
        (false, true) => NoticeDemand::Read,
        (false, false) => return None,
    };
    if is_theirs(after) && after.status == TaskStatus::InProgress {
        return (before != after).then_some(Meaning::TakeBackTask(task));
    }
    if before.status != TaskStatus::InProgress {
        return None;
    }
    let action = if is_theirs(after) {
        NoticeAction::of_status(after.status)?
    } else {
        NoticeAction::Reassigned
    };
    Some(Meaning::Tell { task: Some(task), action, demand })
}

#[cfg(test)]
mod tests;
