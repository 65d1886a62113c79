//! The present state for all readers: the launches of the store, and the last report of each
//! coordinator about its processes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use domain::account::Parking;
use domain::id::LaunchId;
use domain::store_state::{Access, StoreFailure, StoreState};
use domain::totals::Totals;
use domain::workspace::MergeStep;
use domain::{
    Account, ForgeItem, Launch, ProjectId, ShortId, StartHistory, Task, TaskId, TaskStatus,
    Timestamp,
};
use runtime::clock;
use store::rows::{
    accounts, agents, forge_items, launches, pauses, projects, start_histories, tasks,
};
use store::{LaunchFilter, Read, StoreError};

use super::workspaces::list_unmerged;
use super::{CoordinatorView, ForgeStatus, Service, ServiceError};

/// The answer of `status`.
#[derive(Debug, Clone)]
pub struct StatusView {
    pub at: Timestamp,
    /// The state of the store.
    pub store: StoreState,
    /// The store has answered. Otherwise, the fields that come from its rows are empty.
    pub has_rows: bool,
    pub paused_since: Option<Timestamp>,
    pub coordinators: Vec<CoordinatorView>,
    /// The time of the last request of a coordinator that does not report its status.
    pub unlisted_coordinator_at: Option<Timestamp>,
    pub open: Vec<Launch>,
    /// The last ended launches, the newest first.
    pub ended: Vec<Launch>,
    /// The short ids of the tasks of these launches.
    pub short_ids: BTreeMap<TaskId, ShortId>,
    pub held: Vec<StartHistory>,
    /// Accounts whose agents are not started.
    pub parked: Vec<Account>,
    pub parking: Parking,
    /// The pause file, if it exists.
    pub pause_file: Option<String>,
    pub forges: Vec<ForgeStatus>,
    /// The items with pending work.
    pub forge_items: Vec<ForgeItem>,
    /// Tasks that wait for a cancelled task, each with one that it waits for. A person has to
    /// decide about them.
    pub stuck: Vec<(Task, Task)>,
    /// The number of results of finished tasks that wait for a person, by project.
    pub to_merge: BTreeMap<ProjectId, u64>,
    /// Open launches whose coordinator is absent.
    pub abandoned: BTreeSet<LaunchId>,
    pub totals: Totals,
}

/// The server answers, and so does its store.
#[derive(Debug, Clone)]
pub struct Health {
    pub timestamp: Timestamp,
    pub n_agents: u64,
    pub n_projects: u64,
}

/// The part of the answer that comes from the store.
#[derive(Default)]
struct Rows {
    open: Vec<Launch>,
    ended: Vec<Launch>,
    short_ids: BTreeMap<TaskId, ShortId>,
    paused_since: Option<Timestamp>,
    pause_file: Option<String>,
    held: Vec<StartHistory>,
    parked: Vec<Account>,
    forge_items: Vec<ForgeItem>,
    stuck: Vec<(Task, Task)>,
    to_merge: BTreeMap<ProjectId, u64>,
}

/// The time that a question about the state waits for the store. A database that was stopped by a
/// signal never answers.
const LONGEST_READ: Duration = Duration::from_secs(5);
/// The problem of a read that has waited so long, if the store has noticed none.
const NO_ANSWER: &str = "a read has no answer yet";
/// The number of ended launches that `status` shows.
const N_ENDED: usize = 20;

impl Service {
    /// Checks that the store answers, and counts. Waits for a store that is back soon.
    ///
    /// # Errors
    /// [`ServiceError::Store`], after at most five seconds.
    pub async fn health(&self) -> Result<Health, ServiceError> {
        let count = self.core.read(|tx| Ok((agents::count(tx)?, projects::count(tx)?)));
        let (n_agents, n_projects) = self.soon(count).await?;
        Ok(Health { timestamp: self.core.now(), n_agents, n_projects })
    }

    /// Checks that the store answers at this moment.
    ///
    /// # Errors
    /// The errors of [`Service::health`].
    pub async fn check_store(&self) -> Result<(), ServiceError> {
        self.soon(self.core.read_now(|tx| Ok(agents::count(tx)?))).await.map(drop)
    }

    /// Returns the number of agents. Waits for the store as other reads do.
    pub async fn count_agents(&self) -> Result<u64, ServiceError> {
        self.core.read(|tx| Ok(agents::count(tx)?)).await
    }

    /// Waits at most [`LONGEST_READ`] for the answer to a read.
    async fn soon<T>(
        &self,
        read: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<T, ServiceError> {
        let read = tokio::time::timeout(LONGEST_READ, read).await;
        read.unwrap_or_else(|_| {
            let failure = self.core.store_state().failure;
            let source = failure.map_or_else(|| NO_ANSWER.to_owned(), |failure| failure.error);
            Err(StoreError::Unavailable { action: "read", source: source.into() }.into())
        })
    }

    /// Returns the present state. If the store does not answer, it has only what coordinators
    /// report.
    pub async fn status(&self) -> Result<StatusView, ServiceError> {
        let recent = LaunchFilter { only_ended: true, limit: N_ENDED, ..LaunchFilter::default() };
        let now = self.core.now();
        let asked_at = clock::now();
        let read = self.core.read_now(move |tx| {
            let open = launches::list_open(tx)?;
            let ended = launches::list(tx, &recent)?;
            let of_launches = open.iter().chain(&ended).filter_map(|launch| launch.task.clone());
            let forge_items = forge_items::list_open(tx)?;
            let of_items = forge_items.iter().map(|item| item.task.clone());
            let mut to_merge = BTreeMap::new();
            for result in list_unmerged(tx, None)? {
                if result.step == MergeStep::Compare {
                    continue;
                }
                *to_merge.entry(result.task.project).or_default() += 1;
            }
            Ok(Rows {
                to_merge,
                short_ids: tasks::short_ids(tx, of_launches.chain(of_items))?,
                open,
                ended,
                paused_since: pauses::since(tx)?,
                pause_file: pauses::file(tx)?,
                held: start_histories::list_held(tx)?,
                parked: accounts::list_parked(tx)?,
                forge_items,
                stuck: list_stuck(tx)?,
            })
        });
        let read = self.soon(read).await;
        let mut store = self.core.store_state();
        // An operator asks when the store is away, and learns that.
        let (has_rows, rows) = match read {
            Ok(rows) => (true, rows),
            Err(ServiceError::Store(StoreError::Unavailable { source, .. })) => {
                store.failure.get_or_insert_with(|| StoreFailure {
                    access: Access::Read,
                    lasts: clock::now() - asked_at,
                    error: source.to_string(),
                });
                (false, Rows::default())
            }
            Err(error) => return Err(error),
        };
        let Rows { open, ended, short_ids, paused_since, held, .. } = rows;
        let Rows { pause_file, parked, forge_items, stuck, to_merge, .. } = rows;
        let abandoned = open.iter().filter(|launch| self.board.is_abandoned(launch, now));
        Ok(StatusView {
            abandoned: abandoned.map(|launch| launch.id.clone()).collect(),
            totals: self.launches.totals(),
            at: now,
            store,
            has_rows,
            paused_since,
            coordinators: self.board.all(now),
            unlisted_coordinator_at: self.board.unlisted_at(),
            open: self.launches.with_newest(open),
            ended,
            short_ids,
            held,
            parked,
            parking: self.core.settings().parking,
            pause_file: self.core.pause_file().or(pause_file),
            forges: self.forges.all(),
            forge_items,
            stuck,
            to_merge,
        })
    }
}

/// Returns the tasks that are to begin after a task that is cancelled, each with such a task.
pub(super) fn list_stuck(tx: &mut Read<'_>) -> Result<Vec<(Task, Task)>, StoreError> {
    let wanted = tasks::list_wanted(tx, None)?;
    let dependencies = wanted.iter().flat_map(|task| task.dependencies.iter().cloned());
    let dependencies = tasks::list_of_ids(tx, dependencies)?;
    let is_cancelled = |other: &&Task| other.status == TaskStatus::Cancelled;
    let stuck = wanted.into_iter().filter_map(|task| {
        let mut others = task.dependencies.iter().filter_map(|id| dependencies.get(id));
        let other = others.find(is_cancelled)?.clone();
        Some((task, other))
    });
    Ok(stuck.collect())
}
