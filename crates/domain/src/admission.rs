//! Decides whether the MCP socket takes another connection, and whether a client's requests may
//! hold more memory.
//!
//! Connections are counted per client: a launch, a shim whose launch is unknown, the other agents
//! of a user, or the operators. A client that reaches a limit displaces only its own idle
//! connections. No client displaces a connection of another client.

use super::LaunchId;
use super::peer::ProcessId;

/// The connections that count together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Client {
    /// The daemon's own user and root, outside every agent. Coordinators belong to them.
    Operators,
    /// All processes of one launch.
    Launch(LaunchId),
    /// All processes below this shim, whose launch is unknown.
    Shim(ProcessId),
    /// Agents of this user id whose launch and shim are unknown.
    User(u32),
}

/// The limits for all clients together and for each client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections of all clients together.
    pub in_all: usize,
    /// Connections of all agents together; fewer than `in_all`, so that operators find a place.
    pub of_agents: usize,
    /// Connections of all operators together; fewer than `in_all`, so that agents find a place.
    pub of_operators: usize,
    /// Connections of one launch, or of the agents of one user.
    pub per_agent: usize,
    /// Accepted connections of one process that are not known to belong to a client yet.
    pub unknown_per_process: usize,
    /// Bytes that the unfinished lines, unanswered requests and unread answers of one launch hold,
    /// or those of the agents of one user.
    pub bytes_per_agent: usize,
    /// Bytes that the requests of all operators hold together. A coordinator reports the output of
    /// many launches at once.
    pub bytes_of_operators: usize,
}

/// The numbers of connections that exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupancy {
    pub in_all: usize,
    /// Connections of all clients that are not operators.
    pub of_agents: usize,
    /// Connections of the client that asks for another.
    pub of_client: usize,
}

/// The decision about a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    Granted,
    /// The client's connection that has waited longest must close for it.
    InsteadOfIdle,
    Refused(Refused),
}

/// The reason why a new connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error(
        "this client has {n} open connections, which is the limit, and each of them has a call that is not answered yet; wait for \
         an answer and connect again"
    )]
    ClientIsFull { n: usize },
    #[error("the server has {n} open connections, which is the limit; connect again later")]
    AllIsFull { n: usize },
    #[error(
        "this process connects faster than the server can take its connections; connect again later"
    )]
    TooFast,
}

impl ConnectionLimits {
    /// Returns the limits for `in_all` connections of all clients together.
    pub fn of(in_all: usize) -> Self {
        let in_all = in_all.max(2);
        let of_agents = in_all - (in_all / 4).clamp(1, 64);
        Self {
            in_all,
            of_agents,
            of_operators: in_all - (in_all / 4).max(1),
            // A quarter, so that one launch leaves places for others when descriptors are few.
            per_agent: of_agents.div_ceil(4).min(64),
            unknown_per_process: in_all.div_ceil(2),
            bytes_per_agent: 4 * 1024 * 1024,
            bytes_of_operators: 64 * 1024 * 1024,
        }
    }

    /// Decides whether `client` gets another connection. `has_idle` says whether one of its
    /// connections is idle.
    pub fn admit(
        &self,
        client: &Client,
        now: Occupancy,
        has_idle: impl FnOnce() -> bool,
    ) -> Admission {
        let (is_full, others_are_full) = match client {
            Client::Operators => (now.of_client >= self.of_operators, false),
            Client::Launch(_) | Client::Shim(_) | Client::User(_) => {
                (now.of_client >= self.per_agent, now.of_agents >= self.of_agents)
            }
        };
        match (is_full, others_are_full || now.in_all >= self.in_all) {
            (false, false) => Admission::Granted,
            _ if has_idle() => Admission::InsteadOfIdle,
            (true, _) => Admission::Refused(Refused::ClientIsFull { n: now.of_client }),
            (false, true) => Admission::Refused(Refused::AllIsFull { n: now.in_all }),
        }
    }

    /// Returns the number of bytes that the requests of `client` may hold together.
    pub const fn bytes_of(&self, client: &Client) -> usize {
        match client {
            Client::Operators => self.bytes_of_operators,
            Client::Launch(_) | Client::Shim(_) | Client::User(_) => self.bytes_per_agent,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn client(n: u32) -> Client {
        if n == 0 { Client::Operators } else { Client::User(n) }
    }

    /// The numbers of idle and of busy connections of each client.
    type Connections = BTreeMap<u32, (usize, usize)>;

    fn occupancy(connections: &Connections, of: u32) -> Occupancy {
        let n = |(idle, busy): (usize, usize)| idle + busy;
        Occupancy {
            in_all: connections.values().copied().map(n).sum(),
            of_agents: connections
                .iter()
                .filter(|(id, _)| **id != 0)
                .map(|(_, each)| n(*each))
                .sum(),
            of_client: connections.get(&of).copied().map_or(0, n),
        }
    }

    /// Connects once; returns whether the connection was taken.
    fn connect(
        limits: &ConnectionLimits,
        connections: &mut Connections,
        id: u32,
        is_busy: bool,
    ) -> bool {
        let has_idle = connections.get(&id).is_some_and(|(n_idle, _)| *n_idle > 0);
        let admission = limits.admit(&client(id), occupancy(connections, id), || has_idle);
        if matches!(admission, Admission::Refused(_)) {
            return false;
        }
        let (n_idle, n_busy) = connections.entry(id).or_default();
        if admission == Admission::InsteadOfIdle {
            *n_idle -= 1;
        }
        let n_of_its_kind = if is_busy { n_busy } else { n_idle };
        *n_of_its_kind += 1;
        true
    }

    proptest! {
        #[test]
        fn no_client_takes_more_than_its_part_or_the_connections_of_another(
            in_all in 2_usize..200,
            attempts in proptest::collection::vec((0_u32..6, any::<bool>()), 0..600),
        ) {
            let limits = ConnectionLimits::of(in_all);
            let mut connections = Connections::new();
            for (id, is_busy) in attempts {
                let before = connections.clone();
                connect(&limits, &mut connections, id, is_busy);
                for (other, had) in before.iter().filter(|(other, _)| **other != id) {
                    prop_assert_eq!(connections.get(other), Some(had));
                }
                let now = occupancy(&connections, id);
                prop_assert!(now.in_all <= limits.in_all);
                prop_assert!(now.of_agents <= limits.of_agents);
                let most = if id == 0 { limits.of_operators } else { limits.per_agent };
                prop_assert!(now.of_client <= most);
            }
        }

        #[test]
        fn one_client_leaves_places_for_all_others(in_all in 8_usize..10_000, id in 0_u32..3, is_busy: bool) {
            let limits = ConnectionLimits::of(in_all);
            let mut connections = Connections::new();
            for _ in 0..in_all {
                connect(&limits, &mut connections, id, is_busy);
            }
            for other in (0..3).filter(|other| *other != id) {
                let is_taken = connect(&limits, &mut connections, other, true);
                prop_assert!(is_taken, "client {}", other);
            }
        }
    }

    #[test]
    fn a_full_agent_displaces_its_own_idle_connection_or_is_refused() {
        let limits = ConnectionLimits::of(4096);
        let full = Occupancy { in_all: 64, of_agents: 64, of_client: 64 };
        let admit = |client, has_idle| limits.admit(&client, full, || has_idle);
        assert_eq!(admit(Client::User(1), true), Admission::InsteadOfIdle);
        assert_eq!(
            admit(Client::User(1), false),
            Admission::Refused(Refused::ClientIsFull { n: 64 })
        );
        assert_eq!(admit(Client::Operators, false), Admission::Granted);
    }
}
