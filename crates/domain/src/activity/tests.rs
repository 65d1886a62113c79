use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage { input_tokens, output_tokens, ..Usage::default() }
}

fn step(session: &str, step: &str, usage: Usage) -> OutputFact {
    OutputFact::Step { session: Mark::of(session), step: Mark::of(step), usage }
}

fn total(session: &str, usage: Usage) -> OutputFact {
    let totals = Totals { process: usage, ..Totals::default() };
    OutputFact::Total { session: Mark::of(session), totals }
}

fn whole(session: &str, usage: Usage) -> OutputFact {
    let totals = Totals { whole: usage, ..Totals::default() };
    OutputFact::Total { session: Mark::of(session), totals }
}

fn failed(class: FailureClass, resets_at: Option<i64>) -> OutputFact {
    OutputFact::Failed(Failure { class, resets_at: resets_at.map(Timestamp::from_millis) })
}

fn heard(facts: impl IntoIterator<Item = OutputFact>) -> Activity {
    facts.into_iter().fold(Tally::default(), Tally::heard).activity()
}

#[test]
fn the_part_from_a_cache_counts_what_the_model_read() {
    let read = |input_tokens, cache_read_tokens, cache_write_tokens| {
        let tokens = Usage { cache_read_tokens, cache_write_tokens, ..usage(input_tokens, 99) };
        tokens.cached_percent()
    };
    assert_eq!((read(0, 0, 0), read(10, 0, 0), read(5, 88, 7)), (None, Some(0), Some(88)));
    assert_eq!(read(0, u64::MAX, 0), Some(100));
}

#[track_caller]
fn check_usage(facts: impl IntoIterator<Item = OutputFact>, expected: Usage) {
    assert_eq!(heard(facts).usage, expected);
}

#[test]
fn a_step_counts_once_with_the_greatest_word_on_it() {
    check_usage(
        [step("s", "a", usage(5, 1)), step("s", "a", usage(5, 3)), step("s", "b", usage(2, 2))],
        usage(7, 5),
    );
}

#[test]
fn a_total_has_its_steps_in_it() {
    check_usage(
        [step("s", "a", usage(5, 1)), total("s", usage(6, 9)), step("s", "b", usage(2, 2))],
        usage(7, 9),
    );
}

#[test]
fn a_total_after_a_resumption_has_the_earlier_one_in_it() {
    check_usage([total("s", usage(5, 1)), total("s", usage(8, 4))], usage(8, 4));
    check_usage([total("s", usage(5, 1)), total("t", usage(8, 4))], usage(13, 5));
}

#[test]
fn a_total_of_the_conversation_counts_above_what_it_had_used_before() {
    let facts = [total("s", usage(5, 1)), whole("s", usage(25, 7))];
    check_usage(facts.clone(), usage(25, 7));
    let mut tally = facts.into_iter().fold(Tally::default(), Tally::heard);
    tally.set_before(Some(usage(18, 9)));
    assert_eq!(tally.activity().usage, usage(7, 1));
    tally.set_before(None);
    assert_eq!(tally.activity().usage, usage(5, 1), "without it, the total of the process counts");
}

#[test]
fn what_is_told_apart_is_limited_and_what_is_counted_is_not() {
    let n = 3 * MAX_STEPS as u64;
    let tally =
        (0..n).map(|n| step("s", &n.to_string(), usage(1, 0))).fold(Tally::default(), Tally::heard);
    assert_eq!(
        (tally.activity().usage, tally.output.steps.len(), tally.output.order.len()),
        (usage(n, 0), MAX_STEPS, MAX_STEPS)
    );
    let tally =
        (0..n).map(|n| step(&n.to_string(), "", usage(1, 0))).fold(Tally::default(), Tally::heard);
    assert_eq!(
        (tally.activity().usage, tally.output.sessions.len()),
        (usage(n, 0), MAX_SESSIONS + 1)
    );
}

#[test]
fn numbers_without_bounds_stay_in_theirs() {
    check_usage(
        [total("s", usage(u64::MAX, 1)), total("t", usage(u64::MAX, 1))],
        usage(u64::MAX, 2),
    );
    assert_eq!(usage(u64::MAX, 7).tokens(), u64::MAX);
}

#[test]
fn trouble_lasts_until_it_goes_on() {
    let overload = failed(FailureClass::Overload, None);
    assert_eq!(heard([overload.clone()]).failure, Some(FailureClass::Overload.into()));
    assert_eq!(heard([overload.clone(), OutputFact::Recovered]).failure, None);
    assert_eq!(
        heard([overload, failed(FailureClass::Auth, None)]).failure,
        Some(FailureClass::Auth.into())
    );
}

#[test]
fn trouble_that_only_the_transcript_tells_ends_there() {
    let mut tally = Tally::default();
    tally.hear_transcript(&failed(FailureClass::Quota, None));
    tally = tally.heard(OutputFact::Recovered);
    assert_eq!(tally.activity().failure, Some(FailureClass::Quota.into()));
    assert!(!tally.has_printed_failure());
    tally.hear_transcript(&step("s", "1", usage(1, 0)));
    assert_eq!(tally.activity().failure, None);
    // The answers that the transcript has came before the end that the output tells.
    tally = tally.heard(failed(FailureClass::Config, None));
    tally.hear_transcript(&step("s", "2", usage(1, 0)));
    assert_eq!(tally.activity().failure, Some(FailureClass::Config.into()));
    assert!(tally.has_printed_failure());
}

#[test]
fn the_end_of_a_quota_is_kept_when_the_refusal_is_told_again() {
    let known =
        heard([failed(FailureClass::Quota, Some(7)), failed(FailureClass::Quota, None)]).failure;
    assert_eq!(known.and_then(|failure| failure.resets_at), Some(Timestamp::from_millis(7)));
    for ends in [[7, 9], [9, 7]] {
        let later = heard(ends.map(|end| failed(FailureClass::Quota, Some(end)))).failure;
        assert_eq!(later.and_then(|failure| failure.resets_at), Some(Timestamp::from_millis(9)));
    }
    let other =
        heard([failed(FailureClass::Quota, Some(7)), failed(FailureClass::Auth, None)]).failure;
    assert_eq!(other, Some(FailureClass::Auth.into()));
}

#[test]
fn progress_is_the_last_thing_it_did_in_one_line() {
    let facts = ["first", "then\n\u{1b}[31mthis"].map(|text| OutputFact::Did(text.to_owned()));
    let activity = heard(facts.into_iter().chain([OutputFact::Got("result".to_owned())]));
    assert_eq!(activity.progress.as_deref(), Some("then [31mthis"));
    let long = heard([OutputFact::Did("é".repeat(1000))]).progress.expect("a progress");
    assert_eq!(long.chars().count(), MAX_PROGRESS);
}

#[test]
fn usage_of_a_newer_word_never_shrinks() {
    let earlier = Activity {
        usage: usage(9, 1),
        progress: Some("a".to_owned()),
        failure: Some(FailureClass::Auth.into()),
    };
    let newer = Activity { usage: usage(3, 4), progress: None, failure: None };
    let expected = Activity { usage: usage(9, 4), progress: Some("a".to_owned()), failure: None };
    assert_eq!(newer.after(earlier), expected);
}

// ── At the end ──

const CRASHED: ExitStatus = ExitStatus { exit_code: Some(1), signal: None };
const KILLED: ExitStatus = ExitStatus { exit_code: None, signal: Some(9) };
const WENT: ExitStatus = ExitStatus { exit_code: Some(0), signal: None };

#[track_caller]
fn check_end(
    seen: Option<FailureClass>,
    outcome: &Outcome,
    exit: ExitStatus,
    stop: Option<StopReason>,
    expected: Option<FailureClass>,
) {
    let activity = Activity { failure: seen.map(Failure::from), ..Activity::default() };
    assert_eq!(activity.at_end(outcome, exit, stop).failure.map(|failure| failure.class), expected);
}

#[test]
fn what_was_seen_explains_an_end_without_report() {
    let auth = Some(FailureClass::Auth);
    let quota = Some(FailureClass::Quota);
    check_end(auth, &Outcome::ExitedWithoutReport, CRASHED, None, auth);
    check_end(quota, &Outcome::NeverAuthenticated, WENT, None, quota);
    check_end(auth, &Outcome::NeverAuthenticated, KILLED, Some(StopReason::StartTimeout), auth);
    check_end(
        quota,
        &Outcome::Stopped(StopReason::Person),
        KILLED,
        Some(StopReason::Person),
        quota,
    );
}

#[test]
fn a_bad_exit_that_nothing_explains_is_a_crash() {
    let crash = Some(FailureClass::Crash);
    check_end(None, &Outcome::ExitedWithoutReport, CRASHED, None, crash);
    check_end(None, &Outcome::NeverAuthenticated, KILLED, None, crash);
    check_end(None, &Outcome::ExitedWithoutReport, WENT, None, None);
}

#[test]
fn who_is_ended_by_us_did_not_crash() {
    check_end(None, &Outcome::Stopped(StopReason::Person), KILLED, Some(StopReason::Person), None);
    check_end(None, &Outcome::NeverAuthenticated, KILLED, Some(StopReason::StartTimeout), None);
    check_end(None, &Outcome::Lost, WENT, None, None);
}

#[test]
fn who_did_its_work_had_no_trouble() {
    for outcome in [Outcome::Completed, Outcome::Blocked, Outcome::Failed] {
        check_end(Some(FailureClass::Overload), &outcome, CRASHED, None, None);
    }
}

// ── In any order ──

fn any_fact() -> impl Strategy<Value = OutputFact> {
    let names = || select(vec!["a", "b", "c"]);
    let usage = || (0_u64..9, 0_u64..9).prop_map(|(input, output)| usage(input, output));
    prop_oneof![
        3 => (names(), names(), usage()).prop_map(|(session, name, usage)| step(session, name, usage)),
        1 => (names(), usage()).prop_map(|(session, usage)| total(session, usage)),
        1 => (names(), usage()).prop_map(|(session, usage)| whole(session, usage)),
    ]
}

proptest! {
    #[test]
    fn usage_is_the_same_however_often_and_in_which_order_it_is_told(
        (facts, again) in proptest::collection::vec(any_fact(), 0..24)
            .prop_flat_map(|facts| (Just(facts.clone()), Just([facts.clone(), facts].concat()).prop_shuffle()))
    ) {
        prop_assert_eq!(heard(facts).usage, heard(again).usage);
    }

    #[test]
    fn the_transcript_is_never_added_to_the_output(
        (facts, again) in proptest::collection::vec((any::<bool>(), any_fact()), 0..24)
            .prop_flat_map(|facts| (Just(facts.clone()), Just([facts.clone(), facts].concat()).prop_shuffle()))
    ) {
        let of = |is_kept: bool| facts.iter().filter(move |(kept, _)| *kept == is_kept).map(|(_, fact)| fact.clone());
        let greatest = heard(of(false)).usage.at_least(heard(of(true)).usage);
        let mut tally = Tally::default();
        for (is_kept, fact) in again {
            if is_kept {
                tally.hear_transcript(&fact);
            } else {
                tally = tally.heard(fact);
            }
        }
        prop_assert_eq!(tally.activity().usage, greatest);
    }

    #[test]
    fn usage_only_grows(facts in proptest::collection::vec(any_fact(), 0..24)) {
        let mut tally = Tally::default();
        for fact in facts {
            let before = tally.activity().usage;
            tally = tally.heard(fact);
            let now = tally.activity().usage;
            prop_assert_eq!(now.at_least(before), now);
        }
    }
}
