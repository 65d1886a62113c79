//! Finds the project that older clients mean but do not send (docs/migration.md), for
//! `service::compat`.

use super::agent::ProjectStatus;
use super::launch::LaunchState;
use super::start_history::{Backoff, StartFacts};
use super::time::Timestamp;

/// Returns the pair of an agent that a `should_start` without a project is about. It is the pair
/// that may start and whose work waits longest. If none may start, it is the pair with the most
/// informative reason. `None` without pairs.
pub fn pair_to_start(
    pairs: Vec<StartFacts>,
    backoff: Backoff,
    now: Timestamp,
) -> Option<StartFacts> {
    let rank = |pair: &StartFacts| pair.reason(backoff, now).row().rank;
    pairs.into_iter().min_by_key(|pair| (rank(pair), is_idle(pair), pair.waiting_since))
}

/// Returns the pair of an agent that an `authenticate` without a project is about. A pair whose
/// launch is starting comes first. Next is the pair whose work waits longest, and pairs without an
/// open launch come first. Otherwise it is the only pair. `None` if the choice is ambiguous.
pub fn pair_to_enter(pairs: Vec<StartFacts>) -> Option<StartFacts> {
    let rank = |pair: &StartFacts| match pair.open.as_ref().map(|open| &open.state) {
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

fn is_idle(pair: &StartFacts) -> bool {
    let is_active =
        pair.project.as_ref().is_some_and(|(status, _)| *status == ProjectStatus::Active);
    !is_active || pair.waiting_since.is_none()
}

#[cfg(test)]
mod tests;
