//! A wake-up without data. The code that changed something calls [`Nudge::wake`]. The code that
//! waits looks at the world again.
//!
//! A wake-up between two waits is not lost, and several count as one, because the changes are read
//! and not sent. Wake-ups are counted, so that code that can't keep listening can ask whether there
//! was one in the meantime. [`sleep_until`] is a wake-up by time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::time::Instant;

use machine::locks::lock;

/// Returns at `at`, or never without a time. Cancel-safe.
pub async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The waking side. Cloning it is cheap, and all clones wake the same listeners, in the order in
/// which they began to wait.
#[derive(Debug, Clone, Default)]
pub struct Nudge(Arc<Count>);

/// The waiting side.
#[derive(Debug, Clone)]
pub struct Wakeups {
    count: Arc<Count>,
    /// The number of wake-ups that were taken.
    n_taken: u64,
}

/// The number of wake-ups, and the tasks that wait for the next one. A `watch` channel would wake
/// its receivers in a random order, and a simulated history would not be the same each time.
#[derive(Debug, Default)]
struct Count {
    n_wakeups: AtomicU64,
    next: Notify,
}

impl Nudge {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn wake(&self) {
        self.0.n_wakeups.fetch_add(1, Ordering::SeqCst);
        self.0.next.notify_waiters();
    }

    /// Returns the number of wake-ups. A caller that reads it before it looks at the world can
    /// check later whether there is news.
    pub fn n_wakeups(&self) -> u64 {
        self.0.n_wakeups.load(Ordering::SeqCst)
    }

    /// Returns a listener for each wake-up from now on.
    pub fn listen(&self) -> Wakeups {
        Wakeups { count: Arc::clone(&self.0), n_taken: self.n_wakeups() }
    }
}

impl Wakeups {
    /// Returns when there was a wake-up since the last return.
    ///
    /// Cancel-safe: a wake-up is only taken by the call that returns.
    pub async fn woken(&mut self) {
        // It hears wake-ups from its creation on, so none is lost between the look and the wait.
        let next = self.count.next.notified();
        if !self.is_pending() {
            next.await;
        }
        self.n_taken = self.count.n_wakeups.load(Ordering::SeqCst);
    }

    /// Returns whether [`Wakeups::woken`] would return at once.
    pub fn is_pending(&self) -> bool {
        self.count.n_wakeups.load(Ordering::SeqCst) != self.n_taken
    }
}

/// Nudges by key, for many listeners that each wait for one thing. Keys without a listener cost
/// nothing.
#[derive(Debug)]
pub struct Nudges<K: Eq + Hash>(Arc<Mutex<HashMap<K, Nudge>>>);

/// The listener for the wake-ups of one key. Its drop forgets the key if it was the last listener.
#[derive(Debug)]
pub struct Listener<K: Eq + Hash> {
    key: K,
    wakeups: Wakeups,
    nudges: Nudges<K>,
}

impl<K: Eq + Hash + Clone> Nudges<K> {
    /// Returns a listener for each wake-up of `key` from now on.
    pub fn listen(&self, key: K) -> Listener<K> {
        let wakeups = self.lock().entry(key.clone()).or_default().listen();
        Listener { key, wakeups, nudges: self.clone() }
    }

    pub fn wake(&self, key: &K) {
        if let Some(nudge) = self.lock().get(key) {
            nudge.wake();
        }
    }

    /// Wakes the matching keys that have listeners. Returns their number.
    pub fn wake_where(&self, is_meant: impl Fn(&K) -> bool) -> usize {
        self.lock().iter().filter(|(key, _)| is_meant(key)).map(|(_, nudge)| nudge.wake()).count()
    }
}

impl<K: Eq + Hash> Nudges<K> {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<K, Nudge>> {
        lock(&self.0)
    }
}

impl<K: Eq + Hash> Default for Nudges<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Eq + Hash> Clone for Nudges<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Eq + Hash> Listener<K> {
    /// Does the same as [`Wakeups::woken`]. Cancel-safe.
    pub async fn woken(&mut self) {
        self.wakeups.woken().await;
    }
}

impl<K: Eq + Hash> Drop for Listener<K> {
    fn drop(&mut self) {
        let mut nudges = self.nudges.lock();
        // The nudge and this listener are among the owners.
        if nudges.get(&self.key).is_some_and(|nudge| Arc::strong_count(&nudge.0) <= 2) {
            nudges.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn wake_ups_between_two_waits_are_one() {
        let nudge = Nudge::new();
        let mut wakeups = nudge.listen();
        assert!(wakeups.woken().now_or_never().is_none());
        nudge.wake();
        nudge.clone().wake();
        assert_eq!(nudge.n_wakeups(), 2);
        assert!(wakeups.is_pending());
        assert!(wakeups.woken().now_or_never().is_some());
        assert!(!wakeups.is_pending());
        assert!(wakeups.woken().now_or_never().is_none());
    }

    #[test]
    fn each_listener_hears_its_own_key_and_leaves_nothing_behind() {
        let nudges = Nudges::default();
        let mut one = nudges.listen(1);
        let mut same = nudges.listen(1);
        let mut other = nudges.listen(2);
        nudges.wake(&1);
        nudges.wake(&3);
        assert!(one.woken().now_or_never().is_some());
        assert!(same.woken().now_or_never().is_some());
        assert!(other.woken().now_or_never().is_none());
        drop(one);
        assert_eq!(nudges.wake_where(|key| *key < 3), 2);
        assert_eq!(nudges.wake_where(|key| *key > 2), 0);
        assert!(same.woken().now_or_never().is_some());
        assert!(other.woken().now_or_never().is_some());
        drop((same, other));
        assert!(nudges.lock().is_empty());
    }
}
