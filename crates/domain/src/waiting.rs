//! The one reason why a task or an agent does not run, in a sentence, with the action that ends the
//! wait. The page, the command line and the REST API all show this sentence.

mod facts;

use std::sync::LazyLock;

use super::activity::FailureClass;
use super::key::Purpose;
use super::language::Language;
use super::launch::Outcome;
use super::short_id::ShortId;
use super::start_history::{StartReason, WaitEnd};
use super::task::TaskStatus;
use super::time::Timestamp;
use super::words::words;

pub use facts::{ChatInSlot, Inactive, SilentHost, WaitFacts, host_name};

/// The reason of a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitReason {
    /// The task has no assignee.
    NoAssignee,
    /// A person or an agent blocked the task. The detail of the wait is their reason.
    Blocked,
    /// The agent of the task works on this task first.
    OtherTaskFirst(ShortId),
    /// The agent does not start.
    Start(StartReason),
    /// The agent runs on a host that does not answer.
    HostSilent,
}

words! {
    /// The action of a person that ends a wait.
    pub enum WaitAction as "action" {
        /// Assign the task to an agent.
        Assign = "assign",
        /// Assign the agent to the project.
        AssignToProject = "assign_to_project",
        /// Activate the agent or the project.
        Activate = "activate",
        /// Let the agent start again in the project.
        Resume = "resume",
        /// Let the agent try again now.
        TryNow = "try_now",
        /// Let all agents start again.
        ResumeAll = "resume_all",
        /// Try the account of the provider now.
        TryProvider = "try_provider",
        /// Change the configuration of the agent, then let it start again.
        EditAgent = "edit_agent",
        /// Prepare the clone of the task again.
        RetryWorkspace = "retry_workspace",
        /// End a chat that uses a slot of the limit.
        EndChat = "end_chat",
        /// Change the limit of running agents in the configuration.
        ChangeLimits = "change_limits",
        /// Merge the result of the task, or decide otherwise about it.
        Merge = "merge",
    }
}

/// A wait of a task or an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub reason: WaitReason,
    /// The time when it ends by itself, if that is known.
    pub until: Option<Timestamp>,
    /// The words of a person or an agent for a task that they blocked. For any other reason, the
    /// figures or the error behind it, in English.
    pub detail: Option<String>,
    /// The end of the last launch, with the last line of its agent.
    pub last_end: Option<(Outcome, Option<String>)>,
    /// The failures in a row of the agent.
    pub n_failures: u32,
    /// The provider of the agent and the failure of its account, if the account is parked.
    pub account: Option<(String, FailureClass)>,
    /// The facts that the sentence names; `None` if none is known.
    pub facts: Option<Box<WaitFacts>>,
}

impl Waiting {
    /// Returns a wait without more than its reason.
    pub const fn of(reason: WaitReason) -> Self {
        Self {
            reason,
            until: None,
            detail: None,
            last_end: None,
            n_failures: 0,
            account: None,
            facts: None,
        }
    }

    /// Returns the wait with these facts.
    #[must_use]
    pub fn with_facts(self, facts: WaitFacts) -> Self {
        Self { facts: Some(Box::new(facts)), ..self }
    }

    /// Returns the facts that the sentence names.
    pub fn facts(&self) -> &WaitFacts {
        static NONE: LazyLock<WaitFacts> = LazyLock::new(WaitFacts::default);
        self.facts.as_deref().unwrap_or(&NONE)
    }

    /// Returns the wait of a task. `None` if it does not wait: it is worked on, it is closed, or it
    /// was not started and has an assignee. `of_agent` is the wait of the assignee; it counts only
    /// for a task in progress.
    pub fn of_task(
        status: TaskStatus,
        is_assigned: bool,
        blocked_reason: Option<&str>,
        of_agent: Option<Self>,
    ) -> Option<Self> {
        match status {
            TaskStatus::Backlog | TaskStatus::Done | TaskStatus::Cancelled => None,
            TaskStatus::Blocked => Some(Self {
                detail: blocked_reason.map(str::to_owned),
                ..Self::of(WaitReason::Blocked)
            }),
            TaskStatus::Todo | TaskStatus::InProgress if !is_assigned => {
                Some(Self::of(WaitReason::NoAssignee))
            }
            TaskStatus::Todo => None,
            TaskStatus::InProgress => of_agent,
        }
    }

    /// Returns the wait of an agent that does not start for `reason`. `None` if it starts now, runs
    /// already, or has no work.
    pub fn of_start(reason: StartReason) -> Option<Self> {
        (reason.row().ends != WaitEnd::NoWait).then_some(Self::of(WaitReason::Start(reason)))
    }

    /// Returns the word for the reason: that of a start, or `no_assignee`, `blocked`,
    /// `other_task_first`, `host_silent`.
    pub const fn word(&self) -> &'static str {
        match &self.reason {
            WaitReason::NoAssignee => "no_assignee",
            WaitReason::Blocked => "blocked",
            WaitReason::OtherTaskFirst(_) => "other_task_first",
            WaitReason::HostSilent => "host_silent",
            WaitReason::Start(reason) => reason.as_str(),
        }
    }

    /// Returns whether only a person ends it.
    pub fn needs_person(&self) -> bool {
        match &self.reason {
            WaitReason::Blocked | WaitReason::HostSilent => true,
            WaitReason::NoAssignee | WaitReason::OtherTaskFirst(_) => false,
            WaitReason::Start(reason) => match reason.row().ends {
                WaitEnd::ByPerson | WaitEnd::ByCoordinator => true,
                WaitEnd::WithAccount => self.is_not_logged_in(),
                WaitEnd::NoWait | WaitEnd::ByItself | WaitEnd::AsWanted => false,
            },
        }
    }

    /// Returns the time since which it waits, if the sentence is about something that began.
    pub fn since(&self) -> Option<Timestamp> {
        let facts = self.facts();
        match &self.reason {
            WaitReason::Start(StartReason::Held) => facts.held_since,
            WaitReason::Start(StartReason::Paused) => facts.paused_since,
            WaitReason::HostSilent | WaitReason::Start(StartReason::NoCoordinator) => {
                facts.silent_host.as_ref().map(|host| host.heard_at)
            }
            _ => None,
        }
    }

    /// Returns whether its sentence begins with a name, which keeps its first letter everywhere.
    pub fn begins_with_name(&self) -> bool {
        let facts = self.facts();
        match &self.reason {
            WaitReason::Blocked => true,
            WaitReason::HostSilent => facts.silent_host.is_some(),
            WaitReason::NoAssignee | WaitReason::OtherTaskFirst(_) => false,
            WaitReason::Start(StartReason::NoCoordinator) => facts.silent_host.is_some(),
            WaitReason::Start(reason) => {
                reason.row().named.is_some_and(|(english, _)| english.starts_with('{'))
                    && self.named_sentence(*reason, Language::English).is_some()
            }
        }
    }

    /// Returns whether the account of its agent is not logged in.
    pub fn is_not_logged_in(&self) -> bool {
        matches!(&self.account, Some((_, FailureClass::Auth)))
    }

    /// Returns the action that ends it, if a person can end it at once.
    pub fn action(&self) -> Option<WaitAction> {
        match &self.reason {
            WaitReason::NoAssignee => Some(WaitAction::Assign),
            WaitReason::Blocked | WaitReason::OtherTaskFirst(_) | WaitReason::HostSilent => None,
            WaitReason::Start(reason) => match reason.row().action {
                // A person removes the pause file, which the detail names.
                Some(WaitAction::ResumeAll) if self.detail.is_some() => None,
                Some(WaitAction::ChangeLimits) if self.facts().chat.is_some() => {
                    Some(WaitAction::EndChat)
                }
                action => action,
            },
        }
    }

    /// Returns the detail that only an English sentence contains.
    pub fn detail_in_english(&self) -> Option<&str> {
        self.detail.as_deref().filter(|_| self.reason != WaitReason::Blocked)
    }

    /// Returns the sentence for people. It does not contain the times when the wait began and ends,
    /// which each reader shows in their own form after it.
    pub fn sentence(&self, language: Language) -> String {
        let text = match &self.reason {
            WaitReason::NoAssignee => {
                language.either("No agent is assigned", "担当が未設定").to_owned()
            }
            WaitReason::Blocked => match &self.detail {
                Some(reason) => return reason.clone(),
                None => blocked_without_reason(self.facts().stopped_by.as_deref(), language),
            },
            WaitReason::OtherTaskFirst(task) => {
                language.choose(format!("Runs {task} first"), format!("{task} を先に実行"))
            }
            WaitReason::HostSilent => self.facts().silent_sentence(language),
            WaitReason::Start(reason) => {
                let chat = self.facts().chat_part(language).unwrap_or_default();
                self.start_sentence(*reason, language) + &chat
            }
        };
        let end = self.last_end.as_ref().map(|(outcome, line)| {
            let line = line.as_ref().map_or_else(String::new, |line| format!(": {line}"));
            outcome.told(Purpose::Task, language) + &line
        });
        let detail = match language {
            Language::English => self.detail.clone().or(end),
            Language::Japanese => end,
        };
        match detail {
            Some(detail) => format!("{text}: {detail}"),
            None => text,
        }
    }

    fn start_sentence(&self, reason: StartReason, language: Language) -> String {
        let facts = self.facts();
        let archived = facts.inactive_name().filter(|_| facts.is_archived());
        match (reason, &self.account, archived) {
            (StartReason::Inactive, _, Some(name)) => {
                language.choose(format!("{name} is archived"), format!("{name} はアーカイブ済み"))
            }
            (StartReason::Parked, Some((provider, FailureClass::Auth)), _) => language.choose(
                format!("{provider} is not logged in, tried again"),
                format!("{provider} が未ログイン。再試行を待機中"),
            ),
            (StartReason::Paused, ..)
                if self.detail.is_some() && language == Language::Japanese =>
            {
                "一時停止ファイルにより起動を停止中".to_owned()
            }
            (StartReason::NoCoordinator, ..) if facts.silent_host.is_some() => {
                facts.silent_sentence(language)
            }
            _ => self
                .named_sentence(reason, language)
                .unwrap_or_else(|| reason.sentence(language).to_owned()),
        }
    }

    /// Returns the sentence with names and figures; `None` if there is none, or if they are not
    /// known.
    fn named_sentence(&self, reason: StartReason, language: Language) -> Option<String> {
        let n = self.n_failures;
        reason.named_sentence(language, |placeholder| match placeholder {
            "times" => (n > 0).then(|| times(n)),
            "failures" => (n > 0).then(|| n.to_string()),
            "account" => self.account.as_ref().map(|(provider, _)| provider.clone()),
            placeholder => self.facts().value(placeholder),
        })
    }
}

/// Returns the sentence about a task that was blocked without a reason, with the name of the person
/// or the agent who blocked it.
pub(super) fn blocked_without_reason(by: Option<&str>, language: Language) -> String {
    match by {
        Some(by) => language.choose(
            format!("Blocked by {by}, who gave no reason"),
            format!("{by} がブロック（理由の記載なし）"),
        ),
        None => language
            .either("Blocked, and no reason was given", "ブロック中（理由の記載なし）")
            .to_owned(),
    }
}

fn times(n: u32) -> String {
    if n == 1 { "once".to_owned() } else { format!("{n} times") }
}

#[cfg(test)]
mod tests;
