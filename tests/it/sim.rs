//! The simulation. It runs the real coordinator loop, service and domain on a store in memory. The
//! clock and the machines are simulated, and a script contains everything that can go wrong.
//!
//! A seed makes a fleet and a script. The same seed makes the same history. After each step the
//! promises of the supervision and of chats are checked. If a history breaks one, it prints its
//! seed, a script without the unnecessary steps, and what happened.
//!
//! ```text
//! AGENT_COORDINATOR_TEST_HISTORIES=100000 cargo test --test it sim::   this number, from seed 0 on, and nothing left out
//! AGENT_COORDINATOR_TEST_SEED=42 cargo test --test it sim::            this one, with its lines
//! ```
//!
//! These are simulated:
//!
//! - limits on machines, projects, agents and providers
//! - coordinators that crash at any await, orderly restarts, and restarts of the server
//! - killed shims and agents, and pids that are used again
//! - requests and answers that are lost, late, slow or repeated
//! - agents that authenticate late, never or twice, ignore notices, do not exit, or leave processes
//! - agents that give up a question in a chat, and answer late, twice or never
//! - clocks that jump by an hour or a year, sleeping machines, and full disks
//! - people who change their minds, talk, and end what they began
//! - a store whose writes fail before or after their commit, are slow, or find no space
//!
//! The inside of a shim is not simulated: `tests/it/shim.rs` and `tests/it/faults` use the real
//! one.
//!
//! The simulation found two limits that remain: [`Sim::is_out_of_reach`], [`Sim::is_asleep`].
#![allow(clippy::unwrap_used, reason = "a test")]

mod agent;
mod history;
mod host;
mod illness;
mod invariants;
mod net;
mod people;
mod runner;
mod script;
mod talk;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use config::{Chat, Notice, Session, Start, Stop};
use domain::launch::ProcessEnd;
use domain::plan::RunLimits;
use domain::start_history::Backoff;
use domain::{AgentId, InstanceKey, LaunchId, Timestamp};
use futures::FutureExt as _;
use runtime::nudge::Nudge;
use service::world::World as _;
use service::{Service, Settings};
use store::rows::Store;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::questions::Questions;
use crate::rows::{self, Row};
use crate::service::settings;
use illness::Health;
use talk::Talk;
pub use world::Dice;
use world::{Chronicle, SimWorld, Slumber, Telling};

const START_TIMEOUT: Duration = Duration::from_secs(20);
const LINGER: Duration = Duration::from_secs(5);
const NOTICE_GRACE: Duration = Duration::from_secs(30);
const SESSION_MAXIMUM: Duration = Duration::from_mins(4);
const CHAT_HOLD: Duration = Duration::from_secs(20);
const CHAT_IDLE: Duration = Duration::from_secs(40);
/// The silence after which a chat without an unanswered message may give its slot away.
const CHAT_REST: Duration = Duration::from_secs(30);
const CLEANUP_INTERVAL: Duration = Duration::from_secs(7);
/// The time between the moment when an action is due and the moment when it is done.
const SLACK: Duration = Duration::from_secs(1);

/// A deliberate mistake that the simulation must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    /// Starts are granted without a claim.
    ClaimSkipped,
    /// A process is identified by its pid alone.
    PidTrusted,
    /// A launch that didn't authenticate is ended at its deadline, whatever its process does.
    FreedAtDeadline,
    /// A chat message counts as read when it is handed out.
    ReadWhenHandedOut,
    /// Fuses use the clock that stands still while their machine sleeps.
    FuseSleeps,
    /// Coordinators know only the limit of all agents together.
    CapsForgotten,
}

/// The state that all parts of a history share.
struct Sim {
    seed: u64,
    mutant: Option<Mutant>,
    world: Arc<SimWorld>,
    chronicle: Arc<Chronicle>,
    store: Arc<Store>,
    /// The health of the store.
    health: Arc<Health>,
    /// Wakes all coordinators.
    nudge: Nudge,
    service: Mutex<Arc<Service>>,
    /// Counts the runs of the server.
    run: watch::Sender<u64>,
    began_at: Mutex<Timestamp>,
    agents_loss: AtomicU64,
    keys: Mutex<Vec<InstanceKey>>,
    ai_types: Mutex<BTreeMap<AgentId, &'static str>>,
    /// The launches of which a process lives on any machine.
    alive: Mutex<BTreeMap<LaunchId, (InstanceKey, Arc<Slumber>)>>,
    /// The launches whose shim was killed.
    without_shim: Mutex<BTreeSet<LaunchId>>,
    /// The ends that a coordinator believes the server knows.
    forgotten: Mutex<Vec<(LaunchId, ProcessEnd)>>,
    talk: Talk,
}

impl Sim {
    fn new(seed: u64, mutant: Option<Mutant>, telling: Telling) -> Arc<Self> {
        let (world, nudge) = (Arc::new(SimWorld::new(seed)), Nudge::new());
        let chronicle = Arc::new(Chronicle::new(telling));
        let health = Health::new(seed, chronicle.clone());
        let store = Arc::new(health.store());
        let service =
            Arc::new(Service::new(store.clone(), world.clone(), sim_settings(), nudge.clone()));
        Arc::new(Self {
            seed,
            mutant,
            world,
            chronicle,
            store,
            health,
            nudge,
            service: Mutex::new(service),
            run: watch::Sender::new(0),
            began_at: Mutex::default(),
            agents_loss: AtomicU64::new(0),
            keys: Mutex::default(),
            ai_types: Mutex::default(),
            alive: Mutex::default(),
            without_shim: Mutex::default(),
            forgotten: Mutex::default(),
            talk: Talk::default(),
        })
    }

    /// Begins another run of the server on the same store.
    fn begin_server(self: &Arc<Self>) {
        let service = Service::new(
            self.store.clone(),
            self.world.clone(),
            sim_settings(),
            self.nudge.clone(),
        );
        let service = Arc::new(service);
        *self.service.lock().unwrap() = service.clone();
        *self.began_at.lock().unwrap() = self.world.now();
        self.run.send_modify(|run| *run += 1);
        self.spawn(look_after(service, self.run.subscribe()));
        self.nudge.wake();
    }

    /// Returns the time when this run of the server began.
    fn began_at(&self) -> Timestamp {
        *self.began_at.lock().unwrap()
    }

    fn service(&self) -> Arc<Service> {
        self.service.lock().unwrap().clone()
    }

    /// Returns the service, and a receiver that changes when its run ends.
    fn service_and_run(&self) -> (Arc<Service>, watch::Receiver<u64>) {
        (self.service(), self.run.subscribe())
    }

    /// Starts a task that belongs to this history. Its panic is a violation.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let chronicle = self.chronicle.clone();
        let guarded = async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                chronicle.violation("something panicked".to_owned());
            }
        };
        tokio::spawn(guarded).abort_handle()
    }

    /// Returns the result of `task`, or `None` if it panicked. The task goes on if its caller is
    /// dropped.
    async fn spawn_for<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let done = tokio::spawn(task).await;
        if done.is_err() {
            self.chronicle.violation("the server panicked".to_owned());
        }
        done.ok()
    }

    fn agents_loss(&self) -> u64 {
        self.agents_loss.load(Ordering::Relaxed)
    }

    fn set_agents_loss(&self, percent: u64) {
        self.agents_loss.store(percent, Ordering::Relaxed);
    }

    fn keys(&self) -> Vec<InstanceKey> {
        self.keys.lock().unwrap().clone()
    }

    fn set_keys(&self, keys: Vec<InstanceKey>) {
        *self.keys.lock().unwrap() = keys;
    }

    /// Returns the type with which the agent is started.
    fn ai_type(&self, agent: &AgentId) -> &'static str {
        self.ai_types.lock().unwrap()[agent]
    }

    fn set_ai_type(&self, agent: AgentId, ai_type: &'static str) {
        self.ai_types.lock().unwrap().insert(agent, ai_type);
    }

    /// Notes the execution of an agent at this moment, and checks that it has no twin. It does not
    /// matter which program knows of it.
    fn is_alive(&self, launch: &LaunchId, key: &InstanceKey, slumber: &Arc<Slumber>) {
        let mut alive = self.alive.lock().unwrap();
        let is_twin = |twin: &LaunchId, other: &InstanceKey, slumber: &Slumber| {
            other == key && !self.is_out_of_reach(twin) && !self.is_asleep(twin, slumber)
        };
        if let Some((twin, _)) =
            alive.iter().find(|(twin, (other, slumber))| is_twin(twin, other, slumber))
        {
            self.chronicle.violation(format!("two live instances of {key}: {twin} and {launch}"));
        }
        alive.insert(launch.clone(), (key.clone(), slumber.clone()));
    }

    fn is_without_shim(&self, launch: &LaunchId) {
        self.without_shim.lock().unwrap().insert(launch.clone());
    }

    /// Returns whether the launch is out of reach. Its shim was killed while no coordinator was
    /// there, and before the server was told of a process. Its claim lapses. Only the next
    /// coordinator of its own machine ends the rest, before its first start.
    fn is_out_of_reach(&self, launch: &LaunchId) -> bool {
        let known =
            self.store.launch(launch).now_or_never().expect("memory answers at once").unwrap();
        self.without_shim.lock().unwrap().contains(launch)
            && known.is_some_and(|known| known.pid.is_none())
    }

    /// Returns whether the launch fell asleep with its machine before the server was told of a
    /// process. Its claim lapses. It stands still during that sleep. Its start deadline has run out
    /// by then, and takes effect first when the machine wakes.
    fn is_asleep(&self, launch: &LaunchId, slumber: &Slumber) -> bool {
        let known =
            self.store.launch(launch).now_or_never().expect("memory answers at once").unwrap();
        tokio::time::Instant::now() <= slumber.until()
            && known.is_some_and(|known| known.pid.is_none())
    }

    /// Checks that no other launch may take the place of a living one.
    async fn check_not_freed(&self, launch: &LaunchId, key: &InstanceKey) {
        let known = self.store.launch(launch).await.unwrap();
        let slumber = self.alive.lock().unwrap().get(launch).map(|(_, slumber)| slumber.clone());
        let is_out_of_reach = self.is_out_of_reach(launch)
            || slumber.is_some_and(|slumber| self.is_asleep(launch, &slumber));
        if !known.is_some_and(|known| known.is_open()) && !is_out_of_reach {
            self.chronicle
                .violation(format!("{launch} of {key} lives, and the server has freed its key"));
        }
    }

    /// Notes that its process tree is empty.
    fn is_dead(&self, launch: &LaunchId) {
        self.alive.lock().unwrap().remove(launch);
    }

    fn alive(&self) -> Vec<(LaunchId, InstanceKey)> {
        self.alive
            .lock()
            .unwrap()
            .iter()
            .map(|(launch, (key, _))| (launch.clone(), key.clone()))
            .collect()
    }

    fn is_forgotten(&self, launch: &LaunchId, end: ProcessEnd) {
        self.forgotten.lock().unwrap().push((launch.clone(), end));
    }

    /// Marks messages as read when they are handed out, for the mutant.
    async fn read_when_handed_out(&self, key: &InstanceKey, up_to: i64) {
        if self.mutant == Some(Mutant::ReadWhenHandedOut) {
            let read = self.store.pair(key).await.unwrap().answered(up_to);
            // The store may fail.
            let _ = rows::write(&self.store, vec![Row::Pair(read)]).await;
        }
    }

    fn take_forgotten(&self) -> Vec<(LaunchId, ProcessEnd)> {
        std::mem::take(&mut *self.forgotten.lock().unwrap())
    }
}

fn sim_settings() -> Settings {
    Settings {
        start: Start { timeout: START_TIMEOUT, ..Start::default() },
        stop: Stop { timeout: host::STOP_TIMEOUT, ..Stop::default() },
        run: RunLimits { linger: LINGER, ..RunLimits::default() },
        notice: Notice { grace: NOTICE_GRACE },
        session: Session {
            max_timeout: SESSION_MAXIMUM,
            cleanup_interval: CLEANUP_INTERVAL,
            ..Session::default()
        },
        chat: Chat { poll_hold: CHAT_HOLD, idle_timeout: CHAT_IDLE },
        backoff: Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(20) },
        ..settings()
    }
}

/// Carries out the other work of a daemon, as long as this run of the server lasts.
async fn look_after(service: Arc<Service>, mut run: watch::Receiver<u64>) {
    tokio::select! {
        biased;
        _ = run.changed() => {}
        never = service.maintenance.look_after() => match never {},
    }
}
