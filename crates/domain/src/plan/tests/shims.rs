use super::*;
use crate::instance::ShimIdentity;

#[test]
fn a_shim_is_reported_with_the_start_and_again_to_a_server_that_does_not_know_it() {
    let shim =
        ShimIdentity { pid: 6, start_ticks: 1, boot_id: "boot".to_owned(), pid_namespace: 1 };
    let check = |phase: Phase,
                 pid: Option<i32>,
                 is_shim_unknown: bool,
                 shim: Option<ShimIdentity>,
                 expected: bool| {
        let state = LaunchState::Running { session: "ses_1".parse().expect("an id") };
        let launch = LaunchFacts { pid, is_shim_unknown, ..launch("lch_1", key(1, 1), state) };
        let instance = Instance { shim: shim.clone(), ..instance(&launch, phase) };
        let report = ProcessReport::Started { pid: 7, at: NOW, shim };
        let report = Action::Report { launch: launch.id.clone(), report };
        let plan =
            plan(&Snapshot { instances: vec![instance], launches: vec![launch], ..snapshot(1) });
        assert_eq!(plan.actions, if expected { vec![report] } else { vec![] });
    };
    check(running(), None, false, Some(shim.clone()), true);
    check(running(), None, false, None, true);
    check(running(), Some(7), true, Some(shim.clone()), true);
    check(running(), Some(7), false, Some(shim.clone()), false);
    check(running(), Some(7), true, None, false);
    check(Phase::Starting, Some(7), true, Some(shim), false);
}
