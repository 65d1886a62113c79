use super::*;
use crate::id::CoordinatorId;
use crate::key::{InstanceKey, Purpose};
use crate::launch::Outcome;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const MINUTE: Duration = Duration::from_mins(1);
const PARKING: Parking = Parking { initial: Duration::from_mins(5), max: Duration::from_hours(1) };

fn quota(resets_at: Option<Timestamp>) -> Failure {
    Failure { class: FailureClass::Quota, resets_at }
}

/// Returns a launch of a coordinator that was claimed at `at`.
fn claimed(n: u32, at: Timestamp) -> Launch {
    let key = InstanceKey::new("agt".parse().unwrap(), "prj".parse().unwrap(), Purpose::Task);
    let launch = Launch::claimed(
        format!("lch_{n}").parse().unwrap(),
        key,
        "claude".to_owned(),
        at,
        at + MINUTE,
    );
    Launch { coordinator: Some("crd".parse::<CoordinatorId>().unwrap()), ..launch }
}

fn ended(launch: Launch, failure: Option<Failure>, at: Timestamp) -> Launch {
    let activity = crate::Activity { failure, ..launch.activity.clone() };
    Launch {
        activity,
        state: LaunchState::Ended { outcome: Outcome::ExitedWithoutReport, at },
        ..launch
    }
}

fn authenticated(launch: Launch, at: Timestamp) -> Launch {
    let state = LaunchState::Running { session: "ses_1".parse().unwrap() };
    Launch { authenticated_at: Some(at), state, ..launch }
}

fn fresh() -> Account {
    Account::new("claude".to_owned())
}

/// Returns an account that launch 1 parked at `NOW`, for five minutes.
fn parked() -> Account {
    fresh().after(&ended(claimed(1, NOW), Some(quota(None)), NOW), NOW, PARKING)
}

#[track_caller]
fn check_delay(resets_after: Option<Duration>, n: u32, expected: Duration) {
    let failure = quota(resets_after.map(|after| NOW + after));
    assert_eq!(PARKING.until(failure, n, NOW), NOW + expected);
}

#[test]
fn a_failure_parks_until_its_named_end_and_a_tenth_more_or_longer_each_time() {
    check_delay(None, 1, 5 * MINUTE);
    check_delay(None, 2, 10 * MINUTE);
    check_delay(None, 4, 40 * MINUTE);
    check_delay(None, 5, 60 * MINUTE);
    check_delay(None, u32::MAX, 60 * MINUTE);
    check_delay(Some(100 * MINUTE), 9, 110 * MINUTE);
    check_delay(Some(Duration::ZERO), 1, 5 * MINUTE);
    check_delay(Some(Duration::from_hours(24 * 365)), 1, MAX_PARKING);
    let past = Failure { resets_at: Some(Timestamp::from_millis(0)), ..quota(None) };
    assert_eq!(PARKING.until(past, 1, NOW), NOW + 5 * MINUTE);
}

#[test]
fn only_auth_and_quota_park_and_only_at_an_end() {
    for class in FailureClass::ALL {
        let failure = Failure::from(*class);
        let account = fresh().after(&ended(claimed(1, NOW), Some(failure), NOW), NOW, PARKING);
        let is_parked = matches!(class, FailureClass::Auth | FailureClass::Quota);
        assert_eq!(account.parked.is_some(), is_parked, "{class}");
    }
    let running = Launch {
        activity: ended(claimed(1, NOW), Some(quota(None)), NOW).activity,
        ..claimed(1, NOW)
    };
    assert_eq!(fresh().after(&running, NOW, PARKING), fresh());
}

#[test]
fn agents_that_fail_together_are_one_failure() {
    let account = parked();
    let other = ended(claimed(2, Timestamp::from_millis(5)), Some(quota(None)), NOW + MINUTE);
    assert_eq!(account.clone().after(&other, NOW + MINUTE, PARKING), account);
    // One of the failures names its end.
    let knowing = ended(claimed(3, NOW), Some(quota(Some(NOW + 101 * MINUTE))), NOW + MINUTE);
    let until = account
        .after(&knowing, NOW + MINUTE, PARKING)
        .parked
        .map(|parked| (parked.until, parked.n_failures));
    assert_eq!(until, Some((NOW + 111 * MINUTE, 1)));
}

#[test]
fn one_tries_it_and_the_others_follow_when_that_has_authenticated() {
    let account = parked();
    assert_eq!(account.state_at(NOW), AccountState::Parked(NOW + 5 * MINUTE));
    let later = NOW + 5 * MINUTE;
    assert_eq!(account.state_at(later), AccountState::MayBeTried);
    let probe = claimed(2, later);
    let tried = account.after_claim(&probe.id, later);
    assert_eq!(tried.state_at(later), AccountState::BeingTried(later + PROBE_TIMEOUT));
    assert_eq!(tried.state_at(later + PROBE_TIMEOUT), AccountState::MayBeTried, "one a minute");
    let works = tried.clone().after(&authenticated(probe.clone(), later), later, PARKING);
    assert_eq!(works.state_at(later), AccountState::Works);
    // The probe ended for a reason of its own, so the next launch may try.
    let next = tried.clone().after(&ended(probe.clone(), None, later), later, PARKING);
    assert_eq!(next.state_at(later), AccountState::MayBeTried);
    let again = tried.after(&ended(probe, Some(quota(None)), later), later, PARKING);
    assert_eq!(
        again.state_at(later),
        AccountState::Parked(later + 10 * MINUTE),
        "longer than before"
    );
}

#[test]
fn who_was_started_before_or_by_hand_says_nothing_of_a_parked_account() {
    let account = parked();
    let earlier = authenticated(claimed(2, NOW), NOW + MINUTE);
    assert_eq!(account.clone().after(&earlier, NOW + MINUTE, PARKING), account);
    let by_hand =
        Launch { coordinator: None, ..authenticated(claimed(3, NOW + MINUTE), NOW + MINUTE) };
    assert_eq!(account.clone().after(&by_hand, NOW + MINUTE, PARKING), account);
}

#[test]
fn a_probe_that_fails_counts_also_when_the_clock_was_set_back() {
    let before = Timestamp::from_millis(NOW.as_millis() - 3_600_000);
    let probe = claimed(2, before);
    let tried = parked().after_claim(&probe.id, before);
    let again = tried.after(&ended(probe, Some(quota(None)), before), before, PARKING);
    assert_eq!(again.state_at(before), AccountState::Parked(before + 10 * MINUTE));
}

#[test]
fn a_wrong_clock_parks_nobody_for_longer_than_was_decided() {
    let year = Duration::from_hours(24 * 365);
    let back = Timestamp::from_millis(NOW.as_millis() - i64::try_from(year.as_millis()).unwrap());
    let account = parked();
    assert_eq!(account.state_at(back), AccountState::Parked(back + 5 * MINUTE));
    let seen = account.clone().seen_at(back);
    assert_eq!(seen.state_at(back + 5 * MINUTE), AccountState::MayBeTried);
    assert_eq!(account.clone().seen_at(NOW + MINUTE), account, "what is past stays");
    assert_eq!(account.state_at(NOW + year), AccountState::MayBeTried);
    let far =
        Account { parked: account.parked.map(|it| Parked { until: NOW + year, ..it }), ..fresh() };
    assert_eq!(far.state_at(NOW), AccountState::Parked(NOW + MAX_PARKING));
}

#[test]
fn a_person_releases_at_once() {
    assert_eq!(parked().released().state_at(NOW), AccountState::Works);
}

fn reported(launch: &Launch, account: Account, failure: Option<Failure>, at: Timestamp) -> Account {
    account.after_report(launch, failure, at, PARKING)
}

#[test]
fn an_agent_that_waits_for_its_quota_parks_its_account_until_it_goes_on() {
    let waits = authenticated(claimed(1, NOW), NOW);
    for class in FailureClass::ALL.iter().filter(|class| **class != FailureClass::Quota) {
        assert_eq!(reported(&waits, fresh(), Some((*class).into()), NOW), fresh(), "{class}");
    }
    let parked = reported(&waits, fresh(), Some(quota(None)), NOW);
    assert_eq!(parked.state_at(NOW + MINUTE), AccountState::Parked(NOW + 5 * MINUTE));
    assert!(parked.parked.as_ref().unwrap().is_waited_for(&waits.id));
    // It says so again, and a later one names the end.
    assert_eq!(reported(&waits, parked.clone(), Some(quota(None)), NOW + MINUTE), parked);
    let named = quota(Some(NOW + 101 * MINUTE));
    let named = reported(&waits, parked.clone(), Some(named), NOW + MINUTE);
    assert_eq!(named.state_at(NOW + MINUTE), AccountState::Parked(NOW + 111 * MINUTE));
    // It still waits when the time is over.
    let later = NOW + 6 * MINUTE;
    let longer = reported(&waits, parked.clone(), Some(quota(None)), later);
    assert_eq!(longer.state_at(later), AccountState::Parked(later + 10 * MINUTE));
    assert_eq!(longer.parked.as_ref().unwrap().first, NOW);
    // Only the agent that waits tells that the account works, and only when it goes on.
    let overload = Some(FailureClass::Overload.into());
    assert_eq!(reported(&waits, parked.clone(), overload, NOW + MINUTE), parked);
    let other = authenticated(claimed(2, NOW), NOW);
    assert_eq!(reported(&other, parked.clone(), None, NOW + MINUTE), parked);
    assert_eq!(reported(&waits, parked, None, NOW + MINUTE), fresh());
}

#[test]
fn the_end_of_an_agent_that_waited_is_not_another_failure() {
    let waits = authenticated(claimed(1, NOW), NOW);
    let parked = reported(&waits, fresh(), Some(quota(None)), NOW);
    let ended = ended(waits, Some(quota(None)), NOW + MINUTE);
    let after = parked.clone().after(&ended, NOW + MINUTE, PARKING).parked.unwrap();
    assert_eq!((after.n_failures, after.until, &after.probe), (1, NOW + 5 * MINUTE, &None));
    // Another agent still waits, and its account works when that one goes on.
    let other = authenticated(claimed(2, NOW), NOW);
    let both = parked.clone().after(&ended, NOW + MINUTE, PARKING);
    let both = reported(&other, both, Some(quota(None)), NOW + 2 * MINUTE);
    assert_eq!(both.parked.as_ref().map(|parked| parked.n_failures), Some(1));
    assert_eq!(reported(&other, both, None, NOW + 3 * MINUTE), fresh());
    // Its refusal is newer than the parking.
    let later = NOW + 6 * MINUTE;
    let after = parked.after(&ended, later, PARKING).parked.unwrap();
    assert_eq!((after.n_failures, after.until), (2, later + 10 * MINUTE));
}

#[test]
fn a_probe_that_waits_for_its_quota_parks_the_account_again() {
    let later = NOW + 5 * MINUTE;
    let probe = claimed(2, later);
    let tried = parked().after_claim(&probe.id, later);
    assert_eq!(reported(&probe, tried.clone(), None, later), tried, "it has not worked yet");
    let again = reported(&probe, tried, Some(quota(None)), later);
    assert_eq!(again.state_at(later), AccountState::Parked(later + 10 * MINUTE));
    let works = again.after(&authenticated(probe, later), later, PARKING);
    assert_eq!(works, fresh());
}

#[test]
fn an_end_that_no_failure_names_is_guessed() {
    let day = Duration::from_hours(24);
    let past = Some(Timestamp::from_millis(0));
    let cases = [
        (None, true),
        (past, true),
        (Some(NOW), true),
        (Some(NOW + 365 * day), true),
        (Some(NOW + MINUTE), false),
        (Some(NOW + 7 * day), false),
    ];
    for (resets_at, is_guessed) in cases {
        for n in [1, 9] {
            let parked = Parked::by(quota(resets_at), n, NOW, PARKING);
            assert_eq!(parked.is_guessed(PARKING), is_guessed, "{resets_at:?}");
            assert!(parked.until > NOW && parked.until <= NOW + MAX_PARKING);
        }
    }
}
