//! The account behind a provider (`ai_type`): whether it is parked because its login or its quota failed, until when, and which
//! launch tries it again.
//!
//! ```text
//!          auth, quota                   time                       claim                  authenticated
//!  works ─────────────► parked(until) ─────────► may be tried ─────────────► being tried ─────────────► works
//!                             ▲                        ▲                       │   │ auth, quota: longer
//!                             └────────────────────────┼───────────────────────┼───┘
//!                                                      └───────────────────────┘ ended otherwise, or PROBE_PATIENCE over
//! ```
//!
//! A parked account starts nobody, whichever pair it is. When its time is over, it starts one; the others follow when that one
//! has authenticated, which takes a model that answers.

use std::time::Duration;

use super::activity::{Failure, FailureClass};
use super::id::LaunchId;
use super::launch::{Launch, LaunchState};
use super::time::Timestamp;

/// What is remembered of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub ai_type: String,
    /// `None`: it works, as far as is known.
    pub parked: Option<Parked>,
    pub revision: i64,
}

/// An account that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// `auth` or `quota`.
    pub class: FailureClass,
    pub since: Timestamp,
    pub until: Timestamp,
    /// Failures in a row, each of a launch that was started after the one before.
    pub n_failures: u32,
    /// The last start that tried it again.
    pub probe: Option<Probe>,
}

/// A launch that finds out whether an account works again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    pub launch: LaunchId,
    pub at: Timestamp,
}

/// How long an account is parked whose failure names no end: `initial`, doubled by each further failure in a row, at most `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parking {
    pub initial: Duration,
    pub max: Duration,
}

/// Whatever a CLI says of its quota: longer than a week and a bit none of them waits.
pub const MAX_PARKING: Duration = Duration::from_hours(8 * 24);
/// So long the others wait for one that tries the account and neither authenticates nor ends.
pub const PROBE_PATIENCE: Duration = Duration::from_mins(1);

/// What an account lets start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Everybody.
    Works,
    /// Nobody until then.
    Parked(Timestamp),
    /// One, to see whether it works again.
    MayBeTried,
    /// Nobody, until the one that tries it has authenticated or ended, at the latest until then.
    BeingTried(Timestamp),
}

impl Parking {
    /// Until when a failure at `at` parks, the `n`th in a row. A named end is taken with a tenth more of the way there: clocks
    /// differ, and everybody else's quota begins anew at the same moment.
    pub fn until(self, failure: Failure, n: u32, at: Timestamp) -> Timestamp {
        let named = failure
            .resets_at
            .map(|resets_at| resets_at.since(at))
            .filter(|distance| !distance.is_zero());
        let delay = if let Some(distance) = named {
            let distance = distance.min(MAX_PARKING);
            distance + distance / 10
        } else {
            let doublings = n.saturating_sub(1);
            self.initial
                .saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX))
                .min(self.max)
        };
        at + delay.min(MAX_PARKING)
    }
}

impl Account {
    pub const fn new(ai_type: String) -> Self {
        Self { ai_type, parked: None, revision: 0 }
    }

    /// Nobody waits longer than what was decided, nor longer than [`MAX_PARKING`], whatever a clock did since.
    pub fn standing(&self, now: Timestamp) -> Standing {
        let Some(parked) = &self.parked else {
            return Standing::Works;
        };
        let left = parked.until.since(now).min(parked.until.since(parked.since)).min(MAX_PARKING);
        if !left.is_zero() {
            return Standing::Parked(now + left);
        }
        match &parked.probe {
            Some(probe) if now.since(probe.at) < PROBE_PATIENCE => {
                Standing::BeingTried(probe.at.min(now) + PROBE_PATIENCE)
            }
            Some(_) | None => Standing::MayBeTried,
        }
    }

    /// A launch of it was claimed: who starts while it is parked tries it.
    #[must_use]
    pub fn after_claim(self, launch: &LaunchId, at: Timestamp) -> Self {
        let probe = Some(Probe { launch: launch.clone(), at });
        Self { parked: self.parked.map(|parked| Parked { probe, ..parked }), ..self }
    }

    /// What a launch of it that authenticated or ended says of it; `at` is when.
    #[must_use]
    pub fn after(self, launch: &Launch, at: Timestamp, parking: Parking) -> Self {
        let is_over = matches!(launch.state, LaunchState::Ended { .. });
        let failure =
            launch.activity.failure.filter(|failure| is_over && failure.class.parks_account());
        let is_probe =
            |parked: &Parked| parked.probe.as_ref().is_some_and(|probe| probe.launch == launch.id);
        let parked = match (self.parked, failure) {
            (None, None) => None,
            (None, Some(failure)) => Some(Parked::by(failure, 1, at, parking)),
            // It began before: the same trouble, seen once more.
            (Some(parked), Some(failure))
                if launch.claimed_at <= parked.since && !is_probe(&parked) =>
            {
                let named =
                    failure.resets_at.map(|_| parking.until(failure, parked.n_failures, at));
                Some(Parked {
                    until: named.map_or(parked.until, |named| named.max(parked.until)),
                    ..parked
                })
            }
            (Some(parked), Some(failure)) => {
                Some(Parked::by(failure, parked.n_failures.saturating_add(1), at, parking))
            }
            (Some(parked), None) => {
                let tells =
                    launch.is_kept() && (is_probe(&parked) || launch.claimed_at > parked.since);
                match (tells, launch.authenticated_at) {
                    (true, Some(_)) => None,
                    (true, None) if is_over && is_probe(&parked) => {
                        Some(Parked { probe: None, ..parked })
                    }
                    _ => Some(parked),
                }
            }
        };
        Self { parked, ..self }
    }

    /// A person said to try again at once, or it works.
    #[must_use]
    pub fn released(self) -> Self {
        Self { parked: None, ..self }
    }

    /// Moments that lie in the future were written by a clock that was wrong: they are taken for now, and what is to come after
    /// them comes as long after that as was decided.
    #[must_use]
    pub fn seen_at(self, now: Timestamp) -> Self {
        let seen = |parked: Parked| {
            let length = parked.until.since(parked.since).min(MAX_PARKING);
            let since = parked.since.min(now);
            let probe = parked.probe.map(|probe| Probe { at: probe.at.min(now), ..probe });
            Parked { since, until: parked.until.min(since + length), probe, ..parked }
        };
        Self { parked: self.parked.map(seen), ..self }
    }
}

impl Parked {
    fn by(failure: Failure, n_failures: u32, at: Timestamp, parking: Parking) -> Self {
        let until = parking.until(failure, n_failures, at);
        Self { class: failure.class, since: at, until, n_failures, probe: None }
    }
}

#[cfg(test)]
mod tests;
