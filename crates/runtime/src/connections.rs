//! The connections of one listener, and the choice of the connection that closes when there is no
//! slot for another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock;
use machine::locks::lock;

/// The pause between two checks while all connections are busy. One of them may begin to wait, and
/// give way.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A limited number of slots.
#[derive(Debug, Clone)]
pub struct ConnectionPool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    slots: Arc<Semaphore>,
    members: Mutex<Members>,
}

#[derive(Debug, Default)]
struct Members {
    n_entered: u64,
    present: BTreeMap<u64, Arc<ConnectionState>>,
}

/// A taken slot. Dropping it frees the slot.
#[derive(Debug)]
pub struct ConnectionSlot {
    shared: Arc<Shared>,
    number: u64,
    connection_state: Arc<ConnectionState>,
    _permit: OwnedSemaphorePermit,
}

/// The state of a connection: it waits for its client, or works for it.
#[derive(Debug, Default)]
pub struct ConnectionState {
    wait: Mutex<Option<Wait>>,
    gives_way: CancellationToken,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    since: Instant,
    until: Instant,
}

impl ConnectionPool {
    /// Creates a pool with `n_slots` slots.
    pub fn new(n_slots: usize) -> Self {
        Self(Arc::new(Shared {
            slots: Arc::new(Semaphore::new(n_slots)),
            members: Mutex::default(),
        }))
    }

    /// Takes a slot. If there is none, the connection that has waited longest for its client gives
    /// way. Cancel-safe.
    pub async fn enter(&self) -> ConnectionSlot {
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.0.slots).try_acquire_owned() {
                break permit;
            }
            self.make_room();
            if let Ok(permit) =
                tokio::time::timeout(LOOK_AGAIN, Arc::clone(&self.0.slots).acquire_owned()).await
            {
                break permit.expect("the semaphore is never closed");
            }
        };
        let connection_state = Arc::new(ConnectionState::default());
        let mut members = lock(&self.0.members);
        members.n_entered += 1;
        let number = members.n_entered;
        members.present.insert(number, Arc::clone(&connection_state));
        drop(members);
        ConnectionSlot { shared: Arc::clone(&self.0), number, connection_state, _permit: permit }
    }

    /// Asks the connection that has waited longest to close, if any waits.
    pub fn make_room(&self) {
        let members = lock(&self.0.members);
        let waiting = members
            .present
            .values()
            .filter(|connection_state| !connection_state.gives_way.is_cancelled());
        let longest = waiting.filter_map(|connection_state| {
            Some((connection_state.lock().as_ref()?.since, connection_state))
        });
        if let Some((_, connection_state)) = longest.min_by_key(|(since, _)| *since) {
            connection_state.gives_way.cancel();
        }
    }
}

impl ConnectionSlot {
    pub fn connection_state(&self) -> &Arc<ConnectionState> {
        &self.connection_state
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut members = lock(&self.shared.members);
        members.present.remove(&self.number);
    }
}

impl ConnectionState {
    /// Notes that the connection waits for its client, at most for `limit`.
    pub fn waits(&self, limit: Duration) {
        let since = clock::now();
        *self.lock() = Some(Wait { since, until: since + limit });
    }

    /// Notes that the server works for the client. There is no time limit, and the connection does
    /// not give way.
    pub fn works(&self) {
        *self.lock() = None;
    }

    /// Returns the time since which the connection waits for its client, if it does.
    pub fn waits_since(&self) -> Option<Instant> {
        Some(self.lock().as_ref()?.since)
    }

    /// Returns the time until which the client must act.
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.lock().as_ref()?.until)
    }

    /// Cancelled when another needs the slot.
    pub fn gives_way(&self) -> &CancellationToken {
        &self.gives_way
    }

    /// Returns when another connection needs the slot, or when the client's time is up. It never
    /// returns once the connection has begun to work. Cancel-safe.
    pub async fn overstays(&self) {
        let is_late = async {
            while let Some(deadline) = self.deadline() {
                if deadline <= clock::now() {
                    return;
                }
                tokio::time::sleep_until(deadline).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = is_late => {}
            () = self.gives_way.cancelled() => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Wait>> {
        lock(&self.wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_hours(1);

    fn enter(pool: &ConnectionPool) -> tokio::task::JoinHandle<ConnectionSlot> {
        let pool = pool.clone();
        tokio::spawn(async move { pool.enter().await })
    }

    #[tokio::test(start_paused = true)]
    async fn who_waited_longest_gives_way() {
        let pool = ConnectionPool::new(3);
        let busy = pool.enter().await;
        let first = pool.enter().await;
        let second = pool.enter().await;
        busy.connection_state().works();
        for slot in [&first, &second] {
            tokio::time::advance(Duration::from_millis(1)).await;
            slot.connection_state().waits(LONG);
        }
        let entering = enter(&pool);
        first.connection_state().gives_way().cancelled().await;
        assert!(
            !second.connection_state().gives_way().is_cancelled()
                && !busy.connection_state().gives_way().is_cancelled()
        );
        drop(first);
        entering.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_begins_to_wait_while_others_queue_gives_way_soon() {
        let pool = ConnectionPool::new(1);
        let busy = pool.enter().await;
        busy.connection_state().works();
        let entering = enter(&pool);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!busy.connection_state().gives_way().is_cancelled());
        busy.connection_state().waits(LONG);
        busy.connection_state().gives_way().cancelled().await;
        drop(busy);
        entering.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_works_may_take_its_time() {
        let pool = ConnectionPool::new(2);
        let waits = pool.enter().await;
        let works = pool.enter().await;
        waits.connection_state().waits(LONG);
        works.connection_state().waits(LONG);
        works.connection_state().works();
        waits.connection_state().overstays().await;
        assert!(
            tokio::time::timeout(LONG * 9, works.connection_state().overstays()).await.is_err()
        );
    }
}
