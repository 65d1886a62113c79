//! The behaviour of transactions that are written as closures.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::Task;
use domain::event::NewEvent;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use store::rows::{events, tasks};
use store::{DbError, Engine, Settings, StoreError, TaskFilter, Write, open};
use tempfile::TempDir;

use super::observed::{Observed, Observer};
use super::rows::{at, task};

/// The reason why a closure of these tests is undone.
#[derive(Debug, PartialEq)]
enum Refused {
    ByRule,
    ByStore(String),
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        let source = std::error::Error::source(&error).map(ToString::to_string);
        Self::ByStore(source.unwrap_or_else(|| error.to_string()))
    }
}

type Outcome = Result<(), Refused>;
type Closure = Box<dyn Fn(&mut Write<'_>) -> Outcome + Send>;

fn database(settings: Settings) -> (TempDir, Engine) {
    let folder = tempfile::tempdir().unwrap();
    let engine = open::file(&folder.path().join("store.db"), settings).unwrap();
    (folder, engine)
}

fn add_task(tx: &mut Write<'_>, name: &str) -> Outcome {
    tx.put(&task(name, "p", None)).map_err(Refused::from).map(drop)
}

fn add_event(tx: &mut Write<'_>, detail: &str) -> Outcome {
    let (agent, project, launch, task) = (None, None, None, None);
    let detail = Some(detail.to_owned());
    let event = NewEvent { at: at(1), kind: "test", agent, project, launch, task, detail };
    let sql = "INSERT INTO events (at, kind, detail) VALUES (?1, ?2, ?3)";
    let args = [event.at.into(), event.kind.into(), (&event.detail).into()];
    tx.execute(sql, &args).map_err(Refused::from).map(drop)
}

async fn names(engine: &Engine) -> Vec<String> {
    let all: Result<Vec<Task>, StoreError> =
        engine.read(|tx| tasks::list(tx, &TaskFilter::default())).await;
    all.unwrap().into_iter().map(|task| task.title).collect()
}

/// Runs the closures as one group. They arrive while the writer waits for a first one.
async fn group(engine: &Engine, closures: Vec<Closure>) -> Vec<Result<Outcome, String>> {
    let (begin, begun) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let blocking = engine.write(move |_| {
        begin.send(()).unwrap();
        gone.recv().unwrap();
        Ok::<_, StoreError>(())
    });
    let blocking = tokio::spawn(blocking);
    tokio::task::spawn_blocking(move || begun.recv().unwrap()).await.unwrap();
    let mut waiting: Vec<BoxFuture<'static, _>> = Vec::new();
    for closure in closures {
        let mut write = engine.write(move |tx| closure(tx)).boxed();
        assert!(futures::poll!(&mut write).is_pending());
        waiting.push(write);
    }
    let before = engine.n_transactions();
    go.send(()).unwrap();
    blocking.await.unwrap().unwrap();
    let mut outcomes = Vec::new();
    for write in waiting {
        let outcome = std::panic::AssertUnwindSafe(write).catch_unwind().await;
        outcomes.push(outcome.map_err(|panic| (*panic.downcast::<&str>().unwrap()).to_owned()));
    }
    assert!(engine.n_transactions() <= before + 2, "they came as one group");
    outcomes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closure_that_fails_leaves_nothing_and_harms_no_other() {
    let (_folder, engine) = database(Settings::default());
    let outcomes = group(
        &engine,
        vec![
            Box::new(|tx| add_task(tx, "first")),
            Box::new(|tx| add_task(tx, "refused").and(Err(Refused::ByRule))),
            Box::new(|tx| {
                add_task(tx, "panicked")?;
                panic!("a defect")
            }),
            Box::new(|tx| {
                add_task(tx, "ignored")?;
                // The statement fails, and the closure ignores the error.
                let _ =
                    tx.execute("INSERT INTO assignments (project_id) VALUES (?1)", &["p".into()]);
                Ok(())
            }),
            Box::new(|_| Err(Refused::ByRule)),
            Box::new(|tx| add_task(tx, "last")),
        ],
    )
    .await;
    assert_eq!(outcomes[0], Ok(Ok(())));
    assert_eq!(outcomes[1], Ok(Err(Refused::ByRule)));
    assert_eq!(outcomes[2], Err("a defect".to_owned()));
    let Ok(Err(Refused::ByStore(text))) = &outcomes[3] else { panic!("{:?}", outcomes[3]) };
    assert!(text.contains("NOT NULL"), "{text}");
    assert_eq!(outcomes[4], Ok(Err(Refused::ByRule)));
    assert_eq!(outcomes[5], Ok(Ok(())));
    assert_eq!(names(&engine).await, ["first", "last"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closure_sees_what_its_group_has_written() {
    let (_folder, engine) = database(Settings::default());
    let add_if_first = |name: &'static str| -> Closure {
        Box::new(move |tx| {
            if tasks::list(tx, &TaskFilter::default())?.is_empty() {
                add_task(tx, name)
            } else {
                Err(Refused::ByRule)
            }
        })
    };
    let outcomes = group(&engine, vec![add_if_first("one"), add_if_first("two")]).await;
    assert_eq!(outcomes, [Ok(Ok(())), Ok(Err(Refused::ByRule))]);
    assert_eq!(names(&engine).await, ["one"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_in_the_middle_of_a_group_undoes_all_of_it() {
    let (_folder, engine) = database(Settings { max_pages: Some(150), ..Settings::default() });
    let outcomes = group(
        &engine,
        vec![
            Box::new(|tx| add_task(tx, "small")),
            Box::new(|tx| {
                tx.put(&Task { description: "x".repeat(1 << 20), ..task("large", "p", None) })?;
                Ok(())
            }),
            Box::new(|tx| add_task(tx, "other")),
        ],
    )
    .await;
    for outcome in outcomes {
        let Ok(Err(Refused::ByStore(text))) = outcome else { panic!("{outcome:?}") };
        assert!(text.contains("full"), "{text}");
    }
    assert!(names(&engine).await.is_empty());
    engine.write(|tx| add_task(tx, "after")).await.unwrap();
    assert_eq!(names(&engine).await, ["after"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn effects_follow_the_commits_in_their_order_and_need_no_caller() {
    let (_folder, engine) = database(Settings::default());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = |name: &'static str, is_refused: bool| {
        let seen = Arc::clone(&seen);
        move |tx: &mut Write<'_>| -> Outcome {
            add_task(tx, name)?;
            add_event(tx, name)?;
            let seen = Arc::clone(&seen);
            tx.after_commit(move || seen.lock().unwrap().push(name));
            if is_refused { Err(Refused::ByRule) } else { Ok(()) }
        }
    };
    // The callers of the first and the second go away at once.
    for write in [engine.write(note("t1", false)), engine.write(note("t2", true))] {
        let mut write = write.boxed();
        let _ = futures::poll!(&mut write);
    }
    engine.write(note("t3", false)).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["t1", "t3"]);
    let told: Result<Vec<_>, StoreError> = engine.read(|tx| events::list(tx, 0, 10)).await;
    let told: Vec<_> = told.unwrap().into_iter().map(|event| event.detail.unwrap()).collect();
    assert_eq!(told, ["t1", "t3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_wait_for_a_place_in_the_queue_and_go_away_leave_nothing() {
    const MAX_WAITING: usize = 4096;
    let (_folder, engine) = database(Settings::default());
    let (begin, begun) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let blocking = tokio::spawn(engine.write(move |_| {
        begin.send(()).unwrap();
        gone.recv().unwrap();
        Ok::<_, StoreError>(())
    }));
    tokio::task::spawn_blocking(move || begun.recv().unwrap()).await.unwrap();
    let n_made = Arc::new(Mutex::new(0));
    let count = || {
        let n_made = n_made.clone();
        move |tx: &mut Write<'_>| -> Outcome {
            let n_made = n_made.clone();
            tx.after_commit(move || *n_made.lock().unwrap() += 1);
            Ok(())
        }
    };
    // The blocking transaction has a place, too.
    for _ in 0..MAX_WAITING + 99 {
        let mut write = engine.write(count()).boxed();
        assert!(futures::poll!(&mut write).is_pending());
    }
    let mut patient = engine.write(count()).boxed();
    assert!(futures::poll!(&mut patient).is_pending());
    go.send(()).unwrap();
    blocking.await.unwrap().unwrap();
    patient.await.unwrap();
    assert_eq!(*n_made.lock().unwrap(), MAX_WAITING - 1 + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_comes_after_its_effects_and_a_read_after_it_sees_it() {
    let (_folder, engine) = database(Settings::default());
    for n in 0..50 {
        let (sent, heard) = mpsc::channel();
        let name = format!("t{n}");
        engine
            .write(move |tx| {
                let sent = sent.clone();
                tx.after_commit(move || sent.send(()).unwrap());
                add_task(tx, &name)
            })
            .await
            .unwrap();
        heard.try_recv().expect("the effect came first");
        assert_eq!(names(&engine).await.len(), n + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_takes_too_long_is_interrupted_and_named() {
    let longest_read = Duration::from_millis(20);
    let (_folder, engine) = database(Settings { longest_read, ..Settings::default() });
    let endless = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) \
        SELECT x FROM n WHERE x < 0";
    let read: Outcome =
        engine.read(move |tx| tx.number(endless, &[]).map(drop).map_err(Refused::from)).await;
    let Err(Refused::ByStore(text)) = read else { panic!("{read:?}") };
    assert!(text.contains("took too long: `WITH RECURSIVE"), "{text}");
    assert!(names(&engine).await.is_empty(), "the next read works");
}

#[tokio::test]
async fn after_the_end_nothing_is_read_or_written() {
    for engine in [database(Settings::default()).1, open::memory().unwrap()] {
        engine.write(|tx| add_task(tx, "t")).await.unwrap();
        engine.close().await;
        let closed = Err(Refused::ByStore(StoreError::Closed.to_string()));
        assert_eq!(engine.write(|tx| add_task(tx, "t")).await, closed);
        assert_eq!(engine.read(|_| Outcome::Ok(())).await, closed);
    }
}

/// A connection that ends once: before its first commit, or after it.
struct Lost {
    is_committed: bool,
    n_commits: u32,
}

impl Observer for Lost {
    fn before_commit(&mut self) -> Result<(), DbError> {
        self.n_commits += 1;
        if self.n_commits == 1 && !self.is_committed {
            return Err(DbError::Lost("the connection ended".into()));
        }
        Ok(())
    }

    fn after_commit(&mut self) -> Result<(), DbError> {
        if self.n_commits == 1 {
            return Err(DbError::Lost("the connection ended".into()));
        }
        Ok(())
    }

    fn was_committed(&mut self) -> Option<bool> {
        Some(self.is_committed)
    }
}

#[tokio::test]
async fn a_group_whose_connection_ends_is_made_once() {
    for is_committed in [false, true] {
        let lost = Lost { is_committed, n_commits: 0 };
        let engine = open::memory_through(|inner| Box::new(Observed(inner, lost))).unwrap();
        let n_effects = Arc::new(Mutex::new(0));
        for name in ["first", "second"] {
            let n_effects = n_effects.clone();
            let body = move |tx: &mut Write<'_>| -> Outcome {
                let n_effects = n_effects.clone();
                tx.after_commit(move || *n_effects.lock().unwrap() += 1);
                add_task(tx, name)
            };
            engine.write(body).await.unwrap();
        }
        assert_eq!(names(&engine).await, ["first", "second"], "{is_committed}");
        assert_eq!(*n_effects.lock().unwrap(), 2, "{is_committed}");
    }
}
