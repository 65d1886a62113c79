//! The server's side of coordinators: their views and their reports. A coordinator knows no task.
//! It knows only wanted starts, wanted stops and its own processes.

pub(super) mod board;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use domain::id::CoordinatorId;
use domain::incarnation::{Incarnation, Incarnations, StartStanding};
use domain::limits;
use domain::machine::Machine;
use domain::start_history::StartReason;
use domain::workspace::Job;
use domain::{Candidate, Launch, LaunchFacts, LaunchId, Purpose, Refusal, StopReason, Timestamp};
use machine::locks::lock;
use store::rows::{launches, startable};

use super::chats::presence::Attendances;
use super::chats::silence;
use super::clocks::Clocks;
use super::core::Core;
use super::launches::change::want_stop;
use super::launches::shims::Shims;
use super::waiting::Waiting;
use super::workspaces::{self, Room};
use super::{ServiceError, Shared};
use board::{CoordinatorBoard, CoordinatorStatus};

/// The server's part of what a plan is made from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerView {
    /// The server's time for all decisions in this view.
    pub at: Timestamp,
    /// The time that an agent may stay after its report, in milliseconds. The coordinator plans
    /// stop sequences with it.
    #[serde(default)]
    pub linger_ms: Option<u64>,
    /// The time that an agent may take to authenticate, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_timeout_ms: Option<u64>,
    /// The time that an agent with a session may run, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_maximum_ms: Option<u64>,
    /// The run of the server. Another run does not know the facts that were only in memory.
    #[serde(default)]
    pub run: String,
    pub startable: Vec<Candidate>,
    /// Open launches: all launches of the asking coordinator, perhaps launches of others.
    pub launches: Vec<LaunchFacts>,
    /// The directories of those of `launches` that work on tasks without a clone. Only the
    /// coordinator in the server's process gets them.
    #[serde(skip)]
    pub shared_directories: BTreeMap<LaunchId, PathBuf>,
    /// The steps that workspaces need. Only the coordinator in the server's process takes them.
    #[serde(skip)]
    pub jobs: Vec<Job>,
}

impl ServerView {
    /// Returns the time that an agent may stay after its report, if the server says it.
    pub fn linger(&self) -> Option<Duration> {
        self.linger_ms.map(Duration::from_millis)
    }

    /// Returns the time that an agent may take to authenticate, if the server says it.
    pub fn start_timeout(&self) -> Option<Duration> {
        self.start_timeout_ms.map(Duration::from_millis)
    }

    /// Returns the time that an agent with a session may run, if the server says it.
    pub fn session_maximum(&self) -> Option<Duration> {
        self.session_maximum_ms.map(Duration::from_millis)
    }
}

/// A view, and a mark with which a later call waits for news.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Work {
    /// An opaque mark.
    pub seen: String,
    #[serde(flatten)]
    pub view: ServerView,
}

/// The coordinators in this process and elsewhere.
pub struct Coordinators {
    core: Arc<Core>,
    heard: super::Heard,
    waiting: Waiting,
    clocks: Arc<Clocks>,
    attendances: Arc<Attendances>,
    shims: Arc<Shims>,
    board: Arc<CoordinatorBoard>,
    checkouts: workspaces::OwnCheckouts,
    /// The latest start of each coordinator outside this process.
    incarnations: Mutex<Incarnations>,
    /// Distinguishes this run of the server from all others.
    run: u64,
    /// Cancelled when the server must not hold calls any more.
    ending: CancellationToken,
}

impl Coordinators {
    pub(super) fn new(shared: Shared) -> Self {
        let Shared {
            core,
            heard,
            waiting,
            clocks,
            attendances,
            shims,
            coordinators: board,
            checkouts,
            ending,
            ..
        } = shared;
        let mut run = [0; 8];
        core.world.fill(&mut run);
        let run = u64::from_ne_bytes(run);
        let incarnations = Mutex::default();
        Self {
            core,
            heard,
            waiting,
            clocks,
            attendances,
            shims,
            board,
            checkouts,
            incarnations,
            run,
            ending,
        }
    }

    /// Returns everything that may be started, and the open launches of all coordinators.
    pub async fn view(&self) -> Result<ServerView, ServiceError> {
        let at = self.core.now();
        let settings = self.core.settings();
        let backoff = settings.backoff;
        let aging = settings.start.aging;
        let checkouts = Arc::clone(&self.checkouts);
        let is_held = self.core.are_starts_held();
        let read = self.core.read_now(move |tx| {
            let mut startable = startable::list(tx)?;
            let no_room = workspaces::no_room(tx, &checkouts, settings.workspace.max_disk)?;
            for facts in &mut startable {
                facts.is_paused |= is_held;
                workspaces::look_up(tx, facts, no_room.as_deref())?;
            }
            let open = launches::list_open(tx)?;
            let answered = silence::list_answered(tx, &open)?;
            let shared = workspaces::shared_directories(tx, &open)?;
            let room = if no_room.is_some() { Room::UsedUp } else { Room::Left };
            let jobs = workspaces::jobs(tx, &settings, &checkouts, &startable, room, at)?;
            Ok((startable, open, answered, shared, jobs))
        });
        let (startable, launches, answered, shared_directories, jobs) = read.await?;
        let startable =
            startable.into_iter().filter_map(|facts| facts.candidate(backoff, aging, at));
        let launches = launches.into_iter().map(|launch| {
            let idle_ms = self.clocks.idle_for(&self.heard, &launch).and_then(millis);
            let is_shim_unknown = launch.pid.is_some() && !self.shims.is_reported(&launch.id);
            let is_at_rest = answered.contains(&launch.id) && self.is_at_rest(&launch);
            LaunchFacts { idle_ms, is_shim_unknown, is_at_rest, ..LaunchFacts::from(launch) }
        });
        Ok(ServerView {
            at,
            linger_ms: millis(self.core.settings().run.linger),
            start_timeout_ms: millis(self.core.settings().start.timeout),
            session_maximum_ms: millis(self.core.settings().session.max_timeout),
            run: format!("{:x}", self.run),
            startable: startable.collect(),
            launches: launches.collect(),
            shared_directories,
            jobs,
        })
    }

    /// Returns the view of one coordinator: the starts that are possible, and its own launches.
    /// With the mark of an earlier view, it returns when there may be news since then, or at the
    /// latest after `timeout`. Without a mark it returns at once. Cancel-safe.
    ///
    /// # Errors
    /// `ServerStopping`, also for calls that wait when the server is told to end.
    pub async fn wait_for_work(
        &self,
        coordinator: &CoordinatorId,
        seen: Option<&str>,
        timeout: Duration,
    ) -> Result<Work, ServiceError> {
        limits::SEEN.take_optional(seen)?;
        let mut wakeups = self.waiting.coordinators.listen();
        if seen == Some(self.mark().as_str()) {
            tokio::select! {
                () = wakeups.woken() => {}
                () = self.ending.cancelled() => {}
                () = tokio::time::sleep(timeout) => {}
            }
        }
        if self.ending.is_cancelled() {
            return Err(Refusal::ServerStopping.into());
        }
        // The mark is taken before the view, so every later change is news.
        let seen = self.mark();
        let mut view = self.view().await?;
        view.launches.retain(|launch| launch.coordinator.as_ref() == Some(coordinator));
        view.shared_directories.clear();
        view.jobs.clear();
        // Clones, and so their checks, are on the host of the server.
        view.startable.retain(|candidate| candidate.key.purpose != Purpose::Check);
        for candidate in view.startable.iter_mut().filter(|candidate| candidate.needs_clone) {
            candidate.reason = StartReason::OnOtherHost;
        }
        Ok(Work { seen, view })
    }

    /// Marks a launch to be ended, because its coordinator asks for it. A chat that is not at rest
    /// any more goes on: a person may have written since the coordinator looked. All else is as in
    /// `want_stop` of launches.
    pub async fn want_stop(&self, id: &LaunchId, reason: StopReason) -> Result<(), ServiceError> {
        if reason == StopReason::ChatIdle {
            let of = id.clone();
            let read = self.core.read(move |tx| match launches::get(tx, &of)? {
                Some(launch) if silence::is_answered(tx, &launch.key)? => Ok(Some(launch)),
                _ => Ok(None),
            });
            if !read.await?.is_some_and(|launch| self.is_at_rest(&launch)) {
                return Ok(());
            }
            tracing::info!(launch_id = %id, "a chat at rest gives its slot to a start that waits");
        }
        want_stop(&self.core, &self.heard, id, reason).await
    }

    fn is_at_rest(&self, launch: &Launch) -> bool {
        silence::is_at_rest(&self.clocks, &self.heard, &self.attendances, launch)
    }

    /// Returns a mark of the newest change, in this run of the server.
    fn mark(&self) -> String {
        format!("{:x}.{}", self.run, self.waiting.coordinators.n_wakeups())
    }

    /// Keeps the newest report of the coordinator in this process.
    pub fn report_own(&self, status: CoordinatorStatus) {
        self.hear_status(status, true);
    }

    /// Keeps the newest report of a coordinator outside this process.
    pub fn report(&self, status: CoordinatorStatus) {
        self.hear_status(status, false);
    }

    /// Returns the machine of a coordinator, as of its last report.
    pub fn machine_of(&self, coordinator: &CoordinatorId) -> Option<Machine> {
        self.board.machine_of(coordinator)
    }

    fn hear_status(&self, status: CoordinatorStatus, is_here: bool) {
        if self.board.put(status, is_here) {
            self.waiting.reports.wake();
        }
    }

    /// Reserves the name of the coordinator in this process, so that coordinators elsewhere cannot
    /// use it.
    pub fn keep_name(&self, own: CoordinatorId) {
        self.incarnations().reserve(own);
    }

    fn incarnations(&self) -> MutexGuard<'_, Incarnations> {
        lock(&self.incarnations)
    }

    /// Notes that a coordinator asked for something, and perhaps which start of it asked.
    ///
    /// # Errors
    /// `Superseded`, if a later start has asked before.
    pub fn hear(
        &self,
        coordinator: &CoordinatorId,
        incarnation: Option<Incarnation>,
    ) -> Result<(), Refusal> {
        if let Some(incarnation) = incarnation {
            // This is in memory. A refused start has ended. After a restart of the server, a start
            // is refused again when both have asked again.
            let heard = self.incarnations().hear(coordinator, incarnation, self.core.now());
            match heard {
                StartStanding::Latest => {}
                StartStanding::Successor => {
                    tracing::info!(coordinator_id = %coordinator, "a later start of a coordinator has connected");
                    // An earlier start that still runs may wait for news. It asks again, and is
                    // refused then.
                    self.waiting.coordinators.wake();
                }
                StartStanding::Superseded => {
                    return Err(Refusal::Superseded { coordinator: coordinator.clone() });
                }
            }
        }
        self.board.heard_from(coordinator, self.core.now());
        Ok(())
    }

    /// Notes that a coordinator without an id asked for something.
    pub fn hear_unnamed(&self) {
        self.board.heard_from_unlisted(self.core.now());
    }
}

fn millis(duration: Duration) -> Option<u64> {
    u64::try_from(duration.as_millis()).ok()
}
