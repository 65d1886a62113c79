//! How often one agent may call: a token bucket for each. An agent in a loop is told to wait; the others don't notice it.
//!
//! A call counts when it begins: one that waits counts once. Refusing costs no look into the store.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::domain::LaunchId;
use crate::domain::secret::TokenHash;
use crate::service::recent::Recent;

/// Sustained, by the second. A model takes seconds between two calls; a script that polls as fast as it can gets this much. At
/// well below a tenth of a millisecond a call, a thousand agents in a loop leave the daemon most of its time.
const CALLS_PER_SECOND: u32 = 20;
/// At once after a pause: more than any agent has to say in one turn.
const BURST: u32 = 100;
/// More agents than a machine runs. Whoever is forgotten begins with a full bucket, which is what a pause gives, too.
const MAX_KNOWN: usize = 8192;

/// Whose calls count together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum CallsOf {
    /// All processes below the keeper of a launch, whatever they show.
    Launch(LaunchId),
    /// Whoever shows this token.
    Token(TokenHash),
}

/// The buckets.
#[derive(Debug)]
pub(super) struct RateLimit(Mutex<Recent<CallsOf, Bucket>>);

#[derive(Debug, Default)]
struct Bucket {
    /// Calls that were made and not made up for by time, until `seen`. Empty at first, so that the burst is there at once.
    n_made: f64,
    seen: Option<Instant>,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self(Mutex::new(Recent::of(MAX_KNOWN)))
    }
}

impl RateLimit {
    /// Counts a call; `false` if it is one too many, which then doesn't count.
    pub(super) fn take(&self, who: &CallsOf, now: Instant) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).touch(who).take(now)
    }
}

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        let passed = self.seen.map(|seen| now.saturating_duration_since(seen)).unwrap_or_default();
        self.n_made = (self.n_made - passed.as_secs_f64() * f64::from(CALLS_PER_SECOND)).max(0.0);
        self.seen = Some(now);
        let has_room = self.n_made + 1.0 <= f64::from(BURST);
        if has_room {
            self.n_made += 1.0;
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::domain::Secret;

    fn agent(name: &str) -> CallsOf {
        CallsOf::Token(Secret::new(name).token_hash())
    }

    fn n_taken(limit: &RateLimit, who: &CallsOf, now: Instant) -> usize {
        (0..1_000).filter(|_| limit.take(who, now)).count()
    }

    #[test]
    fn a_burst_is_taken_and_then_so_many_a_second() {
        let (limit, ann, bob, begun) = (RateLimit::default(), agent("a"), agent("b"), Instant::now());
        assert_eq!(n_taken(&limit, &ann, begun), 100);
        assert_eq!(n_taken(&limit, &bob, begun), 100, "each has its own");
        assert_eq!(n_taken(&limit, &ann, begun + Duration::from_secs(1)), 20);
        // The hint of the refusal.
        assert!(limit.take(&ann, begun + Duration::from_secs(2)));
        assert_eq!(n_taken(&limit, &ann, begun + Duration::from_hours(1)), 100);
    }

    #[test]
    fn who_keeps_to_the_rate_is_never_refused() {
        let (limit, ann, begun) = (RateLimit::default(), agent("a"), Instant::now());
        n_taken(&limit, &ann, begun);
        for n in 1..1_000 {
            assert!(limit.take(&ann, begun + Duration::from_millis(51) * n), "call {n}");
        }
    }
}
