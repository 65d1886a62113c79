//! The program of shims: the one beside the daemon's, or the daemon's own.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Gate, shim_of};
use crate::daemon::{Daemon, PROGRAM, SHIM_PROGRAM};
use crate::support::{install, is_gone, skip, until};

/// The name under which daemons look for the program of shims.
const NAME: &str = "agent-coordinator-shim";
const STEPS: [&str; 5] =
    ["authenticate", "write:ready", Gate::STEP, "get-my-task", "report:success"];

/// Returns the program that a shim runs. If that cannot be seen, prints the reason and returns
/// `None`: a shim hides it from ordinary users.
fn program_of(shim: i32) -> Option<PathBuf> {
    let program = fs::read_link(format!("/proc/{shim}/exe")).ok();
    if program.is_none() {
        skip("only root can see the program of a shim");
    }
    program
}

/// Starts an agent and checks that its shim runs this program. Returns the pid of the agent.
#[track_caller]
fn check_start(daemon: &Daemon, agent: &str, program: &Path) -> i32 {
    let ready = format!("write:{agent}.ready");
    daemon.agent(agent, "prj", &STEPS.map(|it| if it == "write:ready" { &*ready } else { it }));
    daemon.task(&format!("tsk_{agent}"), "prj", agent);
    let pid = daemon.written_pid(&format!("{agent}.ready"));
    if let Some(found) = program_of(shim_of(pid)) {
        assert_eq!(found, program.canonicalize().unwrap(), "{agent}");
    }
    until("the daemon knows its process", || {
        daemon.open(agent).iter().any(|launch| launch["pid"] == pid)
    });
    pid
}

/// Checks that the daemon that was just started has adopted these agents, and that they end as they
/// should.
#[track_caller]
fn check_adopted(daemon: &Daemon, agents: &[(&str, i32)], gate: Gate) {
    assert_eq!(daemon.logged("instance adopted").len(), agents.len(), "{}", daemon.log());
    for (agent, pid) in agents {
        assert!(!is_gone(*pid), "{agent}: {}", daemon.log());
        assert_eq!(daemon.open(agent)[0]["pid"], *pid);
    }
    drop(gate);
    for (agent, _) in agents {
        assert_eq!(daemon.until_ended(agent)["outcome"], "completed", "{agent}");
        assert_eq!(daemon.task_status(&format!("tsk_{agent}")), "done");
    }
    daemon.until_nothing_is_left();
}

/// An upgrade may add or remove the program of shims while a daemon runs.
#[test]
fn the_program_of_shims_may_come_and_go() {
    let mut daemon = Daemon::configured("max_concurrent: 3");
    let program = install(PROGRAM.as_ref(), daemon.folder(), "agent-coordinator");
    daemon.program.clone_from(&program);
    daemon.start();
    daemon.project("prj");
    let gate = Gate::closed(&daemon);
    let alone = check_start(&daemon, "alone", &program);
    let beside = install(SHIM_PROGRAM.as_ref(), daemon.folder(), NAME);
    let with = check_start(&daemon, "with", &beside);
    fs::remove_file(&beside).unwrap();
    let without = check_start(&daemon, "without", &program);
    daemon.kill();
    daemon.start();
    check_adopted(&daemon, &[("alone", alone), ("with", with), ("without", without)], gate);
}

#[test]
fn agents_are_adopted_with_and_without_the_program_of_shims() {
    for is_first_alone in [true, false] {
        let mut daemon = Daemon::configured("");
        let alone = install(PROGRAM.as_ref(), daemon.folder(), "agent-coordinator");
        let shared = PathBuf::from(PROGRAM);
        let (first, second) = if is_first_alone { (&alone, &shared) } else { (&shared, &alone) };
        daemon.program.clone_from(first);
        daemon.start();
        daemon.project("prj");
        let gate = Gate::closed(&daemon);
        let of_shim = if is_first_alone { first.as_path() } else { Path::new(SHIM_PROGRAM) };
        let pid = check_start(&daemon, "agt", of_shim);
        daemon.kill();
        daemon.program.clone_from(second);
        daemon.start();
        check_adopted(&daemon, &[("agt", pid)], gate);
    }
}
