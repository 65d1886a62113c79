//! F-3, F-4, F-40: files that are damaged, missing, of another version or of another program.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use domain::StopReason;
use machine::instance_dir;
use machine::instance_dir::record::{self, Exit, Record as _, Spec, Started, Stop};
use rustix::process::Signal;
use serde_json::Value;

use super::{Gate, folder, shim_of};
use crate::daemon::{Daemon, IN_A_FILE};
use crate::support::{is_gone, kill, until};

/// A process outside of the daemon, which any signal would end.
struct Stranger(Child);

impl Stranger {
    fn new() -> Self {
        Self(Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes another pid into a file of an instance, in place. The holder of its lock still holds it.
fn set_pid(file: &Path, pid: i32) {
    let mut text: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    text["pid"] = pid.into();
    fs::write(file, text.to_string()).unwrap();
}

/// Returns a dead daemon and the folder of its dead agent. `stranger` has their pids now.
fn with_recycled_pids(stranger: &Stranger) -> (Daemon, PathBuf) {
    let mut daemon = Daemon::running("backoff: { initial: 1h, max: 1h }\nstop: { timeout: 100ms }");
    daemon.with_one_task(&["authenticate", "write:ready", "sleep:600"]);
    let agent = daemon.written_pid("ready");
    let (shim, folder) =
        (shim_of(agent), folder(&daemon, &daemon.until_in_state("agt", "running")));
    daemon.kill();
    kill(shim, Signal::KILL);
    until("the leader went with its shim", || is_gone(agent));
    for file in ["lock", Started::FILE] {
        set_pid(&folder.join(file), stranger.pid());
    }
    (daemon, folder)
}

#[test]
fn a_pid_that_is_another_programs_by_now_is_neither_adopted_nor_signalled() {
    let stranger = Stranger::new();
    let (mut daemon, _) = with_recycled_pids(&stranger);
    daemon.start();
    assert!(daemon.logged("instance adopted").is_empty());
    assert_eq!(daemon.until_ended("agt")["outcome"], "lost");
    assert!(!is_gone(stranger.pid()));
    daemon.until_nothing_is_left();
}

#[test]
fn a_lock_held_by_who_is_not_noted_takes_a_slot_and_signals_nobody() {
    let stranger = Stranger::new();
    let (mut daemon, folder) = with_recycled_pids(&stranger);
    let lock = File::open(folder.join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    daemon.start();
    daemon.done(&["stop", "agt", "prj", "--no-wait"]);
    until("its stop is written", || folder.join(Stop::FILE).exists());
    assert_eq!(daemon.status()["limits"]["running"], 1);
    assert!(daemon.ended("agt").is_empty() && !is_gone(stranger.pid()));
    drop(lock);
    assert_eq!(daemon.until_ended("agt")["reason"], "person");
    assert!(!is_gone(stranger.pid()));
    daemon.until_nothing_is_left();
}

/// The damage to a file while there was no daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    Empty,
    Truncated,
    Garbage,
    Newer,
    Gone,
}

impl Damage {
    fn inflict(self, file: &Path) {
        let before = fs::read(file).unwrap_or_default();
        match self {
            Self::Empty => fs::write(file, ""),
            Self::Truncated => {
                fs::write(file, if before.is_empty() { b"{" } else { &before[..before.len() / 2] })
            }
            Self::Garbage => fs::write(file, b"\0\xffnot this\n"),
            Self::Newer => fs::write(file, r#"{"version":99,"state":"somewhere else"}"#),
            Self::Gone if file.exists() => fs::remove_file(file),
            Self::Gone => Ok(()),
        }
        .unwrap();
    }
}

/// Returns the steps of an agent that only the gate delays, with the files that count its starts.
fn steps(agent: &str) -> Vec<String> {
    let files = [format!("alone:{agent}.alone"), format!("append:{agent}.starts")];
    let work = [Gate::STEP, "get-my-task", "report:success"].map(str::to_owned);
    let there = ["authenticate".to_owned(), format!("write:{agent}.ready")];
    files.into_iter().chain(there).chain(work).collect()
}

fn n_starts(daemon: &Daemon, agent: &str) -> usize {
    fs::read_to_string(daemon.work().join(format!("{agent}.starts"))).unwrap().lines().count()
}

/// Checks that its tasks get done by this number of processes, of which no two ran at the same
/// time.
#[track_caller]
fn check_done(daemon: &Daemon, agent: &str, expected_starts: usize) {
    until(&format!("the task of {agent} is done"), || {
        daemon.task_status(&format!("tsk_{agent}")) == "done"
    });
    assert_eq!(n_starts(daemon, agent), expected_starts, "{agent}");
    assert!(!daemon.work().join(format!("{agent}.alone.twin")).exists(), "{agent} was there twice");
}

fn prepared(agents: &[&str]) -> Daemon {
    prepared_with(agents, "")
}

/// Returns the same with more settings.
fn prepared_with(agents: &[&str], settings: &str) -> Daemon {
    let daemon = Daemon::configured(&format!(
        "manifest: manifest.yaml\nmax_concurrent: 9\nbackoff: {{ initial: 10ms, max: 10ms }}\nstop: {{ timeout: 300ms }}\n{settings}",
    ));
    daemon.manifest(agents);
    for agent in agents {
        daemon.steps(agent, &steps(agent).iter().map(String::as_str).collect::<Vec<_>>());
    }
    daemon
}

/// Checks folders of which each has one damaged file. It is damaged while the agent lives and its
/// daemon doesn't. The next daemon does without the file if it can. If it can't know the owner of
/// an agent, it ends that agent and starts another one.
fn check_damaged(damage: Damage) {
    let files = [
        ("spec", Spec::FILE),
        ("started", Started::FILE),
        ("stop", Stop::FILE),
        ("exit", Exit::FILE),
        ("lock", "lock"),
    ];
    let agents: Vec<&str> = files.iter().map(|(agent, _)| *agent).chain(["folder"]).collect();
    let mut daemon = prepared(&agents);
    let gate = Gate::closed(&daemon);
    daemon.start();
    let folders: Vec<PathBuf> = agents
        .iter()
        .map(|agent| {
            daemon.written_pid(&format!("{agent}.ready"));
            folder(&daemon, &daemon.until_in_state(agent, "running"))
        })
        .collect();
    daemon.kill();
    for ((_, file), folder) in files.iter().zip(&folders) {
        damage.inflict(&folder.join(file));
    }
    fs::remove_dir_all(&folders[5]).unwrap();
    if damage != Damage::Gone {
        fs::write(&folders[5], "").unwrap();
    }
    daemon.start();
    drop(gate);
    for agent in agents {
        let is_ended = agent == "spec" || agent == "folder";
        check_done(&daemon, agent, if is_ended { 2 } else { 1 });
        let ends: &[&str] = if is_ended { &["completed", "lost"] } else { &["completed"] };
        until("its end is known", || daemon.ended(agent).len() == ends.len());
        let outcomes: Vec<Value> =
            daemon.ended(agent).iter().map(|launch| launch["outcome"].clone()).collect();
        assert_eq!(outcomes, ends, "{agent}");
    }
    daemon.until_nothing_is_left();
}

#[test]
fn empty_files_double_no_agent() {
    check_damaged(Damage::Empty);
}

#[test]
fn truncated_files_double_no_agent() {
    check_damaged(Damage::Truncated);
}

#[test]
fn garbage_doubles_no_agent() {
    check_damaged(Damage::Garbage);
}

#[test]
fn files_of_a_newer_version_double_no_agent() {
    check_damaged(Damage::Newer);
}

#[test]
fn files_that_are_gone_double_no_agent() {
    check_damaged(Damage::Gone);
}

#[test]
fn a_folder_that_goes_while_its_agent_works_costs_its_exit_code_alone() {
    let mut daemon = prepared(&["agt"]);
    let gate = Gate::closed(&daemon);
    daemon.start();
    let agent = daemon.written_pid("agt.ready");
    fs::remove_dir_all(folder(&daemon, &daemon.until_in_state("agt", "running"))).unwrap();
    drop(gate);
    check_done(&daemon, "agt", 1);
    let ended = daemon.until_ended("agt");
    assert_eq!(
        (&ended["outcome"], &ended["exit_code"]),
        (&"completed".into(), &Value::Null),
        "{ended}"
    );
    assert!(is_gone(agent));
    daemon.until_nothing_is_left();
}

fn copy_state(daemon: &Daemon) {
    let copied =
        Command::new("cp").arg("-a").arg(daemon.state()).arg(daemon.folder().join("copy")).status();
    assert!(copied.unwrap().success());
}

fn restore_state(daemon: &Daemon) {
    fs::remove_dir_all(daemon.state()).unwrap();
    fs::rename(daemon.folder().join("copy"), daemon.state()).unwrap();
}

#[test]
fn an_agent_that_a_restored_state_has_never_heard_of_is_ended_before_anything_starts() {
    let settings = format!("backoff: {{ initial: 10ms, max: 10ms }}\n{IN_A_FILE}");
    let mut daemon = Daemon::running(&settings);
    daemon.project("prj");
    daemon.agent("agt", "prj", &steps("agt").iter().map(String::as_str).collect::<Vec<_>>());
    assert!(daemon.terminate().success());
    copy_state(&daemon);
    let gate = Gate::closed(&daemon);
    daemon.start();
    daemon.task("tsk_agt", "prj", "agt");
    let agent = daemon.written_pid("agt.ready");
    daemon.kill();
    restore_state(&daemon);
    daemon.start();
    assert!(is_gone(agent));
    daemon.task("tsk_agt", "prj", "agt");
    drop(gate);
    check_done(&daemon, "agt", 2);
    daemon.until_nothing_is_left();
}

#[test]
fn a_state_restored_from_a_copy_doubles_no_agent_that_it_knows() {
    let mut daemon = prepared_with(&["agt"], IN_A_FILE);
    let gate = Gate::closed(&daemon);
    daemon.start();
    let agent = daemon.written_pid("agt.ready");
    daemon.until_in_state("agt", "running");
    daemon.kill();
    copy_state(&daemon);
    daemon.start();
    assert!(!is_gone(agent));
    daemon.kill();
    restore_state(&daemon);
    daemon.start();
    drop(gate);
    check_done(&daemon, "agt", 1);
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
    assert!(
        daemon.done(&["logs", "agt", "prj"]).contains("tsk_agt"),
        "what it prints goes to the restored folder"
    );
    daemon.until_nothing_is_left();
}

#[test]
fn a_lost_store_ends_the_agents_that_it_does_not_know_and_starts_anew() {
    let mut daemon = prepared_with(&["agt"], IN_A_FILE);
    // It takes some time to end, with the same task waiting for it again.
    daemon.steps(
        "agt",
        &[&["ignore-term"], &*steps("agt").iter().map(String::as_str).collect::<Vec<_>>()].concat(),
    );
    let gate = Gate::closed(&daemon);
    daemon.start();
    let agent = daemon.written_pid("agt.ready");
    let launch = daemon.until_in_state("agt", "running");
    daemon.kill();
    for entry in fs::read_dir(daemon.state()).unwrap().map(|entry| entry.unwrap()) {
        if entry.file_name().to_string_lossy().starts_with("state.db") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    daemon.start();
    until("the one nobody knows is gone", || is_gone(agent));
    drop(gate);
    check_done(&daemon, "agt", 2);
    daemon.until_nothing_is_left();
    let exit: Exit = record::read(&folder(&daemon, &launch)).unwrap().unwrap();
    assert_eq!(
        (exit.stop, exit.pid),
        (Some(StopReason::Unknown), Some(agent)),
        "its end is on record"
    );
    assert_eq!(daemon.ended("agt").len(), 1, "the store knows nothing of it");
    assert_eq!(fs::read_dir(instance_dir::ended(&daemon.state())).unwrap().count(), 2);
}
