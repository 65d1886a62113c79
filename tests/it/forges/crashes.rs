//! The daemon dies between any two writes for an item, and answers are lost after the write.
//! Afterwards the forge, the store and the folders agree, and each comment exists once.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::os::unix::process::ExitStatusExt as _;
use std::thread;
use std::time::Duration;

use domain::forge::ForgeKind;
use machine::crash_point::{CrashPoint, VARIABLE};
use rustix::process::Signal;
use serde_json::Value;

use super::{BOT, Bed, ENDS, check_comments};
use crate::forge::fake::{Fault, Item, Times};
use crate::support::{is_gone, until};

const SETTINGS: &str = "backoff: { initial: 1ms, max: 1ms }\nstart: { limit: 0 }\nstop: { leak_grace: 100ms }\nnotice: { grace: 1s }";
/// The steps of an agent that reports when it is told to. It must not run twice at the same time.
const WORKS: &[&str] = &[
    "alone:alone",
    "append:agents",
    "authenticate",
    "get-my-task",
    "wait-for:go",
    "report:success",
];
/// The number of cases that run at the same time. They mostly wait.
const N_AT_ONCE: usize = 4;
/// The greatest number of deaths. No item has as many steps.
const MAX_DEATHS: usize = 80;

fn bed(forge: ForgeKind) -> Bed {
    Bed::with(forge, WORKS, SETTINGS)
}

/// Returns a daemon whose agent works on an issue.
fn at_work(forge: ForgeKind) -> (Bed, Item) {
    let bed = bed(forge);
    let issue = bed.issue("Login fails");
    bed.until("processing");
    // An agent that has not asked for its task yet is ended without a notice when the task is
    // paused.
    until("the agent has its task", || {
        bed.daemon.json(&["execution", "list"]).as_array().is_some_and(|it| !it.is_empty())
    });
    (bed, issue)
}

fn spawn_to_crash(bed: &mut Bed, point: CrashPoint) {
    let mut command = bed.daemon.command();
    command.env(VARIABLE, format!("{point:?}"));
    bed.daemon.spawn_as(command);
}

/// Lets a daemon die at `point`, and starts another one.
fn die_once(bed: &mut Bed, point: CrashPoint) {
    spawn_to_crash(bed, point);
    assert_eq!(
        bed.daemon.wait().signal(),
        Some(Signal::KILL.as_raw()),
        "{point:?}: {}",
        bed.daemon.log()
    );
    bed.daemon.start();
}

/// Returns whether the only item is in this state without a pending write, by a daemon if it lives.
fn is_settled(bed: &Bed, state: &str) -> bool {
    let ended: &[&str] = if ENDS.contains(&state) { &["--ended"] } else { &[] };
    let said = bed.daemon.cli(&[&["forge", "list", "--json"][..], ended].concat());
    let items: Vec<Value> = serde_json::from_str(&said.stdout).unwrap_or_default();
    items
        .iter()
        .any(|item| item["state"] == state && item["owed"].as_array().is_none_or(Vec::is_empty))
}

/// Lets each daemon die as soon as one pending write is done, until the item is in this state. It
/// dies before it has noted the write, so that the next daemon repeats it, or after that.
pub(super) fn limp(bed: &mut Bed, state: &str) {
    let mut n_deaths = 0;
    loop {
        for point in [CrashPoint::ItemWriteDone, CrashPoint::ItemWriteNoted] {
            spawn_to_crash(bed, point);
            let pid = bed.daemon.pid();
            until("it died, or has nothing to do", || is_gone(pid) || is_settled(bed, state));
            let is_over = !is_gone(pid);
            bed.daemon.kill();
            if is_over {
                assert!(n_deaths > 1, "it never died");
                return bed.daemon.start();
            }
            n_deaths += 1;
            assert!(n_deaths < MAX_DEATHS, "{:?}", bed.daemon.log());
        }
    }
}

fn signal_file(bed: &Bed) -> std::path::PathBuf {
    bed.daemon.state().join("contexts/pause_signal")
}

fn n_agents(bed: &Bed) -> usize {
    fs::read_to_string(bed.daemon.work().join("agents")).unwrap_or_default().lines().count()
}

/// Checks that forge, store and folders agree on an item that is over.
#[track_caller]
fn check_over(bed: &Bed, issue: &Item, state: &str, titles: &[&str]) -> Value {
    let item = bed.until(state);
    assert_eq!(issue.labels(), [format!("coding agent {state}")]);
    check_comments(issue, titles);
    let task = if state == "done" { "done" } else { "cancelled" };
    assert_eq!(bed.task(&item)["status"], task);
    assert_eq!(bed.places(&item), ["completed"]);
    assert_eq!(bed.read("completed", &item, "metadata.json")["state"], state);
    assert!(bed.items().is_empty(), "nothing is open");
    assert!(!bed.daemon.work().join("alone.twin").exists(), "never two at a time");
    bed.daemon.until_nothing_is_left();
    item
}

pub(super) fn for_each<T: Sync + std::fmt::Debug>(cases: &[T], check: impl Fn(&T) + Sync) {
    for cases in cases.chunks(N_AT_ONCE) {
        thread::scope(|scope| {
            for case in cases {
                let check = &check;
                thread::Builder::new()
                    .name(format!("{case:?}"))
                    .spawn_scoped(scope, move || check(case))
                    .unwrap();
            }
        });
    }
}

/// Gives each case one of the forges in turn. The steps of the daemon are the same for both, and
/// each forge has cases with all kinds of writes.
fn in_turn<T>(cases: impl IntoIterator<Item = T>) -> Vec<(T, ForgeKind)> {
    cases.into_iter().zip([ForgeKind::GitHub, ForgeKind::GitLab].into_iter().cycle()).collect()
}

#[test]
fn a_daemon_that_dies_after_everything_it_does_ends_an_item_as_any_other() {
    let mut bed = bed(ForgeKind::GitLab);
    bed.daemon.kill();
    let issue = bed.issue("Login fails");
    limp(&mut bed, "processing");
    bed.until_agent_runs();
    let item = bed.until("processing");
    assert_eq!(
        (issue.labels(), bed.places(&item)),
        (vec!["coding agent processing".to_owned()], vec!["running"])
    );

    bed.daemon.kill();
    fs::write(signal_file(&bed), "").unwrap();
    limp(&mut bed, "paused");
    assert_eq!(
        (issue.labels(), bed.places(&item)),
        (vec!["coding agent paused".to_owned()], vec!["paused"])
    );
    assert!(bed.daemon.open("agt").is_empty(), "its agent is gone");
    assert_eq!(bed.read("paused", &item, "task_state.json")["status"], "paused");

    bed.daemon.kill();
    fs::remove_file(signal_file(&bed)).unwrap();
    limp(&mut bed, "processing");
    bed.until_agent_runs();
    assert_eq!(
        (issue.labels(), bed.places(&item)),
        (vec!["coding agent processing".to_owned()], vec!["running"])
    );

    bed.daemon.kill();
    fs::write(bed.daemon.work().join("go"), "").unwrap();
    limp(&mut bed, "done");
    let over = check_over(
        &bed,
        &issue,
        "done",
        &["Task started", "Task paused", "Task resumed", "Task done"],
    );
    assert_eq!(over["id"], item["id"]);
    assert_eq!(n_agents(&bed), 2, "before the pause, and after it");
}

#[test]
fn a_daemon_that_dies_after_everything_it_does_stops_an_item_as_any_other() {
    let (mut bed, issue) = at_work(ForgeKind::GitHub);
    bed.daemon.kill();
    issue.unassign(BOT);
    limp(&mut bed, "stopped");
    check_over(&bed, &issue, "stopped", &["Task started", "Task stopped"]);
    assert_eq!(bed.daemon.ended("agt")[0]["reason"], "unassigned");
    assert_eq!(n_agents(&bed), 1);
}

#[test]
fn whenever_the_daemon_dies_while_it_claims_the_item_is_claimed_once() {
    let points = [
        CrashPoint::ItemTaken,
        CrashPoint::ItemLookedAt,
        CrashPoint::ItemLabelled,
        CrashPoint::ItemCommented,
        CrashPoint::ItemClaimed,
        CrashPoint::ItemWon,
        CrashPoint::ItemFolderMoved,
        CrashPoint::ItemRelabelled,
    ];
    for_each(&in_turn(points), |&(point, forge)| {
        let mut bed = bed(forge);
        bed.daemon.kill();
        let issue = bed.issue("Login fails");
        fs::write(bed.daemon.work().join("go"), "").unwrap();
        die_once(&mut bed, point);
        check_over(&bed, &issue, "done", &["Task started", "Task done"]);
        assert_eq!(n_agents(&bed), 1);
    });
}

#[test]
fn whenever_the_daemon_dies_while_the_bot_is_unassigned_the_agent_is_ended_and_said_to_be() {
    let points = [
        CrashPoint::ItemStopWanted,
        CrashPoint::StopWritten,
        CrashPoint::EndRecorded,
        CrashPoint::EndSeen,
        CrashPoint::EndReported,
        CrashPoint::FolderMoved,
        CrashPoint::ItemSettled,
        CrashPoint::ItemFolderMoved,
        CrashPoint::ItemRelabelled,
        CrashPoint::ItemCommented,
    ];
    for_each(&points, |&point| {
        // A shim learns its point from the daemon that starts it.
        let is_of_shim = point == CrashPoint::EndRecorded;
        let mut bed = bed(ForgeKind::GitHub);
        if is_of_shim {
            bed.daemon.kill();
            spawn_to_crash(&mut bed, point);
            bed.daemon.until_ready();
        }
        let issue = bed.issue("Login fails");
        bed.until("processing");
        bed.until_agent_runs();
        if is_of_shim {
            issue.unassign(BOT);
            assert_eq!(bed.daemon.wait().signal(), Some(Signal::KILL.as_raw()));
            bed.daemon.start();
        } else {
            bed.daemon.kill();
            issue.unassign(BOT);
            die_once(&mut bed, point);
        }
        check_over(&bed, &issue, "stopped", &["Task started", "Task stopped"]);
        assert_eq!(bed.daemon.ended("agt")[0]["reason"], "unassigned");
        assert_eq!(n_agents(&bed), 1);
    });
}

#[test]
fn whenever_the_daemon_dies_while_an_agent_is_ready_its_item_is_done() {
    let points = [
        CrashPoint::ReportTaken,
        CrashPoint::EndSeen,
        CrashPoint::EndReported,
        CrashPoint::FolderMoved,
        CrashPoint::ItemSettled,
        CrashPoint::ItemFolderMoved,
        CrashPoint::ItemRelabelled,
        CrashPoint::ItemCommented,
    ];
    for_each(&points, |&point| {
        let (mut bed, issue) = at_work(ForgeKind::GitLab);
        bed.daemon.kill();
        fs::write(bed.daemon.work().join("go"), "").unwrap();
        die_once(&mut bed, point);
        check_over(&bed, &issue, "done", &["Task started", "Task done"]);
        assert_eq!(n_agents(&bed), 1);
    });
}

#[test]
fn whenever_the_daemon_dies_while_an_item_is_paused_it_is_paused_and_resumed_once() {
    let points = [
        CrashPoint::ItemPauseWanted,
        CrashPoint::StopWanted,
        CrashPoint::StopWritten,
        CrashPoint::EndSeen,
        CrashPoint::EndReported,
        CrashPoint::FolderMoved,
        CrashPoint::ItemSettled,
        CrashPoint::ItemFolderMoved,
        CrashPoint::ItemRelabelled,
        CrashPoint::ItemCommented,
    ];
    for_each(&points, |&point| {
        let (mut bed, issue) = at_work(ForgeKind::GitHub);
        bed.daemon.kill();
        fs::write(signal_file(&bed), "").unwrap();
        die_once(&mut bed, point);
        let item = bed.until("paused");
        assert_eq!(
            (issue.labels(), bed.places(&item)),
            (vec!["coding agent paused".to_owned()], vec!["paused"])
        );
        bed.daemon.kill();
        fs::remove_file(signal_file(&bed)).unwrap();
        fs::write(bed.daemon.work().join("go"), "").unwrap();
        die_once(&mut bed, CrashPoint::ItemResumed);
        check_over(
            &bed,
            &issue,
            "done",
            &["Task started", "Task paused", "Task resumed", "Task done"],
        );
        assert_eq!(n_agents(&bed), 2);
    });
}

#[test]
fn when_the_answer_to_every_write_is_lost_each_is_there_once() {
    for_each(&in_turn(["done", "stopped"]), |&(end, forge)| {
        let bed = bed(forge);
        for method in ["POST *", "PUT *", "DELETE *"] {
            bed.fake.fail(method, Times::Always, Fault::LostAnswer);
        }
        let issue = bed.issue("Login fails");
        bed.until("processing");
        bed.until_agent_runs();
        let last = if end == "done" {
            fs::write(bed.daemon.work().join("go"), "").unwrap();
            "Task done"
        } else {
            issue.unassign(BOT);
            "Task stopped"
        };
        check_over(&bed, &issue, end, &["Task started", last]);
        assert_eq!(n_agents(&bed), 1);
    });
}

#[test]
fn a_daemon_that_is_killed_at_any_moment_loses_and_doubles_nothing() {
    let any = RandomState::new();
    let works: &[&str] =
        &["alone:alone", "authenticate", "get-my-task", "append:agents", "report:success"];
    let mut bed = Bed::with(ForgeKind::GitHub, works, SETTINGS);
    let issues: Vec<Item> = (0..5).map(|n| bed.issue(&format!("issue {n}"))).collect();
    for n in 0..10 {
        thread::sleep(Duration::from_millis(any.hash_one(n) % 700));
        bed.daemon.kill();
        bed.daemon.spawn();
    }
    bed.daemon.until_ready();
    for issue in &issues {
        bed.until_labelled(issue, "coding agent done");
    }
    until("nothing is open", || bed.items().is_empty());
    let ended = bed.daemon.json(&["forge", "list", "--ended"]);
    let ended = ended.as_array().unwrap();
    assert_eq!(ended.len(), issues.len(), "{ended:?}");
    for (issue, item) in issues.iter().zip(ended.iter()) {
        check_comments(issue, &["Task started", "Task done"]);
        assert_eq!(
            (bed.places(item), bed.task(item)["status"].as_str()),
            (vec!["completed"], Some("done"))
        );
    }
    assert!(!bed.daemon.work().join("alone.twin").exists(), "never two at a time");
    bed.daemon.until_nothing_is_left();
}
