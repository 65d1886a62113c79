//! Claims waiting items of forges. It runs whenever a forge, an item, a launch, a task or a
//! coordinator has changed.
//!
//! `domain::forge::queue` decides. This module stores a claim. The task that carries out pending
//! writes makes the claim at the forge.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use tokio::time::Instant;

use crate::crash_point::{self, CrashPoint};
use crate::domain::forge::queue::{self, Capacity, Start, Turn};
use crate::domain::forge::{ForgeItem, ItemState, Standing};
use crate::domain::id::{AgentId, TaskId};
use crate::domain::pair::{Backoff, PairFacts, StartReason};
use crate::domain::plan::slots::Slots;
use crate::domain::{InstanceKey, Launch, Purpose, TaskStatus, Timestamp};
use crate::nudge::sleep_until;
use crate::rows::{agents, forge_items, launches, pauses, startable, tasks};
use crate::store::{Read, StoreError};
use crate::telemetry::ErrorChain;

use super::Forges;
use super::waiting::{RepositoryKey, Served};
use crate::service::coordinators::board::KnownLimits;
use crate::service::forge_items::take;
use crate::service::tasks::mine::in_progress;
use crate::service::{NewItem, ServiceError};

/// The pause after a failure of the store.
const RETRY: Duration = Duration::from_secs(5);
/// The delay in which several changes are collected for one pass.
const SOON: Duration = Duration::from_millis(10);

/// The open items and launches, and the pairs with work and without a launch.
struct Facts {
    items: Vec<ForgeItem>,
    launches: Vec<Launch>,
    startable: Vec<PairFacts>,
    /// Providers by agent.
    providers: BTreeMap<AgentId, String>,
    /// Tasks that are reported while their agents still run.
    over: BTreeSet<TaskId>,
    /// Pairs whose agents have reported and have more work.
    with_further_work: BTreeSet<InstanceKey>,
    /// Pairs with an item at work whose agent does not run and may not start.
    kept: BTreeSet<InstanceKey>,
}

/// Pairs that need a slot and have none.
#[derive(Default)]
struct Pending {
    of_items: Vec<Start>,
    of_others: Vec<Start>,
}

impl Forges {
    /// Claims items as long as it is polled. Cancel-safe: each claim is one transaction.
    pub async fn claim_waiting_items(&self) -> Infallible {
        let mut looks = self.board.waiting.nudge.listen();
        let mut items = self.waiting.forges.listen();
        let mut work = self.waiting.coordinators.listen();
        let mut reports = self.waiting.reports.listen();
        loop {
            let failed = self.claim_what_can_start().await.err();
            let retry_at = failed.map(|error| {
                tracing::warn!(error = %ErrorChain(&error), "could not claim the waiting items of forges; will try again");
                Instant::now() + RETRY
            });
            tokio::select! {
                () = looks.woken() => {}
                () = items.woken() => {}
                () = work.woken() => {}
                () = reports.woken() => {}
                () = sleep_until(retry_at) => {}
            }
            tokio::time::sleep(SOON).await;
        }
    }

    async fn claim_what_can_start(&self) -> Result<(), ServiceError> {
        let mut served = self.board.waiting.to_serve();
        // Items of a host that takes no claims would block agents and slots for items of other
        // hosts.
        served.retain(|line| self.board.takes_claims(line.workers.host));
        if served.is_empty() || self.pause_file.exists() {
            return Ok(());
        }
        let Some(facts) = self.facts_of_claims().await? else {
            return Ok(());
        };
        let pending = self.pending_starts(&facts);
        let Some(mut capacity) = self.capacity(&facts, &pending) else {
            return Ok(());
        };
        let mut busy = self.busy(&facts);
        let starts: Vec<Vec<Start>> = served.iter().map(|line| facts.starts_of(line)).collect();
        let mut lines: Vec<queue::Line<'_>> = served
            .iter()
            .zip(&starts)
            .map(|(line, starts)| {
                let of_line = |item: &&ForgeItem| is_of(&line.repository, item);
                let items = || facts.items.iter().filter(of_line);
                queue::Line {
                    agents: starts.iter().collect(),
                    served: line.served,
                    n_open: items().filter(|item| self.is_at_work(item)).count(),
                    n_stuck: items().filter(|item| self.is_stuck(item)).count(),
                }
            })
            .collect();
        while let Some(Turn { line, agent }) = queue::next(&lines, &busy, &capacity) {
            let start = lines[line].agents[agent];
            let Served { repository, .. } = &served[line];
            let Some(item) = self.board.waiting.first(repository) else {
                lines[line].agents.clear();
                continue;
            };
            let (agent, project) = (start.key.agent.clone(), start.key.project.clone());
            let (key, title, url) = (item.key.clone(), item.title, item.url);
            match take(&self.core, &NewItem { key, agent, project, title, url }).await {
                Ok(taken) => {
                    let is_claimed = taken.is_some();
                    let claimed_by = taken.as_ref().map(|_| &start.key.agent);
                    let turn = self.board.waiting.remove(repository, &item.key, claimed_by);
                    if is_claimed {
                        crash_point::reach(CrashPoint::ItemTaken);
                        lines[line].served = turn;
                        lines[line].n_open += 1;
                        busy.insert(start.key.clone());
                        capacity.reserve(start);
                    }
                }
                Err(ServiceError::Refused(refusal)) => {
                    self.note_refused(repository, &start.key, &refusal.into());
                    busy.insert(start.key.clone());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn note_refused(&self, repository: &RepositoryKey, key: &InstanceKey, error: &ServiceError) {
        let problem = format!(
            "items can't be given to agent `{}` in project `{}`: {}",
            key.agent,
            key.project,
            ErrorChain(error)
        );
        if self.board.waiting.refuse(repository, &key.agent, &problem) {
            tracing::warn!(
                host = repository.host,
                repository = repository.name,
                problem,
                "a repository of a forge has a problem"
            );
        }
    }

    /// Returns the facts for claims; `None` while starts are paused.
    async fn facts_of_claims(&self) -> Result<Option<Facts>, ServiceError> {
        let (backoff, now) = (self.core.settings().backoff, self.core.now());
        let facts = self.core.read(move |tx| match pauses::since(tx)? {
            Some(_) => Ok(None),
            None => Ok(Some(Facts::of(tx, backoff, now)?)),
        });
        facts.await
    }

    /// Returns the pairs whose agents work, or will work without any further item. An item that was
    /// put aside does not keep an agent from the next one.
    fn busy(&self, facts: &Facts) -> BTreeSet<InstanceKey> {
        let items = facts.items.iter().filter(|item| self.is_at_work(item) && !facts.is_over(item));
        let launches = facts.launches.iter().filter(|launch| !facts.is_leaving(launch));
        items
            .map(key_of)
            .chain(launches.map(|launch| launch.key.clone()))
            .chain(facts.startable.iter().map(|pair| pair.key.clone()))
            .chain(facts.with_further_work.iter().cloned())
            .collect()
    }

    /// Returns whether the work on an item goes on, or is about to begin or to end.
    fn is_at_work(&self, item: &ForgeItem) -> bool {
        match item.state {
            ItemState::Claiming { .. } => !self.is_stuck(item),
            ItemState::Active(Standing::Processing)
            | ItemState::Stopping(_)
            | ItemState::Pausing => true,
            ItemState::Active(Standing::Blocked | Standing::Failed)
            | ItemState::Paused { .. }
            | ItemState::Ended(_) => false,
        }
    }

    /// Returns whether an item is claimed, but its forge does not take the claim so far, or the
    /// claim waits for the budget of writes. Such an item must not keep an agent from other items.
    fn is_stuck(&self, item: &ForgeItem) -> bool {
        let key = &item.key;
        matches!(item.state, ItemState::Claiming { .. })
            && (item.n_attempts > 0 || self.board.is_in_trouble(key.forge, &key.host))
    }

    fn pending_starts(&self, facts: &Facts) -> Pending {
        let has_slot: BTreeSet<&InstanceKey> = facts
            .launches
            .iter()
            .filter(|launch| !facts.is_leaving(launch))
            .map(|launch| &launch.key)
            .collect();
        let now = self.core.now();
        let backoff = self.core.settings().backoff;
        let is_ready = |pair: &&PairFacts| {
            let reason = self.pause_file.apply((*pair).clone()).reason(backoff, now);
            matches!(reason, StartReason::Ready | StartReason::Backoff)
        };
        let ready: BTreeSet<&InstanceKey> =
            facts.startable.iter().filter(is_ready).map(|pair| &pair.key).collect();
        let mut of_items = BTreeSet::new();
        for item in facts.items.iter().filter(|item| self.is_at_work(item) && !facts.is_over(item))
        {
            let key = key_of(item);
            let is_pending = match item.state {
                ItemState::Claiming { .. } => true,
                // The start time of an agent that may not start is unknown.
                ItemState::Active(_) => !facts.kept.contains(&key),
                _ => false,
            };
            if is_pending && !has_slot.contains(&key) {
                of_items.insert(key);
            }
        }
        let others = ready
            .into_iter()
            .chain(&facts.with_further_work)
            .filter(|key| !of_items.contains(*key) && !has_slot.contains(*key));
        let of_others = others.map(|key| facts.start(key.clone())).collect();
        Pending { of_items: of_items.into_iter().map(|key| facts.start(key)).collect(), of_others }
    }

    /// Returns the free capacity; `None` if no coordinator is present that would start an agent.
    fn capacity<'a>(&self, facts: &'a Facts, pending: &'a Pending) -> Option<Capacity<'a>> {
        let mut capacity = match self.coordinators.limits(self.core.now()) {
            KnownLimits::Nobody => return None,
            KnownLimits::Unknown => Capacity::unknown(),
            KnownLimits::Of(limits) => {
                let slots = limits.into_iter().map(|(coordinator, limits)| {
                    let mut slots = Slots::none(limits);
                    let is_there = |launch: &&Launch| {
                        launch.coordinator.as_ref() == Some(&coordinator)
                            && !facts.is_leaving(launch)
                    };
                    for launch in facts.launches.iter().filter(is_there) {
                        slots.take(&launch.key, &launch.ai_type);
                    }
                    slots
                });
                Capacity::of(slots.collect())
            }
        };
        pending.of_items.iter().for_each(|start| capacity.reserve(start));
        pending.of_others.iter().for_each(|start| capacity.reserve_for_others(start));
        Some(capacity)
    }
}

impl Facts {
    fn of(tx: &mut Read<'_>, backoff: Backoff, now: Timestamp) -> Result<Self, StoreError> {
        let (items, launches) = (forge_items::list_open(tx)?, launches::list_open(tx)?);
        let startable = startable::list(tx)?;
        let agents = agents::list(tx)?.into_iter();
        let providers = agents.map(|agent| (agent.id, agent.ai_type)).collect();
        let (mut over, mut with_further_work) = (BTreeSet::new(), BTreeSet::new());
        for launch in launches.iter().filter(|launch| launch.report.is_some()) {
            let Some(task) = &launch.task else { continue };
            if tasks::get(tx, task)?.is_none_or(|task| task.status != TaskStatus::InProgress) {
                over.insert(task.clone());
            }
            if !in_progress(tx, &launch.key)?.is_empty() {
                with_further_work.insert(launch.key.clone());
            }
        }
        let mut kept = BTreeSet::new();
        let is_active = |item: &&ForgeItem| item.state == ItemState::Active(Standing::Processing);
        for key in items.iter().filter(is_active).map(key_of) {
            let runs = launches.iter().any(|launch| launch.key == key);
            if !runs && may_not_start(startable::of_key(tx, &key)?.reason(backoff, now)) {
                kept.insert(key);
            }
        }
        Ok(Self { items, launches, startable, providers, over, with_further_work, kept })
    }

    fn start(&self, key: InstanceKey) -> Start {
        let ai_type = self.providers.get(&key.agent).cloned().unwrap_or_default();
        Start { key, ai_type }
    }

    fn starts_of(&self, line: &Served) -> Vec<Start> {
        let project = &line.workers.project;
        let key = |agent: &AgentId| InstanceKey::new(agent.clone(), project.clone(), Purpose::Task);
        line.workers.agents.iter().map(|agent| self.start(key(agent))).collect()
    }

    /// Returns whether the agent of a launch has reported and is about to end, so that its slot
    /// will soon be free.
    fn is_leaving(&self, launch: &Launch) -> bool {
        launch.report.is_some() && launch.task.as_ref().is_some_and(|task| self.over.contains(task))
    }

    /// Returns whether the work on an item is reported, so that only its end is missing.
    fn is_over(&self, item: &ForgeItem) -> bool {
        self.over.contains(&item.task)
    }
}

fn is_of(repository: &RepositoryKey, item: &ForgeItem) -> bool {
    let key = &item.key;
    (repository.forge, &repository.host) == (key.forge, &key.host)
        && repository.name.eq_ignore_ascii_case(&key.repository)
}

/// Returns whether a start waits for a person, or for something else without a known end.
const fn may_not_start(reason: StartReason) -> bool {
    matches!(
        reason,
        StartReason::Unknown
            | StartReason::NotAssigned
            | StartReason::Inactive
            | StartReason::Held
            | StartReason::Suspended
            | StartReason::Misconfigured
            | StartReason::Paused
            | StartReason::Parked
    )
}

fn key_of(item: &ForgeItem) -> InstanceKey {
    InstanceKey::new(item.agent.clone(), item.project.clone(), Purpose::Task)
}
