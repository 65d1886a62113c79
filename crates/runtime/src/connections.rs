//! The connections of one listener, by client. If there is no place for another connection, the one
//! that has waited longest for its client can give way.
//!
//! Each listener has a register of its own, and decides itself who gets a place: `http` waits for
//! one, and the MCP socket asks `domain::admission`.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock;
use machine::locks::lock;

/// The register of one listener, whose connections are counted by `C`. Clones share it.
#[derive(Debug, Clone)]
pub struct ConnectionRegister<C>(Arc<Shared<C>>);

#[derive(Debug)]
struct Shared<C> {
    clients: Mutex<Clients<C>>,
    /// Wakes a task that waits for a place.
    freed: Notify,
}

/// The connections of each client, the oldest first.
type Clients<C> = HashMap<C, Vec<Arc<ConnectionState>>>;

/// The register during a decision about a new connection. No connection comes or goes meanwhile.
#[derive(Debug)]
pub struct LockedRegister<'a, C> {
    shared: &'a Arc<Shared<C>>,
    clients: MutexGuard<'a, Clients<C>>,
}

/// A connection in the register. Dropping it frees its place.
#[derive(Debug)]
pub struct RegisteredConnection<C: Eq + Hash> {
    shared: Arc<Shared<C>>,
    client: C,
    state: Arc<ConnectionState>,
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

impl<C> Default for ConnectionRegister<C> {
    fn default() -> Self {
        Self(Arc::new(Shared { clients: Mutex::default(), freed: Notify::new() }))
    }
}

impl<C> ConnectionRegister<C> {
    /// Locks the register for a decision about a new connection.
    pub fn lock(&self) -> LockedRegister<'_, C> {
        LockedRegister { shared: &self.0, clients: lock(&self.0.clients) }
    }

    /// Returns when a place may be free. Cancel-safe.
    pub async fn freed(&self) {
        self.0.freed.notified().await;
    }
}

impl<C: Clone + Eq + Hash> LockedRegister<'_, C> {
    /// Returns the number of connections of all clients.
    pub fn n_in_all(&self) -> usize {
        self.clients.values().map(Vec::len).sum()
    }

    /// Returns the number of connections of a client.
    pub fn n_of(&self, client: &C) -> usize {
        self.clients.get(client).map_or(0, Vec::len)
    }

    /// Finds the connection of a client that has waited longest for it and was not asked to close.
    pub fn find_longest_idle(&self, client: &C) -> Option<Arc<ConnectionState>> {
        let connections = self.clients.get(client)?.iter();
        let idle = connections
            .filter(|state| !state.gives_way.is_cancelled())
            .filter_map(|state| Some((state.waits_since()?, state)));
        idle.min_by_key(|(since, _)| *since).map(|(_, state)| Arc::clone(state))
    }

    /// Asks a connection of a client to close, and frees its place at once.
    pub fn displace(&mut self, client: &C, state: &Arc<ConnectionState>) {
        state.ask_to_close();
        remove(&mut self.clients, client, state);
    }

    /// Registers a connection of a client.
    pub fn register(mut self, client: C, state: ConnectionState) -> RegisteredConnection<C> {
        let state = Arc::new(state);
        self.clients.entry(client.clone()).or_default().push(Arc::clone(&state));
        RegisteredConnection { shared: Arc::clone(self.shared), client, state }
    }
}

/// Removes a connection. Does nothing if it was removed before.
fn remove<C: Eq + Hash>(clients: &mut Clients<C>, client: &C, state: &Arc<ConnectionState>) {
    if let Some(connections) = clients.get_mut(client) {
        connections.retain(|each| !Arc::ptr_eq(each, state));
        if connections.is_empty() {
            clients.remove(client);
        }
    }
}

impl<C: Eq + Hash> RegisteredConnection<C> {
    pub fn client(&self) -> &C {
        &self.client
    }

    pub fn state(&self) -> &Arc<ConnectionState> {
        &self.state
    }
}

impl<C: Eq + Hash> Drop for RegisteredConnection<C> {
    fn drop(&mut self) {
        remove(&mut lock(&self.shared.clients), &self.client, &self.state);
        self.shared.freed.notify_one();
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

    /// Asks the connection to close. It keeps its place until then.
    pub fn ask_to_close(&self) {
        self.gives_way.cancel();
    }

    /// Cancelled when another connection needs the place.
    pub fn gives_way(&self) -> &CancellationToken {
        &self.gives_way
    }

    /// Returns when another connection needs the place, or when the client's time is up. It never
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

    fn register(register: &ConnectionRegister<u32>, client: u32) -> RegisteredConnection<u32> {
        register.lock().register(client, ConnectionState::default())
    }

    #[tokio::test(start_paused = true)]
    async fn who_works_may_take_its_time() {
        let connections = ConnectionRegister::default();
        let waits = register(&connections, 1);
        let works = register(&connections, 1);
        waits.state().waits(LONG);
        works.state().waits(LONG);
        works.state().works();
        waits.state().overstays().await;
        assert!(tokio::time::timeout(LONG * 9, works.state().overstays()).await.is_err());
    }

    #[test]
    fn connections_count_by_client_until_they_are_dropped() {
        let connections = ConnectionRegister::default();
        let first = register(&connections, 1);
        let second = register(&connections, 1);
        let other = register(&connections, 2);
        let counts = || {
            let locked = connections.lock();
            (locked.n_in_all(), locked.n_of(&1), locked.n_of(&2), locked.n_of(&3))
        };
        assert_eq!(counts(), (3, 2, 1, 0));
        drop(second);
        assert_eq!(counts(), (2, 1, 1, 0));
        drop((first, other));
        assert_eq!(counts(), (0, 0, 0, 0));
        assert!(connections.lock().clients.is_empty(), "no client stays behind");
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_of_a_client_that_waited_longest_is_displaced() {
        let connections = ConnectionRegister::default();
        let [other, busy, first, second] =
            [2, 1, 1, 1].map(|client| register(&connections, client));
        for waiting in [&other, &first, &second] {
            waiting.state().waits(LONG);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let displaced = |expected: &RegisteredConnection<u32>| {
            let mut locked = connections.lock();
            let idle = locked.find_longest_idle(&1).unwrap();
            locked.displace(&1, &idle);
            assert!(expected.state().gives_way().is_cancelled());
            locked.n_of(&1)
        };
        assert_eq!(displaced(&first), 2);
        assert_eq!(displaced(&second), 1);
        assert!(connections.lock().find_longest_idle(&1).is_none(), "the rest is busy");
        assert!(!busy.state().gives_way().is_cancelled());
        assert!(!other.state().gives_way().is_cancelled());
        drop(first);
        assert_eq!(connections.lock().n_of(&1), 1, "its place was free before");
    }

    #[test]
    fn a_connection_that_was_asked_to_close_keeps_its_place_and_is_not_asked_again() {
        let connections = ConnectionRegister::default();
        let idle = register(&connections, 1);
        idle.state().waits(LONG);
        connections.lock().find_longest_idle(&1).unwrap().ask_to_close();
        assert!(idle.state().gives_way().is_cancelled());
        assert!(connections.lock().find_longest_idle(&1).is_none());
        assert_eq!(connections.lock().n_of(&1), 1);
    }
}
