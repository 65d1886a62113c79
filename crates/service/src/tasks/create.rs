//! `create_task` and `create_tasks_batch`: an agent splits its work, assigns parts of it to others,
//! and notes later work. A batch is created as a whole or not at all.

use std::collections::BTreeMap;

use domain::Task;
use domain::creation::{CreationLimits, Creations};
use domain::event::NewEvent;
use domain::guidance::NewPlace;
use domain::id::TaskId;
use domain::limits;
use domain::task::batch::{Batch, Draft};
use domain::task::{Actor, NewTask, change};
use store::Read;
use store::rows::{Transaction, launches, tasks};

use crate::catalog::check_assignable;
use crate::sessions::caller::fence;

use super::ids::full_id_in;
use super::rules::{Wish, graph_around, parts_of, write_task};
use super::{Tasks, new_short_id};
use crate::{Caller, ServiceError};

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
    /// If a draft has a local id, [`InBatch`](domain::Refusal::InBatch) names the draft.
    pub async fn create(&self, caller: &Caller, drafts: &[Draft]) -> Result<Created, ServiceError> {
        let ids: Vec<TaskId> =
            drafts.iter().map(|_| self.core.world.new_id(TaskId::PREFIX)).collect();
        let drafts: Vec<Draft> = drafts
            .iter()
            .map(|draft| Draft {
                title: self.core.redacted(&draft.title).into_owned(),
                description: self.core.redacted(&limits::cleaned(&draft.description)).into_owned(),
                ..draft.clone()
            })
            .collect();
        let caller = caller.clone();
        let settings = self.core.settings();
        let guidance = self.core.guidance();
        self.core
            .write(move |tx| {
                let batch = Batch::new(&drafts, &ids)?;
                let tasks = create(tx, &caller, &batch, &drafts, &ids, &settings.creation)?;
                let is_for_now = drafts.iter().any(|draft| batch.is_part_of_what_there_is(draft));
                let place = if is_for_now { NewPlace::InTree } else { NewPlace::Top };
                Ok(Created {
                    tasks,
                    local_id_to_real_id: batch.ids(),
                    instruction: guidance.tasks_created(place),
                })
            })
            .await
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
    let launch = fence(tx, caller)?;
    let created = launches::creations(tx, &launch.id)?;
    limits.check_tasks(created.n_tasks, drafts.len())?;
    let key = &caller.session.key;
    let mut tasks = Vec::with_capacity(drafts.len());
    for (draft, id) in drafts.iter().zip(ids) {
        let new = batch.new_task(draft, key)?;
        let new = NewTask {
            parent: match &new.parent {
                Some(parent) => Some(full_id_in(tx, &key.project, parent)?),
                None => None,
            },
            dependencies: new
                .dependencies
                .iter()
                .map(|id| full_id_in(tx, &key.project, id))
                .collect::<Result<_, _>>()?,
            ..new
        };
        check_assignable(tx, new.assignee.as_ref(), &key.project)
            .map_err(|error| in_batch(batch, draft, error))?;
        let short_id = new_short_id(tx, &key.project)?;
        let task = new.to_task(id.clone(), short_id, tx.now());
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
        let of = (task.revision == 0).then(|| launch.id.clone());
        let event = NewEvent { launch: of, ..tasks::status_event(&task, tx.now()) };
        write_task(tx, task, Some(event))?;
    }
    let n_tasks = created.n_tasks + tasks.len();
    launches::set_creations(tx, &launch.id, Creations { n_tasks, ..created })?;
    Ok(tasks)
}

/// Names the draft in a refusal, like [`Batch::refusal_of`].
fn in_batch(batch: &Batch<'_>, draft: &Draft, error: ServiceError) -> ServiceError {
    match error {
        ServiceError::Refused(refusal) => batch.refusal_of(draft, refusal).into(),
        other @ ServiceError::Store(_) => other,
    }
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
