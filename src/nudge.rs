//! A wake-up without data. Whoever changed something calls [`Nudge::wake`]; whoever waits looks at the world again.
//!
//! A wake-up between two waits is not lost, and many are one: what was changed is read, not sent. Wake-ups are counted, so that
//! somebody who can't keep listening can ask whether there was one since.

use tokio::sync::watch;

/// The waking side. Cloning it is cheap, and all clones wake the same listeners.
#[derive(Debug, Clone)]
pub struct Nudge(watch::Sender<u64>);

/// The waiting side.
#[derive(Debug, Clone)]
pub struct Wakeups(watch::Receiver<u64>);

impl Nudge {
    pub fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    pub fn wake(&self) {
        self.0.send_modify(|n_wakeups| *n_wakeups += 1);
    }

    /// How often it was woken. Read before looking at the world, it says later whether there is news.
    pub fn n_wakeups(&self) -> u64 {
        *self.0.borrow()
    }

    /// A listener that hears each wake-up from now on.
    pub fn listen(&self) -> Wakeups {
        Wakeups(self.0.subscribe())
    }
}

impl Default for Nudge {
    fn default() -> Self {
        Self::new()
    }
}

impl Wakeups {
    /// Returns when something was woken since the last return; never, once all nudges are gone.
    ///
    /// Cancel-safe: a wake-up is only taken by the call that returns.
    pub async fn woken(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether [`Wakeups::woken`] would return at once.
    pub fn is_pending(&self) -> bool {
        self.0.has_changed().unwrap_or(false)
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
}
