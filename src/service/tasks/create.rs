//! `create_task` and `create_tasks_batch`: an agent splits its work, assigns parts of it to others,
//! and notes later work. A batch is created as a whole or not at all.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::creation::CreationLimits;
use crate::domain::event::NewEvent;
use crate::domain::guidance::NewPlace;
use crate::domain::id::{AgentId, TaskId};
use crate::domain::limits;
use crate::domain::printable::excerpt;
use crate::domain::task::{Actor, NewTask, change};
use crate::domain::{InstanceKey, Priority, Refusal, Task, TaskStatus};
use crate::rows::{Transaction, tasks};
use crate::store::Read;

use crate::service::catalog::check_assignable;
use crate::service::sessions::caller::fence;

use super::Tasks;
use super::rules::{Wish, graph_around, parts_of, write_task};
use crate::service::creations::{Creation, TASK_CREATED};
use crate::service::{Caller, ServiceError};

/// The greatest number of tasks of one call.
pub const MAX_BATCH: usize = 100;

/// A task as an agent wants it. It names other tasks by their ids, and tasks of the same batch by
/// their local ids.
#[derive(Debug, Clone)]
pub struct Draft {
    /// `None` if no other draft names it.
    pub local_id: Option<String>,
    pub title: String,
    pub description: String,
    pub parent: Option<String>,
    pub priority: Priority,
    pub dependencies: Vec<String>,
    /// `None` stands for the creator if the draft is part of an existing task, and otherwise for no
    /// assignee yet.
    pub assignee: Option<AgentId>,
}

/// The tasks of a successful call.
#[derive(Debug, Clone)]
pub struct Created {
    /// The tasks in the order of their drafts.
    pub tasks: Vec<Task>,
    pub local_id_to_real_id: BTreeMap<String, TaskId>,
    pub instruction: &'static str,
}

impl Tasks {
    /// Creates tasks in the project of `caller`. Parts of its own tasks are todo. Tasks without a
    /// parent are in the backlog with all their parts until people decide. Repeating the call
    /// creates more tasks.
    ///
    /// # Errors
    /// Returns `Invalid` for no tasks, for more than `MAX_BATCH`, and for a local id that is
    /// duplicate or unknown. Returns the refusals of [`limits`] and of [`change`]. Returns
    /// `AgentNotFound` and `NotAssigned` for an assignee, and `TooManyTasks` and `TooManySubtasks`.
    /// If a draft has a local id, [`Refusal::InBatch`] names the draft.
    pub async fn create(&self, caller: &Caller, drafts: &[Draft]) -> Result<Created, ServiceError> {
        let ids: Vec<TaskId> =
            drafts.iter().map(|_| self.core.world.new_id(TaskId::PREFIX)).collect();
        let batch = Batch::new(drafts, &ids)?;
        let reservation = self
            .creations
            .reserve(&self.core, &caller.launch, Creation::Task, drafts.len())
            .await?;
        let cleaned: Vec<Draft> = drafts
            .iter()
            .map(|draft| Draft {
                title: self.core.redacted(&draft.title).into_owned(),
                description: self.core.redacted(&limits::cleaned(&draft.description)).into_owned(),
                ..draft.clone()
            })
            .collect();
        let (caller, new_ids, settings) = (caller.clone(), ids.clone(), self.core.settings());
        let tasks = self
            .core
            .write(move |tx| {
                let batch = Batch::new(&cleaned, &new_ids)?;
                create(tx, &caller, &batch, &cleaned, &new_ids, &settings.creation)
            })
            .await?;
        reservation.keep();
        let is_for_now = drafts.iter().any(|draft| batch.is_part_of_what_there_is(draft));
        let place = if is_for_now { NewPlace::InTree } else { NewPlace::Top };
        Ok(Created {
            tasks,
            local_id_to_real_id: batch
                .named
                .iter()
                .map(|(name, (_, id))| ((*name).to_owned(), (*id).clone()))
                .collect(),
            instruction: self.core.guidance().tasks_created(place),
        })
    }
}

/// Creates all tasks of a batch, or none.
fn create(
    tx: &mut Transaction<'_>,
    caller: &Caller,
    batch: &Batch<'_>,
    drafts: &[Draft],
    ids: &[TaskId],
    limits: &CreationLimits,
) -> Result<Vec<Task>, ServiceError> {
    fence(tx, caller)?;
    let key = &caller.session.key;
    let mut tasks = Vec::with_capacity(drafts.len());
    for (draft, id) in drafts.iter().zip(ids) {
        let new = batch.new_task(draft, key)?;
        check_assignable(tx, new.assignee.as_ref(), &key.project)
            .map_err(|error| batch.told_of(draft, error))?;
        let task = new.to_task(id.clone(), tx.now());
        tasks.push(task.map_err(|refusal| batch.refusal_of(draft, refusal))?);
    }
    let wishes: Vec<Wish<'_>> = tasks.iter().map(|task| (None, task)).collect();
    let graph = graph_around(tx, &wishes)?;
    let mut made = Vec::with_capacity(tasks.len());
    for (draft, task) in drafts.iter().zip(&tasks) {
        let of_task = change(None, task, Actor::Agent(&key.agent), &graph, tx.now());
        made.extend(of_task.map_err(|refusal| batch.refusal_of(draft, refusal))?);
    }
    check_number_of_subtasks(tx, &tasks, limits)?;
    for task in made {
        let kind = if task.revision == 0 { TASK_CREATED } else { "task.status" };
        let launch = (task.revision == 0).then(|| caller.launch.id.clone());
        let event = NewEvent { launch, ..tasks::event(kind, &task, tx.now()) };
        write_task(tx, task, Some(event))?;
    }
    Ok(tasks)
}

/// Checks the number of subtasks that each parent of `new` will have.
fn check_number_of_subtasks(
    tx: &mut Read<'_>,
    new: &[Task],
    limits: &CreationLimits,
) -> Result<(), ServiceError> {
    let mut n_new: BTreeMap<&TaskId, usize> = BTreeMap::new();
    for parent in new.iter().filter_map(|task| task.parent.as_ref()) {
        *n_new.entry(parent).or_default() += 1;
    }
    for (parent, n_new) in n_new {
        let is_stored = !new.iter().any(|task| task.id == *parent);
        let n_subtasks = if is_stored { parts_of(tx, parent)?.len() } else { 0 };
        limits.check_subtasks(parent, n_subtasks, n_new)?;
    }
    Ok(())
}

/// Drafts by their local ids.
struct Batch<'a> {
    named: BTreeMap<&'a str, (&'a Draft, &'a TaskId)>,
}

impl<'a> Batch<'a> {
    fn new(drafts: &'a [Draft], ids: &'a [TaskId]) -> Result<Self, Refusal> {
        if drafts.is_empty() || drafts.len() > MAX_BATCH {
            let n_drafts = drafts.len();
            return Err(Refusal::Invalid(format!(
                "a batch has 1 to {MAX_BATCH} tasks, not {n_drafts}"
            )));
        }
        let mut named = BTreeMap::new();
        for (draft, id) in drafts.iter().zip(ids) {
            let Some(name) = draft.local_id.as_deref() else {
                continue;
            };
            limits::LOCAL_ID.take(name)?;
            if name.trim().is_empty() {
                return Err(Refusal::Invalid("a local_id must not be empty".to_owned()));
            }
            if named.insert(name, (draft, id)).is_some() {
                return Err(Refusal::Invalid(format!("local_id `{name}` is given twice")));
            }
        }
        Ok(Self { named })
    }

    /// Returns the task of a draft. Parts of existing tasks are todo; other tasks wait for people.
    fn new_task(&self, draft: &Draft, key: &InstanceKey) -> Result<NewTask, Refusal> {
        let is_for_now = self.is_part_of_what_there_is(draft);
        let resolve = |name: &String| self.resolve(draft, name);
        Ok(NewTask {
            id: None,
            project: key.project.clone(),
            title: draft.title.clone(),
            description: draft.description.clone(),
            status: if is_for_now { TaskStatus::Todo } else { TaskStatus::Backlog },
            priority: draft.priority,
            assignee: draft.assignee.clone().or_else(|| is_for_now.then(|| key.agent.clone())),
            parent: draft.parent.as_ref().map(resolve).transpose()?,
            dependencies: draft.dependencies.iter().map(resolve).collect::<Result<_, _>>()?,
        })
    }

    fn resolve(&self, draft: &Draft, name: &str) -> Result<TaskId, Refusal> {
        if let Some((_, id)) = self.named.get(name) {
            return Ok((*id).clone());
        }
        name.parse().map_err(|_| {
            let name = excerpt(name, 80);
            let problem =
                format!("`{name}` is neither a local_id of the batch nor the id of a task");
            self.refusal_of(draft, Refusal::Invalid(problem))
        })
    }

    /// Returns whether a draft is, at some depth, part of a task outside the batch.
    fn is_part_of_what_there_is(&self, draft: &Draft) -> bool {
        let (mut parent, mut seen) = (draft.parent.as_deref(), BTreeSet::new());
        while let Some(name) = parent.filter(|name| seen.insert(*name)) {
            match self.named.get(name) {
                Some((above, _)) => parent = above.parent.as_deref(),
                None => return true,
            }
        }
        false
    }

    /// Returns the refusal with the local id of the draft, because the caller does not know the ids
    /// of tasks that were not created.
    fn refusal_of(&self, draft: &Draft, refusal: Refusal) -> Refusal {
        let Some(local_id) = draft.local_id.clone() else {
            return refusal;
        };
        let names = self.named.iter();
        let problem = names
            .fold(refusal.to_string(), |text, (name, (_, id))| text.replace(id.as_str(), name));
        Refusal::InBatch { local_id, problem, refusal: Box::new(refusal) }
    }

    fn told_of(&self, draft: &Draft, error: ServiceError) -> ServiceError {
        match error {
            ServiceError::Refused(refusal) => self.refusal_of(draft, refusal).into(),
            other @ ServiceError::Store(_) => other,
        }
    }
}
