//! Decides how the end or progress of a task changes its item. The functions are pure and return
//! the same result however often they are called.
//!
//! A stop follows the order of the pending actions. First the process tree of the agent ends, then
//! the context is saved. Labels, the comment and the move of the folder follow.

use super::item::{ForgeItem, ItemEnd, ItemState, Owed, Place, Standing};
use super::labels::LabelState;
use super::texts::Texts;
use super::{Eligibility, StopCause};
use crate::domain::launch::ReportResult;
use crate::domain::session::Execution;
use crate::domain::task::{Task, TaskStatus};
use crate::domain::time::Timestamp;

/// The facts about the work on an item.
#[derive(Debug, Clone, Copy)]
pub struct Work<'a> {
    /// The task; `None` if it was deleted.
    pub task: Option<&'a Task>,
    /// True if an agent that works on it, or may, has not ended yet.
    pub is_alive: bool,
    /// The newest execution of the task.
    pub last: Option<&'a Execution>,
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
            let standing = standing(work)?;
            if standing == before {
                return None;
            }
            let item = ForgeItem { state: ItemState::Active(standing), ..item };
            let item = item.owing(Owed::Label { state: standing.into() });
            let reason = work.task.and_then(|task| task.blocked_reason.as_deref());
            Some(match standing {
                Standing::Processing => item,
                Standing::Blocked | Standing::Failed => {
                    item.saying(texts.put_aside(standing, reason, work.last, now))
                }
            })
        }
        ItemState::Stopping(cause) => {
            (!work.is_alive).then(|| ended(item, ItemEnd::Stopped(cause), work, texts, now))
        }
        ItemState::Pausing if !work.is_alive => {
            let item = ForgeItem { state: ItemState::Paused { since: now }, ..item };
            let item = item.owing(Owed::Folder { place: Place::Running });
            let item = item
                .owing(Owed::Label { state: LabelState::Paused })
                .saying(texts.paused(work.last, now));
            Some(item.owing(Owed::Folder { place: Place::Paused }))
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
            item.owed = Vec::new();
            Some(if cause.leaves_an_item() && after_comment.is_some() {
                item.owing(Owed::Withdraw).owing(Owed::Label { state: LabelState::Stopped })
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
    matches!(item.state, ItemState::Active(Standing::Processing))
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
                state: ItemState::Active(Standing::Processing),
                n_resumed: item.n_resumed.saturating_add(1),
                ..item.clone()
            };
            let item = item.owing(Owed::Folder { place: Place::Running });
            Some(
                item.owing(Owed::Label { state: LabelState::Processing })
                    .saying(texts.resumed(now)),
            )
        }
    }
}

/// Returns the item when it is ours and its task is made.
pub fn won(item: &ForgeItem) -> ForgeItem {
    let mut item = ForgeItem { state: ItemState::Active(Standing::Processing), ..item.clone() };
    item.owed.retain(|owed| *owed != Owed::Claim);
    item.owing(Owed::Folder { place: Place::Running })
        .owing(Owed::Label { state: LabelState::Processing })
}

/// Returns the item if another coordinator was first.
pub fn lost(item: &ForgeItem) -> ForgeItem {
    ForgeItem {
        state: ItemState::Ended(ItemEnd::Elsewhere),
        owed: vec![Owed::Withdraw],
        ..item.clone()
    }
}

/// Returns the item after it was paused for too long.
pub fn expired(item: &ForgeItem, work: Work<'_>, texts: Texts, now: Timestamp) -> ForgeItem {
    ended(item.clone(), ItemEnd::Expired, work, texts, now)
}

/// Returns the result of the task so far; `None` while that is not final.
fn standing(work: Work<'_>) -> Option<Standing> {
    match work.task?.status {
        TaskStatus::Blocked if work.is_alive => None,
        TaskStatus::Blocked => {
            let has_failed =
                work.last.is_some_and(|work| work.result == Some(ReportResult::Failed));
            Some(if has_failed { Standing::Failed } else { Standing::Blocked })
        }
        // A person put the task back, and it waits for one.
        TaskStatus::Todo | TaskStatus::Backlog => (!work.is_alive).then_some(Standing::Blocked),
        TaskStatus::InProgress => Some(Standing::Processing),
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
    item.owed.retain(|owed| matches!(owed, Owed::Comment { .. }));
    let item = ForgeItem {
        state: ItemState::Ended(end),
        n_attempts: 0,
        n_refusals: 0,
        retry_at: None,
        ..item
    };
    let item = item.owing(Owed::Folder { place: Place::Running });
    let told = match end {
        ItemEnd::Done => Some((LabelState::Done, texts.finished(work.last, now))),
        ItemEnd::Expired => Some((LabelState::Stopped, texts.expired(work.last, now))),
        ItemEnd::Stopped(cause) if cause.leaves_an_item() => {
            Some((LabelState::Stopped, texts.stopped(cause, work.last, now)))
        }
        ItemEnd::Stopped(_) | ItemEnd::Elsewhere => None,
    };
    let mut item = item;
    if let Some((state, text)) = told {
        item = item.owing(Owed::Label { state }).saying(text);
    } else {
        item.owed.retain(|owed| matches!(owed, Owed::Folder { .. }));
    }
    item.owing(Owed::Folder { place: Place::Completed })
}

#[cfg(test)]
mod tests;
