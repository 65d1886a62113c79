//! The loop that keeps agents running: observe, plan, act.
//!
//! It knows no task, only wanted starts, wanted stops and its own processes. What is decided is decided in
//! [`crate::domain::plan`]; this module fetches the facts and carries the plan out. Cycles are woken by nudges and deadlines;
//! the polling interval is a safety net, and a counter says how often it found what nothing had announced.

mod act;
mod children;
mod clocks;
mod control;
mod ears;
mod gates;
mod local;
mod overseer;
mod processes;
mod remote;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use clocks::Clocks;
pub use control::{ClaimAnswer, ControlError, ControlPlane};
use ears::Ears;
use gates::Gatekeeper;
pub use local::LocalControlPlane;
pub use overseer::Overseer;
pub use processes::ProcessLayer;
pub use remote::{LinkState, RemoteConfig, RemoteControlPlane, Token};

use crate::domain::plan::gates::Resources;
use crate::domain::plan::{Action, Deferred, Limits, Plan, Snapshot, plan};
use crate::domain::{CoordinatorId, Instance, LaunchFacts, LaunchId, Phase, StopReason, Timestamp};
use crate::nudge::{Wakeups, sleep_until};
use crate::provider::Providers;
use crate::service::{CoordinatorStatus, Counters};
use crate::telemetry::ErrorChain;

/// What the loop needs of the configuration.
#[derive(Debug, Clone)]
pub struct CoordinatorConfig {
    pub id: CoordinatorId,
    pub polling_interval: Duration,
    pub limits: Limits,
    pub providers: Providers,
    /// Where the output of its agents is.
    pub state_dir: PathBuf,
}

/// Whether the loop starts agents, or is on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Running,
    /// Starts nothing more and ends; its agents stay with their keepers.
    LeavingAgents,
    /// Starts nothing more, ends its agents and then itself.
    StoppingAgents,
    /// As `StoppingAgents`, without any patience.
    StoppingAgentsNow,
}

/// Why a cycle begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WokenBy {
    Start,
    Nudge,
    /// A moment that the last plan named.
    Deadline,
    Poll,
}

/// The loop and what it owns.
pub struct Coordinator<C, P> {
    /// The same for a whole cycle.
    config: CoordinatorConfig,
    /// The newest one, where it may change.
    configured: Option<watch::Receiver<CoordinatorConfig>>,
    overseer: Box<dyn Overseer>,
    control: Arc<C>,
    processes: P,
    ears: Ears,
    clocks: Clocks,
    /// What the server said last of the launches, and the limits then.
    seen_last: Option<(Vec<LaunchFacts>, Limits)>,
    /// Since when agents are silent that have been so for long.
    silent: BTreeMap<LaunchId, Timestamp>,
    gatekeeper: Gatekeeper,
    wakeups: Wakeups,
    mode: watch::Receiver<Mode>,
    counters: Counters,
    /// What was last said of it, in which run of the server.
    reported: Option<(String, CoordinatorStatus)>,
    /// When the last cycle wanted the next one.
    look_again_at: Option<Timestamp>,
    /// Attempts to reach the server that failed in a row; told when it becomes or stops being 0.
    n_failed: u32,
    /// The run of the server that was seen last.
    run: String,
    /// Cycles in a row after which something had to be told again.
    n_incomplete: u32,
    /// Started with another provider; each is told once.
    unknown_ai_types: Mutex<BTreeSet<String>>,
}

/// How soon the loop asks again where the server didn't answer, and tells again what it didn't take. Doubled with each further
/// failure, up to the polling interval: a server that is back announces itself.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Between two cycles that deadlines ask for, however they lie.
const LEAST_PAUSE: Duration = Duration::from_millis(10);
/// By so much two measurements of one silence may differ.
const NEW_SILENCE: Duration = Duration::from_secs(5);
/// How long an agent that is to end waits for the server to hear why.
const LAST_WORDS: Duration = Duration::from_secs(2);

impl<C: ControlPlane, P: ProcessLayer> Coordinator<C, P> {
    /// `wakeups` are those of the server and of the process table. Must be called within a tokio runtime.
    pub fn new(
        config: CoordinatorConfig,
        control: C,
        processes: P,
        wakeups: Wakeups,
        mode: watch::Receiver<Mode>,
    ) -> Self {
        let adoptions = processes.instances().iter().filter(|instance| instance.adopted).count();
        let counters = Counters { adoptions: adoptions as u64, ..Counters::default() };
        let control = Arc::new(control);
        Self {
            ears: Ears::new(config.state_dir.clone(), Arc::clone(&control)),
            clocks: Clocks::default(),
            seen_last: None,
            silent: BTreeMap::new(),
            gatekeeper: Gatekeeper::default(),
            config,
            configured: None,
            overseer: Box::new(()),
            control,
            processes,
            wakeups,
            mode,
            counters,
            reported: None,
            look_again_at: None,
            n_failed: 0,
            run: String::new(),
            n_incomplete: 0,
            unknown_ai_types: Mutex::default(),
        }
    }

    /// Goes by the newest of these from the next cycle on. Who it is and where it keeps things stays as it was made. Whoever
    /// changes it wakes the loop.
    #[must_use]
    pub fn configured_by(mut self, configured: watch::Receiver<CoordinatorConfig>) -> Self {
        self.configured = Some(configured);
        self
    }

    /// Tells `overseer` how the loop goes.
    #[must_use]
    pub fn overseen_by(mut self, overseer: impl Overseer) -> Self {
        self.overseer = Box::new(overseer);
        self
    }

    /// Runs until the mode says otherwise and, if agents are to be stopped, they are gone.
    pub async fn run(mut self) {
        let mut poll = self.poll();
        let mut woken_by = WokenBy::Start;
        loop {
            if self.take_configuration() {
                poll = self.poll();
            }
            let mode = *self.mode.borrow_and_update();
            if mode == Mode::StoppingAgents && self.processes.instances().is_empty() {
                return;
            }
            let mut other_mode = self.mode.clone();
            let done = tokio::select! {
                biased;
                done = self.cycle(woken_by, mode) => done,
                // A server that hangs keeps nobody from leaving: the next coordinator does again what was given up.
                () = leaving(&mut other_mode) => continue,
            };
            let wake_in = match done {
                Ok(wake_in) => wake_in,
                Err(error) => {
                    self.note_failure(&error);
                    self.end_overlong().await;
                    // Who watches from here doesn't need the server to know what runs.
                    let deferred =
                        self.reported.as_ref().map(|(_, status)| status.deferred.clone());
                    self.overseer
                        .changed(&self.status(self.control.now(), deferred.unwrap_or_default()));
                    Some(self.retry_after(self.n_failed))
                }
            };
            if self.is_finished(mode) {
                return;
            }
            let deadline = wake_in.map(|wake_in| Instant::now() + wake_in.max(LEAST_PAUSE));
            woken_by = loop {
                let turn_at = self.overseer.turned().map(|within| Instant::now() + within);
                // Each branch is cancel-safe: a wake-up, a tick and a change of mode stay until they are taken.
                break tokio::select! {
                    biased;
                    changed = self.mode.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        WokenBy::Nudge
                    }
                    () = self.wakeups.woken() => WokenBy::Nudge,
                    () = self.ears.login_refused() => WokenBy::Nudge,
                    () = sleep_until(deadline) => WokenBy::Deadline,
                    _ = poll.tick() => WokenBy::Poll,
                    // Only to show that it still can.
                    () = sleep_until(turn_at) => continue,
                };
            };
        }
    }

    fn poll(&self) -> Interval {
        let interval = self.config.polling_interval;
        let mut poll = tokio::time::interval_at(Instant::now() + interval, interval);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        poll
    }

    /// Between two cycles. Whether it has another pace now.
    fn take_configuration(&mut self) -> bool {
        let Some(configured) = &mut self.configured else {
            return false;
        };
        if !configured.has_changed().unwrap_or(false) {
            return false;
        }
        let before = std::mem::replace(&mut self.config, configured.borrow_and_update().clone());
        before.polling_interval != self.config.polling_interval
    }

    fn is_finished(&self, mode: Mode) -> bool {
        match mode {
            Mode::Running => false,
            Mode::LeavingAgents => true,
            // What has ended stays listed until the server knows; one that is away learns it from the next coordinator.
            Mode::StoppingAgents => {
                let instances = self.processes.instances();
                instances.is_empty()
                    || (self.n_failed > 0 && !instances.iter().any(Instance::is_live))
            }
            // Their keepers end them; nobody waits.
            Mode::StoppingAgentsNow => true,
        }
    }

    /// One turn: what is seen, what is to be done, doing it. Says when the plan wants to be made again.
    async fn cycle(
        &mut self,
        woken_by: WokenBy,
        mode: Mode,
    ) -> Result<Option<Duration>, ControlError> {
        self.counters.cycles += 1;
        // First, and by what is seen here alone: a server that doesn't answer must not keep agents alive.
        self.end_agents(mode).await;
        if mode == Mode::LeavingAgents {
            return Ok(None);
        }
        let mut other_mode = self.mode.clone();
        let (run, snapshot) = tokio::select! {
            biased;
            // Looking changes nothing and may take long: what is to end doesn't wait for it.
            Ok(()) = other_mode.changed() => return Ok(Some(Duration::ZERO)),
            observed = self.observe(mode) => observed?,
        };
        let was_away = std::mem::take(&mut self.n_failed) > 0;
        if was_away {
            tracing::info!("the server answers again");
        }
        let is_new_run = std::mem::replace(&mut self.run, run.clone()) != run;
        self.ears.follow(&snapshot.instances, &run);
        let plan = plan(&snapshot);
        let Snapshot { now, instances, launches, limits, .. } = snapshot;
        self.seen_last = Some((launches, limits));
        // The poll may be first by a hair where a nudge is on its way or a deadline has just passed.
        let is_announced =
            self.wakeups.is_pending() || self.look_again_at.is_some_and(|at| at <= now);
        // A server that has just come back announces what happened before only when it is listened to again.
        let is_back = was_away || is_new_run;
        if woken_by == WokenBy::Poll && !is_announced && !is_back && self.control.announces() {
            self.count_found_by_poll(&plan);
        }
        log_stops(&plan);
        for deferred in &plan.deferred {
            tracing::debug!(
                agent_id = %deferred.key.agent, project_id = %deferred.key.project, purpose = %deferred.key.purpose,
                reason = %deferred.reason, until = deferred.until.map(tracing::field::display), "start deferred"
            );
        }
        self.note_silent(&plan, now);
        let wake_at = plan.wake_at;
        let deferred = plan.deferred;
        self.counters.leaked += n_leaked(&plan.actions, &instances);
        let acted = self.act(plan.actions).await;
        self.counters.starts += acted.n_started;
        self.report_status(&run, now, deferred).await;
        // Nothing announces that the server can write again.
        self.n_incomplete = if acted.is_complete { 0 } else { self.n_incomplete.saturating_add(1) };
        let retry_at = (!acted.is_complete).then(|| now + self.retry_after(self.n_incomplete));
        // And an unannouncing one doesn't say that it knows of an end, which is forgotten then.
        let forget_at = (acted.has_told_ends && !self.control.announces()).then_some(now);
        self.look_again_at = wake_at.into_iter().chain(retry_at).chain(forget_at).min();
        Ok(self.look_again_at.map(|at| at.since(now)))
    }

    /// Which run of the server it is, and what is seen. Instances first: what was claimed is then never missing from the
    /// server's launches while its process is seen.
    async fn observe(&mut self, mode: Mode) -> Result<(String, Snapshot), ControlError> {
        let instances = self.processes.instances();
        let view = self.control.observe(&instances).await?;
        let limits = Limits {
            linger: view.linger().unwrap_or(self.config.limits.linger),
            start_timeout: view.start_timeout(),
            session_maximum: view.session_maximum(),
            ..self.config.limits
        };
        let (now, state_dir) = (self.processes.steady_now(), &self.config.state_dir);
        let is_stream = |ai_type: &str| self.config.providers.prints_stream(ai_type);
        let (here, times) =
            ((state_dir.as_path(), &is_stream as &dyn Fn(&str) -> bool), (now, view.at));
        let elapsed =
            self.clocks.look(times, &instances, &view.launches, &self.ears, here, &limits);
        let startable = if mode == Mode::Running { view.startable } else { Vec::new() };
        // Processes are seen by the clock of this machine; everything that is planned goes by the server's.
        let instances = instances
            .iter()
            .cloned()
            .map(|instance| instance.moved(|at| self.control.on_server(at)));
        let instances = instances.collect();
        let free = gates::free(&limits, &self.config.state_dir);
        self.gatekeeper.note(crate::domain::plan::gates::closed(&limits, free));
        let snapshot = Snapshot {
            now: view.at,
            coordinator: self.config.id.clone(),
            startable,
            launches: view.launches,
            instances,
            elapsed,
            refused: self.ears.refused(),
            limits,
            free,
        };
        Ok((view.run, snapshot))
    }

    /// While the server doesn't answer: what runs for too long is ended all the same, by what the server said last. It is told when
    /// it answers again.
    async fn end_overlong(&mut self) {
        let Some((launches, limits)) = self.seen_last.clone() else {
            return;
        };
        let limits = Limits { max_runtime: self.config.limits.max_runtime, ..limits };
        let (instances, now) = (self.processes.instances(), self.control.now());
        let (steady_now, state_dir) = (self.processes.steady_now(), &self.config.state_dir);
        let is_stream = |ai_type: &str| self.config.providers.prints_stream(ai_type);
        let (here, times) =
            ((state_dir.as_path(), &is_stream as &dyn Fn(&str) -> bool), (steady_now, now));
        let elapsed = self.clocks.look(times, &instances, &launches, &self.ears, here, &limits);
        let coordinator = self.config.id.clone();
        let (startable, refused, free) = (Vec::new(), BTreeSet::new(), Resources::default());
        let instances = instances.to_vec();
        let snapshot = Snapshot {
            now,
            coordinator,
            startable,
            launches,
            instances,
            elapsed,
            refused,
            limits,
            free,
        };
        let is_over = |action: &Action| {
            matches!(
                action,
                Action::Stop { reason: StopReason::RunMaximum | StopReason::SessionMaximum, .. }
            )
        };
        let overlong = Plan {
            actions: plan(&snapshot).actions.into_iter().filter(is_over).collect(),
            ..Plan::default()
        };
        log_stops(&overlong);
        for action in overlong.actions {
            if let Action::Stop { launch, reason } = action {
                self.processes.request_stop(&launch, reason, None).await;
            }
        }
    }

    /// On the way out: the keepers are told, and the server why, as far as it listens.
    async fn end_agents(&self, mode: Mode) {
        let timeout = match mode {
            Mode::Running | Mode::LeavingAgents => return,
            Mode::StoppingAgents => None,
            Mode::StoppingAgentsNow => Some(Duration::ZERO),
        };
        let instances = self.processes.instances();
        let to_end = instances.iter().filter(|instance| {
            instance.is_live() && (instance.stop.is_none() || timeout.is_some())
        });
        let ends = to_end.map(|instance| async move {
            let told = self.control.want_stop(&instance.launch, StopReason::Shutdown);
            match tokio::time::timeout(LAST_WORDS, told).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::debug!(launch_id = %instance.launch, error = %ErrorChain(&error), "the stop is not marked");
                }
                Err(_) => tracing::debug!(launch_id = %instance.launch, "the stop is not marked yet"),
            }
            self.processes.request_stop(&instance.launch, StopReason::Shutdown, timeout).await;
        });
        futures::future::join_all(ends).await;
    }

    fn count_found_by_poll(&mut self, plan: &Plan) {
        if !plan.actions.is_empty() {
            self.counters.found_by_poll_only += plan.actions.len() as u64;
            tracing::warn!(
                n_actions = plan.actions.len(),
                "the poll found what nothing had announced"
            );
        }
    }

    /// Remembers since when agents are silent: measured anew, it would be a little different each time.
    fn note_silent(&mut self, plan: &Plan, now: Timestamp) {
        let since = |launch: &LaunchId, silence: Duration| {
            let measured =
                Timestamp::from_millis(now.as_millis().saturating_sub_unsigned(millis(silence)));
            // Children at work that paused begin a new silence.
            let known =
                self.silent.get(launch).filter(|known| measured.since(**known) < NEW_SILENCE);
            known.copied().unwrap_or(measured)
        };
        self.silent = plan
            .silent
            .iter()
            .map(|(launch, silence)| (launch.clone(), since(launch, *silence)))
            .collect();
    }

    fn status(&self, now: Timestamp, deferred: Vec<Deferred>) -> CoordinatorStatus {
        let mut instances = self.processes.instances().to_vec();
        for instance in &mut instances {
            instance.condition.silent_since = self.silent.get(&instance.launch).copied();
        }
        CoordinatorStatus {
            coordinator: self.config.id.clone(),
            at: now,
            limits: self.config.limits,
            instances,
            deferred,
            counters: self.counters,
        }
    }

    async fn report_status(&mut self, run: &str, now: Timestamp, deferred: Vec<Deferred>) {
        let status = self.status(now, deferred);
        let is_news = self
            .reported
            .as_ref()
            .is_none_or(|(heard_by, before)| heard_by != run || !says_the_same(before, &status));
        if is_news {
            self.overseer.changed(&status);
            match self.control.report_status(status.clone()).await {
                Ok(()) => self.reported = Some((run.to_owned(), status)),
                Err(error) => {
                    tracing::debug!(error = %ErrorChain(&error), "the status was not taken");
                }
            }
        }
    }

    fn retry_after(&self, n_failed: u32) -> Duration {
        let doublings = n_failed.saturating_sub(1).min(16);
        (RETRY_AFTER * 2u32.pow(doublings)).min(self.config.polling_interval.max(RETRY_AFTER))
    }

    fn note_failure(&mut self, error: &ControlError) {
        self.n_failed = self.n_failed.saturating_add(1);
        if self.n_failed > 1 {
            tracing::debug!(error = %ErrorChain(error), "could not ask the server");
        } else {
            tracing::error!(error = %ErrorChain(error), "could not ask the server; running agents go on, will ask again");
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Of instances that are forgotten now, which happens once to each.
fn n_leaked(actions: &[Action], instances: &[Instance]) -> u64 {
    let is_forgotten = |launch: &LaunchId| {
        actions.iter().any(|action| matches!(action, Action::Forget { launch: it } if it == launch))
    };
    let of = |instance: &Instance| match instance.phase {
        Phase::Ended { n_leaked, .. } if is_forgotten(&instance.launch) => u64::from(n_leaked),
        Phase::Starting | Phase::Running { .. } | Phase::Exited { .. } | Phase::Ended { .. } => 0,
    };
    instances.iter().map(of).sum()
}

fn log_stops(plan: &Plan) {
    for action in &plan.actions {
        if let Action::Stop { launch, reason } = action {
            tracing::info!(launch_id = %launch, reason = %reason, "stopping the agent");
        }
    }
}

/// Whether two reports differ in nothing but their time and the number of cycles.
fn says_the_same(a: &CoordinatorStatus, b: &CoordinatorStatus) -> bool {
    let counters = |status: &CoordinatorStatus| Counters { cycles: 0, ..status.counters };
    a.limits == b.limits
        && a.instances == b.instances
        && a.deferred == b.deferred
        && counters(a) == counters(b)
}

/// Returns when the mode becomes one that waits for nothing. Cancel-safe.
async fn leaving(mode: &mut watch::Receiver<Mode>) {
    while mode.changed().await.is_ok() {
        if matches!(*mode.borrow_and_update(), Mode::LeavingAgents | Mode::StoppingAgentsNow) {
            return;
        }
    }
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests;
