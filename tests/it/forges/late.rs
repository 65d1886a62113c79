//! Forges that carry out a request after its answer was lost, or after the daemon was killed. The
//! daemon sends nothing again before the forge can have carried it out.

use std::fs;

use domain::forge::ForgeKind;

use super::crashes::for_each;
use super::published::{COMMITS, bed_with};
use super::{Bed, check_comments};
use crate::forge::fake::{Fault, Times};
use crate::support::until;

const BOTH: [ForgeKind; 2] = [ForgeKind::GitHub, ForgeKind::GitLab];
const WAITS: &[&str] = &["authenticate", "get-my-task", "wait-for:go", "report:success"];
/// The number of polls that take longer than the first pause after a failure.
const N_POLLS: usize = 30;

const fn list(forge: ForgeKind) -> &'static str {
    match forge {
        ForgeKind::GitHub => "GET /repos/{owner}/{repo}/issues",
        ForgeKind::GitLab => "GET /api/v4/projects/{id}/issues",
    }
}

const fn comments(forge: ForgeKind) -> &'static str {
    match forge {
        ForgeKind::GitHub => "POST *comments",
        ForgeKind::GitLab => "POST *notes",
    }
}

/// The configured time of a [`Bed`], and a time that is longer than the polls of these tests.
const SHORT: &str = "write_settle: 100ms";
const LONG: &str = "write_settle: 1m";

/// Lets the daemon wait for another time after a lost answer.
fn settle(bed: &Bed, before: &str, after: &str) {
    let file = bed.daemon.config();
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(before), "{text}");
    fs::write(&file, text.replace(before, after)).unwrap();
    bed.daemon.done(&["reload"]);
}

/// Waits until a request that matches `pattern` was sent, and calls `meanwhile`. Then checks that
/// the request is not sent again while the daemon does not know its outcome, and carries it out.
/// The daemon need not wait any longer then.
#[track_caller]
fn carry_out_late(bed: &mut Bed, pattern: &str, meanwhile: impl FnOnce(&mut Bed)) {
    until("it is sent", || bed.fake.n_requests(pattern) > 0);
    meanwhile(bed);
    let polls = list(bed.forge);
    let n_polls = bed.fake.n_requests(polls) + N_POLLS;
    until("the daemon has polled many times", || bed.fake.n_requests(polls) >= n_polls);
    assert_eq!(bed.fake.n_requests(pattern), 1, "it is sent once: {}", bed.daemon.log());
    bed.fake.carry_out_late();
    settle(bed, LONG, SHORT);
}

#[test]
fn a_comment_that_a_forge_posts_late_is_there_once() {
    let cases: Vec<_> = BOTH.iter().flat_map(|forge| [(*forge, false), (*forge, true)]).collect();
    for_each(&cases, |&(forge, is_killed)| {
        let mut bed = Bed::new(forge, WAITS);
        settle(&bed, SHORT, LONG);
        let fault = if is_killed { Fault::HangLate } else { Fault::CutLate };
        bed.fake.fail(comments(forge), Times::N(1), fault);
        let issue = bed.issue("Login fails");
        carry_out_late(&mut bed, comments(forge), |bed| {
            if is_killed {
                bed.daemon.kill();
                bed.daemon.start();
            }
        });
        bed.until("processing");
        check_comments(&issue, &["Task started"]);
        assert_eq!(bed.fake.n_requests(comments(forge)), 1);
    });
}

#[test]
fn a_label_or_a_draft_that_a_forge_makes_late_is_there_once() {
    let cases = [
        (ForgeKind::GitHub, "POST *labels"),
        (ForgeKind::GitLab, "PUT *"),
        (ForgeKind::GitHub, "POST *pulls"),
        (ForgeKind::GitLab, "POST *merge_requests"),
    ];
    for_each(&cases, |&(forge, pattern)| {
        let mut bed = bed_with(forge, "pull_request", COMMITS, "");
        settle(&bed, SHORT, LONG);
        bed.fake.fail(pattern, Times::N(1), Fault::CutLate);
        let issue = bed.issue("Login fails");
        carry_out_late(&mut bed, pattern, |_| {});
        bed.until("done");
        bed.only_request();
        // A label of the beginning that comes late would stand beside that of the end.
        assert_eq!(issue.labels(), ["coding agent done"]);
        check_comments(&issue, &["Task started", "Task done"]);
    });
}

#[test]
fn later_copies_of_a_comment_are_deleted() {
    for_each(&BOTH, |&forge| {
        let bed = Bed::new(forge, WAITS);
        bed.fake.fail(comments(forge), Times::Always, Fault::CutLate);
        let issue = bed.issue("Login fails");
        until("it is sent again", || bed.fake.n_requests(comments(forge)) > 1);
        bed.fake.carry_out_late();
        bed.fake.mend();
        bed.until("processing");
        check_comments(&issue, &["Task started"]);
        let deleted = match forge {
            ForgeKind::GitHub => "DELETE *comments/*",
            ForgeKind::GitLab => "DELETE *notes/*",
        };
        assert!(bed.fake.n_requests(deleted) > 0);
    });
}
