//! The places of one HTTP listener. Its clients are not told apart.

use std::time::Duration;

use crate::connections::{ConnectionRegister, ConnectionState, RegisteredConnection};

/// The pause between two checks while all connections are busy. One of them may begin to wait, and
/// give way.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A connection of the listener.
pub(super) type HttpConnection = RegisteredConnection<()>;

/// A limited number of places. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct ConnectionPool {
    n_places: usize,
    register: ConnectionRegister<()>,
}

impl ConnectionPool {
    /// Creates a pool with `n_places` places.
    pub(super) fn new(n_places: usize) -> Self {
        Self { n_places, register: ConnectionRegister::default() }
    }

    /// Takes a place. If there is none, the connection that has waited longest for its client gives
    /// way. Cancel-safe.
    pub(super) async fn enter(&self) -> HttpConnection {
        loop {
            if let Some(connection) = self.try_enter() {
                return connection;
            }
            self.make_room();
            // The place may have been taken meanwhile.
            let _ = tokio::time::timeout(LOOK_AGAIN, self.register.freed()).await;
        }
    }

    fn try_enter(&self) -> Option<HttpConnection> {
        let register = self.register.lock();
        (register.n_in_all() < self.n_places)
            .then(|| register.register((), ConnectionState::default()))
    }

    /// Asks the connection that has waited longest to close, if any waits.
    pub(super) fn make_room(&self) {
        if let Some(idle) = self.register.lock().find_longest_idle(&()) {
            idle.ask_to_close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_hours(1);

    fn enter(pool: &ConnectionPool) -> tokio::task::JoinHandle<HttpConnection> {
        let pool = pool.clone();
        tokio::spawn(async move { pool.enter().await })
    }

    #[tokio::test(start_paused = true)]
    async fn who_waited_longest_gives_way() {
        let pool = ConnectionPool::new(3);
        let busy = pool.enter().await;
        let first = pool.enter().await;
        let second = pool.enter().await;
        busy.state().works();
        for connection in [&first, &second] {
            tokio::time::advance(Duration::from_millis(1)).await;
            connection.state().waits(LONG);
        }
        let entering = enter(&pool);
        first.state().gives_way().cancelled().await;
        assert!(
            !second.state().gives_way().is_cancelled() && !busy.state().gives_way().is_cancelled()
        );
        drop(first);
        entering.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_begins_to_wait_while_others_queue_gives_way_soon() {
        let pool = ConnectionPool::new(1);
        let busy = pool.enter().await;
        busy.state().works();
        let entering = enter(&pool);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!busy.state().gives_way().is_cancelled());
        busy.state().waits(LONG);
        busy.state().gives_way().cancelled().await;
        drop(busy);
        entering.await.unwrap();
    }
}
