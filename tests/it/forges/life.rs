//! From the assignment of the bot to the end of the work.

use agent_coordinator::domain::forge::ForgeKind;

use super::{BOT, Bed, n_comments};
use crate::support::until;

const BOTH: [ForgeKind; 2] = [ForgeKind::GitHub, ForgeKind::GitLab];

/// Authenticates, asks for its task, and reports.
const WORKS: &[&str] = &["authenticate", "get-my-task", "report:success"];
/// Works until it is ended.
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
        assert!(description.contains("It says 500.") && description.contains("Since Monday."), "{description}");
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

        // Assigned again it is a new task.
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
        for (cause, label) in [("closed", Some("coding agent stopped")), ("gone", None), ("moved", None)] {
            let bed = Bed::new(forge, GOES_ON);
            let issue = bed.issue("Login fails");
            bed.until("processing");
            match cause {
                "closed" => drop(issue.close()),
                "gone" => drop(issue.delete(if forge == ForgeKind::GitHub { 410 } else { 404 })),
                _ => drop(issue.transfer(&bed.fake.repository(forge, "ann/other"))),
            }
            let item = bed.until("stopped");
            assert_eq!(item["cause"], cause);
            if let Some(label) = label {
                assert_eq!(issue.labels(), [label]);
            }
        }
    }
}

#[test]
fn a_blocked_and_a_failed_task_wait_until_somebody_asks_again() {
    for (result, state) in [("blocked", "blocked"), ("failed", "failed")] {
        let report = format!("report:{result}");
        let bed = Bed::new(ForgeKind::GitHub, &["authenticate", "get-my-task", &report]);
        let issue = bed.issue("Login fails");
        bed.until(state);
        assert_eq!(issue.labels(), [format!("coding agent {state}")]);
        assert_eq!(n_comments(&issue, "Task"), 2, "{:?}", issue.comments());
        bed.daemon.steps("agt", WORKS);
        issue.label("coding agent");
        bed.until("done");
        assert_eq!(issue.labels(), ["coding agent done"]);
    }
}

#[test]
fn the_pause_file_pauses_and_its_end_resumes() {
    for forge in BOTH {
        let bed = Bed::with(forge, GOES_ON, "notice: { grace: 1s }");
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

        // Nothing new is begun while it is there.
        let other = bed.issue("Logout fails");
        bed.daemon.steps("agt", WORKS);
        std::fs::remove_file(&signal).unwrap();
        until("both are done", || other.labels() == ["coding agent done"] && issue.labels() == ["coding agent done"]);
        assert_eq!((n_comments(&issue, "Task resumed"), n_comments(&issue, "Task done")), (1, 1));
        assert!(bed.folder("completed", &item).is_dir() && !bed.folder("paused", &item).exists());
    }
}
