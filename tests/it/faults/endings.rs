//! F-25, F-37, F-39: signals to the daemon, at each moment, and stops that cross its end.

use std::fs;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};

use rustix::process::{Pid, Signal};

use crate::daemon::{Daemon, IN_A_FILE};
use crate::support::{is_gone, until};

const PATIENT: &[&str] =
    &["authenticate", "write:ready", "wait-for:go", "get-my-task", "report:success"];
const DEAF: &[&str] = &["ignore-term", "authenticate", "write:ready", "sleep:600"];

/// A name, and a check whether a starting daemon has reached the moment.
type Moment = (&'static str, fn(&Daemon) -> bool);

#[test]
fn a_term_while_starting_ends_it_cleanly_at_any_moment() {
    let moments: [Moment; 7] = [
        ("at once", |_| true),
        ("the configuration is read", |daemon| daemon.log().contains("configuration read")),
        ("it has its lock", |daemon| daemon.state().join("server.lock").exists()),
        ("the database is there", |daemon| daemon.state().join("state.db").exists()),
        ("it has taken stock", |daemon| daemon.state().join("installation_id").exists()),
        ("the socket is there", |daemon| daemon.state().join("mcp.sock").exists()),
        ("it is ready", |daemon| daemon.log().contains("ready")),
    ];
    for (moment, has_come) in moments {
        let mut daemon = Daemon::configured(&format!("manifest: manifest.yaml\n{IN_A_FILE}"));
        daemon.manifest(&["agt"]);
        daemon.steps("agt", PATIENT);
        daemon.spawn();
        until(moment, || has_come(&daemon));
        let status = daemon.terminate();
        // Before the daemon handles the signal, the signal kills it. Nothing had been begun then.
        let is_early =
            status.signal() == Some(Signal::TERM.as_raw()) && !daemon.log().contains("took stock");
        assert!(status.success() || is_early, "{moment}: {status:?}\n{}", daemon.log());
        until("no agent is left", || daemon.processes().is_empty());
        fs::write(daemon.work().join("go"), "").unwrap();
        daemon.start();
        until("the next one does the work", || daemon.task_status("tsk_agt") == "done");
        assert!(daemon.terminate().success());
        daemon.until_nothing_is_left();
    }
}

#[test]
fn a_second_term_does_not_wait_for_anybody() {
    let mut daemon = Daemon::running("stop: { timeout: 1h }");
    daemon.with_one_task(DEAF);
    let agent = daemon.written_pid("ready");
    daemon.signal(Signal::TERM);
    until("the first is heard", || !daemon.logged("stopping").is_empty());
    assert!(!is_gone(agent));
    assert_eq!(daemon.terminate().code(), Some(143));
    until("its shim has ended the agent", || is_gone(agent));
    daemon.start();
    let ended = daemon.until_ended("agt");
    assert_eq!(
        (&ended["outcome"], &ended["reason"], &ended["signal"]),
        (&"stopped".into(), &"shutdown".into(), &9.into())
    );
}

#[test]
fn a_term_ends_the_agents_or_keeps_them_as_configured() {
    for (policy, is_kept) in [("keep", true), ("stop", false)] {
        let mut daemon = Daemon::running(&format!("shutdown: {{ sigterm: {policy} }}"));
        daemon.with_one_task(PATIENT);
        let agent = daemon.written_pid("ready");
        assert!(daemon.terminate().success());
        assert_eq!(is_gone(agent), !is_kept, "{policy}");
        daemon.start();
        fs::write(daemon.work().join("go"), "").unwrap();
        assert_eq!(daemon.logged("instance adopted").len(), usize::from(is_kept), "{policy}");
        until("the task is done", || daemon.task_status("tsk") == "done");
        daemon.until_nothing_is_left();
        let outcomes: Vec<_> =
            daemon.ended("agt").iter().map(|launch| launch["outcome"].clone()).collect();
        let expected: &[&str] = if is_kept { &["completed"] } else { &["completed", "stopped"] };
        assert_eq!(outcomes, expected, "{policy}");
    }
}

/// Starts a daemon like a shell: with a process group of its own, to which a terminal's Ctrl-C
/// goes.
fn in_foreground(settings: &str) -> Daemon {
    let mut daemon = Daemon::configured(settings);
    let mut command = daemon.command();
    command.process_group(0);
    daemon.spawn_as(command);
    daemon.until_ready();
    daemon
}

fn interrupt_group(daemon: &Daemon) {
    rustix::process::kill_process_group(Pid::from_raw(daemon.pid()).unwrap(), Signal::INT).unwrap();
}

#[test]
fn an_interrupt_of_the_terminal_reaches_the_daemon_alone() {
    let mut daemon = in_foreground("shutdown: { sigint: keep }");
    // An agent that got the signal would write a file.
    daemon.with_one_task(&[
        "run:trap 'echo >interrupted' INT",
        "authenticate",
        "write:ready",
        "wait-for:go",
    ]);
    let agent = daemon.written_pid("ready");
    interrupt_group(&daemon);
    assert!(daemon.wait().success());
    assert!(!is_gone(agent));
    fs::write(daemon.work().join("go"), "").unwrap();
    until("the agent ends by itself", || is_gone(agent));
    assert!(!daemon.work().join("interrupted").exists());
    daemon.start();
    assert_eq!(daemon.until_ended("agt")["exit_code"], 0);
}

#[test]
fn an_interrupt_ends_the_agents_with_a_chance_to_report() {
    let mut daemon = in_foreground("");
    let report = r#"run:trap '"$AGENT_COORDINATOR" call report_completed "{\"result\":\"success\"}"; exit 0' TERM"#;
    daemon.with_one_task(&["authenticate", "get-my-task", report, "write:ready", "sleep:600"]);
    let agent = daemon.written_pid("ready");
    interrupt_group(&daemon);
    assert!(daemon.wait().success());
    assert!(is_gone(agent));
    daemon.start();
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
    assert_eq!(daemon.task_status("tsk"), "done");
}

#[test]
fn a_stop_while_starting_is_one_end() {
    let daemon = Daemon::running("");
    daemon.with_one_task(&["write:ready", "sleep:600"]);
    // The agent has not authenticated, and never will.
    let agent = daemon.written_pid("ready");
    assert_eq!(daemon.open("agt")[0]["state"], "starting");
    daemon.done(&["stop", "agt", "prj"]);
    assert!(is_gone(agent));
    daemon.done(&["stop", "agt", "prj"]);
    let ended = daemon.ended("agt");
    assert_eq!(ended.len(), 1);
    assert_eq!((&ended[0]["outcome"], &ended[0]["reason"]), (&"stopped".into(), &"person".into()));
    daemon.until_nothing_is_left();
}

#[test]
fn of_two_stops_the_first_reason_counts() {
    let daemon = Daemon::running("");
    daemon.with_one_task(&["run:trap : TERM", "authenticate", "write:ready", "wait-for:go"]);
    daemon.written_pid("ready");
    daemon.done(&["stop", "agt", "prj", "--no-wait"]);
    daemon.until_in_state("agt", "stopping");
    daemon.done(&["stop", "--all", "--no-wait"]);
    daemon.done(&["stop", "agt", "prj", "--no-wait"]);
    fs::write(daemon.work().join("go"), "").unwrap();
    daemon.until_ended("agt");
    let ended = daemon.ended("agt");
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0]["reason"], "person");
}

#[test]
fn a_stop_that_crosses_a_stop_of_the_daemon_is_the_persons() {
    let mut daemon = Daemon::running("stop: { timeout: 300ms }");
    daemon.with_one_task(DEAF);
    let agent = daemon.written_pid("ready");
    daemon.done(&["stop", "agt", "prj", "--no-wait"]);
    assert!(daemon.terminate().success());
    assert!(is_gone(agent));
    daemon.start();
    let ended = daemon.ended("agt");
    assert_eq!(ended.len(), 1);
    assert_eq!((&ended[0]["outcome"], &ended[0]["reason"]), (&"stopped".into(), &"person".into()));
    assert_eq!(daemon.status()["deferred"][0]["reason"], "held");
}

/// The daemon dies when the stop is noted, and when it is written for the shim. In both cases the
/// shim has not been told yet.
#[cfg(debug_assertions)]
#[test]
fn a_stop_is_carried_out_although_the_daemon_dies() {
    use machine::crash_point::{CrashPoint, VARIABLE};
    for point in [CrashPoint::StopWanted, CrashPoint::StopWritten] {
        let mut daemon = Daemon::configured("");
        let mut command = daemon.command();
        command.env(VARIABLE, format!("{point:?}"));
        daemon.spawn_as(command);
        daemon.until_ready();
        daemon.with_one_task(&["authenticate", "append:agents", "write:ready", "sleep:600"]);
        let agent = daemon.written_pid("ready");
        // The answer may get lost.
        daemon.cli(&["stop", "agt", "prj", "--no-wait"]);
        assert_eq!(daemon.wait().signal(), Some(Signal::KILL.as_raw()), "{point:?}");
        daemon.start();
        let ended = daemon.until_ended("agt");
        assert_eq!(
            (&ended["outcome"], &ended["reason"]),
            (&"stopped".into(), &"person".into()),
            "{point:?}"
        );
        assert!(is_gone(agent));
        assert_eq!(daemon.status()["deferred"][0]["reason"], "held");
        assert_eq!(fs::read_to_string(daemon.work().join("agents")).unwrap().lines().count(), 1);
        daemon.until_nothing_is_left();
    }
}
