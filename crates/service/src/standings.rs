//! The state of the work on tasks: what works on each, or why nothing does.

use std::collections::{BTreeMap, BTreeSet};

use super::{Service, ServiceError};
use domain::task::Mover;
use domain::waiting::{WaitFacts, WaitReason, Waiting};
use domain::{InstanceKey, Launch, Purpose, ShortId, Task, TaskId, TaskStatus};

/// The facts about the work on a set of tasks, read together.
#[derive(Debug, Default)]
pub struct Standings {
    open: BTreeMap<InstanceKey, Launch>,
    /// The waits of the agents whose tasks are in progress: of those without an open launch, and of
    /// those on silent hosts.
    pub waits: BTreeMap<InstanceKey, Waiting>,
    /// The open launches by the tasks that they work on.
    by_task: BTreeMap<TaskId, InstanceKey>,
    short_ids: BTreeMap<TaskId, ShortId>,
    /// The names of those who blocked tasks without a reason.
    blocked_by: BTreeMap<TaskId, String>,
}

impl Standings {
    /// Reads the facts about `tasks`. The cost grows with the agents whose tasks are in progress,
    /// not with the tasks.
    pub async fn read(service: &Service, tasks: &[Task]) -> Result<Self, ServiceError> {
        let keys: BTreeSet<InstanceKey> = tasks
            .iter()
            .filter(|task| task.status == TaskStatus::InProgress)
            .filter_map(key_of)
            .collect();
        let has_no_reason =
            |task: &&Task| task.status == TaskStatus::Blocked && task.blocked_reason.is_none();
        let unexplained = tasks.iter().filter(has_no_reason).map(|task| task.id.clone());
        let movers = service.tasks.movers(unexplained.collect()).await?.into_iter();
        let name = |mover| match mover {
            Mover::Person(name) => name,
            Mover::Agent(agent) => agent.to_string(),
        };
        let blocked_by = movers.map(|(task, mover)| (task, name(mover))).collect();
        let ids: BTreeSet<&TaskId> = tasks.iter().map(|task| &task.id).collect();
        let is_about = |launch: &Launch| {
            let of = launch.task.as_ref();
            keys.contains(&launch.key) || of.is_some_and(|task| ids.contains(task))
        };
        let open = service.launches.open().await?.into_iter();
        let open: BTreeMap<InstanceKey, Launch> =
            open.filter(is_about).map(|launch| (launch.key.clone(), launch)).collect();
        if keys.is_empty() && open.is_empty() {
            return Ok(Self { blocked_by, ..Self::default() });
        }
        let works = |launch: &Launch| launch.task.clone().filter(|_| launch.report.is_none());
        let by_task = open.values().filter_map(|it| Some((works(it)?, it.key.clone()))).collect();
        let of_launches: BTreeSet<TaskId> =
            open.values().filter_map(|launch| launch.task.clone()).collect();
        let others = of_launches.iter().filter(|task| !ids.contains(task)).cloned().collect();
        let mut short_ids = service.tasks.short_ids(others).await?;
        let known = tasks.iter().filter(|task| of_launches.contains(&task.id));
        short_ids.extend(known.map(|task| (task.id.clone(), task.short_id.clone())));
        let idle = keys.into_iter().filter(|key| !open.contains_key(key)).collect();
        let waits = service.launches.why_of(idle).await?.into_iter().filter_map(|why| {
            let key = why.key.clone();
            Some((key, why.waiting()?))
        });
        let silent = open.values().filter_map(|launch| {
            let silent_host = Some(service.launches.silent_host_of(launch)?);
            let facts = WaitFacts { silent_host, ..WaitFacts::default() };
            Some((launch.key.clone(), Waiting::of(WaitReason::HostSilent).with_facts(facts)))
        });
        Ok(Self { waits: waits.chain(silent).collect(), open, by_task, short_ids, blocked_by })
    }

    /// Returns the wait of one of the tasks that were read.
    pub fn waiting(&self, task: &Task) -> Option<Waiting> {
        let of_agent = self.wait_of_agent(task);
        let reason = task.blocked_reason.as_deref();
        let waiting = Waiting::of_task(task.status, task.assignee.is_some(), reason, of_agent)?;
        Some(match self.blocked_by.get(&task.id).cloned() {
            stopped_by @ Some(_) => {
                waiting.with_facts(WaitFacts { stopped_by, ..WaitFacts::default() })
            }
            None => waiting,
        })
    }

    /// Returns the launch that works on one of the tasks that were read, or is about to. A launch
    /// may still work on a task that is not in progress any more.
    pub fn live(&self, task: &Task) -> Option<&Launch> {
        match task.status {
            TaskStatus::InProgress => {
                let is_free = self.wait_of_agent(task).is_none();
                self.open.get(&key_of(task)?).filter(|_| is_free)
            }
            TaskStatus::Done => None,
            _ => {
                let key = self.by_task.get(&task.id)?;
                self.open.get(key).filter(|_| !self.waits.contains_key(key))
            }
        }
    }

    /// Returns the wait of the assignee of a task; `None` if it works on the task, or is about to.
    fn wait_of_agent(&self, task: &Task) -> Option<Waiting> {
        let key = key_of(task)?;
        let works_on = self.open.get(&key).and_then(|launch| launch.task.as_ref());
        match works_on.filter(|other| **other != task.id) {
            Some(other) => {
                let first = self.short_ids.get(other)?.clone();
                Some(Waiting::of(WaitReason::OtherTaskFirst(first)))
            }
            None => self.waits.get(&key).cloned(),
        }
    }
}

fn key_of(task: &Task) -> Option<InstanceKey> {
    let agent = task.assignee.clone()?;
    let purpose = if task.checking_since.is_some() { Purpose::Check } else { Purpose::Task };
    Some(InstanceKey::new(agent, task.project.clone(), purpose))
}
