//! The entries that follow from the state of the fleet. Each function has the rule of one cause.

use std::collections::BTreeSet;

use super::{Attention, Cause, HOOK_FAILS_AFTER, QUOTA_AFTER, TaskInNeed};
use crate::account::Account;
use crate::activity::FailureClass;
use crate::id::{CoordinatorId, TaskId};
use crate::instance::Instance;
use crate::launch::{Launch, Outcome};
use crate::plan::Deferred;
use crate::start_history::{StartHistory, StartReason};
use crate::task::Task;
use crate::time::Timestamp;
use crate::waiting::{SilentHost, WaitReason, Waiting};
use crate::workspace::Workspace;

/// A failed login needs a person at once. An exhausted quota ends by itself, so it needs a person
/// only if it lasts.
pub fn of_account(account: Account, now: Timestamp) -> Option<Attention> {
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
pub fn of_suspended(
    history: StartHistory,
    last_end: Option<(Outcome, Option<String>)>,
) -> Attention {
    let reason =
        if history.is_misconfigured { StartReason::Misconfigured } else { StartReason::Suspended };
    let waiting = Waiting {
        last_end,
        n_failures: history.n_failures,
        ..Waiting::of(WaitReason::Start(reason))
    };
    let since = history.suspended_since;
    Attention { cause: Cause::Start { key: history.key, waiting }, since }
}

/// Returns the entries of all blocked tasks. The parts of a blocked task are blocked with it and go
/// on with it, so they have none. `failed` are the tasks whose agents reported a failure.
pub fn of_blocked(blocked: Vec<Task>, failed: &BTreeSet<TaskId>) -> Vec<Attention> {
    let ids: BTreeSet<TaskId> = blocked.iter().map(|task| task.id.clone()).collect();
    let is_alone = |task: &Task| task.parent.as_ref().is_none_or(|parent| !ids.contains(parent));
    let entry = |task: Task| Attention {
        since: Some(task.status_since),
        cause: Cause::Blocked {
            has_failed: failed.contains(&task.id),
            reason: task.blocked_reason.clone(),
            task: task.into(),
        },
    };
    blocked.into_iter().filter(is_alone).map(entry).collect()
}

/// Returns the entry of a task that is to begin after a task that was cancelled.
pub fn of_chain(task: Task, after: Task) -> Attention {
    let since = Some(after.status_since);
    Attention { since, cause: Cause::Chain { task: task.into(), after: after.short_id } }
}

/// Returns the entry of a broken clone.
pub fn of_workspace(workspace: Workspace, task: Task) -> Attention {
    let since = Some(workspace.created_at);
    let cause = Cause::Workspace {
        task: TaskInNeed::from(task),
        reason: workspace.reason,
        revision: workspace.revision,
    };
    Attention { cause, since }
}

/// Returns the entry of a coordinator that does not answer. `instances` is what it reported last.
pub fn of_silent(host: SilentHost, instances: &[Instance]) -> Attention {
    let n_running = instances.iter().filter(|instance| instance.is_live()).count();
    let SilentHost { coordinator, machine, heard_at } = host;
    let cause = Cause::SilentCoordinator { coordinator, machine, n_running };
    Attention { cause, since: Some(heard_at) }
}

/// Returns the entries that a coordinator that answers reports about itself: the processes that it
/// cannot end, and the starts that it puts off for a reason of its machine. The store has all other
/// reasons. A hook that fails is tried again, so it needs a person only if it goes on failing.
pub fn of_coordinator(
    instances: &[Instance],
    deferred: &[Deferred],
    now: Timestamp,
) -> Vec<Attention> {
    let unkillable = instances.iter().filter_map(|instance| {
        let since = instance.condition.unkillable_since?;
        let cause =
            Cause::Unkillable { launch: instance.launch.clone(), key: instance.key.clone() };
        Some(Attention { cause, since: Some(since) })
    });
    let deferred = deferred.iter().filter(|deferred| {
        matches!(deferred.reason, StartReason::NoPasskey | StartReason::WorkspaceDisk)
            || deferred.is_by_fault()
            || deferred.since.is_some_and(|since| now.since(since) >= HOOK_FAILS_AFTER)
    });
    let deferred = deferred.map(|deferred| {
        let waiting = Waiting {
            detail: deferred.detail.clone(),
            ..Waiting::of(WaitReason::Start(deferred.reason))
        };
        let cause = Cause::Start { key: deferred.key.clone(), waiting };
        Attention { cause, since: deferred.since }
    });
    unkillable.chain(deferred).collect()
}

/// Returns the entries of launches whose coordinators are gone. Launches of a coordinator that is
/// known to be silent have the entry of that coordinator.
pub fn of_abandoned(
    abandoned: impl IntoIterator<Item = Launch>,
    silent: &BTreeSet<CoordinatorId>,
) -> Vec<Attention> {
    let is_told =
        |launch: &Launch| launch.coordinator.as_ref().is_some_and(|id| silent.contains(id));
    let abandoned = abandoned.into_iter().filter(|launch| !is_told(launch));
    let entry = |launch: Launch| Attention {
        since: Some(launch.claimed_at),
        cause: Cause::Abandoned { launch: launch.id, key: launch.key },
    };
    abandoned.map(entry).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::account::{Parked, Probe};
    use crate::attention::AttentionKind;
    use crate::instance::{Condition, Phase};
    use crate::launch::ProcessEnd;
    use crate::task::{NewTask, TaskStatus};
    use crate::{InstanceKey, Language, LaunchId, Purpose};

    const AT: Timestamp = Timestamp::from_millis(1_000);

    fn key() -> InstanceKey {
        InstanceKey::new("ann".parse().unwrap(), "shop".parse().unwrap(), Purpose::Task)
    }

    fn parked(class: FailureClass) -> Account {
        let parked = Parked {
            class,
            since: AT,
            first: AT,
            until: AT + std::time::Duration::from_mins(1),
            n_failures: 1,
            probe: None,
        };
        Account { ai_type: "codex".to_owned(), parked: Some(parked), revision: 0 }
    }

    fn task(id: &str, parent: Option<&str>) -> Task {
        let new = NewTask {
            status: TaskStatus::Blocked,
            assignee: Some("ann".parse().unwrap()),
            parent: parent.map(|id| id.parse().unwrap()),
            ..NewTask::new("shop".parse().unwrap(), "Sell tea")
        };
        let task = new.to_task(id.parse().unwrap(), "SHOP-1".parse().unwrap(), AT).unwrap();
        Task { blocked_reason: Some("no key".to_owned()), ..task }
    }

    fn launch(id: &str) -> LaunchId {
        id.parse().unwrap()
    }

    fn instance(id: &str, phase: Phase, unkillable_since: Option<Timestamp>) -> Instance {
        Instance {
            launch: launch(id),
            key: key(),
            phase,
            adopted: false,
            stop: None,
            is_marked_authenticated: true,
            condition: Condition { unkillable_since, ..Condition::default() },
            shim: None,
        }
    }

    #[test]
    fn a_login_needs_a_person_at_once_and_a_quota_after_some_time() {
        let kind = |class, now| of_account(parked(class), now).map(|entry| entry.kind());
        let later = AT + QUOTA_AFTER;
        assert_eq!(kind(FailureClass::Auth, AT), Some(AttentionKind::Account));
        assert_eq!(kind(FailureClass::Quota, AT), None);
        assert_eq!(kind(FailureClass::Quota, later), Some(AttentionKind::Account));
        let works = Account { parked: None, ..parked(FailureClass::Auth) };
        assert_eq!(of_account(works, later), None);
    }

    #[test]
    fn a_parked_account_names_the_launch_that_tries_it() {
        let mut account = parked(FailureClass::Auth);
        account.parked.as_mut().unwrap().probe = Some(Probe { launch: launch("lch_1"), at: AT });
        let text = of_account(account, AT).unwrap().text(Language::English);
        assert_eq!(text, "lch_1 tries whether it works again");
    }

    #[test]
    fn a_suspended_agent_tells_its_failures_and_its_last_end() {
        let history =
            StartHistory { n_failures: 5, suspended_since: Some(AT), ..StartHistory::new(key()) };
        let end = (Outcome::ExitedWithoutReport, Some("bye".to_owned()));
        let entry = of_suspended(history.clone(), Some(end));
        assert_eq!((entry.kind(), entry.since), (AttentionKind::Suspended, Some(AT)));
        assert_eq!(entry.agent().unwrap().as_str(), "ann");
        let text = entry.text(Language::English);
        assert!(text.starts_with("Failed 5 times in a row") && text.contains("bye"), "{text}");
        let history = StartHistory { is_misconfigured: true, ..history };
        assert_eq!(of_suspended(history, None).kind(), AttentionKind::Misconfigured);
    }

    #[test]
    fn a_part_of_a_blocked_task_has_no_entry_of_its_own() {
        let blocked = vec![task("a", None), task("b", Some("a")), task("c", Some("not_blocked"))];
        let failed = BTreeSet::from(["c".parse().unwrap()]);
        let entries = of_blocked(blocked, &failed);
        let told: Vec<_> = entries
            .iter()
            .map(|entry| (entry.task().unwrap().id.as_str(), entry.kind(), entry.since))
            .collect();
        let expected =
            [("a", AttentionKind::Blocked, Some(AT)), ("c", AttentionKind::Failed, Some(AT))];
        assert_eq!(told, expected);
        assert_eq!(entries[0].text(Language::English), "Blocked: no key");
    }

    #[test]
    fn a_cut_chain_exists_since_the_other_task_was_cancelled() {
        let after = Task {
            short_id: "SHOP-9".parse().unwrap(),
            status_since: Timestamp::from_millis(7_000),
            ..task("b", None)
        };
        let entry = of_chain(task("a", None), after.clone());
        assert_eq!((entry.kind(), entry.since), (AttentionKind::Chain, Some(after.status_since)));
        assert!(entry.text(Language::English).contains("SHOP-9"));
    }

    #[test]
    fn a_silent_coordinator_says_how_many_agents_it_ran() {
        let ended = Phase::Ended {
            pid: None,
            started_at: None,
            end: ProcessEnd::Lost,
            at: AT,
            n_leaked: 0,
        };
        let instances = [instance("lch_1", Phase::Starting, None), instance("lch_2", ended, None)];
        let host = SilentHost {
            coordinator: "crd_1".parse().unwrap(),
            machine: Some("build-1".to_owned()),
            heard_at: AT,
        };
        let entry = of_silent(host.clone(), &instances);
        assert_eq!((entry.kind(), entry.since), (AttentionKind::Coordinator, Some(AT)));
        assert_eq!(entry.title(Language::English), "build-1 does not answer");
        assert_eq!(entry.title(Language::Japanese), "build-1 が応答しません");
        let unnamed = of_silent(SilentHost { machine: None, ..host }, &instances);
        assert_eq!(unnamed.title(Language::English), "Host 1 does not answer");
        assert_eq!(unnamed.id(), entry.id(), "the marks of people stay");
        let Cause::SilentCoordinator { n_running, .. } = entry.cause else { unreachable!() };
        assert_eq!(n_running, 1);
    }

    #[test]
    fn a_coordinator_tells_what_only_a_person_ends() {
        let instances = [
            instance("lch_1", Phase::Starting, Some(AT)),
            instance("lch_2", Phase::Starting, None),
        ];
        let deferred = |reason| Deferred {
            key: key(),
            reason,
            until: None,
            detail: Some("3 GiB are free".to_owned()),
            also: Vec::new(),
            in_use: None,
            n_ahead: 0,
            since: None,
        };
        let reasons = [
            StartReason::NoPasskey,
            StartReason::WorkspaceDisk,
            StartReason::Misconfigured,
            // The store tells the first one, and the others end by themselves.
            StartReason::Suspended,
            StartReason::NoFreeSlot,
            StartReason::Backoff,
        ];
        let entries = of_coordinator(&instances, &reasons.map(deferred), AT);
        let told: Vec<_> = entries.iter().map(|entry| (entry.kind(), entry.since)).collect();
        let expected = [
            (AttentionKind::Unkillable, Some(AT)),
            (AttentionKind::Misconfigured, None),
            (AttentionKind::Workspace, None),
            (AttentionKind::Misconfigured, None),
        ];
        assert_eq!(told, expected);
        let of_server = Deferred { detail: None, ..deferred(StartReason::Misconfigured) };
        assert_eq!(of_coordinator(&[], &[of_server], AT), [], "the store tells it");
        assert_eq!(entries[0].launch(), Some(&launch("lch_1")));
        let text = entries[2].text(Language::English);
        assert!(text.contains("3 GiB are free"), "{text}");
        let failing = [Deferred { since: Some(AT), ..deferred(StartReason::HookFailed) }];
        let later = AT + HOOK_FAILS_AFTER;
        assert_eq!(of_coordinator(&[], &failing, later - Duration::from_millis(1)), []);
        let entries = of_coordinator(&[], &failing, later);
        let told: Vec<_> = entries.iter().map(|entry| (entry.kind(), entry.since)).collect();
        assert_eq!(told, [(AttentionKind::Workspace, Some(AT))]);
    }

    #[test]
    fn a_launch_of_a_silent_coordinator_is_told_with_it() {
        let of = |id: &str, coordinator: Option<&str>| Launch {
            coordinator: coordinator.map(|id| id.parse().unwrap()),
            ..Launch::claimed(launch(id), key(), "claude".to_owned(), AT, AT)
        };
        let launches = [of("lch_1", Some("crd_1")), of("lch_2", Some("crd_2")), of("lch_3", None)];
        let silent = BTreeSet::from(["crd_1".parse().unwrap()]);
        let entries = of_abandoned(launches, &silent);
        let told: Vec<_> = entries.iter().filter_map(|entry| entry.launch()).collect();
        assert_eq!(told, [&launch("lch_2"), &launch("lch_3")]);
        assert!(entries.iter().all(|entry| entry.kind() == AttentionKind::Coordinator));
    }
}
