//! Keeps the register of the MCP socket's connections: which client each belongs to, which of them
//! are idle, and how many bytes their requests hold. `domain::admission` decides; this carries the
//! decisions out.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use domain::admission::{Admission, Client, ConnectionLimits, Occupancy, Refused};
use machine::locks::lock;
use runtime::clock;
use runtime::connections::ConnectionState;
use runtime::peer::{LocalPeer, PeerKind};

/// The time for the first message of a new connection. Afterwards it may be silent for hours,
/// because an agent thinks.
const FIRST_MESSAGE: Duration = Duration::from_secs(30);
/// The time limit of an idle connection: none, in effect.
const NO_LIMIT: Duration = Duration::from_hours(24 * 365);
/// The time between two log lines about refused connections.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The connections of one MCP socket. Clones share the register.
#[derive(Debug, Clone)]
pub struct ConnectionRegister(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: ConnectionLimits,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    n_registered: u64,
    clients: HashMap<Client, ClientEntry>,
    refusals: Refusals,
}

#[derive(Debug, Default)]
struct ClientEntry {
    connections: BTreeMap<u64, Arc<ConnectionState>>,
    n_bytes: usize,
}

/// The refused connections since the last log line.
#[derive(Debug, Default)]
struct Refusals {
    n: u64,
    logged_at: Option<Instant>,
}

/// A registered connection. Dropping it frees its place.
#[derive(Debug)]
pub struct Registered {
    shared: Arc<Shared>,
    client: Client,
    number: u64,
    connection_state: Arc<ConnectionState>,
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
pub(super) struct Busy(Arc<Registered>);

/// Bytes that a client's line, request or answer holds. Dropping it gives them back.
#[derive(Debug)]
pub(super) struct HeldBytes {
    connection: Arc<Registered>,
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

impl ConnectionRegister {
    pub fn new(limits: ConnectionLimits) -> Self {
        Self(Arc::new(Shared { limits, entries: Mutex::default() }))
    }

    /// Registers a connection of `peer`. If the peer's client has reached a limit, its connection
    /// that has been idle longest closes.
    ///
    /// # Errors
    /// No place for the connection.
    pub fn register(&self, peer: &LocalPeer) -> Result<Arc<Registered>, Refused> {
        let client = client_of(peer);
        let connection_state = Arc::new(ConnectionState::default());
        connection_state.waits(FIRST_MESSAGE);
        let mut entries = self.0.entries();
        let mut longest_idle = None;
        let find_idle = || {
            longest_idle = entries.longest_idle(&client);
            longest_idle.is_some()
        };
        match self.0.limits.admit(&client, entries.occupancy(&client), find_idle) {
            Admission::Granted => {}
            Admission::InsteadOfIdle => {
                let (number, idle) = longest_idle.expect("it was found just now");
                idle.gives_way().cancel();
                // Its place is free at once. Its descriptor is free soon after.
                entries.remove(&client, number);
            }
            Admission::Refused(refused) => {
                entries.refusals.note(&client, refused);
                return Err(refused);
            }
        }
        entries.n_registered += 1;
        let number = entries.n_registered;
        entries
            .clients
            .entry(client.clone())
            .or_default()
            .connections
            .insert(number, Arc::clone(&connection_state));
        drop(entries);
        Ok(Arc::new(Registered {
            shared: Arc::clone(&self.0),
            client,
            number,
            connection_state,
            activity: Mutex::default(),
        }))
    }
}

fn client_of(peer: &LocalPeer) -> Client {
    match &peer.kind {
        PeerKind::Operator => Client::Operators,
        PeerKind::Agent { launch: Some(launch) } => Client::Launch(launch.clone()),
        PeerKind::Agent { launch: None } | PeerKind::Unauthenticated => {
            peer.lineage.outermost_shim.map_or(Client::User(peer.uid), Client::Shim)
        }
    }
}

impl Shared {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        lock(&self.entries)
    }
}

impl Entries {
    fn occupancy(&self, client: &Client) -> Occupancy {
        let of =
            |client: &Client| self.clients.get(client).map_or(0, |entry| entry.connections.len());
        let in_all = self.clients.values().map(|entry| entry.connections.len()).sum();
        Occupancy { in_all, of_agents: in_all - of(&Client::Operators), of_client: of(client) }
    }

    fn longest_idle(&self, client: &Client) -> Option<(u64, Arc<ConnectionState>)> {
        let connections = self.clients.get(client)?.connections.iter();
        let idle = connections.filter_map(|(number, connection_state)| {
            Some((connection_state.waits_since()?, *number, connection_state))
        });
        let (_, number, connection_state) =
            idle.min_by_key(|(since, number, _)| (*since, *number))?;
        Some((number, Arc::clone(connection_state)))
    }

    /// Does nothing if the connection was removed before.
    fn remove(&mut self, client: &Client, number: u64) {
        if let Some(entry) = self.clients.get_mut(client) {
            entry.connections.remove(&number);
        }
        self.forget_if_unused(client);
    }

    fn forget_if_unused(&mut self, client: &Client) {
        if self
            .clients
            .get(client)
            .is_some_and(|entry| entry.connections.is_empty() && entry.n_bytes == 0)
        {
            self.clients.remove(client);
        }
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

impl Registered {
    pub(super) fn connection_state(&self) -> &Arc<ConnectionState> {
        &self.connection_state
    }

    /// Notes that a message came: from now on, silence has no time limit.
    pub(super) fn notice_message(&self) {
        self.activity().has_spoken = true;
    }

    /// Marks the connection as busy until the result is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        let mut activity = self.activity();
        activity.n_busy += 1;
        self.connection_state.works();
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

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.entries().remove(&self.client, self.number);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut activity = self.0.activity();
        activity.n_busy -= 1;
        if activity.n_busy == 0 {
            self.0.connection_state.waits(if activity.has_spoken {
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
        let Registered { shared, client, .. } = &*self.connection;
        let more = n.saturating_sub(self.n);
        let mut entries = shared.entries();
        let entry = entries.clients.entry(client.clone()).or_default();
        let limit = shared.limits.bytes_of(client);
        if entry.n_bytes + more > limit {
            return Err(TooManyBytes { limit });
        }
        entry.n_bytes += more;
        self.n += more;
        Ok(())
    }

    /// Holds `n` more bytes from now on, even if they are too many. The client's next requests are
    /// refused then.
    pub(super) fn add(&mut self, n: usize) {
        let Registered { shared, client, .. } = &*self.connection;
        shared.entries().clients.entry(client.clone()).or_default().n_bytes += n;
        self.n += n;
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        if self.n == 0 {
            return;
        }
        let Registered { shared, client, .. } = &*self.connection;
        let mut entries = shared.entries();
        if let Some(entry) = entries.clients.get_mut(client) {
            entry.n_bytes = entry.n_bytes.saturating_sub(self.n);
        }
        entries.forget_if_unused(client);
    }
}
