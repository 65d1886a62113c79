//! The decisions of a coordinator. The function [`plan`] is the whole policy on which agents run:
//! it takes a snapshot and returns the actions.
//!
//! The plan names every detail, and acting makes no choices. Everything in the plan can be done
//! twice, so the next cycle repairs a cycle that stopped half-way. Reconciling (processes that
//! started, exited, ended, or are to stop) comes before starts.

mod chats;
pub mod gates;
mod limits;
mod queue;
pub mod shared;
pub mod silence;
pub mod slots;
mod workspaces;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::id::WorkspaceId;
use super::id::{CoordinatorId, LaunchId};
use super::instance::{Instance, Phase, ShimIdentity};
use super::key::{InstanceKey, Purpose};
use super::launch::{ExitStatus, LaunchFacts, LaunchState, ProcessEnd, StopReason};
use super::start_history::{Candidate, StartReason};
use super::time::Timestamp;
use super::workspace::Job;
pub use chats::SlotUse;
use chats::WaitingStart;
use gates::{Closed, Resources};
pub use limits::{Limits, RunLimits, StartLimits};
use queue::Queue;
use shared::{BeforeStart, Crowd, SharedFacts, SnapshotOrder, WorkTrees};
use silence::{is_long, silence};
use slots::Slots;
use workspaces::{
    awaits_clean_clone, before_run, hook_before, is_being_removed, plan_workspaces, slot_wait,
};

/// Times of an instance, measured by clocks that cannot be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Elapsed {
    /// The time that is left for its start, if it is starting.
    pub until_deadline: Option<Duration>,
    /// The time that its agent has run; `None` before the agent runs.
    pub ran: Option<Duration>,
    /// The time since it printed anything, or its children were seen at work; `None` if its output
    /// is not watched.
    pub quiet: Option<Duration>,
    /// True if its output is a stream of events.
    pub is_stream: bool,
    /// The time since it was first found silent for too long.
    pub suspected: Option<Duration>,
    /// The time that is left until the stop sequence, if it is to be stopped.
    pub until_stop: Option<Duration>,
}

/// All facts that a plan is made from. `instances` must have been read before `startable` and
/// `launches`. Then a launch that was claimed is never missing from the launches while its process
/// is seen.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub now: Timestamp,
    pub coordinator: CoordinatorId,
    /// Keys with work and without an open launch.
    pub startable: Vec<Candidate>,
    /// Open launches: all of this coordinator, and those of other coordinators that the server
    /// shows.
    pub launches: Vec<LaunchFacts>,
    /// The steps that the workspaces of this host need.
    pub jobs: Vec<Job>,
    /// The workspaces on which a step is under way, or waits after a failure.
    pub busy_workspaces: BTreeSet<WorkspaceId>,
    /// The steps that failed in a way in which they would fail again.
    pub given_up: BTreeMap<WorkspaceId, Job>,
    /// The workspaces whose files are being removed.
    pub removing_workspaces: BTreeSet<WorkspaceId>,
    /// The workspaces whose hook before the next launch has passed; `None` if there is no such
    /// hook.
    pub passed_hooks: Option<BTreeSet<WorkspaceId>>,
    /// The workspaces whose hooks fail, and since when.
    pub failing_hooks: BTreeMap<WorkspaceId, Timestamp>,
    /// The starts that waited for their clones in the last plan, and for how long they have waited.
    pub preparing: BTreeMap<InstanceKey, Duration>,
    /// The directories in which several agents may work.
    pub shared: SharedFacts,
    /// The faults that keep a key from its start on this machine until a person mends them.
    pub faults: BTreeMap<InstanceKey, String>,
    /// This coordinator's own processes.
    pub instances: Vec<Instance>,
    /// The times of the instances that live.
    pub elapsed: BTreeMap<LaunchId, Elapsed>,
    /// The launches whose login the model's service refuses, as their agents report.
    pub refused: BTreeSet<LaunchId>,
    pub limits: Limits,
    pub free: Resources,
}

impl Snapshot {
    /// Returns a snapshot without any fact but the coordinator, its limits and the time.
    pub fn empty(coordinator: CoordinatorId, limits: Limits, now: Timestamp) -> Self {
        Self {
            now,
            coordinator,
            startable: Vec::new(),
            launches: Vec::new(),
            jobs: Vec::new(),
            busy_workspaces: BTreeSet::new(),
            given_up: BTreeMap::new(),
            removing_workspaces: BTreeSet::new(),
            passed_hooks: None,
            failing_hooks: BTreeMap::new(),
            preparing: BTreeMap::new(),
            shared: SharedFacts::default(),
            faults: BTreeMap::new(),
            instances: Vec::new(),
            elapsed: BTreeMap::new(),
            refused: BTreeSet::new(),
            limits,
            free: Resources::default(),
        }
    }
}

/// One action. Doing it twice has the same effect as doing it once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Report a process to the server.
    Report { launch: LaunchId, report: ProcessReport },
    /// Remove the instance folder, because the server knows the end.
    Forget { launch: LaunchId },
    /// Tell the shim that the agent authenticated.
    MarkAuthenticated { launch: LaunchId },
    /// Tell the server that the launch is to be ended.
    WantStop { launch: LaunchId, reason: StopReason },
    /// Tell the shim to begin the stop sequence.
    Stop { launch: LaunchId, reason: StopReason },
    /// Tell the server that the next launch of the key needs a clone.
    WantWorkspace { key: InstanceKey },
    /// Make, use, keep or remove a workspace, beside the loop.
    Workspace(Job),
    /// Take a snapshot of a git work tree, beside the loop.
    Snapshot(SnapshotOrder),
    /// Claim the key, then start its process.
    Start { key: InstanceKey, ai_type: String, working_directory: PathBuf },
}

/// The report of a coordinator to the server about one of its own processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessReport {
    Started {
        pid: i32,
        at: Timestamp,
        /// The shim by which a server on the same machine recognizes the agents of the launch.
        shim: Option<ShimIdentity>,
    },
    /// The leader has ended.
    Exited { exit: ExitStatus },
    /// The tree is empty.
    Ended { end: ProcessEnd, at: Timestamp },
}

/// A start that has to wait, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferred {
    #[serde(flatten)]
    pub key: InstanceKey,
    pub reason: StartReason,
    /// The time when the reason is over, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The figures behind the reason, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Other limits that the start would exceed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<StartReason>,
    /// The limit that is the reason, and the agents that count for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use: Option<InUse>,
    /// The starts that get a slot before it, if no slot is free.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub n_ahead: usize,
    /// The time since which the hook fails that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A limit of running agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InUse {
    pub n_running: usize,
    pub limit: usize,
}

impl Deferred {
    /// Returns whether the machine of the coordinator keeps the agent from being started until a
    /// person mends it. The detail says what it is.
    pub fn is_by_fault(&self) -> bool {
        self.reason == StartReason::Misconfigured && self.detail.is_some()
    }

    fn of(candidate: &Candidate, reason: StartReason) -> Self {
        let until = candidate.until.filter(|_| reason == candidate.reason);
        let detail = candidate.detail.clone().filter(|_| reason == candidate.reason);
        Self {
            key: candidate.key.clone(),
            reason,
            until,
            detail,
            also: Vec::new(),
            in_use: None,
            n_ahead: 0,
            since: None,
        }
    }
}

/// The actions to take now, the starts that wait, and the latest time of the next look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub deferred: Vec<Deferred>,
    /// Agents that have been silent for long, with the length of their silence. People are warned
    /// before these agents are ended.
    pub silent: Vec<(LaunchId, Duration)>,
    /// The git work trees in which several agents work now.
    pub crowds: Vec<Crowd>,
    pub wake_at: Option<Timestamp>,
}

impl Plan {
    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }
}

/// The reason that is reported if one of our claims has no process.
const DIED_BEFORE_SPAWN: &str =
    "the daemon died before the spawn, or never learned that its claim was granted";

/// Decides what a coordinator does in one cycle.
pub fn plan(snapshot: &Snapshot) -> Plan {
    let mut plan = Plan::default();
    let launches: BTreeMap<&LaunchId, &LaunchFacts> =
        snapshot.launches.iter().map(|launch| (&launch.id, launch)).collect();
    for instance in &snapshot.instances {
        match launches.get(&instance.launch) {
            Some(launch) => reconcile(instance, launch, snapshot, &mut plan),
            None => disown(instance, snapshot, &mut plan),
        }
    }
    report_claims_without_process(snapshot, &mut plan);
    plan_workspaces(snapshot, &mut plan);
    plan_starts(snapshot, &mut plan);
    plan.crowds = shared::crowds(snapshot);
    plan
}

/// Reconciles the server's view of a launch with its process.
fn reconcile(instance: &Instance, launch: &LaunchFacts, snapshot: &Snapshot, plan: &mut Plan) {
    let id = &launch.id;
    let report = |report| Action::Report { launch: id.clone(), report };
    let started = match &instance.phase {
        Phase::Starting => None,
        Phase::Running { pid, started_at } | Phase::Exited { pid, started_at, .. } => {
            Some((*pid, *started_at))
        }
        Phase::Ended { pid, started_at, .. } => pid.zip(*started_at),
    };
    let is_shim_missed = launch.is_shim_unknown
        && instance.shim.is_some()
        && matches!(instance.phase, Phase::Running { .. });
    if let Some((pid, at)) = started
        && (launch.pid.is_none() || is_shim_missed)
    {
        plan.actions.push(report(ProcessReport::Started { pid, at, shim: instance.shim.clone() }));
    }
    // A daemon that was shutting down, or its own start deadline, told its shim to stop it. This is
    // reported before the end, because the end is judged by its reason.
    if let (Some(reason), LaunchState::Starting { .. } | LaunchState::Running { .. }) =
        (instance.stop, &launch.state)
    {
        plan.actions.push(Action::WantStop { launch: id.clone(), reason });
    }
    match &instance.phase {
        Phase::Ended { end, at, .. } => {
            plan.actions.push(report(ProcessReport::Ended { end: end.clone(), at: *at }));
            plan.actions.extend(shared::after_end(instance, snapshot).map(Action::Snapshot));
        }
        Phase::Exited { exit, .. } => {
            if launch.state != LaunchState::Ending {
                plan.actions.push(report(ProcessReport::Exited { exit: *exit }));
            }
        }
        Phase::Starting | Phase::Running { .. } => {
            keep_going_or_stop(instance, launch, snapshot, plan);
        }
    }
}

fn keep_going_or_stop(
    instance: &Instance,
    launch: &LaunchFacts,
    snapshot: &Snapshot,
    plan: &mut Plan,
) {
    let id = &launch.id;
    let now = snapshot.now;
    let limits = &snapshot.limits;
    let elapsed = snapshot.elapsed.get(id).copied();
    match launch.state {
        LaunchState::Starting { deadline } => {
            let by_steady_clock = elapsed.and_then(|elapsed| elapsed.until_deadline);
            let left = by_steady_clock.unwrap_or_else(|| deadline.since(now));
            // An agent whose model refuses its login never authenticates here.
            if left.is_zero() || snapshot.refused.contains(id) {
                plan.actions.push(Action::WantStop {
                    launch: id.clone(),
                    reason: StopReason::StartTimeout,
                });
            } else {
                plan.wake(now + left);
            }
        }
        LaunchState::Running { .. } => {}
        LaunchState::Stopping { reason, stop_at } => {
            let by_steady_clock = elapsed.and_then(|elapsed| elapsed.until_stop);
            let by_wall_clock =
                || Some(stop_at.since(now)).filter(|left| *left <= limits.run.linger);
            // `None` means a time further away than any wait, because the clock was set back
            // meanwhile.
            let left = by_steady_clock.or_else(by_wall_clock).unwrap_or_default();
            if !left.is_zero() {
                plan.wake(now + left);
            } else if instance.stop.is_none() {
                plan.actions.push(Action::Stop { launch: id.clone(), reason });
            }
        }
        LaunchState::Ending | LaunchState::Ended { .. } => {}
    }
    let goes_on =
        matches!(launch.state, LaunchState::Starting { .. } | LaunchState::Running { .. });
    if let (Some(elapsed), true, None) = (elapsed, goes_on, instance.stop) {
        let silent = silence(&elapsed, launch).zip(limits.run.silence_timeout.of(&elapsed));
        plan.silent.extend(
            silent
                .filter(|(lasted, limit)| is_long(*lasted, *limit))
                .map(|(lasted, _)| (id.clone(), lasted)),
        );
        match time_left(launch, elapsed, limits) {
            // The agent is stopped at once, and the server is told afterwards. A server that does
            // not answer must not delay the stop.
            Err(reason) => plan.actions.push(Action::Stop { launch: id.clone(), reason }),
            Ok(Some(left)) => plan.wake(now + left),
            Ok(None) => {}
        }
    }
    // If the server cannot be told which process it is, its claim may lapse. The start deadline
    // must end it by then, so the shim is not told yet.
    let is_known = launch.pid.is_some() || !matches!(instance.phase, Phase::Starting);
    if launch.is_authenticated && !instance.is_marked_authenticated && is_known {
        plan.actions.push(Action::MarkAuthenticated { launch: id.clone() });
    }
}

/// Returns the time until the first limit that the agent reaches. Returns the reason as an error if
/// a limit is over.
fn time_left(
    launch: &LaunchFacts,
    elapsed: Elapsed,
    limits: &Limits,
) -> Result<Option<Duration>, StopReason> {
    let left = |limit: Option<Duration>, lasted: Option<Duration>| {
        limit.zip(lasted).map(|(limit, lasted)| limit.saturating_sub(lasted))
    };
    let all = [
        // A check has a time limit of its own.
        (
            StopReason::RunMaximum,
            left(
                limits.run.max_runtime,
                elapsed.ran.filter(|_| launch.key.purpose != Purpose::Check),
            ),
        ),
        (
            StopReason::SessionMaximum,
            left(limits.session_maximum, elapsed.ran.filter(|_| launch.is_authenticated)),
        ),
        (StopReason::Silence, silence::time_left(&elapsed, launch, limits.run.silence_timeout)),
    ];
    match all.iter().find(|(_, left)| left.is_some_and(|left| left.is_zero())) {
        Some((reason, _)) => Err(*reason),
        None => Ok(all.iter().filter_map(|(_, left)| *left).min()),
    }
}

/// Removes an instance whose launch the server does not know, or knows as ended. Its living
/// processes are stopped, regardless of the server. An instance stays while a snapshot is taken
/// after its end.
fn disown(instance: &Instance, snapshot: &Snapshot, plan: &mut Plan) {
    let launch = instance.launch.clone();
    if !instance.is_live() {
        if snapshot.shared.is_under_way_after(&launch) {
            return;
        }
        plan.actions.push(Action::Forget { launch });
    } else if instance.stop.is_none() {
        plan.actions.push(Action::Stop { launch, reason: StopReason::Unknown });
    }
}

fn report_claims_without_process(snapshot: &Snapshot, plan: &mut Plan) {
    let known: BTreeSet<&LaunchId> =
        snapshot.instances.iter().map(|instance| &instance.launch).collect();
    for launch in &snapshot.launches {
        if launch.coordinator.as_ref() == Some(&snapshot.coordinator) && !known.contains(&launch.id)
        {
            let end = match launch.pid {
                None => ProcessEnd::StartFailed(DIED_BEFORE_SPAWN.to_owned()),
                Some(_) => ProcessEnd::Lost,
            };
            let report = ProcessReport::Ended { end, at: snapshot.now };
            plan.actions.push(Action::Report { launch: launch.id.clone(), report });
        }
    }
}

/// Fills the free slots, those for chats first, in the order of [`queue`].
fn plan_starts(snapshot: &Snapshot, plan: &mut Plan) {
    let mut live: BTreeSet<&InstanceKey> = BTreeSet::new();
    // Most plans are made while no key is ready, and a fleet is long.
    if snapshot.startable.iter().any(|candidate| candidate.reason == StartReason::Ready) {
        let instances = snapshot.instances.iter().filter(|instance| instance.is_live());
        live = instances.map(|instance| &instance.key).collect();
    }
    let mut preparing: BTreeSet<&InstanceKey> = BTreeSet::new();
    let mut chats: Vec<&Candidate> = Vec::new();
    let mut tasks: Vec<&Candidate> = Vec::new();
    for candidate in &snapshot.startable {
        let reason = match candidate.reason {
            // A process of ours lives, so the key is not free, although the server says so.
            StartReason::Ready if live.contains(&candidate.key) => StartReason::Stopping,
            StartReason::Ready | StartReason::Backoff | StartReason::PreparingWorkspace
                if snapshot.faults.contains_key(&candidate.key) =>
            {
                StartReason::Misconfigured
            }
            // The task was opened again after its removal had begun.
            StartReason::Ready if is_being_removed(candidate, snapshot) => {
                StartReason::PreparingWorkspace
            }
            StartReason::Ready if awaits_clean_clone(candidate, snapshot) => {
                StartReason::PreparingWorkspace
            }
            reason => reason,
        };
        let slot_wait = (reason == StartReason::PreparingWorkspace)
            .then(|| slot_wait(candidate, snapshot))
            .flatten();
        if let Some(left) = slot_wait {
            preparing.insert(&candidate.key);
            plan.wake(snapshot.now + left);
        } else if reason != StartReason::Ready {
            if let Some(until) = candidate.until {
                plan.wake(until);
            }
            let mut deferred = Deferred::of(candidate, reason);
            if let (StartReason::Misconfigured, Some(fault)) =
                (reason, snapshot.faults.get(&candidate.key))
            {
                deferred.detail = Some(fault.clone());
                plan.wake(snapshot.now + FAULT_PAUSE);
            }
            if let (StartReason::HookFailed, Some(id)) = (reason, &candidate.workspace) {
                deferred.since = snapshot.failing_hooks.get(id).copied();
            }
            plan.deferred.push(deferred);
            continue;
        }
        match candidate.key.purpose {
            Purpose::Chat => chats.push(candidate),
            Purpose::Task | Purpose::Check => tasks.push(candidate),
        }
    }
    if chats.is_empty() && tasks.is_empty() {
        return;
    }
    if let Some(Closed { reason, detail }) = gates::closed(&snapshot.limits.start, snapshot.free) {
        for candidate in chats.into_iter().chain(tasks) {
            plan.deferred
                .push(Deferred { detail: Some(detail.clone()), ..Deferred::of(candidate, reason) });
            plan.wake(snapshot.now + GATE_PAUSE);
        }
        return;
    }
    let mut slots = Slots::of(snapshot);
    let mut trees = WorkTrees::of(snapshot);
    let mut put_off = Vec::new();
    let mut n_ahead = 0;
    for (purpose, waiting) in [(Purpose::Chat, chats), (Purpose::Task, tasks)] {
        let mut queue = Queue::of(waiting, &slots);
        let all_kept = loop {
            if let Some(reason) = slots.keeping_all(purpose) {
                break reason;
            }
            // A limit that refuses a start now refuses it for the rest of this plan, because slots
            // are only taken.
            let Some(next) = queue.take_first() else {
                break StartReason::NoFreeSlot;
            };
            let by_probe =
                (next.is_probe && slots.has_probe(&next.ai_type)).then_some(StartReason::Parked);
            let by_limits = || slots.keeping(&next.key, &next.ai_type).next();
            if let Some(reason) = by_probe.or_else(by_limits).or_else(|| trees.keeping(next)) {
                put_off.push((next, reason, 0));
            } else {
                slots.take(&next.key, &next.ai_type);
                if next.is_probe {
                    slots.note_probe(&next.ai_type);
                }
                // A start that waits for its clone, its hook or its snapshot has its slot already.
                if preparing.contains(&next.key) {
                    queue.line_up(&next.key.project, &slots);
                    put_off.push((next, StartReason::PreparingWorkspace, 0));
                    continue;
                }
                if let Some(workspace) = hook_before(next, snapshot) {
                    plan.actions.extend(before_run(next, workspace, snapshot));
                    put_off.push((next, StartReason::PreparingWorkspace, 0));
                    queue.line_up(&next.key.project, &slots);
                    continue;
                }
                match trees.take(next) {
                    BeforeStart::Nothing => plan.actions.push(Action::Start {
                        key: next.key.clone(),
                        ai_type: next.ai_type.clone(),
                        working_directory: next.working_directory.clone(),
                    }),
                    BeforeStart::Wait => put_off.push((next, StartReason::TakingSnapshot, 0)),
                    BeforeStart::Take(order) => {
                        plan.actions.push(Action::Snapshot(order));
                        put_off.push((next, StartReason::TakingSnapshot, 0));
                    }
                }
            }
            queue.line_up(&next.key.project, &slots);
        };
        for candidate in queue.into_order(&slots) {
            put_off.push((candidate, all_kept, n_ahead));
            n_ahead += 1;
        }
    }
    let waiting =
        put_off.iter().map(|(it, reason, _)| WaitingStart::of(it, *reason, &slots, &trees));
    plan.actions.extend(chats::ending_for(waiting, slots.n_for_tasks(), snapshot));
    if !put_off.is_empty() && chats::may_rest(snapshot) {
        plan.wake(snapshot.now + chats::REST_PAUSE);
    }
    for (candidate, reason, n_ahead) in put_off {
        let is_preparing = preparing.contains(&candidate.key);
        let reason = if is_preparing { StartReason::PreparingWorkspace } else { reason };
        let also =
            slots.keeping(&candidate.key, &candidate.ai_type).filter(|other| *other != reason);
        let detail = match reason {
            StartReason::NoFreeSlot => Some(match n_ahead {
                0 => slots.to_string(),
                1 => format!("{slots}; 1 start is ahead"),
                n => format!("{slots}; {n} starts are ahead"),
            }),
            StartReason::DirectoryInUse => trees.detail(candidate),
            _ => None,
        };
        plan.deferred.push(Deferred {
            also: also.collect(),
            detail,
            in_use: slots.in_use_of(reason, &candidate.key, &candidate.ai_type),
            n_ahead: if reason == StartReason::NoFreeSlot { n_ahead } else { 0 },
            ..Deferred::of(candidate, reason)
        });
    }
}

/// The time between two looks at a closed gate. No event announces that a gate opens.
const GATE_PAUSE: Duration = Duration::from_secs(10);
/// The time between two looks at faults that a person mends. No event announces that one is mended.
const FAULT_PAUSE: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests;
