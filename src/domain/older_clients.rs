//! Fills in the project and the launch that older clients mean but do not send (docs/migration.md).

use super::agent::ProjectStatus;
use super::id::{AgentId, CoordinatorId, LaunchId, ProjectId};
use super::launch::{Launch, LaunchState};
use super::pair::{Backoff, PairFacts, StartReason};
use super::refusal::Refusal;
use super::time::Timestamp;

/// Returns the pair of an agent that a `should_start` without a project is about. It is the pair
/// that may start and whose work waits longest. If none may start, it is the pair with the most
/// informative reason. `None` without pairs.
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

/// Returns the pair of an agent that an `authenticate` without a project is about. A pair whose
/// launch is starting comes first. Next is the pair whose work waits longest, and pairs without an
/// open launch come first. Otherwise it is the only pair. `None` if the choice is ambiguous.
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

/// The facts that identify the launch of a report without a launch id.
#[derive(Debug, Clone, Copy)]
pub struct ReportedBy<'a> {
    pub agent: &'a AgentId,
    pub project: &'a ProjectId,
    /// The process that ended, if the client reports it.
    pub pid: Option<i32>,
    /// The coordinator that reports, if it gave its name.
    pub coordinator: Option<&'a CoordinatorId>,
}

/// Finds the launch of the report among the launches of the pair. If none is open, the agent may
/// have ended its launch by its own report, which its client does not know. A launch with a known
/// process matches only a report about that process. A launch without a known process matches only
/// a client that could have started it. Otherwise a pair that another coordinator keeps could be
/// freed while its agent lives.
///
/// # Errors
/// Returns [`Refusal::NoOpenLaunch`] or [`Refusal::AmbiguousLaunch`].
pub fn launch_to_report(launches: &[Launch], by: ReportedBy<'_>) -> Result<LaunchId, Refusal> {
    let of_pair = || {
        let is_of_pair = |l: &&Launch| l.key.agent == *by.agent && l.key.project == *by.project;
        launches.iter().filter(is_of_pair).filter(|launch| launch.is_reported_by(by.coordinator))
    };
    // An ended launch counts, too, because a report may be repeated.
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
