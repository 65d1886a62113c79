//! The loop that keeps agents running: observe, plan, act.
//!
//! It knows no tasks, only wanted starts, wanted stops and its own processes.
//! [`domain::plan`] decides; this module fetches the facts and carries the plan out. Nudges
//! and deadlines wake the cycles. The polling interval is a safety net, and a counter says how
//! often a poll found a change that nothing had announced.

mod act;
mod children;
mod clocks;
mod control;
mod ending;
mod faults;
mod hooks;
mod local;
mod loop_observer;
mod output_watcher;
mod processes;
mod remote;
mod resource_gate;
mod shared;
mod snapshots;
mod workspaces;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use act::log_stops;
use clocks::{Clocks, Observation};
pub use control::{ControlError, ControlPlane, Delivery};
use faults::StartFaults;
pub use faults::{Unstartable, anywhere, command_anywhere, find_unstartable, setting_of_path};
pub use hooks::{HookRunner, HookSettings};
pub use local::LocalControlPlane;
pub use loop_observer::LoopObserver;
use output_watcher::OutputWatcher;
pub use processes::ProcessLayer;
pub use remote::{LinkState, RemoteConfig, RemoteControlPlane, Token};
use resource_gate::ResourceGate;
pub use shared::HostFiles;
use shared::SharedDirectories;
use workspaces::WorkspaceJobs;

use crate::provider::Providers;
use domain::counters::Counters;
use domain::plan::{Action, Deferred, Limits, Plan, RunLimits, Snapshot, plan};
use domain::start_history::StartReason;
use domain::time::millis;
use domain::workspace::Job;
use domain::{CoordinatorId, Instance, InstanceKey, LaunchFacts, LaunchId, Phase, Timestamp};
use runtime::clock;
use runtime::nudge::{Wakeups, sleep_until};
use runtime::telemetry::ErrorChain;
use service::CoordinatorStatus;

/// The part of the configuration that the loop needs.
#[derive(Debug, Clone)]
pub struct CoordinatorConfig {
    pub id: CoordinatorId,
    pub polling_interval: Duration,
    pub limits: Limits,
    pub providers: Providers,
    /// The directory that contains the output of its agents.
    pub state_dir: PathBuf,
}

/// The mode of the loop: it starts agents, or it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Running,
    /// Starts no more agents and ends; the agents stay with their shims.
    LeavingAgents,
    /// Starts no more agents, ends its agents and then itself.
    StoppingAgents,
    /// Ends its agents like `StoppingAgents`, but without a stop timeout.
    StoppingAgentsNow,
}

/// The reason why a cycle begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WokenBy {
    Start,
    Nudge,
    /// A deadline that the last plan named.
    Deadline,
    Poll,
}

/// The loop and the state that it owns.
pub struct Coordinator<C, P> {
    /// The configuration of a whole cycle; it does not change within one.
    config: CoordinatorConfig,
    /// The source of newer configurations, if the configuration may change.
    configured: Option<watch::Receiver<CoordinatorConfig>>,
    loop_observer: Box<dyn LoopObserver>,
    control: Arc<C>,
    processes: P,
    workspaces: WorkspaceJobs<C>,
    shared: SharedDirectories,
    faults: StartFaults,
    output_watcher: OutputWatcher,
    clocks: Clocks,
    /// The start of the silence of each agent that has been silent for long.
    silent: BTreeMap<LaunchId, Timestamp>,
    /// The starts that wait for their clones, and since when.
    preparing: BTreeMap<InstanceKey, Instant>,
    resource_gate: ResourceGate,
    wakeups: Wakeups,
    mode: watch::Receiver<Mode>,
    counters: Counters,
    /// The time that the last cycle wanted for the next cycle.
    look_again_at: Option<Timestamp>,
    server: ServerContact,
    /// AI types that were started with another provider. Each is logged once.
    unknown_ai_types: Mutex<BTreeSet<String>>,
}

/// The last exchanges with the server.
#[derive(Default)]
struct ServerContact {
    /// The run of the server that answered last.
    run: String,
    /// Its last answer.
    seen: Option<SeenLast>,
    /// The last status that was reported to it.
    reported: Option<ReportedStatus>,
    /// The number of failed attempts in a row to get the work.
    n_failed: u32,
    /// The reason of the last of these attempts. Each change of it is logged.
    failure: Option<String>,
    /// The number of cycles in a row that left something to report again.
    n_incomplete: u32,
}

/// The launches that the server reported, and the limits at that time.
#[derive(Clone)]
struct SeenLast {
    launches: Vec<LaunchFacts>,
    limits: Limits,
}

/// A status, and the run of the server that it was reported to.
struct ReportedStatus {
    run: String,
    status: CoordinatorStatus,
}

/// The pause before the loop asks again if the server did not answer, or reports again what the
/// server did not accept. It doubles with each further failure, up to the polling interval: a
/// server that is back announces itself.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The shortest pause between two cycles that deadlines ask for.
const LEAST_PAUSE: Duration = Duration::from_millis(10);
/// The difference that two measurements of one silence may have.
const NEW_SILENCE: Duration = Duration::from_secs(5);

impl<C: ControlPlane, P: ProcessLayer> Coordinator<C, P> {
    /// Makes the loop. `wakeups` are those of the server and of the process table. Must be called
    /// within a tokio runtime.
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
            output_watcher: OutputWatcher::new(config.state_dir.clone(), Arc::clone(&control)),
            workspaces: WorkspaceJobs::new(Arc::clone(&control)),
            shared: SharedDirectories::new(),
            faults: StartFaults::default(),
            clocks: Clocks::default(),
            silent: BTreeMap::new(),
            preparing: BTreeMap::new(),
            resource_gate: ResourceGate::default(),
            config,
            configured: None,
            loop_observer: Box::new(()),
            control,
            processes,
            wakeups,
            mode,
            counters,
            look_again_at: None,
            server: ServerContact::default(),
            unknown_ai_types: Mutex::default(),
        }
    }

    /// Uses the newest of these configurations from the next cycle on. The id and the state
    /// directory stay as they were made. The caller that changes the configuration must also wake
    /// the loop.
    #[must_use]
    pub fn configured_by(mut self, configured: watch::Receiver<CoordinatorConfig>) -> Self {
        self.configured = Some(configured);
        self
    }

    /// Reports the progress of the loop to this observer.
    #[must_use]
    pub fn observed_by(mut self, loop_observer: impl LoopObserver) -> Self {
        self.loop_observer = Box::new(loop_observer);
        self
    }

    /// Runs until the mode ends it. If agents are to be stopped, it runs until they are gone.
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
                // A server that hangs does not keep the loop from ending: the next coordinator
                // repeats what was given up.
                () = leaving(&mut other_mode) => continue,
            };
            let wake_in = match done {
                Ok(wake_in) => wake_in,
                Err(error) => {
                    self.note_failure(&error);
                    self.end_overlong().await;
                    // The observer does not need the server to know what runs.
                    let reported = self.server.reported.as_ref();
                    let deferred = reported.map(|reported| reported.status.deferred.clone());
                    self.loop_observer
                        .changed(&self.status(self.control.now(), deferred.unwrap_or_default()));
                    Some(self.retry_after(self.server.n_failed))
                }
            };
            if self.is_finished(mode) {
                return;
            }
            let deadline = wake_in.map(|wake_in| clock::now() + wake_in.max(LEAST_PAUSE));
            woken_by = loop {
                let turn_at = self.loop_observer.turned().map(|within| clock::now() + within);
                // Each branch is cancel-safe: a wake-up, a tick and a change of mode stay until
                // they are taken.
                break tokio::select! {
                    biased;
                    changed = self.mode.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        WokenBy::Nudge
                    }
                    () = self.wakeups.woken() => WokenBy::Nudge,
                    () = self.output_watcher.login_refused() => WokenBy::Nudge,
                    () = self.workspaces.ended() => WokenBy::Nudge,
                    () = self.shared.snapshots.ended() => WokenBy::Nudge,
                    () = sleep_until(deadline) => WokenBy::Deadline,
                    _ = poll.tick() => WokenBy::Poll,
                    // The observer is told again that the loop still turns.
                    () = sleep_until(turn_at) => continue,
                };
            };
        }
    }

    fn poll(&self) -> Interval {
        let interval = self.config.polling_interval;
        let mut poll = tokio::time::interval_at(clock::now() + interval, interval);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        poll
    }

    /// Takes the newest configuration, between two cycles. Returns true if the polling interval
    /// changed.
    fn take_configuration(&mut self) -> bool {
        let Some(configured) = &mut self.configured else {
            return false;
        };
        if !configured.has_changed().unwrap_or(false) {
            return false;
        }
        let before = std::mem::replace(&mut self.config, configured.borrow_and_update().clone());
        self.faults.forget_checks();
        before.polling_interval != self.config.polling_interval
    }

    fn is_finished(&self, mode: Mode) -> bool {
        match mode {
            Mode::Running => false,
            Mode::LeavingAgents => true,
            // Ended instances stay listed until the server knows of their end. A server that is
            // away learns of it from the next coordinator.
            Mode::StoppingAgents => {
                let instances = self.processes.instances();
                instances.is_empty()
                    || (self.server.n_failed > 0 && !instances.iter().any(Instance::is_live))
            }
            // Their shims end them, and the loop does not wait for that.
            Mode::StoppingAgentsNow => true,
        }
    }

    /// Runs one cycle: observes, plans and acts. Returns the time until the plan wants to be made
    /// again.
    async fn cycle(
        &mut self,
        woken_by: WokenBy,
        mode: Mode,
    ) -> Result<Option<Duration>, ControlError> {
        self.counters.cycles += 1;
        // This comes first, and uses only local facts: a server that does not answer must not keep
        // agents alive.
        self.end_agents(mode).await;
        if mode == Mode::LeavingAgents {
            return Ok(None);
        }
        let mut other_mode = self.mode.clone();
        let (run, snapshot) = tokio::select! {
            biased;
            // Observing changes nothing and may take long, so agents that are to end do not wait
            // for it.
            Ok(()) = other_mode.changed() => return Ok(Some(Duration::ZERO)),
            observed = self.observe(mode) => observed?,
        };
        let was_away = std::mem::take(&mut self.server.n_failed) > 0;
        if was_away {
            self.server.failure = None;
            tracing::info!("the server answers again");
        }
        let is_new_run = std::mem::replace(&mut self.server.run, run.clone()) != run;
        self.output_watcher.follow(&snapshot.instances, &run);
        let plan = plan(&snapshot);
        let Snapshot { now, instances, launches, limits, .. } = snapshot;
        self.server.seen = Some(SeenLast { launches, limits });
        // The poll may come first by a moment if a nudge is on its way or a deadline has just
        // passed.
        let is_announced = self.wakeups.is_pending()
            || self.look_again_at.is_some_and(|at| at <= now)
            || self.faults.has_changed;
        // A server that has just come back announces earlier changes only when the loop listens
        // again.
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
        self.note_preparing(&plan);
        self.shared.note_crowds(plan.crowds);
        let wake_at = plan.wake_at;
        let deferred = plan.deferred;
        self.counters.leaked += n_leaked(&plan.actions, &instances);
        let acted = self.act(plan.actions).await;
        self.counters.starts += acted.n_started;
        self.report_status(&run, now, deferred).await;
        // The server does not announce that it can write again.
        let n_incomplete = self.server.n_incomplete.saturating_add(1);
        self.server.n_incomplete = if acted.is_complete { 0 } else { n_incomplete };
        let retry_at = (!acted.is_complete).then(|| now + self.retry_after(n_incomplete));
        // A server without announcements does not say that it knows of an end. The next cycle,
        // which forgets the instance, must not wait.
        let forget_at = (acted.has_told_ends && !self.control.announces()).then_some(now);
        self.look_again_at = wake_at.into_iter().chain(retry_at).chain(forget_at).min();
        Ok(self.look_again_at.map(|at| at.since(now)))
    }

    /// Returns the run of the server and the snapshot. Instances are read first: a launch is then
    /// never missing from the server's launches while its process is seen.
    async fn observe(&mut self, mode: Mode) -> Result<(String, Snapshot), ControlError> {
        let instances = self.processes.instances();
        let view = self.control.observe(&instances).await?;
        let run = self.config.limits.run;
        let limits = Limits {
            run: RunLimits { linger: view.linger().unwrap_or(run.linger), ..run },
            start_timeout: view.start_timeout(),
            session_maximum: view.session_maximum(),
            ..self.config.limits
        };
        let now = self.processes.steady_now();
        let seen = Observation {
            now,
            at: view.at,
            instances: &instances,
            launches: &view.launches,
            limits: &limits,
            providers: &self.config.providers,
            state_dir: &self.config.state_dir,
        };
        let elapsed = self.clocks.measure(&seen, &self.output_watcher);
        let startable = if mode == Mode::Running { view.startable } else { Vec::new() };
        // Processes are seen by the clock of this machine. The plan uses only the server's clock.
        let instances = instances
            .iter()
            .cloned()
            .map(|instance| instance.moved(|at| self.control.on_server(at)));
        let instances: Vec<Instance> = instances.collect();
        let shared =
            self.shared.observe(mode, &startable, view.shared_directories, &instances).await;
        let free = resource_gate::free(&limits.start, &self.config.state_dir);
        self.resource_gate.note(domain::plan::gates::closed(&limits.start, free));
        let faults = self.faults.find(&startable, &self.config.providers).await;
        let snapshot = Snapshot {
            now: view.at,
            coordinator: self.config.id.clone(),
            startable,
            faults,
            launches: view.launches,
            jobs: if mode == Mode::Running { view.jobs } else { Vec::new() },
            busy_workspaces: self.workspaces.busy(),
            given_up: self.workspaces.given_up(),
            removing_workspaces: self.workspaces.removing(),
            passed_hooks: self.workspaces.passed_hooks(),
            preparing: self
                .preparing
                .iter()
                .map(|(key, since)| (key.clone(), now.saturating_duration_since(*since)))
                .collect(),
            failing_hooks: self.workspaces.hooks().map(HookRunner::failing).unwrap_or_default(),
            shared,
            instances,
            elapsed,
            refused: self.output_watcher.refused(),
            limits,
            free,
        };
        Ok((view.run, snapshot))
    }

    fn count_found_by_poll(&mut self, plan: &Plan) {
        // That a workspace has become old is announced by nothing.
        let is_removal = |job: &Job| matches!(job, Job::Remove(_) | Job::RemoveUnused { .. });
        let is_news =
            |action: &&Action| !matches!(action, Action::Workspace(job) if is_removal(job));
        let n_actions = plan.actions.iter().filter(is_news).count();
        if n_actions > 0 {
            self.counters.found_by_poll_only += n_actions as u64;
            tracing::warn!(n_actions, "a poll found work that was not announced");
        }
    }

    /// Remembers the start of each silence: measured anew, it would differ a little each time.
    fn note_silent(&mut self, plan: &Plan, now: Timestamp) {
        let since = |launch: &LaunchId, silence: Duration| {
            let measured =
                Timestamp::from_millis(now.as_millis().saturating_sub_unsigned(millis(silence)));
            // A silence begins anew if children were at work and then paused.
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

    /// Remembers since when each start waits for its clone.
    fn note_preparing(&mut self, plan: &Plan) {
        let now = self.processes.steady_now();
        let before = std::mem::take(&mut self.preparing);
        let waits = |deferred: &&Deferred| deferred.reason == StartReason::PreparingWorkspace;
        let since = |it: &Deferred| (it.key.clone(), before.get(&it.key).copied().unwrap_or(now));
        self.preparing = plan.deferred.iter().filter(waits).map(since).collect();
    }

    fn status(&self, now: Timestamp, mut deferred: Vec<Deferred>) -> CoordinatorStatus {
        let is_preparing = |it: &&mut Deferred| it.reason == StartReason::PreparingWorkspace;
        for waits in deferred.iter_mut().filter(is_preparing) {
            let upgrade = self.workspaces.upgrade_progress(&waits.key.project);
            waits.detail = upgrade.or(waits.detail.take());
        }
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
            crowds: self.shared.crowds(),
            failed_snapshots: self.shared.snapshots.failed(),
            machine: Some(resource_gate::machine(&self.config.state_dir)),
            counters: self.counters,
        }
    }

    async fn report_status(&mut self, run: &str, now: Timestamp, deferred: Vec<Deferred>) {
        let status = self.status(now, deferred);
        let is_news =
            self.server.reported.as_ref().is_none_or(|reported| {
                reported.run != run || status.is_news_after(&reported.status)
            });
        if is_news {
            self.loop_observer.changed(&status);
            match self.control.report_status(status.clone()).await {
                Ok(()) => {
                    self.server.reported = Some(ReportedStatus { run: run.to_owned(), status });
                }
                Err(error) => {
                    tracing::debug!(error = %ErrorChain(&error), "the server did not take the status of the coordinator");
                }
            }
        }
    }

    fn retry_after(&self, n_failed: u32) -> Duration {
        let doublings = n_failed.saturating_sub(1).min(16);
        (RETRY_AFTER * 2u32.pow(doublings)).min(self.config.polling_interval.max(RETRY_AFTER))
    }

    fn note_failure(&mut self, error: &ControlError) {
        self.server.n_failed = self.server.n_failed.saturating_add(1);
        let reason = ErrorChain(error).to_string();
        if self.server.failure.as_ref() == Some(&reason) {
            tracing::debug!(error = reason, "could not ask the server");
        } else {
            tracing::warn!(
                error = reason,
                "could not ask the server; running agents go on, will ask again"
            );
            self.server.failure = Some(reason);
        }
    }
}

/// Returns the number of leaked processes of the instances that are forgotten now. Each instance is
/// forgotten once.
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

/// Returns when the mode becomes one that does not wait for agents. Cancel-safe.
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
