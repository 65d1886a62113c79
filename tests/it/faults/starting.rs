//! What keeps a daemon from starting: it says so in clear words, with exit code 1, and leaves what it found as it was.

use std::fs;
use std::path::Path;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};

use crate::daemon::Daemon;

#[track_caller]
fn check_refused(daemon: &mut Daemon, file: &Path, expected: &str) {
    let before = fs::read(file).unwrap();
    let (code, said) = daemon.refused();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(expected) && said.contains(file.to_str().unwrap()), "expected `{expected}`:\n{said}");
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

/// A state directory that a daemon has used and left, and its database.
fn used() -> (Daemon, std::path::PathBuf) {
    let mut daemon = Daemon::running("");
    daemon.project("prj");
    daemon.terminate();
    let database = daemon.state().join("state.db");
    (daemon, database)
}

/// Runs `sql` as another program would, and keeps the connection.
fn stranger(runtime: &tokio::runtime::Runtime, database: &Path, sql: &'static str) -> SqliteConnection {
    runtime.block_on(async {
        let mut connection = SqliteConnectOptions::new().filename(database).connect().await.unwrap();
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
        connection
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
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
    let runtime = runtime();
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                 VALUES (99, 'the future', 1, x'00', 0)";
    let connection = stranger(&runtime, &database, newer);
    runtime.block_on(connection.close()).unwrap();
    check_refused(&mut daemon, &database, "written by a newer version");
}

#[test]
fn a_locked_database_is_named_and_works_when_it_is_free() {
    let (mut daemon, database) = used();
    let runtime = runtime();
    let connection = stranger(&runtime, &database, "BEGIN IMMEDIATE");
    check_refused(&mut daemon, &database, "is locked by another process");
    runtime.block_on(connection.close()).unwrap();
    daemon.start();
    assert_eq!(daemon.json(&["project", "list"])[0]["id"], "prj");
}

#[test]
fn a_lock_on_the_database_while_it_runs_delays_and_loses_nothing() {
    let daemon = Daemon::running("");
    daemon.with_one_task(&["authenticate", "get-my-task", "write:ready", "wait-for:go", "exit:7"]);
    daemon.written_pid("ready");
    let runtime = runtime();
    let connection = stranger(&runtime, &daemon.state().join("state.db"), "BEGIN IMMEDIATE");
    fs::write(daemon.work().join("go"), "").unwrap();
    crate::support::until("it could not be reported", || {
        !daemon.logged("could not report; will report again").is_empty()
    });
    daemon.done(&["status"]);
    runtime.block_on(connection.close()).unwrap();
    assert_eq!(daemon.until_ended("agt")["exit_code"], 7);
    assert_eq!(daemon.status()["counters"]["found_by_poll_only"], 0);
}
