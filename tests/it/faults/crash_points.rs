//! F-24: the daemon dies between every two steps of a launch, or of its own start, and the next one
//! repairs the rest. F-10: a living daemon does the same when a shim dies. F-28: a daemon
//! that was stopped there knows how late it is.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::thread;
use std::time::Duration;

use machine::crash_point::{CrashPoint, VARIABLE};
use machine::instance_dir::OUTPUT_LOG;
use machine::instance_dir::record::{Record as _, Spec};
use machine::sys::processes;
use rustix::process::Signal;

use super::{folder, shim_of};
use crate::daemon::Daemon;
use crate::support::{is_gone, kill, until, until_some};

/// The fate of a launch whose daemon dies at a point.
struct Case {
    point: CrashPoint,
    /// The steps of the agent, after it has noted its presence. It goes on behind `wait-for:go`
    /// when the next daemon is ready.
    steps: &'static [&'static str],
    /// The outcomes of the launches, the first one first.
    outcomes: &'static [&'static str],
    /// The number of starts of an agent.
    n_agents: usize,
}

const WHOLE: &[&str] = &["authenticate", "get-my-task", "report:success"];
const WAITS_FIRST: &[&str] = &["wait-for:go", "authenticate", "get-my-task", "report:success"];
/// The launch stays `exited` for a while.
const LEAVES_A_CHILD: &[&str] =
    &["authenticate", "get-my-task", "report:success", "term-ignoring-child"];

const fn case(
    point: CrashPoint,
    steps: &'static [&'static str],
    outcomes: &'static [&'static str],
    n_agents: usize,
) -> Case {
    Case { point, steps, outcomes, n_agents }
}

const CASES: [Case; 21] = [
    case(CrashPoint::ClaimGranted, WAITS_FIRST, &["start_failed", "completed"], 1),
    case(CrashPoint::Claimed, WAITS_FIRST, &["start_failed", "completed"], 1),
    case(CrashPoint::FolderMade, WAITS_FIRST, &["start_failed", "completed"], 1),
    case(CrashPoint::FolderReady, WAITS_FIRST, &["start_failed", "completed"], 1),
    case(CrashPoint::Spawned, WAITS_FIRST, &["completed"], 1),
    case(CrashPoint::ShimStarted, WAITS_FIRST, &["completed"], 1),
    case(CrashPoint::ShimNoted, WAITS_FIRST, &["completed"], 1),
    case(CrashPoint::AgentForked, WAITS_FIRST, &["completed"], 1),
    case(CrashPoint::StartRecorded, WAITS_FIRST, &["completed"], 1),
    case(CrashPoint::StartSeen, WAITS_FIRST, &["completed"], 1),
    case(CrashPoint::StartReported, WAITS_FIRST, &["completed"], 1),
    // The agent never got its token, and asks again. Its ticket opens another session, so that a
    // lost answer costs nothing.
    case(CrashPoint::Authenticated, WHOLE, &["completed"], 1),
    case(CrashPoint::AuthenticationMarked, WHOLE, &["completed"], 1),
    case(CrashPoint::ReportTaken, WHOLE, &["completed"], 1),
    case(CrashPoint::ExitRecorded, LEAVES_A_CHILD, &["completed"], 1),
    case(CrashPoint::ExitSeen, LEAVES_A_CHILD, &["completed"], 1),
    case(CrashPoint::ExitReported, LEAVES_A_CHILD, &["completed"], 1),
    case(CrashPoint::EndRecorded, WHOLE, &["completed"], 1),
    case(CrashPoint::EndSeen, WHOLE, &["completed"], 1),
    case(CrashPoint::EndReported, WHOLE, &["completed"], 1),
    case(CrashPoint::FolderMoved, WHOLE, &["completed"], 1),
];

/// The number of cases that run at the same time. They mostly wait.
const N_AT_ONCE: usize = 4;

/// Runs `check` for each case, several at a time. The name of a panicking thread tells the case.
fn for_each<T: Sync>(cases: &[T], name: impl Fn(&T) -> String, check: impl Fn(&T) + Sync) {
    for cases in cases.chunks(N_AT_ONCE) {
        thread::scope(|scope| {
            for case in cases {
                let check = &check;
                thread::Builder::new()
                    .name(name(case))
                    .spawn_scoped(scope, move || check(case))
                    .unwrap();
            }
        });
    }
}

/// Returns a daemon that will have one task, and an agent that must not run twice at the same time.
fn prepared(settings: &str, steps: &[&str]) -> Daemon {
    let daemon = Daemon::configured(&format!(
        "manifest: manifest.yaml\nstop: {{ leak_grace: 200ms }}\n{settings}"
    ));
    daemon.manifest(&["agt"]);
    daemon.steps("agt", &[&["alone:alone", "append:agents"], steps].concat());
    daemon
}

fn spawn_to_crash(daemon: &mut Daemon, at: &str) {
    let mut command = daemon.command();
    command.env(VARIABLE, at);
    daemon.spawn_as(command);
}

/// Waits until `is_enough`, and returns the outcomes of all ended launches of an agent, the first
/// one first.
fn until_outcomes(
    daemon: &Daemon,
    agent: &str,
    is_enough: impl Fn(&[String]) -> bool,
) -> Vec<String> {
    until_some("the launches have ended", || {
        let ended = daemon.ended(agent);
        let outcomes: Vec<String> =
            ended.iter().rev().map(|l| l["outcome"].as_str().unwrap().to_owned()).collect();
        is_enough(&outcomes).then_some(outcomes)
    })
}

fn n_agents(daemon: &Daemon) -> usize {
    fs::read_to_string(daemon.work().join("agents")).unwrap_or_default().lines().count()
}

fn check_daemon_dies(case: &Case) {
    let mut daemon = prepared("backoff: { initial: 10ms, max: 10ms }", case.steps);
    spawn_to_crash(&mut daemon, &format!("{:?}", case.point));
    assert_eq!(daemon.wait().signal(), Some(Signal::KILL.as_raw()));
    daemon.start();
    fs::write(daemon.work().join("go"), "").unwrap();
    let outcomes = until_outcomes(&daemon, "agt", |outcomes| {
        outcomes.iter().any(|outcome| outcome == "completed")
    });
    assert_eq!(outcomes, case.outcomes);
    assert_eq!(daemon.task_status("tsk_agt"), "done");
    assert_eq!(n_agents(&daemon), case.n_agents, "agents that were started");
    assert!(!daemon.work().join("alone.twin").exists(), "never two at a time");
    assert!(daemon.open("agt").is_empty());
    daemon.until_nothing_is_left();
}

#[test]
fn whenever_the_daemon_dies_the_next_one_gets_the_task_done() {
    for_each(&CASES, |case| format!("{:?}", case.point), check_daemon_dies);
}

const GOES_ON: &[&str] = &["term-ignoring-child", "sleep:600"];

/// The point at which the shim dies, the steps of its agent, and the outcome of its launch.
const SHIM_CASES: [(CrashPoint, &[&str], &str); 7] = [
    (CrashPoint::ShimStarted, GOES_ON, "start_failed"),
    (CrashPoint::ShimNoted, GOES_ON, "lost"),
    (CrashPoint::AgentForked, GOES_ON, "lost"),
    (CrashPoint::StartRecorded, GOES_ON, "lost"),
    (CrashPoint::ExitRecorded, LEAVES_A_CHILD, "completed"),
    (CrashPoint::EndRecorded, LEAVES_A_CHILD, "completed"),
    (CrashPoint::EndRecorded, WHOLE, "completed"),
];

fn check_shim_dies(&(point, steps, outcome): &(CrashPoint, &[&str], &str)) {
    let is_early = outcome != "completed";
    let mut daemon = prepared("backoff: { initial: 1m }", steps);
    spawn_to_crash(&mut daemon, &format!("{point:?}@shim"));
    daemon.until_ready();
    assert_eq!(until_outcomes(&daemon, "agt", |outcomes| !outcomes.is_empty()), [outcome]);
    assert_eq!(daemon.status()["limits"]["running"], 0, "its slot is free");
    until("the next start waits", || {
        !is_early || daemon.status()["deferred"][0]["reason"] == "backoff"
    });
    assert!(!daemon.work().join("alone.twin").exists(), "never two at a time");
    daemon.until_nothing_is_left();
}

#[test]
fn whenever_a_shim_dies_its_agent_is_ended_and_its_slot_free() {
    for_each(&SHIM_CASES, |(point, ..)| format!("{point:?}"), check_shim_dies);
}

/// The points of its start at which a daemon dies.
const STARTS: [CrashPoint; 7] = [
    CrashPoint::LockMended,
    CrashPoint::StockTaken,
    CrashPoint::StraysEnded,
    CrashPoint::FoldersSetAside,
    CrashPoint::InstancesAdopted,
    CrashPoint::RemainsCleared,
    CrashPoint::LossRecorded,
];

/// The agents that a starting daemon finds, named by their fates while there was no daemon. Each
/// has the outcomes of its launches, the first one first.
const FOUND: [(&str, &[&str]); 5] = [
    ("working", &["completed"]),
    ("ended", &["completed"]),
    ("bereft", &["lost", "completed"]),
    ("stray", &["lost", "completed"]),
    // Its lock doesn't name its shim. Its log can't be read unless the shim is told to begin
    // another one.
    ("unnamed", &["completed"]),
];

/// Returns a daemon that was killed, and leaves these agents to the next one.
fn with_found() -> Daemon {
    let mut daemon = Daemon::configured(
        "manifest: manifest.yaml\nmax_concurrent: 9\nbackoff: { initial: 10ms, max: 10ms }\nrun: { linger: 1h }",
    );
    daemon.manifest(&FOUND.map(|(agent, _)| agent));
    for (agent, _) in FOUND {
        let [alone, starts, ready] =
            ["alone:A.alone", "append:A.starts", "write:A.ready"].map(|s| s.replace('A', agent));
        let rest: &[&str] = match agent {
            "ended" => &[
                "authenticate",
                "get-my-task",
                "report:success",
                &ready,
                "wait-for:end",
                "print:went on",
            ],
            _ => &[
                "authenticate",
                &ready,
                "wait-for:go",
                "print:went on",
                "get-my-task",
                "report:success",
            ],
        };
        daemon.steps(agent, &[&[alone.as_str(), &starts], rest].concat());
    }
    daemon.start();
    let pids = FOUND.map(|(agent, _)| daemon.written_pid(&format!("{agent}.ready")));
    let [_, ended, bereft, ..] = pids;
    let folders = FOUND.map(|(agent, _)| folder(&daemon, &daemon.open(agent)[0]));
    daemon.kill();
    fs::write(daemon.work().join("end"), "").unwrap();
    kill(shim_of(bereft), Signal::KILL);
    until("they are gone", || is_gone(ended) && is_gone(bereft));
    let [.., stray, unnamed] = folders;
    fs::write(stray.join(Spec::FILE), "{").unwrap();
    fs::write(unnamed.join("lock"), "{").unwrap();
    fs::remove_file(unnamed.join(OUTPUT_LOG)).unwrap();
    daemon
}

fn check_start_dies(point: CrashPoint) {
    let mut daemon = with_found();
    spawn_to_crash(&mut daemon, &format!("{point:?}"));
    assert_eq!(daemon.wait().signal(), Some(Signal::KILL.as_raw()));
    daemon.start();
    fs::write(daemon.work().join("go"), "").unwrap();
    for (agent, expected) in FOUND {
        // The daemon may have died while it began the next start of an agent whose end it knew.
        let ran = |outcomes: &[String]| -> Vec<String> {
            outcomes.iter().filter(|outcome| *outcome != "start_failed").cloned().collect()
        };
        let outcomes =
            until_outcomes(&daemon, agent, |outcomes| ran(outcomes).len() >= expected.len());
        assert_eq!(ran(&outcomes), expected, "{agent}");
        let is_lost = expected.contains(&"lost");
        assert!(outcomes.len() <= expected.len() + usize::from(is_lost), "{agent}: {outcomes:?}");
        assert_eq!(daemon.task_status(&format!("tsk_{agent}")), "done", "{agent}");
        let starts = fs::read_to_string(daemon.work().join(format!("{agent}.starts"))).unwrap();
        assert_eq!(starts.lines().count(), expected.len(), "starts of {agent}");
        assert!(
            !daemon.work().join(format!("{agent}.alone.twin")).exists(),
            "{agent} was there twice"
        );
        let said = daemon.done(&["logs", agent, "prj"]);
        assert!(said.contains("went on"), "{agent}: {said}");
    }
    daemon.until_nothing_is_left();
}

#[test]
fn whenever_a_starting_daemon_dies_the_next_one_takes_over() {
    for_each(&STARTS, |point| format!("{point:?}"), |&point| check_start_dies(point));
}

/// The time from the request for a claim to the moment when no agent may be executed for it any
/// more. It is `start.timeout`, and the addition of `coordinator::act`.
const START_DEADLINE: Duration = Duration::from_secs(5 + 2);

/// Checks a daemon that is stopped at a point: its knowledge is outdated when it goes on.
fn check_daemon_stops(point: CrashPoint) {
    let mut daemon =
        prepared("start: { timeout: 5s }\nbackoff: { initial: 10ms, max: 10ms }", WHOLE);
    spawn_to_crash(&mut daemon, &format!("{point:?}@stop"));
    let pid = daemon.pid();
    until("the daemon is stopped", || processes::read(pid).is_some_and(|daemon| daemon.is_stopped));
    // No fact shows that the start deadline has run out, because before the agent's execution there
    // is only time to tell it.
    thread::sleep(START_DEADLINE);
    assert_eq!(n_agents(&daemon), 0);
    daemon.signal(Signal::CONT);
    daemon.until_ready();
    let outcomes = until_outcomes(&daemon, "agt", |outcomes| {
        outcomes.iter().any(|outcome| outcome == "completed")
    });
    assert_eq!(outcomes, ["never_authenticated", "completed"]);
    assert_eq!(n_agents(&daemon), 1, "the one that was started in time");
    assert!(!daemon.work().join("alone.twin").exists(), "never two at a time");
    let ended = daemon.logged("launch ended");
    let launches: BTreeSet<String> = ended.iter().map(|end| end["launch_id"].to_string()).collect();
    assert_eq!((ended.len(), launches.len()), (2, 2), "each ends once: {ended:?}");
    daemon.until_nothing_is_left();
}

#[test]
fn a_daemon_that_was_stopped_between_claim_and_spawn_starts_nobody_too_late() {
    for_each(
        &[CrashPoint::ClaimGranted, CrashPoint::Claimed],
        |point| format!("{point:?}"),
        |&point| check_daemon_stops(point),
    );
}
