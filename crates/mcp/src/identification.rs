//! Lets the connections of one process be identified one after the other. To identify a process
//! takes far longer than to connect. Without turns, a process that connects again and again would
//! keep the server from accepting other connections in time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use machine::locks::lock;

/// The processes whose connections are being identified. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    /// The greatest number of waiting connections of one process.
    most: usize,
    processes: Arc<Mutex<HashMap<i32, Arc<Semaphore>>>>,
}

/// The turn of a connection. Dropping it ends the turn.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    pid: i32,
    permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// Creates turns for at most `most` connections of one process at a time.
    pub(super) fn new(most: usize) -> Self {
        Self { most, processes: Arc::default() }
    }

    /// Waits until no other connection of the process is being identified; `None` if too many of
    /// its connections wait already.
    pub(super) async fn take(&self, pid: i32) -> Option<Turn> {
        let turn = {
            let mut processes = self.lock();
            let turn = processes.entry(pid).or_insert_with(|| Arc::new(Semaphore::new(1)));
            // The map has one reference, each connection another.
            if Arc::strong_count(turn) > self.most {
                return None;
            }
            Arc::clone(turn)
        };
        let permit = turn.acquire_owned().await.ok();
        Some(Turn { turns: self.clone(), pid, permit })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i32, Arc<Semaphore>>> {
        lock(&self.processes)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut processes = self.turns.lock();
        self.permit = None;
        if processes.get(&self.pid).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            processes.remove(&self.pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn each_process_has_one_turn_at_a_time_and_few_that_wait() {
        let turns = Turns::new(2);
        let first = turns.take(1).await;
        assert!(turns.take(2).now_or_never().flatten().is_some(), "another process does not wait");
        let mut second = Box::pin(turns.take(1));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(turns.take(1).await.is_none(), "too many wait");
        drop(first);
        assert!(second.await.is_some());
        assert!(turns.lock().is_empty());
        assert!(turns.take(1).await.is_some());
    }
}
