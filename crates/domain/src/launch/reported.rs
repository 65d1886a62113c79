//! Finds the launch that a report without a launch id means (docs/migration.md).

use super::Launch;
use crate::id::{AgentId, CoordinatorId, LaunchId, ProjectId};
use crate::refusal::Refusal;

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
