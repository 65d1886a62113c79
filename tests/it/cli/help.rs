//! `--help`, usage, and the common behaviour of all commands.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use super::check_fails;
use crate::daemon::{Daemon, PROGRAM};

/// Returns the program without a terminal, a configuration or a daemon.
fn bare() -> Command {
    let mut command = Command::new(PROGRAM);
    command.env_clear().current_dir("/").stdin(Stdio::null());
    command
}

/// Appends the help of a command and of all its subcommands.
fn append_help(command: &[&str], text: &mut String) {
    let output = bare().args(command).arg("--help").output().unwrap();
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]), "{command:?}");
    let help = String::from_utf8(output.stdout).unwrap();
    writeln!(text, "$ {} --help\n{help}", [&["agent-coordinator"], command].concat().join(" "))
        .unwrap();
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in lines.take_while(|line| !line.is_empty()) {
        // Further lines of a description begin with more spaces.
        let is_name = |rest: &&str| !rest.starts_with(' ');
        let name = line.strip_prefix("  ").filter(is_name).and_then(|rest| rest.split(' ').next());
        if let Some(name) = name.filter(|name| *name != "help") {
            append_help(&[command, &[name]].concat(), text);
        }
    }
}

#[test]
fn every_command_explains_itself() {
    let mut text = String::new();
    append_help(&[], &mut text);
    insta::assert_snapshot!("help", text);
    let version = bare().arg("--version").output().unwrap();
    assert_eq!(
        version.stdout,
        format!("agent-coordinator {}\n", env!("CARGO_PKG_VERSION")).into_bytes()
    );
}

#[test]
fn a_command_line_that_makes_no_sense_is_told_so() {
    let daemon = Daemon::configured("");
    for (arguments, why) in [
        (&["frobnicate"][..], "unrecognized subcommand 'frobnicate'"),
        (&["status", "--jsn"], "unexpected argument '--jsn'"),
        (&["stop"], "required arguments were not provided"),
        (&["stop", "agt"], "required arguments were not provided"),
        (&["stop", "agt", "prj", "--all"], "cannot be used with"),
        (&["resume", "agt"], "required arguments were not provided"),
        (&["logs", "agt"], "required arguments were not provided"),
        (&["task", "show", "../tsk"], "`../tsk` is not a valid task id"),
        (&["task", "add", "--project", "prj"], "--title"),
        (
            &["task", "set", "tsk", "--status", "finished"],
            "expected one of backlog, todo, in_progress",
        ),
        (&["task", "set", "tsk", "--assignee", "agt", "--no-assignee"], "cannot be used with"),
        (&["project", "add", "prj"], "a project needs --directory DIR"),
        (&["agent", "add", "agt", "--passkey-stdin"], "standard input holds no passkey"),
        (&["call"], "required arguments were not provided"),
        (&["call", "health_check", "not json"], "the arguments of health_check are no JSON object"),
    ] {
        check_fails(&daemon, arguments, 2, why);
    }
    let nothing = bare().output().unwrap();
    assert_eq!(nothing.status.code(), Some(2));
    assert!(String::from_utf8(nothing.stderr).unwrap().contains("Usage: agent-coordinator"));
}

#[test]
fn a_removed_command_is_answered_with_its_replacement() {
    let daemon = Daemon::configured("");
    for (arguments, replacement) in [
        (&["run-once", "agt", "prj"][..], "use `task add --wait --follow`, which prints"),
        (&["task", "undelete", "PRJ-1"], "bring it back with `unarchive`"),
        (&["agent", "undelete", "agt", "--json"], "deletions are final"),
        (&["project", "undelete", "prj"], "deletions are final"),
    ] {
        let said = check_fails(&daemon, arguments, 2, replacement);
        assert_eq!(said.stderr.lines().count(), 1, "{said:?}");
    }
}

#[test]
fn without_a_daemon_every_command_says_so() {
    let daemon = Daemon::configured("");
    daemon.write("manifest.yaml", "agents: { agt: {} }");
    for arguments in [
        &["status"][..],
        &["status", "--json"],
        &["apply", "manifest.yaml"],
        &["logs", "agt", "prj"],
        &["stop", "agt", "prj"],
        &["stop", "--all"],
        &["resume"],
        &["task", "list"],
        &["task", "add", "--project", "prj", "--title", "t"],
        &["project", "list"],
        &["agent", "list"],
        &["call", "health_check"],
    ] {
        let said =
            check_fails(&daemon, arguments, 69, "no daemon is running: no process listens on ");
        assert!(said.stderr.contains("agent-coordinator run"), "{said:?}");
    }
    // A socket of a dead daemon makes no difference.
    let mut daemon = Daemon::running("");
    daemon.kill();
    check_fails(&daemon, &["status"], 69, "no daemon is running");
    check_fails(&daemon, &["call", "health_check"], 69, "no daemon is running");
}

#[test]
fn who_stops_reading_is_no_error() {
    let daemon = Daemon::running("");
    let many: Vec<String> = (0..200).map(|n| format!("agt_{n}: {{}}")).collect();
    daemon.apply(&format!("agents: {{ {} }}", many.join(", ")));
    for arguments in
        [&["agent", "list"][..], &["agent", "list", "--json"], &["status"], &["--help"], &["check"]]
    {
        // The reader has gone before the first byte.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = daemon
            .command()
            .args(arguments)
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
    for (arguments, code) in [
        (&["task", "show", "none"][..], 1),
        (&["nonsense"], 2),
        (&["check", "--config", "none"], 78),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = daemon.command().args(arguments).stderr(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn who_stops_watching_is_no_error() {
    let daemon = Daemon::running("");
    let mut command = daemon.command();
    let mut child = command
        .args(["status", "--watch"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("\x1b[2J\x1b[Hagent-coordinator "), "{first:?}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
