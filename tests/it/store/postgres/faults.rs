//! F-48: PostgreSQL fails while transactions run. What was acknowledged stays, and nothing is made
//! twice.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use domain::Task;
use postgres_url::PostgresUrl;
use rustix::process::Signal;
use store::postgres::open::{self, OpenErrorKind, Options};
use store::rows::tasks;
use store::{Engine, Read, StoreError, TaskFilter, Value, Write};
use tokio::task::JoinHandle;

use crate::postgres::{Cluster, Data, Database, USER, database, own, shared, socket, url};
use crate::postgres_proxy::{Fault, Proxy};
use crate::store::rows::task;
use crate::support::{Mount, kill, skip, until, until_some};

use super::options;

/// The number of times that PostgreSQL is killed.
const N_KILLS: usize = 6;
const KILLS_VARIABLE: &str = "AGENT_COORDINATOR_TEST_KILLS";
const N_WRITERS: usize = 8;

async fn opened_at(url: &str) -> Engine {
    let url = url.parse().unwrap();
    let open = move || open::database(&url, options("the only server")).unwrap();
    tokio::task::spawn_blocking(open).await.unwrap()
}

async fn opened(database: &Database<'_>) -> Engine {
    opened_at(&database.url()).await
}

/// Runs `work` on a thread that may block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// Adds a task, and counts how often that was committed.
async fn add(engine: &Engine, name: String) -> Result<(), StoreError> {
    add_and_count(engine, name, Arc::default()).await
}

/// Adds a task. `n_effects` is the number of times that others heard of it.
async fn add_and_count(
    engine: &Engine,
    name: String,
    n_effects: Arc<AtomicUsize>,
) -> Result<(), StoreError> {
    engine
        .write(move |tx: &mut Write<'_>| {
            tx.put(&task(&name, "p", None))?;
            // A second row fails.
            let sql = "INSERT INTO output_tails (launch_id, tail) VALUES (?1, ?2)";
            let args: [Value<'_>; 2] = [(&name).into(), "once".into()];
            tx.execute(sql, &args)?;
            let n_effects = Arc::clone(&n_effects);
            tx.after_commit(move || {
                n_effects.fetch_add(1, Ordering::Relaxed);
            });
            Ok(())
        })
        .await
}

async fn names(engine: &Engine) -> Vec<String> {
    let all: Result<Vec<Task>, StoreError> =
        engine.read(|tx| tasks::list(tx, &TaskFilter::default())).await;
    all.unwrap().into_iter().map(|task| task.title).collect()
}

/// Writers that add tasks one after the other, and a reader, until the end.
struct Load {
    engine: Engine,
    is_over: Arc<AtomicBool>,
    writers: Vec<JoinHandle<BTreeMap<String, Result<(), String>>>>,
    /// Returns the first error of a read.
    reader: JoinHandle<Result<(), StoreError>>,
}

impl Load {
    fn on(engine: &Engine) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let writer = |writer: usize| {
            let (engine, is_over) = (engine.clone(), Arc::clone(&is_over));
            async move {
                let mut answers = BTreeMap::new();
                while !is_over.load(Ordering::Relaxed) {
                    let name = format!("w{writer}-{}", answers.len());
                    let answer = add(&engine, name.clone()).await;
                    answers.insert(name, answer.map_err(|error| format!("{error:?}")));
                }
                answers
            }
        };
        let writers = (0..N_WRITERS).map(|n| tokio::spawn(writer(n))).collect();
        let reader = tokio::spawn({
            let (engine, is_over) = (engine.clone(), Arc::clone(&is_over));
            async move {
                while !is_over.load(Ordering::Relaxed) {
                    let twice = |tx: &mut Read<'_>| {
                        tx.exists("SELECT 1 FROM tasks LIMIT 1", &[])?;
                        tx.exists("SELECT 1 FROM tasks LIMIT 1", &[])
                    };
                    let read: Result<bool, StoreError> = engine.read_with_patience(twice).await;
                    read?;
                }
                Ok(())
            }
        });
        Self { engine: engine.clone(), is_over, writers, reader }
    }

    /// Ends the load. Each task was acknowledged and is there once.
    async fn check(self) {
        self.is_over.store(true, Ordering::Relaxed);
        let mut answers = BTreeMap::new();
        for writer in self.writers {
            answers.extend(writer.await.unwrap());
        }
        let read = self.reader.await.unwrap();
        assert!(read.is_ok(), "a read waited for the server in vain: {read:?}");
        let found = names(&self.engine).await;
        for (name, answer) in &answers {
            let n_found = found.iter().filter(|found| *found == name).count();
            match answer {
                Ok(()) => assert_eq!(n_found, 1, "{name} was acknowledged"),
                Err(error) => panic!("{name} waited for the server in vain: {error}"),
            }
        }
        assert_eq!(found.len(), answers.len());
        self.engine.close().await;
    }
}

/// Returns the number of tasks in the database.
fn count(cluster: &Cluster, database: &str) -> u32 {
    cluster.run_sql(database, "SELECT COUNT(*) FROM tasks").parse().unwrap()
}

/// Waits until the load has added more tasks.
fn until_more(cluster: &Cluster, database: &str) {
    let before = count(cluster, database);
    until("transactions are made", || count(cluster, database) > before + 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_outlives_kills_of_postgresql_and_is_there_once() {
    let Some(mut cluster) = blocking(own).await else { return };
    let name = cluster.create_database("");
    let engine = opened_at(&cluster.url(USER, &name)).await;
    let load = Load::on(&engine);
    let n_kills = std::env::var(KILLS_VARIABLE).ok().and_then(|text| text.parse().ok());
    let cluster = blocking(move || {
        for n in 0..n_kills.unwrap_or(N_KILLS) {
            until_more(&cluster, &name);
            // Alternately the postmaster alone, and all processes.
            if n % 2 == 0 {
                kill(cluster.pid(), Signal::KILL);
            }
            cluster.start_again(&[]);
        }
        until_more(&cluster, &name);
        cluster
    });
    let cluster = cluster.await;
    load.check().await;
    drop(cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_during_commits_doubles_and_loses_nothing() {
    let Some(database) = blocking(database).await else { return };
    let proxy = Proxy::to(shared().unwrap().folder());
    let engine = opened_at(&proxy.url(&database.name)).await;
    for (n, fault) in [Fault::CommitLost, Fault::AnswerLost, Fault::OnlyClientCut]
        .into_iter()
        .cycle()
        .take(9)
        .enumerate()
    {
        proxy.set(fault);
        let n_effects = Arc::default();
        add_and_count(&engine, format!("t{n}"), Arc::clone(&n_effects)).await.unwrap();
        proxy.until_it_happened();
        assert_eq!(n_effects.load(Ordering::Relaxed), 1, "{fault:?}");
        assert_eq!(names(&engine).await.len(), n + 1, "{fault:?}");
    }
    let load = Load::on(&engine);
    let cutting = blocking(move || {
        for fault in [Fault::CommitLost, Fault::AnswerLost, Fault::OnlyClientCut] {
            proxy.set(fault);
            proxy.until_it_happened();
        }
        proxy
    });
    let proxy = cutting.await;
    // The tasks from above are no part of the load.
    database.run_sql("DELETE FROM tasks WHERE title LIKE 't%'");
    load.check().await;
    drop(proxy);
}

/// Waits until the server that has this engine is the only one in the database, and returns the pid
/// of the session that writes.
fn writing_session(database: &Database<'_>) -> i32 {
    let sql = "SELECT l.pid FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database \
        WHERE l.locktype = 'advisory' AND d.datname = current_database()";
    until_some("a session has the lock of the server", || database.run_sql(sql).parse().ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_an_administrator_ends_is_replaced() {
    let Some(database) = tokio::task::spawn_blocking(database).await.unwrap() else { return };
    let engine = opened(&database).await;
    add(&engine, "before".to_owned()).await.unwrap();
    assert_eq!(names(&engine).await.len(), 1);
    database.run_sql(
        "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    add(&engine, "after".to_owned()).await.unwrap();
    assert_eq!(names(&engine).await.len(), 2);
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_fails_undoes_its_closure_and_no_other() {
    let Some(database) = tokio::task::spawn_blocking(database).await.unwrap() else { return };
    let engine = opened(&database).await;
    let ignored = engine.write(|tx: &mut Write<'_>| {
        tx.put(&task("undone", "p", None))?;
        // A query that fails, and a closure that looks away.
        let _ = tx.number("SELECT COUNT(*) FROM no_such_table", &[]);
        Ok::<_, StoreError>(())
    });
    let (ignored, kept) = tokio::join!(ignored, add(&engine, "kept".to_owned()));
    let error = format!("{:?}", ignored.unwrap_err());
    assert!(error.contains("no_such_table"), "{error}");
    kept.unwrap();
    assert_eq!(names(&engine).await, ["kept"]);
    engine.close().await;
}

/// A second program has the lock of the writers, and is stopped by a signal.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_holder_of_the_lock_loses_it() {
    let Some(database) = blocking(database).await else { return };
    let engine = opened(&database).await;
    let mut psql = shared().unwrap().command("psql");
    psql.args(["-XAtq", "-U", USER, "-d", &database.name, "-h"]).arg(shared().unwrap().folder());
    psql.env("PGOPTIONS", "-c idle_in_transaction_session_timeout=500");
    let mut psql = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let script = "BEGIN; LOCK TABLE writer IN EXCLUSIVE MODE; SELECT 'held';\n";
    psql.stdin.as_mut().unwrap().write_all(script.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(psql.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    kill(i32::try_from(psql.id()).unwrap(), Signal::STOP);
    add(&engine, "after".to_owned()).await.unwrap();
    psql.kill().unwrap();
    psql.wait().unwrap();
    assert_eq!(names(&engine).await, ["after"]);
    engine.close().await;
}

/// To PostgreSQL, a closure that does not return looks like a server that was stopped by a signal.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stood_still_in_a_transaction_makes_it_again() {
    let Some(database) = blocking(database).await else { return };
    let engine = opened(&database).await;
    let (n_runs, n_effects) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (thaw, thawed) = mpsc::channel::<()>();
    let (began, has_begun) = mpsc::channel();
    let (runs, effects) = (Arc::clone(&n_runs), Arc::clone(&n_effects));
    let standing_still = engine.write(move |tx: &mut Write<'_>| {
        tx.put(&task("slow", "p", None))?;
        if runs.fetch_add(1, Ordering::Relaxed) == 0 {
            began.send(()).unwrap();
            let _ = thawed.recv();
        }
        let effects = Arc::clone(&effects);
        tx.after_commit(move || {
            effects.fetch_add(1, Ordering::Relaxed);
        });
        Ok::<_, StoreError>(())
    });
    let standing_still = tokio::spawn(standing_still);
    blocking(move || has_begun.recv().unwrap()).await;
    let session = writing_session(&database);
    let sql = format!("SELECT COUNT(*) FROM pg_stat_activity WHERE pid = {session}");
    until("PostgreSQL has ended the session", || database.run_sql(&sql) == "0");
    database.run_sql("BEGIN; LOCK TABLE writer IN EXCLUSIVE MODE; COMMIT");
    drop(thaw);
    standing_still.await.unwrap().unwrap();
    assert_eq!(names(&engine).await, ["slow"]);
    assert_eq!((n_runs.load(Ordering::Relaxed), n_effects.load(Ordering::Relaxed)), (2, 1));
    engine.close().await;
}

/// Resumes a process that was stopped by a signal.
struct Stopped(i32);

impl Stopped {
    fn stop(pid: i32) -> Self {
        kill(pid, Signal::STOP);
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kill(self.0, Signal::CONT);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_postgresql_keeps_no_caller_waiting() {
    let Some(database) = blocking(database).await else { return };
    let url = database.parsed_url();
    let options =
        Options { longest_wait: Duration::from_millis(500), ..options("the only server") };
    let engine = blocking(move || open::database(&url, options).unwrap()).await;
    add(&engine, "before".to_owned()).await.unwrap();
    let session = Stopped::stop(writing_session(&database));
    let n_effects = Arc::new(AtomicUsize::new(0));
    let frozen = add_and_count(&engine, "frozen".to_owned(), Arc::clone(&n_effects)).await;
    let error = format!("{:?}", frozen.unwrap_err());
    assert!(error.contains("has not answered for 500ms"), "{error}");
    assert_eq!(names(&engine).await, ["before"], "reads are answered");
    drop(session);
    until("it is made after all", || n_effects.load(Ordering::Relaxed) == 1);
    add(&engine, "after".to_owned()).await.unwrap();
    assert_eq!(names(&engine).await.len(), 3);
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_of_postgresql_refuses_writes_and_loses_nothing() {
    let Some(mut cluster) = blocking(own).await else { return };
    let disk = cluster.folder_of_its_user();
    let owner = cluster.user().map_or_else(String::new, |user| format!(",uid={user},gid={user}"));
    let Some(mount) = Mount::small(disk.path(), &format!("size=24m,mode=0700{owner}")) else {
        skip("this user may not mount a file system");
        return;
    };
    let space = format!("CREATE TABLESPACE small LOCATION '{}'", disk.path().display());
    cluster.run_sql("postgres", &space);
    let name = cluster.create_database("TABLESPACE small");
    let engine = opened_at(&cluster.url(USER, &name)).await;
    let mut n_made = 0;
    while n_made < 10 {
        add(&engine, format!("t{n_made}")).await.unwrap();
        n_made += 1;
    }
    let filler = disk.path().join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    // There is room in pages that exist.
    let refused = loop {
        match add(&engine, format!("t{n_made}")).await {
            Ok(()) => n_made += 1,
            Err(error) => break error,
        }
        assert!(n_made < 2_000, "the disk is not full");
    };
    let error = format!("{refused:?}");
    assert!(error.contains("could not extend file") && error.contains("No space left"), "{error}");
    assert_eq!(names(&engine).await.len(), n_made, "reads are answered, and nothing is lost");
    std::fs::remove_file(filler).unwrap();
    drop(file);
    add(&engine, "after".to_owned()).await.unwrap();
    assert_eq!(names(&engine).await.len(), n_made + 1);
    engine.close().await;
    cluster.stop(Data::Removed);
    drop(mount);
}

/// The standby gives the id of the lost transaction to another one, and would answer that it was
/// committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_a_promoted_standby_has_lost_is_made_again() {
    let Some(mut primary) = blocking(own).await else { return };
    let name = primary.create_database("");
    let (proxy, gate) = (Proxy::to(primary.folder()), tempfile::tempdir().unwrap());
    let engine = opened_at(&url(&[proxy.folder(), gate.path()], USER, &name)).await;
    add(&engine, "kept".to_owned()).await.unwrap();
    // It is started when the primary has gone, so it lacks all that comes after this copy.
    let mut standby = primary.standby();
    add(&engine, "lost".to_owned()).await.unwrap();

    proxy.set(Fault::AnswerHeld);
    let n_effects = Arc::new(AtomicUsize::new(0));
    let (writing, effects) = (engine.clone(), Arc::clone(&n_effects));
    let doubtful =
        tokio::spawn(async move { add_and_count(&writing, "doubtful".to_owned(), effects).await });
    proxy.until_it_happened();
    let id = primary.run_sql(&name, "SELECT xmin FROM tasks WHERE title = 'doubtful'");
    primary.stop(Data::Removed);
    standby.run(&[]);
    standby.promote();
    until("another transaction has the id", || {
        let sql = format!("SELECT pg_current_xact_id()::TEXT::BIGINT > {id}");
        standby.run_sql("postgres", &sql) == "t"
    });
    let status = standby.run_sql("postgres", &format!("SELECT pg_xact_status('{id}')"));
    assert_eq!(status, "committed", "this is the trap");
    std::os::unix::fs::symlink(socket(standby.folder()), socket(gate.path())).unwrap();
    doubtful.await.unwrap().unwrap();
    assert_eq!(n_effects.load(Ordering::Relaxed), 1);
    let mut found = names(&engine).await;
    found.sort();
    assert_eq!(found, ["doubtful", "kept"]);
    engine.close().await;
}

/// Stops all processes of a server. They keep their sockets, and answer nothing.
fn freeze(cluster: &Cluster) -> Vec<Stopped> {
    let pid = cluster.pid();
    let postmaster = Stopped::stop(pid);
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let children = children.split_whitespace().map(|pid| Stopped::stop(pid.parse().unwrap()));
    std::iter::once(postmaster).chain(children).collect()
}

fn impatient() -> Options {
    Options { longest_silence: Duration::from_millis(300), ..options("the only server") }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_standby_is_used_while_the_primary_stands_still() {
    let Some(primary) = blocking(own).await else { return };
    let name = primary.create_database("");
    let mut standby = primary.standby();
    standby.run(&[]);
    let urls: PostgresUrl =
        url(&[primary.folder(), standby.folder()], USER, &name).parse().unwrap();
    let engine = blocking(move || open::database(&urls, impatient()).unwrap()).await;
    add(&engine, "before".to_owned()).await.unwrap();
    assert_eq!(names(&engine).await, ["before"]);
    until("the standby has it", || {
        let sql = "SELECT COUNT(*) FROM pg_tables WHERE tablename = 'tasks'";
        standby.run_sql(&name, sql) == "1" && count(&standby, &name) == 1
    });

    let frozen = freeze(&primary);
    standby.promote();
    add(&engine, "after".to_owned()).await.unwrap();
    let mut found = names(&engine).await;
    found.sort();
    assert_eq!(found, ["after", "before"]);
    drop(frozen);
    engine.close().await;
    assert_eq!((count(&primary, &name), count(&standby, &name)), (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_waits_for_a_standby_is_not_given_up() {
    let Some(cluster) = blocking(own).await else { return };
    let name = cluster.create_database("");
    let url: PostgresUrl = cluster.url(USER, &name).parse().unwrap();
    let engine = blocking(move || open::database(&url, impatient()).unwrap()).await;
    add(&engine, "before".to_owned()).await.unwrap();
    let set = |names: &str| {
        cluster.run_sql(&name, &format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
        cluster.run_sql(&name, "SELECT pg_reload_conf()");
    };
    set("absent");
    let n_effects = Arc::new(AtomicUsize::new(0));
    let waits = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' \
        AND NOW() - query_start > '1 s'";
    let mut n_writes = 0;
    // PostgreSQL takes the setting a moment later. A commit before that does not wait.
    let (waiting, session) = loop {
        n_writes += 1;
        let (writing, effects) = (engine.clone(), Arc::clone(&n_effects));
        let name_of_row = format!("waits_{n_writes}");
        let waiting =
            tokio::spawn(async move { add_and_count(&writing, name_of_row, effects).await });
        let session = until_some("the commit has waited for several looks at its session", || {
            let pid = Some(cluster.run_sql(&name, waits)).filter(|pid| !pid.is_empty());
            if waiting.is_finished() { Some(None) } else { pid.map(Some) }
        });
        match session {
            Some(session) => break (waiting, session),
            None => waiting.await.unwrap().unwrap(),
        }
    };
    assert_eq!(cluster.run_sql(&name, waits), session, "it is still the same session");
    set("");
    waiting.await.unwrap().unwrap();
    assert_eq!(n_effects.load(Ordering::Relaxed), n_writes);
    assert_eq!(names(&engine).await.len(), 1 + n_writes);
    engine.close().await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_server_ends_while_postgresql_stands_still() {
    let Some(cluster) = blocking(own).await else { return };
    let url: PostgresUrl = cluster.url(USER, &cluster.create_database("")).parse().unwrap();
    let again = url.clone();
    let engine = blocking(move || open::database(&url, impatient()).unwrap()).await;
    add(&engine, "before".to_owned()).await.unwrap();
    let frozen = freeze(&cluster);
    engine.close().await;
    let refused = {
        let url = again.clone();
        blocking(move || open::database(&url, impatient()).map(drop).unwrap_err()).await
    };
    assert_eq!(refused.kind, OpenErrorKind::Unreachable, "{refused:?}");
    assert!(format!("{refused:?}").contains("it has not answered for 300ms"), "{refused:?}");
    drop(frozen);
    let engine = blocking(move || open::database(&again, impatient()).unwrap()).await;
    assert_eq!(names(&engine).await, ["before"]);
    engine.close().await;
}
