//! An item of a forge that this daemon works on, from the claim until no write for it is pending.
//!
//! ```text
//!            first at the forge            task done, tree empty
//!  Claiming ───────────────────► Active ─────────────────────────► Ended(done)
//!     │ another was first          │ ▲  │ unassigned, closed, …               ▲ tree empty
//!     └────► Ended(elsewhere)      │ │  └────────────────────────► Stopping ──┴─► Ended(stopped)
//!                       pause file │ │ pause file gone, still eligible  ▲
//!                                  ▼ └──────────────────── Paused ──────┴ not eligible, expired
//!                               Pausing ── tree empty ───────►
//! ```

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::labels::LabelState;
use super::publication::Publication;
use super::{ItemKey, StopCause};
use crate::id::{AgentId, ItemId, ProjectId, TaskId};
use crate::key::{InstanceKey, Purpose};
use crate::time::Timestamp;

/// Our work on an item. If the bot is taken off an item and assigned again, that is another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeItem {
    pub id: ItemId,
    pub key: ItemKey,
    pub agent: AgentId,
    pub project: ProjectId,
    /// The task that is made from the item when it is ours.
    pub task: TaskId,
    pub title: String,
    /// The address of the item for people.
    pub url: String,
    pub state: ItemState,
    /// The outbox: the pending work outside of the store, in its order.
    pub pending: Vec<PendingWrite>,
    /// The number of failures of the first entry of `pending`. A refusal sets it to `n_refusals`,
    /// because the forge answers again. After a failure the two are equal only if it was a refusal.
    pub n_attempts: u32,
    /// The number of times that the forge refused the first entry of `pending`.
    pub n_refusals: u32,
    /// The time before which the first entry of `pending` is not tried again.
    pub retry_at: Option<Timestamp>,
    /// The time at which a request of this item was about to be sent, or at which its answer was
    /// lost. `None` if the outcome of each request is known.
    pub begun_at: Option<Timestamp>,
    pub last_error: Option<String>,
    /// The number of the last comment that was requested. Each comment has its own number.
    pub n_comments: u32,
    /// True if the forge said once that the item does not exist.
    pub is_missing: bool,
    /// The number of times that the work was resumed after a pause.
    pub n_resumed: u32,
    /// The way of its result to the repository; `None` if its task works in the project's
    /// directory, or in a clone of that.
    pub publication: Option<Publication>,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub revision: i64,
}

/// The progress of the work on an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", content = "detail", rename_all = "snake_case")]
pub enum ItemState {
    /// The item is ours, if no other coordinator was first.
    Claiming {
        /// Claims up to this comment belong to former work. `None` until the comments were read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after_comment: Option<u64>,
    },
    /// The item has a task.
    Active(WorkState),
    /// Its task is cancelled, and its agent is being ended.
    Stopping(StopCause),
    /// Its task is blocked because of the pause file, and its agent is being told.
    Pausing,
    Paused {
        since: Timestamp,
    },
    Ended(ItemEnd),
}

/// The result of the task so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkState {
    /// An agent works on it, or will.
    Processing,
    /// Its agent, or a person here, put it aside.
    Blocked,
    /// Its agent reported failure.
    Failed,
}

/// The end of the work on an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemEnd {
    Done,
    Stopped(StopCause),
    /// It was paused for longer than `pause_resume.paused_task_expiry_days`.
    Expired,
    /// Another coordinator was first.
    Elsewhere,
}

/// The place of the folder of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FolderPlace {
    Running,
    Paused,
    Completed,
}

/// One pending action outside of the store. Doing it twice has the same effect as doing it once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum PendingWrite {
    /// Claim the item at the forge, and find out whether we are first.
    Claim,
    /// Withdraw the claim.
    Withdraw,
    /// Give the item the label of `state` and remove our other labels.
    Label {
        state: LabelState,
    },
    Comment {
        number: u32,
        text: String,
    },
    /// Push the result to the repository.
    Push,
    /// Open a draft pull or merge request for the pushed branch.
    PullRequest,
    /// Write what is known of the item into its folder at `place`.
    Folder {
        place: FolderPlace,
    },
}

/// The kind of failure of a pending action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setback {
    /// The forge refused it, and waiting may not help.
    Refused,
    /// The forge gave no answer to a question before it, so it was not sent.
    Unanswered,
    /// It was sent and has no answer. The forge may still carry it out.
    Lost,
}

/// The time after which a request without an answer has been carried out, or will not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settling {
    /// The time since which this worker sends requests. An earlier worker may have sent requests
    /// until then.
    pub since: Timestamp,
    /// The longest time that the forge needs (`forge.write_settle`).
    pub duration: Duration,
}

impl FolderPlace {
    /// Returns the name of the folder in `contexts`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Completed => "completed",
        }
    }
}

/// Writes a description of the action without its text.
impl fmt::Display for PendingWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim => f.write_str("claim"),
            Self::Withdraw => f.write_str("withdraw"),
            Self::Label { state } => write!(f, "label {}", state.as_str()),
            Self::Comment { number, .. } => write!(f, "comment {number}"),
            Self::Push => f.write_str("push"),
            Self::PullRequest => f.write_str("pull request"),
            Self::Folder { place } => write!(f, "folder {}", place.as_str()),
        }
    }
}

impl WorkState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Processing => "processing",
            Self::Blocked => "blocked",
            Self::Failed => "failed",
        }
    }
}

impl ItemState {
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Claiming { .. } => "claiming",
            Self::Active(work_state) => work_state.as_str(),
            Self::Stopping(_) => "stopping",
            Self::Pausing => "pausing",
            Self::Paused { .. } => "paused",
            Self::Ended(ItemEnd::Done) => "done",
            Self::Ended(ItemEnd::Stopped(_)) => "stopped",
            Self::Ended(ItemEnd::Expired) => "expired",
            Self::Ended(ItemEnd::Elsewhere) => "elsewhere",
        }
    }

    /// Returns why the work was stopped, if it was.
    pub const fn cause(&self) -> Option<StopCause> {
        match self {
            Self::Stopping(cause) | Self::Ended(ItemEnd::Stopped(cause)) => Some(*cause),
            _ => None,
        }
    }

    /// Returns the label for this state; `None` if the state has no label.
    pub const fn label(&self) -> Option<LabelState> {
        match self {
            Self::Claiming { .. } | Self::Active(WorkState::Processing) | Self::Pausing => {
                Some(LabelState::Processing)
            }
            Self::Active(WorkState::Blocked) => Some(LabelState::Blocked),
            Self::Active(WorkState::Failed) => Some(LabelState::Failed),
            Self::Paused { .. } => Some(LabelState::Paused),
            Self::Stopping(cause) if cause.leaves_an_item() => Some(LabelState::Processing),
            Self::Ended(ItemEnd::Done) => Some(LabelState::Done),
            Self::Ended(ItemEnd::Stopped(cause)) if cause.leaves_an_item() => {
                Some(LabelState::Stopped)
            }
            Self::Ended(ItemEnd::Expired) => Some(LabelState::Stopped),
            Self::Stopping(_) | Self::Ended(ItemEnd::Stopped(_) | ItemEnd::Elsewhere) => None,
        }
    }
}

/// A time longer than each pause after a failure ([`ForgeItem::delay`]).
const LONGEST_DELAY: Duration = Duration::from_mins(6);

impl ForgeItem {
    /// Returns an item that is to be claimed. Nothing about it is certain yet.
    pub fn new(
        id: ItemId,
        task: TaskId,
        key: ItemKey,
        agent: AgentId,
        project: ProjectId,
        now: Timestamp,
    ) -> Self {
        Self {
            id,
            key,
            agent,
            project,
            task,
            title: String::new(),
            url: String::new(),
            state: ItemState::Claiming { after_comment: None },
            pending: vec![PendingWrite::Claim],
            n_attempts: 0,
            n_refusals: 0,
            retry_at: None,
            begun_at: None,
            last_error: None,
            n_comments: 0,
            is_missing: false,
            n_resumed: 0,
            publication: None,
            created_at: now,
            ended_at: None,
            revision: 0,
        }
    }

    /// Returns the key of the launches that work on the item.
    pub fn launch_key(&self) -> InstanceKey {
        InstanceKey::new(self.agent.clone(), self.project.clone(), Purpose::Task)
    }

    /// Returns whether the work on the item is not over. While it is open, no other work may take
    /// the item.
    pub const fn is_open(&self) -> bool {
        self.ended_at.is_none()
    }

    /// Returns the time before which no pending action is tried. After a failure, the item waits
    /// for some time. If the outcome of a request is not known, it waits until the forge cannot
    /// carry out the request any more. Then the present state of the forge tells the outcome.
    pub fn held_until(&self, settling: Settling) -> Option<Timestamp> {
        let settled_at = self.begun_at.map(|at| at.max(settling.since) + settling.duration);
        self.retry_at.max(settled_at)
    }

    /// Returns the item with times that a clock that was set back allows; `None` if nothing
    /// changes. Otherwise the item would wait until the clock reaches the old times again.
    pub fn after_clock_change(&self, now: Timestamp) -> Option<Self> {
        let begun_at = self.begun_at.map(|at| at.min(now));
        let retry_at = self.retry_at.map(|at| at.min(now + LONGEST_DELAY));
        let is_changed = begun_at != self.begun_at || retry_at != self.retry_at;
        is_changed.then(|| Self { retry_at, begun_at, ..self.clone() })
    }

    /// Returns the next pending action, if its time has come.
    pub fn due(&self, now: Timestamp, settling: Settling) -> Option<&PendingWrite> {
        let held_until = self.held_until(settling);
        self.pending.first().filter(|_| held_until.is_none_or(|at| at <= now))
    }

    /// Returns the item with one more pending action. A label replaces a pending label if no other
    /// action, such as a comment, is pending after it.
    pub fn with_pending(mut self, write: PendingWrite) -> Self {
        if let (PendingWrite::Label { .. }, Some(PendingWrite::Label { .. })) =
            (&write, self.pending.last())
        {
            self.pending.pop();
        }
        self.pending.push(write);
        self
    }

    /// Returns the item with one more comment to post.
    pub fn saying(self, text: String) -> Self {
        let number = self.n_comments + 1;
        Self { n_comments: number, ..self }.with_pending(PendingWrite::Comment { number, text })
    }

    /// Returns the item after the first of `pending` was done, or was given up with the reason.
    pub fn done(mut self, given_up: Option<String>, now: Timestamp) -> Self {
        if !self.pending.is_empty() {
            let write = self.pending.remove(0);
            if matches!(write, PendingWrite::Push | PendingWrite::PullRequest)
                && let Some(reason) = &given_up
            {
                self = self.unpublished(reason);
            }
        }
        let is_over = self.pending.is_empty() && matches!(self.state, ItemState::Ended(_));
        let ended_at = self.ended_at.or(is_over.then_some(now));
        // An error of the action that is done now is over. An error of an action that was given up
        // before stays.
        let before = self.last_error.take().filter(|_| self.n_attempts == 0);
        Self {
            n_attempts: 0,
            n_refusals: 0,
            retry_at: None,
            begun_at: None,
            last_error: given_up.or(before),
            ended_at,
            ..self
        }
    }

    /// Returns the item when its result cannot be published. People see it as blocked, with the
    /// reason in the last comment.
    fn unpublished(mut self, reason: &str) -> Self {
        self.pending.retain(|write| *write != PendingWrite::PullRequest);
        for write in &mut self.pending {
            if let PendingWrite::Label { state } = write {
                *state = LabelState::Blocked;
            }
        }
        if let Some(publication) = &mut self.publication {
            publication.problem = Some(reason.to_owned());
        }
        self
    }

    /// Returns the pause after one more failure. It grows from a second to a minute, or to five
    /// minutes after a refusal. Items wait for different times, so that they do not all return at
    /// once.
    pub fn delay(&self, setback: Setback) -> Duration {
        let seconds = 1_u64 << self.n_attempts.min(9);
        let jitter = self
            .id
            .as_str()
            .bytes()
            .fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
            % 20;
        let most = match setback {
            Setback::Refused => 300,
            // With the jitter, this is just below a minute.
            Setback::Unanswered | Setback::Lost => 50,
        };
        Duration::from_millis(seconds.min(most) * (1_000 + jitter * 10))
    }

    /// Returns whether the last failure of the first of `pending` was a refusal of the forge.
    pub const fn is_refused(&self) -> bool {
        self.n_refusals > 0 && self.n_attempts == self.n_refusals
    }

    /// Returns the item after the first of `pending` failed. It is tried again after a pause.
    pub fn failed(self, setback: Setback, error: String, now: Timestamp) -> Self {
        let retry_at = now + self.delay(setback);
        let is_refused = setback == Setback::Refused;
        let n_refusals = self.n_refusals.saturating_add(u32::from(is_refused));
        let n_attempts = if is_refused { n_refusals } else { self.n_attempts.saturating_add(1) };
        Self {
            begun_at: (setback == Setback::Lost).then_some(now),
            n_attempts,
            n_refusals,
            retry_at: Some(retry_at),
            last_error: Some(error),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const BEGIN: Timestamp = Timestamp::from_millis(0);

    fn at(second: u32) -> Timestamp {
        BEGIN + second * SECOND
    }

    fn item() -> ForgeItem {
        let task = "tsk".parse().expect("an id");
        let agent = "agt".parse().expect("an id");
        let project = "prj".parse().expect("an id");
        let id = "itm".parse().expect("an id");
        ForgeItem::new(id, task, ItemKey::example(), agent, project, BEGIN)
    }

    #[test]
    fn an_item_waits_after_a_failure_and_while_the_outcome_of_a_request_is_not_known() {
        for (retry_at, begun_at, since, expected) in [
            (None, None, 0, None),
            (None, None, 99, None),
            (Some(5), None, 99, Some(5)),
            (None, Some(100), 0, Some(160)),
            (Some(101), Some(100), 0, Some(160)),
            (Some(200), Some(100), 0, Some(200)),
            // An earlier worker recorded a request that waited for its turn, and sent it later.
            (None, Some(100), 300, Some(360)),
        ] {
            let item =
                ForgeItem { retry_at: retry_at.map(at), begun_at: begun_at.map(at), ..item() };
            let settling = Settling { since: at(since), duration: 60 * SECOND };
            assert_eq!(item.held_until(settling), expected.map(at), "{retry_at:?} {begun_at:?}");
            let due_at = expected.unwrap_or(0);
            assert_eq!(item.due(at(due_at), settling), Some(&PendingWrite::Claim));
            let is_late = due_at == 0 || item.due(at(due_at - 1), settling).is_none();
            assert!(is_late, "{retry_at:?} {begun_at:?}");
        }
    }

    #[test]
    fn an_item_does_not_wait_until_a_clock_that_was_set_back_is_as_late_again() {
        let settling = Settling { since: at(0), duration: 60 * SECOND };
        let recorded = |retry_at: Option<u32>, begun_at: Option<u32>| ForgeItem {
            retry_at: retry_at.map(at),
            begun_at: begun_at.map(at),
            ..item()
        };
        for (retry_at, begun_at, due_at) in [
            (None, Some(5_000), 1_060),
            (Some(5_000), None, 1_360),
            (Some(5_000), Some(5_000), 1_360),
        ] {
            let item = recorded(retry_at, begun_at);
            let changed = item.after_clock_change(at(1_000)).expect("the clock was set back");
            assert_eq!(changed.held_until(settling), Some(at(due_at)), "{retry_at:?} {begun_at:?}");
            assert_eq!(changed.after_clock_change(at(1_001)), None, "the time goes on");
        }
        let longest = ForgeItem { n_attempts: 20, ..item() };
        let failed = longest.failed(Setback::Refused, "no".to_owned(), at(1_000));
        for usual in [recorded(None, None), recorded(Some(990), Some(1_000)), failed] {
            assert_eq!(usual.after_clock_change(at(1_000)), None, "{usual:?}");
        }
    }

    #[test]
    fn an_item_is_refused_only_if_its_last_failure_was_a_refusal() {
        let failures = [
            (Setback::Unanswered, false),
            (Setback::Refused, true),
            (Setback::Lost, false),
            (Setback::Unanswered, false),
            (Setback::Refused, true),
            (Setback::Refused, true),
        ];
        let mut item = item();
        for (setback, expected) in failures {
            item = item.failed(setback, "no".to_owned(), at(9));
            assert_eq!(item.is_refused(), expected, "{setback:?} {item:?}");
        }
        assert_eq!(item.n_refusals, 3, "all refusals count before a write is given up");
        assert!(!item.done(None, at(9)).is_refused());
    }

    #[test]
    fn only_a_lost_answer_leaves_the_outcome_of_a_request_unknown() {
        let begun = ForgeItem { begun_at: Some(at(1)), ..item() };
        for (setback, expected) in
            [(Setback::Refused, None), (Setback::Unanswered, None), (Setback::Lost, Some(at(9)))]
        {
            let failed = begun.clone().failed(setback, "no".to_owned(), at(9));
            assert_eq!(failed.begun_at, expected, "{setback:?}");
            assert!(failed.retry_at > Some(at(9)), "{setback:?}");
        }
        assert_eq!(begun.done(None, at(9)).begun_at, None);
    }
}
