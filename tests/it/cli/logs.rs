//! `logs`: the whole output of an agent in order, while it runs and afterwards.

use std::fs;
use std::io::{BufReader, Read as _};
use std::process::{Child, ChildStdout, Stdio};

use crate::daemon::Daemon;
use crate::support::until;

/// Returns a daemon whose agents are this shell script. Files are rotated at 64 KiB and all are
/// kept.
fn scripted(script: &str) -> Daemon {
    let command = format!("cli_command: sh, cli_args: [-c, '{script}']");
    let output = "output: { max_file: 64 KiB, files: 50 }\nbackoff: { initial: 1h, max: 1h }";
    Daemon::running(&format!("{output}\nai_providers: {{ claude: {{ {command} }} }}"))
}

fn follow(daemon: &Daemon) -> (Child, BufReader<ChildStdout>) {
    let mut command = daemon.command();
    command.args(["logs", "agt", "prj", "-f"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stdout = child.stdout.take().unwrap();
    (child, BufReader::new(stdout))
}

fn line(lines: &mut impl std::io::BufRead) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    line
}

/// The number of lines: two megabytes in thirty files, which is more than pipes and sockets hold.
const N_LINES: usize = 300_000;

/// Checks that every number is there once, in its order.
#[track_caller]
fn check_complete(printed: &str) {
    let mut n = 0;
    for line in printed.lines() {
        n += 1;
        assert_eq!(line.parse(), Ok(n), "line {n} of {}", printed.lines().count());
    }
    assert_eq!(n, N_LINES);
}

#[test]
fn who_follows_slowly_sees_every_line_in_order_until_the_agent_ends() {
    let daemon =
        scripted(&format!("echo 1; until [ -e go ]; do sleep 0.01; done; seq 2 {N_LINES}"));
    daemon.with_one_task(&[]);
    // Between the claim and the process there is no output yet.
    until("it has a process", || {
        daemon.open("agt").first().is_some_and(|launch| launch["pid"].is_number())
    });
    let (mut child, mut lines) = follow(&daemon);
    let mut printed = line(&mut lines);
    fs::write(daemon.work().join("go"), "").unwrap();
    // Its files are rotated away many times, and its folder is moved, while the follower does not
    // read.
    daemon.until_ended("agt");
    lines.read_to_string(&mut printed).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    check_complete(&printed);
    check_complete(&daemon.done(&["logs", "agt", "prj"]));
}

#[test]
fn who_comes_late_sees_what_was_before_and_what_comes() {
    let half = N_LINES / 2;
    let script = format!(
        "seq 1 {half}; : >half; until [ -e go ]; do sleep 0.01; done; seq {} {N_LINES}",
        half + 1
    );
    let daemon = scripted(&script);
    daemon.with_one_task(&[]);
    until("half of it is printed", || daemon.work().join("half").exists());
    let (mut child, mut lines) = follow(&daemon);
    let mut printed = line(&mut lines);
    fs::write(daemon.work().join("go"), "").unwrap();
    lines.read_to_string(&mut printed).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    check_complete(&printed);
}

#[test]
fn a_line_is_seen_when_it_is_printed() {
    let daemon = scripted(
        "echo one; until [ -e go ]; do sleep 0.01; done; echo two; until [ -e end ]; do sleep 0.01; done",
    );
    daemon.with_one_task(&[]);
    // Between the claim and the process there is no output yet.
    until("it has a process", || {
        daemon.open("agt").first().is_some_and(|launch| launch["pid"].is_number())
    });
    let (mut child, mut lines) = follow(&daemon);
    assert_eq!(line(&mut lines), "one\n");
    fs::write(daemon.work().join("go"), "").unwrap();
    assert_eq!(line(&mut lines), "two\n");
    assert_eq!(daemon.done(&["logs", "agt", "prj"]), "one\ntwo\n");
    assert!(child.try_wait().unwrap().is_none(), "the agent lives");
    fs::write(daemon.work().join("end"), "").unwrap();
    assert_eq!(line(&mut lines), "");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_newest_launch_is_shown_unless_another_is_named() {
    let daemon = scripted("echo \"$AGENT_LAUNCH_ID\"");
    daemon.with_one_task(&[]);
    let first = daemon.until_ended("agt")["launch_id"].as_str().unwrap().to_owned();
    daemon.done(&["task", "set", "tsk", "--status", "in_progress"]);
    until("it ran again", || daemon.ended("agt").len() == 2);
    let second = daemon.ended("agt")[0]["launch_id"].as_str().unwrap().to_owned();
    assert_eq!(daemon.done(&["logs", "agt", "prj"]), format!("{second}\n"));
    assert_eq!(daemon.done(&["logs", "agt", "prj", "--launch", &first]), format!("{first}\n"));
    // The output of an ended launch is printed, and the command ends.
    assert_eq!(daemon.done(&["logs", "agt", "prj", "-f"]), format!("{second}\n"));
}

#[test]
fn who_stops_following_is_no_error() {
    let daemon = scripted("while [ ! -e end ]; do echo line; sleep 0.01; done");
    daemon.with_one_task(&[]);
    // Between the claim and the process there is no output yet.
    until("it has a process", || {
        daemon.open("agt").first().is_some_and(|launch| launch["pid"].is_number())
    });
    let (mut child, mut lines) = follow(&daemon);
    assert_eq!(line(&mut lines), "line\n");
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
