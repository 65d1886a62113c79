//! Claims waiting items of forges. It runs whenever a forge, an item, a launch, a task or a
//! coordinator has changed.
//!
//! `domain::forge::open_work` and `domain::forge::queue` decide. This module reads the facts and
//! stores the claims. The task that carries out pending writes makes the claim at the forge.

use std::convert::Infallible;
use std::time::Duration;

use domain::forge::open_work::OpenWork;
use domain::forge::queue::{self, Start, Turn};
use domain::forge::{ForgeItem, ItemState, WorkState};
use domain::id::AgentId;
use domain::start_history::{StartFacts, StartReason};
use domain::{InstanceKey, Purpose, TaskStatus};
use machine::crash_point::{self, CrashPoint};
use runtime::clock;
use runtime::nudge::sleep_until;
use runtime::telemetry::ErrorChain;
use store::rows::{agents, forge_items, launches, pauses, startable, tasks};
use store::{Read, StoreError};

use super::Forges;
use super::waiting::{RepositoryKey, Served};
use crate::coordinators::board::KnownLimits;
use crate::forge_items::take;
use crate::tasks::mine::in_progress;
use crate::waiting::SOON;
use crate::{NewItem, ServiceError};

/// The pause after a failure of the store.
const RETRY: Duration = Duration::from_secs(5);

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
                clock::now() + RETRY
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
        if served.is_empty() {
            return Ok(());
        }
        let Some(work) = self.open_work().await? else {
            return Ok(());
        };
        let limits = match self.coordinators.limits(self.core.now()) {
            KnownLimits::Nobody => return Ok(()),
            KnownLimits::Unknown => None,
            KnownLimits::Of(limits) => Some(limits),
        };
        let pending = work.pending_starts();
        let mut capacity = work.capacity(limits.as_deref(), &pending);
        let mut busy = work.busy();
        let starts: Vec<Vec<Start>> = served.iter().map(|line| starts_of(line, &work)).collect();
        let mut lines: Vec<queue::Line<'_>> = served
            .iter()
            .zip(&starts)
            .map(|(line, starts)| {
                let of_line = |item: &&ForgeItem| is_of(&line.repository, item);
                let items = || work.items.iter().filter(of_line);
                queue::Line {
                    agents: starts.iter().collect(),
                    served: line.served,
                    n_open: items().filter(|item| work.is_at_work(item)).count(),
                    n_stuck: items().filter(|item| work.is_stuck(item)).count(),
                }
            })
            .collect();
        while let Some(Turn { line, agent }) = queue::next(&lines, &busy, &capacity) {
            let start = lines[line].agents[agent];
            let Served { repository, .. } = &served[line];
            let Some((item, publication)) = self.board.waiting.first(repository) else {
                lines[line].agents.clear();
                continue;
            };
            let agent = start.key.agent.clone();
            let project = start.key.project.clone();
            let key = item.key.clone();
            let title = item.title;
            let url = item.url;
            let new = NewItem { key, agent, project, title, url, publication };
            match take(&self.core, &new).await {
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

    /// Reads the open work; `None` while starts are paused.
    async fn open_work(&self) -> Result<Option<OpenWork>, ServiceError> {
        let backoff = self.core.settings().backoff;
        let now = self.core.now();
        let reason = move |facts: StartFacts| facts.reason(backoff, now);
        let is_held = self.core.are_starts_held();
        let work = self.core.read(move |tx| {
            let is_paused = is_held || pauses::is_paused(tx)?;
            Ok(if is_paused { None } else { Some(read_open_work(tx, reason)?) })
        });
        let hosts_in_trouble = self.board.hosts_in_trouble();
        Ok(work.await?.map(|work| OpenWork { hosts_in_trouble, ..work }))
    }
}

/// Reads the open work, without the state of the hosts. `reason` decides about the start of a key.
fn read_open_work(
    tx: &mut Read<'_>,
    reason: impl Fn(StartFacts) -> StartReason,
) -> Result<OpenWork, StoreError> {
    let items = forge_items::list_open(tx)?;
    let launches = launches::list_open(tx)?;
    let startable = startable::list(tx)?.into_iter();
    let agents = agents::list(tx)?.into_iter();
    let mut work = OpenWork {
        startable: startable.map(|facts| (facts.key.clone(), reason(facts))).collect(),
        providers: agents.map(|agent| (agent.id, agent.ai_type)).collect(),
        ..OpenWork::default()
    };
    for launch in launches.iter().filter(|launch| launch.report.is_some()) {
        let Some(task) = &launch.task else { continue };
        if tasks::get(tx, task)?.is_none_or(|task| task.status != TaskStatus::InProgress) {
            work.over.insert(task.clone());
        }
        if !in_progress(tx, &launch.key)?.is_empty() {
            work.with_further_work.insert(launch.key.clone());
        }
    }
    let is_active = |item: &&ForgeItem| item.state == ItemState::Active(WorkState::Processing);
    for key in items.iter().filter(is_active).map(ForgeItem::launch_key) {
        if !launches.iter().any(|launch| launch.key == key) {
            let reason = reason(startable::of_key(tx, &key)?);
            work.of_items.insert(key, reason);
        }
    }
    Ok(OpenWork { items, launches, ..work })
}

/// Returns the starts of the agents of a repository.
fn starts_of(line: &Served, work: &OpenWork) -> Vec<Start> {
    let project = &line.workers.project;
    let key = |agent: &AgentId| InstanceKey::new(agent.clone(), project.clone(), Purpose::Task);
    line.workers.agents.iter().map(|agent| work.start(key(agent))).collect()
}

fn is_of(repository: &RepositoryKey, item: &ForgeItem) -> bool {
    let key = &item.key;
    (repository.forge, &repository.host) == (key.forge, &key.host)
        && repository.name.eq_ignore_ascii_case(&key.repository)
}
