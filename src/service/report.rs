//! `report_completed`: the end of an agent's work as the agent sees it, and its effect on the task (contract.md).

use crate::crash_point::{self, CrashPoint};
use crate::domain::launch::{LaunchEvent, ReportResult};
use crate::domain::limits;
use crate::domain::session::SessionEndReason;
use crate::domain::task::{Actor, next_task};
use crate::domain::{Execution, Launch, Task, TaskStatus, Timestamp};
use crate::store::{Change, Commit};

use super::task_rules::TaskChange;
use super::{Caller, Service, ServiceError};

/// What an agent reports.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    pub result: ReportResult,
    pub summary: Option<&'a str>,
    pub next_steps: Option<&'a str>,
}

impl Service {
    /// Takes the report of `caller`, ends its session and moves its task: success to done, anything else to blocked. A status
    /// that a person set meanwhile stays. Repeated, it answers the same and changes nothing.
    ///
    /// # Errors
    /// `SubtasksOpen`, for success only; the refusals of [`limits`].
    pub async fn report(
        &self,
        caller: &Caller,
        report: Report<'_>,
    ) -> Result<&'static str, ServiceError> {
        let summary = self.redacted_taken(limits::SUMMARY.take_optional(report.summary)?);
        let next_steps = self.redacted_taken(limits::NEXT_STEPS.take_optional(report.next_steps)?);
        let report =
            Report { summary: summary.as_deref(), next_steps: next_steps.as_deref(), ..report };
        if let Some(earlier) = caller.launch.report {
            return self.answer_to_report(&caller.launch, earlier).await;
        }
        self.transact(|| async move {
            let now = self.now();
            let latest = self.store.launch(&caller.launch.id).await?;
            if let Some((launch, earlier)) =
                latest.and_then(|launch| launch.report.map(|earlier| (launch, earlier)))
            {
                return Ok((Commit::default(), self.answer_to_report(&launch, earlier).await?));
            }
            let (launch, mut expect) = self.fence(caller).await?;
            // An agent that never asked for its task reports on the one it was started for.
            let (launch, mut changes) = match launch.task {
                Some(_) => (launch, Vec::new()),
                None => self.bind_unasked(launch, report, now).await?,
            };
            let answer = self.answer_to_report(&launch, report.result).await?;
            if let Some(moved) = self.move_reported_task(&launch, report).await? {
                expect.extend(moved.expect);
                changes.extend(moved.changes);
            }
            for mut execution in self.store.executions_of_launch(&launch.id).await? {
                if Some(&execution.task) == launch.task.as_ref() {
                    execution.result = Some(report.result);
                    execution.summary = report.summary.map(str::to_owned);
                    // What was saved on the way stands where nothing newer is said.
                    execution.next_steps =
                        report.next_steps.map(str::to_owned).or(execution.next_steps);
                    execution.ended_at = Some(now);
                    changes.push(Change::Execution(execution));
                }
            }
            for session in self.store.sessions_of(&launch.id).await? {
                if session.ended.is_none() {
                    changes.push(Change::Session(session.end(SessionEndReason::Reported, now)));
                }
            }
            changes.extend(self.settle_notices(&launch).await?);
            self.tell_agents(&mut changes, Some(&launch.id)).await?;
            let launch = Launch { n_notices: 0, ..launch };
            let event = LaunchEvent::Reported {
                result: report.result,
                at: now,
                linger: self.settings().linger,
            };
            let of_launch = self.commit_by(&launch, &event, now).await?;
            expect.extend(of_launch.expect);
            Ok((Commit { expect, changes: merged(changes, of_launch.changes) }, answer))
        })
        .await
        .inspect(|_| crash_point::reach(CrashPoint::ReportTaken))
    }

    /// Returns the answer to a report. A success is not said to complete a task that people have blocked, cancelled or reassigned.
    async fn answer_to_report(
        &self,
        launch: &Launch,
        result: ReportResult,
    ) -> Result<&'static str, ServiceError> {
        let task = match &launch.task {
            Some(task) => self.store.task(task).await?,
            None => None,
        };
        let is_completed =
            |task: &Task| task.status == TaskStatus::Done || is_still_theirs(task, launch);
        match result {
            ReportResult::Success if task.is_some_and(|task| !is_completed(&task)) => {
                Ok(self.guidance().reported(ReportResult::Blocked))
            }
            _ => Ok(self.guidance().reported(result)),
        }
    }

    /// The launch with the task it would have been given, and the record of its work.
    async fn bind_unasked(
        &self,
        launch: Launch,
        report: Report<'_>,
        now: Timestamp,
    ) -> Result<(Launch, Vec<Change>), ServiceError> {
        let in_progress = self.tasks_in_progress(&launch.key).await?;
        let graph = self.graph_above(&in_progress).await?;
        let Some(task) = next_task(None, &in_progress, &graph) else {
            return Ok((launch, Vec::new()));
        };
        let execution = Execution {
            ended_at: Some(now),
            result: Some(report.result),
            summary: report.summary.map(str::to_owned),
            next_steps: report.next_steps.map(str::to_owned),
            ..self.new_execution(&launch, &task.id)
        };
        Ok((Launch { task: Some(task.id.clone()), ..launch }, vec![Change::Execution(execution)]))
    }

    /// Moves the launch's task, if it has one and nobody else decided about it meanwhile.
    async fn move_reported_task(
        &self,
        launch: &Launch,
        report: Report<'_>,
    ) -> Result<Option<TaskChange>, ServiceError> {
        let Some(task) = &launch.task else {
            return Ok(None);
        };
        let Some(task) = self.store.task(task).await?.filter(|task| is_still_theirs(task, launch))
        else {
            return Ok(None);
        };
        let (to, reason) = match report.result {
            ReportResult::Success => (TaskStatus::Done, None),
            ReportResult::Failed => {
                (TaskStatus::Blocked, Some(report.summary.unwrap_or("the agent reported failure")))
            }
            ReportResult::Blocked => (
                TaskStatus::Blocked,
                Some(report.summary.unwrap_or("the agent reported that it is blocked")),
            ),
        };
        self.move_task(&task, to, reason, Actor::Agent(&launch.key.agent)).await.map(Some)
    }
}

/// A person who moved or reassigned the task meanwhile has decided.
fn is_still_theirs(task: &Task, launch: &Launch) -> bool {
    task.status == TaskStatus::InProgress && task.assignee.as_ref() == Some(&launch.key.agent)
}

/// Both lists, with what an agent without a keeper gets at its immediate end folded into the rows already changed.
fn merged(mut changes: Vec<Change>, of_launch: Vec<Change>) -> Vec<Change> {
    for change in of_launch {
        match change {
            Change::Session(_) => {}
            Change::Execution(ended) => {
                let same = changes.iter_mut().find_map(|earlier| match earlier {
                    Change::Execution(execution) if execution.id == ended.id => Some(execution),
                    _ => None,
                });
                match same {
                    Some(execution) => {
                        (execution.outcome, execution.usage, execution.failure) =
                            (ended.outcome, ended.usage, ended.failure);
                    }
                    None => changes.push(Change::Execution(ended)),
                }
            }
            other => changes.push(other),
        }
    }
    changes
}
