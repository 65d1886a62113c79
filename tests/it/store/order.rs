//! Many writers at once, on each engine: the order of the events explains all answers.
//!
//! The writers make the calls of people, coordinators and agents: a claim against a pause, a stop
//! and the end of an assignment, and a message against the end of its chat. After an answered stop,
//! no launch appears that the stop did not list. After an answered pause, no claim that began later
//! is granted. Followers see each event once and in order.
//!
//! ```text
//! AGENT_COORDINATOR_TEST_COMMITS=10000 cargo test --test it store::order   this number for each writer
//! ```

mod check;
mod mutants;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use config::Start;
use domain::event::Event;
use domain::start_history::Backoff;
use domain::{InstanceKey, ProjectId, Purpose, Task, TaskStatus};
use postgres_url::PostgresUrl;
use runtime::nudge::Nudge;
use service::{EventUpdate, Follower, ProjectEdit, Service, Settings};
use store::postgres::Sharing;
use store::postgres::open::Options;
use store::rows::Store;
use tokio::task::JoinSet;

use crate::postgres::Database;
use crate::questions::Questions as _;
use crate::rows::{Row, write};
use crate::service::settings;

use super::rows::{agent, assignment, id, project, task};
use check::{Fact, Model, violations};
use writer::{Clock, Told, Writer};

/// The number of commits of each writer in an ordinary run of the tests.
const N_COMMITS: usize = 12;
/// The number in a run that has to find a mistake.
const N_COMMITS_OF_MUTANTS: usize = 25;
const VARIABLE: &str = "AGENT_COORDINATOR_TEST_COMMITS";
const N_WRITERS: u64 = 64;
/// The number of servers that share a database.
const N_SERVERS: usize = 4;
const AGENTS: [&str; 4] = ["agt_a", "agt_b", "agt_c", "agt_d"];
const PROJECTS: [&str; 2] = ["prj_a", "prj_b"];
/// The number of broken rules that a failure shows.
const N_SHOWN: usize = 10;

/// A deliberate mistake that the check must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A claim reads its facts before its transaction.
    ClaimLooksBefore,
    /// A stop lists the open launches before it holds the starts.
    StopListsBefore,
    /// A message reads before its transaction whether an agent listens.
    MessageLooksBefore,
    /// Each server has a lock of its own, so that several write at once.
    LockOfItsOwn,
}

/// A server: its store, and the use cases on it.
#[derive(Clone)]
pub struct Server {
    pub store: Arc<Store>,
    pub service: Arc<Service>,
}

/// The database of a run.
#[derive(Debug)]
enum Engine {
    Memory,
    File,
    Postgres { n_servers: usize },
}

const ENGINES: [Engine; 4] = [
    Engine::Memory,
    Engine::File,
    Engine::Postgres { n_servers: 1 },
    Engine::Postgres { n_servers: N_SERVERS },
];

/// A run of the writers.
struct Plan {
    purpose: Purpose,
    n_writers: u64,
    n_commits: usize,
    mutant: Option<Mutant>,
}

/// Opens a database as these servers.
async fn connected(urls: Vec<PostgresUrl>) -> Vec<Arc<Store>> {
    let mut stores = Vec::new();
    for (n, url) in urls.into_iter().enumerate() {
        let options = Options {
            name: format!("server {n}"),
            id: format!("id {n}"),
            sharing: Sharing::Several,
            ..Options::default()
        };
        stores.push(Arc::new(Store::connect(url, options).await.unwrap()));
    }
    stores
}

/// Returns URLs of a database by which each server finds a table `writer` of its own.
async fn with_locks_of_their_own(database: &Database<'_>, n_servers: usize) -> Vec<PostgresUrl> {
    connected(vec![database.parsed_url()]).await[0].close().await;
    let url_of = |n: usize| {
        database.run_sql(&format!("CREATE SCHEMA lock_{n}; CREATE TABLE lock_{n}.writer ()"));
        let url = format!("{}?options=-c%20search_path%3Dlock_{n}%2Cpublic", database.url());
        url.parse().unwrap()
    };
    (0..n_servers).map(url_of).collect()
}

async fn database() -> Option<Database<'static>> {
    tokio::task::spawn_blocking(crate::postgres::database).await.unwrap()
}

/// Runs a plan on an engine, and returns the broken rules. `None` if the engine is not installed.
async fn broken_on(engine: &Engine, plan: &Plan) -> Option<Vec<String>> {
    Some(match engine {
        Engine::Memory => broken(vec![Arc::new(Store::in_memory().unwrap())], plan).await,
        Engine::File => {
            let folder = tempfile::tempdir().unwrap();
            let store = Store::open(&folder.path().join("store.db")).await.unwrap();
            broken(vec![Arc::new(store)], plan).await
        }
        Engine::Postgres { n_servers } => {
            let database = database().await?;
            let urls = match plan.mutant {
                Some(Mutant::LockOfItsOwn) => with_locks_of_their_own(&database, *n_servers).await,
                _ => vec![database.parsed_url(); *n_servers],
            };
            broken(connected(urls).await, plan).await
        }
    })
}

/// Runs a plan on servers that share one database, closes them, and returns the broken rules.
async fn broken(stores: Vec<Arc<Store>>, plan: &Plan) -> Vec<String> {
    let (clock, keys) = (Clock::new(), prepare(&stores, plan.purpose).await);
    let server = |store: &Arc<Store>| {
        let world = Arc::new(clock.clone());
        let service = Service::new(store.clone(), world, without_pauses(), Nudge::new());
        Server { store: store.clone(), service: Arc::new(service) }
    };
    let servers: Arc<[Server]> = stores.iter().map(server).collect();
    let prepared = servers[0].service.events.newest().await.unwrap();
    let (mut handing_out, mut followers) = (JoinSet::new(), JoinSet::new());
    for (n, server) in servers.iter().enumerate() {
        for after in [Some(prepared), None] {
            let follower = server.service.events.follow(after).await.unwrap();
            followers.spawn(followed(follower, last_project(n)));
        }
        let service = server.service.clone();
        handing_out.spawn(async move { service.events.hand_out().await });
    }
    let mut writers = JoinSet::new();
    for seed in 0..plan.n_writers {
        let (servers, keys) = (servers.clone(), keys.clone());
        let writer = Writer::new(servers, clock.clone(), keys, seed, plan.mutant);
        writers.spawn(writer.run(plan.n_commits));
    }
    let mut told = Told::default();
    for Told { calls, errors } in writers.join_all().await {
        told.calls.extend(calls);
        told.errors.extend(errors);
    }
    look_at_the_end(&servers, &clock, keys, &mut told).await;
    let log = log(&servers[0].store).await;
    let mut broken = std::mem::take(&mut told.errors);
    broken.extend(violations(Model::new(plan.purpose), &log, prepared, &told.calls));
    for followed in followers.join_all().await {
        broken.extend(followed.and_then(|seen| check_seen(&seen, &log, prepared)).err());
    }
    handing_out.shutdown().await;
    for store in stores {
        store.close().await;
    }
    broken
}

/// Writes agents and projects, and for each pair a task in progress. Returns the keys.
async fn prepare(stores: &[Arc<Store>], purpose: Purpose) -> Arc<[InstanceKey]> {
    let mut rows: Vec<Row> = AGENTS.iter().map(|name| Row::Agent(agent(name))).collect();
    rows.extend(PROJECTS.iter().map(|name| Row::Project(project(name))));
    rows.extend((0..stores.len()).map(|n| Row::Project(project(last_project(n).as_str()))));
    let mut keys = Vec::new();
    for project in PROJECTS {
        for agent in AGENTS {
            rows.push(Row::Assign(assignment(project, agent)));
            let work = task(&format!("tsk_{project}_{agent}"), project, Some(agent));
            rows.push(Row::Task(Task { status: TaskStatus::InProgress, ..work }));
            keys.push(InstanceKey::new(id(agent), id(project), purpose));
        }
    }
    write(&stores[0], rows).await.unwrap();
    keys.into()
}

/// Returns settings by which a key may start again at once.
fn without_pauses() -> Settings {
    Settings {
        backoff: Backoff { initial: Duration::ZERO, max: Duration::ZERO },
        start: Start { limit: 0, ..Start::default() },
        ..settings()
    }
}

/// Looks at all keys on each server, and makes its last event.
async fn look_at_the_end(
    servers: &Arc<[Server]>,
    clock: &Clock,
    keys: Arc<[InstanceKey]>,
    told: &mut Told,
) {
    for (n, server) in servers.iter().enumerate() {
        let alone: Arc<[Server]> = Arc::new([server.clone()]);
        let mut writer = Writer::new(alone, clock.clone(), keys.clone(), u64::MAX, None);
        writer.look_at_all().await;
        let edit = ProjectEdit { assign: vec![id(AGENTS[0])], ..ProjectEdit::default() };
        let last = last_project(n);
        let (answer, mut call) =
            clock.time("last event", server.service.catalog.set_project(&last, &edit)).await;
        answer.unwrap();
        let key = InstanceKey::new(id(AGENTS[0]), last, keys[0].purpose);
        call.facts.push(Fact::Assigned(key, true));
        let Told { calls, errors } = writer.run(0).await;
        told.calls.extend(calls);
        told.calls.push(call);
        told.errors.extend(errors);
    }
}

/// Returns the project that only the last event of a server names.
fn last_project(server: usize) -> ProjectId {
    id(&format!("prj_last_{server}"))
}

/// Follows the events up to the last one of its server, and returns their numbers.
async fn followed(mut follower: Follower, last: ProjectId) -> Result<Vec<i64>, String> {
    let mut seen = Vec::new();
    loop {
        match follower.next().await {
            Ok(EventUpdate::Events(events)) => {
                for event in &*events {
                    seen.push(event.seq);
                    if event.kind == "assignment.added" && event.project.as_ref() == Some(&last) {
                        return Ok(seen);
                    }
                }
            }
            Ok(EventUpdate::Status) => {}
            Ok(lost @ EventUpdate::Lost { .. }) => {
                return Err(format!("a follower missed events: {lost:?}"));
            }
            Err(error) => return Err(format!("a follower cannot read: {error:?}")),
        }
    }
}

async fn log(store: &Store) -> Vec<Event> {
    const PAGE: usize = 10_000;
    let mut log: Vec<Event> = Vec::new();
    loop {
        let after = log.last().map_or(0, |event| event.seq);
        let page = store.events(after, PAGE).await.unwrap();
        let is_all = page.len() < PAGE;
        log.extend(page);
        if is_all {
            return log;
        }
    }
}

/// Checks that a follower saw each event after `prepared` once and in order, up to its last.
fn check_seen(seen: &[i64], log: &[Event], prepared: i64) -> Result<(), String> {
    let all = log.iter().map(|event| event.seq).filter(|seq| *seq > prepared);
    let first = all.zip(seen).find(|(in_log, seen)| in_log != *seen);
    match first {
        None => Ok(()),
        Some((in_log, seen)) => Err(format!("a follower saw {seen} where {in_log} comes next")),
    }
}

fn n_commits() -> usize {
    let number = std::env::var(VARIABLE).ok();
    number.map_or(N_COMMITS, |number| number.parse().expect("a number of commits"))
}

async fn check_on_each_engine(purpose: Purpose) {
    for engine in ENGINES {
        let plan = Plan { purpose, n_writers: N_WRITERS, n_commits: n_commits(), mutant: None };
        let Some(broken) = broken_on(&engine, &plan).await else { continue };
        let shown = broken[..broken.len().min(N_SHOWN)].join("\n");
        assert!(broken.is_empty(), "{engine:?}: {} rules are broken:\n{shown}", broken.len());
    }
}

/// Checks that the writers soon break this rule with the mistake.
async fn check_found(engine: &Engine, mutant: Mutant, broken: &str) {
    let purpose = match mutant {
        Mutant::MessageLooksBefore => Purpose::Chat,
        Mutant::ClaimLooksBefore | Mutant::StopListsBefore | Mutant::LockOfItsOwn => Purpose::Task,
    };
    let plan =
        Plan { purpose, n_writers: 16, n_commits: N_COMMITS_OF_MUTANTS, mutant: Some(mutant) };
    for _ in 0..20 {
        let Some(found) = broken_on(engine, &plan).await else { return };
        if found.iter().any(|rule| rule.contains(broken)) {
            return;
        }
    }
    panic!("{mutant:?} is not found: in no run {broken}");
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_pauses_stops_and_assignments_are_in_the_order_of_their_answers() {
    check_on_each_engine(Purpose::Task).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_and_ends_of_chats_are_in_the_order_of_their_answers() {
    check_on_each_engine(Purpose::Chat).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_reads_its_facts_before_its_transaction_is_found() {
    let broken = "starts although the key is";
    check_found(&Engine::File, Mutant::ClaimLooksBefore, broken).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_lists_before_it_holds_is_found() {
    let broken = "stop (";
    check_found(&Engine::File, Mutant::StopListsBefore, broken).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_reads_before_its_transaction_who_listens_is_found() {
    let broken = "is_wanted: false";
    check_found(&Engine::File, Mutant::MessageLooksBefore, broken).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_write_without_a_common_lock_are_found() {
    let engine = Engine::Postgres { n_servers: N_SERVERS };
    for broken in ["starts although the key is", "a follower saw"] {
        check_found(&engine, Mutant::LockOfItsOwn, broken).await;
    }
}
