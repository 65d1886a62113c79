use super::*;
use crate::launch::{ExitStatus, LaunchState, ReportResult, StopReason, TimeLimit};
use crate::{Failure, InstanceKey, Purpose, Usage};

const NOW: Timestamp = Timestamp::from_millis(10_000_000_000);

fn id<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect("an id")
}

fn begun() -> Conversation {
    Conversation {
        id: id("cnv_1"),
        task: id("tsk"),
        agent: id("agt"),
        coordinator: id("crd"),
        cli_session: "session".to_owned(),
        account: "claude".to_owned(),
        model: None,
        directory: "/work".into(),
        workspace: None,
        has_begun: true,
        last_launch: Some(id("lch_1")),
        n_unhelpful: 0,
        opened_at: NOW,
        last_used_at: NOW,
        closed_because: None,
        closed_at: None,
        revision: 1,
    }
}

fn entry() -> Entry {
    Entry {
        ai_type: "claude".to_owned(),
        account: "claude".to_owned(),
        model: None,
        reach: Reach::Anywhere,
    }
}

fn place() -> Place {
    Place { coordinator: id("crd"), directory: "/work".into(), workspace: None, is_gone: false }
}

/// The facts of one decision.
struct Facts {
    newest: Option<Conversation>,
    entry: Entry,
    place: Place,
    limits: ContinueLimits,
    now: Timestamp,
}

impl Facts {
    fn next(&self) -> Result<&Conversation, FreshReason> {
        let Self { newest, entry, place, limits, now } = self;
        to_continue(newest.as_ref(), entry, place, *limits, *now)
    }
}

fn facts() -> Facts {
    Facts {
        newest: Some(begun()),
        entry: entry(),
        place: place(),
        limits: ContinueLimits::default(),
        now: NOW,
    }
}

/// Makes one reason hold.
fn spoil(facts: &mut Facts, why: FreshReason) {
    let newest = |facts: &mut Facts, change: fn(&mut Conversation)| {
        facts.newest.as_mut().into_iter().for_each(change);
    };
    match why {
        FreshReason::Off => facts.limits.enabled = false,
        FreshReason::None => newest(facts, |it| it.has_begun = false),
        FreshReason::Asked
        | FreshReason::Closed
        | FreshReason::Refused
        | FreshReason::Unhelpful => {
            facts.newest = facts.newest.take().map(|it| it.closed(why, NOW));
        }
        FreshReason::OtherAccount => newest(facts, |it| it.account.push('2')),
        FreshReason::OtherModel => newest(facts, |it| it.model = Some("opus".to_owned())),
        FreshReason::OtherDirectory => {
            facts.entry.reach = Reach::SameDirectory;
            newest(facts, |it| it.directory = "/elsewhere".into());
        }
        FreshReason::OtherHost => newest(facts, |it| it.coordinator = id("crd_2")),
        FreshReason::Gone => facts.place.is_gone = true,
        FreshReason::WorkspaceGone => newest(facts, |it| it.workspace = Some(id("wsp_1"))),
        FreshReason::TooOld => {
            facts.now = NOW + facts.limits.max_age + Duration::from_millis(1);
        }
    }
}

#[test]
fn a_conversation_goes_on_unless_a_reason_speaks_against_it() {
    assert_eq!(facts().next(), Ok(&begun()));
    for why in FreshReason::ALL.iter().copied() {
        let mut facts = facts();
        spoil(&mut facts, why);
        assert_eq!(facts.next(), Err(why), "{why}");
    }
    let nowhere = Entry { reach: Reach::Nowhere, ..entry() };
    assert_eq!(Facts { entry: nowhere, ..facts() }.next(), Err(FreshReason::Off));
    assert_eq!(Facts { newest: None, ..facts() }.next(), Err(FreshReason::None));
    // A launch while continuing was turned off does not turn it off for good.
    let newest = Some(begun().closed(FreshReason::Off, NOW));
    assert_eq!(Facts { newest, ..facts() }.next(), Err(FreshReason::None));
}

#[test]
fn the_first_reason_in_their_order_is_named() {
    use FreshReason as F;
    // A closed conversation has one reason, so the others of this kind are left out.
    let all = FreshReason::ALL.iter().copied();
    let all: Vec<F> =
        all.filter(|why| !matches!(why, F::Closed | F::Refused | F::Unhelpful)).collect();
    for (n, first) in all.iter().enumerate() {
        let mut facts = facts();
        for why in &all[n..] {
            spoil(&mut facts, *why);
        }
        assert_eq!(facts.next(), Err(*first));
    }
}

#[test]
fn another_directory_ends_only_a_conversation_that_is_bound_to_it() {
    let elsewhere = Place { directory: "/elsewhere".into(), ..place() };
    let of = |reach| {
        let entry = Entry { reach, ..entry() };
        Facts { entry, place: elsewhere.clone(), ..facts() }
    };
    assert_eq!(of(Reach::Anywhere).next(), Ok(&begun()));
    assert_eq!(of(Reach::SameDirectory).next(), Err(FreshReason::OtherDirectory));
}

#[test]
fn a_clock_that_was_set_back_makes_no_conversation_old() {
    let mut facts = facts();
    facts.now = Timestamp::from_millis(0);
    assert_eq!(facts.next(), Ok(&begun()));
}

#[test]
fn a_new_session_has_the_form_of_a_random_uuid_and_belongs_to_one_launch() {
    let session = new_session(&id("lch_1"));
    assert_eq!(session, new_session(&id("lch_1")));
    assert_ne!(session, new_session(&id("lch_2")));
    let parts: Vec<&str> = session.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12], "{session}");
    assert!(session.chars().all(|c| c == '-' || matches!(c, '0'..='9' | 'a'..='f')), "{session}");
    assert!(parts[2].starts_with('4'), "{session}");
    assert!(parts[3].starts_with(['8', '9', 'a', 'b']), "{session}");
}

/// Returns a continued launch that ended by itself before it authenticated.
fn refused() -> Launch {
    let key = InstanceKey::new(id("agt"), id("prj"), Purpose::Task);
    Launch {
        conversation: Some(id("cnv_1")),
        exit: ExitStatus { exit_code: Some(1), signal: None },
        ..Launch::claimed(id("lch_2"), key, "claude".to_owned(), NOW, NOW)
    }
}

#[test]
fn only_a_continued_launch_that_ends_by_itself_without_an_answer_is_refused() {
    let end = Outcome::NeverAuthenticated;
    assert!(is_refused(&refused(), &end));
    let begun = begun().after_end(&refused(), &end, NOW);
    assert_eq!(begun.closed_because, Some(FreshReason::Refused));
    assert!(!is_refused(&refused(), &Outcome::StartFailed("no program".to_owned())));
    let changes: [fn(&mut Launch); 8] = [
        |launch| launch.fresh_because = Some(FreshReason::None),
        |launch| launch.conversation = None,
        |launch| launch.authenticated_at = Some(NOW),
        |launch| launch.stop_reason = Some(StopReason::Person),
        |launch| launch.exit = ExitStatus { exit_code: None, signal: Some(9) },
        |launch| launch.activity.usage = Usage { input_tokens: 1, ..Usage::default() },
        |launch| launch.activity.failure = Some(Failure::from(FailureClass::Quota)),
        |launch| launch.activity.failure = Some(Failure::from(FailureClass::Config)),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let mut launch = refused();
        change(&mut launch);
        assert!(!is_refused(&launch, &end), "{n}");
    }
    let mut made_up = refused();
    made_up.activity.usage = Usage { turns: 1, ..Usage::default() };
    assert!(is_refused(&made_up, &end));
}

#[test]
fn two_launches_in_a_row_that_do_not_authenticate_close_a_conversation() {
    let hung = Launch { stop_reason: Some(StopReason::StartTimeout), ..refused() };
    let end = Outcome::NeverAuthenticated;
    let once = begun().after_end(&hung, &end, NOW);
    assert!(once.is_open());
    let between = once.clone().begun(&id("lch_3"), NOW);
    assert!(between.after_end(&hung, &end, NOW).is_open());
    let twice = once.clone().after_end(&hung, &end, NOW);
    assert_eq!(twice.closed_because, Some(FreshReason::Unhelpful));
    // A stop by a person says nothing about the conversation.
    let stopped = Outcome::Stopped(StopReason::Person);
    assert_eq!(once.clone().after_end(&hung, &stopped, NOW), once);
    // The service refuses what the CLI sends, or the model takes the task for finished.
    let mut unwilling = refused();
    unwilling.activity.failure = Some(Failure::from(FailureClass::Config));
    let mut finished = refused();
    finished.activity.usage = Usage { output_tokens: 1, ..Usage::default() };
    for launch in [unwilling, finished] {
        let twice = once.clone().after_end(&launch, &end, NOW);
        assert_eq!(twice.closed_because, Some(FreshReason::Unhelpful));
    }
    let mut limited = refused();
    limited.activity.failure = Some(Failure::from(FailureClass::Quota));
    assert_eq!(once.clone().after_end(&limited, &end, NOW), once);
}

#[test]
fn the_cause_is_that_of_the_last_end() {
    let ended = |outcome: Outcome, class: Option<FailureClass>| {
        let mut launch = refused();
        launch.activity.failure = class.map(Failure::from);
        launch.state = LaunchState::Ended { outcome, at: NOW };
        Cause::of(Some(&launch))
    };
    assert_eq!(Cause::of(None), Cause::Lost);
    assert_eq!(Cause::of(Some(&refused())), Cause::Lost);
    for (outcome, class, cause) in [
        (Outcome::Completed, None, Cause::Reported),
        (Outcome::Blocked, None, Cause::Blocked),
        (Outcome::Failed, None, Cause::Failed),
        (Outcome::Stopped(StopReason::Person), None, Cause::Person),
        (Outcome::Stopped(StopReason::Shutdown), None, Cause::Shutdown),
        (Outcome::Stopped(StopReason::Paused), None, Cause::Stopped),
        (Outcome::ExitedWithoutReport, None, Cause::Exited),
        (Outcome::ExitedWithoutReport, Some(FailureClass::Quota), Cause::Quota),
        (Outcome::ExitedWithoutReport, Some(FailureClass::Auth), Cause::Login),
        (Outcome::ExitedWithoutReport, Some(FailureClass::Overload), Cause::Overload),
        (Outcome::ExitedWithoutReport, Some(FailureClass::Crash), Cause::Exited),
        (Outcome::TimedOut(TimeLimit::Silence), None, Cause::Silent),
        (Outcome::TimedOut(TimeLimit::RunMaximum), None, Cause::TooLong),
        (Outcome::Lost, None, Cause::Lost),
    ] {
        assert_eq!(ended(outcome.clone(), class), cause, "{outcome}");
    }
}

#[test]
fn the_order_of_a_continued_launch_names_the_end_before_it_and_the_pause() {
    let later = NOW + Duration::from_mins(1);
    let continued = Launch { claimed_at: later, ..refused() };
    let end = LaunchState::Ended { outcome: Outcome::Blocked, at: NOW };
    let last = Launch { state: end, ..refused() };
    let resumed = Resumed {
        cause: Cause::Blocked,
        pause: Duration::from_mins(1),
        last_launch: Some(id("lch_1")),
    };
    let cli_session = "session".to_owned();
    let order = ConversationOrder { cli_session, resumed: Some(resumed) };
    assert_eq!(begun().order(&continued, Some(&last)), order);
    let afresh = Launch { fresh_because: Some(FreshReason::Asked), ..continued };
    assert_eq!(begun().order(&afresh, Some(&last)), ConversationOrder { resumed: None, ..order });
}

#[test]
fn a_report_and_its_end_keep_the_conversation_open() {
    let launch =
        Launch { authenticated_at: Some(NOW), report: Some(ReportResult::Success), ..refused() };
    let later = NOW + Duration::from_secs(1);
    let ended = begun().after_end(&launch, &Outcome::Completed, later);
    assert_eq!(ended, Conversation { last_used_at: later, ..begun() });
}
