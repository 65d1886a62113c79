//! Notices: a change of work sends notices to the agents that do it, in the same
//! transaction.

use domain::launch::LaunchEvent;
use domain::notice::{Meaning, WorkChange, after_changes, n_open};
use domain::task::next_task;
use domain::{Launch, LaunchId, Notice, NoticeId, Purpose, Task, Timestamp};
use store::rows::{Transaction, executions, launches, notices};
use store::{Read, StoreError};

use super::Sessions;
use super::caller::fence;
use crate::tasks::mine::{in_progress, new_execution};
use crate::tasks::rules::graph_above;
use crate::{Caller, Inputs, ServiceError};

impl Sessions {
    /// Returns the notices that `caller` has not dealt with. They count as read from now on.
    pub async fn notifications(&self, caller: &Caller) -> Result<Vec<Notice>, ServiceError> {
        // If all notices were read before, or there are none, the call changes nothing and does not
        // use the only writer.
        let first = caller.clone();
        let now = self.core.now();
        let reading = self.core.read(move |tx| Reading::of(tx, &first, now)).await?;
        if !reading.changes_anything() {
            return Ok(reading.open);
        }
        let caller = caller.clone();
        self.core
            .write(move |tx| {
                let now = tx.now();
                let Reading { launch, open, read } = Reading::of(tx, &caller, now)?;
                for (before, notice) in open.iter().zip(&read) {
                    if notice != before {
                        notices::put(tx, notice, &launch.key)?;
                    }
                }
                let n_notices = n_open(&read);
                if launch.n_notices != n_notices {
                    launches::put(tx, &Launch { n_notices, ..launch })?;
                }
                Ok(open)
            })
            .await
    }
}

/// The open notices of a launch whose agent asks for them.
struct Reading {
    launch: Launch,
    open: Vec<Notice>,
    /// The same notices as they are afterwards.
    read: Vec<Notice>,
}

impl Reading {
    fn of(tx: &mut Read<'_>, caller: &Caller, now: Timestamp) -> Result<Self, ServiceError> {
        let launch = fence(tx, caller)?;
        let open = open_of(tx, &launch.id)?;
        let read = open.iter().map(|notice| notice.clone().read(now)).collect();
        Ok(Self { launch, open, read })
    }

    fn changes_anything(&self) -> bool {
        self.read != self.open || self.launch.n_notices != n_open(&self.read)
    }
}

/// Returns the notices of a launch that are not settled.
pub(crate) fn open_of(tx: &mut Read<'_>, launch: &LaunchId) -> Result<Vec<Notice>, StoreError> {
    let mut notices = notices::list_of_launch(tx, launch)?;
    notices.retain(Notice::is_open);
    Ok(notices)
}

/// Settles the open notices of a launch whose agent has reported or is gone.
pub(crate) fn settle(tx: &mut Transaction<'_>, launch: &Launch) -> Result<(), StoreError> {
    if launch.n_notices > 0 {
        for notice in open_of(tx, &launch.id)? {
            notices::put(tx, &notice.settled(tx.now()), &launch.key)?;
        }
    }
    Ok(())
}

impl Inputs {
    /// Sends notices of the changes to the agents at work, except the agent of `by`, which made the
    /// changes.
    pub(crate) fn tell_agents(
        &self,
        tx: &mut Transaction<'_>,
        news: &[WorkChange],
        by: Option<&LaunchId>,
    ) -> Result<(), StoreError> {
        for launch in concerned(tx, news)? {
            if by == Some(&launch.id) {
                continue;
            }
            match launch.key.purpose {
                Purpose::Chat => {
                    if news.iter().any(|change| change.ends_chat(&launch)) {
                        let at = tx.now();
                        let exit_grace = self.settings.run.linger;
                        self.happen(tx, &launch, &[LaunchEvent::ChatEnded { at, exit_grace }])?;
                    }
                }
                // A check has no agent that could read a notice.
                Purpose::Check => {}
                Purpose::Task => {
                    let launch = with_lost_task(tx, launch, news)?;
                    let meanings = news.iter().filter_map(|change| change.means(&launch)).collect();
                    tell(tx, launch, meanings)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the open launches that the changes may concern, by claim time, then id.
fn concerned(tx: &mut Read<'_>, news: &[WorkChange]) -> Result<Vec<Launch>, StoreError> {
    let mut launches = Vec::new();
    for change in news {
        launches.extend(launches::list_concerned(tx, change)?);
    }
    let order = |launch: &Launch| (launch.claimed_at, launch.id.clone());
    launches.sort_by_key(order);
    launches.dedup_by_key(|launch| launch.id.clone());
    Ok(launches)
}

/// Returns the launch with the task that its agent would have been given before the changes. The
/// agent has not asked for a task, and none remains for it.
fn with_lost_task(
    tx: &mut Read<'_>,
    launch: Launch,
    news: &[WorkChange],
) -> Result<Launch, StoreError> {
    let before = news.iter().filter_map(|change| change.work_before(&launch.key));
    let before: Vec<Task> = before.cloned().collect();
    if launch.task.is_some() || before.is_empty() || !in_progress(tx, &launch.key)?.is_empty() {
        return Ok(launch);
    }
    let graph = graph_above(tx, &before)?;
    let task = next_task(launch.claimed_task.as_ref(), &before, &graph);
    Ok(Launch { task: task.map(|task| task.id.clone()), ..launch })
}

/// Writes the notices for an agent.
fn tell(
    tx: &mut Transaction<'_>,
    launch: Launch,
    meanings: Vec<Meaning>,
) -> Result<(), StoreError> {
    if meanings.is_empty() {
        return Ok(());
    }
    let open = open_of(tx, &launch.id)?;
    let now = tx.now();
    let all = after_changes(&open, &launch.id, meanings, now, || tx.new_id(NoticeId::PREFIX));
    for notice in all.iter().filter(|notice| !open.contains(notice)) {
        notices::put(tx, notice, &launch.key)?;
    }
    // An agent that learns of its task by a notice works on it from then on, so that later changes
    // find its launch.
    let is_of_task = |notice: &Notice| notice.task == launch.task;
    if let Some(task) = launch.task.as_ref().filter(|_| all.iter().skip(open.len()).any(is_of_task))
    {
        let begun = executions::list_of_launch(tx, &launch.id)?;
        if begun.iter().all(|execution| execution.task != *task) {
            let execution = new_execution(tx, &launch, task);
            executions::put(tx, None, &execution)?;
        }
    }
    let n_notices = n_open(&all);
    if launch.n_notices != n_notices {
        launches::put(tx, &Launch { n_notices, ..launch })?;
    }
    Ok(())
}
