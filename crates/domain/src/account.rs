//! The state of the account behind a provider (`ai_type`). An account is parked after its login or
//! its quota failed. This module says until when, and which launch tries the account again.
//!
//! ```text
//!          auth, quota             time                claim             authenticated
//!  works ─────────► parked(until) ────► may be tried ──────► being tried ──────► works
//!                       ▲                    ▲                │   │ auth, quota: longer
//!                       └────────────────────┼────────────────┼───┘
//!                                            └────────────────┘ other end, or PROBE_TIMEOUT over
//! ```
//!
//! A parked account starts no agent of any pair. When its time is over, it starts one agent. The
//! others follow when that agent has authenticated, because an agent needs a working model to do
//! that.
//!
//! Some CLIs wait for a quota inside their run. Such an agent parks its account while it runs. It
//! tries the account itself, so no other agent does that, and the account works when it goes on.

use std::time::Duration;

use super::activity::{Failure, FailureClass};
use super::id::LaunchId;
use super::launch::{Launch, LaunchState};
use super::time::Timestamp;

/// The state of an account between launches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub ai_type: String,
    /// `None` if the account works, as far as is known.
    pub parked: Option<Parked>,
    pub revision: i64,
}

/// An account that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// `auth` or `quota`.
    pub class: FailureClass,
    pub since: Timestamp,
    /// The time of the first of the failures in a row.
    pub first: Timestamp,
    pub until: Timestamp,
    /// Failures in a row. Each is of a launch that was started after the failure before it.
    pub n_failures: u32,
    /// The last start that tried the account again.
    pub probe: Option<Probe>,
}

/// A launch that finds out whether an account works again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    pub launch: LaunchId,
    /// The time of its start, or of the parking if it runs and waits for its quota.
    pub at: Timestamp,
}

/// The time that an account is parked if its failure names no end. It is `initial`, doubled by each
/// further failure in a row, and at most `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parking {
    pub initial: Duration,
    pub max: Duration,
}

impl Default for Parking {
    fn default() -> Self {
        Self { initial: Duration::from_mins(5), max: Duration::from_hours(1) }
    }
}

/// The longest time that an account is parked, regardless of the end that its CLI names. It is a
/// little more than a week.
pub const MAX_PARKING: Duration = Duration::from_hours(8 * 24);
/// The longest time that other launches wait for a probe that neither authenticates nor ends.
pub const PROBE_TIMEOUT: Duration = Duration::from_mins(1);

/// The launches that an account allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountState {
    /// All launches may start.
    Works,
    /// No launch may start before this time.
    Parked(Timestamp),
    /// One launch may start, to find out whether the account works again.
    MayBeTried,
    /// No launch may start until the probe has authenticated or ended, or until this time.
    BeingTried(Timestamp),
}

impl Parking {
    /// Returns the time until which the `n`th failure in a row, at `at`, parks the account. If the
    /// failure names an end, a tenth of the distance is added. Clocks differ, and the quotas of all
    /// other accounts begin anew at the same moment.
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

    /// Returns what the account allows now. A wait is never longer than was decided, nor longer
    /// than [`MAX_PARKING`], even if a clock jumped since.
    pub fn state_at(&self, now: Timestamp) -> AccountState {
        let Some(parked) = &self.parked else {
            return AccountState::Works;
        };
        let left = parked.until.since(now).min(parked.until.since(parked.since)).min(MAX_PARKING);
        if !left.is_zero() {
            return AccountState::Parked(now + left);
        }
        match &parked.probe {
            Some(probe) if now.since(probe.at) < PROBE_TIMEOUT => {
                AccountState::BeingTried(probe.at.min(now) + PROBE_TIMEOUT)
            }
            Some(_) | None => AccountState::MayBeTried,
        }
    }

    /// Returns the account after a launch of it was claimed. A launch that starts while the account
    /// is parked is its probe.
    #[must_use]
    pub fn after_claim(self, launch: &LaunchId, at: Timestamp) -> Self {
        let probe = Some(Probe { launch: launch.clone(), at });
        Self { parked: self.parked.map(|parked| Parked { probe, ..parked }), ..self }
    }

    /// Returns the account after `launch` authenticated or ended at `at`.
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
            // The launch began before the account was parked: it reports the same failure once
            // more.
            (Some(parked), Some(failure))
                if launch.claimed_at <= parked.since && !is_probe(&parked) =>
            {
                Some(parked.named_again(failure, at, parking))
            }
            // It waited for its quota, and its end reports the failure that parked the account.
            (Some(parked), Some(failure))
                if parked.is_waited_for(&launch.id) && at < parked.until =>
            {
                Some(Parked { probe: None, ..parked.named_again(failure, at, parking) })
            }
            (Some(parked), Some(failure)) => {
                let n_failures = parked.n_failures.saturating_add(1);
                Some(Parked { first: parked.first, ..Parked::by(failure, n_failures, at, parking) })
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

    /// Returns the account after its running `launch` reported its present failure. The refusal
    /// of a quota parks the account until then, or until this launch goes on.
    #[must_use]
    pub fn after_report(
        self,
        launch: &Launch,
        failure: Option<Failure>,
        at: Timestamp,
        parking: Parking,
    ) -> Self {
        let is_probe =
            |parked: &Parked| parked.probe.as_ref().is_some_and(|probe| probe.launch == launch.id);
        let parked = match (self.parked, failure) {
            (Some(parked), None) if is_probe(&parked) && launch.authenticated_at.is_some() => None,
            (parked, None) => parked,
            (parked, Some(failure)) if failure.class != FailureClass::Quota => parked,
            (None, Some(quota)) => Some(Parked::by(quota, 1, at, parking).waited_for(launch)),
            (Some(parked), Some(quota)) if at < parked.until => {
                let again = parked.named_again(quota, at, parking);
                let is_tried = again.probe.is_some();
                Some(if is_tried { again } else { again.waited_for(launch) })
            }
            (Some(parked), Some(quota)) => {
                let n_failures = parked.n_failures.saturating_add(1);
                let again = Parked::by(quota, n_failures, at, parking).waited_for(launch);
                Some(Parked { first: parked.first, ..again })
            }
        };
        Self { parked, ..self }
    }

    /// Returns the account without its parking, because a person asked to try again or it works.
    #[must_use]
    pub fn released(self) -> Self {
        Self { parked: None, ..self }
    }

    /// Returns the account with moments in the future replaced by now, because a wrong clock wrote
    /// them. The times that follow from them keep the distance that was decided.
    #[must_use]
    pub fn seen_at(self, now: Timestamp) -> Self {
        let seen = |parked: Parked| {
            let length = parked.until.since(parked.since).min(MAX_PARKING);
            let since = parked.since.min(now);
            let probe = parked.probe.map(|probe| Probe { at: probe.at.min(now), ..probe });
            let first = parked.first.min(now);
            Parked { since, first, until: parked.until.min(since + length), probe, ..parked }
        };
        Self { parked: self.parked.map(seen), ..self }
    }
}

impl Parked {
    fn by(failure: Failure, n_failures: u32, at: Timestamp, parking: Parking) -> Self {
        let until = parking.until(failure, n_failures, at);
        Self { class: failure.class, since: at, first: at, until, n_failures, probe: None }
    }

    /// Returns the same parking after its failure was reported once more.
    fn named_again(self, failure: Failure, at: Timestamp, parking: Parking) -> Self {
        let named = failure.resets_at.map(|_| parking.until(failure, self.n_failures, at));
        Self { until: named.map_or(self.until, |named| named.max(self.until)), ..self }
    }

    fn waited_for(self, launch: &Launch) -> Self {
        Self { probe: Some(Probe { launch: launch.id.clone(), at: self.since }), ..self }
    }

    /// Returns whether `launch` runs and waits for its quota.
    pub fn is_waited_for(&self, launch: &LaunchId) -> bool {
        let waits = |probe: &Probe| probe.launch == *launch && probe.at == self.since;
        self.probe.as_ref().is_some_and(waits)
    }

    /// Returns whether the end of its quota was guessed, because its failure named none, or none
    /// that can be.
    pub fn is_guessed(&self, parking: Parking) -> bool {
        let unnamed = Failure::from(FailureClass::Quota);
        let guess = parking.until(unnamed, self.n_failures, self.since);
        let is_bound = self.until == guess || self.until == self.since + MAX_PARKING;
        is_bound && self.class == FailureClass::Quota
    }
}

#[cfg(test)]
mod tests;
