use super::retry::MAX_FORBIDDEN;
use super::*;
use domain::forge::Setback;

#[track_caller]
fn check(error: ForgeError, write: &PendingWrite, n_refusals: u32, expected: Next) {
    assert_eq!(next_after(&WriteError::Unanswered(error.into()), write, n_refusals), expected);
}

fn message() -> String {
    "no".to_owned()
}

#[test]
fn what_waiting_may_help_is_tried_for_ever_and_what_it_does_not_is_given_up() {
    let label = PendingWrite::Label { state: LabelState::Stopped };
    let comment = PendingWrite::Comment { number: 1, text: String::new() };
    check(ForgeError::Unavailable { message: message() }, &comment, 10_000, Next::TryAgain);
    check(ForgeError::Unauthorized { message: message() }, &label, 10_000, Next::TryAgain);
    check(ForgeError::NotFound { status: 410, message: message() }, &comment, 0, Next::TryAgain);
    check(ForgeError::NotFound { status: 410, message: message() }, &comment, 1, Next::GiveUp);
    check(ForgeError::Moved { status: 302, to: message() }, &comment, 9, Next::TryAgain);
    check(
        ForgeError::NotFound { status: 404, message: message() },
        &PendingWrite::Claim,
        0,
        Next::TryAgain,
    );
}

#[test]
fn a_forbidden_comment_is_given_up_and_a_label_only_after_long() {
    let comment = PendingWrite::Comment { number: 1, text: String::new() };
    let label = PendingWrite::Label { state: LabelState::Stopped };
    assert_eq!(next_after(&WriteError::Locked, &comment, 0), Next::GiveUp);
    check(ForgeError::Forbidden { message: message() }, &comment, 3, Next::TryAgain);
    check(ForgeError::Forbidden { message: message() }, &comment, 4, Next::GiveUp);
    check(ForgeError::Forbidden { message: message() }, &label, 10, Next::TryAgain);
    check(ForgeError::Forbidden { message: message() }, &label, MAX_FORBIDDEN, Next::GiveUp);
}

#[test]
fn a_request_whose_answer_is_lost_is_sent_until_it_is_answered() {
    let lost = WriteError::Lost(ForgeError::Unavailable { message: message() });
    assert_eq!(lost.setback(), Setback::Lost);
    assert_eq!(next_after(&lost, &PendingWrite::PullRequest, 10_000), Next::TryAgain);
    let unread = Unanswered::Failed(ForgeError::Unavailable { message: message() });
    assert_eq!(WriteError::from(unread).setback(), Setback::Unanswered);
}

#[test]
fn a_push_that_is_refused_is_given_up_only_after_long() {
    let push = PendingWrite::Push;
    for write in [&push, &PendingWrite::PullRequest] {
        let refused = || ForgeError::Refused { status: 422, message: message() };
        check(ForgeError::Forbidden { message: message() }, write, 10, Next::TryAgain);
        check(ForgeError::Forbidden { message: message() }, write, MAX_FORBIDDEN, Next::GiveUp);
        check(refused(), write, 10, Next::TryAgain);
        check(refused(), write, MAX_FORBIDDEN, Next::GiveUp);
    }
    let untrusted = WriteError::from(NoRemote::Untrusted(message()));
    assert_eq!(untrusted.setback(), Setback::Refused);
    assert_eq!(next_after(&untrusted, &push, MAX_FORBIDDEN), Next::GiveUp);
}
