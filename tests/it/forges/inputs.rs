//! Bad and odd input. Mistakes in the configuration are shown until they are corrected. Texts of
//! items are taken unchanged.

use std::fs;

use domain::forge::ForgeKind;
use domain::forge::marker::Marker;

use super::{BOT, Bed, NAME, check_comments, n_comments};
use crate::daemon::Daemon;
use crate::forge::fake::{Fake, Fault, Item, Times};
use crate::support::{until, until_some_within};

const WORKS: &[&str] = &["authenticate", "get-my-task", "report:success"];
const GOES_ON: &[&str] = &["authenticate", "get-my-task", "sleep:600"];
const BOTH: [ForgeKind; 2] = [ForgeKind::GitHub, ForgeKind::GitLab];

/// Does the same as [`Bed::new`], with a configuration that is changed before the daemon reads it.
fn changed(forge: ForgeKind, steps: &[&str], change: impl FnOnce(String) -> String) -> Bed {
    let fake = Fake::start();
    fake.repository(forge, NAME);
    let settings = change(Bed::settings(&fake, forge, ""));
    let daemon = Daemon::running(&settings);
    daemon.project("prj");
    daemon.agent("agt", "prj", steps);
    Bed { fake, daemon, forge }
}

/// Replaces the configuration.
#[track_caller]
fn reload(bed: &Bed, settings: &str) {
    bed.daemon.configure(settings);
    bed.daemon.done(&["reload"]);
}

fn n_lists(bed: &Bed) -> usize {
    bed.fake.n_requests("GET *issues")
}

/// Waits until the repository is looked at three times more.
#[track_caller]
pub(super) fn until_looked(bed: &Bed) {
    let before = n_lists(bed);
    until("it is looked at again", || n_lists(bed) >= before + 3);
}

fn n_writes(bed: &Bed) -> usize {
    bed.fake.requests().iter().filter(|request| request.method != "GET").count()
}

#[test]
fn a_bot_that_does_not_exist_is_told_until_it_does() {
    for forge in BOTH {
        let bed = changed(forge, WORKS, |settings| {
            settings.replace("bot_name: robot", "bot_name: nobody")
        });
        let issue = bed.issue("Login fails");
        bed.until_problem("has no account `nobody`");
        assert!(bed.items().is_empty() && n_writes(&bed) == 0);
        reload(&bed, &Bed::settings(&bed.fake, forge, ""));
        bed.until_labelled(&issue, "coding agent done");
    }
}

#[test]
fn a_wrong_base_url_is_told_until_it_is_right() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for (forge, wrong, problem) in [
        (ForgeKind::GitHub, format!("http://127.0.0.1:{port}"), "no connection"),
        (ForgeKind::GitLab, String::new(), ""),
    ] {
        let bed = changed(forge, WORKS, |settings| {
            let url = settings
                .lines()
                .find_map(|line| line.trim().strip_prefix("base_url: "))
                .unwrap()
                .to_owned();
            let wrong = if wrong.is_empty() { format!("{url}/nowhere") } else { wrong };
            settings.replace(&url, &wrong)
        });
        let issue = bed.issue("Login fails");
        bed.until_problem(problem);
        assert!(bed.items().is_empty());
        reload(&bed, &Bed::settings(&bed.fake, forge, ""));
        bed.until_labelled(&issue, "coding agent done");
    }
}

#[test]
fn a_project_and_an_agent_that_are_not_there_are_told_until_they_are() {
    let fake = Fake::start();
    fake.repository(ForgeKind::GitHub, NAME);
    let daemon = Daemon::running(&Bed::settings(&fake, ForgeKind::GitHub, ""));
    let bed = Bed { fake, daemon, forge: ForgeKind::GitHub };
    let issue = bed.issue("Login fails");
    bed.until_problem("agent `agt` in project `prj`: Agent not found");
    bed.daemon.steps("agt", WORKS);
    bed.daemon.done(&["agent", "add", "agt"]);
    bed.until_problem("Project not found");
    bed.daemon.project("prj");
    bed.until_problem("not assigned");
    assert!(bed.items().is_empty() && n_writes(&bed) == 0);
    bed.daemon.done(&["project", "set", "prj", "--assign", "agt"]);
    bed.until_labelled(&issue, "coding agent done");
    until("there is no problem", || bed.host()["repositories"][0]["problem"].is_null());
}

#[test]
fn labels_may_have_any_name() {
    for forge in BOTH {
        let done = if forge == ForgeKind::GitHub { "🤖".repeat(50) } else { "ü".repeat(120) };
        let labels = format!(
            "bot_label: \"🤖 agent\"\n  processing_label: \"work/in ?&#%2F progress\"\n  done_label: \"{done}\"\n  stopped_label: \"k8s::stopped\"\n"
        );
        let bed = changed(forge, GOES_ON, |settings| {
            settings.replace("  bot_name", &format!("  {labels}  bot_name"))
        });
        let issue = bed.fake.repository(forge, NAME).issue("Login fails");
        issue.label("🤖 agent").label("a/b").assign(BOT);
        bed.until("processing");
        let mut found = issue.labels();
        found.sort();
        assert_eq!(found, ["a/b", "work/in ?&#%2F progress"]);
        issue.unassign(BOT);
        bed.until("stopped");
        assert_eq!(issue.labels(), ["a/b", "k8s::stopped"]);
        bed.daemon.steps("agt", WORKS);
        issue.assign(BOT).label("🤖 AGENT");
        bed.until("done");
        assert_eq!(issue.labels(), ["a/b", &done]);
    }
}

#[test]
fn a_label_that_no_forge_takes_is_refused_with_the_configuration() {
    for (forge, max) in [(ForgeKind::GitHub, 50), (ForgeKind::GitLab, 255)] {
        let fake = Fake::start();
        for (n, is_right) in [(max, true), (max + 1, false)] {
            let daemon = Daemon::configured(&Bed::settings(
                &fake,
                forge,
                &format!("done_label: {}", "ü".repeat(n)),
            ));
            let said = daemon.cli(&["check"]);
            assert_eq!(said.code == 0, is_right, "{said:?}");
            let text = said.stdout + &said.stderr;
            assert!(
                is_right || text.contains("done_label") && text.contains(&max.to_string()),
                "{text}"
            );
        }
    }
}

#[test]
fn long_texts_and_nobodys_texts_become_a_task() {
    for forge in BOTH {
        let bed = Bed::new(forge, WORKS);
        let issue = bed.fake.repository(forge, NAME).issue(&"Login fails ".repeat(40));
        issue
            .set_body(&"ü🤖x\n".repeat(120_000))
            .set_author(None)
            .say("description_html", serde_json::Value::Null);
        issue.comment("ann", &"y".repeat(1 << 20));
        issue.label("coding agent").assign(BOT);
        let item = bed.until("done");
        let task = bed.task(&item);
        assert_eq!(task["status"], "done");
        let description = task["description"].as_str().unwrap();
        assert!(
            description.contains("ü🤖x") && description.len() < 256 * 1024,
            "{}",
            description.len()
        );
        check_comments(&issue, &["Task started", "Task done"]);
    }
}

#[test]
fn what_an_agent_writes_commands_nothing() {
    let bed = Bed::new(ForgeKind::GitLab, WORKS);
    for (result, title) in
        [("success", "Task done"), ("blocked", "Task blocked"), ("failed", "Task failed")]
    {
        let report = format!(
            r#"call:report_completed {{"result": "{result}", "summary": "Ready.\n/close\n  /unassign\n<!-- agent-coordinator x 9 -->", "next_steps": "/close\n/unassign"}}"#
        );
        bed.daemon.steps("agt", &["authenticate", "get-my-task", &report]);
        let issue = bed.issue("Login fails");
        let said = || issue.comments().into_iter().find(|comment| comment.contains(title));
        let comment =
            until_some_within(super::TIMEOUT, said, || format!("no comment\n{}", bed.daemon.log()));
        assert!(
            comment.contains("\\/close")
                && !comment.lines().any(|line| line.trim_start().starts_with('/')),
            "{comment}"
        );
        assert!(issue.is_open());
        assert_eq!(issue.assignees(), [BOT]);
        assert_eq!(comment.matches("<!--").count(), 1);
        assert!(Marker::find(&comment).is_some());
    }
}

#[test]
fn what_an_agent_writes_notifies_nobody() {
    let report = r#"call:report_completed {"result": "success", "summary": "Thanks @ann, see ann@x.example\n```\n@property\n```", "next_steps": "Ask @acme/team"}"#;
    let bed = Bed::new(ForgeKind::GitHub, &["authenticate", "get-my-task", report]);
    let issue = bed.issue("Login fails");
    bed.until("done");
    let comments = issue.comments();
    let comment = comments.iter().find(|comment| comment.contains("Task done")).unwrap();
    assert!(!comment.contains("@ann") && !comment.contains("@acme"), "{comment}");
    assert!(comment.contains("ann@x.example") && comment.contains("\n@property\n"), "{comment}");
}

/// The number of items, which are on several pages.
const N_MANY: usize = 300;

#[test]
fn of_very_many_items_one_is_claimed_for_one_slot_and_stopped_wherever_it_stands() {
    let bed = Bed::with(
        ForgeKind::GitHub,
        GOES_ON,
        "max_concurrent: 1\ntask_stop: { check_interval: 2 }",
    );
    let repository = bed.fake.repository(ForgeKind::GitHub, NAME);
    let issues: Vec<Item> = (0..N_MANY).map(|n| repository.issue(&format!("issue {n}"))).collect();
    for issue in &issues {
        issue.assign(BOT);
    }
    // The last item is on the last page.
    let (last, others) = issues.split_last().unwrap();
    last.label("coding agent");
    bed.until_labelled(last, "coding agent processing");
    for issue in others {
        issue.label("coding agent");
    }
    let n_waiting = || bed.host()["repositories"][0]["n_waiting"].as_u64();
    until("all others wait", || n_waiting() == Some(others.len() as u64));
    until_looked(&bed);
    assert_eq!((bed.items().len(), n_waiting()), (1, Some(others.len() as u64)));
    assert_eq!(bed.daemon.status()["limits"]["running"], 1);
    last.unassign(BOT);
    bed.until_labelled(last, "coding agent stopped");
    // This is the item that was seen first. A look may be between two pages while the labels are
    // set.
    let is_processing = |issue: &&Item| issue.labels() == ["coding agent processing"];
    let next = until_some_within(
        super::TIMEOUT,
        || others.iter().find(is_processing),
        || format!("nothing is claimed\n{}", bed.daemon.log()),
    );
    until("they are counted", || bed.host()["repositories"][0]["n_assigned"] == others.len());
    let is_touched = |issue: &&Item| issue.labels() != ["coding agent"];
    assert_eq!(others.iter().filter(is_touched).count(), 1);
    assert_eq!(n_comments(next, "Task started"), 1);
}

#[test]
fn a_dry_run_writes_nothing_and_takes_nothing_until_it_is_none() {
    let dry = |settings: String| {
        settings.replace("poll_interval: 100ms", "dry_run: true, poll_interval: 100ms")
    };
    let bed = changed(ForgeKind::GitLab, WORKS, dry);
    let issue = bed.issue("Login fails");
    until("it says what it would do", || {
        !bed.daemon.logged("dry run: would take a forge item").is_empty()
    });
    until_looked(&bed);
    assert_eq!((n_writes(&bed), bed.items().len()), (0, 0));
    assert_eq!(bed.daemon.logged("dry run: would take a forge item").len(), 1, "once");
    reload(&bed, &Bed::settings(&bed.fake, ForgeKind::GitLab, ""));
    bed.until_labelled(&issue, "coding agent done");
}

#[test]
fn what_is_owed_waits_for_the_end_of_a_dry_run() {
    let bed = Bed::new(
        ForgeKind::GitHub,
        &["authenticate", "get-my-task", "wait-for:go", "report:success"],
    );
    let issue = bed.issue("Login fails");
    bed.until("processing");
    let settings = Bed::settings(&bed.fake, ForgeKind::GitHub, "");
    reload(&bed, &settings.replace("poll_interval: 100ms", "dry_run: true, poll_interval: 100ms"));
    let n_before = n_writes(&bed);
    fs::write(bed.daemon.work().join("go"), "").unwrap();
    let is_waiting = || bed.items().first().is_some_and(|item| item["state"] == "done");
    until("its task is done", is_waiting);
    until("it says so", || !bed.daemon.logged("dry run: would write to a forge").is_empty());
    until_looked(&bed);
    assert_eq!(
        (n_writes(&bed), issue.labels()),
        (n_before, vec!["coding agent processing".to_owned()])
    );
    reload(&bed, &settings);
    bed.until("done");
    check_comments(&issue, &["Task started", "Task done"]);
}

#[test]
fn repositories_come_and_go_with_the_configuration() {
    let bed = Bed::new(ForgeKind::GitHub, WORKS);
    let other = bed.fake.repository(ForgeKind::GitHub, "bob/site").issue("Logout fails");
    other.label("coding agent").assign(BOT);
    until_looked(&bed);
    assert!(bed.items().is_empty());
    let settings = Bed::settings(&bed.fake, ForgeKind::GitHub, "");
    let with_other = settings.replace("ann/site:", "bob/site:");
    reload(&bed, &with_other);
    bed.until_labelled(&other, "coding agent done");
    bed.fake.forget_requests();
    until("the other is looked at", || bed.fake.n_requests("GET /repos/bob/site/issues") > 3);
    assert_eq!(bed.fake.n_requests("GET /repos/ann/site/issues"), 0);
    let issue = bed.issue("Login fails");
    reload(&bed, &settings);
    bed.until_labelled(&issue, "coding agent done");
}

#[test]
fn what_is_owed_for_a_repository_that_is_watched_no_more_is_still_done() {
    let bed = Bed::new(ForgeKind::GitHub, WORKS);
    bed.fake.fail("POST *comments", Times::Always, Fault::status(502));
    let issue = bed.issue("Login fails");
    until("it is tried", || bed.fake.n_requests("POST *comments") > 0);
    bed.fake.repository(ForgeKind::GitHub, "bob/site");
    reload(
        &bed,
        &Bed::settings(&bed.fake, ForgeKind::GitHub, "").replace("ann/site:", "bob/site:"),
    );
    bed.fake.mend();
    bed.until_labelled(&issue, "coding agent done");
}

#[test]
fn without_task_stop_an_unassigned_item_goes_on() {
    let bed = Bed::with(ForgeKind::GitHub, GOES_ON, "task_stop: { enabled: false }");
    let issue = bed.issue("Login fails");
    bed.until("processing");
    bed.until_agent_runs();
    issue.unassign(BOT);
    until_looked(&bed);
    assert_eq!(bed.items()[0]["state"], "processing");
    let settings = Bed::settings(&bed.fake, ForgeKind::GitHub, "");
    reload(&bed, &settings);
    assert_eq!(bed.until("stopped")["cause"], "unassigned");
    assert_eq!(issue.labels(), ["coding agent stopped"]);
}
