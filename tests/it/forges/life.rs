//! The whole life of an item: from the assignment of the bot to the end of the work.

use domain::forge::ForgeKind;

use super::inputs::until_looked;
use super::{BOT, Bed, n_comments};
use crate::forge::fake::{Fault, Times};
use crate::support::until;

const BOTH: [ForgeKind; 2] = [ForgeKind::GitHub, ForgeKind::GitLab];

/// An agent that authenticates, asks for its task, and reports.
const WORKS: &[&str] = &["authenticate", "get-my-task", "report:success"];
/// An agent that works until it is ended.
const GOES_ON: &[&str] = &["authenticate", "get-my-task", "sleep:600"];

#[test]
fn an_assigned_issue_is_worked_on_and_done() {
    for forge in BOTH {
        let bed = Bed::new(forge, WORKS);
        let issue = bed.issue("Login fails");
        issue.label("bug").set_body("It says 500.");
        issue.comment("ann", "Since Monday.");
        let item = bed.until("done");

        let mut labels = issue.labels();
        labels.sort();
        assert_eq!(labels, ["bug", "coding agent done"]);
        assert_eq!(
            (n_comments(&issue, "Task started"), n_comments(&issue, "Task done")),
            (1, 1),
            "{:?}",
            issue.comments()
        );
        let task = bed.task(&item);
        assert_eq!(task["status"], "done");
        let description = task["description"].as_str().unwrap();
        assert!(
            description.contains("It says 500.") && description.contains("Since Monday."),
            "{description}"
        );
        let metadata = bed.read("completed", &item, "metadata.json");
        assert_eq!(metadata["uuid"], item["id"]);
        assert!(!bed.folder("running", &item).exists());
    }
}

#[test]
fn a_pull_or_merge_request_is_worked_on_too() {
    for forge in BOTH {
        let bed = Bed::new(forge, WORKS);
        let request = bed.fake.repository(forge, super::NAME).pull("Better login");
        request.label("coding agent").assign("someone").assign(BOT);
        bed.until("done");
        assert_eq!(request.labels(), ["coding agent done"]);
    }
}

#[test]
fn unassigning_the_bot_stops_its_agent_and_says_so() {
    for forge in BOTH {
        let bed = Bed::new(forge, GOES_ON);
        let issue = bed.issue("Login fails");
        bed.until("processing");
        until("the agent runs", || bed.daemon.status()["instances"][0]["state"] == "running");
        assert_eq!(issue.labels(), ["coding agent processing"]);
        issue.unassign(BOT);
        let item = bed.until("stopped");

        assert_eq!(item["cause"], "unassigned");
        assert_eq!(issue.labels(), ["coding agent stopped"]);
        assert_eq!((n_comments(&issue, "Task stopped"), n_comments(&issue, "Task done")), (1, 0));
        assert_eq!(bed.task(&item)["status"], "cancelled");
        assert_eq!(bed.daemon.ended("agt")[0]["reason"], "unassigned");
        assert!(bed.folder("completed", &item).is_dir());

        // If it is assigned again, it is a new task.
        bed.daemon.steps("agt", WORKS);
        issue.assign(BOT).label("coding agent");
        let again = bed.until("done");
        assert_ne!((&again["id"], &again["task_id"]), (&item["id"], &item["task_id"]));
        assert_eq!(issue.labels(), ["coding agent done"]);
    }
}

#[test]
fn a_closed_a_deleted_and_a_moved_issue_stop_their_agent() {
    for forge in BOTH {
        let bed = Bed::new(forge, GOES_ON);
        for (cause, label) in
            [("closed", Some("coding agent stopped")), ("gone", None), ("moved", None)]
        {
            let issue = bed.issue("Login fails");
            bed.until("processing");
            match cause {
                "closed" => drop(issue.close()),
                "gone" => drop(issue.delete(if forge == ForgeKind::GitHub { 410 } else { 404 })),
                _ => drop(issue.transfer(&bed.fake.repository(forge, "ann/other"))),
            }
            until("it is stopped for this cause", || bed.until("stopped")["cause"] == cause);
            if let Some(label) = label {
                assert_eq!(issue.labels(), [label]);
            }
        }
    }
}

#[test]
fn a_blocked_and_a_failed_task_wait_until_somebody_asks_again() {
    let bed = Bed::new(ForgeKind::GitHub, WORKS);
    for state in ["blocked", "failed"] {
        let report = format!("report:{state}");
        bed.daemon.steps("agt", &["authenticate", "get-my-task", &report]);
        let issue = bed.issue("Login fails");
        bed.until(state);
        assert_eq!(issue.labels(), [format!("coding agent {state}")]);
        assert_eq!(n_comments(&issue, "Task"), 2, "{:?}", issue.comments());
        bed.daemon.steps("agt", WORKS);
        issue.label("coding agent");
        bed.until_labelled(&issue, "coding agent done");
    }
}

#[test]
fn the_pause_file_pauses_and_its_end_resumes() {
    let bed = Bed::with(ForgeKind::GitLab, GOES_ON, "notice: { grace: 1s }");
    let issue = bed.issue("Login fails");
    bed.until("processing");
    until("the agent runs", || bed.daemon.status()["instances"][0]["state"] == "running");
    let signal = bed.daemon.state().join("contexts/pause_signal");
    std::fs::write(&signal, "").unwrap();
    let item = bed.until("paused");
    assert_eq!(issue.labels(), ["coding agent paused"]);
    assert_eq!(n_comments(&issue, "Task paused"), 1);
    let state = bed.read("paused", &item, "task_state.json");
    assert_eq!(state["uuid"], item["id"]);
    assert_eq!(bed.daemon.status()["pause_file"], true);

    // No new work is begun while the file exists, although the agent is free.
    bed.daemon.until_ended("agt");
    bed.daemon.steps("agt", WORKS);
    let other = bed.issue("Logout fails");
    until_looked(&bed);
    assert_eq!((other.labels(), bed.items().len()), (vec!["coding agent".to_owned()], 1));
    std::fs::remove_file(&signal).unwrap();
    until("both are done", || {
        other.labels() == ["coding agent done"] && issue.labels() == ["coding agent done"]
    });
    until("its context is kept as completed", || bed.folder("completed", &item).is_dir());
    assert!(!bed.folder("paused", &item).exists());
    assert_eq!((n_comments(&issue, "Task resumed"), n_comments(&issue, "Task done")), (1, 1));
}

#[test]
fn an_item_that_was_worked_on_before_is_taken_again_although_its_comments_are_missing_for_once() {
    let bed = Bed::new(ForgeKind::GitHub, WORKS);
    let issue = bed.issue("Login fails");
    let first = bed.until("done");
    bed.fake.fail("GET *comments", Times::N(1), Fault::status(404));
    issue.label("coding agent");
    until("it is done again", || {
        let ended = bed.daemon.json(&["forge", "list", "--ended"]);
        ended
            .as_array()
            .unwrap()
            .iter()
            .any(|item| item["id"] != first["id"] && item["state"] == "done")
    });
    assert_eq!((n_comments(&issue, "Task started"), n_comments(&issue, "Task done")), (2, 2));
}

#[test]
fn a_reworked_item_has_the_report_of_the_work_before_and_the_new_comments() {
    let report = r#"call:report_completed {"result": "success", "summary": "Fixed the form."}"#;
    let bed = Bed::new(ForgeKind::GitLab, &["authenticate", "get-my-task", report]);
    let issue = bed.issue("Login fails");
    issue.comment("ann", "Since Monday.");
    let first = bed.until("done");
    issue.comment("ann", "The button is still grey.");
    bed.daemon.steps("agt", GOES_ON);
    issue.label("coding agent");
    let again = bed.until("processing");
    assert_ne!(again["task_id"], first["task_id"]);
    let task = bed.task(&again);
    let description = task["description"].as_str().unwrap();
    let places = ["Since Monday.", "Fixed the form.", "The button is still grey."]
        .map(|text| description.find(text).unwrap_or_else(|| panic!("{text}: {description}")));
    assert!(places.is_sorted(), "{description}");
    assert!(!description.contains("<!--") && !description.contains("Task started"));
}

#[test]
fn what_is_finished_is_told_as_done_although_it_is_closed_before_its_agent_is_gone() {
    let steps = &["authenticate", "get-my-task", "report:success", "write:reported", "wait-for:go"];
    let bed = Bed::with(ForgeKind::GitLab, steps, "run: { linger: 10m }");
    let issue = bed.issue("Login fails");
    bed.daemon.written_pid("reported");
    issue.close();
    bed.fake.forget_requests();
    until("the closed item was asked for", || {
        bed.fake.n_requests("GET /api/v4/projects/{id}/issues/{issue_iid}") > 0
    });
    std::fs::write(bed.daemon.work().join("go"), "").unwrap();
    bed.until("done");
    assert_eq!(issue.labels(), ["coding agent done"]);
    assert_eq!((n_comments(&issue, "Task stopped"), n_comments(&issue, "Task done")), (0, 1));
    assert_eq!(bed.daemon.ended("agt")[0]["outcome"], "completed");
}

#[test]
fn a_stop_ends_the_agents_of_subtasks_too_and_waits_for_them() {
    let bed = Bed::with(ForgeKind::GitHub, GOES_ON, "notice: { grace: 1h }");
    let issue = bed.issue("Login fails");
    let item = bed.until("processing");
    bed.until_agent_runs();
    bed.daemon.agent(
        "helper",
        "prj",
        &["authenticate", "get-my-task", "write:helping", "sleep:600"],
    );
    let part = [
        "task",
        "add",
        "--id",
        "part",
        "--project",
        "prj",
        "--assignee",
        "helper",
        "--title",
        "a part",
    ];
    let below = ["--parent", item["task_id"].as_str().unwrap(), "--status", "in_progress"];
    bed.daemon.done(&[&part[..], &below[..]].concat());
    bed.daemon.written_pid("helping");
    issue.unassign(BOT);
    bed.until("stopped");
    // The comment comes only when no agent works on it any more.
    assert_eq!(bed.daemon.ended("helper")[0]["reason"], "unassigned");
    assert_eq!(bed.daemon.ended("agt")[0]["reason"], "unassigned");
}
