//! Forges that fail. An unclear answer of a forge ends no work, and pending writes are done when it
//! answers again.

use std::fs;
use std::time::{Duration, Instant};

use domain::forge::ForgeKind;
use serde_json::{Value, json};

use super::crashes::for_each;
use super::{BOT, Bed, NAME, check_comments, n_comments};
use crate::daemon::Daemon;
use crate::forge::fake::{Fake, Fault, Item, TOKEN, Times};
use crate::support::{until, until_some};

const WORKS: &[&str] = &["authenticate", "get-my-task", "report:success"];
const WAITS: &[&str] = &["authenticate", "get-my-task", "wait-for:go", "report:success"];
const BOTH: [ForgeKind; 2] = [ForgeKind::GitHub, ForgeKind::GitLab];

/// Returns the routes of a forge's lists and items for [`Fake::fail`].
const fn routes(forge: ForgeKind) -> (&'static str, &'static str) {
    match forge {
        ForgeKind::GitHub => {
            ("GET /repos/{owner}/{repo}/issues", "GET /repos/{owner}/{repo}/issues/{issue_number}")
        }
        ForgeKind::GitLab => {
            ("GET /api/v4/projects/{id}/issues", "GET /api/v4/projects/{id}/issues/{issue_iid}")
        }
    }
}

/// Returns an item whose agent runs, without pending writes.
fn at_work(forge: ForgeKind, settings: &str) -> (Bed, Item) {
    let bed = Bed::with(forge, WAITS, settings);
    let issue = bed.issue("Login fails");
    bed.until("processing");
    bed.until_agent_runs();
    (bed, issue)
}

/// Waits until the forge is asked `n` times more.
#[track_caller]
fn until_asked(fake: &Fake, pattern: &str, n: usize) {
    let before = fake.n_requests(pattern);
    until("the forge is asked again", || fake.n_requests(pattern) >= before + n);
}

#[track_caller]
fn check_works_on(bed: &Bed) {
    assert_eq!(bed.items()[0]["state"], "processing", "{}", bed.daemon.log());
    assert_eq!(bed.daemon.open("agt")[0]["state"], "running");
}

fn finish(bed: &Bed) {
    fs::write(bed.daemon.work().join("go"), "").unwrap();
}

#[test]
fn a_token_that_is_not_taken_any_more_ends_nothing_until_a_person_renews_it() {
    let forge = ForgeKind::GitLab;
    let fake = Fake::start();
    fake.repository(forge, NAME);
    let settings =
        Bed::settings(&fake, forge, "").replace(&format!("token: {TOKEN}"), "token_file: token");
    let daemon = Daemon::configured(&settings);
    daemon.write("token", TOKEN);
    let mut bed = Bed { fake, daemon, forge };
    bed.daemon.start();
    bed.daemon.project("prj");
    bed.daemon.agent("agt", "prj", WAITS);
    let issue = bed.issue("Login fails");
    bed.until("processing");
    bed.until_agent_runs();

    bed.fake.set_token("another-t0ken");
    until("it is told", || bed.host()["health"] == "unauthorized");
    issue.unassign(BOT);
    until_asked(&bed.fake, routes(forge).0, 2);
    check_works_on(&bed);
    let lines = bed.daemon.logged("a forge does not take the token; a person must renew it");
    assert_eq!(lines.len(), 1, "once");

    bed.daemon.write("token", "another-t0ken\n");
    let item = bed.until("stopped");
    assert_eq!(
        (item["cause"].as_str(), bed.host()["health"].as_str()),
        (Some("unassigned"), Some("ok"))
    );
    assert!(!bed.daemon.log().contains("t0ken"), "no log has a token");
}

#[test]
fn a_limited_host_is_left_alone_as_a_whole_and_asked_again_when_it_allows_it() {
    let cases = [
        (ForgeKind::GitHub, Fault::status(403).header("retry-after", "4")),
        (ForgeKind::GitHub, Fault::status(429).header("retry-after", "4")),
        (ForgeKind::GitLab, Fault::status(429).header("retry-after", "4")),
    ];
    for (forge, fault) in cases {
        let fake = Fake::start();
        fake.repository(forge, NAME);
        fake.repository(forge, "ann/other");
        let mut settings = Bed::settings(&fake, forge, "");
        settings += "    ann/other: { project_id: prj, agent: agt }\n";
        let daemon = Daemon::running(&settings);
        daemon.project("prj");
        daemon.agent("agt", "prj", WAITS);
        let bed = Bed { fake, daemon, forge };
        let issue = bed.issue("Login fails");
        bed.until("processing");
        bed.until_agent_runs();

        // Every further request meets the limit.
        bed.fake.fail("*", Times::Always, fault);
        let limited_until =
            until_some("it is told", || bed.host()["limited_until"].as_str().map(str::to_owned));
        let begin = Instant::now();
        bed.fake.mend();
        assert_eq!(bed.host()["health"], "limited");
        // Requests that were under way when the limit was met are answered by now.
        finish(&bed);
        until("its task is done", || bed.daemon.open("agt").is_empty());
        bed.issue("Logout fails");
        let n_requests = bed.fake.requests().len();
        until("it waited", || {
            let n_now = bed.fake.requests().len();
            let is_over = begin.elapsed() > Duration::from_secs(2);
            assert!(
                is_over || n_now == n_requests,
                "asked before {limited_until}: {:?}",
                bed.fake.requests().last()
            );
            is_over
        });
        bed.until_labelled(&issue, "coding agent done");
        until("it is well", || bed.host()["health"] == "ok");
        assert_eq!(bed.host()["limited_until"], Value::Null);
    }
}

/// Checks that nothing is concluded while requests for the item itself fail, in each of these ways.
/// Then its bot is really unassigned.
#[track_caller]
fn check_item(forge: ForgeKind, faults: &[Fault]) {
    let (bed, issue) = at_work(forge, "");
    let item = routes(forge).1;
    for fault in faults {
        bed.fake.fail(item, Times::Always, fault.clone());
        issue.unassign(BOT);
        until_asked(&bed.fake, item, 2);
        check_works_on(&bed);
        // Between two faults the item shows no reason to end the work.
        issue.assign(BOT);
        bed.fake.mend();
    }
    issue.unassign(BOT);
    bed.until("stopped");
    check_comments(&issue, &["Task started", "Task stopped"]);
}

/// Checks the same while its list can't be read.
#[track_caller]
fn check_list(forge: ForgeKind, faults: &[Fault]) {
    let (bed, issue) = at_work(forge, "");
    let list = routes(forge).0;
    for fault in faults {
        bed.fake.fail(list, Times::Always, fault.clone());
        until_asked(&bed.fake, list, 3);
        check_works_on(&bed);
        assert!(bed.host()["repositories"][0]["problem"].is_string(), "{fault:?}: {}", bed.host());
        bed.fake.mend();
        until("it is read again", || bed.host()["repositories"][0]["problem"].is_null());
        check_works_on(&bed);
    }
    issue.unassign(BOT);
    bed.until("stopped");
}

fn unclear() -> Vec<Fault> {
    vec![
        Fault::status(500),
        Fault::status(503).header("retry-after", "1"),
        Fault::status(403),
        Fault::status(307).header("location", "/elsewhere"),
        Fault::Cut,
        Fault::CutBody,
        Fault::TruncatedJson,
        Fault::WrongJson,
    ]
}

#[test]
fn an_unclear_answer_about_an_item_ends_nothing() {
    std::thread::scope(|scope| {
        for forge in BOTH {
            scope.spawn(move || check_item(forge, &unclear()));
        }
    });
}

#[test]
fn an_unclear_list_ends_nothing() {
    std::thread::scope(|scope| {
        for forge in BOTH {
            scope.spawn(move || check_list(forge, &unclear()));
        }
    });
}

#[test]
fn an_item_that_hangs_ends_nothing() {
    let (bed, issue) = at_work(ForgeKind::GitHub, "");
    let item = routes(ForgeKind::GitHub).1;
    bed.fake.fail(item, Times::N(1), Fault::Hang);
    issue.unassign(BOT);
    until_asked(&bed.fake, item, 1);
    check_works_on(&bed);
    bed.until("stopped");
}

#[test]
fn an_item_without_assignees_is_not_unassigned() {
    for forge in BOTH {
        let (bed, issue) = at_work(forge, "");
        // The field is omitted at last, because the fake omits it from then on.
        for value in [Some(Value::Null), Some(json!([{ "login": 5, "username": 5 }])), None] {
            match value {
                None => issue.omit("assignees"),
                Some(value) => issue.say("assignees", value),
            };
            until_asked(&bed.fake, routes(forge).0, 3);
            check_works_on(&bed);
        }
    }
}

#[test]
fn what_is_not_found_once_goes_on() {
    for forge in BOTH {
        let (bed, _issue) = at_work(forge, "");
        let (list, item) = routes(forge);
        bed.fake.forget_requests();
        bed.fake.fail(item, Times::N(1), Fault::status(404));
        bed.fake.fail(list, Times::N(1), Fault::status(404));
        until("it is asked for, and asked for again", || bed.fake.n_requests(item) >= 2);
        until_asked(&bed.fake, list, 3);
        check_works_on(&bed);
    }
}

/// Returns the pattern of all paths below a repository for [`Fake::fail`].
const fn below_repository(forge: ForgeKind) -> &'static str {
    match forge {
        ForgeKind::GitHub => "* /repos/ann/site*",
        ForgeKind::GitLab => "* /gitlab/api/v4/projects/ann%2Fsite*",
    }
}

/// Checks a repository that answers only with `fault` for three looks. That ends no work, and the
/// pending writes are done afterwards.
#[track_caller]
fn check_repository_in_trouble(forge: ForgeKind, fault: &Fault) {
    let (bed, issue) = at_work(forge, "");
    bed.fake.fail(below_repository(forge), Times::Always, fault.clone());
    until("its trouble is told", || bed.host()["repositories"][0]["problem"].is_string());
    until_asked(&bed.fake, routes(forge).0, 3);
    check_works_on(&bed);
    finish(&bed);
    until("its task is done", || bed.daemon.open("agt").is_empty());
    let is_waiting = || bed.items().first().is_some_and(|item| item["n_attempts"] == 2);
    until("its label is tried in vain", is_waiting);
    bed.fake.mend();
    bed.until_labelled(&issue, "coding agent done");
    bed.until("done");
    check_comments(&issue, &["Task started", "Task done"]);
}

#[test]
fn trouble_with_a_repository_ends_no_work_in_it() {
    let cases = [(ForgeKind::GitHub, 404), (ForgeKind::GitLab, 410), (ForgeKind::GitLab, 403)];
    for_each(&cases, |&(forge, status)| {
        check_repository_in_trouble(forge, &Fault::status(status));
    });
}

#[test]
fn items_that_are_missing_together_with_their_list_are_not_gone() {
    for forge in BOTH {
        let (bed, issue) = at_work(forge, "");
        let (list, item) = routes(forge);
        // This happens when issues are turned off: the repository itself still answers.
        bed.fake.fail(item, Times::Always, Fault::status(404));
        bed.fake.fail(list, Times::Always, Fault::status(410));
        until_asked(&bed.fake, item, 3);
        check_works_on(&bed);
        bed.fake.mend();
        issue.unassign(BOT);
        assert_eq!(bed.until("stopped")["cause"], "unassigned");
    }
}

#[test]
fn a_renamed_repository_is_followed_and_told_once() {
    const NEW: &str = "acme/shop";
    for forge in BOTH {
        let (mut bed, issue) = at_work(forge, "");
        bed.fake.repository(forge, NAME).rename(NEW);
        bed.until_problem("it is called `acme/shop` now");
        let key =
            if forge == ForgeKind::GitHub { "github.repositories" } else { "gitlab.projects" };
        let line = format!("write `acme/shop` in place of `ann/site` under `{key}`");
        bed.until_problem(&line);
        check_works_on(&bed);
        let checked = bed.daemon.cli(&["forge", "check"]);
        assert!(checked.stdout.contains("it is called `acme/shop` now"), "{checked:?}");
        let told = "a repository of a forge has a problem";
        assert_eq!(bed.daemon.logged(told).len(), 1, "{}", bed.daemon.log());

        // The daemon learns the name again after a restart. It does not claim the item again.
        bed.daemon.kill();
        bed.daemon.start();
        bed.until_problem(&line);
        finish(&bed);
        bed.until_labelled(&issue, "coding agent done");
        bed.until("done");
        check_comments(&issue, &["Task started", "Task done"]);
        let other = bed.fake.repository(forge, NEW).issue("Logout fails");
        other.label("coding agent").assign(BOT);
        bed.until_labelled(&other, "coding agent done");
        until("all is said", || bed.items().is_empty());
        check_comments(&other, &["Task started", "Task done"]);
    }
}

#[test]
fn the_items_of_a_renamed_repository_are_followed_under_its_new_name_in_the_configuration() {
    for forge in BOTH {
        let (bed, issue) = at_work(forge, "");
        bed.fake.repository(forge, NAME).rename("acme/shop");
        bed.daemon.configure(&Bed::settings(&bed.fake, forge, "").replace(NAME, "acme/shop"));
        bed.daemon.done(&["reload"]);
        until_asked(&bed.fake, routes(forge).0, 3);
        check_works_on(&bed);
        issue.unassign(BOT);
        assert_eq!(bed.until("stopped")["cause"], "unassigned");
        assert_eq!(issue.labels(), ["coding agent stopped"]);
        check_comments(&issue, &["Task started", "Task stopped"]);
    }
}

#[test]
fn an_item_that_left_a_renamed_repository_is_stopped_as_moved() {
    for forge in BOTH {
        let (bed, issue) = at_work(forge, "");
        let renamed = bed.fake.repository(forge, NAME);
        renamed.rename("acme/shop");
        bed.until_problem("it is called `acme/shop` now");
        issue.transfer(&bed.fake.repository(forge, "ann/other"));
        assert_eq!(bed.until("stopped")["cause"], "moved");
    }
}

#[test]
fn a_list_that_is_elsewhere_is_told_and_ends_nothing() {
    for forge in BOTH {
        let (bed, issue) = at_work(forge, "");
        let moved = Fault::status(301).header("location", "/repositories/5/issues");
        bed.fake.fail(routes(forge).0, Times::Always, moved);
        bed.until_problem("/repositories/5/issues");
        until_asked(&bed.fake, routes(forge).1, 2);
        check_works_on(&bed);
        // Each item still shows its own state.
        issue.unassign(BOT);
        assert_eq!(bed.until("stopped")["cause"], "unassigned");
    }
}

#[test]
fn a_project_without_one_of_its_lists_has_the_other() {
    let (bed, issue) = at_work(ForgeKind::GitLab, "");
    bed.fake.fail("GET /api/v4/projects/{id}/merge_requests", Times::Always, Fault::status(403));
    bed.until_problem("forbidden");
    issue.unassign(BOT);
    bed.until("stopped");
    bed.daemon.steps("agt", WORKS);
    issue.assign(BOT).label("coding agent");
    bed.until_labelled(&issue, "coding agent done");
}

#[test]
fn while_one_list_fails_the_items_of_the_other_are_stopped() {
    let (bed, issue) = at_work(ForgeKind::GitLab, "");
    bed.fake.fail("GET /api/v4/projects/{id}/merge_requests", Times::Always, Fault::WrongJson);
    bed.until_problem("not valid");
    issue.unassign(BOT);
    bed.until("stopped");
}

#[test]
fn an_item_that_is_locked_at_work_gets_its_labels_and_ends_without_the_comment() {
    for forge in BOTH {
        let (bed, issue) = at_work(forge, "");
        issue.lock();
        bed.fake.forget_requests();
        finish(&bed);
        bed.until_labelled(&issue, "coding agent done");
        let item = bed.until("done");
        assert_eq!(n_comments(&issue, "Task done"), 0);
        assert_eq!(bed.places(&item), ["completed"]);
        assert_eq!(bed.daemon.logged("gave up a write to a forge item").len(), 1);
        assert_eq!(bed.fake.n_requests(posts_comment(forge)), 1, "it is given up at once");
        let error = item["last_error"].as_str().unwrap();
        assert!(error.contains("comment 1 given up: the conversation is locked"), "{error}");
    }
}

/// Returns the route of a new comment for [`Fake::fail`].
const fn posts_comment(forge: ForgeKind) -> &'static str {
    match forge {
        ForgeKind::GitHub => "POST *comments",
        ForgeKind::GitLab => "POST *notes",
    }
}

#[test]
fn a_locked_item_is_claimed_by_its_label_and_worked_on() {
    for forge in BOTH {
        let bed = Bed::new(forge, WORKS);
        let issue = bed.fake.repository(forge, NAME).issue("Login fails");
        issue.comment("ann", "Since Monday.");
        issue.lock().label("coding agent").assign(BOT);
        let item = bed.until("done");
        assert_eq!(issue.labels(), ["coding agent done"]);
        assert_eq!(issue.comments(), ["Since Monday."]);
        let description = bed.task(&item)["description"].to_string();
        assert!(description.contains("Since Monday."), "{description}");
        let told = "claimed a forge item by its label alone: its conversation is locked";
        assert_eq!(bed.daemon.logged(told).len(), 1, "{}", bed.daemon.log());
        assert_eq!(bed.fake.n_requests(posts_comment(forge)), 2, "the claim and the report");
    }
}

#[test]
fn a_locked_item_is_claimed_by_a_comment_if_the_bot_may_comment() {
    for forge in BOTH {
        let bed = Bed::new(forge, WORKS);
        let issue = bed.fake.repository(forge, NAME).issue("Login fails");
        let locked = if forge == ForgeKind::GitHub { "locked" } else { "discussion_locked" };
        // The item looks like this for members with the right to write: it is locked, and accepts
        // their comments.
        issue.say(locked, true.into()).label("coding agent").assign(BOT);
        bed.until("done");
        check_comments(&issue, &["Task started", "Task done"]);
    }
}

#[test]
fn a_claim_that_is_forbidden_without_a_lock_is_tried_again() {
    for forge in BOTH {
        let bed = Bed::new(forge, WORKS);
        bed.fake.fail(posts_comment(forge), Times::N(2), Fault::status(403));
        let issue = bed.issue("Login fails");
        bed.until("done");
        check_comments(&issue, &["Task started", "Task done"]);
    }
}

#[test]
fn a_host_that_hangs_delays_no_other() {
    let fake = Fake::start();
    for forge in BOTH {
        fake.repository(forge, NAME);
    }
    fake.fail("GET /users/*", Times::Always, Fault::Hang);
    fake.fail("GET /repos/*", Times::Always, Fault::Hang);
    let both = Bed::settings(&fake, ForgeKind::GitHub, "");
    let gitlab = Bed::settings(&fake, ForgeKind::GitLab, "");
    let (_, gitlab) = gitlab.split_once("gitlab:").unwrap();
    let daemon = Daemon::running(&format!("{both}gitlab:{gitlab}"));
    daemon.project("prj");
    daemon.agent("agt", "prj", WORKS);
    until("the one host hangs", || {
        fake.n_requests("GET /users/*") + fake.n_requests("GET /repos/*") > 0
    });
    let bed = Bed { fake, daemon, forge: ForgeKind::GitLab };
    let issue = bed.issue("Login fails");
    bed.until_labelled(&issue, "coding agent done");
    let hosts = bed.daemon.status()["forges"].clone();
    let hanging =
        hosts.as_array().unwrap().iter().find(|host| host["forge"] == "github").unwrap().clone();
    assert_eq!(hanging["health"], "unknown", "it hasn't answered, nor is its time over");
}

#[test]
fn an_item_that_hangs_delays_no_other() {
    let bed = Bed::new(ForgeKind::GitHub, WORKS);
    bed.fake.fail("GET /repos/ann/site/issues/1/comments", Times::Always, Fault::Hang);
    bed.issue("It hangs");
    let other = bed.issue("Login fails");
    bed.until_labelled(&other, "coding agent done");
    assert_eq!(bed.items()[0]["state"], "claiming");
}

#[test]
fn two_entries_of_one_host_serve_each_its_own_repositories() {
    let fake = Fake::start();
    fake.repository(ForgeKind::GitHub, NAME);
    fake.repository(ForgeKind::GitHub, "bob/site");
    let entry = |name: &str| {
        format!(
            "  - {{ base_url: \"{}\", token: {TOKEN}, bot_name: {BOT}, repositories: {{ {name}: {{ project_id: prj, agent: agt }} }} }}\n",
            fake.url(ForgeKind::GitHub)
        )
    };
    let daemon = Daemon::running(&format!(
        "polling_interval: 1h\nforge: {{ poll_interval: 100ms, write_interval: 0s }}\ngithub:\n{}{}",
        entry(NAME),
        entry("bob/site")
    ));
    daemon.project("prj");
    daemon.agent("agt", "prj", WORKS);
    let mut issues = Vec::new();
    for name in [NAME, "bob/site"] {
        for n in 0..4 {
            let issue = fake.repository(ForgeKind::GitHub, name).issue(&format!("{name} {n}"));
            issue.label("coding agent").assign(BOT);
            issues.push(issue);
        }
    }
    let bed = Bed { fake, daemon, forge: ForgeKind::GitHub };
    for issue in &issues {
        bed.until_labelled(issue, "coding agent done");
    }
    until("nothing is open", || bed.items().is_empty());
    for issue in &issues {
        check_comments(issue, &["Task started", "Task done"]);
    }
    let forges = bed.daemon.status()["forges"].clone();
    assert_eq!(forges.as_array().unwrap().len(), 2, "both are shown: {forges}");
}
