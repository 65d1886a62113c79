//! Row 17 for the store: no space. The daemon and its agents live, nothing that was acknowledged is lost, and when there is
//! space again the work goes on.

use std::fs::{self, File};
use std::io::Write as _;

use agent_coordinator::instance_dir;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::daemon::Daemon;
use crate::support::until;

/// Reports until the server takes it.
const INSISTS: &str = r#"run:until call report_completed "{\"result\":\"success\"}"; do rest 0.05; done"#;

/// Two agents, `agt` that insists on its report and `brief` that ends with 7; both wait for `go`.
fn with_two_agents(daemon: &Daemon) {
    daemon.project("prj");
    daemon.agent("agt", "prj", &["authenticate", "get-my-task", "write:ready.agt", "wait-for:go", INSISTS]);
    daemon.agent("brief", "prj", &["authenticate", "get-my-task", "write:ready.brief", "wait-for:go", "exit:7"]);
    for agent in ["agt", "brief"] {
        daemon.task(&format!("tsk_{agent}"), "prj", agent);
        daemon.written_pid(&format!("ready.{agent}"));
    }
}

/// With the store full: who writes is told why, who reads is answered, and the ends of agents are kept until they are taken.
fn check_without_space(daemon: &Daemon, expected: &str) {
    let said = daemon.cli(&["project", "add", "another", "--directory", daemon.work().to_str().unwrap()]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("could not write to the store") && said.stderr.contains(expected), "{said:?}");
    assert_eq!(daemon.status()["limits"]["running"], 2);
    fs::write(daemon.work().join("go"), "").unwrap();
    until("the end of an agent is known", || {
        let folders = fs::read_dir(instance_dir::instances(&daemon.state())).unwrap();
        folders.filter(|folder| instance_dir::is_ended(&folder.as_ref().unwrap().path())).count() == 1
    });
    until("it can't be reported", || !daemon.logged("could not report; will report again").is_empty());
    assert!(daemon.ended("brief").is_empty());
}

fn check_with_space(daemon: &Daemon) {
    assert_eq!(daemon.until_ended("brief")["exit_code"], 7);
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
    assert_eq!(daemon.task_status("tsk_agt"), "done");
    assert_eq!(daemon.status()["counters"]["found_by_poll_only"], 0);
    daemon.project("another");
}

#[test]
fn a_full_disk_delays_and_loses_nothing() {
    let mut daemon = Daemon::configured("backoff: { initial: 1m }");
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
fn a_limit_of_file_sizes_delays_and_loses_nothing() {
    let daemon = Daemon::running("backoff: { initial: 1m }");
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
    let mut daemon = Daemon::configured("");
    if !daemon.mount_state("64k") {
        eprintln!("skipped: this user may not mount a file system");
        return;
    }
    let (code, said) = daemon.refused();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no space left for the database"), "{said}");
    assert!(!daemon.state().join("state.db").exists());
}
