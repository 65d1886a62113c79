use super::*;
use crate::workspace::{CleanOrder, KeepOrder, Order};

fn job(id: &str) -> Job {
    Job::Keep(KeepOrder {
        id: id.parse().expect("an id"),
        project: "prj".parse().expect("an id"),
        branch: "agents/prj-1".to_owned(),
        base_ref: None,
        base_commit: None,
        agent: "agt".parse().expect("an id"),
        launch: None,
        chosen: None,
        dropped: [].into(),
        conflict: None,
    })
}

#[test]
fn a_step_on_a_workspace_is_taken_once_at_a_time() {
    let jobs = vec![job("wsp_1"), job("wsp_2")];
    let busy_workspaces = BTreeSet::from(["wsp_1".parse().expect("an id")]);
    let plan = plan(&Snapshot { jobs, busy_workspaces, ..snapshot(1) });
    assert_eq!(plan.actions, [Action::Workspace(job("wsp_2"))]);
}

#[test]
fn a_start_waits_for_its_clone_and_asks_for_it_only_while_there_is_none() {
    let reason = StartReason::PreparingWorkspace;
    let without = Candidate { reason, needs_clone: true, ..waiting(key(1, 1), 0) };
    let workspace = Some("wsp_1".parse().expect("an id"));
    let detail = Some("no space".to_owned());
    let with = Candidate { workspace, detail, ..Candidate { key: key(2, 1), ..without.clone() } };
    let plan = plan(&Snapshot { startable: vec![without, with], ..snapshot(9) });
    assert_eq!(plan.actions, [Action::WantWorkspace { key: key(1, 1) }]);
    let reasons: Vec<_> = plan.deferred.iter().map(|deferred| deferred.reason).collect();
    assert_eq!(reasons, [reason, reason]);
    assert_eq!(plan.deferred[1].detail.as_deref(), Some("no space"), "people see why");
}

#[test]
fn a_start_waits_for_the_hook_of_its_clone_and_has_its_slot_meanwhile() {
    let id: WorkspaceId = "wsp_1".parse().expect("an id");
    let first = Candidate { workspace: Some(id.clone()), ..waiting(key(1, 1), 0) };
    let second = waiting(key(2, 1), 1);
    let of = |passed: Option<BTreeSet<WorkspaceId>>, busy: BTreeSet<WorkspaceId>| {
        let startable = vec![first.clone(), second.clone()];
        plan(&Snapshot { startable, passed_hooks: passed, busy_workspaces: busy, ..snapshot(1) })
    };
    let job = Job::BeforeRun { project: key(1, 1).project, id: id.clone() };
    let hook_first = of(Some(BTreeSet::new()), BTreeSet::new());
    assert_eq!(hook_first.actions, [Action::Workspace(job)]);
    let reasons: Vec<_> = hook_first.deferred.iter().map(|deferred| deferred.reason).collect();
    assert_eq!(reasons, [StartReason::PreparingWorkspace, StartReason::NoFreeSlot]);
    let under_way = of(Some(BTreeSet::new()), BTreeSet::from([id.clone()]));
    assert_eq!(under_way.actions, []);
    assert_eq!(starts(&of(Some(BTreeSet::from([id])), BTreeSet::new())), ["agt_1/prj_1"]);
    assert_eq!(starts(&of(None, BTreeSet::new())), ["agt_1/prj_1"], "there is no hook");
}

#[test]
fn no_agent_starts_in_a_clone_that_is_being_removed() {
    let id: WorkspaceId = "wsp_1".parse().expect("an id");
    let opened_again = Candidate { workspace: Some(id.clone()), ..waiting(key(1, 1), 0) };
    let of = |removing_workspaces: BTreeSet<WorkspaceId>| {
        let startable = vec![opened_again.clone()];
        plan(&Snapshot { startable, removing_workspaces, ..snapshot(9) })
    };
    let plan = of(BTreeSet::from([id]));
    assert_eq!(plan.actions, []);
    assert_eq!(plan.deferred[0].reason, StartReason::PreparingWorkspace);
    assert_eq!(starts(&of(BTreeSet::new())), ["agt_1/prj_1"]);
}

#[test]
fn a_check_waits_for_its_fresh_clone() {
    let id: WorkspaceId = "wsp_1".parse().expect("an id");
    let check = InstanceKey { purpose: Purpose::Check, ..key(1, 1) };
    let next = Candidate { workspace: Some(id.clone()), ..waiting(check, 0) };
    let order = CleanOrder {
        id: id.clone(),
        project: key(1, 1).project,
        commit: Some("1234".to_owned()),
        base_commit: None,
        agent: key(1, 1).agent,
        protected: Vec::new(),
    };
    let job = Job::PrepareClean { order: Box::new(order), max_disk: 1 };
    let of = |jobs: Vec<Job>, busy_workspaces: BTreeSet<WorkspaceId>| {
        let startable = vec![next.clone()];
        plan(&Snapshot { startable, jobs, busy_workspaces, ..snapshot(9) })
    };
    let first = of(vec![job.clone()], BTreeSet::new());
    assert_eq!(first.actions, [Action::Workspace(job.clone())]);
    assert_eq!(first.deferred[0].reason, StartReason::PreparingWorkspace);
    assert_eq!(of(vec![job], BTreeSet::from([id])).actions, [], "it is being made");
    assert_eq!(starts(&of(Vec::new(), BTreeSet::new())).len(), 1, "it is there");
}

#[test]
fn a_step_that_is_given_up_is_taken_again_only_with_another_order() {
    let id: WorkspaceId = "wsp_1".parse().expect("an id");
    let check = InstanceKey { purpose: Purpose::Check, ..key(1, 1) };
    let next = Candidate { workspace: Some(id.clone()), ..waiting(check, 0) };
    let of_commit = |commit: &str, max_disk: u64| Job::PrepareClean {
        order: Box::new(CleanOrder {
            id: id.clone(),
            project: key(1, 1).project,
            commit: Some(commit.to_owned()),
            base_commit: None,
            agent: key(1, 1).agent,
            protected: Vec::new(),
        }),
        max_disk,
    };
    let of = |job: Job| {
        let (startable, jobs) = (vec![next.clone()], vec![job]);
        let given_up = BTreeMap::from([(id.clone(), of_commit("1234", 1))]);
        plan(&Snapshot { startable, jobs, given_up, ..snapshot(9) })
    };
    let waits = of(of_commit("1234", 1));
    assert_eq!(waits.actions, [], "it would fail again, and no check starts without it");
    assert_eq!(waits.deferred[0].reason, StartReason::PreparingWorkspace);
    for other in [of_commit("5678", 1), of_commit("1234", 2), job("wsp_1"), job("wsp_2")] {
        assert_eq!(of(other.clone()).actions.first(), Some(&Action::Workspace(other)));
    }
}

#[test]
fn a_failed_hook_is_tried_again_in_a_clone_that_is_made() {
    let id: WorkspaceId = "wsp_1".parse().expect("an id");
    let reason = StartReason::HookFailed;
    let failed = Candidate { reason, workspace: Some(id.clone()), ..waiting(key(1, 1), 0) };
    let of = |jobs: Vec<Job>, busy: BTreeSet<WorkspaceId>| {
        let startable = vec![failed.clone()];
        plan(&Snapshot { startable, jobs, busy_workspaces: busy, ..snapshot(1) }).actions
    };
    let again = Action::Workspace(Job::BeforeRun { project: key(1, 1).project, id: id.clone() });
    assert_eq!(of(Vec::new(), BTreeSet::new()), [again]);
    assert_eq!(of(Vec::new(), BTreeSet::from([id])), []);
    let other = of(vec![job("wsp_1")], BTreeSet::new());
    assert_eq!(other, [Action::Workspace(job("wsp_1"))], "its step runs the hook");
}

#[test]
fn a_slot_waits_for_the_clone_of_the_first_start_for_some_time() {
    let wait = Duration::from_secs(30);
    let second = Duration::from_secs(1);
    let urgent = |detail: Option<&str>| Candidate {
        reason: StartReason::PreparingWorkspace,
        priority: Priority::Urgent,
        needs_clone: true,
        workspace: Some("wsp_1".parse().expect("an id")),
        detail: detail.map(str::to_owned),
        ..waiting(key(1, 1), 9)
    };
    let of = |candidate: Candidate, n_slots: usize, waited: Duration| {
        let limits = Limits { clone_wait: wait, ..snapshot(n_slots).limits };
        let low = Candidate { priority: Priority::Low, ..waiting(key(2, 2), 0) };
        let preparing = BTreeMap::from([(candidate.key.clone(), waited)]);
        let startable = vec![low, candidate];
        plan(&Snapshot { startable, preparing, limits, ..snapshot(1) })
    };
    let no_plan: [&str; 0] = [];
    let waits = of(urgent(None), 1, Duration::ZERO);
    assert_eq!(starts(&waits), no_plan);
    let reasons: Vec<_> = waits.deferred.iter().map(|it| (&it.key, it.reason)).collect();
    let expected =
        [(&key(1, 1), StartReason::PreparingWorkspace), (&key(2, 2), StartReason::NoFreeSlot)];
    assert_eq!(reasons, expected);
    assert_eq!(waits.wake_at, Some(NOW + wait));
    let last = of(urgent(None), 1, wait.saturating_sub(second));
    assert_eq!((starts(&last).is_empty(), last.wake_at), (true, Some(NOW + second)));
    let other = ["agt_2/prj_2"];
    assert_eq!(starts(&of(urgent(None), 1, wait)), other, "it has waited long enough");
    assert_eq!(starts(&of(urgent(Some("no branch")), 1, Duration::ZERO)), other, "it has failed");
    assert_eq!(starts(&of(urgent(None), 2, Duration::ZERO)), other, "there are two slots");
    // The clone of a start behind it takes nothing from the first one.
    let behind = Candidate { priority: Priority::Low, ..urgent(None) };
    let plan = of(behind, 1, Duration::ZERO);
    assert_eq!(starts(&plan), other);
    assert_eq!(plan.deferred[0].reason, StartReason::PreparingWorkspace, "its own reason stays");
}

#[test]
fn clones_are_prepared_in_the_order_of_the_starts() {
    let order = |n: usize| Order {
        id: format!("wsp_{n}").parse().expect("an id"),
        project: "prj".parse().expect("an id"),
        branch: "agents/prj-1".to_owned(),
        source: "dir".into(),
        agent: "agt".parse().expect("an id"),
        base: None,
        lfs: false,
        submodules: false,
        dependencies: Vec::new(),
        begins_at: None,
        restores: None,
        forge: None,
        run_as: None,
    };
    let prepare = |n| Job::Prepare { order: Box::new(order(n)), max_disk: 1 };
    let waits = |n: usize, priority| Candidate {
        reason: StartReason::PreparingWorkspace,
        priority,
        workspace: Some(order(n).id),
        ..waiting(key(n, 1), 0)
    };
    let startable =
        vec![waits(1, Priority::Low), waits(2, Priority::Medium), waits(3, Priority::Urgent)];
    // A person wants the files of the fourth one, and no start waits for it.
    let jobs = vec![prepare(4), prepare(1), job("wsp_9"), prepare(2), prepare(3)];
    let plan = plan(&Snapshot { startable, jobs, ..snapshot(1) });
    let expected = [prepare(3), prepare(2), job("wsp_9"), prepare(1), prepare(4)];
    assert_eq!(plan.actions, expected.map(Action::Workspace));
}

#[test]
fn a_start_whose_hook_fails_says_since_when() {
    let id: WorkspaceId = "wsp_1".parse().expect("an id");
    for (reason, since) in [(StartReason::HookFailed, Some(NOW)), (StartReason::Held, None)] {
        let waits = Candidate { reason, workspace: Some(id.clone()), ..waiting(key(1, 1), 0) };
        let failing_hooks = BTreeMap::from([(id.clone(), NOW)]);
        let plan = plan(&Snapshot { startable: vec![waits], failing_hooks, ..snapshot(1) });
        assert_eq!(plan.deferred[0].since, since, "{reason}");
    }
}
