//! `get_my_task`: returns the task of the agent.

use serde::Serialize;

use super::{Effect, NoInput, ToolSpec};
use crate::envelope::TaskSession;
use domain::conversation::FreshReason;
use domain::id::{AgentId, TaskId};
use domain::launch::ReportResult;
use domain::workspace::{Conflict, Content, OtherTip, WorkspaceMode};
use domain::{Check, Comment, Execution, FailureClass, LastEnd, ShortId, Timestamp, Workspace};
use service::{DependencyResult, Service, ServiceError};

pub(crate) struct GetMyTask;

#[derive(Serialize)]
pub(crate) struct Output {
    success: bool,
    has_task: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<Task>,
    instruction: &'static str,
    /// The next call of an agent without a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'static str>,
}

#[derive(Serialize)]
struct Task {
    task_id: TaskId,
    short_id: ShortId,
    title: String,
    description: String,
    working_directory: std::path::PathBuf,
    /// The clone that the agent works in. An agent that works in the project's directory has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<Clone>,
    /// The number of this attempt at the task, by any agent.
    attempt: u32,
    /// The end of the attempt before.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_end: Option<End>,
    /// True if this conversation is that of the agent's attempt before. Absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    continued: Option<bool>,
    /// The reason why it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    fresh_because: Option<FreshReason>,
    /// The notes and the result of the agent's last run on the task.
    context: Run,
    /// The notes of the previous assignee.
    handoff: Run,
    /// The newest comments of people on the task, the oldest of them first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    comments: Vec<TaskComment>,
}

#[derive(Serialize)]
struct TaskComment {
    at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    author: Option<String>,
    text: String,
}

impl From<Comment> for TaskComment {
    fn from(comment: Comment) -> Self {
        Self { at: comment.created_at, author: comment.author, text: comment.text }
    }
}

#[derive(Serialize)]
struct Clone {
    mode: WorkspaceMode,
    /// The branch to commit on.
    branch: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base_commit: Option<String>,
    /// The work that earlier launches left in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<LeftWork>,
    /// The results of the tasks that it depends on. They are in the base, unless they conflict.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dependencies: Vec<Dependency>,
    /// The commit to merge, because the result conflicts with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    to_merge: Option<ToMerge>,
}

#[derive(Serialize)]
struct ToMerge {
    branch: String,
    commit: String,
    /// The files with lines that both sides changed.
    files: Vec<String>,
}

impl From<&Conflict> for ToMerge {
    fn from(Conflict { branch, commit, files, .. }: &Conflict) -> Self {
        Self { branch: branch.clone(), commit: commit.clone(), files: files.clone() }
    }
}

#[derive(Serialize)]
struct Dependency {
    task_id: TaskId,
    commit: String,
}

impl From<DependencyResult> for Dependency {
    fn from(DependencyResult { task, commit }: DependencyResult) -> Self {
        Self { task_id: task, commit }
    }
}

#[derive(Serialize)]
struct LeftWork {
    n_commits: u32,
    n_uncommitted: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_commit: Option<String>,
    /// The branches and commits with changes that the result, `last_commit`, lacks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<OtherTip>,
}

impl Clone {
    fn new(workspace: Workspace, dependencies: Vec<DependencyResult>) -> Self {
        let to_merge = workspace.content.as_ref().and_then(Content::asked_conflict);
        Self {
            to_merge: to_merge.map(ToMerge::from),
            mode: WorkspaceMode::Clone,
            branch: workspace.branch,
            base: workspace.base_ref,
            base_commit: workspace.base_commit,
            left: workspace.content.map(|content| LeftWork {
                others: content.open_others().cloned().collect(),
                n_commits: content.n_commits,
                n_uncommitted: content.n_uncommitted,
                last_commit: content.head_commit,
            }),
            dependencies: dependencies.into_iter().map(Dependency::from).collect(),
        }
    }
}

/// An earlier run. It is an empty object if there was none, so that clients of the specification
/// always find an object.
#[derive(Default, Serialize)]
struct Run {
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<AgentId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<ReportResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    findings: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_steps: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    /// The check of the operator that failed after the last reported success. Mend what it found,
    /// commit, and report success again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    checks: Vec<FailedCheck>,
}

#[derive(Serialize)]
struct FailedCheck {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<u64>,
    /// The end of what it printed.
    output: String,
}

impl From<Check> for FailedCheck {
    fn from(check: Check) -> Self {
        Self {
            name: check.name,
            commit: check.commit,
            exit_code: check.exit_code,
            seconds: check.duration.map(|duration| duration.as_secs()),
            output: check.output,
        }
    }
}

#[derive(Serialize)]
struct End {
    outcome: &'static str,
    /// The detail of the outcome, such as who stopped it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The kind of failure that its agent printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<FailureClass>,
    /// The last line about its progress that its CLI printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_line: Option<String>,
    at: Timestamp,
}

impl From<LastEnd> for End {
    fn from(end: LastEnd) -> Self {
        Self {
            outcome: end.outcome.as_str(),
            reason: end.outcome.reason(),
            failure: end.failure.map(|failure| failure.class),
            last_line: end.last_line,
            at: end.at,
        }
    }
}

impl From<Execution> for Run {
    fn from(execution: Execution) -> Self {
        Self {
            agent_id: Some(execution.key.agent),
            started_at: Some(execution.started_at),
            ended_at: execution.ended_at,
            result: execution.result,
            summary: execution.summary,
            progress: execution.progress,
            findings: execution.findings,
            next_steps: execution.next_steps,
            outcome: execution.outcome.map(|outcome| outcome.as_str()),
            checks: Vec::new(),
        }
    }
}

impl ToolSpec for GetMyTask {
    const NAME: &'static str = "get_my_task";
    const TEXT: &'static str =
        "Returns the task to work on, with its description and what earlier runs saved.";
    const EFFECT: Effect = Effect::ChangesOnce;
    type Who = TaskSession;
    type Input = NoInput;
    type Output = Output;

    async fn call(
        service: &Service,
        TaskSession(caller): TaskSession,
        _: NoInput,
    ) -> Result<Output, ServiceError> {
        let mine = service.tasks.mine(&caller).await?;
        // The agent's own notes come first. Another assignee finds the checks in the handoff.
        let with_checks = |run: Option<Execution>, checks: &mut Vec<Check>| {
            run.map_or_else(Run::default, |run| Run {
                checks: std::mem::take(checks).into_iter().map(FailedCheck::from).collect(),
                ..Run::from(run)
            })
        };
        Ok(Output {
            success: true,
            has_task: mine.is_some(),
            instruction: service.tasks.instruction(mine.is_some()),
            hint: mine.is_none().then(|| service.guidance().no_task_hint()),
            task: mine.map(|mut mine| Task {
                context: with_checks(mine.context, &mut mine.checks),
                handoff: with_checks(mine.handoff, &mut mine.checks),
                task_id: mine.task.id,
                short_id: mine.task.short_id,
                title: mine.task.title,
                description: mine.task.description,
                working_directory: mine.working_directory,
                workspace: mine.workspace.map(|found| Clone::new(found, mine.dependencies)),
                attempt: mine.attempt,
                last_end: mine.last_end.map(End::from),
                continued: mine.continued,
                fresh_because: mine.fresh_because,
                comments: mine.comments.into_iter().map(TaskComment::from).collect(),
            }),
        })
    }
}
