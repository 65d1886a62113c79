//! The conditions that need a person, and what people do with them.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::config::Rejected;
use crate::domain::activity::FailureClass;
use crate::domain::attention::{
    self, Attention, AttentionState, Cause, FORGE_AWAY_AFTER, Mark, QUOTA_AFTER, TaskInNeed,
};
use crate::domain::start_history::StartReason;
use crate::domain::waiting::{WaitReason, Waiting};
use crate::domain::{Account, AttentionId, Launch, Refusal, StartHistory, TaskStatus, Timestamp};
use crate::rows::{accounts, attention as marks, launches, start_histories, tasks, workspaces};
use crate::store::{Read, StoreError, TaskFilter};

use super::launches::history::last_end;
use super::status::list_stuck;
use super::{CoordinatorView, ForgeHealth, ForgeStatus, Service, ServiceError};

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
        let read = self.core.read(move |tx| {
            let marks = marks::list_of(tx, &name)?;
            Ok((of_rows(tx, now)?, launches::list_open(tx)?, marks))
        });
        let (mut entries, open, marks) = read.await?;
        entries.extend(rejected.map(|rejected| Attention {
            cause: Cause::Configuration { problem: rejected.problem },
            since: Some(rejected.since),
        }));
        let coordinators = self.board.all(now);
        entries.extend(coordinators.iter().flat_map(of_coordinator));
        if coordinators.is_empty() && self.board.unlisted_at().is_none() {
            entries.push(Attention { cause: Cause::NoCoordinator, since: None });
        }
        let is_silent = |launch: &Launch| {
            let silent = coordinators.iter().filter(|view| !view.is_there);
            let mut silent = silent.map(|view| &view.status.coordinator);
            silent.any(|coordinator| launch.coordinator.as_ref() == Some(coordinator))
        };
        let abandoned = open.into_iter().filter(|launch| self.board.is_abandoned(launch, now));
        entries.extend(abandoned.filter(|launch| !is_silent(launch)).map(|launch| Attention {
            cause: Cause::Abandoned { launch: launch.id, key: launch.key },
            since: Some(launch.claimed_at),
        }));
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
        let mark = Mark { item: item.clone(), person: person.to_owned(), until };
        self.core
            .write(move |tx| {
                let oldest = tx.now() - KEPT_FOR;
                marks::forget_before(tx, oldest)?;
                Ok(marks::put(tx, &mark)?)
            })
            .await
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

/// Returns the entries that come from rows.
fn of_rows(tx: &mut Read<'_>, now: Timestamp) -> Result<Vec<Attention>, StoreError> {
    let parked = accounts::list_parked(tx)?.into_iter();
    let mut entries: Vec<Attention> =
        parked.filter_map(|account| of_account(account, now)).collect();
    for history in start_histories::list_suspended(tx)? {
        entries.push(of_suspended(tx, history)?);
    }
    let blocked = TaskFilter { status: Some(TaskStatus::Blocked), ..TaskFilter::default() };
    let blocked = tasks::list(tx, &blocked)?;
    let failed = tasks::list_failed(tx)?;
    let ids: BTreeSet<_> = blocked.iter().map(|task| task.id.clone()).collect();
    // The parts of a blocked task are blocked with it, and go on with it.
    let alone = blocked
        .into_iter()
        .filter(|task| task.parent.as_ref().is_none_or(|parent| !ids.contains(parent)));
    entries.extend(alone.map(|task| Attention {
        since: Some(task.status_since),
        cause: Cause::Blocked {
            has_failed: failed.contains(&task.id),
            reason: task.blocked_reason.clone(),
            task: task.into(),
        },
    }));
    entries.extend(list_stuck(tx)?.into_iter().map(|(task, after)| Attention {
        since: Some(after.status_since),
        cause: Cause::Chain { task: task.into(), after: after.short_id },
    }));
    for workspace in workspaces::list_broken(tx)? {
        if let Some(task) = tasks::get(tx, &workspace.task)? {
            let cause = Cause::Workspace {
                task: TaskInNeed::from(task),
                reason: workspace.reason,
                revision: workspace.revision,
            };
            entries.push(Attention { cause, since: Some(workspace.created_at) });
        }
    }
    Ok(entries)
}

fn of_account(account: Account, now: Timestamp) -> Option<Attention> {
    let parked = account.parked?;
    let needs_person = parked.class == FailureClass::Auth || now.since(parked.first) >= QUOTA_AFTER;
    needs_person.then_some(Attention {
        cause: Cause::Account {
            provider: account.ai_type,
            class: parked.class,
            until: parked.until,
            tried_by: parked.probe.map(|probe| probe.launch),
        },
        since: Some(parked.first),
    })
}

/// Returns the entry of a suspended key, with the end of its last launch.
fn of_suspended(tx: &mut Read<'_>, history: StartHistory) -> Result<Attention, StoreError> {
    let last_end = last_end(tx, &history.key)?;
    let reason =
        if history.is_misconfigured { StartReason::Misconfigured } else { StartReason::Suspended };
    let waiting = Waiting {
        last_end,
        n_failures: history.n_failures,
        ..Waiting::of(WaitReason::Start(reason))
    };
    let since = history.suspended_since;
    Ok(Attention { cause: Cause::Start { key: history.key, waiting }, since })
}

/// Returns the entries that a coordinator reports about itself.
fn of_coordinator(view: &CoordinatorView) -> Vec<Attention> {
    let status = &view.status;
    if !view.is_there {
        let n_running = status.instances.iter().filter(|instance| instance.is_live()).count();
        let coordinator = status.coordinator.clone();
        let cause = Cause::SilentCoordinator { coordinator, n_running };
        return vec![Attention { cause, since: Some(view.heard_at) }];
    }
    let unkillable = status.instances.iter().filter_map(|instance| {
        let since = instance.condition.unkillable_since?;
        let cause =
            Cause::Unkillable { launch: instance.launch.clone(), key: instance.key.clone() };
        Some(Attention { cause, since: Some(since) })
    });
    // The rows have the other reasons that need a person.
    let deferred = status.deferred.iter().filter(|deferred| {
        matches!(deferred.reason, StartReason::NoPasskey | StartReason::WorkspaceDisk)
    });
    let deferred = deferred.map(|deferred| {
        let waiting = Waiting {
            detail: deferred.detail.clone(),
            ..Waiting::of(WaitReason::Start(deferred.reason))
        };
        Attention { cause: Cause::Start { key: deferred.key.clone(), waiting }, since: None }
    });
    unkillable.chain(deferred).collect()
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
    use crate::domain::account::Parked;
    use crate::domain::attention::AttentionKind;
    use crate::domain::forge::ForgeKind;

    const PARKED_AT: Timestamp = Timestamp::from_millis(1_000);

    fn parked(class: FailureClass) -> Account {
        let parked = Parked {
            class,
            since: PARKED_AT,
            first: PARKED_AT,
            until: PARKED_AT + Duration::from_mins(1),
            n_failures: 1,
            probe: None,
        };
        Account { ai_type: "codex".to_owned(), parked: Some(parked), revision: 0 }
    }

    #[test]
    fn a_login_needs_a_person_at_once_and_a_quota_after_some_time() {
        let kind = |class, now| of_account(parked(class), now).map(|entry| entry.kind());
        let later = PARKED_AT + QUOTA_AFTER;
        assert_eq!(kind(FailureClass::Auth, PARKED_AT), Some(AttentionKind::Account));
        assert_eq!(kind(FailureClass::Quota, PARKED_AT), None);
        assert_eq!(kind(FailureClass::Quota, later), Some(AttentionKind::Account));
        let works = Account { parked: None, ..parked(FailureClass::Auth) };
        assert_eq!(of_account(works, later), None);
    }

    #[test]
    fn a_forge_needs_a_person_if_it_refuses_or_is_away_for_long() {
        let entry = |health, now| {
            let host = ForgeStatus {
                forge: ForgeKind::GitHub,
                host: "forge.example".to_owned(),
                health,
                health_since: PARKED_AT,
                last_error: None,
                is_dry_run: false,
                writes_held_until: None,
                repositories: Vec::new(),
            };
            of_forge(host, now).map(|entry| entry.kind())
        };
        let later = PARKED_AT + FORGE_AWAY_AFTER;
        assert_eq!(entry(ForgeHealth::Unauthorized, PARKED_AT), Some(AttentionKind::Forge));
        assert_eq!(entry(ForgeHealth::Unavailable, PARKED_AT), None);
        assert_eq!(entry(ForgeHealth::Unavailable, later), Some(AttentionKind::Forge));
        assert_eq!(entry(ForgeHealth::Limited(later), later), None);
        assert_eq!(entry(ForgeHealth::Ok, later), None);
    }
}
