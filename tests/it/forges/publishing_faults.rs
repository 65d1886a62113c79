//! Faults on the way to a draft pull or merge request: lost answers, deaths of the daemon,
//! branches and requests of other people, refusals, missing rights and redirects.

use std::os::unix::process::ExitStatusExt as _;

use domain::forge::ForgeKind;
use domain::forge::marker::Marker;
use machine::crash_point::{CrashPoint, VARIABLE};
use rustix::process::Signal;
use serde_json::Value;

use super::crashes::for_each;
use super::published::{BOTH, COMMITS, bed, bed_with};
use super::{Bed, TOKEN, check_comments, n_comments};
use crate::forge::fake::{Fake, Fault, Times};
use crate::support::{git, kill, tree_of, until, until_some};

/// The steps of an agent that commits when it is told to. The file is in the project's directory.
const WAITS: &[&str] = &[
    "authenticate",
    "get-my-task",
    "wait-for:../../../../../work/go",
    "run:echo fixed >login.txt; git add login.txt && git commit -qm 'Fix the login'",
    "report:success",
];
const QUICK: &str =
    "backoff: { initial: 1ms, max: 1ms }\nstart: { limit: 0 }\nstop: { leak_grace: 100ms }";

/// Checks that the work was published once, with one comment of each kind.
#[track_caller]
fn check_published(bed: &Bed, issue: &crate::forge::fake::Item) {
    check_published_with(bed, issue, "Fix the login\nChange agt.steps\nChange README.md");
}

/// Checks the same, with these commits on the branch.
#[track_caller]
fn check_published_with(bed: &Bed, issue: &crate::forge::fake::Item, commits: &str) {
    let item = bed.until("done");
    let (_, branches) = bed.only_request();
    assert_eq!(branches.branch, "agents/prj-1");
    assert_eq!(bed.file_at("agents/prj-1", "login.txt"), "fixed");
    check_comments(issue, &["Task started", "Task done"]);
    let url = item["request_url"].as_str().unwrap();
    assert_eq!(n_comments(issue, url), 1);
    assert_eq!(issue.labels(), ["coding agent done"]);
    let log = git(&bed.repository().git(), &["log", "--format=%s", "refs/heads/agents/prj-1"]);
    assert!(log.starts_with(commits), "each commit is there once: {log}");
}

/// Waits until an item has this text in its last error.
#[track_caller]
fn until_error(bed: &Bed, text: &str) -> Value {
    until_some(text, || {
        let is_it =
            |item: &Value| item["last_error"].as_str().is_some_and(|error| error.contains(text));
        bed.items().into_iter().find(is_it)
    })
}

/// Returns the only entry of the inbox about a forge.
#[track_caller]
fn only_entry(bed: &Bed) -> Value {
    let entries = bed.daemon.json(&["inbox", "--kind", "forge"]);
    assert_eq!(entries.as_array().map(Vec::len), Some(1), "{entries}");
    entries[0].clone()
}

#[test]
fn a_daemon_that_dies_at_any_step_publishes_once() {
    let points = [
        CrashPoint::RemoteFetched,
        CrashPoint::ItemWon,
        CrashPoint::SourceFollowed,
        CrashPoint::ItemSettled,
        CrashPoint::ItemResultTaken,
        CrashPoint::ResultPushed,
        CrashPoint::ItemPushed,
        CrashPoint::ItemRequestOpened,
        CrashPoint::ItemRelabelled,
        CrashPoint::ItemCommented,
    ];
    let cases: Vec<(ForgeKind, CrashPoint)> =
        points.into_iter().zip(BOTH.into_iter().cycle()).map(|(at, forge)| (forge, at)).collect();
    for_each(&cases, |(forge, point)| {
        let mut bed = bed_with(*forge, "pull_request", WAITS, QUICK);
        bed.daemon.kill();
        std::fs::write(bed.daemon.work().join("go"), "").unwrap();
        let issue = bed.issue("Login fails");
        let mut command = bed.daemon.command();
        command.env(VARIABLE, format!("{point:?}"));
        bed.daemon.spawn_as(command);
        let died = bed.daemon.wait().signal();
        assert_eq!(died, Some(Signal::KILL.as_raw()), "{point:?}: {}", bed.daemon.log());
        bed.daemon.start();
        check_published(&bed, &issue);
    });
}

/// The daemon dies after each write is done, and again after it is noted.
#[test]
fn a_daemon_that_dies_after_every_write_publishes_once() {
    for_each(&BOTH, |forge| {
        let mut bed = bed_with(*forge, "pull_request", WAITS, QUICK);
        let issue = bed.issue("Login fails");
        bed.until("processing");
        bed.daemon.kill();
        std::fs::write(bed.daemon.work().join("go"), "").unwrap();
        super::crashes::limp(&mut bed, "done");
        check_published(&bed, &issue);
    });
}

#[test]
fn an_answer_that_is_lost_is_asked_for_again() {
    let lost = [
        (ForgeKind::GitHub, "POST /git/*/git-receive-pack"),
        (ForgeKind::GitLab, "POST /git/*/git-receive-pack"),
        (ForgeKind::GitHub, "POST /repos/{owner}/{repo}/pulls"),
        (ForgeKind::GitLab, "POST /api/v4/projects/{id}/merge_requests"),
        (ForgeKind::GitHub, "POST /repos/{owner}/{repo}/issues/{issue_number}/comments"),
        (ForgeKind::GitHub, "GET /git/*"),
    ];
    for_each(&lost, |(forge, pattern)| {
        let bed = bed(*forge, "pull_request", COMMITS);
        bed.fake.fail(pattern, Times::N(1), Fault::LostAnswer);
        let issue = bed.issue("Login fails");
        check_published(&bed, &issue);
    });
}

#[test]
fn a_branch_of_another_author_stays_and_the_next_name_is_used() {
    let bed = bed(ForgeKind::GitHub, "pull_request", COMMITS);
    let theirs = bed.repository().commit("agents/prj-1", "theirs.txt", "theirs");
    let issue = bed.issue("Login fails");
    bed.until("done");
    assert_eq!(bed.repository().branch("agents/prj-1"), Some(theirs));
    assert_eq!(bed.only_request().1.branch, "agents/prj-1-2");
    assert_eq!(bed.file_at("agents/prj-1-2", "login.txt"), "fixed");
    assert_eq!(n_comments(&issue, "`agents/prj-1` has the commits of another author"), 1);
}

/// Lets the work end and its branch be pushed while no request can be opened, calls `meanwhile`
/// with the item, and lets requests be opened again.
fn with_request_of_another(
    forge: ForgeKind,
    meanwhile: impl FnOnce(&Bed, &Value),
) -> (Bed, crate::forge::fake::Item, Value) {
    let bed = bed(forge, "pull_request", COMMITS);
    let post = match forge {
        ForgeKind::GitHub => "POST /repos/{owner}/{repo}/pulls",
        ForgeKind::GitLab => "POST /api/v4/projects/{id}/merge_requests",
    };
    bed.fake.fail(post, Times::Always, Fault::status(503));
    let issue = bed.issue("Login fails");
    until("the branch is there", || bed.repository().branch("agents/prj-1").is_some());
    meanwhile(&bed, &bed.items()[0]);
    bed.fake.mend();
    let item = bed.until("done");
    (bed, issue, item)
}

#[test]
fn a_request_that_a_person_opened_for_the_branch_is_left_and_named() {
    for forge in BOTH {
        let (bed, issue, item) = with_request_of_another(forge, |bed, _| {
            bed.repository().open_request("By hand", "agents/prj-1", "main", None);
        });
        let (request, _) = bed.only_request();
        assert_eq!((request.title(), request.body()), ("By hand".to_owned(), String::new()));
        assert!(item["request_url"].is_null(), "it is not ours: {item}");
        assert_eq!(issue.labels(), ["coding agent done"]);
        assert_eq!(n_comments(&issue, "No draft was opened, because another account"), 1);
    }
}

#[test]
fn a_request_of_another_account_with_a_copied_marker_is_not_ours() {
    for forge in BOTH {
        let (bed, issue, item) = with_request_of_another(forge, |bed, item| {
            let request = bed.repository().open_request("Copied", "agents/prj-1", "main", None);
            let marker = Marker {
                item: item["id"].as_str().unwrap().parse().unwrap(),
                number: Marker::REQUEST,
            };
            request.set_body(&marker.mark("as if it was ours"));
        });
        assert_eq!(bed.only_request().0.title(), "Copied");
        assert!(item["request_url"].is_null(), "{item}");
        assert_eq!(n_comments(&issue, "No draft was opened, because another account"), 1);
    }
}

#[test]
fn a_repository_without_drafts_gets_a_usual_request_that_says_so() {
    let bed = bed(ForgeKind::GitHub, "pull_request", COMMITS);
    bed.repository().forbid_drafts();
    bed.issue("Login fails");
    bed.until("done");
    let (request, branches) = bed.only_request();
    assert!(!branches.is_draft && request.body().contains("has no drafts"), "{}", request.body());
}

#[test]
fn a_refused_push_names_the_message_of_the_forge_and_is_tried_again() {
    for_each(&BOTH, |&forge| {
        let bed = bed(forge, "pull_request", COMMITS);
        bed.repository().refuse_pushes("no branches on Fridays");
        let issue = bed.issue("Login fails");
        let item = until_error(&bed, "no branches on Fridays");
        assert_eq!(item["owed"][0], "push", "{item}");
        assert!(bed.repository().requests().is_empty());
        assert_eq!(n_comments(&issue, "Task done"), 0);
        let listed = bed.daemon.done(&["forge", "list"]);
        assert!(listed.contains("no branches on Fridays"), "{listed}");
        let entry = only_entry(&bed);
        assert_eq!((&entry["item"], &entry["item_url"]), (&item["item"], &item["url"]));
        assert_eq!((&entry["kind"], &entry["task_short_id"]), (&"forge".into(), &"PRJ-1".into()));
        let text = entry["text"].as_str().unwrap();
        assert!(text.contains("refuses the push") && text.contains("no branches on Fri"), "{text}");
        assert!(entry["remedy"].as_str().unwrap().contains("`refresh`"), "{entry}");
        let path = format!("/ui/parts/inbox?item={}", entry["id"].as_str().unwrap());
        let page = bed.daemon.page(&path, "ja");
        assert!(
            page.contains("結果のプッシュを拒否") && page.contains(">ann/site#1</a>"),
            "{page}"
        );
        bed.repository().accept_pushes();
        bed.daemon.done(&["refresh"]);
        check_published(&bed, &issue);
        assert_eq!(bed.daemon.done(&["inbox", "--all", "--kind", "forge"]), "Nothing needs you.\n");
        assert_eq!(n_agents(&bed), 1, "no agent works again");
    });
}

#[test]
fn a_token_without_the_right_to_push_is_named_and_a_better_one_is_used() {
    let bed = bed(ForgeKind::GitHub, "pull_request", COMMITS);
    bed.repository().forbid_push();
    let checked = bed.daemon.cli(&["forge", "check"]);
    assert!(checked.stdout.contains("may not push"), "{}{}", checked.stdout, checked.stderr);
    let issue = bed.issue("Login fails");
    until_error(&bed, "403");
    assert!(only_entry(&bed)["text"].as_str().unwrap().contains("403"), "{}", only_entry(&bed));
    bed.repository().allow_push();
    bed.daemon.done(&["refresh"]);
    check_published(&bed, &issue);
}

#[test]
fn a_forge_that_is_away_for_long_delays_the_push_and_no_agent_works_again() {
    let mut bed = bed(ForgeKind::GitHub, "pull_request", WAITS);
    let issue = bed.issue("Login fails");
    bed.until("processing");
    bed.fake.fail("*", Times::Always, Fault::status(503));
    std::fs::write(bed.daemon.work().join("go"), "").unwrap();
    until("the work is done", || bed.items().first().is_some_and(|item| item["state"] == "done"));
    let item = until_error(&bed, "503");
    assert_eq!(item["owed"][0], "push", "{item}");
    bed.daemon.kill();
    bed.daemon.start();
    assert_eq!(bed.items()[0]["owed"][0], "push", "it outlives the daemon");
    bed.fake.mend();
    bed.daemon.done(&["refresh"]);
    check_published(&bed, &issue);
    assert_eq!(n_agents(&bed), 1);
}

#[test]
fn a_token_that_expires_before_the_push_delays_it() {
    let bed = bed(ForgeKind::GitLab, "pull_request", WAITS);
    let issue = bed.issue("Login fails");
    bed.until("processing");
    bed.fake.set_token("another");
    std::fs::write(bed.daemon.work().join("go"), "").unwrap();
    until("the work is done", || bed.items().first().is_some_and(|item| item["state"] == "done"));
    bed.fake.set_token(TOKEN);
    bed.daemon.done(&["refresh"]);
    check_published(&bed, &issue);
}

/// A fetch whose git is killed is repeated, and what it left in the repository is removed.
#[test]
fn a_killed_fetch_is_repeated_and_leaves_nothing() {
    let bed = bed(ForgeKind::GitHub, "pull_request", COMMITS);
    let keep = bed.daemon.state().join("workspaces/prj/keep.git");
    until("the repository is fetched", || keep.join("HEAD").exists());
    let left = keep.join("objects/pack/tmp_pack_left");
    std::fs::write(&left, "half of a pack").unwrap();
    bed.repository().commit("main", "more.txt", "more");
    bed.fake.fail("POST /git/*/git-upload-pack", Times::Always, Fault::Hang);
    let issue = bed.issue("Login fails");
    bed.fake.forget_requests();
    let asked = "POST /git/*/git-upload-pack";
    until("git waits for the forge", || bed.fake.n_requests(asked) > 0);
    for pid in tree_of(bed.daemon.pid()) {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.starts_with("git") {
            kill(pid, Signal::KILL);
        }
    }
    bed.until_problem("was not fetched");
    bed.fake.mend();
    check_published_with(&bed, &issue, "Fix the login\nChange more.txt\nChange agt.steps");
    assert!(!left.exists(), "the part of a pack is removed");
}

#[test]
fn nothing_is_fetched_when_the_disk_space_of_clones_is_used_up() {
    let mut bed = bed(ForgeKind::GitHub, "pull_request", COMMITS);
    let keep = bed.daemon.state().join("workspaces/prj/keep.git");
    until("the repository is fetched", || keep.join("HEAD").exists());
    std::fs::write(keep.join("large"), vec![b'x'; 65 << 20]).unwrap();
    bed.repository().commit("main", "more.txt", "more");
    let settings = std::fs::read_to_string(bed.daemon.config()).unwrap();
    let small = format!("{settings}\nworkspace: {{ max_disk: 64MiB }}\n");
    // A new daemon measures all folders anew.
    bed.daemon.kill();
    std::fs::write(bed.daemon.config(), small).unwrap();
    bed.daemon.start();
    let issue = bed.issue("Login fails");
    bed.until_problem("`workspace.max_disk` is used up");
    assert!(issue.comments().is_empty(), "it is not claimed");
    std::fs::remove_file(keep.join("large")).unwrap();
    std::fs::write(bed.daemon.config(), settings).unwrap();
    bed.daemon.done(&["reload"]);
    bed.until("done");
}

#[test]
fn redirects_are_not_followed_with_the_token() {
    let bed = bed(ForgeKind::GitHub, "pull_request", COMMITS);
    let other = Fake::start();
    let moved = Fault::status(301).header("location", &format!("{}/git/x", other.github_url()));
    bed.fake.fail("GET /git/*", Times::Always, moved);
    let issue = bed.issue("Login fails");
    bed.until_problem("301");
    assert!(other.requests().is_empty(), "{:?}", other.requests());
    assert!(issue.comments().is_empty());
}

fn n_agents(bed: &Bed) -> usize {
    bed.daemon.ended("agt").len()
}
