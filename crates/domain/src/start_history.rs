//! The record of a key between its launches, and the facts that decide whether it may start.

mod reasons;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::account::{Account, AccountState};
use super::agent::{AgentStatus, ProjectStatus};
use super::fnv;
use super::id::{LaunchId, TaskId, WorkspaceId};
use super::key::{InstanceKey, Purpose};
use super::launch::{LaunchState, Verdict};
use super::short_id::ShortId;
use super::task::{Priority, Task};
use super::time::Timestamp;
use super::workspace::{Hook, Workspace, WorkspaceMode, WorkspaceState};

pub use reasons::{ChecklistItem, StartReason, WaitEnd};

/// The facts that outlive the launches of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartHistory {
    pub key: InstanceKey,
    /// The time when a person stopped it. It does not start until `resume`, or until one of its
    /// tasks is set in progress again.
    pub held_since: Option<Timestamp>,
    /// Failures in a row since the last success, or since a person asked to try again.
    pub n_failures: u32,
    pub last_end_at: Option<Timestamp>,
    /// The times of recent failures, the oldest first. At most as many are kept as the start limit
    /// counts.
    pub failed_at: Vec<Timestamp>,
    /// The time when it was suspended, because it failed too often in too short a time. It does not
    /// start until `resume`, or until one of its tasks is set in progress again.
    pub suspended_since: Option<Timestamp>,
    /// True if it is suspended because it cannot work as it is configured. A reload ends that
    /// suspension, too.
    pub is_misconfigured: bool,
    /// The time when a start was first wanted although no task needs it. The wish ends when the
    /// agent authenticates, not when a start fails.
    pub wanted_since: Option<Timestamp>,
    /// The number of the last chat message that its agent has answered; 0 before the first one.
    pub read_up_to: i64,
    pub revision: i64,
}

impl StartHistory {
    pub const fn new(key: InstanceKey) -> Self {
        Self {
            key,
            held_since: None,
            n_failures: 0,
            last_end_at: None,
            failed_at: Vec::new(),
            suspended_since: None,
            is_misconfigured: false,
            wanted_since: None,
            read_up_to: 0,
            revision: 0,
        }
    }

    /// Returns the record after the end of a launch that began at `claimed_at`. A failure adds to
    /// the failures in a row, and a good end resets them. A failure after a stable run begins a new
    /// row. A failure of the account changes nothing.
    pub fn after_end(
        self,
        verdict: Verdict,
        claimed_at: Timestamp,
        at: Timestamp,
        limit: StartLimit,
    ) -> Self {
        let is_misconfigured = match verdict {
            Verdict::Fine => {
                return Self {
                    n_failures: 0,
                    failed_at: Vec::new(),
                    last_end_at: Some(at),
                    ..self
                };
            }
            // The pair waits for its account, and no longer than that.
            Verdict::AccountFailed => return self,
            Verdict::Failure => false,
            Verdict::Misconfigured => true,
        };
        let was_stable = at.since(claimed_at) >= limit.interval;
        let n_failures = if was_stable { 1 } else { self.n_failures.saturating_add(1) };
        let mut failed_at = self.failed_at;
        // Times in the future were written by a wrong clock.
        failed_at
            .retain(|earlier| *earlier <= at && at.since(*earlier) < limit.interval && !was_stable);
        failed_at.push(at);
        let is_too_often = limit.failures > 0 && failed_at.len() >= limit.failures;
        failed_at.drain(..failed_at.len().saturating_sub(limit.failures));
        let suspended_since =
            self.suspended_since.or((is_too_often || is_misconfigured).then_some(at));
        let is_misconfigured = self.is_misconfigured || is_misconfigured;
        Self {
            n_failures,
            failed_at,
            suspended_since,
            is_misconfigured,
            last_end_at: Some(at),
            ..self
        }
    }

    pub fn held(self, at: Timestamp) -> Self {
        Self { held_since: self.held_since.or(Some(at)), ..self }
    }

    /// Returns the record after a start was wanted.
    pub fn wanted(self, at: Timestamp) -> Self {
        Self { wanted_since: self.wanted_since.or(Some(at)), ..self }
    }

    /// Returns the record after the wish for a start ended or was fulfilled.
    pub fn unwanted(self) -> Self {
        Self { wanted_since: None, ..self }
    }

    /// Returns the record after its agent answered all messages up to this one.
    pub fn answered(self, up_to: i64) -> Self {
        Self { read_up_to: self.read_up_to.max(up_to), ..self }
    }

    /// Returns whether the record could lead to a start. Coordinators ignore a chat that is not
    /// wanted.
    pub fn concerns_coordinators(&self) -> bool {
        self.key.purpose != Purpose::Chat || self.wanted_since.is_some()
    }

    /// Returns the record after a person asked to try again.
    pub fn released(self) -> Self {
        let n_failures = 0;
        let failed_at = Vec::new();
        Self {
            held_since: None,
            n_failures,
            failed_at,
            suspended_since: None,
            is_misconfigured: false,
            ..self
        }
    }

    /// Returns the record after a reload: a person may have mended what kept it from working. Other
    /// suspensions and a hold stay.
    pub fn reloaded(self) -> Self {
        if self.is_misconfigured {
            Self { held_since: self.held_since, ..self.released() }
        } else {
            self
        }
    }
}

/// The number of failures within a time that suspends a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartLimit {
    /// The number of failures; 0 for no limit.
    pub failures: usize,
    /// The time within which failures count. A run that lasted this long was stable.
    pub interval: Duration,
}

/// The time that a pair waits after failures. It is `initial`, doubled by each further failure,
/// plus up to a quarter. The addition is always the same for one pair, so that pairs that failed
/// together do not start together. The whole wait is at most `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub initial: Duration,
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_secs(1), max: Duration::from_mins(5) }
    }
}

impl Backoff {
    pub fn delay(self, n_failures: u32) -> Duration {
        match n_failures.checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => self
                .initial
                .saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX))
                .min(self.max),
        }
    }

    /// Returns the time when `pair` may start again; `None` if it may start at once. If its last
    /// end lies in the future, it may start at once, too. The clock was wrong then or is wrong now,
    /// and a pair must not wait for a year because of it.
    pub fn until(self, pair: &StartHistory, now: Timestamp) -> Option<Timestamp> {
        let ended = pair.last_end_at.filter(|ended| pair.n_failures > 0 && *ended <= now)?;
        let wait = jittered(self.delay(pair.n_failures), &pair.key).min(self.max);
        Some(ended + wait).filter(|until| now < *until)
    }
}

/// Returns the delay plus up to a quarter, by a hash of the key. Random numbers would need a
/// source, and plans are made from facts alone.
fn jittered(delay: Duration, key: &InstanceKey) -> Duration {
    let permille = u32::try_from((fnv::hash(&key.to_string()) >> 32) % 250).unwrap_or_default();
    delay + delay * permille / 1000
}

/// The facts of the open launch of a key that its start depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenLaunch {
    pub id: LaunchId,
    pub state: LaunchState,
}

/// The clone that the next launch of a key uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededClone {
    /// The task that the launch will be given.
    pub task: TaskId,
    /// The workspace with its files; `None` if it is not wanted yet.
    pub workspace: Option<Workspace>,
    /// The reason, for people, why there is no disk space for one that is to be made.
    pub no_room: Option<String>,
    /// A task with several results. The clone is made after a person has chosen one of them.
    pub to_choose: Option<ShortId>,
}

impl NeededClone {
    fn is_ready(&self) -> bool {
        let workspace = self.workspace.as_ref();
        workspace.is_some_and(|workspace| workspace.state == WorkspaceState::Ready)
    }

    /// Returns why there is no disk space for it. A clone that was made already needs none.
    fn no_room(&self) -> Option<&String> {
        self.no_room.as_ref().filter(|_| self.is_wanted())
    }

    /// Returns the task whose result a person is to choose before it can be made.
    pub fn to_choose(&self) -> Option<&ShortId> {
        self.to_choose.as_ref().filter(|_| self.is_wanted())
    }

    fn is_wanted(&self) -> bool {
        let workspace = self.workspace.as_ref();
        workspace.is_some_and(|it| it.state == WorkspaceState::Wanted)
    }
}

/// The task that the next launch of a key is given, as far as it decides when the key starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskToStart {
    pub id: TaskId,
    pub priority: Priority,
    /// The time since which it is in progress.
    pub since: Timestamp,
    /// No launch has worked on it. `false` if this was not looked up.
    pub is_untried: bool,
}

impl TaskToStart {
    pub fn of(task: &Task) -> Self {
        Self {
            id: task.id.clone(),
            priority: task.priority,
            since: task.status_since,
            is_untried: false,
        }
    }
}

/// All facts that decide whether a key may start. They are read together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartFacts {
    pub key: InstanceKey,
    /// The agent; `None` if it does not exist.
    pub agent: Option<(AgentStatus, String)>,
    /// The project; `None` if it does not exist.
    pub project: Option<(ProjectStatus, PathBuf)>,
    /// The place where the agents of the project's tasks work.
    pub workspace_mode: WorkspaceMode,
    /// The clone that the next launch uses. `None` if it uses the project's directory, and before
    /// the tasks were looked at.
    pub clone: Option<NeededClone>,
    pub is_assigned: bool,
    /// The time when the work began. For a task pair it is that of the oldest task in progress, for
    /// a chat pair that of the wish for a chat. `None` if there is no work.
    pub waiting_since: Option<Timestamp>,
    /// The task that the next launch is given. `None` for a chat, if there is no work, and before
    /// the tasks were looked at.
    pub task: Option<TaskToStart>,
    pub open: Option<OpenLaunch>,
    pub record: StartHistory,
    /// The account of the agent's provider.
    pub account: Account,
    pub is_paused: bool,
}

/// A key with work and without an open launch, as its server judges it. It has all that a
/// coordinator needs to start it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    #[serde(flatten)]
    pub key: InstanceKey,
    pub ai_type: String,
    pub working_directory: PathBuf,
    /// The time since which this start waits: since its task is in progress, or since the end of
    /// the last launch of the key.
    pub waiting_since: Timestamp,
    /// The priority of its task. A start that has waited for `start.aging` is urgent. Starts of
    /// chats, and those of servers that do not say it, are medium.
    #[serde(default = "medium", skip_serializing_if = "is_medium")]
    pub priority: Priority,
    /// [`StartReason::Ready`], or the reason that keeps it from starting.
    pub reason: StartReason,
    /// The time when the reason is over, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// True if its start is to show whether the account of its provider works again. One such start
    /// is enough.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_probe: bool,
    /// True if it works in a clone, which only the coordinator in the server's process prepares.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_clone: bool,
    /// The workspace with the files, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceId>,
    /// More about the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

const fn medium() -> Priority {
    Priority::Medium
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_medium(priority: &Priority) -> bool {
    matches!(priority, Priority::Medium)
}

impl StartFacts {
    /// Returns the candidate that the facts describe. `None` if there is no work, or if the agent
    /// or the project does not exist. A start that has waited for `aging` is urgent.
    pub fn candidate(self, backoff: Backoff, aging: Duration, now: Timestamp) -> Option<Candidate> {
        let keeping = self.rulings(backoff, now).into_iter().find(|ruling| ruling.keeps);
        let Ruling { reason, until, detail, .. } =
            keeping.unwrap_or_else(|| Ruling::free(StartReason::Ready));
        let is_probe = self.key.purpose != Purpose::Check
            && self.account.state_at(now) == AccountState::MayBeTried;
        let ((_, ai_type), (_, working_directory)) = (self.agent?, self.project?);
        let work_since = self.waiting_since?;
        let task_since = self.task.as_ref().map_or(work_since, |task| task.since);
        // While another launch of the key ran, this start did not wait. An end in the future was
        // written by a wrong clock.
        let last_end = self.record.last_end_at.filter(|end| *end <= now);
        let waiting_since = last_end.map_or(task_since, |end| end.max(task_since));
        let priority = if now.since(waiting_since) >= aging {
            Priority::Urgent
        } else {
            self.task.map_or_else(medium, |task| task.priority)
        };
        let needs_clone = self.clone.is_some();
        let workspace = self.clone.and_then(|clone| clone.workspace);
        Some(Candidate {
            needs_clone,
            detail,
            workspace: workspace.map(|workspace| workspace.id),
            key: self.key,
            ai_type,
            working_directory,
            waiting_since,
            priority,
            reason,
            until,
            is_probe,
        })
    }

    /// Returns, for people, what keeps the clone from being ready.
    fn about_clone(&self) -> Option<String> {
        let clone = self.clone.as_ref()?;
        let of_workspace = || clone.workspace.as_ref()?.reason.as_ref();
        clone.no_room().or_else(of_workspace).map(|reason| Hook::told(reason).to_owned())
    }

    /// Returns the first reason that keeps this key from starting, or [`StartReason::Ready`].
    pub fn reason(&self, backoff: Backoff, now: Timestamp) -> StartReason {
        let keeping = self.rulings(backoff, now).into_iter().find(|ruling| ruling.keeps);
        keeping.map_or(StartReason::Ready, |ruling| ruling.reason)
    }

    /// Returns the ruling of every rule on this key, in the order of the rules.
    pub fn rulings(&self, backoff: Backoff, now: Timestamp) -> [Ruling; 16] {
        let ruling = |reason, keeps| Ruling { keeps, ..Ruling::free(reason) };
        let is_active =
            self.agent.as_ref().is_none_or(|(status, _)| *status == AgentStatus::Active)
                && self.project.as_ref().is_none_or(|(status, _)| *status == ProjectStatus::Active);
        let open = match self.open.as_ref().map(|open| &open.state) {
            Some(LaunchState::Starting { .. }) => ruling(StartReason::Starting, true),
            Some(LaunchState::Running { .. }) => ruling(StartReason::Running, true),
            Some(LaunchState::Stopping { .. } | LaunchState::Ending) => {
                ruling(StartReason::Stopping, true)
            }
            Some(LaunchState::Ended { .. }) | None => ruling(StartReason::Running, false),
        };
        let until = backoff.until(&self.record, now);
        let is_suspended = self.record.suspended_since.is_some();
        let workspace = self.clone.as_ref().and_then(|clone| clone.workspace.as_ref());
        let is_broken =
            workspace.is_some_and(|workspace| workspace.state == WorkspaceState::Broken);
        let is_unready = self.clone.as_ref().is_some_and(|clone| !clone.is_ready());
        let waits_for_hook = workspace.is_some_and(Workspace::waits_for_hook);
        let has_no_room = self.clone.as_ref().is_some_and(|clone| clone.no_room().is_some());
        let waits_for_choice = self.clone.as_ref().is_some_and(|clone| clone.to_choose().is_some());
        let parked_until = match self.account.state_at(now) {
            // A check does not use the account.
            _ if self.key.purpose == Purpose::Check => None,
            AccountState::Parked(until) | AccountState::BeingTried(until) => Some(until),
            AccountState::Works | AccountState::MayBeTried => None,
        };
        let mut rulings = [
            ruling(StartReason::Unknown, self.agent.is_none() || self.project.is_none()),
            ruling(StartReason::NotAssigned, !self.is_assigned),
            ruling(StartReason::Inactive, !is_active),
            open,
            ruling(StartReason::NoWork, self.waiting_since.is_none()),
            ruling(StartReason::Held, self.record.held_since.is_some()),
            ruling(StartReason::Suspended, is_suspended && !self.record.is_misconfigured),
            ruling(StartReason::Misconfigured, is_suspended && self.record.is_misconfigured),
            ruling(StartReason::Paused, self.is_paused),
            Ruling { until: parked_until, ..ruling(StartReason::Parked, parked_until.is_some()) },
            Ruling { until, ..ruling(StartReason::Backoff, until.is_some()) },
            ruling(StartReason::WorkspaceBroken, is_broken),
            ruling(StartReason::WorkspaceDisk, has_no_room),
            ruling(StartReason::HookFailed, waits_for_hook),
            ruling(StartReason::ResultToChoose, waits_for_choice),
            ruling(StartReason::PreparingWorkspace, is_unready),
        ];
        let is_about_clone = |it: &&mut Ruling| it.keeps && it.reason.row().is_about_clone;
        if let Some(ruling) = rulings.iter_mut().find(is_about_clone) {
            ruling.detail = self.about_clone();
        }
        rulings
    }
}

/// The decision of one rule about a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
// Its name in the OpenAPI document, after which clients name their types.
#[schemars(rename = "RuleBody")]
pub struct Ruling {
    /// The rule, by the reason that it gives.
    #[serde(rename = "rule")]
    pub reason: StartReason,
    /// Whether it keeps the key from starting.
    pub keeps: bool,
    /// The time when that is over, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The figures or the file behind it, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Ruling {
    /// Returns the ruling of a rule that keeps no key from starting.
    pub const fn free(reason: StartReason) -> Self {
        Self { reason, keeps: false, until: None, detail: None }
    }

    /// Returns the ruling of a rule that keeps a key from starting.
    pub const fn keeping(reason: StartReason) -> Self {
        Self { reason, keeps: true, until: None, detail: None }
    }
}

#[cfg(test)]
mod tests;
