//! `store copy`: a running fleet moves from SQLite to PostgreSQL and back; refusals; passwords.

use std::process::Stdio;

use ::postgres::NoTls;
use domain::forge::ForgeKind;
use rustix::process::Signal;
use serde_json::Value;

use super::check_fails;
use crate::daemon::Daemon;
use crate::forges::{Bed, check_comments, n_comments};
use crate::postgres::{Cluster, database};
use crate::support::{is_gone, until};

/// Returns the number of the newest event.
fn newest_event(daemon: &Daemon) -> i64 {
    let history = daemon.json(&["task", "history", "tsk"]);
    let numbers = history.as_array().unwrap().iter().map(|event| event["seq"].as_i64().unwrap());
    numbers.max().unwrap()
}

#[test]
fn a_fleet_moves_to_postgresql_and_back_while_its_agent_runs() {
    let Some(database) = database() else { return };
    let url = database.url();
    let mut daemon = Daemon::running("store: { url: 'sqlite:one.db' }");
    daemon.with_one_task(&["append:pids", "authenticate", "wait-for:go", "report:success"]);
    let before = daemon.until_in_state("agt", "running");
    let mut newest = newest_event(&daemon);
    // The log of the database has not been emptied.
    daemon.kill();

    for (from, to) in [("sqlite:one.db", url.as_str()), (url.as_str(), "sqlite:two.db")] {
        let copied = daemon.json(&["store", "copy", "--from", from, "--to", to]);
        let rows = |table: &str| -> Value {
            let all = copied["tables"].as_array().unwrap();
            all.iter().find(|found| found["table"] == table).unwrap()["rows"].clone()
        };
        assert_eq!(
            (rows("tasks"), rows("launches"), rows("pauses")),
            (1.into(), 1.into(), 0.into())
        );
        daemon.configure(&format!("store: {{ url: '{to}' }}"));
        daemon.start();
        let after = daemon.until_in_state("agt", "running");
        assert_eq!((&after["launch_id"], &after["pid"]), (&before["launch_id"], &before["pid"]));
        daemon.done(&["task", "set", "tsk", "--title", to]);
        let next = newest_event(&daemon);
        assert!(next > newest, "{next} follows {newest}");
        newest = next;
        // This signal keeps the agents.
        daemon.signal(Signal::USR1);
        daemon.wait();
    }
    daemon.start();
    daemon.write("work/go", "");
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
    assert_eq!(daemon.json(&["task", "show", "tsk"])["title"], "sqlite:two.db");
    let pids = std::fs::read_to_string(daemon.work().join("pids")).unwrap();
    assert_eq!(pids.lines().count(), 1, "the agent was started once");
    assert!(is_gone(i32::try_from(before["pid"].as_i64().unwrap()).unwrap()));
}

/// Returns the items of forges, the tasks and the launches.
fn stored(daemon: &Daemon) -> Vec<Value> {
    let only = |found: Value, fields: &[&str]| -> Value {
        let fields_of = |row: &Value| fields.iter().map(|name| row[name].clone()).collect();
        found.as_array().unwrap().iter().map(fields_of).collect::<Vec<Value>>().into()
    };
    let of_item = ["id", "item", "task_id", "state", "position", "owed", "cause"];
    let of_launch = ["launch_id", "pid", "task_id", "state", "outcome"];
    vec![
        only(daemon.json(&["forge", "list"]), &of_item),
        only(daemon.json(&["forge", "list", "--ended"]), &of_item),
        daemon.json(&["task", "list"]),
        only(daemon.open("agt").into(), &of_launch),
        only(daemon.ended("agt").into(), &of_launch),
    ]
}

#[test]
fn items_of_forges_move_to_postgresql_and_back_and_go_on() {
    let Some(database) = database() else { return };
    let (one, there, two) = ("sqlite:one.db", database.url(), "sqlite:two.db");
    let there = there.as_str();
    let store = |url: &str| format!("store: {{ url: '{url}' }}");
    let mut bed = Bed::with(
        ForgeKind::GitHub,
        &["authenticate", "get-my-task", "wait-for:go.0", "report:success"],
        &store(one),
    );
    for (n, (from, to)) in [(one, there), (there, two)].into_iter().enumerate() {
        let issue = bed.issue(&format!("Problem {n}"));
        bed.until("processing");
        bed.until_agent_runs();
        let before = stored(&bed.daemon);
        // This signal keeps the agents.
        bed.daemon.signal(Signal::USR1);
        bed.daemon.wait();
        bed.daemon.json(&["store", "copy", "--from", from, "--to", to]);
        let forge = Bed::settings(&bed.fake, bed.forge, "");
        bed.daemon.configure(&format!("{forge}\n{}", store(to)));
        bed.daemon.start();
        bed.until_agent_runs();
        assert_eq!(stored(&bed.daemon), before);
        let next = format!("wait-for:go.{}", n + 1);
        bed.daemon.steps("agt", &["authenticate", "get-my-task", &next, "report:success"]);
        bed.daemon.write(&format!("work/go.{n}"), "");
        bed.until_labelled(&issue, "coding agent done");
        until("its end is told", || n_comments(&issue, "Task done") > 0);
        check_comments(&issue, &["Task started", "Task done"]);
    }
    // The last database takes new items, too.
    let issue = bed.issue("Problem 2");
    bed.daemon.write("work/go.2", "");
    bed.until_labelled(&issue, "coding agent done");
    assert_eq!(bed.daemon.ended("agt").len(), 3, "each item had one launch");
}

#[test]
fn each_table_is_reported_and_shown_in_the_end() {
    let mut daemon = Daemon::running("store: { url: 'sqlite:one.db' }");
    daemon.project("prj");
    daemon.terminate();
    let said = daemon.cli(&["store", "copy", "--from", "sqlite:one.db", "--to", "sqlite:two.db"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stderr.contains("projects: 1 row copied and compared\n"), "{said:?}");
    assert!(said.stdout.starts_with("TABLE "), "{said:?}");
    let shown = said.stdout.lines().find(|line| line.starts_with("projects")).unwrap();
    let cells: Vec<&str> = shown.split_whitespace().collect();
    assert!(cells.len() == 3 && cells[1] == "1" && cells[2].len() == 32, "{cells:?}");
    assert_eq!(said.stderr.lines().count() + 1, said.stdout.lines().count(), "{said:?}");
}

#[test]
fn a_store_that_a_daemon_uses_is_neither_read_nor_filled() {
    let daemon = Daemon::running("store: { url: 'sqlite:one.db' }");
    let fails = |from: &str, to: &str, why: &str| {
        check_fails(&daemon, &["store", "copy", "--from", from, "--to", to], 1, why)
    };
    let pid = format!("first: another daemon (pid {})", daemon.pid());
    fails("sqlite:one.db", "sqlite:two.db", &pid);
    assert!(!daemon.folder().join("two.db").exists());
    fails("sqlite:one.db", "sqlite:./one.db", "can't be copied into itself");
    fails("sqlite:two.db", "sqlite:one.db", "there is no database");
    fails("sqlite:one.db", "sqlite:none/two.db", "there is no folder for the database");
    assert!(!daemon.folder().join("two.db.lock").exists());

    let Some(database) = database() else { return };
    let url = database.url();
    let on_postgres = Daemon::running(&format!("store: {{ url: '{url}' }}"));
    let first = format!("(pid {})`", on_postgres.pid());
    fails(&url, "sqlite:two.db", &first);
    let mut third = Daemon::running("store: { url: 'sqlite:three.db' }");
    third.terminate();
    let three = format!("sqlite:{}", third.folder().join("three.db").display());
    fails(&three, "sqlite:one.db", &pid);
    fails(&three, &url, &first);
    fails(&three, &url, "is used by another server");
}

#[test]
fn a_url_that_makes_no_sense_is_told_without_its_password() {
    let daemon = Daemon::configured("");
    let fails = |arguments: &[&str], why: &str| {
        let said = check_fails(&daemon, &[&["store", "copy"], arguments].concat(), 2, why);
        assert!(!said.stderr.contains("hunter2"), "{said:?}");
    };
    fails(&["--from", "sqlite:a.db"], "--to <URL>");
    fails(&["--from", "a.db", "--to", "sqlite:b.db"], "--from: expected `sqlite:` and the path");
    fails(
        &["--from", "sqlite:a.db", "--to", "postgres://u:hunter2@localhost/d"],
        "--to: the URL has a password, which other users see in the list of processes: \
         write it into a file and name that with `--to-password-file`",
    );
    fails(
        &["--from", "postgres://u@localhost/d?password=hunter2", "--to", "sqlite:a.db"],
        "name that with `--from-password-file`",
    );
    fails(
        &["--from", "sqlite:a.db", "--to", "sqlite:b.db", "--to-password-file", "c"],
        "--to-password-file: an SQLite file has no password",
    );
    fails(
        &["--from", "sqlite:a.db", "--to", "postgres://localhost/d"],
        "--to: the URL names no user",
    );
}

#[test]
fn the_options_of_a_url_are_never_shown() {
    let url = "postgres://u@127.0.0.1:1/d?options=-c%20x.secret%3Dhunter2";
    let daemon = Daemon::configured(&format!("store: {{ url: '{url}' }}"));
    for arguments in [
        &["check"][..],
        &["doctor"],
        &["backup", "saved.db"],
        &["run"],
        &["store", "copy", "--from", url, "--to", "sqlite:a.db"],
    ] {
        let said = daemon.cli(arguments);
        let all = format!("{}{}", said.stdout, said.stderr);
        assert!(all.contains("127.0.0.1:1/d?options=***"), "{arguments:?}: {all}");
        assert!(!all.contains("hunter2"), "{arguments:?}: {all}");
    }
    // A report about the file shows its lines.
    for url in [
        "'postgres:///d?host=h&user=u&password=hunter2'",
        "'postgres:///d?host=h&options=hunter2'",
        "'postgres://u:hunter2@h/d",
    ] {
        daemon.configure(&format!("store:\n  url: {url}\nmax_concurrent: 0"));
        let said = daemon.cli(&["check"]);
        assert!(said.code == 78 && !said.stderr.contains("hunter2"), "{said:?}");
    }
}

#[test]
fn a_password_is_taken_from_a_file_and_never_shown() {
    let Some(mut cluster) = Cluster::start(&[]) else { return };
    cluster.run_sql("postgres", "CREATE USER guarded PASSWORD 'right-one'");
    cluster.run_sql("postgres", "CREATE DATABASE guarded OWNER guarded TEMPLATE template0");
    let rules = cluster.folder().join("data/pg_hba.conf");
    let text = std::fs::read_to_string(&rules).unwrap();
    std::fs::write(&rules, format!("local all guarded scram-sha-256\n{text}")).unwrap();
    cluster.start_again(&[]);
    let url = cluster.url("guarded", "guarded");

    let mut daemon = Daemon::running("store: { url: 'sqlite:one.db' }");
    daemon.project("prj");
    daemon.terminate();
    daemon.write("right", "right-one\n");
    daemon.write("wrong", "hunter2\n");
    daemon.write("empty", "\n");
    let there = ["store", "copy", "--from", "sqlite:one.db", "--to", &url];
    let with = |file: &'static str| [&there[..], &["--to-password-file", file]].concat();
    for (arguments, why) in [
        (there.to_vec(), "PostgreSQL refused the login of `guarded`"),
        (with("wrong"), "name it with `--from-password-file` or `--to-password-file`"),
        (with("empty"), "write the password of the store into it"),
        (with("none"), "could not read the password of the store in"),
    ] {
        let said = check_fails(&daemon, &arguments, 1, why);
        assert!(!said.stderr.contains("hunter2"), "{said:?}");
    }
    let said = daemon.cli(&with("right"));
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!format!("{said:?}").contains("right-one"), "{said:?}");
    let back = ["store", "copy", "--from", &url, "--to", "sqlite:two.db"];
    let copied = daemon.json(&[&back[..], &["--from-password-file", "right"]].concat());
    assert_eq!((&copied["from"], &copied["to"]), (&Value::from(url.as_str()), &two(&daemon)));
}

fn two(daemon: &Daemon) -> Value {
    format!("sqlite:{}", daemon.folder().join("two.db").display()).into()
}

#[test]
fn a_copy_that_is_killed_in_the_middle_leaves_the_target_empty_and_free() {
    let Some(database) = database() else { return };
    let url = database.url();
    let mut daemon = Daemon::running("store: { url: 'sqlite:one.db' }");
    daemon.project("prj");
    daemon.done(&["task", "add", "--id", "tsk", "--project", "prj", "--title", "a title"]);
    daemon.terminate();
    let there = ["store", "copy", "--from", "sqlite:one.db", "--to", &url];
    daemon.done(&there);
    database.run_sql(
        "DO $$ DECLARE t name; BEGIN FOR t IN SELECT relname FROM pg_stat_user_tables \
        WHERE relname NOT IN ('_sqlx_migrations', 'writer') LOOP EXECUTE 'DELETE FROM ' || t; \
        END LOOP; END $$",
    );

    // The table of tasks is the last one.
    let config = ::postgres::Config::from(database.parsed_url().hosts()[0].clone());
    let mut other = config.connect(NoTls).unwrap();
    other.batch_execute("BEGIN; LOCK TABLE tasks IN SHARE MODE").unwrap();
    let mut command = daemon.command();
    command.args(there).stdout(Stdio::null()).stderr(Stdio::null());
    let mut copying = command.spawn().unwrap();
    until("the copy waits in front of the tasks", || {
        assert_eq!(copying.try_wait().unwrap(), None);
        let sql = "SELECT COUNT(*) FROM pg_locks \
            WHERE NOT granted AND relation = CAST('tasks' AS regclass)";
        database.run_sql(sql) == "1"
    });
    copying.kill().unwrap();
    copying.wait().unwrap();
    other.batch_execute("ROLLBACK").unwrap();
    drop(other);
    let free = "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' \
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    until("the session has ended", || database.run_sql(free) == "0");
    for table in ["agents", "events", "projects", "tasks"] {
        assert_eq!(database.run_sql(&format!("SELECT COUNT(*) FROM {table}")), "0", "{table}");
    }
    daemon.done(&there);
    assert_eq!(database.run_sql("SELECT id FROM tasks"), "tsk");
}
