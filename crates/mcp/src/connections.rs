//! Keeps the connections of the MCP socket: which client each belongs to, which of them are idle,
//! and how many bytes their requests hold. `domain::admission` decides; this carries the decisions
//! out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use domain::admission::{Admission, Client, ConnectionLimits, Occupancy, Refused};
use machine::locks::lock;
use runtime::clock;
use runtime::connections::{
    ConnectionRegister, ConnectionState, LockedRegister, RegisteredConnection,
};
use runtime::peer::{LocalPeer, PeerKind};

/// The time for the first message of a new connection. Afterwards it may be silent for hours,
/// because an agent thinks.
const FIRST_MESSAGE: Duration = Duration::from_secs(30);
/// The time limit of an idle connection: none, in effect.
const NO_LIMIT: Duration = Duration::from_hours(24 * 365);
/// The time between two log lines about refused connections.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The connections of one MCP socket. Clones share them.
#[derive(Debug, Clone)]
pub struct SocketConnections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: ConnectionLimits,
    register: ConnectionRegister<Client>,
    /// The bytes that each client holds, if it holds any.
    held_bytes: Mutex<HashMap<Client, usize>>,
    refusals: Mutex<Refusals>,
}

/// The refused connections since the last log line.
#[derive(Debug, Default)]
struct Refusals {
    n: u64,
    logged_at: Option<Instant>,
}

/// A connection of the socket. Dropping it frees its place.
#[derive(Debug)]
pub struct SocketConnection {
    shared: Arc<Shared>,
    registered: RegisteredConnection<Client>,
    activity: Mutex<Activity>,
}

#[derive(Debug, Default)]
struct Activity {
    /// The number of requests that are being answered, and of answers that are being sent.
    n_busy: usize,
    /// A first message came.
    has_spoken: bool,
}

/// Keeps a connection from counting as idle.
#[derive(Debug)]
pub(super) struct Busy(Arc<SocketConnection>);

/// Bytes that a client's line, request or answer holds. Dropping it gives them back.
#[derive(Debug)]
pub(super) struct HeldBytes {
    connection: Arc<SocketConnection>,
    n: usize,
}

/// The client's requests hold too many bytes already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the unfinished lines, unanswered requests and unread answers of this client hold more than {limit} bytes together; read the \
     answers and send this again"
)]
pub(super) struct TooManyBytes {
    limit: usize,
}

impl SocketConnections {
    pub fn new(limits: ConnectionLimits) -> Self {
        Self(Arc::new(Shared {
            limits,
            register: ConnectionRegister::default(),
            held_bytes: Mutex::default(),
            refusals: Mutex::default(),
        }))
    }

    /// Registers a connection of `peer`. If the peer's client has reached a limit, its connection
    /// that has been idle longest closes.
    ///
    /// # Errors
    /// No place for the connection.
    pub fn register(&self, peer: &LocalPeer) -> Result<Arc<SocketConnection>, Refused> {
        let client = client_of(peer);
        let state = ConnectionState::default();
        state.waits(FIRST_MESSAGE);
        let Shared { limits, register, refusals, .. } = &*self.0;
        let mut register = register.lock();
        let mut longest_idle = None;
        let find_idle = || {
            longest_idle = register.find_longest_idle(&client);
            longest_idle.is_some()
        };
        match limits.admit(&client, occupancy(&register, &client), find_idle) {
            Admission::Granted => {}
            Admission::InsteadOfIdle => {
                // Its place is free at once. Its descriptor is free soon after.
                register.displace(&client, &longest_idle.expect("it was found just now"));
            }
            Admission::Refused(refused) => {
                drop(register);
                lock(refusals).note(&client, refused);
                return Err(refused);
            }
        }
        let registered = register.register(client, state);
        let shared = Arc::clone(&self.0);
        Ok(Arc::new(SocketConnection { shared, registered, activity: Mutex::default() }))
    }
}

/// Returns the client whose connections and calls count together with those of `peer`.
pub(super) fn client_of(peer: &LocalPeer) -> Client {
    match &peer.kind {
        PeerKind::Operator => Client::Operators,
        PeerKind::Agent { launch: Some(launch) } => Client::Launch(launch.clone()),
        PeerKind::Agent { launch: None } | PeerKind::Unauthenticated => {
            peer.lineage.outermost_shim.map_or(Client::User(peer.uid), Client::Shim)
        }
    }
}

fn occupancy(register: &LockedRegister<'_, Client>, client: &Client) -> Occupancy {
    let in_all = register.n_in_all();
    let of_agents = in_all - register.n_of(&Client::Operators);
    Occupancy { in_all, of_agents, of_client: register.n_of(client) }
}

impl Shared {
    /// Changes the number of bytes that a client holds.
    fn change_held<T>(&self, client: &Client, change: impl FnOnce(&mut usize) -> T) -> T {
        let mut held_bytes = lock(&self.held_bytes);
        let n_bytes = held_bytes.entry(client.clone()).or_default();
        let changed = change(n_bytes);
        if *n_bytes == 0 {
            held_bytes.remove(client);
        }
        changed
    }
}

impl Refusals {
    fn note(&mut self, client: &Client, refused: Refused) {
        self.n += 1;
        let now = clock::now();
        if self.logged_at.is_some_and(|logged_at| now < logged_at + LOG_INTERVAL) {
            return;
        }
        let reason = match refused {
            Refused::ClientIsFull { .. } => "client_is_full",
            Refused::AllIsFull { .. } => "all_is_full",
            Refused::TooFast => "too_fast",
        };
        tracing::info!(
            ?client,
            reason,
            n_refused = self.n,
            "connections on the MCP socket refused"
        );
        *self = Self { n: 0, logged_at: Some(now) };
    }
}

impl SocketConnection {
    pub(super) fn connection_state(&self) -> &Arc<ConnectionState> {
        self.registered.state()
    }

    /// Notes that a message came: from now on, silence has no time limit.
    pub(super) fn notice_message(&self) {
        self.activity().has_spoken = true;
    }

    /// Marks the connection as busy until the result is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        let mut activity = self.activity();
        activity.n_busy += 1;
        self.connection_state().works();
        drop(activity);
        Busy(Arc::clone(self))
    }

    fn activity(&self) -> MutexGuard<'_, Activity> {
        lock(&self.activity)
    }

    /// Starts the count of the next line, which holds no bytes yet.
    pub(super) fn holds_nothing(self: &Arc<Self>) -> HeldBytes {
        HeldBytes { connection: Arc::clone(self), n: 0 }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut activity = self.0.activity();
        activity.n_busy -= 1;
        if activity.n_busy == 0 {
            self.0.connection_state().waits(if activity.has_spoken {
                NO_LIMIT
            } else {
                FIRST_MESSAGE
            });
        }
    }
}

impl HeldBytes {
    /// Holds `n` bytes from now on, if the client may hold that many.
    pub(super) fn grow_to(&mut self, n: usize) -> Result<(), TooManyBytes> {
        let more = n.saturating_sub(self.n);
        let client = self.connection.registered.client();
        let limit = self.connection.shared.limits.bytes_of(client);
        self.connection.shared.change_held(client, |n_bytes| {
            if *n_bytes + more > limit {
                return Err(TooManyBytes { limit });
            }
            *n_bytes += more;
            Ok(())
        })?;
        self.n += more;
        Ok(())
    }

    /// Holds `n` more bytes from now on, even if they are too many. The client's next requests are
    /// refused then.
    pub(super) fn add(&mut self, n: usize) {
        let client = self.connection.registered.client();
        self.connection.shared.change_held(client, |n_bytes| *n_bytes += n);
        self.n += n;
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        if self.n > 0 {
            let client = self.connection.registered.client();
            self.connection
                .shared
                .change_held(client, |n_bytes| *n_bytes = n_bytes.saturating_sub(self.n));
        }
    }
}

#[cfg(test)]
mod tests {
    use runtime::peer::Lineage;

    use super::*;

    #[test]
    fn bytes_count_for_all_connections_of_a_client_until_they_are_given_back() {
        let connections = SocketConnections::new(ConnectionLimits::of(100));
        let kind = PeerKind::Agent { launch: None };
        let peer = LocalPeer { kind, pid: 1, uid: 7, lineage: Lineage::default() };
        let first = connections.register(&peer).unwrap();
        let second = connections.register(&peer).unwrap();
        let limit = 4 * 1024 * 1024;
        let (mut line, mut other) = (first.holds_nothing(), second.holds_nothing());
        line.grow_to(limit - 10).unwrap();
        assert_eq!(other.grow_to(11), Err(TooManyBytes { limit }));
        other.grow_to(10).unwrap();
        other.add(100);
        assert_eq!(line.grow_to(limit), Err(TooManyBytes { limit }));
        drop(line);
        other.grow_to(limit).unwrap();
        drop(other);
        assert!(lock(&connections.0.held_bytes).is_empty(), "no client stays behind");
    }
}
