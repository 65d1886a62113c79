//! `report_completed`: the end of an agent's work as the agent sees it, and its effect on the task.

use domain::launch::{LaunchEvent, ReportResult};
use domain::limits;
use domain::notice::WorkChange;
use domain::session::SessionEndReason;
use domain::task::{Actor, next_task};
use domain::{Guidance, Launch, LaunchId, Task, TaskStatus};
use machine::crash_point::{self, CrashPoint};
use store::rows::{Transaction, executions, launches, tasks};
use store::{Read, StoreError};

use super::Sessions;
use super::caller::fence;
use super::notices;
use crate::launches::conversations;
use crate::tasks::mine::{in_progress, new_execution};
use crate::tasks::rules::{graph_above, move_task};
use crate::{Caller, Inputs, ServiceError, checks};

/// The report of an agent.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    pub result: ReportResult,
    pub summary: Option<&'a str>,
    pub next_steps: Option<&'a str>,
}

impl Sessions {
    /// Stores the report of `caller`, ends its session and moves its task: success to done,
    /// anything else to blocked. A status that a person set meanwhile stays. A repeated call
    /// returns the same answer and changes nothing.
    ///
    /// # Errors
    /// `SubtasksOpen`, for success only; the refusals of [`limits`].
    pub async fn report(
        &self,
        caller: &Caller,
        report: Report<'_>,
    ) -> Result<&'static str, ServiceError> {
        let summary = self.core.redacted_taken(limits::SUMMARY.take_optional(report.summary)?);
        let next_steps =
            self.core.redacted_taken(limits::NEXT_STEPS.take_optional(report.next_steps)?);
        let caller = caller.clone();
        let inputs = self.heard.inputs(&self.core);
        let guidance = self.core.guidance();
        let result = report.result;
        // A repeated report changes nothing, and does not use the only writer.
        let id = caller.launch.id.clone();
        let repeated = self.core.read(move |tx| Ok(answer_to_repeated(tx, guidance, &id)?)).await?;
        if let Some(answer) = repeated {
            return Ok(answer);
        }
        let answer = self
            .core
            .write(move |tx| {
                let report = Report {
                    result,
                    summary: summary.as_deref(),
                    next_steps: next_steps.as_deref(),
                };
                if let Some(answer) = answer_to_repeated(tx, guidance, &caller.launch.id)? {
                    return Ok(answer);
                }
                let launch = fence(tx, &caller)?;
                take(tx, &inputs, launch, report, guidance)
            })
            .await?;
        crash_point::reach(CrashPoint::ReportTaken);
        Ok(answer)
    }
}

/// Takes the first report of a launch, and returns the answer.
fn take(
    tx: &mut Transaction<'_>,
    inputs: &Inputs,
    launch: Launch,
    report: Report<'_>,
    guidance: Guidance,
) -> Result<&'static str, ServiceError> {
    // The report of an agent that never asked for its task concerns the task that it was started
    // for.
    let launch = match launch.task {
        Some(_) => launch,
        None => with_unasked_task(tx, launch)?,
    };
    let answer = answer_to_report(tx, guidance, &launch, report.result)?;
    let news = move_reported_task(tx, inputs, &launch, report)?;
    end_executions(tx, &launch, report)?;
    inputs.end_sessions(tx, &launch.id, SessionEndReason::Reported)?;
    notices::settle(tx, &launch)?;
    inputs.tell_agents(tx, &news, Some(&launch.id))?;
    let launch = Launch { n_notices: 0, ..launch };
    let event = LaunchEvent::Reported {
        result: report.result,
        at: tx.now(),
        linger: inputs.settings.run.linger,
    };
    inputs.happen(tx, &launch, &[event])?;
    Ok(answer)
}

/// Returns the answer to a report of a launch that has reported already.
fn answer_to_repeated(
    tx: &mut Read<'_>,
    guidance: Guidance,
    id: &LaunchId,
) -> Result<Option<&'static str>, StoreError> {
    let Some(launch) = launches::get(tx, id)? else {
        return Ok(None);
    };
    let Some(earlier) = launch.report else {
        return Ok(None);
    };
    answer_to_report(tx, guidance, &launch, earlier).map(Some)
}

/// Returns the answer to a report. A success does not complete a task that people have blocked,
/// cancelled or reassigned.
fn answer_to_report(
    tx: &mut Read<'_>,
    guidance: Guidance,
    launch: &Launch,
    result: ReportResult,
) -> Result<&'static str, StoreError> {
    let task = match &launch.task {
        Some(task) => tasks::get(tx, task)?,
        None => None,
    };
    let is_completed =
        |task: &Task| task.status == TaskStatus::Done || is_still_theirs(task, launch);
    Ok(match result {
        ReportResult::Success if task.is_some_and(|task| !is_completed(&task)) => {
            guidance.reported(ReportResult::Blocked)
        }
        _ => guidance.reported(result),
    })
}

/// Returns the launch with the task that it would have been given.
fn with_unasked_task(tx: &mut Read<'_>, launch: Launch) -> Result<Launch, StoreError> {
    let in_progress = in_progress(tx, &launch.key)?;
    let graph = graph_above(tx, &in_progress)?;
    let task = next_task(None, &in_progress, &graph).map(|task| task.id.clone());
    Ok(Launch { task, ..launch })
}

/// Writes the report into the work of a launch on its task. A launch that never asked for the task
/// has no record of it yet.
fn end_executions(
    tx: &mut Transaction<'_>,
    launch: &Launch,
    report: Report<'_>,
) -> Result<(), StoreError> {
    let Some(task) = &launch.task else {
        return Ok(());
    };
    let mut executions = executions::list_of_launch(tx, &launch.id)?;
    executions.retain(|execution| execution.task == *task);
    if executions.is_empty() {
        executions.push(new_execution(tx, launch, task));
    }
    for before in executions {
        let mut execution = before.clone();
        execution.result = Some(report.result);
        execution.summary = report.summary.map(str::to_owned);
        // A text that was saved earlier stays if the report has no newer one.
        execution.next_steps = report.next_steps.map(str::to_owned).or(execution.next_steps);
        execution.ended_at = Some(tx.now());
        executions::put(tx, Some(&before), &execution)?;
    }
    Ok(())
}

/// Moves the task of a launch, if it has one and no person has decided about it meanwhile. Returns
/// the resulting changes for agents.
fn move_reported_task(
    tx: &mut Transaction<'_>,
    inputs: &Inputs,
    launch: &Launch,
    report: Report<'_>,
) -> Result<Vec<WorkChange>, ServiceError> {
    let Some(id) = &launch.task else {
        return Ok(Vec::new());
    };
    let Some(task) = tasks::get(tx, id)?.filter(|task| is_still_theirs(task, launch)) else {
        return Ok(Vec::new());
    };
    if report.result == ReportResult::Success && checks::begin(tx, &inputs.settings, launch, &task)?
    {
        return Ok(Vec::new());
    }
    if report.result == ReportResult::Failed {
        conversations::note_failure(tx, launch)?;
    }
    tx.act_in(&launch.id, &task.id);
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
    Ok(move_task(tx, &task, to, reason, Actor::Agent(&launch.key.agent))?.news)
}

/// The task belongs to the launch unless a person has moved or reassigned it meanwhile.
fn is_still_theirs(task: &Task, launch: &Launch) -> bool {
    task.status == TaskStatus::InProgress && task.assignee.as_ref() == Some(&launch.key.agent)
}
