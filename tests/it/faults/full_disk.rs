//! F-17: no space for the store, for the output of agents or for the log. The daemon and its
//! agents live on. Nothing that was acknowledged is lost. When there is space again, the work goes
//! on.

use std::fs::{self, File};
use std::io::Write as _;

use machine::instance_dir;
use machine::instance_dir::record::{self, Exit};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::{folder, shim_of};
use crate::daemon::{Daemon, IN_A_FILE};
use crate::support::{is_gone, until};

/// Reports until the server accepts it.
const INSISTS: &str =
    r#"run:until call report_completed "{\"result\":\"success\"}"; do rest 0.05; done"#;

/// The state directory is on a small file system, on which agents must start nevertheless.
const SMALL_DISK: &str = "limits: { min_free_disk: off }";

/// Adds two agents: `agt`, which repeats its report until it is accepted, and `brief`, which ends
/// with 7. Both wait for `go`.
pub(super) fn with_two_agents(daemon: &Daemon) {
    daemon.project("prj");
    daemon.agent(
        "agt",
        "prj",
        &["authenticate", "get-my-task", "write:ready.agt", "wait-for:go", INSISTS],
    );
    daemon.agent(
        "brief",
        "prj",
        &["authenticate", "get-my-task", "write:ready.brief", "wait-for:go", "exit:7"],
    );
    for agent in ["agt", "brief"] {
        daemon.task(&format!("tsk_{agent}"), "prj", agent);
        daemon.written_pid(&format!("ready.{agent}"));
    }
}

/// Checks a full store: writes are refused with the reason, reads are answered, and the ends of
/// agents are kept until the store accepts them.
fn check_without_space(daemon: &Daemon, expected: &str) {
    let said =
        daemon.cli(&["project", "add", "another", "--directory", daemon.work().to_str().unwrap()]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stderr.contains("could not write to the store") && said.stderr.contains(expected),
        "{said:?}"
    );
    assert_eq!(daemon.status()["limits"]["running"], 2);
    fs::write(daemon.work().join("go"), "").unwrap();
    until("the end of an agent is known", || {
        let folders = fs::read_dir(instance_dir::instances(&daemon.state())).unwrap();
        folders.filter(|folder| instance_dir::is_ended(&folder.as_ref().unwrap().path())).count()
            == 1
    });
    until("it can't be reported", || {
        !daemon.logged("could not report the process to the server; will report again").is_empty()
    });
    assert!(daemon.ended("brief").is_empty());
}

pub(super) fn check_with_space(daemon: &Daemon) {
    assert_eq!(daemon.until_ended("brief")["exit_code"], 7);
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
    assert_eq!(daemon.task_status("tsk_agt"), "done");
    assert_eq!(daemon.status()["counters"]["found_by_poll_only"], 0);
    daemon.project("another");
}

#[test]
fn a_full_disk_delays_and_loses_nothing() {
    let mut daemon =
        Daemon::configured(&format!("backoff: {{ initial: 1m }}\n{SMALL_DISK}\n{IN_A_FILE}"));
    if !daemon.mount_state("16m") {
        eprintln!("skipped: this user may not mount a file system");
        return;
    }
    daemon.start();
    with_two_agents(&daemon);
    let filler = daemon.state().join("filler");
    let mut file = File::create(&filler).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    check_without_space(&daemon, "full");
    drop(file);
    fs::remove_file(filler).unwrap();
    check_with_space(&daemon);
    daemon.until_nothing_is_left();
}

#[test]
fn a_coordinator_takes_over_its_agents_without_space() {
    let server = Daemon::serving("");
    let socket = format!("unix:{}", server.state().join("mcp.sock").display());
    let mut coordinator = Daemon::supervising(
        &socket,
        &format!("agents: {{ agt: {{ passkey: a-passkey }} }}\n{SMALL_DISK}"),
    );
    if !coordinator.mount_state("4m") {
        eprintln!("skipped: this user may not mount a file system");
        return;
    }
    coordinator.start();
    server.with_one_task(&[
        "alone:one",
        "authenticate",
        "get-my-task",
        "write:ready",
        "wait-for:go",
        "report:success",
    ]);
    let agent = server.written_pid("ready");
    let mut file = File::create(coordinator.state().join("filler")).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    coordinator.kill();
    coordinator.start();
    assert!(!is_gone(agent));
    fs::write(server.work().join("go"), "").unwrap();
    assert_eq!(server.until_ended("agt")["outcome"], "completed");
    assert_eq!((server.ended("agt").len(), server.work().join("one.twin").exists()), (1, false));
}

#[test]
fn a_limit_of_file_sizes_delays_and_loses_nothing() {
    let daemon = Daemon::running(&format!("backoff: {{ initial: 1m }}\n{IN_A_FILE}"));
    with_two_agents(&daemon);
    let log = fs::metadata(daemon.state().join("state.db-wal")).unwrap().len();
    let pid = Pid::from_raw(daemon.pid());
    let unlimited = rustix::process::getrlimit(Resource::Fsize);
    prlimit(pid, Resource::Fsize, Rlimit { current: Some(log), ..unlimited }).unwrap();
    check_without_space(&daemon, "I/O");
    prlimit(pid, Resource::Fsize, unlimited).unwrap();
    check_with_space(&daemon);
    daemon.until_nothing_is_left();
}

#[test]
fn a_daemon_without_space_for_its_state_says_so() {
    let mut daemon = Daemon::configured(IN_A_FILE);
    if !daemon.mount_state("64k") {
        eprintln!("skipped: this user may not mount a file system");
        return;
    }
    let (code, said) = daemon.refused();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no space left for the database"), "{said}");
    assert!(!daemon.state().join("state.db").exists());
}

#[test]
fn output_that_finds_no_space_is_counted_and_what_comes_later_is_kept() {
    // This is the size of whole lines.
    const KEPT: u64 = 32 * 64;
    let daemon = Daemon::running("backoff: { initial: 1h, max: 1h }");
    let kept = format!("chatter:{KEPT}");
    let later = ["wait-for:go", "print:what comes later", "exit:7"];
    // This is three times the capacity of a pipe. Most of it has been read when all of it is
    // printed.
    let steps =
        ["authenticate", &kept, "write:ready", "wait-for:full", "chatter:200000", "write:printed"];
    daemon.with_one_task(&[&steps[..], &later].concat());
    let shim = shim_of(daemon.written_pid("ready"));
    let folder = folder(&daemon, &daemon.until_in_state("agt", "running"));
    let log = folder.join(instance_dir::OUTPUT_LOG);
    until("what there is space for is kept", || {
        fs::metadata(&log).is_ok_and(|log| log.len() == KEPT)
    });
    let (shim, unlimited) = (Pid::from_raw(shim), rustix::process::getrlimit(Resource::Fsize));
    prlimit(shim, Resource::Fsize, Rlimit { current: Some(KEPT), ..unlimited }).unwrap();
    daemon.write("work/full", "");
    daemon.written_pid("printed");
    assert_eq!(fs::metadata(&log).unwrap().len(), KEPT);
    prlimit(shim, Resource::Fsize, unlimited).unwrap();
    daemon.write("work/go", "");
    assert_eq!(daemon.until_ended("agt")["exit_code"], 7);
    assert!(daemon.done(&["logs", "agt", "prj"]).ends_with("\nwhat comes later\n"));
    daemon.until_nothing_is_left();
    let launch = daemon.until_ended("agt");
    let exit: Exit = record::read(&super::folder(&daemon, &launch)).unwrap().unwrap();
    assert!(exit.n_dropped_lines > 1000, "{exit:?}");
}

#[test]
fn a_log_folder_that_goes_takes_lines_with_it_and_nothing_else() {
    let mut daemon = Daemon::configured("log: { file: logs/daemon.log }");
    let logs = daemon.folder().join("logs");
    fs::create_dir(&logs).unwrap();
    daemon.spawn();
    until("it is ready", || {
        fs::read_to_string(logs.join("daemon.log")).is_ok_and(|log| log.contains("ready"))
    });
    fs::remove_dir_all(&logs).unwrap();
    daemon.with_one_task(&["authenticate", "get-my-task", "report:success"]);
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
    daemon.until_nothing_is_left();
    assert!(daemon.terminate().success());
}
