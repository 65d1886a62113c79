//! The conditions that need a person, and what people do with them.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::attention::{
    self, Attention, AttentionKind, AttentionState, Cause, FORGE_AWAY_AFTER, Mark,
};
use domain::configuration::Rejected;
use domain::workspace::WorkspaceState;
use domain::{AttentionId, Refusal, Task, TaskStatus, Timestamp, WorkspaceId};
use store::rows::{
    accounts, attention as marks, forge_items, launches, projects, start_histories, tasks,
    workspaces,
};
use store::{Read, StoreError, TaskFilter};

use super::launches::history::last_end;
use super::status::list_stuck;
use super::workspaces::list_unmerged;
use super::{CoordinatorStatus, CoordinatorView, ForgeHealth, ForgeStatus, Service, ServiceError};

/// An entry with what one person did with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedAttention {
    pub entry: Attention,
    pub mark: Option<Mark>,
    pub state: AttentionState,
}

/// The longest time that an entry is put off.
const LONGEST_DELAY: Duration = Duration::from_hours(365 * 24);

/// The time for which marks are kept, longer than an entry can be put off.
const KEPT_FOR: Duration = Duration::from_hours(2 * 365 * 24);

impl Service {
    /// Returns the conditions that need a person, in the order in which people see them, each with
    /// the mark of `person`. `rejected` is the reason why the configuration file is not in use.
    pub async fn attention(
        &self,
        person: &str,
        rejected: Option<Rejected>,
    ) -> Result<Vec<MarkedAttention>, ServiceError> {
        let now = self.core.now();
        let name = person.to_owned();
        let given_up = self.workspaces.given_up();
        let read = self.core.read(move |tx| {
            let marks = marks::list_of(tx, &name)?;
            Ok((of_rows(tx, &given_up, now)?, launches::list_open(tx)?, marks))
        });
        let (mut entries, open, marks) = read.await?;
        entries.extend(self.workspaces.left_merges().await?);
        entries.extend(self.workspaces.waiting_upgrades().await?);
        entries.extend(rejected.map(|rejected| Attention {
            cause: Cause::Configuration { problem: rejected.problem },
            since: Some(rejected.since),
        }));
        let coordinators = self.board.all(now);
        entries.extend(coordinators.iter().flat_map(|view| of_view(view, now)));
        if coordinators.is_empty() && self.board.unlisted_at().is_none() {
            entries.push(Attention { cause: Cause::NoCoordinator, since: None });
        }
        let silent = coordinators.iter().filter(|view| !view.is_there);
        let silent = silent.map(|view| view.status.coordinator.clone()).collect();
        let abandoned = open.into_iter().filter(|launch| self.board.is_abandoned(launch, now));
        entries.extend(attention::of_abandoned(abandoned, &silent));
        entries.extend(self.forges.all().into_iter().filter_map(|host| of_forge(host, now)));
        attention::sort(&mut entries);
        // Several coordinators may report the same.
        entries.dedup_by_key(|entry| entry.id());
        let marked = |entry: Attention| {
            let id = entry.id();
            let mark = marks.iter().find(|mark| mark.item == id).cloned();
            let state = mark.as_ref().map_or(AttentionState::Open, |mark| mark.state_at(now));
            MarkedAttention { entry, mark, state }
        };
        Ok(entries.into_iter().map(marked).collect())
    }

    /// Puts an entry off until a time, or marks it as done (`None`), for one person. Marks
    /// that are older than two years are removed.
    ///
    /// # Errors
    /// `AttentionNotFound`, if no present entry has this id; `DelayOutOfRange`, if the time is
    /// over or more than a year away.
    pub async fn mark_attention(
        &self,
        person: &str,
        item: &AttentionId,
        until: Option<Timestamp>,
        rejected: Option<Rejected>,
    ) -> Result<(), ServiceError> {
        let now = self.core.now();
        if let Some(until) = until
            && (until <= now || until.since(now) > LONGEST_DELAY)
        {
            return Err(Refusal::DelayOutOfRange { until }.into());
        }
        let entries = self.attention(person, rejected).await?;
        if !entries.iter().any(|marked| marked.entry.id() == *item) {
            return Err(Refusal::AttentionNotFound { item: item.clone() }.into());
        }
        let mark = Mark { item: item.clone(), person: person.to_owned(), until, marked_at: now };
        self.core
            .write(move |tx| {
                let oldest = tx.now() - KEPT_FOR;
                marks::forget_before(tx, oldest)?;
                Ok(marks::put(tx, &mark)?)
            })
            .await
    }

    /// Notes that a person has read an open entry.
    pub async fn read_attention(
        &self,
        person: &str,
        item: &AttentionId,
    ) -> Result<(), ServiceError> {
        let mark = Mark::read(item.clone(), person.to_owned(), self.core.now());
        self.core.write(move |tx| Ok(marks::put_read(tx, &mark)?)).await
    }

    /// Returns the number of present conditions of each kind, whatever people did with them.
    pub async fn count_attention(
        &self,
        rejected: Option<Rejected>,
    ) -> Result<BTreeMap<AttentionKind, u64>, ServiceError> {
        let mut counts: BTreeMap<_, u64> =
            AttentionKind::ALL.iter().map(|kind| (*kind, 0)).collect();
        for marked in self.attention("", rejected).await? {
            *counts.entry(marked.entry.kind()).or_default() += 1;
        }
        Ok(counts)
    }

    /// Makes an entry open again for one person. Nothing happens if it is open.
    pub async fn unmark_attention(
        &self,
        person: &str,
        item: &AttentionId,
    ) -> Result<(), ServiceError> {
        let name = person.to_owned();
        let item = item.clone();
        self.core.write(move |tx| Ok(marks::remove(tx, &item, &name)?)).await
    }
}

/// Returns the entries that come from rows. A step of the workspaces in `given_up` would fail again.
fn of_rows(
    tx: &mut Read<'_>,
    given_up: &[WorkspaceId],
    now: Timestamp,
) -> Result<Vec<Attention>, StoreError> {
    let parked = accounts::list_parked(tx)?.into_iter();
    let mut entries: Vec<Attention> =
        parked.filter_map(|account| attention::of_account(account, now)).collect();
    for history in start_histories::list_suspended(tx)? {
        let last_end = last_end(tx, &history.key)?;
        entries.push(attention::of_suspended(history, last_end));
    }
    let blocked = TaskFilter { status: Some(TaskStatus::Blocked), ..TaskFilter::default() };
    let blocked = tasks::list(tx, &blocked)?;
    entries.extend(attention::of_blocked(blocked, &tasks::list_failed(tx)?));
    entries
        .extend(list_stuck(tx)?.into_iter().map(|(task, after)| attention::of_chain(task, after)));
    let results = list_unmerged(tx, None)?;
    let of_results = results.iter().map(|result| result.task.project.clone()).collect();
    let names = projects::names(tx, &of_results)?;
    entries.extend(attention::of_results(results, &names));
    let mut waiting = workspaces::list_broken(tx)?;
    for id in given_up {
        let found = workspaces::get(tx, id)?;
        waiting.extend(found.filter(|it| it.state == WorkspaceState::Ready && it.reason.is_some()));
    }
    for workspace in waiting {
        // A step that was given up does not matter if its check or its publication is not wanted.
        let is_wanted = |task: &Task| {
            workspace.state == WorkspaceState::Broken
                || task.status.is_open()
                || workspace.is_to_be_published(task)
        };
        let task = tasks::get(tx, &workspace.task)?.filter(is_wanted);
        entries.extend(task.map(|task| attention::of_workspace(workspace, task)));
    }
    for workspace in workspaces::list_not_kept(tx)? {
        let task = tasks::get(tx, &workspace.task)?;
        entries.extend(task.and_then(|task| attention::of_not_kept(&workspace, task)));
    }
    for item in forge_items::list_open(tx)?.into_iter().filter(|item| item.n_refusals > 0) {
        let task = tasks::get(tx, &item.task)?;
        entries.extend(attention::of_item(item, task));
    }
    Ok(entries)
}

/// Returns the entries that a coordinator reports about itself, or the one about its silence.
fn of_view(view: &CoordinatorView, now: Timestamp) -> Vec<Attention> {
    let CoordinatorStatus { instances, deferred, .. } = &view.status;
    if view.is_there {
        return attention::of_coordinator(instances, deferred, now);
    }
    vec![attention::of_silent(view.status.as_silent(view.heard_at), instances)]
}

fn of_forge(host: ForgeStatus, now: Timestamp) -> Option<Attention> {
    let is_refused = match host.health {
        ForgeHealth::Unauthorized => true,
        ForgeHealth::Unavailable if now.since(host.health_since) >= FORGE_AWAY_AFTER => false,
        _ => return None,
    };
    Some(Attention {
        cause: Cause::Forge {
            forge: host.forge,
            host: host.host,
            is_refused,
            error: host.last_error,
        },
        since: Some(host.health_since),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::forge::ForgeKind;

    const AT: Timestamp = Timestamp::from_millis(1_000);

    #[test]
    fn a_forge_needs_a_person_if_it_refuses_or_is_away_for_long() {
        let entry = |health, now| {
            let host = ForgeStatus {
                forge: ForgeKind::GitHub,
                host: "forge.example".to_owned(),
                health,
                health_since: AT,
                last_error: None,
                is_dry_run: false,
                writes_held_until: None,
                are_writes_reserved: false,
                repositories: Vec::new(),
            };
            of_forge(host, now).map(|entry| entry.kind())
        };
        let later = AT + FORGE_AWAY_AFTER;
        assert_eq!(entry(ForgeHealth::Unauthorized, AT), Some(AttentionKind::Forge));
        assert_eq!(entry(ForgeHealth::Unavailable, AT), None);
        assert_eq!(entry(ForgeHealth::Unavailable, later), Some(AttentionKind::Forge));
        assert_eq!(entry(ForgeHealth::Limited(later), later), None);
        assert_eq!(entry(ForgeHealth::Ok, later), None);
    }
}
