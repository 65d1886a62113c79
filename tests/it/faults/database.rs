//! F-41: the database of a running daemon. Its file is deleted or replaced.

use std::fs;

use machine::instance_dir;

use crate::daemon::{Daemon, IN_A_FILE};
use crate::service::{NO_PAUSES, PAUSES_AGAIN};
use crate::support::{is_gone, until, until_some_within};

const NOT_IN_ITS_PLACE: &str = "the database is not in its place: nothing is written and no agent starts; running agents go on";

/// Returns a daemon with a running agent that ends with 7 when it is told to, and another agent
/// without work.
fn with_a_running_agent() -> (Daemon, i32) {
    let daemon = Daemon::running(IN_A_FILE);
    let steps = ["authenticate", "get-my-task", "write:ready", "wait-for:go", "exit:7"];
    daemon.with_one_task(&steps);
    daemon.agent("other", "prj", &["write:other", "wait-for:never"]);
    let pid = daemon.written_pid("ready");
    (daemon, pid)
}

/// Waits until the daemon notices it by itself, without any write.
fn until_noticed(daemon: &Daemon) {
    let begun = std::time::Instant::now();
    let line = until_some_within(
        std::time::Duration::from_secs(20),
        || daemon.logged(NOT_IN_ITS_PLACE).pop(),
        || format!("nothing was noticed:\n{}", daemon.log()),
    );
    assert!(begun.elapsed().as_secs() < 10, "it took {:?}", begun.elapsed());
    assert_eq!(line["level"], "error");
    assert!(line["remedy"].as_str().unwrap().contains("put the"), "{line}");
}

fn check_without_database(daemon: &Daemon, agent: i32, expected: &str) {
    let title = ["task", "add", "--project", "prj", "--assignee", "other", "--title", "more"];
    let said = daemon.cli(&[&title[..], &["--status", "in_progress"]].concat());
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stderr.contains("could not write to the store") && said.stderr.contains(expected),
        "{said:?}"
    );
    assert!(!is_gone(agent), "the running agent goes on");
    fs::write(daemon.work().join("go"), "").unwrap();
    until("the end of the agent is kept in its folder", || {
        let folders = fs::read_dir(instance_dir::instances(&daemon.state())).unwrap();
        folders.filter(|folder| instance_dir::is_ended(&folder.as_ref().unwrap().path())).count()
            == 1
    });
    until("it can't be reported", || {
        !daemon.logged("could not report the process to the server; will report again").is_empty()
    });
    assert!(daemon.ended("agt").is_empty());
    assert!(!daemon.work().join("other").exists(), "no agent was started");
    assert_eq!(daemon.logged(NOT_IN_ITS_PLACE).len(), 1);
}

#[test]
fn a_database_that_is_moved_away_and_back_delays_and_loses_nothing() {
    let (daemon, agent) = with_a_running_agent();
    let (database, away) = (daemon.state().join("state.db"), daemon.state().join("away"));
    fs::rename(&database, &away).unwrap();
    until_noticed(&daemon);
    check_without_database(&daemon, agent, "was deleted or moved");

    fs::rename(&away, &database).unwrap();
    assert_eq!(daemon.until_ended("agt")["exit_code"], 7);
    assert_eq!(daemon.logged("the database is in its place again").len(), 1);
    daemon.task("again", "prj", "other");
    daemon.written_pid("other");
}

#[test]
fn a_database_that_is_replaced_is_used_after_a_restart() {
    let (mut daemon, agent) = with_a_running_agent();
    let (database, copy) = (daemon.state().join("state.db"), daemon.state().join("copy"));
    // This is how a backup is made and brought back later.
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    drop(connection);
    daemon.done(&["project", "add", "later", "--directory", daemon.work().to_str().unwrap()]);
    fs::rename(&copy, &database).unwrap();
    until_noticed(&daemon);
    check_without_database(&daemon, agent, "was replaced");

    daemon.kill();
    daemon.start();
    assert_eq!(daemon.until_ended("agt")["exit_code"], 7);
    let projects = daemon.json(&["project", "list"]);
    assert_eq!(projects.as_array().unwrap().len(), 1, "the backup does not have the later one");
}

#[test]
fn a_daemon_starts_and_holds_starts_although_the_store_cannot_write_the_pause_file() {
    let (mut daemon, agent) = with_a_running_agent();
    let database = rusqlite::Connection::open(daemon.state().join("state.db")).unwrap();
    daemon.kill();
    let file = daemon.state().join("contexts/pause_signal");
    fs::write(&file, "").unwrap();
    database.execute_batch(NO_PAUSES).unwrap();
    daemon.start();
    assert_eq!(daemon.status()["pause_file"], true);
    daemon.task("more", "prj", "other");
    let reason = || daemon.json(&["why", "other", "prj", "--purpose", "task"])[0]["reason"].clone();
    until("the other agent waits for the end of the file", || reason() == "paused");
    assert!(!is_gone(agent), "the running agent goes on");
    fs::write(daemon.work().join("go"), "").unwrap();
    assert_eq!(daemon.until_ended("agt")["exit_code"], 7);

    database.execute_batch(PAUSES_AGAIN).unwrap();
    let n_pauses = || {
        let sql = "SELECT COUNT(*) FROM pauses";
        database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    until("the pause is written", || n_pauses() == 1);
    let told = daemon.logged("could not store whether the pause file exists; will try again");
    assert!((1..=2).contains(&told.len()), "{}", daemon.log());
    assert!(told.iter().all(|line| line["file"] == file.to_str().unwrap()), "{told:?}");
    fs::remove_file(&file).unwrap();
    daemon.written_pid("other");
}
