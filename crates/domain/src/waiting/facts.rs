//! The facts that the sentence of a wait names: people, objects, limits and hosts.

use crate::id::{AgentId, CoordinatorId, ProjectId};
use crate::language::Language;
use crate::plan::InUse;
use crate::time::Timestamp;

/// The facts that the sentence names. A fact that is not known is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitFacts {
    /// The name of the agent.
    pub agent: Option<String>,
    /// The name of the project.
    pub project: Option<String>,
    /// The provider of the agent.
    pub ai_type: Option<String>,
    pub inactive: Option<Inactive>,
    /// The time when a person stopped the agent.
    pub held_since: Option<Timestamp>,
    /// The name of the person who stopped it. For a blocked task, that of the person or the agent
    /// who blocked it.
    pub stopped_by: Option<String>,
    /// The time since which all starts are paused.
    pub paused_since: Option<Timestamp>,
    /// The task that it depends on and whose result a person is to choose.
    pub dependency: Option<String>,
    /// The limit of running agents that keeps it from starting.
    pub in_use: Option<InUse>,
    /// The host that defers the start, if people named it.
    pub host: Option<String>,
    /// The starts that get a slot before it.
    pub n_ahead: usize,
    /// A chat that counts for this limit.
    pub chat: Option<ChatInSlot>,
    /// The host that is to run it and does not answer.
    pub silent_host: Option<SilentHost>,
}

/// The object that a person deactivated or archived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inactive {
    Agent,
    Project,
    ArchivedAgent,
    ArchivedProject,
}

/// A chat that uses a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatInSlot {
    pub agent: AgentId,
    pub project: ProjectId,
    /// The name of the agent.
    pub name: String,
}

/// A host that does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilentHost {
    pub coordinator: CoordinatorId,
    /// The name of its machine, if it told one.
    pub machine: Option<String>,
    /// The time of its last request.
    pub heard_at: Timestamp,
}

impl WaitFacts {
    /// Returns what stands for a placeholder of a sentence; `None` if it is not known.
    pub(super) fn value(&self, placeholder: &str) -> Option<String> {
        match placeholder {
            "agent" => self.agent.clone(),
            "project" => self.project.clone(),
            "provider" => self.ai_type.clone(),
            "inactive" => self.inactive_name().cloned(),
            "dependency" => self.dependency.clone(),
            "person" => self.stopped_by.clone(),
            "host" => self.host.clone(),
            "running" => self.in_use.map(|in_use| in_use.n_running.to_string()),
            "limit" => self.in_use.map(|in_use| in_use.limit.to_string()),
            "ahead" => (self.n_ahead > 0).then(|| self.n_ahead.to_string()),
            _ => None,
        }
    }

    pub(super) fn inactive_name(&self) -> Option<&String> {
        match self.inactive? {
            Inactive::Agent | Inactive::ArchivedAgent => self.agent.as_ref(),
            Inactive::Project | Inactive::ArchivedProject => self.project.as_ref(),
        }
    }

    pub(super) const fn is_archived(&self) -> bool {
        matches!(self.inactive, Some(Inactive::ArchivedAgent | Inactive::ArchivedProject))
    }

    /// Returns the part of the sentence about the chat that uses a slot.
    pub(super) fn chat_part(&self, language: Language) -> Option<String> {
        let name = &self.chat.as_ref()?.name;
        Some(language.choose(
            format!(", a chat with {name} runs"),
            format!("（{name} とのチャットが実行中）"),
        ))
    }

    pub(super) fn silent_sentence(&self, language: Language) -> String {
        let Some(host) = &self.silent_host else {
            return language.either("Its host does not answer", "ホストが応答なし").to_owned();
        };
        let host = host_name(&host.coordinator, host.machine.as_deref(), language);
        language.choose(format!("{host} does not answer"), format!("{host} が応答なし"))
    }
}

/// Returns the name of a host for people: that of its machine, or else the id of its coordinator. An
/// id that was made is long, so only its end is shown.
pub fn host_name(coordinator: &CoordinatorId, machine: Option<&str>, language: Language) -> String {
    if let Some(machine) = machine {
        return machine.to_owned();
    }
    let coordinator = coordinator.as_str();
    match coordinator.strip_prefix(CoordinatorId::PREFIX) {
        Some(made) => {
            let end = made.get(made.len().saturating_sub(6)..).unwrap_or(made);
            format!("{} {end}", language.either("Host", "ホスト"))
        }
        None => coordinator.to_owned(),
    }
}
