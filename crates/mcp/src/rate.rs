//! Limits the calls of each agent with a token bucket. An agent in a loop is told to wait, and the
//! others are not affected.
//!
//! A call counts when it begins: one that waits counts once. A refusal costs no look into the
//! store.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use domain::LaunchId;
use domain::peer::ProcessId;
use domain::rate::{Bucket, Rate};
use domain::secret::TokenHash;
use machine::locks::lock;
use runtime::clock;
use runtime::lru::Lru;

/// A hundred at once after a pause: more than any agent has to say in one turn. Then 20 a second: a
/// model takes seconds between two calls; a script that polls as fast as it can gets this much. At
/// well below a tenth of a millisecond a call, a thousand agents in a loop leave the daemon most of
/// its time.
const LIMIT: Rate = Rate { burst: 100, interval: Duration::from_millis(50) };
/// The number of known callers: more agents than a machine runs. A forgotten caller begins with a
/// full bucket, as after a pause.
const MAX_KNOWN: usize = 8192;

/// The caller whose calls count together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum CallsOf {
    /// All processes below the shim of a launch, with any token.
    Launch(LaunchId),
    /// All processes below this shim, if its launch was not reported.
    Shim(ProcessId),
    /// All agents of this user that are below no shim.
    User(u32),
    /// All callers that show this token.
    Token(TokenHash),
}

/// The buckets.
#[derive(Debug)]
pub(super) struct RateLimit {
    began: Instant,
    buckets: Mutex<Lru<CallsOf, Bucket>>,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self { began: clock::unpaused(), buckets: Mutex::new(Lru::of(MAX_KNOWN)) }
    }
}

impl RateLimit {
    /// Counts a call. Returns `false` for a call above the limit, which does not count.
    pub(super) fn take(&self, who: &CallsOf, now: Instant) -> bool {
        let now = now.saturating_duration_since(self.began);
        lock(&self.buckets).touch(who).take(LIMIT, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Secret;

    fn agent(name: &str) -> CallsOf {
        CallsOf::Token(Secret::new(name).token_hash())
    }

    fn n_taken(limit: &RateLimit, who: &CallsOf, now: Instant) -> usize {
        (0..1_000).filter(|_| limit.take(who, now)).count()
    }

    #[test]
    fn a_burst_is_taken_and_then_so_many_a_second() {
        let (limit, ann, bob, begun) =
            (RateLimit::default(), agent("a"), agent("b"), Instant::now());
        assert_eq!(n_taken(&limit, &ann, begun), 100);
        assert_eq!(n_taken(&limit, &bob, begun), 100, "each has its own");
        assert_eq!(n_taken(&limit, &ann, begun + Duration::from_secs(1)), 20);
        // The hint of the refusal.
        assert!(limit.take(&ann, begun + Duration::from_secs(2)));
        assert_eq!(n_taken(&limit, &ann, begun + Duration::from_hours(1)), 100);
    }

    #[test]
    fn who_keeps_to_the_rate_is_never_refused() {
        let limit = RateLimit::default();
        let ann = agent("a");
        let begun = Instant::now();
        n_taken(&limit, &ann, begun);
        for n in 1..1_000 {
            assert!(limit.take(&ann, begun + Duration::from_millis(51) * n), "call {n}");
        }
    }
}
