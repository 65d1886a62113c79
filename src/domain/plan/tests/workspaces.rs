use super::*;
use crate::domain::workspace::KeepOrder;

fn job(id: &str) -> Job {
    Job::Keep(KeepOrder {
        id: id.parse().expect("an id"),
        project: "prj".parse().expect("an id"),
        branch: "agents/prj-1".to_owned(),
        base_commit: None,
        agent: "agt".parse().expect("an id"),
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
