//! What older clients leave unsaid (seed 004, "後方互換性"): which project they mean, and which launch.

use super::agent::ProjectStatus;
use super::id::{AgentId, CoordinatorId, LaunchId, ProjectId};
use super::launch::{Launch, LaunchState};
use super::pair::{Backoff, PairFacts, StartReason};
use super::refusal::Refusal;
use super::time::Timestamp;

/// Which of an agent's pairs a `should_start` without a project is about: one that may start, the one whose work waits longest;
/// else the one that says most about why none does. `None` without pairs.
pub fn pair_to_start(pairs: Vec<PairFacts>, backoff: Backoff, now: Timestamp) -> Option<PairFacts> {
    let rank = |pair: &PairFacts| match pair.reason(backoff, now) {
        StartReason::Ready => 0,
        StartReason::Starting => 1,
        StartReason::Running => 2,
        StartReason::Stopping => 3,
        StartReason::Held
        | StartReason::Suspended
        | StartReason::Misconfigured
        | StartReason::Parked
        | StartReason::Paused
        | StartReason::Backoff
        | StartReason::NoFreeSlot
        | StartReason::ChatReserve
        | StartReason::ProjectLimit
        | StartReason::AgentLimit
        | StartReason::ProviderLimit
        | StartReason::LowDisk
        | StartReason::LowMemory
        | StartReason::NoPasskey => 4,
        StartReason::NoWork => 5,
        StartReason::Inactive | StartReason::NotAssigned | StartReason::Unknown => 6,
    };
    pairs.into_iter().min_by_key(|pair| (rank(pair), is_idle(pair), pair.waiting_since))
}

/// Which of an agent's pairs an `authenticate` without a project is about: the one whose launch is starting, else the one whose
/// work waits longest, one that nobody works on first; else the only one there is. `None` if nothing tells them apart.
pub fn pair_to_enter(pairs: Vec<PairFacts>) -> Option<PairFacts> {
    let rank = |pair: &PairFacts| match pair.open.as_ref().map(|open| &open.state) {
        Some(LaunchState::Starting { .. }) => 0,
        None if !is_idle(pair) => 1,
        Some(_) if !is_idle(pair) => 2,
        _ => 3,
    };
    let n_pairs = pairs.len();
    let best =
        pairs.into_iter().min_by_key(|pair| (rank(pair), is_idle(pair), pair.waiting_since))?;
    (n_pairs == 1 || rank(&best) < 3).then_some(best)
}

fn is_idle(pair: &PairFacts) -> bool {
    let is_active =
        pair.project.as_ref().is_some_and(|(status, _)| *status == ProjectStatus::Active);
    !is_active || pair.waiting_since.is_none()
}

/// The launch that a report without a launch id is about.
#[derive(Debug, Clone, Copy)]
pub struct ReportedBy<'a> {
    pub agent: &'a AgentId,
    pub project: &'a ProjectId,
    /// The process that ended, where the client says so.
    pub pid: Option<i32>,
    /// Who reports, where it gave its name.
    pub coordinator: Option<&'a CoordinatorId>,
}

/// Finds it among the launches of the pair. If none is open, the agent may have ended its launch by its own report, which its client
/// doesn't know. A launch whose process is known is meant by that process and no other; one whose
/// process nobody told of is meant only by a client that could have started it: a pair that another coordinator keeps must not
/// be freed while its agent lives.
///
/// # Errors
/// [`Refusal::NoOpenLaunch`] and [`Refusal::AmbiguousLaunch`].
pub fn launch_to_report(launches: &[Launch], by: ReportedBy<'_>) -> Result<LaunchId, Refusal> {
    let of_pair = || {
        let is_of_pair = |l: &&Launch| l.key.agent == *by.agent && l.key.project == *by.project;
        launches.iter().filter(is_of_pair).filter(|launch| launch.is_reported_by(by.coordinator))
    };
    // An ended one, too: a report may be repeated.
    let of_process = of_pair().filter(|launch| by.pid.is_some() && launch.pid == by.pid);
    if let Some(launch) = of_process.max_by_key(|launch| (launch.is_open(), launch.claimed_at)) {
        return Ok(launch.id.clone());
    }
    let is_possible =
        |launch: &Launch| launch.is_open() && (by.pid.is_none() || launch.pid.is_none());
    let possible: Vec<&Launch> = of_pair().filter(|launch| is_possible(launch)).collect();
    match possible[..] {
        [only] => Ok(only.id.clone()),
        [] => {
            let was_reported = |launch: &&Launch| {
                launch.report.is_some() && (by.pid.is_none() || launch.pid.is_none())
            };
            let latest =
                of_pair().filter(|launch| !launch.is_open()).max_by_key(|launch| launch.claimed_at);
            let none = || Refusal::NoOpenLaunch {
                agent: by.agent.clone(),
                project: by.project.clone(),
                pid: by.pid,
            };
            latest.filter(was_reported).map(|launch| launch.id.clone()).ok_or_else(none)
        }
        _ => Err(Refusal::AmbiguousLaunch {
            agent: by.agent.clone(),
            project: by.project.clone(),
            launches: possible
                .iter()
                .map(|launch| (launch.id.clone(), launch.key.purpose))
                .collect(),
        }),
    }
}

#[cfg(test)]
mod tests;
