//! Refusals are normal answers to well-formed requests that cannot be granted. Each protocol turns
//! them into its own form in one place.

use std::path::PathBuf;

use super::credential::LinkFault;
use super::form_id::FormFault;
use super::id::{
    AgentId, AttentionId, CoordinatorId, CredentialId, ExecutionId, LaunchId, MessageId, ProjectId,
    SessionId, TaskId,
};
use super::key::Purpose;
use super::removal::{RemovableKind, RemovalAction};
use super::short_id::{ProjectKey, ShortId};
use super::task::TaskStatus;
use super::time::Timestamp;
use super::workspace::WorkspaceMode;

/// The reason for a refusal. `Display` is the text that people and agents read. Clients of the
/// older system know some of these texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("Invalid agent_id or passkey")]
    InvalidCredentials,
    #[error("Project not found")]
    ProjectNotFound { project: ProjectId },
    #[error("Agent not found")]
    AgentNotFound { agent: AgentId },
    #[error("Agent is not assigned to this project")]
    NotAssigned { agent: AgentId, project: ProjectId },
    #[error("Agent or project is not active")]
    Inactive,
    #[error("Agent instance already running for this project")]
    AlreadyRunning,
    #[error("This launch has ended or is being stopped")]
    LaunchEnded,
    #[error("Invalid session token")]
    InvalidSession,
    #[error("This session was opened on the Unix socket {}: it can't be used over HTTP", socket.display())]
    SessionOfSocket { socket: PathBuf },
    #[error("Agents are not served over HTTP here (`http.agents` is off)")]
    AgentsNotOverHttp,
    /// The text begins with words by which older clients know that they must authenticate again.
    #[error("Invalid session: it has ended")]
    SessionEnded,
    #[error("Session has expired")]
    SessionExpired,
    /// The tool is for sessions of the other purpose; `instead` is the tool to call.
    #[error("This tool is not for a {purpose} session: call {instead}")]
    WrongPurpose { purpose: Purpose, instead: &'static str },
    #[error("Message not found")]
    MessageNotFound { message: MessageId },
    #[error("This tool is for coordinators")]
    CoordinatorOnly,
    #[error("Task not found")]
    TaskNotFound { task: TaskId },
    #[error("Launch not found")]
    LaunchNotFound { launch: LaunchId },
    #[error("Session not found")]
    SessionNotFound { session: SessionId },
    /// Another change came before the caller changed what it had seen.
    #[error("{what} {id} was changed meanwhile: it is at revision {revision}")]
    Changed { what: &'static str, id: String, revision: i64 },
    #[error("Launch {launch} belongs to another coordinator")]
    NotYourLaunch { launch: LaunchId },
    #[error("A later start of coordinator {coordinator} has connected")]
    Superseded { coordinator: CoordinatorId },
    #[error("The output of launch {launch} is where its coordinator {coordinator} runs")]
    OutputElsewhere { launch: LaunchId, coordinator: CoordinatorId },
    #[error("The server is being stopped")]
    ServerStopping,
    #[error("No launch of {agent} in {project} is open{}", of_process(*pid))]
    NoOpenLaunch { agent: AgentId, project: ProjectId, pid: Option<i32> },
    #[error("More than one launch of {agent} in {project} fits: {}", list_launches(launches))]
    AmbiguousLaunch { agent: AgentId, project: ProjectId, launches: Vec<(LaunchId, Purpose)> },
    #[error("More than one project of {agent} fits, or none: name one in project_id")]
    NeedsProject { agent: AgentId },
    #[error("no agent has the ai_type `{ai_type}`")]
    ProviderNotFound { ai_type: String },
    /// No provider of this machine has the name of the `ai_type` that an agent is to get.
    #[error(
        "no provider starts the ai_type `{ai_type}`{} Known are: {}{}",
        meant.as_ref().map_or_else(|| ".".to_owned(), |meant| format!("; did you mean `{meant}`?")),
        known.join(", "),
        and_more(*n_more)
    )]
    UnknownAiType { ai_type: String, meant: Option<String>, known: Vec<String>, n_more: usize },
    #[error("no present condition has the id `{item}`: it may have ended")]
    AttentionNotFound { item: AttentionId },
    #[error("an entry is put off until a later time within a year, not until {until}")]
    DelayOutOfRange { until: Timestamp },
    #[error("Execution not found")]
    ExecutionNotFound { execution: ExecutionId },
    #[error("Task {task} can't begin: this session works on {current}")]
    OtherTaskBegun { task: TaskId, current: TaskId },
    #[error("Task {task} is not assigned to you")]
    NotYourTask { task: TaskId },
    #[error("Task {task} is {from}: it can't become {to}")]
    ImpossibleStatus { task: String, from: TaskStatus, to: TaskStatus },
    #[error("Task {task} is {from}: only people reopen it")]
    PeopleOnly { task: TaskId, from: TaskStatus },
    #[error("Task {task} has no assignee: it can't be in progress")]
    NeedsAssignee { task: String },
    #[error("Task {task} depends on tasks that are not done: {}", open.join(", "))]
    DependenciesOpen { task: String, open: Vec<String> },
    #[error("Task {task} has subtasks that are not finished: {}", open.join(", "))]
    SubtasksOpen { task: String, open: Vec<String> },
    #[error("Task {task} has checks to pass: only the launch that works on it reports it done")]
    ChecksPending { task: String },
    #[error("Parent task {parent} is {status}: its subtasks can't be open")]
    ParentClosed { parent: String, status: TaskStatus },
    #[error("There is no task {task} in project {project}")]
    NoSuchTask { task: TaskId, project: ProjectId },
    #[error("Task {task} belongs to project {project} and stays there")]
    StaysInProject { task: TaskId, project: ProjectId },
    #[error("Task {task} can't be part of itself")]
    PartOfItself { task: TaskId },
    #[error("Task {task} can't depend on {dependency}: one is part of the other")]
    DependsOnKin { task: TaskId, dependency: TaskId },
    #[error("A task would wait for itself: {}", way.iter().map(TaskId::as_str).collect::<Vec<_>>().join(" -> "))]
    WaitsForItself { way: Vec<TaskId> },
    #[error("This session has no task: only the work on one can be saved")]
    NoTaskToSave,
    /// One of several tasks that were to be created together is refused. The problem names tasks as
    /// the caller named them.
    #[error("Task `{local_id}` of the batch: {problem}")]
    InBatch { local_id: String, problem: String, refusal: Box<Self> },
    #[error("`{text}` is {length} characters long, and at most {limit} are taken")]
    TooLong { text: &'static str, length: usize, limit: usize },
    #[error(
        "`{text}` has a control character at position {position}, and must be one line of text"
    )]
    NotOneLine { text: &'static str, position: usize },
    /// A text that is needed is blank.
    #[error("{problem}")]
    Missing { text: &'static str, problem: &'static str },
    #[error("the working directory must be an absolute path, not `{given}`")]
    NotAbsolute { given: String },
    #[error(
        "{n_new} more tasks are too many: this launch has created {n_created}, and `limits.tasks_per_launch` is {limit}"
    )]
    TooManyTasks { n_created: usize, n_new: usize, limit: usize },
    #[error(
        "{n_new} more subtasks are too many: task {task} has {n_subtasks}, and `limits.subtasks_per_task` is {limit}"
    )]
    TooManySubtasks { task: TaskId, n_subtasks: usize, n_new: usize, limit: usize },
    #[error(
        "This launch has written {n_written} messages, and `limits.messages_per_launch` is {limit}"
    )]
    TooManyMessages { n_written: usize, limit: usize },
    #[error("Too many wrong attempts at once")]
    TooManyAttempts,
    #[error("Too many calls in a short time")]
    RateLimited,
    #[error("Too many sessions of agent {agent} were opened in project {project} in a short time")]
    TooManySessions { agent: AgentId, project: ProjectId },
    #[error("no credential `{credential}`")]
    CredentialNotFound { credential: CredentialId },
    #[error("this login link {0}")]
    LinkNotValid(LinkFault),
    #[error("Project {project} keeps the key {key}: a key is changed only once")]
    KeyEdited { project: ProjectId, key: ProjectKey },
    /// The project has the key, or had it once. It may be deleted.
    #[error("Key {key} belongs to project {project}, and a key is never given to another one")]
    KeyTaken { key: ProjectKey, project: ProjectId },
    #[error(
        "Task {task} has no workspace: its project works in a shared directory, or it was never started"
    )]
    NoWorkspace { task: ShortId },
    #[error(
        "Project {project} works with `workspace: {mode}`, which is chosen when a project is created"
    )]
    WorkspaceModeFixed { project: ProjectId, mode: WorkspaceMode },
    #[error("the `{key}` of the project's workspaces: {problem}")]
    BadWorkspaceSetting { key: &'static str, problem: String },
    /// Tasks cannot have clones of the repository in this directory.
    #[error("{reason}")]
    CannotClone { reason: String },
    /// The result of a task that is not finished would be merged.
    #[error(
        "task {task} is {status}: finish it first, or merge what there is now (`now`, `--now`)"
    )]
    NotFinished { task: ShortId, status: TaskStatus },
    /// `reason` speaks about the work on the task.
    #[error("The work on {task}: {reason}")]
    WorkspaceFailed { task: ShortId, reason: String },
    #[error("the snapshots of project {project}: {reason}")]
    SnapshotFailed { project: ProjectId, reason: String },
    /// Something is in the way of archiving, deleting or bringing back a thing.
    #[error("{what} can't be {action}d: {}", obstacles.join("; "))]
    NotRemovable { what: String, action: RemovalAction, obstacles: Vec<String> },
    #[error("{what} can't be deleted: {} came from a forge", tasks.join(", "))]
    OfForge { what: String, tasks: Vec<String> },
    #[error("{what} can't be deleted: the work on {} is not merged", tasks.join(", "))]
    UnmergedWork { what: String, tasks: Vec<String> },
    #[error("The {kind} {id} was deleted, and that can't be undone any more")]
    UndoOver { kind: RemovableKind, id: String },
    /// An undo needs something that does not exist any more.
    #[error("{what} can't come back: {missing}")]
    CannotComeBack { what: String, missing: String },
    #[error("A {kind} `{id}` was deleted, and an id is never given again")]
    DeletedId { kind: RemovableKind, id: String },
    /// A form of a page was refused for its id. `form` is the form for which a new id can be made.
    #[error("{fault}")]
    FormRefused { form: String, fault: FormFault },
    /// `field` is the first one in which a request differs from what created the object, if that
    /// was compared.
    #[error("{what} exists already{}", with_another(field.as_deref()))]
    AlreadyExists { what: String, field: Option<String> },
    #[error("{0}")]
    Invalid(String),
}

impl Refusal {
    /// Returns the word that programs branch on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidCredentials => "invalid_credentials",
            Self::ProjectNotFound { .. } => "project_not_found",
            Self::AgentNotFound { .. } => "agent_not_found",
            Self::NotAssigned { .. } => "not_assigned",
            Self::Inactive => "inactive",
            Self::AlreadyRunning => "already_running",
            Self::LaunchEnded => "launch_ended",
            Self::InvalidSession => "invalid_session",
            Self::SessionOfSocket { .. } => "session_of_socket",
            Self::AgentsNotOverHttp => "agents_not_over_http",
            Self::SessionEnded => "session_ended",
            Self::SessionExpired => "session_expired",
            Self::WrongPurpose { .. } => "wrong_purpose",
            Self::MessageNotFound { .. } => "message_not_found",
            Self::CoordinatorOnly => "coordinator_only",
            Self::TaskNotFound { .. } => "task_not_found",
            Self::LaunchNotFound { .. } => "launch_not_found",
            Self::SessionNotFound { .. } => "session_not_found",
            Self::Changed { .. } => "precondition_failed",
            Self::NotYourLaunch { .. } => "not_your_launch",
            Self::Superseded { .. } => "superseded",
            Self::OutputElsewhere { .. } => "output_on_other_host",
            Self::ServerStopping => "server_stopping",
            Self::NoOpenLaunch { .. } => "no_open_launch",
            Self::AmbiguousLaunch { .. } => "ambiguous_launch",
            Self::NeedsProject { .. } => "needs_project",
            Self::ProviderNotFound { .. } => "provider_not_found",
            Self::UnknownAiType { .. } => "unknown_ai_type",
            Self::AttentionNotFound { .. } => "attention_not_found",
            Self::DelayOutOfRange { .. } => "delay_out_of_range",
            Self::ExecutionNotFound { .. } => "execution_not_found",
            Self::OtherTaskBegun { .. } => "other_task_begun",
            Self::NotYourTask { .. } => "not_your_task",
            Self::ImpossibleStatus { .. } => "impossible_status",
            Self::PeopleOnly { .. } => "people_only",
            Self::NeedsAssignee { .. } => "needs_assignee",
            Self::DependenciesOpen { .. } => "dependencies_open",
            Self::SubtasksOpen { .. } => "subtasks_open",
            Self::ChecksPending { .. } => "checks_pending",
            Self::ParentClosed { .. } => "parent_closed",
            Self::NoSuchTask { .. } => "task_not_found",
            Self::StaysInProject { .. } => "stays_in_project",
            Self::PartOfItself { .. } => "part_of_itself",
            Self::DependsOnKin { .. } | Self::WaitsForItself { .. } => "dependency_cycle",
            Self::NoTaskToSave => "no_task",
            Self::InBatch { refusal, .. } => refusal.code(),
            Self::TooLong { .. } => "too_long",
            Self::NotOneLine { .. } => "not_one_line",
            Self::TooManyTasks { .. }
            | Self::TooManySubtasks { .. }
            | Self::TooManyMessages { .. } => "limit_reached",
            Self::TooManyAttempts => "too_many_attempts",
            Self::RateLimited => "rate_limited",
            Self::TooManySessions { .. } => "too_many_sessions",
            Self::CredentialNotFound { .. } => "credential_not_found",
            Self::LinkNotValid(_) => "link_not_valid",
            Self::KeyEdited { .. } => "key_edited",
            Self::KeyTaken { .. } => "key_taken",
            Self::NoWorkspace { .. } => "no_workspace",
            Self::WorkspaceModeFixed { .. } => "workspace_mode_fixed",
            Self::BadWorkspaceSetting { .. } => "bad_workspace_setting",
            Self::CannotClone { .. } => "cannot_clone",
            Self::NotFinished { .. } => "task_open",
            Self::WorkspaceFailed { .. } => "workspace_failed",
            Self::SnapshotFailed { .. } => "snapshot_failed",
            Self::NotRemovable { .. } => "not_removable",
            Self::OfForge { .. } => "of_forge",
            Self::UnmergedWork { .. } => "unmerged_work",
            Self::UndoOver { .. } => "undo_over",
            Self::CannotComeBack { .. } => "cannot_come_back",
            Self::DeletedId { .. } => "deleted_id",
            Self::FormRefused { fault: FormFault::Foreign, .. } => "form_foreign",
            Self::FormRefused { fault: FormFault::Expired, .. } => "form_expired",
            Self::FormRefused { fault: FormFault::Sent { .. }, .. } => "form_sent",
            Self::AlreadyExists { .. } => "already_exists",
            Self::Missing { .. } | Self::NotAbsolute { .. } | Self::Invalid(_) => "invalid",
        }
    }

    /// Returns advice on what to do, if the text does not make it plain.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::InvalidCredentials => {
                Some("use the AGENT_ID and AGENT_PASSKEY of your environment as they are")
            }
            Self::AlreadyRunning => {
                Some("exit now; a person ends what runs with: agent-coordinator stop AGENT PROJECT")
            }
            Self::LaunchEnded => {
                Some("exit now; the coordinator starts you again when there is work")
            }
            Self::ImpossibleStatus { from: TaskStatus::Done | TaskStatus::Cancelled, .. } => {
                Some("reopen it first: set it to todo")
            }
            Self::SessionEnded | Self::SessionExpired => Some("exit now; your session is over"),
            Self::InvalidSession => {
                Some("call authenticate and use the session_token of its answer")
            }
            Self::SessionOfSocket { .. } | Self::AgentsNotOverHttp => Some(
                "call on the Unix socket that COORDINATOR_MCP_SOCKET names: agent-coordinator call, or agent-coordinator mcp",
            ),
            Self::NotAssigned { .. } => Some(
                "a person assigns agents to projects: agent-coordinator project set PROJECT --assign AGENT",
            ),
            Self::CoordinatorOnly => Some("agents call get_my_task and report_completed"),
            Self::NotYourLaunch { .. } => {
                Some("give the coordinator_id that claimed it; two coordinators need two of them")
            }
            Self::Superseded { .. } => {
                Some("end your agents; a copy of a coordinator needs a coordinator_id of its own")
            }
            Self::OutputElsewhere { .. } => Some(
                "ask there: agent-coordinator logs AGENT PROJECT --config …; its last lines come here when the agent has ended",
            ),
            Self::Changed { .. } => Some("read it again, and decide again"),
            Self::ServerStopping => Some("wait a little and call again"),
            Self::SubtasksOpen { .. } => Some("finish or cancel the subtasks first"),
            Self::DependenciesOpen { .. } => Some("finish the dependencies first"),
            Self::ChecksPending { .. } => Some(
                "leave it to the launch that works on it; the checks run when that reports success",
            ),
            Self::NeedsAssignee { .. } => Some("assign an agent first"),
            Self::AmbiguousLaunch { .. } => {
                Some("give launch_id, or the pid that was reported as started")
            }
            Self::NeedsProject { .. } => {
                Some("use the PROJECT_ID of your environment as project_id")
            }
            Self::OtherTaskBegun { .. } => Some("report on that one first"),
            Self::ParentClosed { .. } => Some("reopen the parent first: people set it to todo"),
            Self::DependsOnKin { .. } => {
                Some("a task waits for its subtasks anyway: leave that dependency out")
            }
            Self::WaitsForItself { .. } => Some("leave out one of these dependencies"),
            Self::NoTaskToSave => Some("call get_my_task first; a chat has no task"),
            Self::InBatch { refusal, .. } => refusal.hint(),
            Self::TooLong { .. } => {
                Some("shorten it; put long text into a file of the working directory")
            }
            Self::TooManyTasks { .. } => Some(
                "do the work with the tasks that there are, or report what is left; a person can raise limits.tasks_per_launch",
            ),
            Self::TooManySubtasks { .. } => Some(
                "do the work with the subtasks that there are, or divide one of them; a person can raise limits.subtasks_per_task",
            ),
            Self::TooManyMessages { .. } => Some(
                "call logout and exit: the next message starts a new launch; a person can raise limits.messages_per_launch",
            ),
            Self::TooManyAttempts => Some("wait 2 seconds and call again"),
            Self::RateLimited => Some("wait 1 second and call again"),
            Self::TooManySessions { .. } => {
                Some("use the session_token that you have, or wait 2 seconds and call again")
            }
            Self::AttentionNotFound { .. } => {
                Some("list the present ones with: agent-coordinator inbox --all")
            }
            Self::CredentialNotFound { .. } => {
                Some("list the valid ones with: agent-coordinator token list")
            }
            Self::LinkNotValid(_) => Some("print a new one with: agent-coordinator login"),
            Self::KeyTaken { .. } => Some("choose another key"),
            Self::NotRemovable { .. } => Some("end or finish these first"),
            Self::OfForge { .. } => Some("archive it instead"),
            Self::UnmergedWork { .. } => Some(
                "merge it with `task merge`, or delete with `--discard`, which gives the work up",
            ),
            Self::DeletedId { .. } | Self::AlreadyExists { field: Some(_), .. } => {
                Some("choose another id")
            }
            Self::UnknownAiType { .. } => {
                Some("use a known one, or add an entry of this name to ai_providers")
            }
            Self::WorkspaceModeFixed { .. } => {
                Some("create another project for the same directory")
            }
            Self::NoSuchTask { .. }
            | Self::StaysInProject { .. }
            | Self::PartOfItself { .. }
            | Self::NoOpenLaunch { .. }
            | Self::ProviderNotFound { .. }
            | Self::ExecutionNotFound { .. }
            | Self::DelayOutOfRange { .. }
            | Self::ProjectNotFound { .. }
            | Self::AgentNotFound { .. }
            | Self::TaskNotFound { .. }
            | Self::LaunchNotFound { .. }
            | Self::SessionNotFound { .. }
            | Self::MessageNotFound { .. }
            | Self::WrongPurpose { .. }
            | Self::Inactive
            | Self::NotYourTask { .. }
            | Self::ImpossibleStatus { .. }
            | Self::PeopleOnly { .. }
            | Self::NotOneLine { .. }
            | Self::Missing { .. }
            | Self::NotAbsolute { .. }
            | Self::KeyEdited { .. }
            | Self::NoWorkspace { .. }
            | Self::CannotClone { .. }
            | Self::BadWorkspaceSetting { .. }
            | Self::WorkspaceFailed { .. }
            | Self::SnapshotFailed { .. }
            | Self::UndoOver { .. }
            | Self::CannotComeBack { .. }
            | Self::FormRefused { .. }
            | Self::AlreadyExists { field: None, .. }
            | Self::NotFinished { .. }
            | Self::Invalid(_) => None,
        }
    }

    /// Returns whether the same call may be granted a moment later without any other change.
    pub const fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::TooManyAttempts
                | Self::RateLimited
                | Self::TooManySessions { .. }
                | Self::ServerStopping
        )
    }
}

fn list_launches(launches: &[(LaunchId, Purpose)]) -> String {
    launches.iter().map(|(id, purpose)| format!("{id} ({purpose})")).collect::<Vec<_>>().join(", ")
}

fn with_another(field: Option<&str>) -> String {
    field.map(|field| format!(", with another `{field}`")).unwrap_or_default()
}

fn and_more(n: usize) -> String {
    if n == 0 { String::new() } else { format!(" and {n} more") }
}

fn of_process(pid: Option<i32>) -> String {
    pid.map(|pid| format!(" that process {pid} could be of")).unwrap_or_default()
}
