//! The conversations of agent CLIs. A claim begins one or continues one, and the end of a launch
//! may close it. Only the coordinator in the server's process has conversations.

use domain::conversation::{Entry, FreshReason, Place, REFUSALS_WITHIN, new_session, to_continue};
use domain::event::NewEvent;
use domain::id::{AgentId, ConversationId, TaskId};
use domain::launch::Verdict;
use domain::{
    Conversation, ConversationOrder, Launch, Outcome, Purpose, StartFacts, Task, TaskStatus,
    Timestamp,
};
use store::rows::{Transaction, conversations, launches, projects};
use store::{Read, StoreError};

use crate::Settings;
use crate::workspaces::{OwnCheckouts, directory_of};

/// Returns whether an open launch of another key still has the conversation about the task of a
/// start.
pub(super) fn is_in_use(tx: &mut Read<'_>, facts: &StartFacts) -> Result<bool, StoreError> {
    let of_clone = facts.clone.as_ref().map(|needed| &needed.task);
    let Some(task) = of_clone.or(facts.task.as_ref().map(|task| &task.id)) else {
        return Ok(false);
    };
    let newest = conversations::newest_of(tx, task, &facts.key.agent)?;
    match newest.filter(Conversation::is_open) {
        Some(open) => conversations::is_in_use(tx, &open.id),
        None => Ok(false),
    }
}

/// Decides about the conversation of a launch that is being claimed, and writes it. `entry` is the
/// provider that would start the agent. Without one, the launch has no conversation.
pub(super) fn claim(
    tx: &mut Transaction<'_>,
    launch: &mut Launch,
    entry: Option<&Entry>,
    settings: &Settings,
    checkouts: &OwnCheckouts,
) -> Result<Option<ConversationOrder>, StoreError> {
    let entry = entry.filter(|entry| entry.ai_type == launch.ai_type);
    let (Purpose::Task, Some(task), Some(coordinator), Some(entry)) =
        (launch.key.purpose, task_of(launch).cloned(), launch.coordinator.clone(), entry)
    else {
        return Ok(None);
    };
    let now = tx.now();
    let project = projects::get(tx, &launch.key.project)?;
    let place = Place {
        coordinator,
        directory: directory_of(tx, launch, project.as_ref(), checkouts)?,
        workspace: launch.workspace.clone(),
        // The coordinator does not look for the transcript yet.
        is_gone: false,
    };
    let newest = conversations::newest_of(tx, &task, &launch.key.agent)?;
    match to_continue(newest.as_ref(), entry, &place, settings.conversations, now) {
        Ok(open) => {
            launch.conversation = Some(open.id.clone());
            let last = last_of(tx, open)?;
            Ok(Some(open.order(launch, last.as_ref())))
        }
        Err(why) => {
            let had_one = newest.as_ref().is_some_and(|known| known.has_begun);
            if had_one && why.is_news() {
                let launch_id = launch.id.clone();
                let task_id = task.clone();
                tx.after_commit(move || {
                    tracing::info!(
                        %launch_id, %task_id, reason = %why,
                        "the launch does not continue the conversation before it"
                    );
                });
            }
            // Launches that fail before they authenticate leave one row, however many they are.
            let is_reused = |open: &Conversation| !open.has_begun && why != FreshReason::Off;
            let (id, revision) = match newest.filter(Conversation::is_open) {
                Some(open) if is_reused(&open) => (open.id, open.revision),
                Some(open) => {
                    conversations::put(tx, &open.closed(why, now))?;
                    (tx.new_id(ConversationId::PREFIX), 0)
                }
                None => (tx.new_id(ConversationId::PREFIX), 0),
            };
            if why == FreshReason::Off {
                launch.fresh_because = had_one.then_some(why);
                return Ok(None);
            }
            let new = Conversation {
                id,
                task,
                agent: launch.key.agent.clone(),
                cli_session: new_session(&launch.id),
                account: entry.account.clone(),
                model: entry.model.clone(),
                coordinator: place.coordinator,
                directory: place.directory,
                workspace: place.workspace,
                has_begun: false,
                last_launch: None,
                n_unhelpful: 0,
                opened_at: now,
                last_used_at: now,
                closed_because: None,
                closed_at: None,
                revision,
            };
            conversations::put(tx, &new)?;
            launch.conversation = Some(new.id.clone());
            launch.fresh_because = Some(why);
            Ok(Some(new.order(launch, None)))
        }
    }
}

/// Returns the order of a launch that is claimed already.
pub(super) fn order_of(
    tx: &mut Read<'_>,
    launch: &Launch,
) -> Result<Option<ConversationOrder>, StoreError> {
    let Some(id) = &launch.conversation else { return Ok(None) };
    let Some(known) = conversations::get(tx, id)? else { return Ok(None) };
    let last = last_of(tx, &known)?;
    Ok(Some(known.order(launch, last.as_ref())))
}

/// Notes that a launch has authenticated, so that its CLI knows the conversation.
pub(crate) fn note_begun(tx: &mut Transaction<'_>, launch: &Launch) -> Result<(), StoreError> {
    change(tx, launch, |known, now| known.begun(&launch.id, now))
}

/// Notes the end of a launch for its conversation. Returns the verdict on its pair. The first
/// refusal of a conversation has none, so that the pair starts again at once.
pub(super) fn note_end(
    tx: &mut Transaction<'_>,
    launch: &Launch,
    outcome: &Outcome,
    at: Timestamp,
    verdict: Verdict,
) -> Result<Option<Verdict>, StoreError> {
    let is_refused = domain::conversation::is_refused(launch, outcome);
    let is_repeated = match task_of(launch).filter(|_| is_refused) {
        Some(task) => {
            let since = at - REFUSALS_WITHIN;
            conversations::was_refused_since(tx, task, &launch.key.agent, since)?
        }
        None => false,
    };
    change(tx, launch, |known, _| known.after_end(launch, outcome, at))?;
    if is_refused {
        let launch_id = launch.id.clone();
        tx.after_commit(move || {
            tracing::warn!(%launch_id, "the agent CLI did not accept the conversation; the next launch begins afresh");
        });
    }
    Ok((!is_refused || is_repeated).then_some(verdict))
}

/// Closes the conversations about a changed task that nothing may continue: those of a cancelled
/// task, and those of an agent that it was taken from.
pub(crate) fn note_task(
    tx: &mut Transaction<'_>,
    before: &Task,
    after: &Task,
) -> Result<(), StoreError> {
    let is_cancelled = |task: &Task| task.status == TaskStatus::Cancelled;
    if before.assignee == after.assignee && is_cancelled(before) == is_cancelled(after) {
        return Ok(());
    }
    close(tx, &after.id, FreshReason::Closed, |agent| {
        is_cancelled(after) || after.assignee.as_ref() != Some(agent)
    })
    .map(drop)
}

/// Closes the conversation about the task of a launch whose agent reported a failure.
pub(crate) fn note_failure(tx: &mut Transaction<'_>, launch: &Launch) -> Result<(), StoreError> {
    change(tx, launch, |known, now| known.closed(FreshReason::Closed, now))
}

/// Closes all open conversations about a task because a person wants a fresh start.
pub(crate) fn ask_afresh(tx: &mut Transaction<'_>, task: &Task) -> Result<(), StoreError> {
    if close(tx, &task.id, FreshReason::Asked, |_| true)? {
        tx.event(NewEvent {
            project: Some(task.project.clone()),
            task: Some(task.id.clone()),
            ..NewEvent::new("task.fresh_start_wanted", tx.now())
        });
    }
    Ok(())
}

/// Closes the open conversations of some agents about a task. Returns whether there was one.
fn close(
    tx: &mut Transaction<'_>,
    task: &TaskId,
    because: FreshReason,
    is_of: impl Fn(&AgentId) -> bool,
) -> Result<bool, StoreError> {
    let now = tx.now();
    let mut all = conversations::list_of_task(tx, task)?;
    all.retain(|known| known.is_open() && is_of(&known.agent));
    let is_any = !all.is_empty();
    for open in all {
        conversations::put(tx, &open.closed(because, now))?;
    }
    Ok(is_any)
}

/// Changes the conversation of a launch, if it has one.
fn change(
    tx: &mut Transaction<'_>,
    launch: &Launch,
    change: impl FnOnce(Conversation, Timestamp) -> Conversation,
) -> Result<(), StoreError> {
    let Some(id) = &launch.conversation else { return Ok(()) };
    let Some(before) = conversations::get(tx, id)? else { return Ok(()) };
    let after = change(before.clone(), tx.now());
    if after == before { Ok(()) } else { conversations::put(tx, &after) }
}

fn task_of(launch: &Launch) -> Option<&TaskId> {
    launch.task.as_ref().or(launch.claimed_task.as_ref())
}

/// Returns the last launch in a conversation that authenticated, if its row is kept.
fn last_of(tx: &mut Read<'_>, known: &Conversation) -> Result<Option<Launch>, StoreError> {
    match &known.last_launch {
        Some(last) => launches::get(tx, last),
        None => Ok(None),
    }
}
