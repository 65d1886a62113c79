//! The heart: from what is seen to what is to be done. The whole policy of who runs is the function [`plan`].
//!
//! The plan names every detail and acting makes no choices; a cycle that died half-way is mended by the next one, because
//! everything in the plan can be done twice. Reconciling (what started, exited, ended, is to stop) comes before starts.

pub mod gates;
pub mod silence;
pub mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::id::{CoordinatorId, LaunchId, ProjectId};
use super::instance::{Instance, Phase, ShimIdentity};
use super::key::{InstanceKey, Purpose};
use super::launch::{ExitStatus, LaunchFacts, LaunchState, ProcessEnd, StopReason};
use super::pair::{Candidate, StartReason};
use super::time::Timestamp;
use gates::{Closed, Resources};
use silence::{SilenceLimits, is_long, silence};
use slots::Slots;

/// The limits a coordinator keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most instances at the same time, those that start and those that are being ended included.
    pub max_concurrent: usize,
    /// Most of them in one project; `None`: any number.
    pub per_project: Option<usize>,
    /// Most of one agent.
    pub per_agent: Option<usize>,
    /// Most of one provider (`ai_type`).
    pub per_provider: Option<usize>,
    /// So many of `max_concurrent` are never taken by tasks.
    pub chat_reserve: usize,
    /// Longest time from a report to the stop ladder.
    pub linger: Duration,
    /// From the start of an agent to its stop; `None`: as long as it likes.
    pub max_runtime: Option<Duration>,
    /// From the last sign of life of an agent to its stop.
    pub silence: SilenceLimits,
    /// Least free space on the file system of the state directory for a start, in bytes.
    pub min_free_disk: Option<u64>,
    /// Least free memory for a start, in bytes.
    pub min_free_memory: Option<u64>,
    /// As its server says: the same as `max_runtime`, of an agent with a session.
    pub session_maximum: Option<Duration>,
    /// As its server says: how long an agent may take to authenticate.
    pub start_timeout: Option<Duration>,
}

/// What clocks that nobody sets show of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Elapsed {
    /// How long it has for its start, if it is starting.
    pub until_deadline: Option<Duration>,
    /// How long its agent runs; `None` before it does.
    pub ran: Option<Duration>,
    /// How long ago it printed anything, or its children were seen at work; `None` where nobody listens.
    pub quiet: Option<Duration>,
    /// Whether its output is a stream of events.
    pub is_stream: bool,
    /// How long it is known to be silent for too long.
    pub suspected: Option<Duration>,
    /// How long it has until the stop ladder, if it is to be stopped.
    pub until_ladder: Option<Duration>,
}

impl Limits {
    /// No limit but one.
    pub const fn of(max_concurrent: usize, linger: Duration) -> Self {
        Self {
            max_concurrent,
            per_project: None,
            per_agent: None,
            per_provider: None,
            chat_reserve: 0,
            linger,
            max_runtime: None,
            silence: SilenceLimits { streams: None, others: None },
            min_free_disk: None,
            min_free_memory: None,
            session_maximum: None,
            start_timeout: None,
        }
    }
}

/// Everything a plan is made from. `instances` must have been read before `startable` and `launches`: what was claimed is
/// then never missing from the launches while its process is seen.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub now: Timestamp,
    pub coordinator: CoordinatorId,
    /// Keys with work and without an open launch.
    pub startable: Vec<Candidate>,
    /// Open launches: all of this coordinator, and whoever else's the server shows.
    pub launches: Vec<LaunchFacts>,
    /// This coordinator's own processes.
    pub instances: Vec<Instance>,
    /// How long they last, of those that live.
    pub elapsed: BTreeMap<LaunchId, Elapsed>,
    /// Those whose login the model's service refuses, as their agents say.
    pub refused: BTreeSet<LaunchId>,
    pub limits: Limits,
    pub free: Resources,
}

/// One thing to do. Doing it twice is the same as once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Tell the server about a process.
    Report { launch: LaunchId, report: ProcessReport },
    /// The server knows the end: the instance folder may go.
    Forget { launch: LaunchId },
    /// Let the keeper know that the agent authenticated.
    MarkAuthenticated { launch: LaunchId },
    /// Tell the server that the launch is to be ended.
    WantStop { launch: LaunchId, reason: StopReason },
    /// Tell the keeper to walk the stop ladder.
    Stop { launch: LaunchId, reason: StopReason },
    /// Claim the key, then start its process.
    Start { key: InstanceKey, ai_type: String, working_directory: PathBuf },
}

/// What a coordinator tells the server about a process of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessReport {
    Started {
        pid: i32,
        at: Timestamp,
        /// By which a server on the same machine knows the agents of the launch.
        shim: Option<ShimIdentity>,
    },
    /// The leader is gone.
    Exited { exit: ExitStatus },
    /// The tree is empty.
    Ended { end: ProcessEnd, at: Timestamp },
}

/// A start that has to wait, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferred {
    #[serde(flatten)]
    pub key: InstanceKey,
    pub reason: StartReason,
    /// When the reason is over, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The figures behind it, where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Other limits that a start of it would exceed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<StartReason>,
}

impl Deferred {
    fn of(candidate: &Candidate, reason: StartReason) -> Self {
        let until = candidate.until.filter(|_| reason == candidate.reason);
        Self { key: candidate.key.clone(), reason, until, detail: None, also: Vec::new() }
    }
}

/// What to do now, what waits, and when to look again at the latest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub deferred: Vec<Deferred>,
    /// Agents that have been silent for long, and how long: people are warned before these are ended.
    pub silent: Vec<(LaunchId, Duration)>,
    pub wake_at: Option<Timestamp>,
}

impl Plan {
    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }
}

/// Why a claim of ours has no process.
const DIED_BEFORE_SPAWN: &str =
    "the daemon died before the spawn, or never heard that its claim was granted";

/// Decides what a coordinator does in one cycle.
pub fn plan(snapshot: &Snapshot) -> Plan {
    let mut plan = Plan::default();
    let launches: BTreeMap<&LaunchId, &LaunchFacts> =
        snapshot.launches.iter().map(|launch| (&launch.id, launch)).collect();
    for instance in &snapshot.instances {
        match launches.get(&instance.launch) {
            Some(launch) => reconcile(instance, launch, snapshot, &mut plan),
            None => disown(instance, &mut plan),
        }
    }
    report_claims_without_process(snapshot, &mut plan);
    plan_starts(snapshot, &mut plan);
    plan
}

/// Brings the server's view of a launch and its process together.
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
    // Its keeper was told by a daemon in a hurry, or by its own fuse. Before the end is reported: it is judged by its reason.
    if let (Some(reason), LaunchState::Starting { .. } | LaunchState::Running { .. }) =
        (instance.stop, &launch.state)
    {
        plan.actions.push(Action::WantStop { launch: id.clone(), reason });
    }
    match &instance.phase {
        Phase::Ended { end, at, .. } => {
            plan.actions.push(report(ProcessReport::Ended { end: end.clone(), at: *at }));
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
    let (id, now, limits) = (&launch.id, snapshot.now, &snapshot.limits);
    let elapsed = snapshot.elapsed.get(id).copied();
    match launch.state {
        LaunchState::Starting { deadline } => {
            let by_steady_clock = elapsed.and_then(|elapsed| elapsed.until_deadline);
            let left = by_steady_clock.unwrap_or_else(|| deadline.since(now));
            // An agent without its model never authenticates here.
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
        LaunchState::Stopping { reason, ladder_at } => {
            let by_steady_clock = elapsed.and_then(|elapsed| elapsed.until_ladder);
            let by_wall_clock = || Some(ladder_at.since(now)).filter(|left| *left <= limits.linger);
            // None: further away than anybody would wait, as the clock was set back meanwhile.
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
        let silent = silence(&elapsed, launch).zip(limits.silence.of(&elapsed));
        plan.silent.extend(
            silent
                .filter(|(lasted, limit)| is_long(*lasted, *limit))
                .map(|(lasted, _)| (id.clone(), lasted)),
        );
        match time_left(launch, elapsed, limits) {
            // At once, and told to the server then: one that doesn't answer gives nobody more time.
            Err(reason) => plan.actions.push(Action::Stop { launch: id.clone(), reason }),
            Ok(Some(left)) => plan.wake(now + left),
            Ok(None) => {}
        }
    }
    // While nobody can tell the server which process it is, its claim may lapse: the fuse must burn by then.
    let is_known = launch.pid.is_some() || !matches!(instance.phase, Phase::Starting);
    if launch.is_authenticated && !instance.is_marked_authenticated && is_known {
        plan.actions.push(Action::MarkAuthenticated { launch: id.clone() });
    }
}

/// How long an agent has until the first limit of time that it has any; the one that is over.
fn time_left(
    launch: &LaunchFacts,
    elapsed: Elapsed,
    limits: &Limits,
) -> Result<Option<Duration>, StopReason> {
    let left = |limit: Option<Duration>, lasted: Option<Duration>| {
        limit.zip(lasted).map(|(limit, lasted)| limit.saturating_sub(lasted))
    };
    let all = [
        (StopReason::RunMaximum, left(limits.max_runtime, elapsed.ran)),
        (
            StopReason::SessionMaximum,
            left(limits.session_maximum, elapsed.ran.filter(|_| launch.is_authenticated)),
        ),
        (StopReason::Silence, silence::time_left(&elapsed, launch, limits.silence)),
    ];
    match all.iter().find(|(_, left)| left.is_some_and(|left| left.is_zero())) {
        Some((reason, _)) => Err(*reason),
        None => Ok(all.iter().filter_map(|(_, left)| *left).min()),
    }
}

/// The server doesn't know the launch, or knows it as ended: what lives of it must go, whatever the server says.
fn disown(instance: &Instance, plan: &mut Plan) {
    let launch = instance.launch.clone();
    if !instance.is_live() {
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

/// Fills the free slots, those for chats first: each with a key of the project that has the fewest, the longest waiting first.
fn plan_starts(snapshot: &Snapshot, plan: &mut Plan) {
    let mut live: BTreeSet<&InstanceKey> = BTreeSet::new();
    // Most plans are made while nobody is, and a fleet is long.
    if snapshot.startable.iter().any(|candidate| candidate.reason == StartReason::Ready) {
        let instances = snapshot.instances.iter().filter(|instance| instance.is_live());
        live = instances.map(|instance| &instance.key).collect();
    }
    let mut chats = Waiting::new();
    let mut tasks = Waiting::new();
    for candidate in &snapshot.startable {
        let reason = match candidate.reason {
            // A process of ours lives, whatever the server says.
            StartReason::Ready if live.contains(&candidate.key) => StartReason::Stopping,
            reason => reason,
        };
        if reason != StartReason::Ready {
            if let Some(until) = candidate.until {
                plan.wake(until);
            }
            plan.deferred.push(Deferred::of(candidate, reason));
            continue;
        }
        let waiting = match candidate.key.purpose {
            Purpose::Chat => &mut chats,
            Purpose::Task => &mut tasks,
        };
        waiting.entry(&candidate.key.project).or_default().push(candidate);
    }
    if chats.is_empty() && tasks.is_empty() {
        return;
    }
    if let Some(Closed { reason, detail }) = gates::closed(&snapshot.limits, snapshot.free) {
        for candidate in chats.into_values().chain(tasks.into_values()).flatten() {
            plan.deferred
                .push(Deferred { detail: Some(detail.clone()), ..Deferred::of(candidate, reason) });
            plan.wake(snapshot.now + GATE_PAUSE);
        }
        return;
    }
    let mut slots = Slots::of(snapshot);
    let mut put_off = Vec::new();
    for (purpose, waiting) in [(Purpose::Chat, chats), (Purpose::Task, tasks)] {
        let mut queue = Queue::of(waiting, &slots);
        let all_kept = loop {
            if let Some(reason) = slots.keeping_all(purpose) {
                break reason;
            }
            // Whatever keeps one now keeps it for the rest of this plan: slots are only taken.
            let Some(next) = queue.take_fairest() else {
                break StartReason::NoFreeSlot;
            };
            let by_probe =
                (next.is_probe && slots.has_probe(&next.ai_type)).then_some(StartReason::Parked);
            if let Some(reason) =
                by_probe.or_else(|| slots.keeping(&next.key, &next.ai_type).next())
            {
                put_off.push((next, reason));
            } else {
                slots.take(&next.key, &next.ai_type);
                if next.is_probe {
                    slots.note_probe(&next.ai_type);
                }
                plan.actions.push(Action::Start {
                    key: next.key.clone(),
                    ai_type: next.ai_type.clone(),
                    working_directory: next.working_directory.clone(),
                });
            }
            queue.line_up(&next.key.project, &slots);
        };
        put_off
            .extend(queue.waiting.into_values().flatten().map(|candidate| (candidate, all_kept)));
    }
    for (candidate, reason) in put_off {
        let also =
            slots.keeping(&candidate.key, &candidate.ai_type).filter(|other| *other != reason);
        let detail = (reason == StartReason::NoFreeSlot).then(|| slots.to_string());
        plan.deferred.push(Deferred {
            also: also.collect(),
            detail,
            ..Deferred::of(candidate, reason)
        });
    }
}

/// Between two looks at a gate that is closed: nothing announces that it opens.
const GATE_PAUSE: Duration = Duration::from_secs(10);

/// By project, the longest waiting last.
type Waiting<'a> = BTreeMap<&'a ProjectId, Vec<&'a Candidate>>;

/// Who is next. Each project with a candidate stands in line once, as its slots and its longest waiting one put it: a look at all of
/// them for each start would make a plan of thousands that are put off take seconds.
struct Queue<'a> {
    waiting: Waiting<'a>,
    line: BTreeSet<(usize, Timestamp, &'a InstanceKey)>,
}

impl<'a> Queue<'a> {
    fn of(mut waiting: Waiting<'a>, slots: &Slots<'_>) -> Self {
        for candidates in waiting.values_mut() {
            candidates.sort_by(|a, b| (b.waiting_since, &b.key).cmp(&(a.waiting_since, &a.key)));
        }
        let projects: Vec<&ProjectId> = waiting.keys().copied().collect();
        let mut queue = Self { waiting, line: BTreeSet::new() };
        for project in projects {
            queue.line_up(project, slots);
        }
        queue
    }

    /// The next one of the project with the fewest slots; of several such projects, the longest waiting. The project has left the
    /// line then.
    fn take_fairest(&mut self) -> Option<&'a Candidate> {
        let (_, _, key) = self.line.pop_first()?;
        self.waiting.get_mut(&key.project)?.pop()
    }

    /// Puts a project in line with the slots that it has now.
    fn line_up(&mut self, project: &ProjectId, slots: &Slots<'_>) {
        if let Some(next) = self.waiting.get(project).and_then(|candidates| candidates.last()) {
            self.line.insert((slots.of_project(project), next.waiting_since, &next.key));
        }
    }
}

#[cfg(test)]
mod tests;
