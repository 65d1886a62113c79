//! The state of the forges, as their tasks reported it last. It is in memory, and is reported again
//! after the next poll.

mod claims;
pub(super) mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use domain::forge::ForgeKind;
use domain::{AgentId, ProjectId, Timestamp};
use machine::locks::lock;
use runtime::nudge::Wakeups;

use super::Shared;
use super::coordinators::board::CoordinatorBoard;
use super::core::Core;
use super::waiting::Waiting;
use waiting::{RepositoryKey, WaitingItems};

/// The state of a host at the last poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeStatus {
    pub forge: ForgeKind,
    pub host: String,
    pub health: ForgeHealth,
    /// The time since which the health is that.
    pub health_since: Timestamp,
    /// The last error, also if it is over.
    pub last_error: Option<String>,
    /// The server writes nothing to this host, and takes no new items from it.
    pub is_dry_run: bool,
    /// The time until which labels and comments wait for the budget of the hour. `None` also if
    /// only the end of an item at work makes room.
    pub writes_held_until: Option<Timestamp>,
    /// True if they wait because the budget is kept for the items at work, not because it is used
    /// up.
    pub are_writes_reserved: bool,
    pub repositories: Vec<RepositoryStatus>,
}

/// The state of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgeHealth {
    /// The host was not asked yet.
    Unknown,
    Ok,
    /// The host does not accept the token.
    Unauthorized,
    /// The host asked for a pause until this time.
    Limited(Timestamp),
    /// The host does not answer, or its answer is not understood.
    Unavailable,
}

/// The state of a repository at the last poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryStatus {
    pub name: String,
    pub project: ProjectId,
    /// The agents of the repository. The next free agent takes the next item.
    pub agents: Vec<AgentId>,
    /// The time of the last poll that was answered.
    pub seen_at: Option<Timestamp>,
    /// The number of open items that the bot is assigned to.
    pub n_assigned: usize,
    /// The number of these items on which another instance works.
    pub n_elsewhere: usize,
    /// The number of these items that wait for an agent and a slot. [`Forges::all`] fills it in.
    pub n_waiting: usize,
    /// The reason why its items are not taken, or why it is not polled.
    pub problem: Option<String>,
}

#[derive(Debug, Default)]
struct ForgeBoard {
    hosts: Mutex<BTreeMap<usize, ForgeStatus>>,
    waiting: WaitingItems,
}

impl ForgeBoard {
    fn hosts(&self) -> MutexGuard<'_, BTreeMap<usize, ForgeStatus>> {
        lock(&self.hosts)
    }

    /// Returns whether the host with this place in the configuration takes claims now.
    fn takes_claims(&self, place: usize) -> bool {
        self.hosts().get(&place).is_some_and(ForgeStatus::takes_claims)
    }

    /// Returns the hosts that take no claims now with one of their tokens.
    fn hosts_in_trouble(&self) -> BTreeSet<(ForgeKind, String)> {
        self.hosts()
            .values()
            .filter(|status| !status.takes_claims())
            .map(|status| (status.forge, status.host.clone()))
            .collect()
    }
}

impl ForgeStatus {
    /// Returns whether a claim that is made now can be written at once.
    fn takes_claims(&self) -> bool {
        self.health == ForgeHealth::Ok
            && self.writes_held_until.is_none()
            && !self.are_writes_reserved
    }
}

impl ForgeHealth {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Ok => "ok",
            Self::Unauthorized => "unauthorized",
            Self::Limited(_) => "limited",
            Self::Unavailable => "unavailable",
        }
    }
}

/// The forges, and the items there that wait for an agent.
pub struct Forges {
    core: Arc<Core>,
    waiting: Waiting,
    board: ForgeBoard,
    coordinators: Arc<CoordinatorBoard>,
}

impl Forges {
    pub(super) fn new(shared: Shared) -> Self {
        let Shared { core, waiting, coordinators, .. } = shared;
        Self { core, waiting, board: ForgeBoard::default(), coordinators }
    }

    /// Listens for requests to ask the forges at once, also those that failed.
    pub fn looks(&self) -> Wakeups {
        self.waiting.forge_looks.listen()
    }

    /// Makes the server ask the forges at once, as far as their limits allow it.
    pub fn look(&self) {
        self.waiting.forge_looks.wake();
    }

    /// Keeps the newest report about a host, the `place`th of the configuration.
    pub fn report(&self, place: usize, status: &ForgeStatus) {
        let before = self.board.hosts().insert(place, status.clone());
        if before.is_none_or(|before| {
            (before.health, before.writes_held_until, before.are_writes_reserved)
                != (status.health, status.writes_held_until, status.are_writes_reserved)
        }) {
            self.waiting.reports.wake();
        }
    }

    /// Forgets all hosts, because the configuration has changed.
    pub fn forget_all(&self) {
        self.board.hosts().clear();
        self.board.waiting.clear();
    }

    /// Returns the hosts, in the order of the configuration.
    pub fn all(&self) -> Vec<ForgeStatus> {
        let mut hosts: Vec<ForgeStatus> = self.board.hosts().values().cloned().collect();
        for host in &mut hosts {
            let forge = host.forge;
            let name = &host.host;
            for repository in &mut host.repositories {
                let key =
                    RepositoryKey { forge, host: name.clone(), name: repository.name.clone() };
                let (n_waiting, problem) = self.board.waiting.state_of(&key);
                repository.n_waiting = n_waiting;
                repository.problem = repository.problem.take().or(problem);
            }
        }
        hosts
    }
}
