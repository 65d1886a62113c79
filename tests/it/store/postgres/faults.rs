//! F-48: PostgreSQL fails while transactions run. What was acknowledged stays, and nothing is made
//! twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_coordinator::domain::Task;
use agent_coordinator::rows::tasks;
use agent_coordinator::store::postgres::open;
use agent_coordinator::store::{Engine, StoreError, TaskFilter, Value, Write};
use rustix::process::Signal;

use crate::postgres::{Cluster, Database, database};
use crate::store::rows::task;
use crate::support::{kill, until};

use super::options;

/// The number of times that PostgreSQL is killed.
const N_KILLS: usize = 6;
const KILLS_VARIABLE: &str = "AGENT_COORDINATOR_TEST_KILLS";
const N_WRITERS: usize = 8;

async fn opened(database: &Database<'_>) -> Engine {
    let url = database.parsed_url();
    let open = move || open::database(&url, options("the only server")).unwrap();
    tokio::task::spawn_blocking(open).await.unwrap()
}

/// Adds a task, and counts how often that was committed.
async fn add(engine: &Engine, name: String) -> Result<(), StoreError> {
    engine
        .write(move |tx: &mut Write<'_>| {
            tx.put(&task(&name, "p", None))?;
            let sql = "INSERT INTO output_tails (launch_id, tail) VALUES (?1, ?2)";
            let args: [Value<'_>; 2] = [(&name).into(), "once".into()];
            tx.execute(sql, &args).map(drop)
        })
        .await
}

async fn names(engine: &Engine) -> Vec<String> {
    let all: Result<Vec<Task>, StoreError> =
        engine.read(|tx| tasks::list(tx, &TaskFilter::default())).await;
    all.unwrap().into_iter().map(|task| task.title).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_outlives_kills_of_postgresql_and_is_there_once() {
    let Some(mut cluster) = Cluster::start(&[]) else { return };
    let name = {
        let database = cluster.database();
        let name = database.name.clone();
        // The whole server goes with its folder.
        std::mem::forget(database);
        name
    };
    let url = cluster.url(crate::postgres::USER, &name).parse().unwrap();
    let open = move || open::database(&url, options("the only server")).unwrap();
    let engine = tokio::task::spawn_blocking(open).await.unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..N_WRITERS)
        .map(|writer| {
            let (engine, is_over) = (engine.clone(), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut answers = BTreeMap::new();
                let mut n = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let name = format!("w{writer}-{n}");
                    let answer = add(&engine, name.clone()).await;
                    answers.insert(name, answer.map_err(|error| format!("{error:?}")));
                    n += 1;
                }
                answers
            })
        })
        .collect();
    let n_kills = std::env::var(KILLS_VARIABLE).ok().and_then(|text| text.parse().ok());
    let killing = tokio::task::spawn_blocking(move || {
        for n in 0..n_kills.unwrap_or(N_KILLS) {
            let before = count(&cluster, &name);
            until("transactions are made", || count(&cluster, &name) > before + 20);
            // Alternately the postmaster alone, and all processes.
            if n % 2 == 0 {
                kill(cluster.pid(), Signal::KILL);
            }
            cluster.start_again(&[]);
        }
        let before = count(&cluster, &name);
        until("transactions are made again", || count(&cluster, &name) > before + 20);
        cluster
    });
    let cluster = killing.await.unwrap();
    is_over.store(true, Ordering::Relaxed);
    let mut answers = BTreeMap::new();
    for writer in writers {
        answers.extend(writer.await.unwrap());
    }
    let found = names(&engine).await;
    for (name, answer) in &answers {
        let n_found = found.iter().filter(|found| *found == name).count();
        match answer {
            Ok(()) => assert_eq!(n_found, 1, "{name} was acknowledged"),
            // A task that was made twice fails because its second row exists.
            Err(error) => panic!("{name} waited for the server in vain: {error}"),
        }
    }
    assert_eq!(found.len(), answers.len());
    engine.close().await;
    drop(cluster);
}

/// Returns the number of tasks in the database.
fn count(cluster: &Cluster, database: &str) -> u32 {
    cluster.run_sql(database, "SELECT COUNT(*) FROM tasks").parse().unwrap()
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

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_stands_still_loses_the_lock_to_others() {
    let Some(database) = tokio::task::spawn_blocking(database).await.unwrap() else { return };
    let engine = opened(&database).await;
    // Another server that was stopped in the middle of a transaction, with the same limit.
    let url = database.parsed_url();
    let (held, is_held) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let frozen = std::thread::spawn(move || {
        let mut config = postgres::Config::from(url.config().clone());
        config.options("-c idle_in_transaction_session_timeout=500");
        let mut client = config.connect(postgres::NoTls).unwrap();
        client.batch_execute("BEGIN; LOCK TABLE writer IN EXCLUSIVE MODE").unwrap();
        held.send(()).unwrap();
        let _ = ended.recv();
    });
    is_held.recv_timeout(Duration::from_secs(20)).unwrap();
    add(&engine, "after".to_owned()).await.unwrap();
    assert_eq!(names(&engine).await, ["after"]);
    drop(end);
    frozen.join().unwrap();
    engine.close().await;
}
