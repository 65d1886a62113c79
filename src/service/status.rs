//! What is going on, for everyone who looks: the store's launches beside what each coordinator last said of its processes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::id::{CoordinatorId, LaunchId};
use crate::domain::plan::Deferred;
use crate::domain::{Instance, Launch, PairRecord, Timestamp};
use crate::store::LaunchFilter;

use super::{Service, ServiceError};

/// A coordinator's view of itself, as of its last cycle that changed something.
#[derive(Debug, Clone, PartialEq)]
pub struct CoordinatorStatus {
    pub coordinator: CoordinatorId,
    pub at: Timestamp,
    pub max_concurrent: usize,
    pub instances: Vec<Instance>,
    pub deferred: Vec<Deferred>,
    pub counters: Counters,
}

/// What a coordinator has counted since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    pub cycles: u64,
    pub starts: u64,
    pub adoptions: u64,
    /// Work that no wake-up had announced; it should stay 0.
    pub found_by_poll_only: u64,
}

/// The newest word of each coordinator, and when it last asked for anything. In memory: a coordinator says it again after its
/// next cycle.
#[derive(Debug, Default)]
pub(super) struct CoordinatorBoard(Mutex<BTreeMap<CoordinatorId, OnBoard>>);

#[derive(Debug, Default)]
struct OnBoard {
    status: Option<CoordinatorStatus>,
    heard_at: Option<Timestamp>,
}

impl CoordinatorBoard {
    pub(super) fn put(&self, status: CoordinatorStatus) {
        let id = status.coordinator.clone();
        self.lock().entry(id).or_default().status = Some(status);
    }

    pub(super) fn heard_from(&self, coordinator: &CoordinatorId, at: Timestamp) {
        // Whoever only asks and never says how it stands (a script, a seed's client) is not kept in mind.
        if let Some(known) = self.lock().get_mut(coordinator) {
            known.heard_at = Some(at);
        }
    }

    /// Whether it has said anything since the server started.
    pub(super) fn knows(&self, coordinator: &CoordinatorId) -> bool {
        self.lock().contains_key(coordinator)
    }

    fn all(&self) -> Vec<CoordinatorView> {
        let board = self.lock();
        let all = board.values().filter_map(|known| {
            let status = known.status.clone()?;
            Some(CoordinatorView { heard_at: known.heard_at.unwrap_or(status.at), status })
        });
        all.collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<CoordinatorId, OnBoard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A coordinator as its server sees it.
#[derive(Debug, Clone)]
pub struct CoordinatorView {
    pub status: CoordinatorStatus,
    /// When it last asked for anything.
    pub heard_at: Timestamp,
}

/// Everything `status` shows.
#[derive(Debug, Clone)]
pub struct StatusView {
    pub at: Timestamp,
    pub paused_since: Option<Timestamp>,
    pub coordinators: Vec<CoordinatorView>,
    pub open: Vec<Launch>,
    /// The last ones, the newest first.
    pub ended: Vec<Launch>,
    pub held: Vec<PairRecord>,
}

/// How many ended launches `status` shows.
const N_ENDED: usize = 20;

impl Service {
    pub async fn status(&self) -> Result<StatusView, ServiceError> {
        let recent = LaunchFilter { agent: None, project: None, purpose: None, only_ended: true, limit: N_ENDED };
        Ok(StatusView {
            at: self.now(),
            paused_since: self.store.paused_since().await?,
            coordinators: self.coordinators.all(),
            open: self.store.open_launches().await?,
            ended: self.store.launches(&recent).await?,
            held: self.store.held_pairs().await?,
        })
    }

    /// Launches that fit, the newest first.
    pub async fn launches(&self, filter: &LaunchFilter) -> Result<Vec<Launch>, ServiceError> {
        Ok(self.store.launches(filter).await?)
    }

    /// One launch.
    pub async fn launch(&self, id: &LaunchId) -> Result<Launch, ServiceError> {
        let launch = self.store.launch(id).await?;
        Ok(launch.ok_or_else(|| crate::domain::Refusal::LaunchNotFound { launch: id.clone() })?)
    }
}
