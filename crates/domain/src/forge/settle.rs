//! Decides how the end or progress of a task changes its item. The functions are pure and return
//! the same result however often they are called.
//!
//! A stop follows the order of the pending actions. First the process tree of the agent ends, then
//! the context is saved. Labels, the comment and the move of the folder follow.

use super::item::{FolderPlace, ForgeItem, ItemEnd, ItemState, PendingWrite, WorkState};
use super::labels::LabelState;
use super::publication::Publish;
use super::texts::Texts;
use super::{Eligibility, StopCause};
use crate::launch::ReportResult;
use crate::session::Execution;
use crate::task::{Task, TaskStatus};
use crate::time::Timestamp;

/// The facts about the work on an item.
#[derive(Debug, Clone, Copy)]
pub struct Work<'a> {
    /// The task; `None` if it was deleted.
    pub task: Option<&'a Task>,
    /// True if an agent that works on it, or may, has not ended yet.
    pub is_alive: bool,
    /// The newest execution of the task.
    pub last: Option<&'a Execution>,
    /// True if a person set the task to done.
    pub is_by_hand: bool,
}

/// The reason of a task that is blocked because of the pause file. People cannot give this reason,
/// because they write their own.
pub const PAUSE_REASON: &str = "paused: the pause file of the coordinator is there";

/// Returns the item in its new state; `None` if nothing changes.
pub fn settle(item: &ForgeItem, work: Work<'_>, texts: Texts, now: Timestamp) -> Option<ForgeItem> {
    let status = work.task.map(|task| task.status);
    let item = item.clone();
    match item.state {
        ItemState::Claiming { .. } | ItemState::Ended(_) => None,
        ItemState::Active(_) | ItemState::Pausing | ItemState::Paused { .. }
            if status == Some(TaskStatus::Done) =>
        {
            // The agent that reported it may still print its last output.
            (!work.is_alive).then(|| ended(item, ItemEnd::Done, work, texts, now))
        }
        ItemState::Active(_) | ItemState::Pausing | ItemState::Paused { .. }
            if status.is_none_or(|status| status == TaskStatus::Cancelled) =>
        {
            let stopping = ForgeItem { state: ItemState::Stopping(StopCause::Cancelled), ..item };
            Some(settle(&stopping, work, texts, now).unwrap_or(stopping))
        }
        ItemState::Active(before) => {
            let work_state = work_state(work)?;
            if work_state == before {
                return None;
            }
            let item = ForgeItem { state: ItemState::Active(work_state), ..item };
            let item = item.with_pending(PendingWrite::Label { state: work_state.into() });
            let reason = work.task.and_then(|task| task.blocked_reason.as_deref());
            Some(match work_state {
                WorkState::Processing => item,
                WorkState::Blocked | WorkState::Failed => {
                    item.saying(texts.put_aside(work_state, reason, work.last, now))
                }
            })
        }
        ItemState::Stopping(cause) => {
            (!work.is_alive).then(|| ended(item, ItemEnd::Stopped(cause), work, texts, now))
        }
        ItemState::Pausing if !work.is_alive => {
            let item = ForgeItem { state: ItemState::Paused { since: now }, ..item };
            let item = item.with_pending(PendingWrite::Folder { place: FolderPlace::Running });
            let item = item
                .with_pending(PendingWrite::Label { state: LabelState::Paused })
                .saying(texts.paused(work.last, now));
            Some(item.with_pending(PendingWrite::Folder { place: FolderPlace::Paused }))
        }
        ItemState::Pausing | ItemState::Paused { .. } => None,
    }
}

/// Returns the item after the forge, or the end of its pause, ended the work. `None` if that is
/// known already.
pub fn stopping(item: &ForgeItem, cause: StopCause, now: Timestamp) -> Option<ForgeItem> {
    match item.state {
        ItemState::Active(_) | ItemState::Pausing | ItemState::Paused { .. } => {
            Some(ForgeItem { state: ItemState::Stopping(cause), ..item.clone() })
        }
        ItemState::Claiming { after_comment } => {
            let mut item =
                ForgeItem { state: ItemState::Ended(ItemEnd::Stopped(cause)), ..item.clone() };
            // No work was done yet. If the claim was announced, it is withdrawn.
            item.pending = Vec::new();
            Some(if cause.leaves_an_item() && after_comment.is_some() {
                item.with_pending(PendingWrite::Withdraw)
                    .with_pending(PendingWrite::Label { state: LabelState::Stopped })
            } else {
                ForgeItem { ended_at: Some(now), retry_at: None, ..item }
            })
        }
        ItemState::Stopping(_) | ItemState::Ended(_) => None,
    }
}

/// Returns the item when the pause file appears; `None` if there is nothing to pause. Work that was
/// put aside is at rest already.
pub fn pausing(item: &ForgeItem) -> Option<ForgeItem> {
    matches!(item.state, ItemState::Active(WorkState::Processing))
        .then(|| ForgeItem { state: ItemState::Pausing, ..item.clone() })
}

/// Returns the item after the pause file is gone and the forge was asked again; `None` while it is
/// not paused.
pub fn resumed(
    item: &ForgeItem,
    judged: Eligibility,
    texts: Texts,
    now: Timestamp,
) -> Option<ForgeItem> {
    let ItemState::Paused { .. } = item.state else {
        return None;
    };
    match judged {
        Eligibility::Not(cause) => stopping(item, cause, now),
        Eligibility::Eligible => {
            let item = ForgeItem {
                state: ItemState::Active(WorkState::Processing),
                n_resumed: item.n_resumed.saturating_add(1),
                ..item.clone()
            };
            let item = item.with_pending(PendingWrite::Folder { place: FolderPlace::Running });
            Some(
                item.with_pending(PendingWrite::Label { state: LabelState::Processing })
                    .saying(texts.resumed(now)),
            )
        }
    }
}

/// Returns the item when it is ours and its task is made. The forge has answered to the claim.
pub fn won(item: &ForgeItem) -> ForgeItem {
    let state = ItemState::Active(WorkState::Processing);
    let mut item = ForgeItem { state, begun_at: None, ..item.clone() };
    item.pending.retain(|write| *write != PendingWrite::Claim);
    item.with_pending(PendingWrite::Folder { place: FolderPlace::Running })
        .with_pending(PendingWrite::Label { state: LabelState::Processing })
}

/// Returns the item if another coordinator was first.
pub fn lost(item: &ForgeItem) -> ForgeItem {
    ForgeItem {
        state: ItemState::Ended(ItemEnd::Elsewhere),
        pending: vec![PendingWrite::Withdraw],
        begun_at: None,
        ..item.clone()
    }
}

/// Returns the item after it was paused for too long.
pub fn expired(item: &ForgeItem, work: Work<'_>, texts: Texts, now: Timestamp) -> ForgeItem {
    ended(item.clone(), ItemEnd::Expired, work, texts, now)
}

/// Returns the result of the task so far; `None` while that is not final.
fn work_state(work: Work<'_>) -> Option<WorkState> {
    match work.task?.status {
        TaskStatus::Blocked if work.is_alive => None,
        TaskStatus::Blocked => {
            let has_failed =
                work.last.is_some_and(|work| work.result == Some(ReportResult::Failed));
            Some(if has_failed { WorkState::Failed } else { WorkState::Blocked })
        }
        // A person put the task back, and it waits for one.
        TaskStatus::Todo | TaskStatus::Backlog => (!work.is_alive).then_some(WorkState::Blocked),
        TaskStatus::InProgress => Some(WorkState::Processing),
        TaskStatus::Done | TaskStatus::Cancelled => None,
    }
}

fn ended(
    mut item: ForgeItem,
    end: ItemEnd,
    work: Work<'_>,
    texts: Texts,
    now: Timestamp,
) -> ForgeItem {
    // Pending updates about the progress are obsolete. Only the comments are still posted.
    item.pending.retain(|write| matches!(write, PendingWrite::Comment { .. }));
    let item = ForgeItem {
        state: ItemState::Ended(end),
        n_attempts: 0,
        n_refusals: 0,
        retry_at: None,
        ..item
    };
    let item = item.with_pending(PendingWrite::Folder { place: FolderPlace::Running });
    let told = match end {
        ItemEnd::Done if work.is_by_hand => Some((LabelState::Done, texts.done_by_hand(now))),
        ItemEnd::Done => Some((LabelState::Done, texts.finished(work.last, now))),
        ItemEnd::Expired => Some((LabelState::Stopped, texts.expired(work.last, now))),
        ItemEnd::Stopped(cause) if cause.leaves_an_item() => {
            Some((LabelState::Stopped, texts.stopped(cause, work.last, now)))
        }
        ItemEnd::Stopped(_) | ItemEnd::Elsewhere => None,
    };
    let mut item = item;
    if let Some(publication) = item.publication.as_mut().filter(|_| work.is_by_hand) {
        publication.publish = Publish::Nothing;
    }
    if end == ItemEnd::Done {
        item = publishing(item);
    }
    if let Some((state, text)) = told {
        item = item.with_pending(PendingWrite::Label { state }).saying(text);
    } else {
        item.pending.retain(|write| matches!(write, PendingWrite::Folder { .. }));
    }
    item.with_pending(PendingWrite::Folder { place: FolderPlace::Completed })
}

/// Returns the item with the steps that publish its result. They come before the label and the
/// comment, which tell the end of these steps.
fn publishing(item: ForgeItem) -> ForgeItem {
    let publish = item.publication.as_ref().map_or(Publish::Nothing, |to| to.publish);
    match publish {
        Publish::Nothing => item,
        Publish::Push => item.with_pending(PendingWrite::Push),
        Publish::PullRequest => {
            item.with_pending(PendingWrite::Push).with_pending(PendingWrite::PullRequest)
        }
    }
}

#[cfg(test)]
mod tests;
