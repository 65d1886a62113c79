//! The tasks that an agent creates in one call, and the names that they have for one another.

use std::collections::{BTreeMap, BTreeSet};

use super::{NewTask, Priority, TaskStatus};
use crate::id::{AgentId, TaskId};
use crate::key::InstanceKey;
use crate::limits;
use crate::printable::excerpt;
use crate::refusal::Refusal;

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

/// The drafts of one call, by their local ids.
#[derive(Debug)]
pub struct Batch<'a> {
    named: BTreeMap<&'a str, (&'a Draft, &'a TaskId)>,
}

impl<'a> Batch<'a> {
    /// `ids` has the id of each draft.
    ///
    /// # Errors
    /// `Invalid` for no drafts, more than [`MAX_BATCH`], and a local id that is empty or duplicate;
    /// the refusals of [`limits`].
    pub fn new(drafts: &'a [Draft], ids: &'a [TaskId]) -> Result<Self, Refusal> {
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

    /// Returns the ids of the drafts by their local ids.
    pub fn ids(&self) -> BTreeMap<String, TaskId> {
        self.named.iter().map(|(name, (_, id))| ((*name).to_owned(), (*id).clone())).collect()
    }

    /// Returns the task of a draft of the agent of `key`. Parts of existing tasks are todo; other
    /// tasks wait for people.
    ///
    /// # Errors
    /// `Invalid` for the name of a task that is neither a local id nor an id.
    pub fn new_task(&self, draft: &Draft, key: &InstanceKey) -> Result<NewTask, Refusal> {
        let is_for_now = self.is_part_of_what_there_is(draft);
        let resolve = |name: &String| self.resolve(draft, name);
        Ok(NewTask {
            description: draft.description.clone(),
            status: if is_for_now { TaskStatus::Todo } else { TaskStatus::Backlog },
            priority: draft.priority,
            assignee: draft.assignee.clone().or_else(|| is_for_now.then(|| key.agent.clone())),
            parent: draft.parent.as_ref().map(resolve).transpose()?,
            dependencies: draft.dependencies.iter().map(resolve).collect::<Result<_, _>>()?,
            ..NewTask::new(key.project.clone(), draft.title.clone())
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
    pub fn is_part_of_what_there_is(&self, draft: &Draft) -> bool {
        let mut parent = draft.parent.as_deref();
        let mut seen = BTreeSet::new();
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
    pub fn refusal_of(&self, draft: &Draft, refusal: Refusal) -> Refusal {
        let Some(local_id) = draft.local_id.clone() else {
            return refusal;
        };
        let names = self.named.iter();
        let problem = names
            .fold(refusal.to_string(), |text, (name, (_, id))| text.replace(id.as_str(), name));
        Refusal::InBatch { local_id, problem, refusal: Box::new(refusal) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Purpose;

    fn draft(local_id: Option<&str>, parent: Option<&str>) -> Draft {
        Draft {
            local_id: local_id.map(str::to_owned),
            title: "Login".to_owned(),
            description: String::new(),
            parent: parent.map(str::to_owned),
            priority: Priority::Medium,
            dependencies: Vec::new(),
            assignee: None,
        }
    }

    fn ids(n: usize) -> Vec<TaskId> {
        (0..n).map(|n| format!("tsk_{n}").parse().unwrap()).collect()
    }

    fn key() -> InstanceKey {
        InstanceKey::new("ann".parse().unwrap(), "prj".parse().unwrap(), Purpose::Task)
    }

    fn problem(drafts: &[Draft]) -> String {
        Batch::new(drafts, &ids(drafts.len())).unwrap_err().to_string()
    }

    #[test]
    fn parts_of_existing_tasks_are_todo_for_their_creator_and_others_wait_for_people() {
        use TaskStatus::{Backlog, Todo};
        let drafts = [
            draft(Some("top"), None),
            draft(Some("part"), Some("top")),
            draft(Some("step"), Some("tsk_own")),
            draft(None, Some("step")),
        ];
        let ids = ids(drafts.len());
        let batch = Batch::new(&drafts, &ids).unwrap();
        let tasks = drafts.each_ref().map(|draft| batch.new_task(draft, &key()).unwrap());
        let statuses = tasks.each_ref().map(|task| task.status);
        assert_eq!(statuses, [Backlog, Backlog, Todo, Todo]);
        let is_assigned = tasks.each_ref().map(|task| task.assignee.is_some());
        assert_eq!(is_assigned, [false, false, true, true]);
        let parents = tasks.each_ref().map(|task| task.parent.as_ref().map(TaskId::as_str));
        assert_eq!(parents, [None, Some("tsk_0"), Some("tsk_own"), Some("tsk_2")]);
        assert_eq!(batch.ids().len(), 3);
    }

    #[test]
    fn drafts_that_are_parts_of_each_other_are_parts_of_nothing() {
        let drafts = [draft(Some("a"), Some("b")), draft(Some("b"), Some("a"))];
        let ids = ids(2);
        let batch = Batch::new(&drafts, &ids).unwrap();
        assert!(!batch.is_part_of_what_there_is(&drafts[0]));
    }

    #[test]
    fn local_ids_are_unique_and_a_batch_has_a_limited_number_of_drafts() {
        assert_eq!(problem(&[]), "a batch has 1 to 100 tasks, not 0");
        let many = vec![draft(None, None); MAX_BATCH + 1];
        assert_eq!(problem(&many), "a batch has 1 to 100 tasks, not 101");
        assert_eq!(problem(&[draft(Some(" "), None)]), "a local_id must not be empty");
        let twice = [draft(Some("a"), None), draft(Some("a"), None)];
        assert_eq!(problem(&twice), "local_id `a` is given twice");
    }

    #[test]
    fn a_refusal_names_drafts_as_the_caller_named_them() {
        let drafts = [draft(Some("a"), None), draft(Some("b"), Some("no id"))];
        let ids = ids(2);
        let batch = Batch::new(&drafts, &ids).unwrap();
        let refusal = Refusal::Invalid("tsk_0 is in the way of tsk_1".to_owned());
        let Refusal::InBatch { local_id, problem, .. } = batch.refusal_of(&drafts[1], refusal)
        else {
            panic!("the draft is not named");
        };
        assert_eq!((local_id.as_str(), problem.as_str()), ("b", "a is in the way of b"));
        let unknown = batch.new_task(&drafts[1], &key()).unwrap_err().to_string();
        assert!(unknown.contains("`no id` is neither a local_id"), "{unknown}");
    }
}
