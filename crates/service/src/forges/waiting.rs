//! The items of forges that wait for an agent and a slot, as the last polls of the forges showed
//! them.
//!
//! They are in memory only. Nothing is stored for a waiting item, here or at its forge, and the
//! next poll finds it again. `forge` fills this in, `claims` takes from it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use domain::forge::{Base, ForgeKind, ItemKey, ItemKind, Publication, Publish, queue};
use domain::{AgentId, ProjectId, Timestamp};
use machine::locks::lock;
use runtime::nudge::Nudge;

use super::Forges;

/// A watched repository, among those of all hosts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RepositoryKey {
    pub forge: ForgeKind,
    pub host: String,
    /// Its name in the configuration.
    pub name: String,
}

/// The agents that work on the items of a repository.
#[derive(Debug, Clone)]
pub struct Workers {
    /// The place of its host in the configuration.
    pub host: usize,
    pub project: ProjectId,
    /// The agents of the repository. The next free agent takes the next item.
    pub agents: Vec<AgentId>,
    /// The destination of its results. Unless it is `Nothing`, an item is not taken before its base
    /// commit is known.
    pub publish: Publish,
}

/// An item that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingItem {
    pub key: ItemKey,
    pub title: String,
    /// The address for people.
    pub url: String,
    /// The time of the poll that found it first.
    pub since: Timestamp,
    pub project: ProjectId,
    /// The agents, of which one takes the item.
    pub agents: Vec<AgentId>,
    /// The commit that its work begins at is not there yet.
    pub is_preparing: bool,
    /// The number of open issues that it waits for.
    pub n_blockers: u64,
    /// The addresses of these issues, as far as the forge tells.
    pub blockers: Vec<String>,
}

/// A free item, as a list shows it, or one that will be free when no open issue blocks it.
#[derive(Debug, Clone)]
pub struct FreeItem {
    pub key: ItemKey,
    pub title: String,
    pub url: String,
    /// The number of open issues that block it.
    pub n_blockers: u64,
    /// The addresses of these issues, as far as the forge tells.
    pub blockers: Vec<String>,
}

/// All waiting items.
#[derive(Debug, Default)]
pub(super) struct WaitingItems {
    lines: Mutex<Lines>,
    /// There may be an item that can be claimed now.
    pub(super) nudge: Nudge,
}

#[derive(Debug, Default)]
struct Lines {
    by_repository: BTreeMap<RepositoryKey, Line>,
    /// The turn in which each repository was last served. A new configuration does not change this.
    served: BTreeMap<RepositoryKey, u64>,
    n_turns: u64,
    /// Numbers repositories and items in the order of their arrival.
    n_seen: u64,
}

#[derive(Debug)]
struct Line {
    number: u64,
    workers: Workers,
    items: BTreeMap<(ItemKind, u64), ListedItem>,
    /// The agents that cannot be given items, with the reasons. Each stays here until it claims an
    /// item.
    problems: BTreeMap<AgentId, String>,
}

#[derive(Debug)]
struct ListedItem {
    number: u64,
    since: Timestamp,
    item: FreeItem,
    base: Option<Base>,
}

impl Line {
    fn can_be_taken(&self, seen: &ListedItem) -> bool {
        !seen.is_blocked() && (self.workers.publish == Publish::Nothing || seen.base.is_some())
    }

    /// Returns the items that no open issue blocks.
    fn unblocked(&self) -> impl Iterator<Item = &ListedItem> {
        self.items.values().filter(|seen| !seen.is_blocked())
    }

    fn waiting(&self, seen: &ListedItem) -> WaitingItem {
        let FreeItem { key, title, url, n_blockers, blockers } = seen.item.clone();
        WaitingItem {
            key,
            title,
            url,
            since: seen.since,
            project: self.workers.project.clone(),
            agents: self.workers.agents.clone(),
            is_preparing: !seen.is_blocked() && !self.can_be_taken(seen),
            n_blockers,
            blockers,
        }
    }
}

impl ListedItem {
    const fn is_blocked(&self) -> bool {
        self.item.n_blockers > 0
    }
}

/// A repository that may be served.
#[derive(Debug, Clone)]
pub(super) struct Served {
    pub(super) repository: RepositoryKey,
    pub(super) workers: Workers,
    /// The turn in which it was last served.
    pub(super) served: u64,
}

impl WaitingItems {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        lock(&self.lines)
    }

    /// Forgets all repositories and their items. Their turns stay.
    pub(super) fn clear(&self) {
        self.lines().by_repository.clear();
    }

    /// Returns the repositories with waiting items, in the order of the configuration.
    pub(super) fn to_serve(&self) -> Vec<Served> {
        let lines = self.lines();
        let mut all: Vec<(u64, Served)> = lines
            .by_repository
            .iter()
            .filter(|(_, line)| line.items.values().any(|seen| line.can_be_taken(seen)))
            .map(|(repository, line)| {
                let served = lines.served.get(repository).copied().unwrap_or(0);
                let workers = line.workers.clone();
                (line.number, Served { repository: repository.clone(), workers, served })
            })
            .collect();
        all.sort_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, served)| served).collect()
    }

    /// Returns the item of a repository that was seen first, of those that can be taken.
    pub(super) fn first(
        &self,
        repository: &RepositoryKey,
    ) -> Option<(FreeItem, Option<Publication>)> {
        let lines = self.lines();
        let line = lines.by_repository.get(repository)?;
        let seen = line.items.values().filter(|seen| line.can_be_taken(seen));
        let ListedItem { item, base, .. } = seen.min_by_key(|seen| seen.number)?;
        let base = base.clone().filter(|_| line.workers.publish != Publish::Nothing);
        let publication = base.map(|base| Publication::new(line.workers.publish, base));
        Some((item.clone(), publication))
    }

    /// Removes an item that does not wait any more. If an agent claimed it, its repository has had
    /// its turn, and that turn is returned.
    pub(super) fn remove(
        &self,
        repository: &RepositoryKey,
        item: &ItemKey,
        claimed_by: Option<&AgentId>,
    ) -> u64 {
        let mut lines = self.lines();
        if let Some(line) = lines.by_repository.get_mut(repository) {
            line.items.remove(&(item.kind, item.number));
            if let Some(agent) = claimed_by {
                line.problems.remove(agent);
            }
        }
        if claimed_by.is_some() {
            lines.n_turns += 1;
            let turn = lines.n_turns;
            lines.served.insert(repository.clone(), turn);
        }
        lines.served.get(repository).copied().unwrap_or(0)
    }

    /// Notes the reason why an agent cannot be given items of a repository. Returns whether the
    /// reason is new.
    pub(super) fn refuse(
        &self,
        repository: &RepositoryKey,
        agent: &AgentId,
        problem: &str,
    ) -> bool {
        let mut lines = self.lines();
        let Some(line) = lines.by_repository.get_mut(repository) else {
            return false;
        };
        let before = line.problems.insert(agent.clone(), problem.to_owned());
        before.as_deref() != Some(problem)
    }

    /// Returns the number of waiting items of a repository, and the problem that keeps agents from
    /// getting them.
    pub(super) fn state_of(&self, repository: &RepositoryKey) -> (usize, Option<String>) {
        let lines = self.lines();
        let Some(line) = lines.by_repository.get(repository) else {
            return (0, None);
        };
        let problems: Vec<&str> = line.problems.values().map(String::as_str).collect();
        let n_waiting = line.unblocked().count();
        let is_shown = n_waiting > 0 && !problems.is_empty();
        (n_waiting, is_shown.then(|| problems.join("; ")))
    }

    /// Returns all items, in the order of their turns. Those that open issues block come last.
    fn all(&self) -> Vec<WaitingItem> {
        let lines = self.lines();
        let mut all: Vec<(&RepositoryKey, &Line)> = lines.by_repository.iter().collect();
        all.sort_by_key(|(_, line)| line.number);
        let turns: Vec<(u64, usize)> = all
            .iter()
            .map(|(key, line)| {
                (lines.served.get(key).copied().unwrap_or(0), line.unblocked().count())
            })
            .collect();
        let items: Vec<Vec<&ListedItem>> = all
            .iter()
            .map(|(_, line)| {
                let mut items: Vec<&ListedItem> = line.unblocked().collect();
                items.sort_by_key(|seen| seen.number);
                items
            })
            .collect();
        let in_turn = queue::order(&turns).into_iter();
        let in_turn = in_turn.map(|(line, item)| all[line].1.waiting(items[line][item]));
        let blocked = all.iter().flat_map(|(_, line)| {
            let blocked = line.items.values().filter(|seen| seen.is_blocked());
            blocked.map(move |seen| line.waiting(seen))
        });
        in_turn.chain(blocked).collect()
    }
}

impl Forges {
    /// Watches a repository from now on: its free items wait for one of its agents.
    pub fn watch(&self, repository: RepositoryKey, workers: Workers) {
        let mut lines = self.board.waiting.lines();
        lines.n_seen += 1;
        let number = lines.n_seen;
        let items = BTreeMap::new();
        let problems = BTreeMap::new();
        lines.by_repository.insert(repository, Line { number, workers, items, problems });
    }

    /// Notes a free item, or one that open issues block. One that waits already keeps its place.
    pub fn add_waiting(&self, repository: &RepositoryKey, item: FreeItem) {
        let now = self.core.now();
        let mut lines = self.board.waiting.lines();
        lines.n_seen += 1;
        let number = lines.n_seen;
        if let Some(line) = lines.by_repository.get_mut(repository) {
            let place = (item.key.kind, item.key.number);
            let before = line.items.get(&place);
            let (number, since) =
                before.map_or((number, now), |before| (before.number, before.since));
            let base = before.and_then(|before| before.base.clone());
            line.items.insert(place, ListedItem { number, since, item, base });
        }
    }

    /// Returns the waiting items of a repository that no open issue blocks.
    pub fn waiting_in(&self, repository: &RepositoryKey) -> Vec<(ItemKind, u64)> {
        let lines = self.board.waiting.lines();
        let line = lines.by_repository.get(repository);
        let place = |seen: &ListedItem| (seen.item.key.kind, seen.item.key.number);
        line.map(|line| line.unblocked().map(place).collect()).unwrap_or_default()
    }

    /// Notes the commit that the work on a waiting item begins at. The keep repository has it.
    pub fn note_base(&self, repository: &RepositoryKey, item: (ItemKind, u64), base: Base) {
        let mut lines = self.board.waiting.lines();
        let line = lines.by_repository.get_mut(repository);
        if let Some(seen) = line.and_then(|line| line.items.get_mut(&item)) {
            seen.base = Some(base);
        }
    }

    /// Removes the waiting items of a repository that are not free any more.
    pub fn keep_waiting(
        &self,
        repository: &RepositoryKey,
        is_meant: impl Fn(ItemKind, u64) -> bool,
    ) {
        if let Some(line) = self.board.waiting.lines().by_repository.get_mut(repository) {
            line.items.retain(|(kind, number), _| is_meant(*kind, *number));
        }
    }

    /// Claims items that can be claimed now, after a poll of a repository.
    pub fn serve_waiting(&self) {
        self.board.waiting.nudge.wake();
    }

    /// Returns the waiting items, in the order of their turns.
    pub fn waiting_items(&self) -> Vec<WaitingItem> {
        self.board.waiting.all()
    }
}
