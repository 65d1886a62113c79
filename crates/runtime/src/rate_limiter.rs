//! Limits how often something may happen for each key, with a token bucket for each. A key in a
//! loop is refused, and the others are not affected.

use std::hash::Hash;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use crate::lru::Lru;
use domain::rate::{Bucket, Rate};
use machine::locks::lock;

/// The buckets of the keys that were seen last.
#[derive(Debug)]
pub struct RateLimiter<K> {
    rate: Rate,
    began: Instant,
    buckets: Mutex<Lru<K, Bucket>>,
}

impl<K: Clone + Eq + Hash> RateLimiter<K> {
    /// Creates a limiter whose time begins at `now`. It knows at most `max_known` keys; a forgotten
    /// key begins with a full bucket, as after a pause.
    pub fn new(rate: Rate, max_known: usize, now: Instant) -> Self {
        Self { rate, began: now, buckets: Mutex::new(Lru::of(max_known)) }
    }

    /// Counts one event of `key`. Returns `false` for one above the limit, which does not count.
    pub fn take(&self, key: &K, now: Instant) -> bool {
        let now = now.saturating_duration_since(self.began);
        self.buckets().touch(key).take(self.rate, now)
    }

    /// Takes back the count of an event that did not happen.
    pub fn give_back(&self, key: &K) {
        self.buckets().touch(key).give_back();
    }

    fn buckets(&self) -> MutexGuard<'_, Lru<K, Bucket>> {
        lock(&self.buckets)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const RATE: Rate = Rate { burst: 3, interval: Duration::from_secs(1) };

    fn n_taken(limiter: &RateLimiter<u32>, key: u32, now: Instant) -> usize {
        (0..100).filter(|_| limiter.take(&key, now)).count()
    }

    #[test]
    fn each_key_has_a_bucket_of_its_own() {
        let began = Instant::now();
        let limiter = RateLimiter::new(RATE, 10, began);
        assert_eq!(n_taken(&limiter, 1, began), 3);
        assert_eq!(n_taken(&limiter, 2, began), 3);
        assert_eq!(n_taken(&limiter, 1, began + Duration::from_secs(2)), 2);
        limiter.give_back(&1);
        assert_eq!(n_taken(&limiter, 1, began + Duration::from_secs(2)), 1);
        assert_eq!(n_taken(&limiter, 2, began + Duration::from_secs(1)), 1);
    }

    #[test]
    fn the_key_that_was_not_seen_for_longest_is_forgotten() {
        let began = Instant::now();
        let limiter = RateLimiter::new(RATE, 2, began);
        for key in [1, 2, 3] {
            assert_eq!(n_taken(&limiter, key, began), 3, "{key}");
        }
        assert_eq!(n_taken(&limiter, 3, began), 0);
        assert_eq!(n_taken(&limiter, 1, began), 3, "it begins with a full bucket");
    }
}
