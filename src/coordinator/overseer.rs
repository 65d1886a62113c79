//! Whoever watches from outside whether the loop still turns, and over what: a service manager, by way of `app`.

use std::time::Duration;

use crate::service::CoordinatorStatus;

/// Is told by the loop itself, so that a loop that hangs tells nothing.
pub trait Overseer: Send + Sync + 'static {
    /// The loop has come round: a cycle is done, and it waits for the next. Says how soon at the latest it wants to hear that
    /// again; `None`: not before the next cycle is done.
    fn turned(&mut self) -> Option<Duration>;

    /// The processes or the starts that wait are others than they were.
    fn changed(&mut self, status: &CoordinatorStatus);
}

/// Nobody watches.
impl Overseer for () {
    fn turned(&mut self) -> Option<Duration> {
        None
    }

    fn changed(&mut self, _: &CoordinatorStatus) {}
}
