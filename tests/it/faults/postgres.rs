//! Rows 41 and 42: the PostgreSQL database of a running daemon fails. The daemon and its agents live
//! on. Nothing that was acknowledged is lost, and the work goes on by itself.

use std::fs;
use std::process::Command;
use std::time::Duration;

use machine::instance_dir;
use rustix::process::Signal;

use super::full_disk::{check_with_space, with_two_agents};
use crate::daemon::Daemon;
use crate::postgres::{Cluster, Data, GUARDED, USER, database, own, shared};
use crate::postgres_proxy::Proxy;
use crate::support::{Mount, is_gone, kill, skip, until, until_some_within};

/// The seconds without PostgreSQL in the long form. Without it, PostgreSQL comes back as soon as the
/// daemon and its agents have noticed.
const ABSENCE_VARIABLE: &str = "AGENT_COORDINATOR_TEST_ABSENCE";

fn setting(url: &str) -> String {
    format!("store: {{ url: '{url}' }}")
}

/// Checks that a daemon with this store does not start. Returns its log.
#[track_caller]
fn refused(store: &str, expected: &str) -> String {
    let mut daemon = Daemon::configured(store);
    let (code, said) = daemon.refused();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(expected), "expected `{expected}`:\n{said}");
    said
}

#[test]
fn a_database_that_can_not_be_used_is_named_with_the_remedy_and_without_the_password() {
    let Some(database) = database() else { return };
    let cluster = shared().unwrap();
    let guarded = GUARDED[1];
    database.run_sql(&format!("CREATE USER {guarded} PASSWORD 'right'"));
    let store = |url: &str| format!("store: {{ url: '{url}', password: hunter2 }}");
    let url = cluster.url(guarded, &database.name);
    for (url, expected) in [
        (url.as_str(), "PostgreSQL refused the login of `guarded_daemon`"),
        (&cluster.url(USER, "no_such_database"), "create it with `CREATE DATABASE"),
        ("postgres://u@%2Fno-such-folder/d", "start PostgreSQL, or correct the host"),
    ] {
        let said = refused(&store(url), expected);
        assert!(said.contains(url) && !said.contains("hunter2"), "{said}");
    }
}

#[test]
fn a_second_daemon_on_the_database_names_the_first() {
    let Some(database) = database() else { return };
    let store = setting(&database.url());
    let mut first = Daemon::running(&store);
    let name = format!("(pid {})`", first.pid());
    let said = refused(&store, "is used by another server");
    assert!(said.contains(&name) && said.contains("end that one"), "{said}");
    first.project("prj");
    // A daemon that was killed does not hold up the next one.
    first.kill();
    first.start();
    assert_eq!(first.json(&["project", "list"])[0]["id"], "prj");
}

/// Returns a server of its own, and a daemon on it with two agents at work.
fn with_two_agents_on_postgresql() -> Option<(Cluster, Daemon)> {
    let cluster = own()?;
    let daemon = with_two_agents_on(&cluster);
    Some((cluster, daemon))
}

fn with_two_agents_on(cluster: &Cluster) -> Daemon {
    let url = cluster.url(USER, &cluster.create_database(""));
    let daemon = Daemon::running(&format!("backoff: {{ initial: 1m }}\n{}", setting(&url)));
    with_two_agents(&daemon);
    daemon
}

/// Lets both agents go on without PostgreSQL: one ends, and the other insists on its report.
fn go_without_postgresql(daemon: &Daemon) {
    until("status says that the store does not answer", || {
        let said = daemon.cli(&["status"]);
        let sentences = ["The store does not answer", "The store has not", "written to the store"];
        sentences.iter().any(|sentence| said.stdout.contains(sentence))
    });
    fs::write(daemon.work().join("go"), "").unwrap();
    until("the end of an agent is kept in its folder", || {
        let folders = fs::read_dir(instance_dir::instances(&daemon.state())).unwrap();
        folders.filter(|folder| instance_dir::is_ended(&folder.as_ref().unwrap().path())).count()
            == 1
    });
    assert!(!is_gone(daemon.written_pid("ready.agt")));
}

#[test]
fn an_absence_of_postgresql_delays_and_loses_nothing() {
    let Some((mut cluster, daemon)) = with_two_agents_on_postgresql() else { return };
    cluster.stop(Data::Kept);
    go_without_postgresql(&daemon);
    if let Ok(absence) = std::env::var(ABSENCE_VARIABLE) {
        std::thread::sleep(Duration::from_secs(absence.parse().unwrap()));
    }
    cluster.run(&[]);
    check_with_space(&daemon);
    daemon.until_nothing_is_left();
}

#[test]
fn a_killed_postgresql_delays_and_loses_nothing() {
    let Some((mut cluster, daemon)) = with_two_agents_on_postgresql() else { return };
    // The processes of the sessions end by themselves.
    kill(cluster.pid(), Signal::KILL);
    go_without_postgresql(&daemon);
    cluster.start_again(&[]);
    check_with_space(&daemon);
    daemon.until_nothing_is_left();
}

/// Moves the write-ahead log of a stopped server to a file system that has room for three files of
/// it. Returns `None` if this user may not mount one.
fn with_small_log(cluster: &Cluster) -> Option<Mount> {
    let log = cluster.folder().join("data/pg_wal");
    let former = cluster.folder().join("data/former_pg_wal");
    fs::rename(&log, &former).unwrap();
    fs::create_dir(&log).unwrap();
    let owner = cluster.user().map_or_else(String::new, |user| format!(",uid={user},gid={user}"));
    let mount = Mount::small(&log, &format!("size=56m,mode=0700{owner}"))?;
    let copied = Command::new("cp").arg("-a").arg(former.join(".")).arg(&log).status();
    assert!(copied.unwrap().success());
    Some(mount)
}

/// PostgreSQL ends itself if there is no room for its log. It does not start before there is.
#[test]
fn a_full_disk_of_the_log_of_postgresql_delays_and_loses_nothing() {
    let Some(mut cluster) = own() else { return };
    cluster.stop(Data::Kept);
    let Some(mount) = with_small_log(&cluster) else {
        skip("this user may not mount a file system");
        return;
    };
    cluster.run(&[]);
    let daemon = with_two_agents_on(&cluster);
    let mut made = Vec::new();
    let refused = loop {
        let name = format!("made_{}", made.len());
        let directory = daemon.work();
        let add = ["project", "add", &name, "--directory", directory.to_str().unwrap()];
        let said = daemon.cli(&add);
        if said.code != 0 {
            break said;
        }
        made.push(name);
        assert!(made.len() < 100, "the disk is not full");
        // The next change begins a new file. This session ends with PostgreSQL if that is too much.
        let mut psql = cluster.command("psql");
        psql.args(["-XAtq", "-U", USER, "-d", "postgres", "-c", "SELECT pg_switch_wal()", "-h"]);
        let _ = psql.arg(cluster.folder()).output().unwrap();
    };
    assert!(refused.stderr.contains("could not write to the store"), "{refused:?}");
    let log = fs::read_to_string(cluster.folder().join("log")).unwrap();
    assert!(log.contains("PANIC") && log.contains("No space left on device"), "{log}");
    go_without_postgresql(&daemon);
    let mut larger = Command::new("mount");
    larger.args(["-o", "remount,size=512m"]).arg(cluster.folder().join("data/pg_wal"));
    assert!(larger.status().unwrap().success());
    cluster.start_again(&[]);
    check_with_space(&daemon);
    let found = daemon.json(&["project", "list"]);
    let found: Vec<&str> =
        found.as_array().unwrap().iter().map(|project| project["id"].as_str().unwrap()).collect();
    for name in &made {
        assert!(found.contains(&name.as_str()), "{name} was acknowledged: {found:?}");
    }
    daemon.until_nothing_is_left();
    cluster.stop(Data::Removed);
    drop(mount);
}

#[test]
fn agents_start_and_work_with_a_slow_postgresql() {
    let Some(database) = database() else { return };
    let proxy = Proxy::to(shared().unwrap().folder());
    let agents = ["agt_a", "agt_b", "agt_c"];
    let mut daemon = Daemon::configured(&format!(
        "manifest: manifest.yaml\n{}",
        setting(&proxy.url(&database.name))
    ));
    daemon.manifest(&agents);
    for agent in agents {
        daemon.steps(agent, &["authenticate", "get-my-task", "report:success"]);
    }
    proxy.slow_down(Duration::from_millis(50));
    daemon.start();
    let sql = "SELECT COUNT(*) FROM tasks WHERE status = 'done'";
    until_some_within(
        Duration::from_mins(1),
        || (database.run_sql(sql) == "3").then_some(()),
        || format!("the tasks are not done:\n{}", daemon.log()),
    );
    proxy.slow_down(Duration::ZERO);
    for agent in agents {
        assert_eq!(daemon.until_ended(agent)["outcome"], "completed");
        assert_eq!(daemon.ended(agent).len(), 1, "it was started once");
    }
}
