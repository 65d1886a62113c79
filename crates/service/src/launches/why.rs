//! `why`: each rule that lets a pair start or keeps it from starting.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::people;
use domain::agent::{AgentStatus, ProjectStatus};
use domain::id::{AgentId, CoordinatorId, ProjectId};
use domain::plan::{Deferred, SlotUse};
use domain::start_history::NeededClone;
use domain::waiting::{ChatInSlot, Inactive, SilentHost, WaitFacts};
use domain::why::{Why, all_rules};
use domain::{
    Conversation, InstanceKey, Launch, LaunchState, Outcome, Purpose, StartFacts, Timestamp,
};
use store::rows::{agents, conversations, events, launches, pauses, projects, startable};
use store::{Read, StoreError};

use super::Launches;
use super::history::last_end;
use super::operate::check_known;
use crate::{ServiceError, workspaces};

/// The facts of a key that are read from the store.
struct ReadKey {
    start: StartFacts,
    last_end: Option<(Outcome, Option<String>)>,
    agent: Option<String>,
    project: Option<String>,
    stopped_by: Option<String>,
    /// The path of the pause file, if it exists.
    pause_file: Option<String>,
    conversation: Option<Conversation>,
}

/// The facts of several keys, read together.
struct ReadKeys {
    keys: Vec<ReadKey>,
    open: Vec<Launch>,
    /// The names of the agents whose chats are open.
    talkers: BTreeMap<AgentId, String>,
    paused_since: Option<Timestamp>,
}

impl Launches {
    /// Returns the answers of the rules for a pair, for each purpose.
    ///
    /// # Errors
    /// `AgentNotFound`, `ProjectNotFound`.
    pub async fn why(
        &self,
        agent: &AgentId,
        project: &ProjectId,
    ) -> Result<Vec<Why>, ServiceError> {
        let keys = [Purpose::Task, Purpose::Chat, Purpose::Check]
            .map(|purpose| InstanceKey::new(agent.clone(), project.clone(), purpose));
        let agent = agent.clone();
        let project = project.clone();
        self.core.read(move |tx| check_known(tx, &agent, &project)).await?;
        self.why_of(keys.to_vec()).await
    }

    /// Returns the answers of the rules for several keys, read together. The cost grows with the
    /// keys.
    pub async fn why_of(&self, keys: Vec<InstanceKey>) -> Result<Vec<Why>, ServiceError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let checkouts = Arc::clone(&self.checkouts);
        let max_disk = self.core.settings().workspace.max_disk;
        let pause_file = self.core.pause_file();
        let read = self.core.read(move |tx| {
            let no_room = workspaces::no_room(tx, &checkouts, max_disk)?;
            let names = names_of(tx, &keys)?;
            let pause_file = pause_file.clone().or(pauses::file(tx)?);
            let mut facts = Vec::with_capacity(keys.len());
            for key in &keys {
                let mut start = startable::of_key(tx, key)?;
                start.is_paused |= pause_file.is_some();
                workspaces::look_up(tx, &mut start, no_room.as_deref())?;
                // Most pairs have nothing to check.
                if key.purpose == Purpose::Check && start.waiting_since.is_none() {
                    continue;
                }
                let last_end = match start.record.suspended_since {
                    Some(_) => last_end(tx, key)?,
                    None => None,
                };
                let stopped_by = match start.record.held_since {
                    Some(at) => events::find_who_stopped(tx, &key.agent, &key.project, at)?,
                    None => None,
                };
                let (agent, project) = names.get(key).cloned().unwrap_or_default();
                let pause_file = pause_file.clone();
                let of_task = start.task.as_ref().filter(|_| key.purpose == Purpose::Task);
                let conversation = match of_task {
                    Some(task) => conversations::newest_of(tx, &task.id, &key.agent)?,
                    None => None,
                };
                facts.push(ReadKey {
                    start,
                    last_end,
                    agent,
                    project,
                    stopped_by,
                    pause_file,
                    conversation,
                });
            }
            let open = launches::list_open(tx)?;
            let chats = open.iter().filter(|launch| launch.key.purpose == Purpose::Chat);
            let talkers = agents::names(tx, &chats.map(|it| it.key.agent.clone()).collect())?;
            let paused_since = pauses::since(tx)?;
            Ok(ReadKeys { keys: facts, open, talkers, paused_since })
        });
        let ReadKeys { keys, open, talkers, paused_since } = read.await?;
        let at = self.core.now();
        // The coordinator in this process is present before it has reported.
        let is_own = self.checkouts.get().is_some();
        let absence = self.coordinators.absence(at).filter(|_| !is_own);
        let last_host = absence.as_ref().and_then(|absence| absence.last.as_ref());
        let people = people::names_of(keys.iter().filter_map(|key| key.stopped_by.as_ref())).await;
        let mut all = Vec::with_capacity(keys.len());
        for mut read in keys {
            read.stopped_by = read.stopped_by.and_then(|author| people.get(&author).cloned());
            let launch = open.iter().find(|launch| launch.key == read.start.key);
            let silent = launch.and_then(|launch| self.coordinators.silent_host_of(launch, at));
            let deferral = self.coordinators.deferral_of(&read.start.key, at);
            let chat =
                deferral.as_ref().and_then(|of| chat_before(&read.start, of, &open, &talkers));
            let why = Why {
                is_host_silent: silent.is_some(),
                ..self.why_read(read, launch, deferral, absence.is_none(), at)
            };
            let silent_host = silent.or_else(|| last_host.cloned());
            let facts = WaitFacts { paused_since, chat, silent_host, ..why.facts };
            all.push(Why { facts, ..why });
        }
        Ok(all)
    }

    /// Returns the answers of the rules for one key. `launch` is its open launch, and `deferral`
    /// the report of a coordinator that defers its start.
    fn why_read(
        &self,
        read: ReadKey,
        launch: Option<&Launch>,
        deferral: Option<(CoordinatorId, Deferred)>,
        has_coordinator: bool,
        at: Timestamp,
    ) -> Why {
        let facts = read.start;
        let abandoned = launch.filter(|launch| self.coordinators.is_abandoned(launch, at));
        let (host, deferred) = deferral.unzip();
        let host = host.and_then(|id| match self.coordinators.machine_of(&id) {
            Some(machine) => Some(machine.name),
            None => Some(id.to_string()).filter(|id| !id.starts_with(CoordinatorId::PREFIX)),
        });
        let to_choose = facts.clone.as_ref().and_then(NeededClone::to_choose);
        let of_server = facts.rulings(self.core.settings().backoff, at).into();
        Why {
            at,
            crowd: self.coordinators.crowd_of(&facts.key, at),
            abandoned: abandoned.map(|launch| launch.id.clone()),
            waiting_since: facts.waiting_since,
            facts: WaitFacts {
                agent: read.agent,
                project: read.project,
                ai_type: facts.agent.as_ref().map(|(_, ai_type)| ai_type.clone()),
                inactive: inactive_of(&facts),
                held_since: facts.record.held_since,
                stopped_by: read.stopped_by,
                dependency: to_choose.map(ToString::to_string),
                host,
                in_use: deferred.as_ref().and_then(|deferred| deferred.in_use),
                n_ahead: deferred.as_ref().map_or(0, |deferred| deferred.n_ahead),
                ..WaitFacts::default()
            },
            rules: all_rules(of_server, read.pause_file.as_deref(), deferred, has_coordinator),
            task: facts.task.map(|task| task.id),
            conversation: read.conversation,
            n_failures: facts.record.n_failures,
            account: facts.account,
            parking: self.core.settings().parking,
            key: facts.key,
            last_end: read.last_end,
            is_host_silent: false,
        }
    }

    /// Returns the coordinator of an open launch, if it does not answer.
    pub fn silent_host_of(&self, launch: &Launch) -> Option<SilentHost> {
        self.coordinators.silent_host_of(launch, self.core.now())
    }
}

/// Returns a running chat of the host that defers a start, if its end would free a slot of the
/// limit that the start waits for.
fn chat_before(
    start: &StartFacts,
    deferral: &(CoordinatorId, Deferred),
    open: &[Launch],
    talkers: &BTreeMap<AgentId, String>,
) -> Option<ChatInSlot> {
    let (host, deferred) = deferral;
    let ai_type = start.agent.as_ref().map_or("", |(_, ai_type)| ai_type.as_str());
    let waiting = SlotUse { key: &start.key, ai_type };
    let launch = open.iter().find(|launch| {
        launch.key.purpose == Purpose::Chat
            && launch.coordinator.as_ref() == Some(host)
            && matches!(launch.state, LaunchState::Running { .. })
            && SlotUse { key: &launch.key, ai_type: &launch.ai_type }
                .frees(deferred.reason, waiting)
    })?;
    let InstanceKey { agent, project, .. } = launch.key.clone();
    let name = talkers.get(&agent).cloned().unwrap_or_else(|| agent.to_string());
    Some(ChatInSlot { agent, project, name })
}

/// Returns the object that a person deactivated or archived: the agent before the project.
fn inactive_of(facts: &StartFacts) -> Option<Inactive> {
    let (agent, _) = facts.agent.as_ref()?;
    let (project, _) = facts.project.as_ref()?;
    match (agent, project) {
        (AgentStatus::Inactive, _) => Some(Inactive::Agent),
        (AgentStatus::Archived, _) => Some(Inactive::ArchivedAgent),
        (AgentStatus::Active, ProjectStatus::Inactive) => Some(Inactive::Project),
        (AgentStatus::Active, ProjectStatus::Archived) => Some(Inactive::ArchivedProject),
        (AgentStatus::Active, ProjectStatus::Active) => None,
    }
}

type KeyNames = (Option<String>, Option<String>);

/// Returns the names of the agent and the project of each key.
fn names_of(
    tx: &mut Read<'_>,
    keys: &[InstanceKey],
) -> Result<BTreeMap<InstanceKey, KeyNames>, StoreError> {
    let agents = agents::names(tx, &keys.iter().map(|key| key.agent.clone()).collect())?;
    let projects = projects::names(tx, &keys.iter().map(|key| key.project.clone()).collect())?;
    let of = |key: &InstanceKey| {
        let names = (agents.get(&key.agent).cloned(), projects.get(&key.project).cloned());
        (key.clone(), names)
    };
    Ok(keys.iter().map(of).collect())
}
