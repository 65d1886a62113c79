//! Work on items of forges: taken, stopped, paused, resumed, tried again; and what is pending for
//! it, until it is done.
//!
//! Each call is one transaction, and repeating it changes nothing. `domain::forge` judges the
//! answers of the forge.

mod settling;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use domain::check::Check;
use domain::event::NewEvent;
use domain::forge::item::ItemState;
use domain::forge::settle;
use domain::forge::texts::Texts;
use domain::forge::{
    Eligibility, ForgeItem, ItemKey, PendingWrite, Publication, Setback, StopCause,
};
use domain::id::{AgentId, ItemId, ProjectId, TaskId};
use domain::launch::{LaunchEvent, StopReason};
use domain::task::Actor;
use domain::{Execution, Launch, TaskStatus, Timestamp};
use runtime::nudge::Wakeups;
use store::rows::{Transaction, checks, executions, forge_items, launches, tasks};
use store::{Read, StoreError};

use super::catalog::check_assignable;
use super::core::Core;
use super::tasks::mine::in_progress;
use super::tasks::rules::{move_task, tasks_below};
use super::tasks::{create_task, release_for};
use super::waiting::Waiting;
use super::workspaces::want_for_item;
use super::{Heard, Inputs, NewTask, ServiceError, Shared};

/// An item that may become work.
#[derive(Debug, Clone)]
pub struct NewItem {
    pub key: ItemKey,
    pub agent: AgentId,
    pub project: ProjectId,
    pub title: String,
    /// The address for people.
    pub url: String,
    /// The commit that the work begins at, if the result goes to the repository.
    pub publication: Option<Publication>,
}

/// The work on items of forges.
pub struct ForgeItems {
    core: Arc<Core>,
    heard: Heard,
    waiting: Waiting,
}

impl ForgeItems {
    pub(super) fn new(shared: Shared) -> Self {
        let Shared { core, heard, waiting, .. } = shared;
        Self { core, heard, waiting }
    }

    /// Listens for items with something new to do, and for the pause file.
    pub fn news(&self) -> Wakeups {
        self.waiting.forges.listen()
    }

    /// Returns the items with pending work, by their beginning.
    pub async fn open(&self) -> Result<Vec<ForgeItem>, ServiceError> {
        self.core.read(|tx| Ok(forge_items::list_open(tx)?)).await
    }

    /// Returns the items that have ended, the newest end first.
    pub async fn past(&self, limit: usize) -> Result<Vec<ForgeItem>, ServiceError> {
        self.core.read(move |tx| Ok(forge_items::list_ended(tx, limit)?)).await
    }

    /// Returns an item, also one that has ended.
    pub async fn get(&self, id: &ItemId) -> Result<Option<ForgeItem>, ServiceError> {
        let id = id.clone();
        self.core.read(move |tx| Ok(forge_items::get(tx, &id)?)).await
    }

    /// Returns the item from which a task was made.
    pub async fn of_task(&self, task: &TaskId) -> Result<Option<ForgeItem>, ServiceError> {
        let task = task.clone();
        self.core.read(move |tx| Ok(forge_items::find_of_task(tx, &task)?)).await
    }

    /// Returns the executions of agents on an item, the newest first.
    pub async fn executions_of(&self, item: &ForgeItem) -> Result<Vec<Execution>, ServiceError> {
        let task = item.task.clone();
        self.core.read(move |tx| Ok(executions::list_of_task(tx, &task)?)).await
    }

    /// Returns the checks of an item's task, the oldest first.
    pub async fn checks_of(&self, item: &ForgeItem) -> Result<Vec<Check>, ServiceError> {
        let task = item.task.clone();
        self.core.read(move |tx| Ok(checks::list_of_task(tx, &task)?)).await
    }

    /// Notes that claims up to this comment belong to earlier work.
    pub async fn look_at(
        &self,
        id: &ItemId,
        last_comment: u64,
    ) -> Result<Option<ForgeItem>, ServiceError> {
        self.change(id, move |item, _| {
            matches!(item.state, ItemState::Claiming { after_comment: None }).then(|| ForgeItem {
                state: ItemState::Claiming { after_comment: Some(last_comment) },
                ..item.clone()
            })
        })
        .await
    }

    /// Creates the task of an item that this bot has won.
    ///
    /// # Errors
    /// The errors of a task that a person makes.
    pub async fn win(
        &self,
        id: &ItemId,
        title: &str,
        description: &str,
    ) -> Result<(), ServiceError> {
        let title = title.to_owned();
        let description = description.to_owned();
        self.on_open(id, move |tx, _, item| {
            if !is_claiming(item) {
                return Ok(());
            }
            let new = NewTask {
                id: Some(item.task.clone()),
                description: description.clone(),
                status: TaskStatus::InProgress,
                assignee: Some(item.agent.clone()),
                ..NewTask::new(item.project.clone(), title.clone())
            };
            let task = create_task(tx, item.task.clone(), &new)?;
            if item.publication.is_some() {
                want_for_item(tx, &task)?;
            }
            Ok(put_item(tx, Some(item), &settle::won(item))?)
        })
        .await
    }

    /// Gives an item up, because another bot claimed it first.
    pub async fn lose(&self, id: &ItemId) -> Result<(), ServiceError> {
        let lost = |item: &ForgeItem, _| is_claiming(item).then(|| settle::lost(item));
        self.change(id, lost).await.map(drop)
    }

    /// Stops the work on an item: its task is cancelled and its agent ended, in one transaction.
    /// The pending actions for that come when the agent is gone ([`ForgeItems::settle_all`]).
    pub async fn stop(&self, id: &ItemId, cause: StopCause) -> Result<(), ServiceError> {
        self.on_open(id, move |tx, inputs, item| {
            let Some(after) = settle::stopping(item, cause, tx.now()) else {
                return Ok(());
            };
            // The task is done, and will be reported as done.
            if tasks::get(tx, &item.task)?.is_some_and(|task| task.status == TaskStatus::Done) {
                return Ok(());
            }
            inputs.end_work_on(tx, item, &after, cause)
        })
        .await
    }

    /// Pauses the work on an item. Its task is blocked, and its agent gets a notice.
    pub async fn pause(&self, id: &ItemId) -> Result<(), ServiceError> {
        self.on_open(id, |tx, inputs, item| {
            let Some(after) = settle::pausing(item) else {
                return Ok(());
            };
            let task = tasks::get(tx, &item.task)?;
            let Some(task) = task.filter(|task| task.status == TaskStatus::InProgress) else {
                return Ok(());
            };
            // An agent that has not asked for its task yet cannot get a notice, and would find
            // nothing to do.
            let mut idle = launches_on(tx, item)?;
            idle.retain(|launch| launch.task.is_none());
            let reason = Some(settle::PAUSE_REASON);
            let moved = move_task(tx, &task, TaskStatus::Blocked, reason, Actor::Person)?;
            inputs.stop_all(tx, &idle, StopReason::Paused)?;
            inputs.tell_agents(tx, &moved.news, None)?;
            Ok(put_item(tx, Some(item), &after)?)
        })
        .await
    }

    /// Resumes a paused item, or stops it, depending on its present state at the forge.
    pub async fn resume(&self, id: &ItemId, judged: Eligibility) -> Result<(), ServiceError> {
        self.on_open(id, move |tx, inputs, item| {
            let Some(after) = settle::resumed(item, judged, inputs.forge_texts(), tx.now()) else {
                return Ok(());
            };
            match judged {
                Eligibility::Not(cause) => inputs.end_work_on(tx, item, &after, cause),
                Eligibility::Eligible => inputs.begin_again(tx, item, &after),
            }
        })
        .await
    }

    /// Ends an item that was paused for too long.
    pub async fn expire(&self, id: &ItemId) -> Result<(), ServiceError> {
        self.on_open(id, |tx, inputs, item| {
            if !matches!(item.state, ItemState::Paused { .. }) {
                return Ok(());
            }
            let last = executions::list_of_task(tx, &item.task)?.into_iter().next();
            let last = last.as_ref();
            let work = settle::Work { task: None, is_alive: false, last, is_by_hand: false };
            let after = settle::expired(item, work, inputs.forge_texts(), tx.now());
            inputs.end_work_on(tx, item, &after, StopCause::Cancelled)
        })
        .await
    }

    /// Tries a failed item again, because a person asks for it at the forge.
    pub async fn retry(&self, id: &ItemId) -> Result<(), ServiceError> {
        self.on_open(id, |tx, inputs, item| inputs.begin_again(tx, item, item)).await
    }

    /// Notes whether the forge knows the item. Returns whether the item was missing before, too.
    pub async fn note_missing(&self, id: &ItemId, is_missing: bool) -> Result<bool, ServiceError> {
        let id = id.clone();
        self.core
            .write(move |tx| {
                let Some(item) = forge_items::get(tx, &id)? else {
                    return Ok(false);
                };
                if item.is_open() {
                    put_item(tx, Some(&item), &ForgeItem { is_missing, ..item.clone() })?;
                }
                Ok(item.is_missing)
            })
            .await
    }

    /// Notes that a request of an item is about to be sent; `None` says that it was not sent.
    pub async fn note_begun(
        &self,
        id: &ItemId,
        begun_at: Option<Timestamp>,
    ) -> Result<(), ServiceError> {
        let note = move |item: &ForgeItem, _| Some(ForgeItem { begun_at, ..item.clone() });
        self.change(id, note).await.map(drop)
    }

    /// Notes that a pending write is done, or is given up for this reason. It is the first, unless
    /// the item came to another state meanwhile.
    pub async fn write_is_done(
        &self,
        id: &ItemId,
        write: &PendingWrite,
        given_up: Option<&str>,
    ) -> Result<(), ServiceError> {
        let write = write.clone();
        let given_up = given_up.map(str::to_owned);
        let is_done = move |item: &ForgeItem, now| {
            let is_first = item.pending.first() == Some(&write);
            Some(match item.clone() {
                item if is_first => item.done(given_up.clone(), now),
                item => ForgeItem { begun_at: None, ..item },
            })
        };
        self.change(id, is_done).await.map(drop)
    }

    /// Notes a step of the publication of an item. Nothing changes if it has none.
    pub async fn note_publication(
        &self,
        id: &ItemId,
        note: impl Fn(&mut Publication) + Send + 'static,
    ) -> Result<Option<Publication>, ServiceError> {
        let noted = self.change(id, move |item, _| {
            let mut publication = item.publication.clone()?;
            note(&mut publication);
            Some(ForgeItem { publication: Some(publication), ..item.clone() })
        });
        Ok(noted.await?.and_then(|item| item.publication))
    }

    /// Notes that a pending write failed and must be tried again.
    pub async fn write_has_failed(
        &self,
        id: &ItemId,
        write: &PendingWrite,
        setback: Setback,
        error: &str,
    ) -> Result<(), ServiceError> {
        let write = write.clone();
        let error = error.to_owned();
        let failed = move |item: &ForgeItem, now: Timestamp| {
            let is_first = item.pending.first() == Some(&write);
            let begun_at = (setback == Setback::Lost).then_some(now);
            Some(match item.clone() {
                item if is_first => item.failed(setback, error.clone(), now),
                item => ForgeItem { begun_at, ..item },
            })
        };
        self.change(id, failed).await.map(drop)
    }

    /// Records the times of an item anew if the clock was set back since.
    pub async fn heed_clock(&self, id: &ItemId) -> Result<(), ServiceError> {
        self.change(id, ForgeItem::after_clock_change).await.map(drop)
    }

    /// Ends the waits after failures: pending writes are tried again at once.
    pub async fn hurry(&self) -> Result<(), ServiceError> {
        let is_late = |item: &ForgeItem| item.retry_at.is_some();
        for item in self.open().await?.iter().filter(|item| is_late(item)) {
            let hurried = move |item: &ForgeItem, _| {
                is_late(item).then(|| ForgeItem { retry_at: None, ..item.clone() })
            };
            self.change(&item.id, hurried).await?;
        }
        Ok(())
    }

    async fn change(
        &self,
        id: &ItemId,
        change: impl Fn(&ForgeItem, Timestamp) -> Option<ForgeItem> + Send + 'static,
    ) -> Result<Option<ForgeItem>, ServiceError> {
        self.on_open(id, move |tx, _, item| {
            let after = change(item, tx.now()).unwrap_or_else(|| item.clone());
            put_item(tx, Some(item), &after)?;
            Ok(Some(after))
        })
        .await
    }

    /// Calls `act` with an open item in one transaction. Does nothing and returns the default if
    /// the item has ended or is unknown.
    async fn on_open<T, F>(&self, id: &ItemId, act: F) -> Result<T, ServiceError>
    where
        T: Default + Send + 'static,
        F: Fn(&mut Transaction<'_>, &Inputs, &ForgeItem) -> Result<T, ServiceError>
            + Send
            + 'static,
    {
        let id = id.clone();
        let inputs = self.heard.inputs(&self.core);
        self.core
            .write(move |tx| match forge_items::get(tx, &id)?.filter(ForgeItem::is_open) {
                Some(item) => act(tx, &inputs, &item),
                None => Ok(T::default()),
            })
            .await
    }
}

/// Stores that a bot wants to work on an item; `None` if that is stored already. The task is
/// created only when the bot has won the item ([`ForgeItems::win`]).
///
/// # Errors
/// `AgentNotFound`, `ProjectNotFound`, `NotAssigned`.
pub(super) async fn take(core: &Core, new: &NewItem) -> Result<Option<ForgeItem>, ServiceError> {
    let new = new.clone();
    core.write(move |tx| {
        check_assignable(tx, Some(&new.agent), &new.project)?;
        if forge_items::find_open(tx, &new.key)?.is_some() {
            return Ok(None);
        }
        let id = tx.new_id(ItemId::PREFIX);
        let task = tx.new_id(TaskId::PREFIX);
        let agent = new.agent.clone();
        let project = new.project.clone();
        let item = ForgeItem {
            title: new.title.clone(),
            url: new.url.clone(),
            publication: new.publication.clone(),
            ..ForgeItem::new(id, task, new.key.clone(), agent, project, tx.now())
        };
        put_item(tx, None, &item)?;
        Ok(Some(item))
    })
    .await
}

impl Inputs {
    /// Cancels the task of an item and ends the agents that work on it. The item becomes `after`.
    fn end_work_on(
        &self,
        tx: &mut Transaction<'_>,
        item: &ForgeItem,
        after: &ForgeItem,
        cause: StopCause,
    ) -> Result<(), ServiceError> {
        if let Some(reason) = cause.stop_reason() {
            let launches = launches_on(tx, item)?;
            self.stop_all(tx, &launches, reason)?;
        }
        if let Some(task) = tasks::get(tx, &item.task)?.filter(|task| task.status.is_open()) {
            let moved = move_task(tx, &task, TaskStatus::Cancelled, None, Actor::Person)?;
            self.tell_agents(tx, &moved.news, None)?;
        }
        Ok(put_item(tx, Some(item), after)?)
    }

    fn stop_all(
        &self,
        tx: &mut Transaction<'_>,
        launches: &[Launch],
        reason: StopReason,
    ) -> Result<(), StoreError> {
        let event = LaunchEvent::StopWanted { reason, at: tx.now(), exit_grace: Duration::ZERO };
        for launch in launches {
            self.happen(tx, launch, std::slice::from_ref(&event))?;
        }
        Ok(())
    }

    /// Sets the task of an item in progress again. The item becomes `after`.
    fn begin_again(
        &self,
        tx: &mut Transaction<'_>,
        item: &ForgeItem,
        after: &ForgeItem,
    ) -> Result<(), ServiceError> {
        if let Some(task) = tasks::get(tx, &item.task)? {
            let moved = move_task(tx, &task, TaskStatus::InProgress, None, Actor::Person)?;
            release_for(tx, &moved.task)?;
            self.tell_agents(tx, &moved.news, None)?;
        }
        Ok(put_item(tx, Some(item), after)?)
    }

    pub(super) fn forge_texts(&self) -> Texts {
        Texts::new(self.settings.language)
    }
}

const fn is_claiming(item: &ForgeItem) -> bool {
    matches!(item.state, ItemState::Claiming { .. })
}

/// Returns the open launches that work on an item or a part of it, or may come to. A launch that
/// has not asked for work yet does not count if there is other work for it.
fn launches_on(tx: &mut Read<'_>, item: &ForgeItem) -> Result<Vec<Launch>, StoreError> {
    let key = item.launch_key();
    let below = tasks_below(tx, &item.task, |_| true)?;
    let mut tasks: BTreeSet<TaskId> = below.into_iter().map(|task| task.id).collect();
    tasks.insert(item.task.clone());
    let mut open = launches::list_open(tx)?;
    open.retain(|launch| match &launch.task {
        Some(task) => tasks.contains(task),
        None => launch.key == key,
    });
    if open.iter().any(|launch| launch.task.is_none())
        && in_progress(tx, &key)?.iter().any(|task| task.id != item.task)
    {
        open.retain(|launch| launch.task.is_some());
    }
    Ok(open)
}

/// Writes an item, with an event and a line in the log if it comes to another state. Writes nothing
/// if the item stays as it was.
pub(super) fn put_item(
    tx: &mut Transaction<'_>,
    before: Option<&ForgeItem>,
    after: &ForgeItem,
) -> Result<(), StoreError> {
    if before == Some(after) {
        return Ok(());
    }
    if before.is_none_or(|before| before.state.as_str() != after.state.as_str()) {
        let event = NewEvent {
            agent: Some(after.agent.clone()),
            project: Some(after.project.clone()),
            task: Some(after.task.clone()),
            detail: Some(format!("{} {}", after.key, after.state.as_str())),
            ..NewEvent::new(ITEM_EVENT, tx.now())
        };
        tx.event(event);
        let item = after.clone();
        tx.after_commit(move || log_item(&item));
    }
    forge_items::put(tx, after)
}

/// Returns the event of an item that has a new state.
const ITEM_EVENT: &str = "forge.item";

pub(super) fn log_item(item: &ForgeItem) {
    let host = &item.key.host;
    let state = item.state.as_str();
    let reason = item.state.cause().map(tracing::field::display);
    tracing::info!(
        item = %item.key, host, state, reason, item_id = %item.id, task_id = %item.task, agent_id = %item.agent,
        project_id = %item.project, "forge item"
    );
}
