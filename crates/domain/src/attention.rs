//! The conditions that need a person, as one list. The list is derived from the present state at
//! each request. Only what people did with an entry is stored: they put it off, or marked it as done.
//!
//! An entry ends by itself when its cause ends. Its id is made of its kind, its object and the time
//! since which it exists, so a mark of one blocked task does not hide the next time that the same
//! task is blocked.

mod causes;
mod results;
mod upgrade;
mod writes;

use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::activity::FailureClass;
use super::forge::ForgeKind;
use super::id::{AgentId, AttentionId, CoordinatorId, LaunchId, ProjectId, TaskId};
use super::key::InstanceKey;
use super::language::Language;
use super::short_id::ShortId;
use super::start_history::StartReason;
use super::task::Task;
use super::time::Timestamp;
use super::waiting::{WaitAction, WaitReason, Waiting, blocked_without_reason, host_name};
use super::words::words;
use super::workspace::LeftMerge;

pub use causes::{
    of_abandoned, of_account, of_blocked, of_chain, of_coordinator, of_silent, of_suspended,
    of_workspace,
};
pub use results::{WaitingResult, of_left, of_not_kept, of_results};
pub use upgrade::WaitingUpgrade;
pub use writes::{RefusedWrite, of_item};

words! {
    /// The kind of a condition, in the order in which people see them.
    pub enum AttentionKind as "kind of attention" {
        /// The login of a provider failed, or its quota has been used up for a while.
        Account = "account",
        /// An agent failed too often, and is not started.
        Suspended = "suspended",
        /// An agent cannot work as it is configured.
        Misconfigured = "misconfigured",
        /// The agent of a task reported a failure.
        Failed = "failed",
        /// A task is blocked.
        Blocked = "blocked",
        /// A task is to begin after a task that was cancelled.
        Chain = "chain",
        /// The clone of a task cannot be used or made, or its commits could not all be kept.
        Workspace = "workspace",
        /// The result of a finished task is not merged, and no person has decided about it.
        Unmerged = "unmerged",
        /// The result of a finished task was not merged because of a conflict.
        Conflict = "conflict",
        /// A merge did not come to its end, and its files are still in the project's repository.
        InterruptedMerge = "interrupted_merge",
        /// A process survives SIGKILL.
        Unkillable = "unkillable",
        /// A coordinator does not answer.
        Coordinator = "coordinator",
        /// The configuration on disk is not in use.
        Configuration = "configuration",
        /// A forge refuses the token or a write, or does not answer.
        Forge = "forge",
    }
}

words! {
    /// The kinds that are shown together.
    pub enum AttentionGroup as "group of attention" {
        Accounts = "accounts",
        Failed = "failed",
        Blocked = "blocked",
        Results = "results",
        Operation = "operation",
    }
}

words! {
    /// The state of an entry for one person.
    pub enum AttentionState as "state of attention" {
        Open = "open",
        /// It is put off until a time.
        Later = "later",
        /// The person has seen to it.
        Done = "done",
    }
}

/// The time after which an account whose quota is used up needs a person. Before that, it goes on
/// by itself.
pub const QUOTA_AFTER: Duration = Duration::from_hours(1);

/// The time after which a hook that fails needs a person. Before that, it is tried again.
pub const HOOK_FAILS_AFTER: Duration = Duration::from_mins(10);

/// The time after which a forge that does not answer needs a person.
pub const FORGE_AWAY_AFTER: Duration = Duration::from_mins(10);

/// One condition that needs a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attention {
    pub cause: Cause,
    /// The time since which it exists; `None` if that is not known.
    pub since: Option<Timestamp>,
}

/// The cause of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    Account {
        provider: String,
        class: FailureClass,
        until: Timestamp,
        /// The launch that tries whether it works again.
        tried_by: Option<LaunchId>,
    },
    /// An agent does not start, and only a person ends that.
    Start {
        key: InstanceKey,
        waiting: Waiting,
    },
    Blocked {
        task: TaskInNeed,
        has_failed: bool,
        reason: Option<String>,
    },
    Chain {
        task: TaskInNeed,
        /// The cancelled task.
        after: ShortId,
    },
    Workspace {
        task: TaskInNeed,
        reason: Option<String>,
        /// The revision of the workspace, which changes when it is tried again.
        revision: i64,
    },
    Result(WaitingResult),
    Upgrade(WaitingUpgrade),
    Unkillable {
        launch: LaunchId,
        key: InstanceKey,
    },
    /// The coordinator of a launch is not there.
    Abandoned {
        launch: LaunchId,
        key: InstanceKey,
    },
    SilentCoordinator {
        coordinator: CoordinatorId,
        /// The name of its machine, if it told one.
        machine: Option<String>,
        /// The agents that it ran when it was heard from last.
        n_running: usize,
    },
    /// No coordinator has come yet.
    NoCoordinator,
    Configuration {
        problem: String,
    },
    Forge {
        forge: ForgeKind,
        host: String,
        is_refused: bool,
        error: Option<String>,
    },
    Write(RefusedWrite),
}

/// The task of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskInNeed {
    pub id: TaskId,
    pub short_id: ShortId,
    pub title: String,
    pub project: ProjectId,
    pub agent: Option<AgentId>,
}

/// The decision of a person about an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub item: AttentionId,
    /// The name of the person. Each has marks of their own.
    pub person: String,
    /// The time until which it is put off; `None` if it is done.
    pub until: Option<Timestamp>,
    /// The time of the decision.
    pub marked_at: Timestamp,
}

impl Mark {
    /// Returns the state of the entry for the person. It is open again after the time until which
    /// it was put off.
    pub fn state_at(&self, now: Timestamp) -> AttentionState {
        match self.until {
            None => AttentionState::Done,
            Some(until) if now < until => AttentionState::Later,
            Some(_) => AttentionState::Open,
        }
    }

    /// Returns the mark of an entry that the person has only read. It is put off for no time.
    pub const fn read(item: AttentionId, person: String, at: Timestamp) -> Self {
        Self { item, person, until: Some(at), marked_at: at }
    }

    /// Returns whether the person knows the entry. One that comes again after it was put off is
    /// new.
    pub fn is_read(&self) -> bool {
        self.until.is_none_or(|until| until <= self.marked_at)
    }
}

impl From<Task> for TaskInNeed {
    fn from(task: Task) -> Self {
        Self {
            id: task.id,
            short_id: task.short_id,
            title: task.title,
            project: task.project,
            agent: task.assignee,
        }
    }
}

impl AttentionKind {
    pub const fn group(self) -> AttentionGroup {
        match self {
            Self::Account => AttentionGroup::Accounts,
            Self::Suspended | Self::Misconfigured | Self::Failed => AttentionGroup::Failed,
            Self::Blocked | Self::Chain | Self::Workspace => AttentionGroup::Blocked,
            Self::Unmerged | Self::Conflict | Self::InterruptedMerge => AttentionGroup::Results,
            Self::Unkillable | Self::Coordinator | Self::Configuration | Self::Forge => {
                AttentionGroup::Operation
            }
        }
    }
}

/// Sorts entries as people see them: by group, and the newest first within each.
pub fn sort(entries: &mut [Attention]) {
    entries.sort_by_cached_key(|entry| {
        let since = entry.since.map(Timestamp::as_millis);
        (entry.kind().group(), std::cmp::Reverse(since), entry.kind(), entry.subject())
    });
}

impl Attention {
    pub fn kind(&self) -> AttentionKind {
        match &self.cause {
            Cause::Account { .. } => AttentionKind::Account,
            Cause::Start { waiting, .. } => match waiting.reason {
                WaitReason::Start(reason) => {
                    reason.row().inbox.unwrap_or(AttentionKind::Misconfigured)
                }
                _ => AttentionKind::Misconfigured,
            },
            Cause::Blocked { has_failed: true, .. } => AttentionKind::Failed,
            Cause::Blocked { .. } => AttentionKind::Blocked,
            Cause::Chain { .. } => AttentionKind::Chain,
            Cause::Workspace { .. } | Cause::Upgrade(_) => AttentionKind::Workspace,
            Cause::Result(result) => result.kind(),
            Cause::Unkillable { .. } => AttentionKind::Unkillable,
            Cause::Abandoned { .. } | Cause::SilentCoordinator { .. } | Cause::NoCoordinator => {
                AttentionKind::Coordinator
            }
            Cause::Configuration { .. } => AttentionKind::Configuration,
            Cause::Forge { .. } | Cause::Write(_) => AttentionKind::Forge,
        }
    }

    /// Returns the id. It stays the same as long as the condition lasts.
    pub fn id(&self) -> AttentionId {
        let since = self.since.map_or(0, Timestamp::as_millis);
        // The report of a failure may be forgotten while its task stays blocked.
        let kind = match self.kind() {
            AttentionKind::Failed => AttentionKind::Blocked,
            kind => kind,
        };
        let text = format!("{kind}\0{}\0{since}", self.subject());
        let digest = Sha256::digest(text.as_bytes());
        let start = digest.iter().take(8);
        let hex = start.fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        format!("{}{hex}", AttentionId::PREFIX).parse().expect("a prefix and digits are an id")
    }

    /// Returns the name of the object, which differs from that of all others of this kind.
    fn subject(&self) -> String {
        match &self.cause {
            Cause::Account { provider, .. } => provider.clone(),
            Cause::Start { key, waiting } => format!("{key} {}", waiting.word()),
            Cause::Blocked { task, .. } | Cause::Chain { task, .. } => task.id.to_string(),
            Cause::Workspace { task, revision, .. } => format!("{} {revision}", task.id),
            Cause::Result(result) => result.subject(),
            Cause::Upgrade(upgrade) => format!("upgrade of {}", upgrade.project),
            Cause::Unkillable { launch, .. } | Cause::Abandoned { launch, .. } => {
                launch.to_string()
            }
            Cause::SilentCoordinator { coordinator, .. } => coordinator.to_string(),
            Cause::NoCoordinator | Cause::Configuration { .. } => String::new(),
            Cause::Forge { forge, host, .. } => format!("{forge} {host}"),
            Cause::Write(write) => write.subject(),
        }
    }

    pub const fn task(&self) -> Option<&TaskInNeed> {
        match &self.cause {
            Cause::Blocked { task, .. }
            | Cause::Chain { task, .. }
            | Cause::Workspace { task, .. } => Some(task),
            Cause::Result(result) => result.task(),
            Cause::Write(write) => write.task.as_ref(),
            _ => None,
        }
    }

    /// Returns the key of the launches that it is about.
    pub const fn key(&self) -> Option<&InstanceKey> {
        match &self.cause {
            Cause::Start { key, .. }
            | Cause::Unkillable { key, .. }
            | Cause::Abandoned { key, .. } => Some(key),
            _ => None,
        }
    }

    pub fn project(&self) -> Option<&ProjectId> {
        if let Cause::Result(
            WaitingResult::Many { project, .. }
            | WaitingResult::Left { merge: LeftMerge { project, .. }, .. },
        )
        | Cause::Upgrade(WaitingUpgrade { project, .. }) = &self.cause
        {
            return Some(project);
        }
        let of_task = self.task().map(|task| &task.project);
        of_task.or_else(|| self.key().map(|key| &key.project))
    }

    pub fn agent(&self) -> Option<&AgentId> {
        let of_task = self.task().and_then(|task| task.agent.as_ref());
        of_task.or_else(|| self.key().map(|key| &key.agent))
    }

    /// Returns the launch that it is about.
    pub const fn launch(&self) -> Option<&LaunchId> {
        match &self.cause {
            Cause::Unkillable { launch, .. } | Cause::Abandoned { launch, .. } => Some(launch),
            _ => None,
        }
    }

    /// Returns the item of a forge that it is about.
    pub const fn item(&self) -> Option<&RefusedWrite> {
        if let Cause::Write(write) = &self.cause { Some(write) } else { None }
    }

    /// Returns the time when it ends by itself, if that is known.
    pub const fn until(&self) -> Option<Timestamp> {
        match &self.cause {
            Cause::Account { until, .. } => Some(*until),
            _ => None,
        }
    }

    /// Returns the wait behind it, with the action that ends the wait.
    pub fn waiting(&self) -> Option<Waiting> {
        match &self.cause {
            Cause::Account { provider, class, until, .. } => Some(Waiting {
                until: Some(*until),
                account: Some((provider.clone(), *class)),
                ..Waiting::of(WaitReason::Start(StartReason::Parked))
            }),
            Cause::Start { waiting, .. } => Some(waiting.clone()),
            Cause::Workspace { reason, .. } => Some(Waiting {
                detail: reason.clone(),
                ..Waiting::of(WaitReason::Start(StartReason::WorkspaceBroken))
            }),
            _ => None,
        }
    }

    /// Returns the action of a person that ends it at once.
    pub fn action(&self) -> Option<WaitAction> {
        let is_to_merge = self.kind() == AttentionKind::Unmerged;
        let waiting = || self.waiting().and_then(|waiting| waiting.action());
        if is_to_merge { Some(WaitAction::Merge) } else { waiting() }
    }

    /// Returns the heading: the title of the task, or the object in a few words.
    pub fn title(&self, language: Language) -> String {
        let both = |english, japanese| language.choose(english, japanese);
        match &self.cause {
            Cause::Blocked { task, .. }
            | Cause::Chain { task, .. }
            | Cause::Workspace { task, .. } => task.title.clone(),
            Cause::Result(result) => result.title(language),
            Cause::Upgrade(upgrade) => upgrade.title(language),
            Cause::Write(write) => write.title.clone(),
            Cause::Start { key, .. }
            | Cause::Unkillable { key, .. }
            | Cause::Abandoned { key, .. } => both(
                format!("{} in {}", key.agent, key.project),
                format!("{}（{}）", key.agent, key.project),
            ),
            Cause::Account { provider, class: FailureClass::Auth, .. } => {
                both(format!("{provider} is not logged in"), format!("{provider} が未ログインです"))
            }
            Cause::Account { provider, .. } => both(
                format!("Usage limit of {provider}"),
                format!("{provider} の利用上限に達しています"),
            ),
            Cause::SilentCoordinator { coordinator, machine, .. } => {
                let host = host_name(coordinator, machine.as_deref(), language);
                both(format!("{host} does not answer"), format!("{host} が応答しません"))
            }
            Cause::NoCoordinator => both(
                "No coordinator has come yet".to_owned(),
                "コーディネーターがまだ接続していません".to_owned(),
            ),
            Cause::Configuration { .. } => both(
                "The configuration on disk is not in use".to_owned(),
                "ディスク上の設定ファイルは使われていません".to_owned(),
            ),
            Cause::Forge { forge, host, is_refused: true, .. } => both(
                format!("{forge} {host} refuses the token"),
                format!("{forge} {host} がトークンを拒否しています"),
            ),
            Cause::Forge { forge, host, .. } => both(
                format!("{forge} {host} does not answer"),
                format!("{forge} {host} が応答しません"),
            ),
        }
    }

    /// Returns the sentence that says what is wrong. Errors exist in English only, so a Japanese
    /// sentence leaves them out; [`Attention::detail_in_english`] has them.
    pub fn text(&self, language: Language) -> String {
        let both = |english, japanese| language.choose(english, japanese);
        match &self.cause {
            Cause::Account { tried_by: Some(launch), .. } => both(
                format!("{launch} tries whether it works again"),
                format!("{launch} で再試行中です"),
            ),
            Cause::Account { .. } => both(
                "None of its agents is started".to_owned(),
                "このプロバイダーのエージェントは起動しません".to_owned(),
            ),
            Cause::Start { waiting, .. } => waiting.sentence(language),
            Cause::Workspace { .. } => {
                self.waiting().map(|waiting| waiting.sentence(language)).unwrap_or_default()
            }
            Cause::Blocked { has_failed, reason, .. } => {
                let head = if *has_failed {
                    language.either("Its agent reported a failure", "エージェントが失敗を報告")
                } else {
                    language.either("Blocked", "ブロック中")
                };
                match reason.as_deref().filter(|reason| !reason.is_empty()) {
                    Some(reason) => format!("{head}: {reason}"),
                    None if *has_failed => head.to_owned(),
                    None => blocked_without_reason(None, language),
                }
            }
            Cause::Result(result) => result.text(language),
            Cause::Upgrade(upgrade) => upgrade.text(language),
            Cause::Write(write) => write.text(language),
            Cause::Chain { after, .. } => both(
                format!("It is to start after {after}, which was cancelled"),
                format!("{after} の後に開始する予定ですが、{after} は取り消されました"),
            ),
            Cause::Unkillable { .. } => both(
                "A process of it survives SIGKILL; it may need a restart of the machine".to_owned(),
                "SIGKILL でも終了しないプロセスがあります。マシンの再起動が必要な可能性があります"
                    .to_owned(),
            ),
            Cause::Abandoned { launch, .. } => both(
                format!("The coordinator of {launch} is not there"),
                format!("{launch} のコーディネーターが接続していません"),
            ),
            Cause::SilentCoordinator { n_running, .. } => both(
                format!("It ran {n_running} agents when it was heard from last"),
                format!("最後の応答時に {n_running} 件のエージェントを実行していました"),
            ),
            Cause::NoCoordinator => both(
                "Nothing is started until one does".to_owned(),
                "接続するまで何も起動しません".to_owned(),
            ),
            Cause::Configuration { problem } => both(
                problem.clone(),
                "ファイルに誤りがあるため、前の設定のまま動作しています".to_owned(),
            ),
            Cause::Forge { error, .. } => both(
                error.clone().unwrap_or_else(|| "Its items are not worked on".to_owned()),
                "このフォージの項目は処理されません".to_owned(),
            ),
        }
    }

    /// Returns the error behind it, which only the English text contains.
    pub fn detail_in_english(&self) -> Option<String> {
        match &self.cause {
            Cause::Start { .. } | Cause::Workspace { .. } => {
                self.waiting()?.detail_in_english().map(str::to_owned)
            }
            Cause::Configuration { problem } => Some(problem.clone()),
            Cause::Result(result) => result.detail_in_english(),
            Cause::Forge { error, .. } | Cause::Write(RefusedWrite { error, .. }) => error.clone(),
            _ => None,
        }
    }

    /// Returns how a person ends it on the command line, if that can be said in a few words.
    pub fn remedy(&self, language: Language) -> Option<String> {
        let (english, japanese) = match &self.cause {
            Cause::Account { provider, class: FailureClass::Auth, .. } => (
                format!(
                    "log in to its CLI as the user of its agents, then `resume --provider {provider}`"
                ),
                format!(
                    "エージェントのユーザーでその CLI にログインしてから `resume --provider {provider}`"
                ),
            ),
            Cause::Account { provider, .. } => (
                format!("`resume --provider {provider}` tries it at once"),
                format!("`resume --provider {provider}` ですぐに再試行"),
            ),
            Cause::Start { key, waiting } => {
                let WaitReason::Start(reason) = waiting.reason else { return None };
                return reason.remedy(&key.agent, &key.project, language);
            }
            Cause::Blocked { task, .. } => (
                format!("`task show {0}`; then `task set {0} --status in_progress`", task.short_id),
                format!(
                    "`task show {0}` で確認してから `task set {0} --status in_progress`",
                    task.short_id
                ),
            ),
            Cause::Chain { task, after } => (
                format!(
                    "reopen {after}, or change the dependencies of {} (`task set`)",
                    task.short_id
                ),
                format!("{after} を再開するか、{} の依存タスクを変更（`task set`）", task.short_id),
            ),
            Cause::Workspace { task, .. } => (
                format!("`workspace retry {}` after mending it", task.short_id),
                format!("原因を取り除いてから `workspace retry {}`", task.short_id),
            ),
            Cause::Result(result) => return result.remedy(),
            Cause::Upgrade(_) => return Some(WaitingUpgrade::remedy(language).to_owned()),
            Cause::Write(write) => return Some(write.remedy(language).to_owned()),
            Cause::Unkillable { .. } => return None,
            Cause::Abandoned { key: InstanceKey { agent, project, .. }, .. } => (
                format!(
                    "if it does not come back, only `stop {agent} {project} --force` ends that launch; make sure first that its processes are gone"
                ),
                format!(
                    "接続が戻らない場合、`stop {agent} {project} --force` だけがこの起動を終了できます。先にプロセスが残っていないことを確認してください"
                ),
            ),
            Cause::SilentCoordinator { .. } => (
                "start it again, or look at its log on its machine".to_owned(),
                "再起動するか、そのマシンでログを確認".to_owned(),
            ),
            Cause::NoCoordinator => (
                "start one with `supervise` on the machine of the agents".to_owned(),
                "エージェントのマシンで `supervise` を起動".to_owned(),
            ),
            Cause::Configuration { .. } => (
                "mend the file, then `reload`".to_owned(),
                "ファイルを修正してから `reload`".to_owned(),
            ),
            Cause::Forge { .. } => (
                "`forge check` names the reason".to_owned(),
                "`forge check` で理由を確認".to_owned(),
            ),
        };
        Some(language.choose(english, japanese))
    }
}

#[cfg(test)]
mod tests;
