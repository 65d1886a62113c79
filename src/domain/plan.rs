//! The heart: from what is seen to what is to be done. The whole policy of who runs is the function [`plan`].
//!
//! The plan names every detail and acting makes no choices; a cycle that died half-way is mended by the next one, because
//! everything in the plan can be done twice. Reconciling (what started, exited, ended, is to stop) comes before starts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::id::{CoordinatorId, LaunchId, ProjectId};
use super::instance::{Instance, Phase};
use super::key::InstanceKey;
use super::launch::{ExitStatus, LaunchFacts, LaunchState, ProcessEnd, StopReason};
use super::pair::{Candidate, StartReason};
use super::time::Timestamp;

/// The limits a coordinator keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most instances at the same time, those that start and those that are being ended included.
    pub max_concurrent: usize,
    /// Longest time from a report to the stop ladder.
    pub linger: Duration,
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
    pub limits: Limits,
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
    },
    /// The leader is gone.
    Exited {
        exit: ExitStatus,
    },
    /// The tree is empty.
    Ended {
        end: ProcessEnd,
        at: Timestamp,
    },
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
}

/// What to do now, what waits, and when to look again at the latest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub deferred: Vec<Deferred>,
    pub wake_at: Option<Timestamp>,
}

impl Plan {
    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }
}

/// Why a claim of ours has no process.
const DIED_BEFORE_SPAWN: &str = "the daemon died before the spawn, or never heard that its claim was granted";

/// Decides what a coordinator does in one cycle.
pub fn plan(snapshot: &Snapshot) -> Plan {
    let mut plan = Plan::default();
    let launches: BTreeMap<&LaunchId, &LaunchFacts> =
        snapshot.launches.iter().map(|launch| (&launch.id, launch)).collect();
    for instance in &snapshot.instances {
        match launches.get(&instance.launch) {
            Some(launch) => reconcile(instance, launch, snapshot.now, snapshot.limits, &mut plan),
            None => disown(instance, &mut plan),
        }
    }
    report_claims_without_process(snapshot, &mut plan);
    plan_starts(snapshot, &mut plan);
    plan
}

/// Brings the server's view of a launch and its process together.
fn reconcile(instance: &Instance, launch: &LaunchFacts, now: Timestamp, limits: Limits, plan: &mut Plan) {
    let id = &launch.id;
    let report = |report| Action::Report { launch: id.clone(), report };
    let started = match &instance.phase {
        Phase::Starting => None,
        Phase::Running { pid, started_at } | Phase::Exited { pid, started_at, .. } => Some((*pid, *started_at)),
        Phase::Ended { pid, started_at, .. } => pid.zip(*started_at),
    };
    if let Some((pid, at)) = started
        && launch.pid.is_none()
    {
        plan.actions.push(report(ProcessReport::Started { pid, at }));
    }
    // Its keeper was told by a daemon in a hurry, or by its own fuse. Before the end is reported: it is judged by its reason.
    if let (Some(reason), LaunchState::Starting { .. } | LaunchState::Running { .. }) = (instance.stop, &launch.state) {
        plan.actions.push(Action::WantStop { launch: id.clone(), reason });
    }
    match &instance.phase {
        Phase::Ended { end, at, .. } => plan.actions.push(report(ProcessReport::Ended { end: end.clone(), at: *at })),
        Phase::Exited { exit, .. } => {
            if launch.state != LaunchState::Ending {
                plan.actions.push(report(ProcessReport::Exited { exit: *exit }));
            }
        }
        Phase::Starting | Phase::Running { .. } => keep_going_or_stop(instance, launch, now, limits, plan),
    }
}

fn keep_going_or_stop(instance: &Instance, launch: &LaunchFacts, now: Timestamp, limits: Limits, plan: &mut Plan) {
    let id = &launch.id;
    match launch.state {
        LaunchState::Starting { deadline } if now >= deadline => {
            plan.actions.push(Action::WantStop { launch: id.clone(), reason: StopReason::StartTimeout });
        }
        LaunchState::Starting { deadline } => plan.wake(deadline),
        LaunchState::Running { .. } => {}
        // A ladder that is further away than anybody would wait: the clock was set back meanwhile.
        LaunchState::Stopping { reason, ladder_at } if now >= ladder_at || ladder_at > now + limits.linger => {
            if instance.stop.is_none() {
                plan.actions.push(Action::Stop { launch: id.clone(), reason });
            }
        }
        LaunchState::Stopping { ladder_at, .. } => plan.wake(ladder_at),
        LaunchState::Ending | LaunchState::Ended { .. } => {}
    }
    // While nobody can tell the server which process it is, its claim may lapse: the fuse must burn by then.
    let is_known = launch.pid.is_some() || !matches!(instance.phase, Phase::Starting);
    if launch.is_authenticated && !instance.is_marked_authenticated && is_known {
        plan.actions.push(Action::MarkAuthenticated { launch: id.clone() });
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
    let known: BTreeSet<&LaunchId> = snapshot.instances.iter().map(|instance| &instance.launch).collect();
    for launch in &snapshot.launches {
        if launch.coordinator.as_ref() == Some(&snapshot.coordinator) && !known.contains(&launch.id) {
            let end = match launch.pid {
                None => ProcessEnd::StartFailed(DIED_BEFORE_SPAWN.to_owned()),
                Some(_) => ProcessEnd::Lost,
            };
            let report = ProcessReport::Ended { end, at: snapshot.now };
            plan.actions.push(Action::Report { launch: launch.id.clone(), report });
        }
    }
}

/// Fills the free slots, each with a key of the project that has the fewest, the longest waiting first.
fn plan_starts(snapshot: &Snapshot, plan: &mut Plan) {
    let live: BTreeSet<&InstanceKey> =
        snapshot.instances.iter().filter(|instance| instance.is_live()).map(|instance| &instance.key).collect();
    let mut ready: BTreeMap<&ProjectId, Vec<&Candidate>> = BTreeMap::new();
    for candidate in &snapshot.startable {
        let reason = match candidate.reason {
            // A process of ours lives, whatever the server says.
            StartReason::Ready if live.contains(&candidate.key) => StartReason::Stopping,
            reason => reason,
        };
        if reason == StartReason::Ready {
            ready.entry(&candidate.key.project).or_default().push(candidate);
            continue;
        }
        if let Some(until) = candidate.until {
            plan.wake(until);
        }
        plan.deferred.push(Deferred { key: candidate.key.clone(), reason, until: candidate.until });
    }

    let mut occupied = occupied_slots(snapshot);
    let n_free = snapshot.limits.max_concurrent.saturating_sub(occupied.values().sum());
    for waiting in ready.values_mut() {
        waiting.sort_by(|a, b| (b.waiting_since, &b.key).cmp(&(a.waiting_since, &a.key)));
    }
    for _ in 0..n_free {
        let Some(next) = take_fairest(&mut ready, &occupied) else { break };
        *occupied.entry(&next.key.project).or_default() += 1;
        plan.actions.push(Action::Start {
            key: next.key.clone(),
            ai_type: next.ai_type.clone(),
            working_directory: next.working_directory.clone(),
        });
    }
    let left = ready.into_values().flatten();
    plan.deferred.extend(left.map(|candidate| Deferred {
        key: candidate.key.clone(),
        reason: StartReason::NoFreeSlot,
        until: None,
    }));
}

/// The next one of the project with the fewest slots; of several such projects, the longest waiting.
fn take_fairest<'a>(
    ready: &mut BTreeMap<&ProjectId, Vec<&'a Candidate>>,
    occupied: &BTreeMap<&ProjectId, usize>,
) -> Option<&'a Candidate> {
    let share = |project: &ProjectId| occupied.get(project).copied().unwrap_or(0);
    let (_, waiting) =
        ready.iter_mut().filter(|(_, waiting)| !waiting.is_empty()).min_by_key(|(project, waiting)| {
            (share(project), waiting.last().map(|candidate| (candidate.waiting_since, &candidate.key)))
        })?;
    waiting.pop()
}

/// Slots in use by project: each open launch of this coordinator, and each live process that the server doesn't know.
fn occupied_slots(snapshot: &Snapshot) -> BTreeMap<&ProjectId, usize> {
    let mine = snapshot
        .launches
        .iter()
        .filter(|launch| launch.coordinator.as_ref() == Some(&snapshot.coordinator))
        .map(|launch| (&launch.id, &launch.key.project));
    let live = snapshot
        .instances
        .iter()
        .filter(|instance| instance.is_live())
        .map(|instance| (&instance.launch, &instance.key.project));
    let taken: BTreeMap<&LaunchId, &ProjectId> = mine.chain(live).collect();
    taken.into_values().fold(BTreeMap::new(), |mut slots, project| {
        *slots.entry(project).or_default() += 1;
        slots
    })
}

#[cfg(test)]
mod tests;
