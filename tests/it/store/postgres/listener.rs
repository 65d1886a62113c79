//! Servers on one database hear what the others change.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use domain::Timestamp;
use domain::id::ProjectId;
use store::StoreError;
use store::postgres::Sharing;
use store::postgres::open::Options;
use store::rows::{Context, Publish, Store, Wake, pauses};

use crate::postgres::{Database, database};
use crate::store::rows::id;
use crate::support::until;

use super::options;

/// A server with all that it has heard from others.
struct Server {
    store: Store,
    heard: Arc<Mutex<Vec<Wake>>>,
}

impl Server {
    /// Starts a server and waits until it listens.
    async fn on(database: &Database<'_>, name: &str) -> Self {
        let options = Options { sharing: Sharing::Several, ..options(name) };
        let store = Store::connect(database.parsed_url(), options).await.unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        store.publish_others(Arc::new(move |wakes: BTreeSet<Wake>| {
            hears.lock().unwrap().extend(wakes);
        }));
        let server = Self { store, heard };
        // It may have listened before there was someone to tell.
        let n_listening = || {
            let sql = format!(
                "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
                 AND application_name LIKE '%{name}' AND query LIKE 'LISTEN%'"
            );
            database.run_sql(&sql) == "1"
        };
        until("the server listens", n_listening);
        server
    }

    /// Commits a change that wakes `wakes`.
    async fn write(&self, wakes: &[Wake]) {
        let context = Context::new(Timestamp::from_millis(1), "unique".to_owned(), None);
        let publish: Publish = Arc::new(|_| {});
        let wakes = wakes.to_vec();
        let written = self.store.write(context, publish, move |tx| {
            pauses::set(tx, Some(Timestamp::from_millis(1)))?;
            for wake in &wakes {
                tx.wake(wake.clone());
            }
            Ok::<_, StoreError>(())
        });
        written.await.unwrap();
    }

    /// Forgets what it has heard until now.
    fn forget(&self) {
        self.heard.lock().unwrap().clear();
    }

    /// Returns what it has heard since then, apart from that it may have missed something.
    fn heard_of_changes(&self) -> BTreeSet<Wake> {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|wake| **wake != Wake::Everything).cloned().collect()
    }

    fn has_heard(&self, wake: &Wake) -> bool {
        self.heard.lock().unwrap().contains(wake)
    }
}

fn project(name: &str) -> Wake {
    Wake::AgentsOf(id::<ProjectId>(name))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_hears_what_another_one_changes_and_not_its_own_changes() {
    let Some(database) = tokio::task::spawn_blocking(database).await.unwrap() else { return };
    let first = Server::on(&database, "first").await;
    let second = Server::on(&database, "second").await;
    first.write(&[project("of-first"), Wake::Deadlines]).await;
    until("the second hears of the first", || second.has_heard(&project("of-first")));
    second.write(&[project("of-second")]).await;
    until("the first hears of the second", || first.has_heard(&project("of-second")));
    // Messages come in the order of the commits, so its own would have come before.
    assert!(!first.has_heard(&project("of-first")));
    let sent = BTreeSet::from([Wake::Coordinators, project("of-first"), Wake::Deadlines]);
    until("the second hears of all", || second.heard_of_changes() == sent);
    first.store.close().await;
    second.store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_may_have_missed_wakes_everything() {
    let Some(database) = tokio::task::spawn_blocking(database).await.unwrap() else { return };
    let first = Server::on(&database, "first").await;
    let second = Server::on(&database, "second").await;
    let many: Vec<Wake> = (0..200).map(|n| project(&format!("{n}-{}", "x".repeat(50)))).collect();
    second.forget();
    first.write(&many).await;
    until("a message has no room for all of them", || second.has_heard(&Wake::Everything));
    assert!(!second.has_heard(&many[0]));

    second.forget();
    database.run_sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND query LIKE 'LISTEN%'",
    );
    until("the listener is there again", || second.has_heard(&Wake::Everything));
    first.write(&[project("later")]).await;
    until("it hears again", || second.has_heard(&project("later")));

    first.store.close().await;
    second.store.close().await;
    until("the listeners have ended", || {
        let sql = "SELECT COUNT(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' \
                   AND datname = current_database()";
        database.run_sql(sql) == "0"
    });
}
