//! F-20, F-23: too few descriptors, too few processes, and an agent with far too many processes,
//! or with ever new ones.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::process::Resource;

use super::Gate;
use crate::daemon::{Daemon, PROGRAM};
use crate::support::{is_gone, skip, tree_of, until, until_some, until_some_within};

/// The deadline of the longest test here: forty agents that work, some of them at the second
/// attempt.
const TIMEOUT: Duration = Duration::from_mins(3);

/// Returns the outcomes of all launches that have ended.
fn outcomes(daemon: &Daemon) -> Vec<String> {
    let ended = daemon.logged("launch ended");
    ended.iter().map(|launch| launch["outcome"].as_str().unwrap().to_owned()).collect()
}

/// Returns a daemon with this number of agents, each of which works as soon as the gate is open.
fn with_crowd(n_agents: usize) -> (Daemon, Vec<String>) {
    let settings = "manifest: manifest.yaml\nmax_concurrent: 100\nbackoff: { initial: 100ms, max: 300ms }\n\
                    start: { timeout: 10m, limit: 0 }";
    let daemon = Daemon::configured(settings);
    let agents: Vec<String> = (0..n_agents).map(|n| format!("agt_{n}")).collect();
    daemon.manifest(&agents.iter().map(String::as_str).collect::<Vec<_>>());
    for agent in &agents {
        let alone = format!("alone:{agent}.alone");
        daemon.steps(agent, &[&alone, Gate::STEP, "authenticate", "report:success"]);
    }
    (daemon, agents)
}

/// Checks that all work is done, after any number of attempts, and that no agent ran twice at the
/// same time.
fn check_all_done(daemon: &Daemon, agents: &[String]) {
    let is_done = || {
        outcomes(daemon).iter().filter(|outcome| *outcome == "completed").count() >= agents.len()
    };
    until_some_within(
        TIMEOUT,
        || is_done().then_some(()),
        || format!("not all is done:\n{}", daemon.log()),
    );
    for agent in agents {
        assert_eq!(daemon.task_status(&format!("tsk_{agent}")), "done");
        assert!(!daemon.work().join(format!("{agent}.alone.twin")).exists());
    }
    assert!(!outcomes(daemon).iter().any(|outcome| outcome == "lost"), "{}", daemon.log());
}

#[test]
fn forty_agents_work_though_the_daemon_has_few_descriptors() {
    let (mut daemon, agents) = with_crowd(40);
    let gate = Gate::closed(&daemon);
    let plain = daemon.command();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\"", PROGRAM]).args(plain.get_args());
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    daemon.spawn_as({
        command.current_dir(plain.get_current_dir().unwrap());
        command
    });
    daemon.until_ready();
    until("one could not be started", || !daemon.logged("agent could not be started").is_empty());
    let reason = &daemon.logged("agent could not be started")[0]["reason"];
    assert!(reason.as_str().unwrap().contains("Too many open files"), "{reason}");
    drop(gate);
    check_all_done(&daemon, &agents);
    // The folder of a failed start may still be there. The next daemon removes it.
    assert!(daemon.terminate().success());
    daemon.start();
    daemon.until_nothing_is_left();
}

/// An unused user id, so that only this test's processes count.
const NOBODY: u32 = 65_431;

#[test]
fn a_refused_fork_is_a_failed_start_and_harms_nobody_else() {
    if !rustix::process::geteuid().is_root() {
        skip("only root can become another user, and others' processes would count");
        return;
    }
    let Some(_) = super::ordinary_user::of_user("") else {
        return;
    };
    let (mut daemon, agents) = with_crowd(4);
    daemon.hand_over_to(NOBODY);
    let gate = Gate::closed(&daemon);
    daemon.start();
    for agent in &agents {
        daemon.until_in_state(agent, "starting");
    }
    until_some("all of them wait", || (daemon.processes().len() >= 12).then_some(()));
    // The daemon has all the threads that it needs, and may start no further process.
    let allow = |n_processes: &str| {
        let mut command = Command::new("prlimit");
        command.args(["--pid", &daemon.pid().to_string(), &format!("--nproc={n_processes}:")]);
        assert!(command.uid(NOBODY).gid(NOBODY).status().unwrap().success());
    };
    let before = rustix::process::getrlimit(Resource::Nproc).current;
    allow("1");
    daemon.agent("late", "prj", &["authenticate", "report:success"]);
    daemon.task("tsk_late", "prj", "late");
    until("it could not be started", || !daemon.logged("agent could not be started").is_empty());
    let reason = daemon.logged("agent could not be started")[0]["reason"].clone();
    assert!(reason.as_str().unwrap().contains("Resource temporarily unavailable"), "{reason}");
    allow(&before.map_or("unlimited".to_owned(), |n_processes| n_processes.to_string()));
    drop(gate);
    check_all_done(&daemon, &[&agents[..], &["late".to_owned()]].concat());
    daemon.until_nothing_is_left();
}

#[test]
fn two_hundred_processes_that_take_no_notice_of_term_are_ended_in_one_stop() {
    let daemon = Daemon::running("stop: { timeout: 300ms }");
    daemon.with_one_task(&[
        "ignore-term",
        "children:200",
        "authenticate",
        "write:ready",
        "sleep:600",
    ]);
    let agent = daemon.written_pid("ready");
    let tree = until_some("all of them are there", || {
        Some(tree_of(agent)).filter(|tree| tree.len() >= 200)
    });
    daemon.done(&["stop", "agt", "prj"]);
    let ended = daemon.until_ended("agt");
    assert_eq!((&ended["outcome"], &ended["signal"]), (&"stopped".into(), &9.into()));
    let left: Vec<_> = tree.iter().filter(|pid| !is_gone(**pid)).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(daemon.ended("agt").len(), 1);
    daemon.until_nothing_is_left();
}

/// Starts the next process of its kind in the way that its arguments say, and ends. A process that
/// ignores TERM passes that on.
const BOMB: &str = r#"
left=$1; shift
echo "$left" >>"generations.$1"
[ "$left" -gt 0 ] || exec touch spent
sleep 0.02
"$@" sh bomb $((left - 1)) "$@" &
"#;

/// The length of each of these chains if it is not ended. It takes half a minute on a machine of
/// any speed.
const N_GENERATIONS: usize = 1500;

#[test]
fn what_replaces_itself_faster_than_it_is_looked_for_is_ended_in_one_stop() {
    let daemon = Daemon::running("stop: { timeout: 100ms }\nbackoff: { initial: 1h, max: 1h }");
    fs::write(daemon.work().join("bomb"), BOMB).unwrap();
    // The chains run in the agent's group, in a session of their own, and without the variables
    // that name their launch.
    let kinds = ["nice -n 0", "setsid", "env -i setsid"];
    let chains = kinds.map(|kind| {
        format!(
            "run:for chain in 1 2 3 4; do sh bomb {N_GENERATIONS} {kind} >/dev/null 2>&1 & done"
        )
    });
    // A living process of the agent holds the file.
    let limited =
        ["alone:alive", "ignore-term", "run:prlimit --pid $$ --nproc=4000:4000", "authenticate"];
    let lit = chains.iter().map(String::as_str);
    daemon.with_one_task(
        &limited.into_iter().chain(lit).chain(["write:ready", "sleep:600"]).collect::<Vec<_>>(),
    );
    daemon.written_pid("ready");
    let n_generations = |kind: &str| {
        let noted = daemon.work().join(format!("generations.{}", kind.split(' ').next().unwrap()));
        fs::read_to_string(noted).map_or(0, |all| all.lines().count())
    };
    until("each of them goes on", || kinds.iter().all(|kind| n_generations(kind) > 20));
    daemon.done(&["stop", "agt", "prj"]);
    let ended = daemon.until_ended("agt");
    assert_eq!((&ended["outcome"], &ended["signal"]), (&"stopped".into(), &9.into()));
    let is_free = File::open(daemon.work().join("alive")).is_ok_and(|file| {
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
    });
    assert!(is_free, "something of it lives: {:?}", daemon.processes());
    assert!(
        !daemon.work().join("spent").exists(),
        "it ended by itself: {:?}",
        kinds.map(n_generations)
    );
    assert_eq!(daemon.ended("agt").len(), 1);
    daemon.until_nothing_is_left();
}
