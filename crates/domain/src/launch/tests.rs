use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::activity::Usage;
use crate::key::Purpose;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const LINGER: Duration = Duration::from_secs(30);

fn launch(is_kept: bool) -> Launch {
    let key = InstanceKey::new(
        "agt".parse().expect("an id"),
        "prj".parse().expect("an id"),
        Purpose::Task,
    );
    let id = "lch_1".parse().expect("an id");
    Launch {
        coordinator: is_kept.then(|| "crd_1".parse().expect("an id")),
        ..Launch::claimed(id, key, "claude".to_owned(), NOW, NOW + Duration::from_mins(2))
    }
}

/// A server and its coordinators may be of different versions.
#[test]
fn a_state_has_the_same_form_in_all_versions() {
    let session = "ses_1".parse().expect("an id");
    let forms = [
        (LaunchState::Starting { deadline: NOW }, "starting deadline"),
        (LaunchState::Running { session }, "running session"),
        (
            LaunchState::Stopping { reason: StopReason::Person, stop_at: NOW },
            "stopping reason ladder_at",
        ),
        (LaunchState::Ending, "ending"),
        (LaunchState::Ended { outcome: Outcome::Completed, at: NOW }, "ended outcome at"),
    ];
    for (state, form) in forms {
        let json = serde_json::to_value(&state).expect("a JSON form");
        let mut names = form.split(' ');
        assert_eq!(json["state"].as_str(), names.next());
        let mut names: Vec<&str> = names.chain(["state"]).collect();
        names.sort_unstable();
        let mut keys: Vec<&String> = json.as_object().expect("an object").keys().collect();
        keys.sort_unstable();
        assert_eq!(keys, names, "{json}");
        assert_eq!(serde_json::from_value::<LaunchState>(json).expect("the same state"), state);
    }
}

fn authenticated() -> LaunchEvent {
    LaunchEvent::Authenticated { session: "ses_1".parse().expect("an id"), at: NOW }
}

fn reported(result: ReportResult) -> LaunchEvent {
    LaunchEvent::Reported { result, at: NOW, linger: LINGER }
}

fn stop(reason: StopReason) -> LaunchEvent {
    LaunchEvent::StopWanted { reason, at: NOW, exit_grace: Duration::ZERO }
}

fn ended(exit_code: i32) -> LaunchEvent {
    let exit = ExitStatus { exit_code: Some(exit_code), signal: None };
    LaunchEvent::ProcessEnded { end: ProcessEnd::Exited(exit), at: NOW }
}

#[track_caller]
fn check(events: &[LaunchEvent], expected: &Outcome) {
    let launch = events
        .iter()
        .fold(launch(true), |launch, event| launch.on(event).expect("a possible event"));
    match launch.state {
        LaunchState::Ended { outcome, .. } => assert_eq!(outcome, *expected),
        state => panic!("not ended but {state:?}"),
    }
}

#[test]
fn ends_are_told_apart() {
    check(&[authenticated(), reported(ReportResult::Success), ended(0)], &Outcome::Completed);
    check(&[authenticated(), reported(ReportResult::Failed), ended(0)], &Outcome::Failed);
    check(&[authenticated(), reported(ReportResult::Blocked), ended(1)], &Outcome::Blocked);
    check(&[authenticated(), ended(0)], &Outcome::ExitedWithoutReport);
    check(&[ended(0)], &Outcome::NeverAuthenticated);
    check(&[stop(StopReason::StartTimeout), ended(143)], &Outcome::NeverAuthenticated);
    check(
        &[authenticated(), stop(StopReason::Person), ended(143)],
        &Outcome::Stopped(StopReason::Person),
    );
    check(
        &[authenticated(), stop(StopReason::SessionMaximum), ended(143)],
        &Outcome::TimedOut(TimeLimit::SessionMaximum),
    );
    let failed = ProcessEnd::StartFailed("no such program `x`".to_owned());
    check(
        &[LaunchEvent::ProcessEnded { end: failed, at: NOW }],
        &Outcome::StartFailed("no such program `x`".to_owned()),
    );
    check(&[LaunchEvent::ProcessEnded { end: ProcessEnd::Lost, at: NOW }], &Outcome::Lost);
}

#[test]
fn the_usage_of_a_killed_agent_is_an_estimate() {
    let is_estimated = |turns: u64, events: &[LaunchEvent]| {
        let usage = Usage { turns, ..Usage::default() };
        let launch = Launch { activity: Activity { usage, ..Activity::default() }, ..launch(true) };
        let events = events.iter();
        let launch = events.fold(launch, |launch, event| launch.on(event).expect("possible"));
        assert_eq!(launch.activity.usage.turns, turns);
        launch.activity.usage.is_estimated
    };
    let ended_with = |end: ProcessEnd| LaunchEvent::ProcessEnded { end, at: NOW };
    let killed = ProcessEnd::Exited(ExitStatus { exit_code: None, signal: Some(9) });
    let killed = ended_with(killed);
    let lost = ended_with(ProcessEnd::Lost);
    let success = reported(ReportResult::Success);
    for end in [&killed, &lost, &ended(137), &ended(143)] {
        assert!(is_estimated(3, &[authenticated(), end.clone()]), "{end:?}");
        assert!(is_estimated(3, &[authenticated(), success.clone(), end.clone()]), "{end:?}");
        assert!(!is_estimated(0, &[authenticated(), end.clone()]), "{end:?}");
    }
    for end in [ended(0), ended(1), ended(255)] {
        assert!(!is_estimated(3, &[authenticated(), end.clone()]), "{end:?}");
    }
}

#[test]
fn a_report_counts_more_than_the_stop_that_follows_it() {
    check(
        &[authenticated(), reported(ReportResult::Success), stop(StopReason::Person), ended(137)],
        &Outcome::Completed,
    );
}

#[test]
fn a_report_during_a_stop_counts() {
    check(
        &[authenticated(), stop(StopReason::Shutdown), reported(ReportResult::Success), ended(0)],
        &Outcome::Completed,
    );
}

#[test]
fn the_first_stop_reason_wins_and_a_second_stop_ends_the_patience() {
    let launch = launch(true)
        .on(&authenticated())
        .and_then(|launch| launch.on(&reported(ReportResult::Success)))
        .and_then(|launch| {
            launch.on(&LaunchEvent::StopWanted {
                reason: StopReason::Person,
                at: NOW,
                exit_grace: Duration::ZERO,
            })
        })
        .expect("possible events");
    assert_eq!(launch.state, LaunchState::Stopping { reason: StopReason::Reported, stop_at: NOW });
}

#[test]
fn people_end_a_chat_also_while_its_agent_is_on_its_way_out() {
    let chat_ended = LaunchEvent::ChatEnded { at: NOW, exit_grace: LINGER };
    let exited = LaunchEvent::Exited { exit: ExitStatus::default() };
    let ended_by = |before: Option<LaunchEvent>| {
        let events = [
            Some(authenticated()),
            before,
            Some(chat_ended.clone()),
            Some(stop(StopReason::Person)),
        ];
        let events = events.into_iter().flatten().chain([ended(1)]);
        events.fold(launch(true), |launch, event| launch.on(&event).expect("a possible event"))
    };
    let stopped = |reason| Some(Outcome::Stopped(reason));
    for (before, stop_reason, outcome) in [
        (None, Some(StopReason::ChatEnded), Some(Outcome::Completed)),
        (
            Some(stop(StopReason::Shutdown)),
            Some(StopReason::Shutdown),
            stopped(StopReason::Shutdown),
        ),
        (
            Some(stop(StopReason::StartTimeout)),
            Some(StopReason::StartTimeout),
            Some(Outcome::NeverAuthenticated),
        ),
        (Some(exited), None, Some(Outcome::ExitedWithoutReport)),
    ] {
        let launch = ended_by(before);
        let found = launch.as_ended().map(|(outcome, _)| outcome.clone());
        assert_eq!((launch.is_chat_over, launch.stop_reason, found), (true, stop_reason, outcome));
    }
    assert!(launch(true).on(&stop(StopReason::Person)).is_ok_and(|launch| !launch.is_chat_over));
}

#[test]
fn nobody_authenticates_on_a_launch_that_is_stopping() {
    let stopping = launch(true).on(&stop(StopReason::Person)).expect("a stop is possible");
    assert!(stopping.on(&authenticated()).is_err());
}

#[test]
fn without_a_shim_the_report_is_the_end() {
    let launch = launch(false)
        .on(&authenticated())
        .and_then(|launch| launch.on(&reported(ReportResult::Success)))
        .expect("possible events");
    assert_eq!(launch.state, LaunchState::Ended { outcome: Outcome::Completed, at: NOW });
}

#[test]
fn a_claim_lapses_when_its_process_would_be_gone_and_never_one_that_is_known() {
    let second = Duration::from_secs(1);
    let limits = LapseLimits { start: 10 * second, stop: 5 * second, margin: second };
    let has_lapsed = |launch: &Launch, claimed: u32, stopping: u32| {
        launch.has_lapsed(limits, claimed * second, stopping * second)
    };
    let starting = launch(true);
    assert!(!has_lapsed(&starting, 16, 0) && has_lapsed(&starting, 17, 0));
    let known = Launch { pid: Some(7), ..starting.clone() };
    assert!(!has_lapsed(&known, 1_000_000, 1_000_000));
    let running = starting.on(&authenticated()).expect("a possible event");
    assert!(!has_lapsed(&running, 1_000_000, 1_000_000));
    let at = NOW + 100 * second;
    let report = LaunchEvent::Reported { result: ReportResult::Success, at, linger: 30 * second };
    let lingering = running.on(&report).expect("a possible event");
    assert!(
        !has_lapsed(&lingering, 136, 6)
            && has_lapsed(&lingering, 137, 7)
            && !has_lapsed(&lingering, 16, 7)
    );
    let lapsed = lingering.on(&LaunchEvent::ClaimLapsed { at }).expect("a possible event");
    assert_eq!(lapsed.state, LaunchState::Ended { outcome: Outcome::Completed, at });
}

fn any_event() -> impl Strategy<Value = LaunchEvent> {
    prop_oneof![
        Just(LaunchEvent::ProcessStarted { pid: 7, at: NOW }),
        Just(authenticated()),
        Just(reported(ReportResult::Success)),
        Just(LaunchEvent::LoggedOut { at: NOW, linger: LINGER }),
        Just(stop(StopReason::Person)),
        Just(LaunchEvent::Exited { exit: ExitStatus::default() }),
        Just(ended(0)),
        Just(LaunchEvent::SessionExpired { at: NOW }),
        Just(LaunchEvent::ClaimLapsed { at: NOW }),
    ]
}

proptest! {
    #[test]
    fn no_order_of_events_leaves_ended(events in prop::collection::vec(any_event(), 0..12), is_kept: bool) {
        let mut launch = launch(is_kept);
        let mut end = None;
        for event in &events {
            launch = launch.clone().on(event).unwrap_or(launch);
            if let Some(end) = &end {
                prop_assert_eq!(&launch.state, end);
            }
            if !launch.is_open() {
                end = Some(launch.state.clone());
            }
        }
    }

    #[test]
    fn an_event_that_already_happened_changes_nothing(events in prop::collection::vec(any_event(), 0..8), is_kept: bool) {
        let mut launch = launch(is_kept);
        for event in &events {
            if let Ok(after) = launch.clone().on(event) {
                if let Ok(again) = after.clone().on(event) {
                    prop_assert_eq!(&again, &after);
                }
                launch = after;
            }
        }
    }
}

#[test]
fn a_start_that_only_a_person_can_mend_is_not_tried_again() {
    let reason = "program `agent` is in no format that this system executes";
    for purpose in [Purpose::Task, Purpose::Chat, Purpose::Check] {
        let launch = launch(true);
        let launch = Launch { key: InstanceKey { purpose, ..launch.key.clone() }, ..launch };
        let verdict = |reason: &str| launch.verdict(&Outcome::StartFailed(reason.to_owned()), true);
        assert_eq!(verdict(reason), Verdict::Failure, "{purpose}");
        assert_eq!(verdict(&for_person(reason)), Verdict::Misconfigured, "{purpose}");
        let short = shortened(&for_person(&"ä".repeat(100)), 40);
        assert!(short.starts_with("ää") && short.chars().count() == 40, "{short}");
        assert_eq!(verdict(&short), Verdict::Misconfigured, "{purpose}");
        assert_eq!(shortened(reason, 7), "program");
    }
}
