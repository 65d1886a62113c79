//! `backup` of a daemon that runs, and `restore` on the same and on another state directory; files
//! that are no backup; a full disk; a process that was killed.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;

use rusqlite::Connection;
use serde_json::Value;
use store::backup::{IfExists, Origin, back_up};

use crate::daemon::Daemon;
use crate::support::{Mount, skip, until};

const STORE: &str = "store: { url: 'sqlite:one.db' }\nbackoff: { initial: 1m }";
const STEPS: &[&str] = &["append:pids", "authenticate", "wait-for:go", "report:success"];

/// Checks that a command fails with this text and prints nothing else.
#[track_caller]
fn fails(daemon: &Daemon, arguments: &[&str], why: &str) {
    let said = daemon.cli(arguments);
    assert_eq!((said.code, said.stdout.as_str()), (1, ""), "{arguments:?}: {said:?}");
    assert!(said.stderr.contains(why), "{arguments:?}: {}", said.stderr);
}

/// Returns the names of the files in the folder of a daemon that begin with this text.
fn files(daemon: &Daemon, start: &str) -> Vec<String> {
    let entries = fs::read_dir(daemon.folder()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(start)).collect();
    names.sort();
    names
}

fn short_id(daemon: &Daemon, task: &str) -> String {
    daemon.json(&["task", "show", task])["short_id"].as_str().unwrap().to_owned()
}

fn add_task(daemon: &Daemon, task: &str) {
    daemon.done(&["task", "add", "--id", task, "--project", "prj", "--title", "a title"]);
}

#[test]
fn a_backup_of_a_running_daemon_is_restored_on_another_state_directory() {
    let mut daemon = Daemon::running(STORE);
    daemon.with_one_task(STEPS);
    let before = daemon.until_in_state("agt", "running");
    let saved = daemon.json(&["backup", "saved.db"]);
    assert_eq!((&saved["tasks"], &saved["open_launches"]), (&1.into(), &1.into()), "{saved}");
    assert_eq!(saved["left_out"].as_array().unwrap().len(), 4);
    let file = daemon.folder().join("saved.db");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
    assert_eq!(files(&daemon, "saved.db"), ["saved.db"], "the backup is one file");

    fails(&daemon, &["backup", "saved.db"], "exists, and was left as it is");
    fails(&daemon, &["backup", "one.db", "--force"], "is the database in use");
    fails(&daemon, &["backup", "work"], "is not a file");
    fails(&daemon, &["backup", "none/saved.db"], "none/saved.db`: No such file");
    let said = daemon.done(&["backup", "saved.db", "--force"]);
    assert!(said.contains("1 project, 1 agent, 1 task, 0 messages"), "{said}");
    assert!(said.contains("1 launch has not ended") && said.contains("not in it:"), "{said}");
    // A task that the backup does not know.
    add_task(&daemon, "later");
    assert_eq!(short_id(&daemon, "later"), "PRJ-2");
    // The machine is lost.
    daemon.kill();

    let mut other = Daemon::configured(STORE);
    let said = other.done(&["restore", file.to_str().unwrap()]);
    assert!(said.contains("there was no state before"), "{said}");
    assert!(said.contains("the next task of `PRJ` is PRJ-102"), "{said}");
    assert!(said.contains("launches that had not ended: 1"), "{said}");
    other.start();
    let ended = other.until_ended("agt");
    assert_eq!(
        (&ended["launch_id"], ended["outcome"].as_str()),
        (&before["launch_id"], Some("lost"))
    );
    let coordinator =
        |daemon: &Daemon| fs::read_to_string(daemon.state().join("coordinator_id")).unwrap();
    assert_ne!(coordinator(&other), coordinator(&daemon));
    add_task(&other, "next");
    assert_eq!(short_id(&other, "next"), "PRJ-102");
}

/// Returns the least and the greatest of the numbers in rows that each transaction writes alike.
fn numbers(database: &Connection) -> (i64, i64) {
    let sql = "SELECT MIN(CAST(substr(tail, 1, 9) AS INTEGER)), \
               MAX(CAST(substr(tail, 1, 9) AS INTEGER)) FROM output_tails";
    database.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}

#[test]
fn a_backup_during_writes_and_checkpoints_is_one_state() {
    let mut daemon = Daemon::configured("store: { url: 'sqlite:real/one.db' }");
    fs::create_dir(daemon.folder().join("real")).unwrap();
    daemon.start();
    daemon.terminate();
    // The log is beside the file that a link leads to.
    std::os::unix::fs::symlink("real/one.db", daemon.folder().join("link.db")).unwrap();
    daemon.configure("store: { url: 'sqlite:link.db' }");
    let path = daemon.folder().join("real/one.db");
    let writer = Connection::open(&path).unwrap();
    writer.execute_batch("PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 0").unwrap();
    let text = "x".repeat(9_000);
    for n in 0..2_000 {
        let sql = "INSERT INTO output_tails (launch_id, tail) VALUES (?1, ?2)";
        writer.execute(sql, (format!("lch_{n}"), format!("000000000{text}"))).unwrap();
    }
    writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicI64::new(0));
    let writing = thread::spawn({
        let is_over = is_over.clone();
        let written = written.clone();
        move || {
            let modes = ["PASSIVE", "FULL", "RESTART", "TRUNCATE"];
            for (n, mode) in (1..).zip(modes.iter().cycle()) {
                let sql = "UPDATE output_tails SET tail = ?1";
                writer.execute(sql, [format!("{n:09}{text}")]).unwrap();
                written.store(n, Ordering::SeqCst);
                let sql = format!("PRAGMA wal_checkpoint({mode})");
                writer.query_row(&sql, [], |_| Ok(())).unwrap();
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
            }
        }
    });
    for _ in 0..12 {
        let before = written.load(Ordering::SeqCst);
        daemon.done(&["backup", "saved.db", "--force"]);
        let (least, greatest) =
            numbers(&Connection::open(daemon.folder().join("saved.db")).unwrap());
        assert_eq!(least, greatest, "the backup has parts of several states");
        assert!(least >= before, "{least}, and {before} was committed before it began");
    }
    is_over.store(true, Ordering::SeqCst);
    writing.join().unwrap();
    assert_eq!(files(&daemon, "saved.db"), ["saved.db"]);
}

#[test]
fn a_log_that_begins_anew_during_a_backup_is_not_in_it() {
    let mut daemon = Daemon::running(STORE);
    daemon.terminate();
    let path = daemon.folder().join("one.db");
    let writer = Connection::open(&path).unwrap();
    writer
        .execute_batch(
            "PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 0",
        )
        .unwrap();
    let text = "x".repeat(9_000);
    for n in 0..300 {
        let sql = "INSERT INTO output_tails (launch_id, tail) VALUES (?1, ?2)";
        writer.execute(sql, (format!("lch_{n}"), format!("000000000{text}"))).unwrap();
    }
    let write = |n: i64| {
        let sql = "UPDATE output_tails SET tail = ?1";
        writer.execute(sql, [format!("{n:09}{text}")]).unwrap();
    };
    (1..=20).for_each(write);
    // The whole log is in the file, so the next writer begins it anew and makes it short.
    let checkpoint = || {
        writer.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
    };
    checkpoint();
    let log = || fs::metadata(daemon.folder().join("one.db-wal")).unwrap().len();
    let long = log();
    assert!(long > 8 << 20, "{long}");
    let n_asked = std::cell::Cell::new(0);
    let before_the_second_part = || {
        n_asked.set(n_asked.get() + 1);
        if n_asked.get() == 2 {
            write(21);
            checkpoint();
        }
        false
    };
    let origin = Origin {
        coordinator: None,
        place: "here".to_owned(),
        made_at: 0,
        version: "test".to_owned(),
    };
    let saved = daemon.folder().join("saved.db");
    back_up(&path, &saved, IfExists::Refuse, &origin, &before_the_second_part).unwrap();
    assert!(n_asked.get() >= 2 && log() < long, "the log began anew");
    assert_eq!(numbers(&writer), (21, 21));
    let saved = Connection::open(saved).unwrap();
    assert_eq!(numbers(&saved), (20, 20), "the state when the backup began");
    let found: String = saved.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "ok");
}

#[test]
fn a_restore_in_the_same_place_keeps_what_it_replaces_and_all_numbers() {
    let mut daemon = Daemon::running(STORE);
    daemon.project("prj");
    add_task(&daemon, "one");
    daemon.done(&["backup", "saved.db"]);
    add_task(&daemon, "two");
    add_task(&daemon, "three");
    fails(&daemon, &["restore", "saved.db"], "stop the daemon first");
    // A clone that the restored state does not know.
    let clone = daemon.state().join("workspaces/prj/wsp_unknown/tree");
    fs::create_dir_all(&clone).unwrap();
    fs::write(clone.join("file"), "work").unwrap();
    daemon.terminate();

    let restored = daemon.json(&["restore", "saved.db"]);
    assert_eq!(restored["new_coordinator_id"], Value::Null);
    let continued = serde_json::json!([{ "key": "PRJ", "next_number": 4 }]);
    assert_eq!((&restored["tasks"], &restored["continued"]), (&1.into(), &continued));
    let replaced = PathBuf::from(restored["replaced"].as_str().unwrap());
    let count = "SELECT COUNT(*) FROM tasks";
    let n: i64 = Connection::open(replaced).unwrap().query_row(count, [], |r| r.get(0)).unwrap();
    assert_eq!(n, 3);
    assert_eq!(files(&daemon, "one.db.restoring"), [""; 0]);

    daemon.start();
    assert_eq!(daemon.json(&["task", "list"]).as_array().unwrap().len(), 1);
    add_task(&daemon, "next");
    assert_eq!(short_id(&daemon, "next"), "PRJ-4");
    daemon.terminate();
    assert_eq!(fs::read_to_string(clone.join("file")).unwrap(), "work");
}

#[test]
fn what_is_no_backup_is_refused_and_the_state_stays() {
    let mut daemon = Daemon::running(STORE);
    daemon.project("prj");
    daemon.done(&["backup", "saved.db"]);
    daemon.terminate();
    let whole = fs::read(daemon.folder().join("saved.db")).unwrap();
    daemon.write("truncated.db", &whole[..whole.len() / 2]);
    daemon.write("cut.db", &whole[..whole.len() - 4096]);
    daemon.write("empty.db", "");
    daemon.write("text", "not a database".repeat(1000));
    daemon.write("dump", "PGDMP\u{1}\u{e}");
    daemon.write("dump.sql", "--\n-- PostgreSQL database dump\n--\n");
    let path = |name: &str| daemon.folder().join(name);
    let change = |name: &str, sql: &str| {
        fs::copy(path("saved.db"), path(name)).unwrap();
        Connection::open(path(name)).unwrap().execute_batch(sql).unwrap();
    };
    change("newer.db", "INSERT INTO _sqlx_migrations VALUES (999, 'x', '', 1, x'00', 0)");
    change("foreign.db", "PRAGMA application_id = 7");
    change(
        "trigger.db",
        "CREATE TRIGGER move AFTER UPDATE ON project_keys
         BEGIN UPDATE projects SET working_directory = '/etc'; END",
    );
    change("view.db", "DROP TABLE comments; CREATE VIEW comments AS SELECT 1 AS id");
    // A view in the place of a table that is read first, whose rows have no end.
    change(
        "endless.db",
        "DROP TABLE _sqlx_migrations; CREATE VIEW _sqlx_migrations AS
         WITH RECURSIVE n (version) AS (SELECT 1 UNION ALL SELECT version + 1 FROM n)
         SELECT version FROM n",
    );
    change("table.db", "CREATE TABLE other (id TEXT)");
    change("column.db", "ALTER TABLE agents ADD COLUMN other TEXT");
    change("index.db", "DROP INDEX tasks_of_parent");
    for (file, why) in [
        ("truncated.db", "truncated.db` is damaged, so nothing was restored: name a whole file"),
        ("cut.db", "cut.db` is damaged, so nothing was restored"),
        ("empty.db", "empty.db` is an empty database"),
        ("text", "is not an SQLite database"),
        ("dump", "restore it with pg_restore or psql"),
        ("dump.sql", "restore it with pg_restore or psql"),
        ("newer.db", "was written by a newer version"),
        ("foreign.db", "is the database of another program"),
        (
            "trigger.db",
            "trigger.db` has another schema than this program made, so nothing was restored: name \
             a whole file that `backup` made: it has the trigger `move`",
        ),
        ("view.db", "it has the view `comments`"),
        ("endless.db", "endless.db` is the database of another program"),
        ("table.db", "it has the table `other`"),
        ("column.db", "its table `agents` differs from schema"),
        ("index.db", "it does not have the index `tasks_of_parent` of schema"),
        ("missing.db", "missing.db` does not exist"),
        ("work", "is not a file"),
        ("one.db", "is the database in use"),
    ] {
        fails(&daemon, &["restore", file], why);
    }
    assert_eq!(files(&daemon, "one.db"), ["one.db", "one.db.lock"]);
    daemon.start();
    assert_eq!(daemon.json(&["project", "list"]).as_array().unwrap().len(), 1);
}

#[test]
fn triggers_and_views_of_another_person_do_not_run_in_a_store() {
    let mut daemon = Daemon::running(STORE);
    daemon.project("prj");
    daemon.terminate();
    let store = daemon.folder().join("one.db");
    let sql = "CREATE TRIGGER move AFTER INSERT ON tasks
               BEGIN UPDATE projects SET name = 'moved'; END";
    Connection::open(&store).unwrap().execute_batch(sql).unwrap();
    daemon.start();
    add_task(&daemon, "one");
    assert_ne!(daemon.json(&["project", "show", "prj"])["name"], "moved");
    let said = daemon.cli(&["backup", "saved.db"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stderr.contains("`restore` will refuse this backup"), "{said:?}");
    assert!(said.stderr.contains("it has the trigger `move`"), "{said:?}");
}

#[test]
fn a_backup_of_an_older_version_is_brought_up_to_date() {
    let mut daemon = Daemon::configured(STORE);
    let old = daemon.folder().join("old.db");
    let written = include_str!("../fixtures/store/schema_10.sql");
    Connection::open(&old).unwrap().execute_batch(written).unwrap();
    let before = fs::read(&old).unwrap();
    daemon.done(&["restore", "old.db"]);
    assert_eq!(fs::read(&old).unwrap(), before, "the backup itself is not changed");
    daemon.start();
    assert!(!daemon.json(&["task", "list"]).as_array().unwrap().is_empty());
}

#[test]
fn a_backup_on_a_full_disk_leaves_nothing() {
    let daemon = Daemon::running(STORE);
    let small = daemon.folder().join("small");
    fs::create_dir(&small).unwrap();
    let Some(_mount) = Mount::small(&small, "size=64k") else {
        skip("this user may not mount a small file system");
        return;
    };
    fails(&daemon, &["backup", "small/saved.db"], "there is no space left");
    assert_eq!(fs::read_dir(&small).unwrap().count(), 0);
    fs::write(small.join("saved.db"), "former").unwrap();
    fails(&daemon, &["backup", "small/saved.db", "--force"], "there is no space left");
    assert_eq!(fs::read_to_string(small.join("saved.db")).unwrap(), "former");
}

#[test]
fn a_restore_on_a_full_disk_changes_nothing() {
    let mut daemon = Daemon::running(STORE);
    daemon.project("prj");
    daemon.done(&["backup", "saved.db"]);
    daemon.terminate();
    let small = daemon.folder().join("small");
    fs::create_dir(&small).unwrap();
    let Some(_mount) = Mount::small(&small, "size=64k") else {
        skip("this user may not mount a small file system");
        return;
    };
    daemon.configure("store: { url: 'sqlite:small/one.db' }");
    fails(&daemon, &["restore", "saved.db"], "there is no space left");
    let left: Vec<_> = fs::read_dir(&small).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["one.db.lock"]);
}

#[test]
fn what_a_killed_backup_left_is_replaced_by_the_next_one() {
    let daemon = Daemon::running(STORE);
    daemon.project("prj");
    daemon.write("saved.db.partial", "the beginning of a backup");
    // The log of a killed backup would be taken for that of the next one.
    let state = daemon.folder().join("one.db-wal");
    fs::copy(&state, daemon.folder().join("saved.db.partial-wal")).unwrap();
    daemon.project("later");
    daemon.done(&["backup", "saved.db"]);
    assert_eq!(files(&daemon, "saved.db"), ["saved.db"]);
    until("the daemon writes on", || daemon.cli(&["pause"]).code == 0);
}

#[test]
fn a_store_in_postgresql_is_left_to_its_own_programs() {
    let daemon = Daemon::configured("store: { url: 'postgres://u@localhost/d' }");
    fails(&daemon, &["backup", "saved.db"], "backed up with pg_dump");
    fails(&daemon, &["restore", "saved.db"], "restored with pg_restore");
}
