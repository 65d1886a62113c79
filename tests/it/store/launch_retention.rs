//! Old rows are removed by the use case on a real store; needed ones are kept.

use std::sync::Arc;
use std::time::Duration;

use domain::event::NewEvent;
use domain::launch::Outcome;
use domain::retention::Retention;
use domain::{Check, InstanceKey, LaunchState, Purpose, StartHistory, Task, TaskStatus};
use runtime::nudge::Nudge;
use service::world::SystemWorld;
use service::{EventUpdate, HistoryFilter, Service, Settings};
use store::MessageFilter;
use store::rows::{Store, checks};

use super::rows::{at, check, execution, id, launch, message, notice, session, task};
use crate::questions::Questions;
use crate::rows::{Row, write};
use crate::service::settings;

async fn make(store: &Store, changes: Vec<Row>) {
    write(store, changes).await.unwrap();
}

fn ended(name: &str) -> Row {
    let state = LaunchState::Ended { outcome: Outcome::Completed, at: at(500) };
    Row::Launch(domain::Launch { state, ..launch(name, "a", "p") })
}

fn service(store: &Arc<Store>, retention: Retention) -> Arc<Service> {
    let settings = Settings { retention, ..settings() };
    Arc::new(Service::new(store.clone(), Arc::new(SystemWorld), settings, Nudge::new()))
}

fn event(n: i64) -> Row {
    let (agent, project, launch, task, detail) = (None, None, None, None, None);
    Row::Event(NewEvent { at: at(n), kind: "task.status", agent, project, launch, task, detail })
}

#[tokio::test]
async fn what_is_old_goes_with_all_that_hangs_on_it_and_what_is_needed_stays() {
    let store = Arc::new(Store::in_memory().unwrap());
    let finished = Task { status: TaskStatus::Done, ..task("done", "p", Some("a")) };
    let open = Task { status: TaskStatus::InProgress, ..task("open", "p", Some("a")) };
    let mut changes = vec![Row::Task(finished), Row::Task(open)];
    // The next execution of an unfinished task begins with the newest one.
    for (launch, worked_on) in [("l_done", "done"), ("l_older", "open"), ("l_newest", "open")] {
        changes.push(ended(launch));
        let execution = execution(&format!("e_{launch}"), launch, worked_on);
        let started_at = at(if launch == "l_newest" { 135 } else { 130 });
        changes.push(Row::Execution(domain::Execution { started_at, ..execution }));
    }
    changes.push(ended("l_unread"));
    changes.push(Row::Notice(notice("n_open", "l_unread")));
    changes.push(ended("l_session"));
    changes.push(Row::Session(session("s_open", "l_session", "a", "p")));
    changes.push(Row::OutputTail(id("l_done"), "a tail".to_owned()));
    changes.push(Row::Launch(launch("l_open", "a", "p")));
    changes.push(ended("l_check"));
    for (name, launch) in [("c_old", "l_check"), ("c_open", "l_open")] {
        let (launch, task) = (Some(id(launch)), id("done"));
        changes.push(Row::Check(Check { launch, task, ..check(name) }));
    }
    make(&store, changes).await;

    let service = service(&store, Retention::default());
    for _ in 0..2 {
        service.maintenance.cleanup().await.unwrap();
        let done = id("done");
        let checks = store.read(move |tx| checks::list_of_task(tx, &done)).await.unwrap();
        assert_eq!(checks.iter().map(|check| check.id.as_str()).collect::<Vec<_>>(), ["c_open"]);
        for (launch, is_kept) in [
            ("l_done", false),
            ("l_older", false),
            ("l_newest", true),
            ("l_unread", true),
            ("l_session", true),
            ("l_open", true),
        ] {
            assert_eq!(store.launch(&id(launch)).await.unwrap().is_some(), is_kept, "{launch}");
        }
        let executions = store.executions(&HistoryFilter::newest(9)).await.unwrap();
        assert_eq!(
            executions.iter().map(|execution| execution.id.as_str()).collect::<Vec<_>>(),
            ["e_l_newest"]
        );
        assert_eq!(store.output_tail(&id("l_done")).await.unwrap(), None);
        assert!(store.task(&id("done")).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn young_history_stays() {
    let store = Arc::new(Store::in_memory().unwrap());
    make(&store, vec![ended("l")]).await;
    let century = Duration::from_hours(24 * 36_525);
    service(&store, Retention { history: century, ..Retention::default() })
        .maintenance
        .cleanup()
        .await
        .unwrap();
    assert!(store.launch(&id("l")).await.unwrap().is_some());
}

#[tokio::test]
async fn who_has_not_read_events_that_are_gone_is_told_so() {
    let store = Arc::new(Store::in_memory().unwrap());
    make(&store, (0..5_000).map(event).collect()).await;
    let service = service(&store, Retention::default());
    service.maintenance.cleanup().await.unwrap();
    let span = store.event_span().await.unwrap();
    assert_eq!((span.oldest, span.newest), (5_000, 5_000), "the newest stays");
    let mut late = service.events.follow(Some(17)).await.unwrap();
    assert!(matches!(late.next().await.unwrap(), EventUpdate::Lost { newest: 5_000 }));
    let mut in_time = service.events.follow(Some(4_999)).await.unwrap();
    let EventUpdate::Events(events) = in_time.next().await.unwrap() else { panic!("events") };
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [5_000]);
    // Numbers are not used again.
    make(&store, vec![event(9_999)]).await;
    assert_eq!(store.event_span().await.unwrap().newest, 5_001);
}

#[tokio::test]
async fn what_was_said_goes_as_far_as_it_was_answered_and_only_where_that_is_wanted() {
    let store = Arc::new(Store::in_memory().unwrap());
    let messages = ["m1", "m2", "m3"].map(|name| Row::Message(message(name, "a", "p")));
    make(&store, messages.to_vec()).await;
    let key = InstanceKey::new(id("a"), id("p"), Purpose::Chat);
    make(&store, vec![Row::Pair(StartHistory { read_up_to: 2, ..StartHistory::new(key) })]).await;
    let filter = MessageFilter::oldest(id("a"), id("p"), 9);
    service(&store, Retention::default()).maintenance.cleanup().await.unwrap();
    assert_eq!(store.messages(&filter).await.unwrap().len(), 3);
    let day = Some(Duration::from_hours(24));
    service(&store, Retention { chats: day, ..Retention::default() })
        .maintenance
        .cleanup()
        .await
        .unwrap();
    let left = store.messages(&filter).await.unwrap();
    assert_eq!(left.iter().map(|message| message.id.as_str()).collect::<Vec<_>>(), ["m3"]);
}
