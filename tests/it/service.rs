//! Concurrent use cases: the decision of one must still hold when the other has decided.
#![allow(clippy::unwrap_used, reason = "a test")]

mod concerned;
mod repeated;
mod resting;
mod spent;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::questions::Questions;
use crate::rows::{self, Row};
use domain::account::Parking;
use domain::agent::{AgentStatus, Assignment, ProjectStatus};
use domain::conversation::ContinueLimits;
use domain::creation::CreationLimits;
use domain::launch::ProcessEnd;
use domain::plan::{ProcessReport, RunLimits};
use domain::retention::Retention;
use domain::session::Presenter;
use domain::start_history::{Backoff, StartReason};
use domain::task::NewTask;
use domain::workspace::{WorkspaceMode, WorkspaceOverrides};
use domain::{
    Agent, InstanceKey, Language, Outcome, Priority, Project, Purpose, Secret, StopReason,
    TaskStatus, Timestamp,
};
use runtime::nudge::Nudge;
use rusqlite::Connection;
use service::world::{SystemWorld, World};
use service::{EventUpdate, Force, Service, Settings, StopTarget};
use store::rows::Store;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

/// Lets the store write no pause of a file, as if it were full. It runs no trigger of a database.
pub const NO_PAUSES: &str = "ALTER TABLE pauses ADD COLUMN unfit INTEGER CHECK (file IS NULL)";
/// Lets the store write pauses again.
pub const PAUSES_AGAIN: &str = "ALTER TABLE pauses DROP COLUMN unfit";

/// Returns the settings of an empty configuration.
pub fn settings() -> Settings {
    Settings {
        workspace: ::config::Workspace::default(),
        language: Language::English,
        start: config::Start::default(),
        stop: config::Stop::default(),
        run: RunLimits::default(),
        notice: config::Notice::default(),
        chat: config::Chat::default(),
        session: config::Session {
            cleanup_interval: Duration::from_mins(1),
            ..config::Session::default()
        },
        creation: CreationLimits::default(),
        checks: Vec::new(),
        checks_rounds: 2,
        page_url: None,
        retention: Retention::default(),
        parking: Parking::default(),
        conversations: ContinueLimits::default(),
        backoff: Backoff::default(),
        state_dir: PathBuf::new(),
        mcp_socket: PathBuf::new(),
        serves_agents_over_http: true,
        providers: BTreeSet::new(),
        redactor: Arc::default(),
        file_owners: domain::FileOwners::default(),
        passkeys: BTreeMap::new(),
        ticket_key: Secret::new("a key"),
        hook_timeout: Duration::from_mins(1),
        agents_have_users: false,
    }
}

fn key() -> InstanceKey {
    InstanceKey::new("agt".parse().unwrap(), "prj".parse().unwrap(), Purpose::Task)
}

/// Returns a store with one pair that has work.
async fn one_pair_with_work() -> Arc<Store> {
    with_one_pair(Store::in_memory().unwrap()).await
}

/// Adds one pair that has work.
async fn with_one_pair(store: Store) -> Arc<Store> {
    let store = Arc::new(store);
    let InstanceKey { agent, project, .. } = key();
    let task = NewTask {
        status: TaskStatus::InProgress,
        assignee: Some(agent.clone()),
        ..NewTask::new(project.clone(), "a title")
    };
    let changes = vec![
        Row::Project(Project {
            workspace: WorkspaceMode::Shared,
            overrides: WorkspaceOverrides::default(),
            id: project.clone(),
            name: String::new(),
            key: "PRJ".parse().unwrap(),
            is_key_edited: false,
            working_directory: PathBuf::from("/"),
            status: ProjectStatus::Active,
            archived_from: None,
            created_at: NOW,
            revision: 0,
        }),
        Row::Agent(Agent {
            id: agent.clone(),
            name: String::new(),
            ai_type: "claude".to_owned(),
            system_prompt: String::new(),
            passkey: None,
            status: AgentStatus::Active,
            archived_from: None,
            created_at: NOW,
            revision: 0,
        }),
        Row::Assign(Assignment { project, agent }),
        Row::Task(task.to_task("tsk".parse().unwrap(), "PRJ-1".parse().unwrap(), NOW).unwrap()),
    ];
    rows::write(&store, changes).await.unwrap();
    store
}

/// A world that delays the first claim between its look at the facts and its commit.
#[derive(Default)]
struct Hesitation {
    has_hesitated: AtomicBool,
    /// The claim passes this when it has looked, and the next one when it may go on.
    looked: Gate,
    may_go_on: Gate,
}

#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    fn pass(&self) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |is_open| !*is_open).unwrap());
    }
}

impl World for Hesitation {
    fn now(&self) -> Timestamp {
        SystemWorld.now()
    }

    fn fill(&self, bytes: &mut [u8]) {
        SystemWorld.fill(bytes);
    }

    fn unique(&self) -> String {
        if !self.has_hesitated.swap(true, Ordering::SeqCst) {
            self.looked.open();
            self.may_go_on.pass();
        }
        SystemWorld.unique()
    }
}

/// Checks that no start is granted if `hold` is called after a claim has looked at the facts.
async fn check_no_start_slips_past(
    store: Arc<Store>,
    reason: StartReason,
    hold: impl AsyncFnOnce(&Service),
) {
    let world = Arc::new(Hesitation::default());
    let service = Arc::new(Service::new(store.clone(), world.clone(), settings(), Nudge::new()));
    let claim = tokio::spawn({
        let service = service.clone();
        async move {
            service.launches.should_start(&key(), Some(&"crd_here".parse().unwrap())).await.unwrap()
        }
    });
    tokio::task::spawn_blocking({
        let world = world.clone();
        move || world.looked.pass()
    })
    .await
    .unwrap();
    hold(&service).await;
    world.may_go_on.open();
    let answer = claim.await.unwrap();
    assert_eq!((answer.reason, answer.claim.is_some()), (reason, false));
    assert!(store.open_launches().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_start_slips_past_a_stop_of_its_pair() {
    let InstanceKey { agent, project, .. } = key();
    let target = StopTarget::Pair { agent, project, purpose: None };
    let store = one_pair_with_work().await;
    check_no_start_slips_past(store, StartReason::Held, async |service| {
        service.launches.stop(&target, Force::No).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_start_slips_past_a_stop_of_all() {
    let store = one_pair_with_work().await;
    check_no_start_slips_past(store, StartReason::Paused, async |service| {
        service.launches.stop(&StopTarget::All, Force::No).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_start_slips_past_a_pause_file_that_the_store_cannot_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = with_one_pair(Store::open(&path).await.unwrap()).await;
    Connection::open(&path).unwrap().execute_batch(NO_PAUSES).unwrap();
    check_no_start_slips_past(store, StartReason::Paused, async |service| {
        service.hold_starts(Some(Path::new("/state/pause"))).await.unwrap_err();
    })
    .await;
}

#[tokio::test]
async fn a_pause_file_holds_starts_although_the_store_cannot_write_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = with_one_pair(Store::open(&path).await.unwrap()).await;
    let service = Service::new(store, Arc::new(SystemWorld), settings(), Nudge::new());
    let reason = || async {
        let by = "crd_here".parse().unwrap();
        service.launches.should_start(&key(), Some(&by)).await.unwrap().reason
    };
    let shown = || async { service.status().await.unwrap().pause_file };
    let stranger = Connection::open(&path).unwrap();
    stranger.execute_batch(NO_PAUSES).unwrap();
    let file = Path::new("/state/pause");
    service.hold_starts(Some(file)).await.unwrap_err();
    assert_eq!((reason().await, service.are_starts_held()), (StartReason::Paused, true));
    assert_eq!(shown().await.as_deref(), file.to_str());
    let (coordinators, forges) = (service.listen(), service.forge_items.news());
    stranger.execute_batch("ALTER TABLE pauses RENAME TO hidden").unwrap();
    service.hold_starts(None).await.unwrap_err();
    stranger.execute_batch("ALTER TABLE hidden RENAME TO pauses").unwrap();
    assert!(service.hold_starts(None).await.unwrap(), "it was never stored, and ends");
    assert!(coordinators.is_pending() && forges.is_pending() && !service.are_starts_held());
    assert!(!service.hold_starts(None).await.unwrap());
    service.hold_starts(Some(file)).await.unwrap_err();

    stranger.execute_batch(PAUSES_AGAIN).unwrap();
    assert!(service.hold_starts(Some(file)).await.unwrap());
    assert!(!service.hold_starts(Some(file)).await.unwrap());
    assert_eq!(reason().await, StartReason::Paused);
    assert!(service.hold_starts(None).await.unwrap());
    assert!(!service.are_starts_held());
    assert_ne!(reason().await, StartReason::Paused);
    assert_eq!(shown().await, None);
}

#[tokio::test]
async fn what_could_not_be_read_at_once_is_told_when_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = Arc::new(Store::open(&path).await.unwrap());
    let service = Arc::new(Service::new(store, Arc::new(SystemWorld), settings(), Nudge::new()));
    let mut follower = service.events.follow(None).await.unwrap();
    let mut handing_out = pin!(service.events.hand_out());
    assert!(futures::poll!(&mut handing_out).is_pending());
    service.launches.stop(&StopTarget::All, Force::No).await.unwrap();
    let stranger = Connection::open(&path).unwrap();
    stranger.execute_batch("ALTER TABLE events RENAME TO hidden").unwrap();
    // This allows one attempt. A later one finds everything unchanged.
    let _ = tokio::time::timeout(Duration::from_millis(200), &mut handing_out).await;
    stranger.execute_batch("ALTER TABLE hidden RENAME TO events").unwrap();
    let next = tokio::time::timeout(Duration::from_mins(1), follower.next());
    let news = tokio::select! {
        never = handing_out => match never {},
        news = next => news.expect("it is told, though nothing more happened").unwrap(),
    };
    let EventUpdate::Events(events) = news else { panic!("{news:?}") };
    assert_eq!(events.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(), ["person.stop"]);
}

#[tokio::test]
async fn people_end_a_chat_and_its_wishes_in_one_commit() {
    let store = one_pair_with_work().await;
    let service = Service::new(store.clone(), Arc::new(SystemWorld), settings(), Nudge::new());
    let key = InstanceKey { purpose: Purpose::Chat, ..key() };
    let say =
        || async { service.chats.say(&key.agent, &key.project, None, "hello").await.unwrap() };
    say().await;
    let claim = service
        .launches
        .should_start(&key, Some(&"crd_here".parse().unwrap()))
        .await
        .unwrap()
        .claim
        .unwrap();
    service
        .sessions
        .authenticate(&key.agent, &claim.ticket.unwrap(), &key.project, Presenter::on_socket(None))
        .await
        .unwrap();
    service.coordinators.want_stop(&claim.launch, StopReason::Shutdown).await.unwrap();
    // The agent doesn't listen any more, so another one is wanted.
    say().await;
    assert!(store.pair(&key).await.unwrap().wanted_since.is_some());
    let n_before = store.n_transactions();
    service.chats.end(&key.agent, &key.project).await.unwrap();
    assert_eq!(
        store.n_transactions(),
        n_before + 1,
        "a launch that ends in between would want somebody back"
    );
    let gone = ProcessReport::Ended { end: ProcessEnd::Lost, at: SystemWorld.now() };
    service.launches.report_process(&claim.launch, &[gone]).await.unwrap();
    let launch = store.launch(&claim.launch).await.unwrap().unwrap();
    assert_eq!(
        launch.as_ended().map(|(outcome, _)| outcome),
        Some(&Outcome::Stopped(StopReason::Shutdown))
    );
    assert_eq!(store.pair(&key).await.unwrap().wanted_since, None);
}

#[tokio::test]
async fn a_chat_whose_agent_nobody_keeps_ends_at_once_and_wants_nobody() {
    let store = one_pair_with_work().await;
    let service = Service::new(store.clone(), Arc::new(SystemWorld), settings(), Nudge::new());
    let key = InstanceKey { purpose: Purpose::Chat, ..key() };
    service.chats.say(&key.agent, &key.project, None, "hello").await.unwrap();
    let claim = service.launches.should_start(&key, None).await.unwrap().claim.unwrap();
    service.chats.end(&key.agent, &key.project).await.unwrap();
    let launch = store.launch(&claim.launch).await.unwrap().unwrap();
    assert!(!launch.is_open() && launch.is_chat_over, "{launch:?}");
    assert_eq!(store.pair(&key).await.unwrap().wanted_since, None);
}
