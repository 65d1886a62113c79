//! F-42 to F-44: conditions that keep a daemon from starting. It names the reason, ends with exit
//! code 1, and leaves all files unchanged.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use rusqlite::Connection;
use rustix::fs::{CWD, FileType, Mode};
use rustix::process::Signal;

use crate::daemon::{Daemon, IN_A_FILE};
use crate::support::until;

#[track_caller]
fn check_refused(daemon: &mut Daemon, file: &Path, expected: &str) {
    let before = fs::read(file).unwrap();
    let (code, said) = daemon.refused();
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains(expected) && said.contains(file.to_str().unwrap()),
        "expected `{expected}`:\n{said}"
    );
    assert_eq!(fs::read(file).unwrap(), before, "the file is as it was");
}

#[test]
fn a_file_in_the_place_of_a_socket_is_left_alone() {
    for socket in ["mcp.sock", "control.sock"] {
        let mut daemon = Daemon::configured("");
        fs::create_dir(daemon.state()).unwrap();
        let file = daemon.state().join(socket);
        fs::write(&file, "somebody's notes").unwrap();
        check_refused(&mut daemon, &file, "is in the way");
    }
}

/// Returns a state directory that a daemon has used and left, and its database.
fn used() -> (Daemon, std::path::PathBuf) {
    let mut daemon = Daemon::running(IN_A_FILE);
    daemon.project("prj");
    daemon.terminate();
    let database = daemon.state().join("state.db");
    (daemon, database)
}

/// Runs `sql` like another program, and keeps the connection.
fn stranger(database: &Path, sql: &str) -> Connection {
    let connection = Connection::open(database).unwrap();
    connection.execute_batch(sql).unwrap();
    connection
}

#[test]
fn a_database_that_is_none_is_left_alone() {
    let (mut daemon, database) = used();
    fs::write(&database, "polling_interval: 10\n".repeat(100)).unwrap();
    check_refused(&mut daemon, &database, "is not an SQLite database");
}

#[test]
fn a_damaged_database_is_left_alone() {
    let (mut daemon, database) = used();
    let mut bytes = fs::read(&database).unwrap();
    bytes[4096..].fill(0xa5);
    fs::write(&database, bytes).unwrap();
    check_refused(&mut daemon, &database, "is damaged");
}

#[test]
fn a_newer_database_is_left_alone() {
    let (mut daemon, database) = used();
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                 VALUES (99, 'the future', 1, x'00', 0)";
    let connection = stranger(&database, newer);
    drop(connection);
    check_refused(&mut daemon, &database, "written by a newer version");
}

#[test]
fn a_locked_database_is_named_and_works_when_it_is_free() {
    let (mut daemon, database) = used();
    let connection = stranger(&database, "BEGIN IMMEDIATE");
    check_refused(&mut daemon, &database, "is locked by another process");
    drop(connection);
    daemon.start();
    assert_eq!(daemon.json(&["project", "list"])[0]["id"], "prj");
}

#[test]
fn a_lock_on_the_database_while_it_runs_delays_and_loses_nothing() {
    let daemon = Daemon::running(IN_A_FILE);
    daemon.with_one_task(&["authenticate", "get-my-task", "write:ready", "wait-for:go", "exit:7"]);
    daemon.written_pid("ready");
    let connection = stranger(&daemon.state().join("state.db"), "BEGIN IMMEDIATE");
    fs::write(daemon.work().join("go"), "").unwrap();
    crate::support::until("it could not be reported", || {
        !daemon.logged("could not report the process to the server; will report again").is_empty()
    });
    daemon.done(&["status"]);
    drop(connection);
    assert_eq!(daemon.until_ended("agt")["exit_code"], 7);
    assert_eq!(daemon.status()["counters"]["found_by_poll_only"], 0);
}

/// Makes a pipe without a writer.
fn make_pipe(path: &Path) {
    rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[test]
fn a_pipe_in_the_place_of_a_file_of_the_daemon_is_named() {
    let files = [
        "coordinator_id",
        "coordinator_place",
        "coordinator_token",
        "installation_id",
        "server.lock",
    ];
    for file in files.into_iter().chain(["coordinator.lock", "state.db.lock"]) {
        let mut daemon = Daemon::configured(IN_A_FILE);
        fs::create_dir(daemon.state()).unwrap();
        make_pipe(&daemon.state().join(file));
        // Each start makes and removes this file.
        make_pipe(&daemon.state().join(".writable"));
        let (code, said) = daemon.refused();
        // The pipe is removed before the test reads it to find the remaining files.
        fs::remove_file(daemon.state().join(file)).unwrap();
        assert_eq!(code, Some(1), "{file}: {said}");
        assert!(said.contains(&format!("/{file}`")), "{file}: {said}");
        assert!(said.contains("it is a pipe, not a regular file; move it away"), "{file}: {said}");
    }
}

/// Returns whether a signal has a handler.
fn is_listened_to(daemon: &Daemon, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
    u64::from_str_radix(caught, 16).unwrap() & (1 << (signal.as_raw() - 1)) != 0
}

#[test]
fn a_start_that_waits_for_a_file_ends_at_a_signal() {
    let mut daemon = Daemon::configured("manifest: /dev/stdin");
    daemon.spawn_with(daemon.command(), Stdio::piped());
    until("it listens to signals", || is_listened_to(&daemon, Signal::TERM));
    assert_eq!(daemon.terminate().code(), Some(0), "{}", daemon.log());
    assert_eq!(daemon.logged("stopped while starting").len(), 1, "{}", daemon.log());
}

#[cfg(debug_assertions)]
#[test]
fn a_start_that_hangs_among_its_agents_ends_in_time_and_at_once_at_a_second_signal() {
    use machine::crash_point::{CrashPoint, VARIABLE};
    let mut daemon = Daemon::configured("stop: { timeout: 1s, leak_grace: 100ms }");
    for n_signals in [1, 2] {
        let mut command = daemon.command();
        command.env(VARIABLE, format!("{:?}@hang", CrashPoint::StockTaken));
        daemon.spawn_as(command);
        // This is the last line of the log before it takes stock.
        until("it takes stock", || daemon.log().contains("control group"));
        for _ in 1..n_signals {
            daemon.signal(Signal::TERM);
            until("it heard the first one", || {
                !daemon.logged("stopping when the start is finished").is_empty()
            });
        }
        let code = daemon.terminate().code();
        let (expected, message) = match n_signals {
            1 => (0, "the start did not finish; the agents are left to their shims"),
            _ => (128 + 15, "received a second signal; not waiting any longer"),
        };
        assert_eq!((code, daemon.logged(message).len()), (Some(expected), 1), "{}", daemon.log());
    }
}
