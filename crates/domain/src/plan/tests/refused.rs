use super::*;

#[test]
fn a_start_ends_at_once_if_its_login_is_refused() {
    let deadline = NOW + Duration::from_mins(2);
    let check = |state: LaunchState, is_refused: bool, expected: Option<StopReason>| {
        let launch = LaunchFacts { pid: Some(7), ..launch("lch_1", key(1, 1), state) };
        let refused =
            if is_refused { BTreeSet::from([launch.id.clone()]) } else { BTreeSet::new() };
        let instances = vec![instance(&launch, running())];
        let plan = plan(&Snapshot { launches: vec![launch], instances, refused, ..snapshot(1) });
        let wanted = plan.actions.iter().find_map(|action| match action {
            Action::WantStop { reason, .. } => Some(*reason),
            _ => None,
        });
        assert_eq!(wanted, expected, "{is_refused}");
    };
    check(LaunchState::Starting { deadline }, false, None);
    check(LaunchState::Starting { deadline }, true, Some(StopReason::StartTimeout));
    // It has reached its model before, so its CLI ends by itself or continues.
    check(LaunchState::Running { session: "ses_1".parse().expect("an id") }, true, None);
}
