//! Work on items of forges: taken, stopped, paused, resumed, tried again; and what is owed for it, until it is done.
//!
//! Each call is one commit, and repeating it changes nothing. What the forge says is judged by `domain::forge`.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::domain::event::NewEvent;
use crate::domain::forge::item::ItemState;
use crate::domain::forge::settle;
use crate::domain::forge::texts::Texts;
use crate::domain::forge::{Eligibility, ForgeItem, ItemKey, Owed, Setback, StopCause};
use crate::domain::id::{AgentId, ItemId, ProjectId, TaskId};
use crate::domain::launch::{LaunchEvent, StopReason};
use crate::domain::task::Actor;
use crate::domain::{
    Execution, InstanceKey, Launch, Priority, Purpose, Task, TaskStatus, Timestamp,
};
use crate::nudge::Wakeups;
use crate::store::{Change, Commit, Expect, StoreError, TaskFilter};

use super::task_rules::TaskChange;
use super::told::bare;
use super::{NewTask, Service, ServiceError};

/// An item that may become work.
#[derive(Debug, Clone)]
pub struct NewItem {
    pub key: ItemKey,
    pub agent: AgentId,
    pub project: ProjectId,
    pub title: String,
    /// For people.
    pub url: String,
}

impl Service {
    /// Hears whenever something new is owed, or the pause file comes or goes.
    pub fn forge_news(&self) -> Wakeups {
        self.waiting.forges.listen()
    }

    /// Hears whenever forges are to be asked at once, also those that failed.
    pub fn forge_looks(&self) -> Wakeups {
        self.waiting.forge_looks.listen()
    }

    /// Makes forges be asked at once, as far as their limits allow it.
    pub fn look_at_forges(&self) {
        self.waiting.forge_looks.wake();
    }

    /// Items for which there is something to do, by their beginning.
    pub async fn forge_items(&self) -> Result<Vec<ForgeItem>, ServiceError> {
        Ok(self.store.open_forge_items().await?)
    }

    /// Items that are over, the newest end first.
    pub async fn past_forge_items(&self, limit: usize) -> Result<Vec<ForgeItem>, ServiceError> {
        Ok(self.store.ended_forge_items(limit).await?)
    }

    /// One item, also one that is over.
    pub async fn forge_item(&self, id: &ItemId) -> Result<Option<ForgeItem>, ServiceError> {
        Ok(self.store.forge_item(id).await?)
    }

    /// The item that a task was made of.
    pub async fn forge_item_of_task(
        &self,
        task: &TaskId,
    ) -> Result<Option<ForgeItem>, ServiceError> {
        Ok(self.store.forge_item_of_task(task).await?)
    }

    /// The work of agents on an item, the newest first.
    pub async fn executions_of_item(
        &self,
        item: &ForgeItem,
    ) -> Result<Vec<Execution>, ServiceError> {
        Ok(self.store.executions_of_task(&item.task).await?)
    }

    /// Writes down that an item is to be worked on; `None` if it is already. There is no task before it is sure that nobody else
    /// was first ([`Service::win_item`]).
    ///
    /// # Errors
    /// `AgentNotFound`, `ProjectNotFound`, `NotAssigned`.
    pub async fn take_item(&self, new: &NewItem) -> Result<Option<ForgeItem>, ServiceError> {
        let id: ItemId = self.world.new_id(ItemId::PREFIX);
        let task: TaskId = self.world.new_id(TaskId::PREFIX);
        self.transact(|| async {
            self.check_assignable(Some(&new.agent), &new.project).await?;
            if self.store.open_forge_item(&new.key).await?.is_some() {
                return Ok((Commit::default(), None));
            }
            let (agent, project) = (new.agent.clone(), new.project.clone());
            let item = ForgeItem {
                title: new.title.clone(),
                url: new.url.clone(),
                ..ForgeItem::new(
                    id.clone(),
                    task.clone(),
                    new.key.clone(),
                    agent,
                    project,
                    self.now(),
                )
            };
            let expect = vec![Expect::NoOpenItem(new.key.clone())];
            Ok((Commit { expect, changes: self.item_changes(None, item.clone()) }, Some(item)))
        })
        .await
    }

    /// Notes that claims up to this comment are of former work.
    pub async fn look_at_item(
        &self,
        id: &ItemId,
        last_comment: u64,
    ) -> Result<Option<ForgeItem>, ServiceError> {
        self.change_item(id, |item, _| {
            matches!(item.state, ItemState::Claiming { after_comment: None }).then(|| ForgeItem {
                state: ItemState::Claiming { after_comment: Some(last_comment) },
                ..item.clone()
            })
        })
        .await
    }

    /// Makes the task of an item that is ours.
    ///
    /// # Errors
    /// Those of a task that a person makes.
    pub async fn win_item(
        &self,
        id: &ItemId,
        title: &str,
        description: &str,
    ) -> Result<(), ServiceError> {
        self.transact(|| async move {
            let Some(item) = self.claiming(id).await? else {
                return Ok((Commit::default(), ()));
            };
            let new = NewTask {
                id: Some(item.task.clone()),
                project: item.project.clone(),
                title: title.to_owned(),
                description: description.to_owned(),
                status: TaskStatus::InProgress,
                priority: Priority::Medium,
                assignee: Some(item.agent.clone()),
                parent: None,
                dependencies: Vec::new(),
            };
            self.project(&new.project).await?;
            self.check_assignable(new.assignee.as_ref(), &new.project).await?;
            let task = self.new_task(item.task.clone(), &new)?;
            let TaskChange { task, expect, mut changes } =
                self.change_task(None, &task, Actor::Person).await?;
            changes.extend(self.release_for(&task).await?);
            changes.extend(self.item_changes(Some(&item), settle::won(&item)));
            Ok((Commit { expect, changes }, ()))
        })
        .await
    }

    /// Leaves an item to whoever was first.
    pub async fn lose_item(&self, id: &ItemId) -> Result<(), ServiceError> {
        self.transact(|| async move {
            let Some(item) = self.claiming(id).await? else {
                return Ok((Commit::default(), ()));
            };
            Ok((
                Commit {
                    expect: Vec::new(),
                    changes: self.item_changes(Some(&item), settle::lost(&item)),
                },
                (),
            ))
        })
        .await
    }

    /// Stops the work on an item: its task is cancelled and its agent ended, in one commit. What is owed for that comes when the
    /// agent is gone ([`Service::settle_forge_items`]).
    pub async fn stop_item(&self, id: &ItemId, cause: StopCause) -> Result<(), ServiceError> {
        self.transact(|| async move {
            let Some(item) = self.open_item(id).await? else {
                return Ok((Commit::default(), ()));
            };
            let Some(after) = settle::stopping(&item, cause, self.now()) else {
                return Ok((Commit::default(), ()));
            };
            // It is finished, and will be told as that.
            if self
                .store
                .task(&item.task)
                .await?
                .is_some_and(|task| task.status == TaskStatus::Done)
            {
                return Ok((Commit::default(), ()));
            }
            self.end_work_on(&item, after, cause).await
        })
        .await
    }

    /// Pauses the work on an item: its task is blocked, and its agent told so.
    pub async fn pause_item(&self, id: &ItemId) -> Result<(), ServiceError> {
        self.transact(|| async move {
            let Some(item) = self.open_item(id).await? else {
                return Ok((Commit::default(), ()));
            };
            let Some(after) = settle::pausing(&item) else {
                return Ok((Commit::default(), ()));
            };
            let task = self
                .store
                .task(&item.task)
                .await?
                .filter(|task| task.status == TaskStatus::InProgress);
            let Some(task) = task else {
                return Ok((Commit::default(), ()));
            };
            let reason = Some(settle::PAUSE_REASON);
            let moved = self.move_task(&task, TaskStatus::Blocked, reason, Actor::Person).await?;
            let (mut expect, mut changes) = (moved.expect, moved.changes);
            // Who hasn't asked for it yet can't be told, and will find nothing to do.
            let mut idle = self.launches_on(&item).await?;
            idle.retain(|launch| launch.task.is_none());
            let stopped = self.stop_all(&idle, StopReason::Paused).await?;
            expect.extend(stopped.expect);
            changes.extend(stopped.changes);
            self.tell_agents(&mut changes, None).await?;
            changes.extend(self.item_changes(Some(&item), after));
            Ok((Commit { expect, changes }, ()))
        })
        .await
    }

    /// Goes on with a paused item, or stops it, by what the forge says of it now.
    pub async fn resume_item(&self, id: &ItemId, judged: Eligibility) -> Result<(), ServiceError> {
        self.transact(|| async move {
            let Some(item) = self.open_item(id).await? else {
                return Ok((Commit::default(), ()));
            };
            let resumed = settle::resumed(&item, judged, self.forge_texts(), self.now());
            let Some(after) = resumed else {
                return Ok((Commit::default(), ()));
            };
            match judged {
                Eligibility::Not(cause) => self.end_work_on(&item, after, cause).await,
                Eligibility::Eligible => self.begin_again(&item, after).await,
            }
        })
        .await
    }

    /// Ends what was paused for too long.
    pub async fn expire_item(&self, id: &ItemId) -> Result<(), ServiceError> {
        self.transact(|| async move {
            let Some(item) = self.open_item(id).await? else {
                return Ok((Commit::default(), ()));
            };
            if !matches!(item.state, ItemState::Paused { .. }) {
                return Ok((Commit::default(), ()));
            }
            let last = self.store.executions_of_task(&item.task).await?.into_iter().next();
            let work = settle::Work { task: None, is_alive: false, last: last.as_ref() };
            let after = settle::expired(&item, work, self.forge_texts(), self.now());
            self.end_work_on(&item, after, StopCause::Cancelled).await
        })
        .await
    }

    /// Tries again what was put aside: somebody asks for it at the forge.
    pub async fn retry_item(&self, id: &ItemId) -> Result<(), ServiceError> {
        self.transact(|| async move {
            let Some(item) = self.open_item(id).await? else {
                return Ok((Commit::default(), ()));
            };
            self.begin_again(&item, item.clone()).await
        })
        .await
    }

    /// Notes whether the forge knows the item. Answers whether it didn't before either.
    pub async fn note_missing(&self, id: &ItemId, is_missing: bool) -> Result<bool, ServiceError> {
        let before = self.store.forge_item(id).await?.is_some_and(|item| item.is_missing);
        let noted = |item: &ForgeItem, _| {
            (item.is_missing != is_missing).then(|| ForgeItem { is_missing, ..item.clone() })
        };
        self.change_item(id, noted).await?;
        Ok(before)
    }

    /// Notes that the first thing that was owed is done, or given up with this reason.
    pub async fn owed_is_done(
        &self,
        id: &ItemId,
        owed: &Owed,
        given_up: Option<&str>,
    ) -> Result<(), ServiceError> {
        let is_done = |item: &ForgeItem, now| {
            let is_first = item.owed.first() == Some(owed);
            is_first.then(|| item.clone().done(given_up.map(str::to_owned), now))
        };
        self.change_item(id, is_done).await.map(drop)
    }

    /// Notes that it failed, and is to be tried again.
    pub async fn owed_has_failed(
        &self,
        id: &ItemId,
        owed: &Owed,
        setback: Setback,
        error: &str,
    ) -> Result<(), ServiceError> {
        let failed = |item: &ForgeItem, now: Timestamp| {
            let is_first = item.owed.first() == Some(owed);
            is_first
                .then(|| item.clone().failed(setback, error.to_owned(), now + item.delay(setback)))
        };
        self.change_item(id, failed).await.map(drop)
    }

    /// Ends the waits after failures: what is owed is tried again at once.
    pub async fn hurry_forge_items(&self) -> Result<(), ServiceError> {
        let is_late = |item: &ForgeItem| item.retry_at.is_some();
        for item in self.forge_items().await?.iter().filter(|item| is_late(item)) {
            let hurried = |item: &ForgeItem, _| {
                is_late(item).then(|| ForgeItem { retry_at: None, ..item.clone() })
            };
            self.change_item(&item.id, hurried).await?;
        }
        Ok(())
    }

    async fn change_item(
        &self,
        id: &ItemId,
        change: impl Fn(&ForgeItem, Timestamp) -> Option<ForgeItem> + Send + Sync,
    ) -> Result<Option<ForgeItem>, ServiceError> {
        let change = &change;
        self.transact(|| async move {
            let Some(item) = self.open_item(id).await? else {
                return Ok((Commit::default(), None));
            };
            let Some(after) = change(&item, self.now()) else {
                return Ok((Commit::default(), Some(item)));
            };
            let changes = self.item_changes(Some(&item), after.clone());
            Ok((Commit { expect: Vec::new(), changes }, Some(after)))
        })
        .await
    }

    async fn open_item(&self, id: &ItemId) -> Result<Option<ForgeItem>, StoreError> {
        Ok(self.store.forge_item(id).await?.filter(ForgeItem::is_open))
    }

    async fn claiming(&self, id: &ItemId) -> Result<Option<ForgeItem>, StoreError> {
        let item = self.open_item(id).await?;
        Ok(item.filter(|item| matches!(item.state, ItemState::Claiming { .. })))
    }

    /// The task cancelled, the agents that work on it ended, the item as it is then.
    async fn end_work_on(
        &self,
        item: &ForgeItem,
        after: ForgeItem,
        cause: StopCause,
    ) -> Result<(Commit, ()), ServiceError> {
        let Commit { mut expect, mut changes } = match cause.stop_reason() {
            Some(reason) => self.stop_all(&self.launches_on(item).await?, reason).await?,
            None => Commit::default(),
        };
        if let Some(task) = self.store.task(&item.task).await?.filter(|task| task.status.is_open())
        {
            let moved = self.move_task(&task, TaskStatus::Cancelled, None, Actor::Person).await?;
            expect.extend(moved.expect);
            changes.extend(moved.changes);
            self.tell_agents(&mut changes, None).await?;
        }
        changes.extend(self.item_changes(Some(item), after));
        Ok((Commit { expect, changes }, ()))
    }

    async fn stop_all(
        &self,
        launches: &[Launch],
        reason: StopReason,
    ) -> Result<Commit, StoreError> {
        let (mut all, now) = (Commit::default(), self.now());
        let event = LaunchEvent::StopWanted { reason, at: now, patience: Duration::ZERO };
        for launch in launches {
            let stop = self.commit_by(launch, &event, now).await?;
            all.expect.extend(stop.expect);
            all.changes.extend(stop.changes);
        }
        Ok(all)
    }

    async fn begin_again(
        &self,
        item: &ForgeItem,
        after: ForgeItem,
    ) -> Result<(Commit, ()), ServiceError> {
        let (mut expect, mut changes) = (Vec::new(), Vec::new());
        if let Some(task) = self.store.task(&item.task).await? {
            let TaskChange { task, expect: seen, changes: moved } =
                self.move_task(&task, TaskStatus::InProgress, None, Actor::Person).await?;
            expect.extend(seen);
            changes.extend(moved);
            changes.extend(self.release_for(&task).await?);
            self.tell_agents(&mut changes, None).await?;
        }
        if after != *item {
            changes.extend(self.item_changes(Some(item), after));
        }
        Ok((Commit { expect, changes }, ()))
    }

    /// The open launches that work on an item or a part of it, or may come to: with other work for them, those that asked for none yet don't.
    pub(super) async fn launches_on(&self, item: &ForgeItem) -> Result<Vec<Launch>, StoreError> {
        let key = InstanceKey::new(item.agent.clone(), item.project.clone(), Purpose::Task);
        let mut tasks: BTreeSet<TaskId> = BTreeSet::from([item.task.clone()]);
        tasks.extend(self.tasks_below(&item.task, |_| true).await?.into_iter().map(|task| task.id));
        let mut open = self.store.open_launches().await?;
        open.retain(|launch| match &launch.task {
            Some(task) => tasks.contains(task),
            None => launch.key == key,
        });
        if open.iter().any(|launch| launch.task.is_none()) && self.has_other_work(item).await? {
            open.retain(|launch| launch.task.is_some());
        }
        Ok(open)
    }

    async fn has_other_work(&self, item: &ForgeItem) -> Result<bool, StoreError> {
        let filter = TaskFilter {
            project: Some(item.project.clone()),
            assignee: Some(item.agent.clone()),
            status: Some(TaskStatus::InProgress),
            ..TaskFilter::default()
        };
        Ok(self.store.tasks(&filter).await?.iter().any(|task: &Task| task.id != item.task))
    }

    /// The row, and the event that tells of its state if that is another.
    pub(super) fn item_changes(&self, before: Option<&ForgeItem>, after: ForgeItem) -> Vec<Change> {
        let mut changes = Vec::new();
        if before.is_none_or(|before| before.state.as_str() != after.state.as_str()) {
            let event = NewEvent {
                agent: Some(after.agent.clone()),
                project: Some(after.project.clone()),
                task: Some(after.task.clone()),
                detail: Some(format!("{} {}", after.key, after.state.as_str())),
                ..bare(ITEM_EVENT, self.now())
            };
            changes.push(Change::Event(event));
        }
        changes.push(Change::ForgeItem(after));
        changes
    }

    pub(super) fn forge_texts(&self) -> Texts {
        Texts::new(self.settings().language)
    }
}

/// What tells that an item has another state.
const ITEM_EVENT: &str = "forge.item";

/// The items that come to another state by these changes.
pub(super) fn changed_items(changes: &[Change]) -> Vec<ForgeItem> {
    let told: Vec<&TaskId> = changes
        .iter()
        .filter_map(|change| match change {
            Change::Event(event) if event.kind == ITEM_EVENT => event.task.as_ref(),
            _ => None,
        })
        .collect();
    let is_told = |change: &Change| match change {
        Change::ForgeItem(item) if told.contains(&&item.task) => Some(item.clone()),
        _ => None,
    };
    changes.iter().filter_map(is_told).collect()
}

pub(super) fn log_item(item: &ForgeItem) {
    let (host, state, reason) =
        (&item.key.host, item.state.as_str(), item.state.cause().map(tracing::field::display));
    tracing::info!(
        item = %item.key, host, state, reason, item_id = %item.id, task_id = %item.task, agent_id = %item.agent,
        project_id = %item.project, "forge item"
    );
}
