//! Open launches in the form in which the pages of agents show them.

use std::collections::{BTreeMap, BTreeSet};

use super::shown::{Elapsed, Since, size};
use crate::{Problem, RestState};
use domain::{AgentId, Instance, Launch, LaunchId, ProjectId, Purpose, ShortId, TaskId};
use service::StatusView;

/// An open launch.
pub(super) struct InstanceRow {
    pub(super) launch: LaunchId,
    pub(super) agent: AgentId,
    pub(super) project: ProjectId,
    pub(super) purpose: Purpose,
    pub(super) state: String,
    pub(super) since: Elapsed,
    pub(super) pid: Option<i32>,
    pub(super) memory: Option<String>,
    pub(super) is_adopted: bool,
    pub(super) is_suspended: bool,
    pub(super) is_unkillable: bool,
    /// The time since which it has been silent for long, as `status` shows it.
    pub(super) silent_since: Option<Since>,
    /// The short id and the title of its task.
    pub(super) task_title: Option<(ShortId, String)>,
    pub(super) last_line: Option<String>,
}

impl InstanceRow {
    /// Returns whether a stop changes something: its end has not begun.
    pub(super) fn is_stoppable(&self) -> bool {
        matches!(self.state.as_str(), "starting" | "running")
    }
}

/// Returns the open launches, with their tasks and what coordinators report of the processes.
pub(super) async fn instance_rows(
    state: &RestState,
    view: &StatusView,
) -> Result<Vec<InstanceRow>, Problem> {
    let mut memory = state.service.launches.memory_of_instances().await;
    let tasks: BTreeSet<TaskId> =
        view.open.iter().filter_map(|launch| launch.task.clone()).collect();
    let tasks = state.service.tasks.titles(tasks).await?;
    let processes: BTreeMap<&LaunchId, &Instance> = view
        .coordinators
        .iter()
        .flat_map(|coordinator| &coordinator.status.instances)
        .map(|instance| (&instance.launch, instance))
        .collect();
    let row = |launch: &Launch| {
        let process = processes.get(&launch.id);
        let condition = process.map(|process| process.condition).unwrap_or_default();
        InstanceRow {
            launch: launch.id.clone(),
            agent: launch.key.agent.clone(),
            project: launch.key.project.clone(),
            purpose: launch.key.purpose,
            state: launch.state.as_str().to_owned(),
            since: Elapsed(launch.started_at.unwrap_or(launch.claimed_at)),
            pid: launch.pid,
            memory: memory.remove(&launch.id).map(size),
            is_adopted: process.is_some_and(|process| process.adopted),
            is_suspended: condition.suspended_since.is_some(),
            is_unkillable: condition.unkillable_since.is_some(),
            silent_since: condition.silent_since.map(Since),
            task_title: launch.task.as_ref().and_then(|task| tasks.get(task).cloned()),
            last_line: launch.activity.progress.clone(),
        }
    };
    Ok(view.open.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Timestamp;

    #[test]
    fn only_a_launch_whose_end_has_not_begun_can_be_stopped() {
        let is_stoppable = |state: &str| {
            let row = InstanceRow {
                launch: "lch_1".parse().unwrap(),
                agent: "agt".parse().unwrap(),
                project: "prj".parse().unwrap(),
                purpose: Purpose::Task,
                state: state.to_owned(),
                since: Elapsed(Timestamp::from_millis(0)),
                pid: None,
                memory: None,
                is_adopted: false,
                is_suspended: false,
                is_unkillable: false,
                silent_since: None,
                task_title: None,
                last_line: None,
            };
            row.is_stoppable()
        };
        let states = ["starting", "running", "stopping", "ending", "ended"];
        assert_eq!(states.map(is_stoppable), [true, true, false, false, false]);
    }
}
