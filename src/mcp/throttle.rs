//! Patience with what could be guessed at: the answer to a wrong passkey or token is held back, longer with each failure for the
//! same agent id, whether there is such an agent or not, or from the same address. A right one is never held back, so nobody can
//! lock an agent or a coordinator out.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);
/// More ids than this are an attack on our memory; the counting begins anew.
const MAX_IDS: usize = 1024;
/// Enough to reach the longest delay.
const MAX_DOUBLINGS: u32 = 6;
/// What is kept of an id that is none.
const MAX_ID_LENGTH: usize = 64;

/// Failures in a row by agent id or address.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<HashMap<String, u32>>);

impl Throttle {
    /// Counts a failure and says how long its answer is to be held back.
    pub(super) fn failed(&self, agent_id: &str) -> Duration {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= MAX_IDS {
            failures.clear();
        }
        let id: String = agent_id.chars().take(MAX_ID_LENGTH).collect();
        let n_failures = failures.entry(id).or_default();
        let delay = FIRST.saturating_mul(1 << (*n_failures).min(MAX_DOUBLINGS)).min(LONGEST);
        *n_failures = n_failures.saturating_add(1);
        delay
    }

    /// The agent came in: its failures are forgotten.
    pub(super) fn succeeded(&self, agent_id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(agent_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_answered_later_and_later_and_a_success_ends_it() {
        let throttle = Throttle::default();
        let delays: Vec<u128> = (0..8).map(|_| throttle.failed("agt").as_millis()).collect();
        assert_eq!(delays, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(throttle.failed("agt_other").as_millis(), 50);
        throttle.succeeded("agt");
        assert_eq!(throttle.failed("agt").as_millis(), 50);
    }

    #[test]
    fn made_up_ids_do_not_fill_the_memory() {
        let throttle = Throttle::default();
        for n in 0..10 * MAX_IDS {
            throttle.failed(&format!("agt_{n}"));
        }
        assert!(throttle.0.lock().unwrap().len() <= MAX_IDS);
    }
}
