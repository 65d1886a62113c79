//! The behaviour of a store in a file: groups, survival, failures, and mistakes in opening it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use domain::event::NewEvent;
use domain::{Execution, Outcome, Task};
use rusqlite::Connection;
use store::rows::{Store, launch_spend};
use store::{OpenError, OpenErrorKind, Settings, StoreError, TaskFilter, open};

use super::made;
use super::rows::{agent, at, execution, id, launch, task};
use crate::questions::Questions;
use crate::rows::{Row, write};

const IMPATIENT: Settings = Settings {
    busy_timeout: Duration::from_millis(50),
    max_pages: None,
    longest_read: Duration::from_secs(10),
    largest_log: 256 << 20,
};

fn open_with(path: &Path, settings: Settings) -> Result<Store, OpenError> {
    open::file(path, settings).map(Store::new)
}

fn stranger(path: &Path) -> Connection {
    Connection::open(path).unwrap()
}

fn run(connection: &Connection, sql: &str) {
    connection.execute_batch(sql).unwrap();
}

async fn closed_store(path: &Path) {
    let path = path.to_owned();
    // A task opens it, like in the daemon, so the future must be `Send`.
    let store = tokio::spawn(async move { Store::open(&path).await }).await.unwrap().unwrap();
    made(&store, vec![Row::Agent(agent("a"))]).await;
    store.close().await;
}

fn n_tasks(result: Result<Vec<Task>, StoreError>) -> usize {
    result.unwrap().len()
}

#[tokio::test]
async fn commits_that_come_at_once_share_transactions() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(&folder.path().join("store.db")).await.unwrap());
    let commits = (0..200).map(|n| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let name = format!("t{n}");
            made(&store, vec![Row::Task(task(&name, "p", None))]).await;
            // Its own commit is visible, whichever thread made the transaction.
            assert!(store.task(&name.parse().unwrap()).await.unwrap().is_some());
        })
    });
    for done in futures::future::join_all(commits).await {
        done.unwrap();
    }
    assert_eq!(n_tasks(store.tasks(&TaskFilter::default()).await), 200);
    assert!(
        store.n_transactions() < 100,
        "{} transactions for 200 commits",
        store.n_transactions()
    );
}

#[tokio::test]
async fn who_is_refused_leaves_the_others_of_a_shared_transaction_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = Store::open(&path).await.unwrap();
    made(&store, vec![task_change(100), event_change(100)]).await;
    // They come together, as one group or a few. Each tenth writes a new row with its event, and
    // then a row that exists already.
    let commits = (0..30).map(|n| {
        let doomed = (n % 10 == 9).then(|| task_change(100));
        write(&store, [task_change(n), event_change(n)].into_iter().chain(doomed).collect())
    });
    let results = futures::future::join_all(commits).await;
    for (n, result) in results.iter().enumerate() {
        let id = format!("t{n}").parse().unwrap();
        assert_eq!(result.is_ok(), n % 10 != 9, "{n}: {result:?}");
        assert_eq!(store.task(&id).await.unwrap().is_some(), result.is_ok(), "{n}");
    }
    let told = store.events(0, 100).await.unwrap();
    assert_eq!(told.len(), 28);
    store.close().await;
    let store = Store::open(&path).await.unwrap();
    assert_eq!(store.events(0, 100).await.unwrap(), told);
}

#[tokio::test]
async fn a_commit_that_was_handed_over_is_made_without_its_caller() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = Store::open(&path).await.unwrap();
    let mut commits: Vec<_> =
        (0..20).map(|n| Box::pin(write(&store, vec![task_change(n)]))).collect();
    for commit in &mut commits {
        assert!(futures::poll!(commit.as_mut()).is_pending());
    }
    drop(commits);
    store.close().await;

    let store = Store::open(&path).await.unwrap();
    assert_eq!(n_tasks(store.tasks(&TaskFilter::default()).await), 20);
}

fn event_change(n: usize) -> Row {
    Row::Event(NewEvent {
        at: at(1),
        kind: "task.created",
        agent: None,
        project: None,
        launch: None,
        task: Some(format!("t{n}").parse().unwrap()),
        detail: None,
    })
}

fn task_change(n: usize) -> Row {
    Row::Task(Task { description: "x".repeat(2_000), ..task(&format!("t{n}"), "p", None) })
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("store.db")).await.unwrap();
    for n in 0..5 {
        made(&store, vec![task_change(n)]).await;
    }
    // This is the state after a crash: the files of this moment, without a close.
    let copy = folder.path().join("copy.db");
    for suffix in ["", "-wal"] {
        let name = |path: PathBuf| PathBuf::from(format!("{}{suffix}", path.display()));
        std::fs::copy(name(folder.path().join("store.db")), name(copy.clone())).unwrap();
    }
    let after = Store::open(&copy).await.unwrap();
    assert_eq!(n_tasks(after.tasks(&TaskFilter::default()).await), 5);
}

#[tokio::test]
async fn closing_leaves_one_file() {
    let folder = tempfile::tempdir().unwrap();
    closed_store(&folder.path().join("store.db")).await;
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["store.db"]);
}

#[tokio::test]
async fn the_file_is_for_its_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = Store::open(&path).await.unwrap();
    made(&store, vec![Row::Agent(agent("a"))]).await;
    for name in ["store.db", "store.db-wal"] {
        let mode = std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_lock_of_another_process_is_a_fault_that_passes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open_with(&path, IMPATIENT).unwrap();
    made(&store, vec![task_change(0)]).await;
    let stranger = stranger(&path);
    run(&stranger, "BEGIN IMMEDIATE");

    let result = write(&store, vec![task_change(1)]).await;
    assert!(matches!(result, Err(StoreError::Unavailable { .. })), "{result:?}");
    assert_eq!(n_tasks(store.tasks(&TaskFilter::default()).await), 1);

    run(&stranger, "ROLLBACK");
    made(&store, vec![task_change(1)]).await;
    assert_eq!(n_tasks(store.tasks(&TaskFilter::default()).await), 2);
}

async fn n_open(store: &Store) -> usize {
    store.open_launches().await.unwrap().len()
}

#[tokio::test]
async fn a_full_disk_is_a_fault_that_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open_with(&path, Settings { max_pages: Some(150), ..IMPATIENT }).unwrap();
    made(&store, vec![Row::Launch(launch("l0", "a0", "p"))]).await;
    let mut n_made = 0;
    let launch_of = |n| launch(&format!("l{}", n + 1), &format!("a{}", n + 1), "p");
    let error = loop {
        match write(&store, vec![task_change(n_made), Row::Launch(launch_of(n_made))]).await {
            Ok(()) => n_made += 1,
            Err(error) => break error,
        }
        assert!(n_made < 1_000, "150 pages are never full");
    };
    let error @ StoreError::Unavailable { .. } = error else { panic!("{error:?}") };
    assert!(chain(&error).contains("full"), "{}", chain(&error));
    assert_eq!(n_tasks(store.tasks(&TaskFilter::default()).await), n_made);
    assert_eq!(n_open(&store).await, n_made + 1, "what was not made is not open");
    // Changes that need no space still work.
    made(&store, vec![Row::Pause(None)]).await;
    assert_eq!(n_open(&store).await, n_made + 1);
    store.close().await;

    let store = Store::open(&path).await.unwrap();
    assert_eq!(n_open(&store).await, n_made + 1);
    made(&store, vec![task_change(n_made)]).await;
    assert_eq!(n_open(&store).await, n_made + 1);
    assert_eq!(n_tasks(store.tasks(&TaskFilter::default()).await), n_made + 1);
}

/// An accident of the files of a database, and words of the error that reports it.
type Accident = (fn(&Path), &'static str);

#[tokio::test]
async fn a_database_that_was_deleted_or_replaced_is_not_written_to_until_it_is_back() {
    let away = |path: &Path| path.with_extension("away");
    let log = |path: &Path| PathBuf::from(format!("{}-wal", path.display()));
    let accidents: [Accident; 3] = [
        (|path| std::fs::remove_file(path).unwrap(), "was deleted"),
        (
            |path| {
                std::fs::copy(path, path.with_extension("copy")).unwrap();
                std::fs::rename(path.with_extension("copy"), path).unwrap();
            },
            "was replaced",
        ),
        (
            |path| std::fs::remove_file(format!("{}-wal", path.display())).unwrap(),
            "log of the database",
        ),
    ];
    for (accident, expected) in accidents {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = Store::open(&path).await.unwrap();
        made(&store, vec![task_change(0)]).await;
        // This is another name, by which the file comes back.
        std::fs::hard_link(&path, away(&path)).unwrap();
        std::fs::hard_link(log(&path), log(&away(&path))).unwrap();
        accident(&path);
        let error = write(&store, vec![task_change(1)]).await.unwrap_err();
        assert!(chain(&error).contains(expected), "{}", chain(&error));
        assert_eq!(n_tasks(store.tasks(&TaskFilter::default()).await), 1, "it is still read");
        assert_eq!(
            std::fs::metadata(log(&away(&path))).unwrap().len(),
            0,
            "no log is left that would damage another database"
        );

        std::fs::rename(away(&path), &path).unwrap();
        std::fs::rename(log(&away(&path)), log(&path)).unwrap();
        made(&store, vec![task_change(1)]).await;
        store.close().await;
        let store = Store::open(&path).await.unwrap();
        assert_eq!(n_tasks(store.tasks(&TaskFilter::default()).await), 2);
    }
}

#[tokio::test]
async fn an_unreadable_row_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = Store::open(&path).await.unwrap();
    made(&store, vec![task_change(3)]).await;
    run(&stranger(&path), "UPDATE tasks SET status = 'sleeping'");
    let error = store.tasks(&TaskFilter::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "the store has an unreadable task `t3`");
    assert!(chain(&error).contains("sleeping"), "{}", chain(&error));
}

#[tokio::test]
async fn unreadable_usage_is_named_by_its_launch_or_its_work() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = Store::open(&path).await.unwrap();
    let outcome = Some(Outcome::Completed);
    let work = Execution { outcome, ..execution("e1", "l1", "t1") };
    made(&store, vec![Row::Execution(work)]).await;
    run(&stranger(&path), "INSERT INTO launch_spend VALUES ('l1', 7, -1, 0, 0, 0, 0, 0, 0)");
    let error = store.read(|tx| launch_spend::list_of_launch(tx, &id("l1"))).await.unwrap_err();
    assert_eq!(error.to_string(), "the store has an unreadable spend `l1`");
    let error = store.read(|tx| launch_spend::of_tasks(tx, &[id("t1")])).await.unwrap_err();
    assert_eq!(error.to_string(), "the store has an unreadable execution `e1`");
}

fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// Opens `path`, which must fail with an error that contains `expected`, and leave the bytes of the
/// file unchanged.
fn refused(path: &Path, expected: &str) -> OpenError {
    let before = std::fs::read(path).ok();
    let error = open_with(path, IMPATIENT).expect_err("a bad file");
    let text = chain(&error);
    assert!(text.contains(expected), "{text}");
    assert!(text.contains(&path.display().to_string()), "{text}");
    assert_eq!(std::fs::read(path).ok(), before);
    error
}

#[test]
fn a_missing_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = refused(&folder.path().join("none/store.db"), "no folder");
    assert_eq!(error.kind, OpenErrorKind::FolderMissing);
}

#[test]
fn a_folder_is_no_database() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(refused(folder.path(), "not a file").kind, OpenErrorKind::NotAFile);
}

#[test]
fn garbage_is_no_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    std::fs::write(&path, "polling_interval: 10\n".repeat(100)).unwrap();
    assert_eq!(refused(&path, "not an SQLite database").kind, OpenErrorKind::NotADatabase);
}

#[tokio::test]
async fn the_database_of_another_program_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let other = stranger(&path);
    run(&other, "CREATE TABLE bookmarks (url TEXT)");
    drop(other);
    assert_eq!(refused(&path, "another program").kind, OpenErrorKind::Foreign);

    // A program with the same library has tables that look like the daemon's.
    let path = folder.path().join("other.db");
    closed_store(&path).await;
    let other = stranger(&path);
    run(&other, "PRAGMA application_id = 0");
    drop(other);
    assert_eq!(refused(&path, "another program").kind, OpenErrorKind::Foreign);
}

#[tokio::test]
async fn a_damaged_database_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    closed_store(&path).await;
    let whole = std::fs::read(&path).unwrap();
    // Every page except the first is damaged: the header is valid, the trees are not.
    let mut damaged = whole.clone();
    damaged[4096..].fill(0xa5);
    for bytes in [&damaged[..], &whole[..whole.len() / 2]] {
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(refused(&path, "damaged").kind, OpenErrorKind::Corrupt);
    }
}

#[tokio::test]
async fn a_newer_schema_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    closed_store(&path).await;
    let newer = stranger(&path);
    let sql = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
        VALUES (99, 'the future', 1, x'00', 0)";
    run(&newer, sql);
    drop(newer);
    assert!(matches!(refused(&path, "schema 99").kind, OpenErrorKind::Newer { found: 99, .. }));

    // The log that a crash left beside it is not touched either.
    let crashed = folder.path().join("crashed.db");
    let newer = stranger(&path);
    run(&newer, "UPDATE _sqlx_migrations SET version = 98 WHERE version = 99");
    let log = |path: &Path| PathBuf::from(format!("{}-wal", path.display()));
    std::fs::copy(&path, &crashed).unwrap();
    std::fs::copy(log(&path), log(&crashed)).unwrap();
    let before = std::fs::read(log(&crashed)).unwrap();
    assert!(matches!(refused(&crashed, "schema 98").kind, OpenErrorKind::Newer { found: 98, .. }));
    assert_eq!(std::fs::read(log(&crashed)).unwrap(), before);
}

#[tokio::test]
async fn a_locked_database_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    closed_store(&path).await;
    let other = stranger(&path);
    run(&other, "BEGIN IMMEDIATE");
    assert_eq!(refused(&path, "locked").kind, OpenErrorKind::Locked);
}

#[test]
fn no_space_for_a_new_database_leaves_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let error = open_with(&path, Settings { max_pages: Some(3), ..IMPATIENT }).unwrap_err();
    assert_eq!(error.kind, OpenErrorKind::DiskFull, "{error:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn what_this_user_may_not_write_is_named() {
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: permissions don't bind root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    closed_store(&path).await;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
    assert_eq!(refused(&path, "read and write access").kind, OpenErrorKind::NotWritable);
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o500)).unwrap();
    assert_eq!(refused(&path, "read and write access").kind, OpenErrorKind::NotWritable);
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[tokio::test]
async fn a_crash_in_the_middle_of_a_write_is_mended() {
    let folder = tempfile::tempdir().unwrap();
    let (path, crashed) = (folder.path().join("state.db"), folder.path().join("crashed.db"));
    closed_store(&path).await;

    // The journal is the one that a database has before it is first turned to WAL, with more pages
    // than the cache takes.
    let connection = stranger(&path);
    let unfinished = "PRAGMA journal_mode = DELETE; PRAGMA cache_size = 1; BEGIN IMMEDIATE; DELETE FROM agents; \
        CREATE TABLE unfinished (x); \
        INSERT INTO unfinished WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 99) \
        SELECT randomblob(4000) FROM n";
    run(&connection, unfinished);
    for suffix in ["", "-journal"] {
        let name = |path: &Path| format!("{}{suffix}", path.display());
        std::fs::copy(name(&path), name(&crashed)).unwrap();
    }
    drop(connection);

    let store = Store::open(&crashed).await.unwrap();
    assert_eq!(store.agents().await.unwrap().len(), 1);
    store.close().await;
}
