//! Lets the connections of one process be identified one after the other. To identify a process
//! takes far longer than to connect. Without this queue, a process that connects again and again
//! would keep the server from accepting other connections in time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use machine::locks::lock;

/// The processes whose connections are being identified. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct IdentificationQueue {
    /// The greatest number of waiting connections of one process.
    most: usize,
    processes: Arc<Mutex<HashMap<i32, Arc<Semaphore>>>>,
}

/// The identification of a connection. Dropping it lets the next connection of the process begin.
#[derive(Debug)]
pub(super) struct Identification {
    queue: IdentificationQueue,
    pid: i32,
    permit: Option<OwnedSemaphorePermit>,
}

impl IdentificationQueue {
    /// Creates a queue for at most `most` connections of one process at a time.
    pub(super) fn new(most: usize) -> Self {
        Self { most, processes: Arc::default() }
    }

    /// Waits until no other connection of the process is being identified; `None` if too many of
    /// its connections wait already.
    pub(super) async fn begin(&self, pid: i32) -> Option<Identification> {
        let slot = {
            let mut processes = self.lock();
            let slot = processes.entry(pid).or_insert_with(|| Arc::new(Semaphore::new(1)));
            // The map has one reference, each connection another.
            if Arc::strong_count(slot) > self.most {
                return None;
            }
            Arc::clone(slot)
        };
        let permit = slot.acquire_owned().await.ok();
        Some(Identification { queue: self.clone(), pid, permit })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i32, Arc<Semaphore>>> {
        lock(&self.processes)
    }
}

impl Drop for Identification {
    fn drop(&mut self) {
        let mut processes = self.queue.lock();
        self.permit = None;
        if processes.get(&self.pid).is_some_and(|slot| Arc::strong_count(slot) == 1) {
            processes.remove(&self.pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn connections_of_a_process_are_identified_in_turn_and_few_wait() {
        let queue = IdentificationQueue::new(2);
        let first = queue.begin(1).await;
        assert!(queue.begin(2).now_or_never().flatten().is_some(), "another process does not wait");
        let mut second = Box::pin(queue.begin(1));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(queue.begin(1).await.is_none(), "too many wait");
        drop(first);
        assert!(second.await.is_some());
        assert!(queue.lock().is_empty());
        assert!(queue.begin(1).await.is_some());
    }
}
