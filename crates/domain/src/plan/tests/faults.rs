use super::*;

#[test]
fn a_start_with_a_fault_waits_for_a_person_and_takes_no_slot() {
    let until = Some(NOW + Duration::from_secs(4));
    let fault = "program `agent` was not found";
    let cases = [
        (StartReason::Ready, None, StartReason::Misconfigured, Some(fault)),
        // The launch that showed the fault has just failed.
        (StartReason::Backoff, until, StartReason::Misconfigured, Some(fault)),
        // The server has a reason of its own, and a detail belongs to its reason.
        (StartReason::Held, None, StartReason::Held, None),
        (StartReason::Paused, None, StartReason::Paused, None),
    ];
    for (reason, until, expected, detail) in cases {
        let faulty = Candidate { reason, until, ..waiting(key(1, 1), 0) };
        let startable = vec![faulty, waiting(key(2, 1), 1)];
        let faults = BTreeMap::from([(key(1, 1), fault.to_owned())]);
        let plan = plan(&Snapshot { startable, faults, ..snapshot(1) });
        let told: Vec<_> =
            plan.deferred.iter().map(|it| (it.reason, it.detail.as_deref())).collect();
        assert_eq!(told, [(expected, detail)], "{reason}");
        assert_eq!(plan.deferred[0].is_by_fault(), detail.is_some());
        assert_eq!(starts(&plan), ["agt_2/prj_1"], "{reason}");
        let looks_again = detail.map(|_| NOW + FAULT_PAUSE);
        assert_eq!(plan.wake_at, until.or(looks_again), "{reason}");
    }
}

#[test]
fn a_process_that_lives_comes_before_a_fault() {
    let live = launch("lch_1", key(1, 1), LaunchState::Ending);
    let snapshot = Snapshot {
        instances: vec![instance(&live, Phase::Running { pid: 7, started_at: NOW })],
        startable: vec![waiting(key(1, 1), 0)],
        faults: BTreeMap::from([(key(1, 1), "no program".to_owned())]),
        ..snapshot(1)
    };
    assert_eq!(plan(&snapshot).deferred[0].reason, StartReason::Stopping);
}
