//! The store: the common behaviour in memory and in a file.

// Clippy doesn't take the helpers of an integration test for a test.
#![allow(clippy::unwrap_used)]

mod copy;
mod engine;
mod everything;
mod file;
mod launch_retention;
pub mod observed;
mod old;
mod order;
mod postgres;
mod rows;
mod statements;
mod subset;

use std::sync::Arc;

use domain::event::NewEvent;
use domain::launch::LaunchEvent;
use domain::session::SessionEndReason;
use domain::task::TaskStatus;
use domain::{Launch, LaunchState, Outcome, Purpose, StartHistory, Task, Timestamp};
use store::rows::Store;
use store::{LaunchEnd, LaunchFilter, LaunchTraits, StoreError, TaskFilter};

use crate::questions::Questions;
use crate::rows::{Row, write};

use self::rows::{
    agent, assignment, at, execution, id, launch, launch_of, project, session, task, task_key,
    ticket,
};

/// Runs `check` on an empty store in memory, on one in a file, and on one in PostgreSQL.
async fn on_each<F: Future<Output = ()>>(check: impl Fn(Arc<Store>) -> F) {
    check(Arc::new(Store::in_memory().unwrap())).await;
    let folder = tempfile::tempdir().unwrap();
    check(Arc::new(Store::open(&folder.path().join("store.db")).await.unwrap())).await;
    let Some(database) = tokio::task::spawn_blocking(crate::postgres::database).await.unwrap()
    else {
        return;
    };
    let options = postgres::options("the only server");
    let store = Arc::new(Store::connect(database.parsed_url(), options).await.unwrap());
    check(Arc::clone(&store)).await;
    store.close().await;
}

async fn made(store: &Store, changes: Vec<Row>) {
    write(store, changes).await.unwrap();
}

#[track_caller]
fn assert_outdated(result: Result<(), StoreError>, what: &str, id: &str) {
    match result {
        Err(StoreError::Outdated { what: found, id: found_id }) => {
            assert_eq!((found, found_id.as_str()), (what, id));
        }
        other => panic!("expected an outdated {what} `{id}`, got {other:?}"),
    }
}

/// An agent at work on a task: agent `a`, project `p`, task `t`.
fn one_pair_with_work() -> Vec<Row> {
    vec![
        Row::Agent(agent("a")),
        Row::Project(project("p")),
        Row::Assign(assignment("p", "a")),
        Row::Task(Task { status: TaskStatus::InProgress, ..task("t", "p", Some("a")) }),
    ]
}

#[tokio::test]
async fn a_row_is_read_back_as_it_was_written() {
    on_each(|store| async move {
        let claimed = launch("l", "a", "p");
        let running = session("s", "l", "a", "p");
        let work = execution("e", "l", "t");
        made(&store, one_pair_with_work()).await;
        made(
            &store,
            vec![
                Row::Launch(claimed.clone()),
                Row::Session(running.clone()),
                Row::Execution(work.clone()),
            ],
        )
        .await;

        assert_eq!(store.agent(&id("a")).await.unwrap().unwrap().name, agent("a").name);
        let (found, revision) =
            store.launch(&id("l")).await.unwrap().map(|row| (row.clone(), row.revision)).unwrap();
        assert_eq!((Launch { revision: 0, ..found }, revision), (claimed, 1));
        assert_eq!(store.launch_by_ticket(&ticket("l")).await.unwrap().unwrap().id, id("l"));
        assert_eq!(store.session_by_token(&running.token).await.unwrap().unwrap().id, running.id);
        assert_eq!(store.executions_of_task(&id("t")).await.unwrap()[0].summary, work.summary);
        assert_eq!(store.executions_of_launch(&id("l")).await.unwrap().len(), 1);
        assert_eq!(store.counts().await.unwrap(), (1, 1));
        assert_eq!(store.agent(&id("nobody")).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn a_decision_on_outdated_facts_conflicts() {
    on_each(|store| async move {
        made(&store, one_pair_with_work()).await;
        let seen = store.task(&id("t")).await.unwrap().unwrap();
        made(&store, vec![Row::Task(Task { title: "first".to_owned(), ..seen.clone() })]).await;

        assert_outdated(write(&store, vec![Row::Task(seen.clone())]).await, "task", "t");
        assert_outdated(write(&store, vec![Row::Agent(agent("a"))]).await, "agent", "a");
        assert_eq!(store.task(&id("t")).await.unwrap().unwrap().title, "first");
    })
    .await;
}

#[tokio::test]
async fn a_commit_is_made_as_a_whole_or_not_at_all() {
    on_each(|store| async move {
        made(&store, one_pair_with_work()).await;
        let before = everything::everything(&store).await;
        let mut changes = vec![
            Row::Agent(agent("b")),
            Row::Unassign(assignment("p", "a")),
            Row::Pause(Some(at(1))),
            Row::Pair(StartHistory::new(task_key("a", "p")).held(at(2))),
            Row::Event(NewEvent {
                at: at(3),
                kind: "x",
                agent: None,
                project: None,
                launch: None,
                task: None,
                detail: None,
            }),
        ];
        changes.push(Row::Task(Task { revision: 7, ..task("t", "p", None) }));
        assert_outdated(write(&store, changes.clone()).await, "task", "t");
        assert_eq!(everything::everything(&store).await, before);

        changes.pop();
        made(&store, changes).await;
        assert_eq!(store.events(0, 9).await.unwrap()[0].seq, 1);
        assert_eq!(store.paused_since().await.unwrap(), Some(at(1)));
        assert_eq!(store.held_pairs().await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn later_changes_of_a_commit_see_the_earlier_ones() {
    on_each(|store| async move {
        let ended = LaunchState::Ended { outcome: Outcome::Lost, at: at(5) };
        made(
            &store,
            vec![
                Row::Launch(launch("l1", "a", "p")),
                Row::Launch(Launch { revision: 1, state: ended, ..launch("l1", "a", "p") }),
                Row::Launch(launch("l2", "a", "p")),
            ],
        )
        .await;
        assert_eq!(store.launch(&id("l1")).await.unwrap().unwrap().revision, 2);
        assert_eq!(store.open_launches().await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_key_has_one_open_launch() {
    on_each(|store| async move {
        let first = launch("l1", "a", "p");
        made(&store, vec![Row::Launch(first.clone())]).await;

        let second = launch("l2", "a", "p");
        let result = write(&store, vec![Row::Launch(second.clone())]).await;
        assert!(matches!(&result, Err(StoreError::Unavailable { .. })), "{result:?}");
        write(&store, vec![Row::Launch(first.clone())]).await.expect_err("the same id again");
        // Another purpose or another agent is another key.
        made(&store, vec![Row::Launch(launch_of("l3", "a", "p", Purpose::Chat))]).await;
        made(&store, vec![Row::Launch(launch("l4", "b", "p"))]).await;

        let ended = Launch {
            state: LaunchState::Ended { outcome: Outcome::Completed, at: at(9) },
            revision: 1,
            ..first
        };
        made(&store, vec![Row::Launch(ended.clone())]).await;
        made(&store, vec![Row::Launch(second)]).await;
        // A launch is not opened again beside it either.
        let reopened = Launch { revision: 2, ..launch("l1", "a", "p") };
        let result = write(&store, vec![Row::Launch(reopened)]).await;
        assert!(matches!(result, Err(StoreError::Unavailable { .. })), "{result:?}");
    })
    .await;
}

/// Five of six CLIs would let both launches write the conversation.
#[tokio::test]
async fn two_open_launches_never_have_one_conversation() {
    on_each(|store| async move {
        let of = |name: &str, agent: &str| Launch {
            conversation: Some(id("cnv_1")),
            ..launch(name, agent, "p")
        };
        made(&store, vec![Row::Launch(of("l1", "a"))]).await;
        let result = write(&store, vec![Row::Launch(of("l2", "b"))]).await;
        assert!(matches!(&result, Err(StoreError::Unavailable { .. })), "{result:?}");
        // Launches without a conversation do not disturb one another.
        made(&store, vec![Row::Launch(launch("l3", "c", "p"))]).await;
        made(&store, vec![Row::Launch(launch("l4", "d", "p"))]).await;

        let ended = Launch {
            state: LaunchState::Ended { outcome: Outcome::Lost, at: at(9) },
            revision: 1,
            ..of("l1", "a")
        };
        made(&store, vec![Row::Launch(ended)]).await;
        made(&store, vec![Row::Launch(of("l2", "b"))]).await;
    })
    .await;
}

#[tokio::test]
async fn of_many_concurrent_claims_one_wins() {
    on_each(|store| async move {
        let claims = (0..50).map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                write(&store, vec![Row::Launch(launch(&format!("l{n}"), "a", "p"))]).await
            })
        });
        let results = futures::future::join_all(claims).await;
        assert_eq!(results.iter().filter(|result| result.as_ref().unwrap().is_ok()).count(), 1);
        assert_eq!(store.open_launches().await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn facts_of_a_pair_are_all_there_is() {
    on_each(|store| async move {
        let key = task_key("a", "p");
        let facts = store.pair_facts(&key).await.unwrap();
        assert_eq!((&facts.agent, &facts.project, facts.is_assigned), (&None, &None, false));
        assert_eq!((facts.waiting_since, &facts.open, facts.is_paused), (None, &None, false));
        assert_eq!(facts.record, StartHistory::new(key.clone()));

        made(&store, one_pair_with_work()).await;
        let older = Task {
            status: TaskStatus::InProgress,
            status_since: at(3),
            ..task("t2", "p", Some("a"))
        };
        made(&store, vec![Row::Task(older), Row::Pause(Some(at(1)))]).await;
        made(
            &store,
            vec![Row::Pair(StartHistory { n_failures: 3, ..StartHistory::new(key.clone()) })],
        )
        .await;
        made(&store, vec![Row::Launch(launch("l", "a", "p"))]).await;

        let facts = store.pair_facts(&key).await.unwrap();
        assert!(
            facts.agent.is_some()
                && facts.project.is_some()
                && facts.is_assigned
                && facts.is_paused
        );
        assert_eq!(facts.waiting_since, Some(at(3)));
        assert_eq!(facts.open.unwrap().id, id("l"));
        assert_eq!((facts.record.n_failures, facts.record.revision), (3, 1));

        let chat = store.pair_facts(&launch_of("l", "a", "p", Purpose::Chat).key).await.unwrap();
        assert_eq!((chat.waiting_since, chat.open), (None, None));
        assert!(chat.is_assigned);
    })
    .await;
}

#[tokio::test]
async fn startable_is_what_has_work_and_no_launch_the_longest_waiting_first() {
    on_each(|store| async move {
        let work = |name: &str, agent: &str, since: i64| {
            Row::Task(Task {
                status: TaskStatus::InProgress,
                status_since: at(since),
                ..task(name, "p", Some(agent))
            })
        };
        made(&store, vec![Row::Project(project("p"))]).await;
        for (n, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
            let since = 100 - i64::try_from(n).unwrap();
            made(&store, vec![Row::Agent(agent(name)), work(&format!("t{name}"), name, since)])
                .await;
            made(&store, vec![Row::Assign(assignment("p", name))]).await;
        }
        made(&store, vec![Row::Launch(launch("l", "c", "p")), Row::Unassign(assignment("p", "d"))])
            .await;
        let names = async || -> Vec<String> {
            let startable = store.startable().await.unwrap();
            startable.iter().map(|facts| facts.key.agent.to_string()).collect()
        };
        assert_eq!(names().await, ["e", "b", "a"]);

        let done = Launch {
            state: LaunchState::Ended { outcome: Outcome::Failed, at: at(1) },
            ..launch("l", "c", "p")
        };
        made(&store, vec![Row::Launch(Launch { revision: 1, ..done })]).await;
        made(&store, vec![work("older", "a", 1)]).await;
        assert_eq!(names().await, ["a", "e", "c", "b"]);
        let first = &store.startable().await.unwrap()[0];
        assert_eq!(*first, store.pair_facts(&first.key).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn lists_have_their_filters_order_and_limit() {
    on_each(|store| async move {
        for (n, name) in ["l3", "l1", "l2"].into_iter().enumerate() {
            let claimed =
                Launch { claimed_at: at(i64::try_from(n).unwrap()), ..launch(name, name, "p") };
            made(&store, vec![Row::Launch(claimed)]).await;
        }
        let all = LaunchFilter { limit: 10, ..LaunchFilter::default() };
        let names = async |filter: LaunchFilter| -> Vec<String> {
            store.launches(&filter).await.unwrap().iter().map(|row| row.id.to_string()).collect()
        };
        assert_eq!(names(all.clone()).await, ["l2", "l1", "l3"]);
        assert_eq!(names(LaunchFilter { limit: 1, ..all.clone() }).await, ["l2"]);
        assert_eq!(names(LaunchFilter { agent: Some(id("l1")), ..all.clone() }).await, ["l1"]);
        assert_eq!(
            names(LaunchFilter { purpose: Some(Purpose::Chat), ..all.clone() }).await,
            [""; 0]
        );

        for (name, end, outcome) in [("l2", 50, Outcome::Completed), ("l3", 60, Outcome::Lost)] {
            let open = store.launch(&id(name)).await.unwrap().unwrap();
            let ended = Launch { state: LaunchState::Ended { outcome, at: at(end) }, ..open };
            made(&store, vec![Row::Launch(ended)]).await;
        }
        let of_end = |end| LaunchFilter { end: Some(end), ..all.clone() };
        assert_eq!(names(of_end(LaunchEnd::None)).await, ["l1"]);
        assert_eq!(names(of_end(LaunchEnd::Any)).await, ["l2", "l3"]);
        assert_eq!(names(of_end(LaunchEnd::Bad)).await, ["l3"]);
        assert_eq!(names(LaunchFilter { since: Some(at(1)), ..all.clone() }).await, ["l2", "l1"]);
        let found = |traits| LaunchFilter { words: vec![traits], ..all.clone() };
        let none = LaunchTraits::default();
        assert_eq!(names(found(none.clone())).await, [""; 0]);
        let agents = vec![id("l3")];
        let outcomes = vec!["failed"];
        assert_eq!(names(found(LaunchTraits { agents, outcomes, ..none })).await, ["l3"]);
        assert_eq!(names(LaunchFilter { only_ended: true, ..all }).await, ["l3", "l2"]);
        assert_eq!(store.open_launches().await.unwrap().len(), 1);

        let parent = task("parent", "p", None);
        let child = Task { parent: Some(parent.id.clone()), ..task("child", "p", Some("a")) };
        made(&store, vec![Row::Task(child), Row::Task(parent.clone())]).await;
        let of_parent = TaskFilter { parent: Some(parent.id), ..TaskFilter::default() };
        assert_eq!(store.tasks(&of_parent).await.unwrap().len(), 1);
        let todo = TaskFilter {
            project: Some(id("p")),
            status: Some(TaskStatus::Todo),
            ..TaskFilter::default()
        };
        assert_eq!(store.tasks(&todo).await.unwrap().len(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_launch_goes_through_its_whole_life_in_the_store() {
    on_each(|store| async move {
        made(&store, one_pair_with_work()).await;
        made(
            &store,
            vec![Row::Launch(launch("l", "a", "p")), Row::Session(session("s", "l", "a", "p"))],
        )
        .await;
        let events = [
            LaunchEvent::ProcessStarted { pid: 42, at: at(1) },
            LaunchEvent::Authenticated { session: id("s"), at: at(2) },
            LaunchEvent::LoggedOut { at: at(3), linger: std::time::Duration::from_secs(30) },
        ];
        for event in events {
            let now = store.launch(&id("l")).await.unwrap().unwrap();
            let next = now.on(&event).unwrap();
            made(&store, vec![Row::Launch(next.clone())]).await;
            let found = store.launch(&id("l")).await.unwrap().unwrap();
            assert_eq!(found, Launch { revision: next.revision + 1, ..next });
        }
        let open = store.open_sessions().await.unwrap().remove(0);
        made(&store, vec![Row::Session(open.end(SessionEndReason::LoggedOut, at(4)))]).await;
        assert_eq!(store.open_sessions().await.unwrap(), []);
        assert_eq!(
            store.sessions_of(&id("l")).await.unwrap()[0].ended,
            Some((at(4), SessionEndReason::LoggedOut))
        );
    })
    .await;
}

#[tokio::test]
async fn a_pause_is_kept_until_it_is_taken_back() {
    on_each(|store| async move {
        made(&store, vec![Row::Pause(Some(at(1)))]).await;
        made(&store, vec![Row::Pause(Some(at(2)))]).await;
        assert_eq!(store.paused_since().await.unwrap(), Some(at(2)));
        made(&store, vec![Row::Pause(None)]).await;
        assert_eq!(store.paused_since().await.unwrap(), None::<Timestamp>);
    })
    .await;
}

#[tokio::test]
async fn a_closed_store_says_so() {
    on_each(|store| async move {
        made(&store, one_pair_with_work()).await;
        made(&store, vec![Row::Launch(launch("l", "b", "p"))]).await;
        // Earlier requests are finished.
        assert_eq!(store.startable().await.unwrap().len(), 1);
        assert_eq!(store.open_launches().await.unwrap().len(), 1);
        store.close().await;
        store.close().await;
        assert!(matches!(store.agents().await, Err(StoreError::Closed)));
        assert!(matches!(store.startable().await, Err(StoreError::Closed)));
        assert!(matches!(store.open_launches().await, Err(StoreError::Closed)));
        assert!(matches!(store.launch(&"l".parse().unwrap()).await, Err(StoreError::Closed)));
        assert!(matches!(store.pair_facts(&task_key("a", "p")).await, Err(StoreError::Closed)));
        let result = write(&store, vec![]).await;
        assert!(matches!(result, Err(StoreError::Closed)), "{result:?}");
    })
    .await;
}
