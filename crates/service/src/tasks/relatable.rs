//! The tasks from which a person picks the parent or a dependency of a task.

use domain::task::{Relation, TaskSearch};
use domain::{ProjectId, Task, TaskId};
use store::rows::tasks;
use store::{ArchivedTasks, TaskFilter};

use super::{Tasks, ranked};
use crate::ServiceError;

impl Tasks {
    /// Returns the tasks with these ids, in this order. A task that does not exist is left out.
    pub async fn list_of_ids(&self, ids: &[TaskId]) -> Result<Vec<Task>, ServiceError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids = ids.to_vec();
        let read = self.core.read(move |tx| {
            let mut found = tasks::list_of_ids(tx, ids.iter().cloned())?;
            Ok(ids.iter().filter_map(|id| found.remove(id)).collect())
        });
        read.await
    }

    /// Returns open tasks of a project that can get a relation to a task and contain all words of a
    /// text: the best first, at most `limit`. A new task, `None`, has no relation that prevents one.
    pub async fn list_relatable(
        &self,
        project: &ProjectId,
        task: Option<&TaskId>,
        relation: Relation,
        text: &str,
        limit: usize,
    ) -> Result<Vec<Task>, ServiceError> {
        let task = task.cloned();
        let project = project.clone();
        let search = TaskSearch::new(text);
        let read = self.core.read(move |tx| {
            let links = if task.is_some() { tasks::list_links(tx, &project)? } else { Vec::new() };
            let impossible = task.as_ref().map(|task| relation.impossible_for(task, &links));
            let impossible = impossible.unwrap_or_default();
            let found = if search.is_empty() {
                tasks::list_newest_open(tx, &project, limit + impossible.len())?
            } else {
                let filter = TaskFilter {
                    project: Some(project.clone()),
                    only_open: true,
                    archived: ArchivedTasks::LeftOut,
                    ..TaskFilter::default()
                };
                ranked(tx, &filter, &search)?.into_values().collect()
            };
            let possible = found.into_iter().filter(|other| !impossible.contains(&other.id));
            Ok(possible.take(limit).collect())
        });
        read.await
    }
}
