use super::*;
use crate::plan::silence::{SECOND_LOOK, SilenceLimits};

#[test]
fn an_agent_ends_when_it_neither_calls_nor_prints_at_two_looks() {
    let second = Duration::from_secs(1);
    let with = |silence_timeout| {
        let none = Limits::of(1, Duration::ZERO);
        Limits { run: RunLimits { silence_timeout, ..none.run }, ..none }
    };
    let all = SilenceLimits::all(Some(10 * second));
    let limits = with(all);
    let quiet = |seconds, suspected: Option<u32>| {
        let suspected = suspected.map(|seconds| seconds * second);
        Elapsed { quiet: Some(seconds * second), suspected, ..Elapsed::default() }
    };
    check_time(limits, quiet(60, None), Some(4 * second), Ok(Some(second)));
    // People are warned at half of the limit.
    check_time(limits, quiet(3, None), Some(60 * second), Ok(Some(2 * second)));
    check_time(limits, quiet(5, None), Some(60 * second), Ok(Some(5 * second)));
    // The output is not watched, or the server does not report calls.
    check_time(limits, Elapsed::default(), Some(60 * second), Ok(None));
    check_time(limits, quiet(60, None), None, Ok(None));
    check_time(limits, quiet(60, Some(0)), Some(60 * second), Ok(Some(SECOND_LOOK)));
    check_time(limits, quiet(60, Some(2)), Some(60 * second), Err(StopReason::Silence));
    // Only streams have a limit here.
    let streams = with(SilenceLimits { others: None, ..all });
    check_time(streams, quiet(60, Some(2)), Some(60 * second), Ok(None));
    let stream = Elapsed { is_stream: true, ..quiet(60, Some(2)) };
    check_time(streams, stream, Some(60 * second), Err(StopReason::Silence));
}

#[test]
fn a_silence_is_told_at_half_of_what_ends_an_agent() {
    let silence_timeout = SilenceLimits::all(Some(Duration::from_secs(10)));
    let limits = snapshot(1).limits;
    let limits = Limits { run: RunLimits { silence_timeout, ..limits.run }, ..limits };
    let check = |quiet: u64, expected: &[u64]| {
        let launch =
            LaunchFacts { idle_ms: Some(60_000), pid: Some(7), ..running_launch(1, key(1, 1)) };
        let elapsed = Elapsed { quiet: Some(Duration::from_secs(quiet)), ..Elapsed::default() };
        let elapsed = BTreeMap::from([(launch.id.clone(), elapsed)]);
        let instances = vec![instance(&launch, running())];
        let silent =
            plan(&Snapshot { launches: vec![launch], instances, elapsed, limits, ..snapshot(1) })
                .silent;
        assert_eq!(
            silent.iter().map(|(_, silence)| silence.as_secs()).collect::<Vec<_>>(),
            expected
        );
    };
    check(4, &[]);
    check(5, &[5]);
    check(9, &[9]);
}
