//! Refusals are normal answers to well-formed requests that cannot be granted. Each protocol turns
//! them into its own form in one place.
//!
//! The table has all that is said about a refusal. A row has these columns, in this order:
//!
//! | column | content |
//! |---|---|
//! | `code` | the word that programs branch on, and the kind, which decides the status in REST |
//! | `en` | the text that people and agents read |
//! | `detail` | the text in REST, if `en` leaves an object out for the sake of older clients |
//! | `ja` | the Japanese text of the pages |
//! | `ja_heading` | in place of `ja`: a Japanese text before the English one, which says more |
//! | `hint` | what to do, if the text does not make it plain; for people also in Japanese |
//!
//! The texts are format strings and name the fields of the row. Only `code` and `en` are needed.

mod columns;

use std::path::PathBuf;

pub use columns::{JapaneseText, RefusalKind};

use columns::RefusalKind::{
    Conflict, Forbidden, Gone, Invalid, NotFound, Outdated, TooMany, Unauthenticated, Unavailable,
};
use columns::{Hint, refusals};

use super::credential::LinkFault;
use super::form_id::FormFault;
use super::id::{
    AgentId, AttentionId, CoordinatorId, CredentialId, ExecutionId, LaunchId, MessageId, ProjectId,
    SessionId, TaskId,
};
use super::key::Purpose;
use super::language::Language::{self, English, Japanese};
use super::removal::{Obstacle, RemovableKind, RemovalAction};
use super::short_id::{ProjectKey, ShortId};
use super::task::TaskStatus;
use super::time::Timestamp;
use super::workspace::WorkspaceMode;

refusals! {
    /// The reason for a refusal. `Display` is the text that people and agents read. Clients of the
    /// older system know some of these texts.
    pub enum Refusal {
        InvalidCredentials => {
            code: "invalid_credentials", Unauthenticated;
            en: "Invalid agent_id or passkey";
            hint: "use the AGENT_ID and AGENT_PASSKEY of your environment as they are";
        }
        ProjectNotFound { project: ProjectId } => {
            code: "project_not_found", NotFound;
            en: "Project not found";
            detail: "no project `{project}`";
            ja: "プロジェクト {project} が見つかりません";
        }
        AgentNotFound { agent: AgentId } => {
            code: "agent_not_found", NotFound;
            en: "Agent not found";
            detail: "no agent `{agent}`";
            ja: "エージェント {agent} が見つかりません";
        }
        NotAssigned { agent: AgentId, project: ProjectId } => {
            code: "not_assigned", Conflict;
            en: "Agent is not assigned to this project";
            detail: "agent `{agent}` is not assigned to project `{project}`";
            ja: "エージェント {agent} はプロジェクト {project} に割り当てられていません";
            hint: "a person assigns agents to projects: agent-coordinator project set PROJECT \
                --assign AGENT",
                "プロジェクトの編集画面で割り当ててください";
        }
        Inactive => {
            code: "inactive", Conflict;
            en: "Agent or project is not active";
            ja: "エージェントまたはプロジェクトが無効です";
        }
        AlreadyRunning => {
            code: "already_running", Conflict;
            en: "Agent instance already running for this project";
            hint: "exit now; a person ends what runs with: agent-coordinator stop AGENT PROJECT";
        }
        LaunchEnded => {
            code: "launch_ended", Conflict;
            en: "This launch has ended or is being stopped";
            hint: "exit now; the coordinator starts you again when there is work";
        }
        InvalidSession => {
            code: "invalid_session", Unauthenticated;
            en: "Invalid session token";
            hint: "call authenticate and use the session_token of its answer";
        }
        SessionOfSocket { socket: PathBuf } => {
            code: "session_of_socket", Forbidden;
            en: "This session was opened on the Unix socket {}: it can't be used over HTTP",
                socket.display();
            hint: "call on the Unix socket that COORDINATOR_MCP_SOCKET names: agent-coordinator \
                call, or agent-coordinator mcp";
        }
        AgentsNotOverHttp => {
            code: "agents_not_over_http", Forbidden;
            en: "Agents are not served over HTTP here (`http.agents` is off)";
            hint: "call on the Unix socket that COORDINATOR_MCP_SOCKET names: agent-coordinator \
                call, or agent-coordinator mcp";
        }
        /// The text begins with words by which older clients know that they must authenticate
        /// again.
        SessionEnded => {
            code: "session_ended", Unauthenticated;
            en: "Invalid session: it has ended";
            hint: "exit now; your session is over";
        }
        SessionExpired => {
            code: "session_expired", Unauthenticated;
            en: "Session has expired";
            hint: "exit now; your session is over";
        }
        /// The tool is for sessions of the other purpose; `instead` is the tool to call.
        WrongPurpose { purpose: Purpose, instead: &'static str } => {
            code: "wrong_purpose", Conflict;
            en: "This tool is not for a {purpose} session: call {instead}";
        }
        MessageNotFound { message: MessageId } => {
            code: "message_not_found", NotFound;
            en: "Message not found";
            detail: "no message `{message}` in this chat";
            ja: "メッセージが見つかりません";
        }
        CoordinatorOnly => {
            code: "coordinator_only", Forbidden;
            en: "This tool is for coordinators";
            hint: "agents call get_my_task and report_completed";
        }
        TaskNotFound { task: TaskId } => {
            code: "task_not_found", NotFound;
            en: "Task not found";
            detail: "no task `{task}`";
            ja: "タスク {task} が見つかりません";
        }
        LaunchNotFound { launch: LaunchId } => {
            code: "launch_not_found", NotFound;
            en: "Launch not found";
            detail: "no launch `{launch}`";
            ja: "起動履歴 {launch} が見つかりません";
        }
        SessionNotFound { session: SessionId } => {
            code: "session_not_found", NotFound;
            en: "Session not found";
            detail: "no session `{session}`";
            ja_heading: "セッションが見つかりません";
        }
        /// Another change came before the caller changed what it had seen.
        Changed { what: &'static str, id: String, revision: i64 } => {
            code: "precondition_failed", Outdated;
            en: "{what} {id} was changed meanwhile: it is at revision {revision}";
            ja_heading: "他の変更が先に保存されました。読み込み直してください";
            hint: "read it again, and decide again", "読み込み直してから、もう一度お試しください";
        }
        NotYourLaunch { launch: LaunchId } => {
            code: "not_your_launch", Forbidden;
            en: "Launch {launch} belongs to another coordinator";
            hint: "give the coordinator_id that claimed it; two coordinators need two of them";
        }
        Superseded { coordinator: CoordinatorId } => {
            code: "superseded", Conflict;
            en: "A later start of coordinator {coordinator} has connected";
            hint: "end your agents; a copy of a coordinator needs a coordinator_id of its own";
        }
        OutputElsewhere { launch: LaunchId, coordinator: CoordinatorId } => {
            code: "output_on_other_host", NotFound;
            en: "The output of launch {launch} is where its coordinator {coordinator} runs";
            ja: "出力は {coordinator} のマシンにあります";
            hint: "ask there: agent-coordinator logs AGENT PROJECT --config …; its last lines come \
                here when the agent has ended",
                "そのマシンで agent-coordinator logs を実行してください。終了後は最後の行をここに表示します";
        }
        ServerStopping => {
            code: "server_stopping", Unavailable;
            en: "The server is being stopped";
            ja: "サーバーを停止しています";
            hint: "wait a little and call again", "少し待ってからもう一度お試しください";
        }
        NoOpenLaunch { agent: AgentId, project: ProjectId, pid: Option<i32> } => {
            code: "no_open_launch", NotFound;
            en: "No launch of {agent} in {project} is open{}", of_process(*pid);
            ja: "{project} で実行中の {agent} はありません";
        }
        AmbiguousLaunch {
            agent: AgentId, project: ProjectId, launches: Vec<(LaunchId, Purpose)>
        } => {
            code: "ambiguous_launch", Conflict;
            en: "More than one launch of {agent} in {project} fits: {}", list_launches(launches);
            hint: "give launch_id, or the pid that was reported as started";
        }
        NeedsProject { agent: AgentId } => {
            code: "needs_project", Invalid;
            en: "More than one project of {agent} fits, or none: name one in project_id";
            hint: "use the PROJECT_ID of your environment as project_id";
        }
        ProviderNotFound { ai_type: String } => {
            code: "provider_not_found", NotFound;
            en: "no agent has the ai_type `{ai_type}`";
            ja: "種別 {ai_type} のエージェントはありません";
        }
        /// No provider of this machine has the name of the `ai_type` that an agent is to get.
        UnknownAiType {
            ai_type: String, meant: Option<String>, known: Vec<String>, n_more: usize
        } => {
            code: "unknown_ai_type", Conflict;
            en: "no provider starts the ai_type `{ai_type}`{} Known are: {}{}",
                did_you_mean(meant.as_deref()), known.join(", "), and_more(*n_more);
            ja_heading: "この種別 (ai_type) を起動できるプロバイダーがありません";
            hint: "use a known one, or add an entry of this name to ai_providers",
                "既知の種別を使うか、同じ名前の項目を ai_providers に追加してください";
        }
        AttentionNotFound { item: AttentionId } => {
            code: "attention_not_found", NotFound;
            en: "no present condition has the id `{item}`: it may have ended";
            ja: "この項目は見つかりません。対応が不要になった可能性があります";
            hint: "list the present ones with: agent-coordinator inbox --all",
                "要対応の一覧で現在の項目を確認してください";
        }
        DelayOutOfRange { until: Timestamp } => {
            code: "delay_out_of_range", Conflict;
            en: "an entry is put off until a later time within a year, not until {until}";
        }
        ExecutionNotFound { execution: ExecutionId } => {
            code: "execution_not_found", NotFound;
            en: "Execution not found";
        }
        OtherTaskBegun { task: TaskId, current: TaskId } => {
            code: "other_task_begun", Conflict;
            en: "Task {task} can't begin: this session works on {current}";
            hint: "report on that one first";
        }
        NotYourTask { task: TaskId } => {
            code: "not_your_task", Forbidden;
            en: "Task {task} is not assigned to you";
        }
        ImpossibleStatus { task: String, from: TaskStatus, to: TaskStatus } => {
            code: "impossible_status", Conflict;
            en: "Task {task} is {from}: it can't become {to}";
            ja: "{task} は「{}」のため、「{}」には変更できません",
                from.name_in(Japanese), to.name_in(Japanese);
            hint: "reopen it first: set it to todo", "先に未着手に戻してください" if !from.is_open();
        }
        PeopleOnly { task: TaskId, from: TaskStatus } => {
            code: "people_only", Forbidden;
            en: "Task {task} is {from}: only people reopen it";
        }
        NeedsAssignee { task: String } => {
            code: "needs_assignee", Conflict;
            en: "Task {task} has no assignee: it can't be in progress";
            ja: "{task} に担当がいないため、進行中にできません";
            hint: "assign an agent first", "先に担当エージェントを割り当ててください";
        }
        DependenciesOpen { task: String, open: Vec<String> } => {
            code: "dependencies_open", Conflict;
            en: "Task {task} depends on tasks that are not done: {}", open.join(", ");
            ja: "{task} の依存タスクが完了していません: {}", open.join("、");
            hint: "finish the dependencies first", "先に依存タスクを完了してください";
        }
        SubtasksOpen { task: String, open: Vec<String> } => {
            code: "subtasks_open", Conflict;
            en: "Task {task} has subtasks that are not finished: {}", open.join(", ");
            ja: "{task} に未完了のサブタスクがあります: {}", open.join("、");
            hint: "finish or cancel the subtasks first", "先にサブタスクを完了するか取り消してください";
        }
        ChecksPending { task: String } => {
            code: "checks_pending", Conflict;
            en: "Task {task} has checks to pass: only the launch that works on it reports it \
                done";
            ja: "{task} にはチェックがあり、作業中の起動だけが完了にできます";
            hint: "leave it to the launch that works on it; the checks run when that reports \
                success",
                "エージェントの成功報告の後にチェックを実行します";
        }
        ParentClosed { parent: String, status: TaskStatus } => {
            code: "parent_closed", Conflict;
            en: "Parent task {parent} is {status}: its subtasks can't be open";
            ja: "親タスク {parent} が「{}」のため、サブタスクを未完了にできません",
                status.name_in(Japanese);
            hint: "reopen the parent first: people set it to todo", "先に親タスクを未着手に戻してください";
        }
        NoSuchTask { task: TaskId, project: ProjectId } => {
            code: "task_not_found", NotFound;
            en: "There is no task {task} in project {project}";
            ja: "タスク {task} が見つかりません";
        }
        StaysInProject { task: TaskId, project: ProjectId } => {
            code: "stays_in_project", Conflict;
            en: "Task {task} belongs to project {project} and stays there";
            ja: "{task} は {project} のタスクで、他のプロジェクトに移動できません";
        }
        PartOfItself { task: TaskId } => {
            code: "part_of_itself", Conflict;
            en: "Task {task} can't be part of itself";
            ja: "{task} を自分自身のサブタスクにはできません";
        }
        DependsOnKin { task: TaskId, dependency: TaskId } => {
            code: "dependency_cycle", Conflict;
            en: "Task {task} can't depend on {dependency}: one is part of the other";
            ja: "{task} と {dependency} は親子のため、依存関係にできません";
            hint: "a task waits for its subtasks anyway: leave that dependency out",
                "サブタスクの完了は自動的に待つため、依存関係は不要です";
        }
        WaitsForItself { way: Vec<TaskId> } => {
            code: "dependency_cycle", Conflict;
            en: "A task would wait for itself: {}", ids_of(way, " -> ");
            ja: "依存関係が循環しています: {}", ids_of(way, " → ");
            hint: "leave out one of these dependencies", "依存関係を 1 つ外してください";
        }
        NoTaskToSave => {
            code: "no_task", Conflict;
            en: "This session has no task: only the work on one can be saved";
            hint: "call get_my_task first; a chat has no task";
        }
        /// One of several tasks that were to be created together is refused. The problem names
        /// tasks as the caller named them.
        InBatch { local_id: String, problem: String, refusal: Box<Self> } => {
            code: refusal.code(), refusal.kind();
            en: "Task `{local_id}` of the batch: {problem}";
        }
        TooLong { text: &'static str, length: usize, limit: usize } => {
            code: "too_long", Invalid;
            en: "`{text}` is {length} characters long, and at most {limit} are taken";
            ja_heading: "入力が長すぎます";
            hint: "shorten it; put long text into a file of the working directory",
                "短くするか、長い文章は作業ディレクトリのファイルに書いてください";
        }
        NotOneLine { text: &'static str, position: usize } => {
            code: "not_one_line", Invalid;
            en: "`{text}` has a control character at position {position}, and must be one line \
                of text";
            ja_heading: "改行や制御文字は使えません";
        }
        /// A text that is needed is blank.
        Missing { text: &'static str, problem: &'static str } => {
            code: "invalid", Invalid;
            en: "{problem}";
            ja_heading: "入力内容が正しくありません";
        }
        NotAbsolute { given: String } => {
            code: "invalid", Invalid;
            en: "the working directory must be an absolute path, not `{given}`";
            ja_heading: "入力内容が正しくありません";
        }
        TooManyTasks { n_created: usize, n_new: usize, limit: usize } => {
            code: "limit_reached", Conflict;
            en: "{n_new} more tasks are too many: this launch has created {n_created}, and \
                `limits.tasks_per_launch` is {limit}";
            ja_heading: "上限に達しています";
            hint: "do the work with the tasks that there are, or report what is left; a person can \
                raise limits.tasks_per_launch";
        }
        TooManySubtasks { task: TaskId, n_subtasks: usize, n_new: usize, limit: usize } => {
            code: "limit_reached", Conflict;
            en: "{n_new} more subtasks are too many: task {task} has {n_subtasks}, and \
                `limits.subtasks_per_task` is {limit}";
            ja_heading: "上限に達しています";
            hint: "do the work with the subtasks that there are, or divide one of them; a person \
                can raise limits.subtasks_per_task";
        }
        TooManyMessages { n_written: usize, limit: usize } => {
            code: "limit_reached", Conflict;
            en: "This launch has written {n_written} messages, and `limits.messages_per_launch` \
                is {limit}";
            ja_heading: "上限に達しています";
            hint: "call logout and exit: the next message starts a new launch; a person can raise \
                limits.messages_per_launch";
        }
        TooManyAttempts => {
            code: "too_many_attempts", TooMany;
            en: "Too many wrong attempts at once";
            ja: "試行が多すぎます";
            hint: "wait 2 seconds and call again", "少し待ってからもう一度お試しください";
        }
        RateLimited => {
            code: "rate_limited", TooMany;
            en: "Too many calls in a short time";
            ja: "試行が多すぎます";
            hint: "wait 1 second and call again", "少し待ってからもう一度お試しください";
        }
        TooManySessions { agent: AgentId, project: ProjectId } => {
            code: "too_many_sessions", TooMany;
            en: "Too many sessions of agent {agent} were opened in project {project} in a short \
                time";
            hint: "use the session_token that you have, or wait 2 seconds and call again";
        }
        CredentialNotFound { credential: CredentialId } => {
            code: "credential_not_found", NotFound;
            en: "no credential `{credential}`";
            ja: "ログイン {credential} が見つかりません";
            hint: "list the valid ones with: agent-coordinator token list";
        }
        LinkNotValid(fault: LinkFault) => {
            code: "link_not_valid", Forbidden;
            en: "this login link {fault}";
            ja: "このログインリンクは使えません";
            hint: "print a new one with: agent-coordinator login",
                "agent-coordinator login で新しいリンクを取得してください";
        }
        KeyEdited { project: ProjectId, key: ProjectKey } => {
            code: "key_edited", Conflict;
            en: "Project {project} keeps the key {key}: a key is changed only once";
            ja: "{project} のキー {key} は変更済みです。変更は 1 回だけです";
        }
        /// The project has the key, or had it once. It may be deleted.
        KeyTaken { key: ProjectKey, project: ProjectId } => {
            code: "key_taken", Conflict;
            en: "Key {key} belongs to project {project}, and a key is never given to another one";
            ja: "キー {key} はプロジェクト {project} のものです";
            hint: "choose another key", "別のキーを入力してください";
        }
        NoWorkspace { task: ShortId } => {
            code: "no_workspace", NotFound;
            en: "Task {task} has no workspace: its project works in a shared directory, or it \
                was never started";
            ja: "{task} には専用の作業場所がありません";
        }
        WorkspaceModeFixed { project: ProjectId, mode: WorkspaceMode } => {
            code: "workspace_mode_fixed", Conflict;
            en: "Project {project} works with `workspace: {mode}`, which is chosen when a \
                project is created";
            hint: "create another project for the same directory", "同じディレクトリのプロジェクトを新しく作成してください";
        }
        BadWorkspaceSetting { key: &'static str, problem: String } => {
            code: "bad_workspace_setting", Conflict;
            en: "the `{key}` of the project's workspaces: {problem}";
        }
        /// Tasks cannot have clones of the repository in this directory.
        CannotClone { reason: String } => {
            code: "cannot_clone", Conflict;
            en: "{reason}";
        }
        /// The result of a task that is not finished would be merged.
        NotFinished { task: ShortId, status: TaskStatus } => {
            code: "task_open", Conflict;
            en: "task {task} is {status}: finish it first, or merge what there is now (`now`, \
                `--now`)";
        }
        /// `reason` speaks about the work on the task.
        WorkspaceFailed { task: ShortId, reason: String } => {
            code: "workspace_failed", Conflict;
            en: "The work on {task}: {reason}";
            ja_heading: "作業場所の処理に失敗しました";
        }
        SnapshotFailed { project: ProjectId, reason: String } => {
            code: "snapshot_failed", Conflict;
            en: "the snapshots of project {project}: {reason}";
        }
        /// Something is in the way of archiving or deleting a thing.
        NotRemovable { what: String, action: RemovalAction, obstacles: Vec<Obstacle> } => {
            code: "not_removable", Conflict;
            en: "{what} can't be {action}d: {}", Obstacle::list(obstacles, English);
            ja: "まだ終わっていないものがあるため実行できません: {}", Obstacle::list(obstacles, Japanese);
            hint: "end or finish these first", "先にこれらを終わらせてください";
        }
        OfForge { what: String, tasks: Vec<String> } => {
            code: "of_forge", Conflict;
            en: "{what} can't be deleted: {} came from a forge", tasks.join(", ");
            ja: "フォージの項目は削除できません: {}", tasks.join("、");
            hint: "archive it instead", "代わりにアーカイブしてください";
        }
        UnmergedWork { what: String, tasks: Vec<String> } => {
            code: "unmerged_work", Conflict;
            en: "{what} can't be deleted: the work on {} is not merged", tasks.join(", ");
            ja: "マージしていない作業があるため削除できません: {}", tasks.join("、");
            hint: "merge it with `task merge`, or delete with `--discard`, which gives the work up",
                "マージするか、作業を破棄して削除してください";
        }
        DeletionIsFinal { kind: RemovableKind, id: String } => {
            code: "deletion_is_final", Gone;
            en: "A deletion is final: if the {kind} {id} was deleted, it can't be brought back";
            ja: "削除したものは元に戻せません: {id}";
            hint: "archive what may be needed again: `unarchive` shows it at any time",
                "後で必要になるものは、削除せずにアーカイブしてください";
        }
        DeletedId { kind: RemovableKind, id: String } => {
            code: "deleted_id", Conflict;
            en: "{} `{id}` was deleted, and an id is never given again", with_article(*kind);
            ja: "ID {id} は削除されたものに使われていたため、使えません";
            hint: "choose another id", "別の ID を入力してください";
        }
        /// A form of a page was refused for its id. `form` is the form for which a new id can be
        /// made.
        FormRefused { form: String, fault: FormFault } => {
            code: fault.code(), Conflict;
            en: "{fault}";
            ja_heading: fault.japanese();
        }
        /// `field` is the first one in which a request differs from what created the object, if
        /// that was compared.
        AlreadyExists { what: String, field: Option<String> } => {
            code: "already_exists", Conflict;
            en: "{what} exists already{}", with_another(field.as_deref());
            ja_heading: "同じ ID がすでに存在します";
            hint: "choose another id", "別の ID を入力してください" if field.is_some();
        }
        Invalid(problem: String) => {
            code: "invalid", Invalid;
            en: "{problem}";
            ja_heading: "入力内容が正しくありません";
        }
    }
}

impl Refusal {
    /// Returns the text for people and scripts. It names the objects that the text for agents may
    /// leave out.
    pub fn detail(&self) -> String {
        self.own_detail().unwrap_or_else(|| self.to_string())
    }

    /// Returns the Japanese text, if there is one.
    pub fn japanese(&self) -> Option<JapaneseText> {
        self.cause().own_japanese()
    }

    /// Returns advice on what to do, if the text does not make it plain.
    pub fn hint(&self, language: Language) -> Option<&'static str> {
        let Hint { en, ja } = self.cause().own_hint()?;
        match language {
            English => Some(en),
            Japanese => ja,
        }
    }

    /// Returns whether the same call may be granted a moment later without any other change.
    pub fn is_passing(&self) -> bool {
        matches!(self.kind(), TooMany | Unavailable)
    }

    /// Returns the refusal of the one task, if several were to be created together.
    fn cause(&self) -> &Self {
        match self {
            Self::InBatch { refusal, .. } => refusal,
            other => other,
        }
    }
}

fn ids_of(tasks: &[TaskId], separator: &str) -> String {
    tasks.iter().map(TaskId::as_str).collect::<Vec<_>>().join(separator)
}

fn list_launches(launches: &[(LaunchId, Purpose)]) -> String {
    launches.iter().map(|(id, purpose)| format!("{id} ({purpose})")).collect::<Vec<_>>().join(", ")
}

fn with_another(field: Option<&str>) -> String {
    field.map(|field| format!(", with another `{field}`")).unwrap_or_default()
}

fn did_you_mean(name: Option<&str>) -> String {
    name.map_or_else(|| ".".to_owned(), |name| format!("; did you mean `{name}`?"))
}

fn and_more(n: usize) -> String {
    if n == 0 { String::new() } else { format!(" and {n} more") }
}

/// Returns the kind with its article, as a sentence begins with it.
fn with_article(kind: RemovableKind) -> String {
    if kind == RemovableKind::Agent { format!("An {kind}") } else { format!("A {kind}") }
}

fn of_process(pid: Option<i32>) -> String {
    pid.map(|pid| format!(" that process {pid} could be of")).unwrap_or_default()
}

#[cfg(test)]
mod tests;
