//! Counts the slots in use and decides which limit a further start would exceed. A launch that
//! lives or is claimed keeps its slots until it has ended, regardless of the limits when it began.
//! Therefore lowering a limit ends no agent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{InUse, Limits, Snapshot, StartLimits};
use crate::id::{AgentId, LaunchId, ProjectId};
use crate::instance::Instance;
use crate::key::{InstanceKey, Purpose};
use crate::start_history::StartReason;

/// The slots in use.
#[derive(Debug, Clone)]
pub struct Slots<'a> {
    limits: Limits,
    n_chats: usize,
    n_tasks: usize,
    projects: BTreeMap<&'a ProjectId, usize>,
    agents: BTreeMap<&'a AgentId, usize>,
    providers: BTreeMap<&'a str, usize>,
    /// Processes whose provider is not known. Each may be of any provider.
    n_unknown: usize,
    /// Providers whose accounts a start of this plan tries.
    probes: BTreeSet<&'a str>,
}

/// Writes what uses the slots.
impl fmt::Display for Slots<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_tasks = self.n_tasks;
        let n_chats = self.n_chats;
        let n_all = self.limits.max_concurrent;
        write!(f, "tasks use {n_tasks} and chats use {n_chats} of {n_all} slots")
    }
}

impl<'a> Slots<'a> {
    pub fn none(limits: Limits) -> Self {
        let projects = BTreeMap::new();
        let agents = BTreeMap::new();
        let providers = BTreeMap::new();
        Self {
            limits,
            n_chats: 0,
            n_tasks: 0,
            projects,
            agents,
            providers,
            n_unknown: 0,
            probes: BTreeSet::new(),
        }
    }

    /// Returns the slots of each open launch of this coordinator, and of each live process that the
    /// server does not know.
    pub fn of(snapshot: &'a Snapshot) -> Self {
        let mut slots = Self::none(snapshot.limits);
        let mut counted: BTreeSet<&LaunchId> = BTreeSet::new();
        let mine = snapshot
            .launches
            .iter()
            .filter(|launch| launch.coordinator.as_ref() == Some(&snapshot.coordinator));
        for launch in mine {
            counted.insert(&launch.id);
            slots.take(&launch.key, &launch.ai_type);
        }
        let live = snapshot.instances.iter().filter(|instance| instance.is_live());
        live.filter(|instance| counted.insert(&instance.launch)).for_each(|instance: &Instance| {
            slots.take(&instance.key, "");
        });
        slots
    }

    /// Takes one more slot. An empty `ai_type` stands for an unknown provider.
    pub fn take(&mut self, key: &'a InstanceKey, ai_type: &'a str) {
        match key.purpose {
            Purpose::Chat => self.n_chats += 1,
            Purpose::Task | Purpose::Check => self.n_tasks += 1,
        }
        *self.projects.entry(&key.project).or_default() += 1;
        *self.agents.entry(&key.agent).or_default() += 1;
        if ai_type.is_empty() {
            self.n_unknown += 1;
        } else {
            *self.providers.entry(ai_type).or_default() += 1;
        }
    }

    /// Records a start that shows whether the account of this provider works.
    pub fn note_probe(&mut self, ai_type: &'a str) {
        self.probes.insert(ai_type);
    }

    pub fn has_probe(&self, ai_type: &str) -> bool {
        self.probes.contains(ai_type)
    }

    pub fn in_use(&self) -> usize {
        self.n_chats + self.n_tasks
    }

    /// Returns the number of slots of the project.
    pub fn of_project(&self, project: &ProjectId) -> usize {
        self.projects.get(project).copied().unwrap_or(0)
    }

    /// Returns the number of slots that are free for this purpose.
    pub fn n_free(&self, purpose: Purpose) -> usize {
        let n_free = self.limits.max_concurrent.saturating_sub(self.in_use());
        match purpose {
            Purpose::Chat => n_free,
            Purpose::Task | Purpose::Check => n_free.min(self.n_for_tasks()),
        }
    }

    /// Returns the number of tasks that may start as soon as chats have left their slots.
    pub fn n_for_tasks(&self) -> usize {
        let for_tasks = self.limits.max_concurrent.saturating_sub(self.limits.start.chat_reserve);
        for_tasks.saturating_sub(self.n_tasks)
    }

    /// Returns the reason that prevents every start for this purpose, if there is one.
    pub fn keeping_all(&self, purpose: Purpose) -> Option<StartReason> {
        let is_kept = self.n_free(purpose) == 0;
        let is_full = self.n_free(Purpose::Chat) == 0;
        is_kept.then_some(if is_full { StartReason::NoFreeSlot } else { StartReason::ChatReserve })
    }

    /// Returns the limit of a project, an agent or a provider that this reason is about, and the
    /// agents that count for it.
    pub fn in_use_of(
        &self,
        reason: StartReason,
        key: &InstanceKey,
        ai_type: &str,
    ) -> Option<InUse> {
        let limits = &self.limits.start;
        let (n_running, limit) = match reason {
            StartReason::ProjectLimit => (self.of_project(&key.project), limits.per_project),
            StartReason::AgentLimit => {
                (self.agents.get(&key.agent).copied().unwrap_or(0), limits.per_agent)
            }
            StartReason::ProviderLimit => (self.of_provider(ai_type), limits.per_provider),
            _ => return None,
        };
        Some(InUse { n_running, limit: limit? })
    }

    /// Returns the number of slots of a provider. Each of an unknown one may be of it.
    fn of_provider(&self, ai_type: &str) -> usize {
        self.providers.get(ai_type).copied().unwrap_or(0) + self.n_unknown
    }

    /// Returns the limits that a start of `key` would exceed, in the order in which they count. An
    /// empty `ai_type` stands for an unknown provider.
    pub fn keeping<'s>(
        &'s self,
        key: &InstanceKey,
        ai_type: &str,
    ) -> impl Iterator<Item = StartReason> + use<'s, 'a> {
        let is_reached = |limit: Option<usize>, n: Option<&usize>| {
            limit.is_some_and(|limit| n.copied().unwrap_or(0) >= limit)
        };
        let StartLimits { per_project, per_agent, per_provider, .. } = self.limits.start;
        let of_provider = self.of_provider(ai_type);
        let own = [
            (is_reached(per_project, self.projects.get(&key.project)), StartReason::ProjectLimit),
            (is_reached(per_agent, self.agents.get(&key.agent)), StartReason::AgentLimit),
            // A check runs no CLI of a provider.
            (
                key.purpose != Purpose::Check && is_reached(per_provider, Some(&of_provider)),
                StartReason::ProviderLimit,
            ),
        ];
        let own = own.into_iter().filter_map(|(is_reached, reason)| is_reached.then_some(reason));
        self.keeping_all(key.purpose).into_iter().chain(own)
    }
}
