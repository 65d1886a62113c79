//! Open launches in the form in which the pages of agents show them.

use std::collections::BTreeSet;

use super::shown::{Elapsed, Since, size};
use crate::{Problem, RestState};
use api::status::InstanceBody;
use domain::{AgentId, LaunchId, ProjectId, Purpose, ShortId, TaskId};

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

/// Returns the open launches, with their tasks and the memory of the processes.
pub(super) async fn instance_rows(
    state: &RestState,
    instances: Vec<InstanceBody>,
) -> Result<Vec<InstanceRow>, Problem> {
    let mut memory = state.service.launches.memory_of_instances().await;
    let tasks: BTreeSet<TaskId> =
        instances.iter().filter_map(|instance| instance.launch.task_id.clone()).collect();
    let tasks = state.service.tasks.titles(tasks).await?;
    let row = |instance: InstanceBody| {
        let launch = instance.launch;
        InstanceRow {
            since: Elapsed(launch.started_at.unwrap_or(launch.claimed_at)),
            memory: memory.remove(&launch.launch_id).map(size),
            is_adopted: instance.adopted,
            is_suspended: instance.suspended_since.is_some(),
            is_unkillable: instance.unkillable_since.is_some(),
            silent_since: instance.silent_since.map(Since),
            launch: launch.launch_id,
            agent: launch.agent_id,
            project: launch.project_id,
            purpose: launch.purpose,
            state: launch.state,
            pid: launch.pid,
            task_title: launch.task_id.and_then(|task| tasks.get(&task).cloned()),
            last_line: launch.activity.progress,
        }
    };
    Ok(instances.into_iter().map(row).collect())
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
