//! The shared state of all parts of a daemon: they serve until they are told to end, and none of
//! them ends before.

use std::future::Future;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The parts that run beside each other.
#[derive(Clone, Default)]
pub(super) struct Parts {
    /// Cancelled when the serving is to end.
    pub(super) serving: CancellationToken,
    /// Cancelled when a part ends before it is told to.
    pub(super) broken: CancellationToken,
    running: TaskTracker,
}

impl Parts {
    /// Runs a part. If it ends while the daemon serves, the daemon is broken: a restart is better
    /// than half a daemon.
    pub(super) fn spawn(&self, part: impl Future<Output = ()> + Send + 'static) {
        self.running.spawn(watched(self.broken.clone(), self.serving.clone(), part));
    }

    /// Runs a part whose end the caller awaits.
    #[allow(clippy::disallowed_methods, reason = "the caller awaits the task")]
    pub(super) fn spawn_apart(
        &self,
        part: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        tokio::spawn(watched(self.broken.clone(), self.serving.clone(), part))
    }

    /// Tells the parts to end, and waits until all have ended.
    pub(super) async fn end(&self) {
        self.serving.cancel();
        self.running.close();
        self.running.wait().await;
    }
}

async fn watched(
    broken: CancellationToken,
    serving: CancellationToken,
    part: impl Future<Output = ()>,
) {
    // This also runs if the part panics.
    let _on_end = OnEnd { broken, serving };
    part.await;
}

struct OnEnd {
    broken: CancellationToken,
    serving: CancellationToken,
}

impl Drop for OnEnd {
    fn drop(&mut self) {
        if !self.serving.is_cancelled() {
            self.broken.cancel();
        }
    }
}
