//! `/tasks`.

use serde::{Deserialize, Deserializer, Serialize};

use super::MAX_LIMIT;
use super::activity::{FailureBody, UsageBody};
use super::comments::CommentBody;
use super::removals::Archived;
use super::waiting::WaitingBody;
use super::workspaces::WorkspaceBody;
use domain::check::CheckResult;
use domain::conversation::FreshReason;
use domain::launch::ReportResult;
use domain::task::{NewTask, TaskEdit};
use domain::workspace::MergeStep;
use domain::{
    AgentId, Check, Conversation, Execution, LaunchId, Priority, ProjectId, ShortId, Task, TaskId,
    TaskStatus, Timestamp, limits,
};

/// A task as it is shown.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskBody {
    pub id: TaskId,
    /// The key of the project and a number. Each place that takes the id of a task takes this form,
    /// too, in any case.
    pub short_id: ShortId,
    pub project_id: ProjectId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<TaskId>,
    pub title: String,
    pub description: String,
    pub status: TaskStatus,
    pub priority: Priority,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee_id: Option<AgentId>,
    pub dependencies: Vec<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_reason: Option<String>,
    pub created_at: Timestamp,
    pub status_since: Timestamp,
    /// The time since which a person wants it to begin as soon as its dependencies are done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_wanted_since: Option<Timestamp>,
    /// The time since which the checks of the operator run on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checking_since: Option<Timestamp>,
    /// The time since which it is archived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived_at: Option<Timestamp>,
    /// The next step of a person with the result of a finished task, in the list of tasks and in
    /// the answer about one task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_merge: Option<MergeStep>,
}

/// A task with its subtasks and dependencies.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskDetail {
    #[serde(flatten)]
    pub task: TaskBody,
    /// The reason why nothing works on it; absent if something does, or if nothing is to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitingBody>,
    /// The subtasks at every depth, each before its own subtasks.
    pub subtasks: Vec<TaskBody>,
    /// The tasks in `dependencies`, as far as they exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<TaskBody>,
    /// The person who set it to done by hand; absent if it is not done, or if the work of its agent
    /// did that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_by: Option<String>,
    /// The unfinished dependencies after which it begins by itself, because a person set it in
    /// progress. One that is cancelled needs a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts_after: Vec<TaskId>,
    /// The runs of agents on it, the newest first.
    pub executions: Vec<ExecutionBody>,
    /// The checks that were run after a reported success, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckBody>,
    /// The newest 50 comments of people, the oldest of them first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comments: Vec<CommentBody>,
    /// The clone that it uses, or used last, with the result and what became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceBody>,
    /// The conversations of its agents' CLIs, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conversations: Vec<ConversationBody>,
    /// The address of the pull or merge request with its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_url: Option<String>,
}

/// One run of a check.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckBody {
    /// The number of the round. The first one is 1.
    pub round: u32,
    pub name: String,
    pub result: CheckResult,
    /// The commit that was checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    pub started_at: Timestamp,
    /// Absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The launch that ran it; absent if the verdict needed no command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_id: Option<LaunchId>,
    /// The end of what it printed, at most 8 KiB.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// The conversation of an agent's CLI about a task.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConversationBody {
    pub agent_id: AgentId,
    /// The id by which the CLI knows it.
    pub session_id: String,
    pub opened_at: Timestamp,
    pub last_used_at: Timestamp,
    /// The reason why the next launch does not continue it; absent if it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh_because: Option<FreshReason>,
}

impl From<Conversation> for ConversationBody {
    fn from(conversation: Conversation) -> Self {
        Self {
            fresh_because: conversation.fresh_because(),
            agent_id: conversation.agent,
            session_id: conversation.cli_session,
            opened_at: conversation.opened_at,
            last_used_at: conversation.last_used_at,
        }
    }
}

impl From<Check> for CheckBody {
    fn from(check: Check) -> Self {
        Self {
            round: check.round,
            name: check.name,
            result: check.result,
            commit: check.commit,
            exit_code: check.exit_code,
            started_at: check.started_at,
            duration_ms: check.duration.map(domain::time::millis),
            launch_id: check.launch,
            output: check.output,
        }
    }
}

/// The work of one launch on a task.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionBody {
    pub launch_id: LaunchId,
    pub agent_id: AgentId,
    pub started_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ReportResult>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub findings: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_steps: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// The use of the model by the launch; absent if its agent did not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageBody>,
    /// The failure of the launch, if it ended without a report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureBody>,
}

/// The filter of the list of tasks.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskQuery {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<TaskStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TaskId>,
    /// Words that the title, the description, the ids or the assignee contain. The best tasks come
    /// first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub q: Option<String>,
    /// The part of the tasks by whether they are archived. The default is `no`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived: Option<Archived>,
    /// The greatest number of entries, up to 1000. Without it and without `cursor`, the answer has
    /// all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    pub limit: Option<usize>,
    /// The last one of the part before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<TaskId>,
}

/// The part of the history of a task.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskHistoryQuery {
    /// The greatest number of entries. The default is 100, and the maximum is 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    pub limit: Option<usize>,
    /// The number of the last one of the part before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = i64::MIN, max = i64::MAX))]
    pub cursor: Option<i64>,
}

/// A task to be made.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewTaskRequest {
    /// The id; absent for a generated one. With an id, the request can be repeated: the answer is
    /// then 200, with the task as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<TaskId>,
    pub project_id: ProjectId,
    #[schemars(transform = limits::TITLE.described_as_needed())]
    pub title: String,
    #[serde(default)]
    #[schemars(transform = limits::DESCRIPTION.described())]
    pub description: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<TaskStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<TaskId>,
}

impl NewTaskRequest {
    /// Returns the request for a task that has only a title.
    pub fn new(project_id: ProjectId, title: String) -> Self {
        Self {
            id: None,
            project_id,
            title,
            description: String::new(),
            status: None,
            priority: None,
            assignee_id: None,
            parent_id: None,
            dependencies: Vec::new(),
        }
    }
}

/// The changed fields of a task. A missing field stays.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = limits::TITLE.described_as_needed())]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = limits::DESCRIPTION.described())]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// `null` takes the task away from its assignee.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub assignee_id: Option<Option<AgentId>>,
    /// `null` makes it a top task.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<Option<TaskId>>,
    /// All dependencies. They replace the former ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependencies: Option<Vec<TaskId>>,
    /// A task that is set in progress while dependencies are open stays `todo`, and begins when they
    /// are done: see `startsAfter` of the answer. Another status or assignee takes that back. Each
    /// open task can be set to `done`; no checks run then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<TaskStatus>,
    /// The reason why it is blocked. `reason`, its name in earlier versions, is accepted too.
    /// Servers of those versions know no other name.
    #[serde(
        default,
        rename(serialize = "reason", deserialize = "blockedReason"),
        alias = "reason",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(transform = limits::REASON.described())]
    pub blocked_reason: Option<String>,
    /// `true` cancels the open subtasks of a task that becomes `done`. Without it, they keep the
    /// task from being done: 409, `subtasks_open`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancel_subtasks: bool,
}

/// Tells `null` from absence.
#[allow(clippy::option_option, reason = "three states: absent, null, a value")]
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl From<Task> for TaskBody {
    fn from(task: Task) -> Self {
        Self {
            id: task.id,
            short_id: task.short_id,
            project_id: task.project,
            parent_id: task.parent,
            title: task.title,
            description: task.description,
            status: task.status,
            priority: task.priority,
            assignee_id: task.assignee,
            dependencies: task.dependencies,
            blocked_reason: task.blocked_reason,
            created_at: task.created_at,
            status_since: task.status_since,
            start_wanted_since: task.start_wanted_since,
            checking_since: task.checking_since,
            archived_at: task.archived_at,
            to_merge: None,
        }
    }
}

impl From<Execution> for ExecutionBody {
    fn from(execution: Execution) -> Self {
        Self {
            launch_id: execution.launch,
            agent_id: execution.key.agent,
            started_at: execution.started_at,
            ended_at: execution.ended_at,
            result: execution.result,
            summary: execution.summary,
            progress: execution.progress,
            findings: execution.findings,
            next_steps: execution.next_steps,
            outcome: execution.outcome.map(|outcome| outcome.to_string()),
            usage: UsageBody::of(execution.usage),
            failure: execution.failure.map(FailureBody::from),
        }
    }
}

impl From<NewTaskRequest> for NewTask {
    fn from(request: NewTaskRequest) -> Self {
        Self {
            id: request.id,
            project: request.project_id,
            title: request.title,
            description: request.description,
            status: request.status.unwrap_or(TaskStatus::Todo),
            priority: request.priority.unwrap_or(Priority::Medium),
            assignee: request.assignee_id,
            parent: request.parent_id,
            dependencies: request.dependencies,
        }
    }
}

impl From<TaskRequest> for TaskEdit {
    fn from(request: TaskRequest) -> Self {
        Self {
            title: request.title,
            description: request.description,
            priority: request.priority,
            assignee: request.assignee_id,
            parent: request.parent_id,
            dependencies: request.dependencies,
            status: request.status,
            reason: request.blocked_reason,
            cancels_subtasks: request.cancel_subtasks,
            seen: None,
        }
    }
}
