//! The interface for a watcher outside the loop, such as a service manager by way of `app`. The
//! watcher sees that the loop still turns, and its status.

use std::time::Duration;

use service::CoordinatorStatus;

/// Is called by the loop itself, so that a loop that hangs reports nothing.
pub trait LoopObserver: Send + Sync + 'static {
    /// The loop calls this when a cycle is done and it waits for the next one. Returns the time
    /// after which the loop must call again, or `None` for not before the end of the next cycle.
    fn turned(&mut self) -> Option<Duration>;

    /// The loop calls this when its processes or its deferred starts have changed.
    fn changed(&mut self, status: &CoordinatorStatus);
}

/// An observer that ignores all calls.
impl LoopObserver for () {
    fn turned(&mut self) -> Option<Duration> {
        None
    }

    fn changed(&mut self, _: &CoordinatorStatus) {}
}
