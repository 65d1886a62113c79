//! Takes snapshots of shared directories beside the loop.
//!
//! A snapshot before a start is taken before the claim, like the preparation of a clone, so that it
//! uses up no start deadline. It has a time limit, and one that fails prevents no start.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use domain::plan::shared::{
    FailedSnapshot, SnapshotCause, SnapshotFacts, SnapshotOrder, SnapshotState,
};
use domain::{Instance, InstanceKey, LaunchId, ProjectId};
use machine::locks::lock;
use runtime::clock;
use runtime::telemetry::ErrorChain;
use workspace::{Checkouts, KeepPolicy, Snapped};

/// The longest time that a start waits for its snapshot.
const LONGEST_BEFORE: Duration = Duration::from_secs(20);
/// The longest time for a snapshot after the end of a launch. Nothing but the next snapshot of the
/// project waits for it.
const LONGEST_AFTER: Duration = Duration::from_mins(5);
/// The numbers of snapshots at the same time, before and after launches.
const N_BEFORE: usize = 2;
const N_AFTER: usize = 1;
/// The time for which a snapshot counts as taken before the next start of its key.
const FRESH_FOR: Duration = Duration::from_secs(30);

/// The place where the snapshots of this host are kept, and what they contain.
#[derive(Clone)]
struct Host {
    checkouts: Arc<Checkouts>,
    policy: Arc<KeepPolicy>,
}

/// The snapshots under way, and those that were taken lately. They end when this is dropped.
pub(super) struct SnapshotJobs {
    host: Option<Host>,
    state: Arc<Mutex<State>>,
    ended: Arc<Notify>,
    places_before: Arc<Semaphore>,
    /// A snapshot after a launch may take minutes, and starts do not wait for it.
    places_after: Arc<Semaphore>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct State {
    /// The snapshots before starts; `None` while one is under way.
    before: BTreeMap<InstanceKey, Option<Over>>,
    after: BTreeMap<LaunchId, SnapshotState>,
    /// The last failure of each project without a later success.
    failed: BTreeMap<ProjectId, String>,
}

struct Over {
    at: Instant,
    /// The commit; `None` if the snapshot failed.
    commit: Option<String>,
}

impl SnapshotJobs {
    pub(super) fn new() -> Self {
        Self {
            host: None,
            state: Arc::default(),
            ended: Arc::default(),
            places_before: Arc::new(Semaphore::new(N_BEFORE)),
            places_after: Arc::new(Semaphore::new(N_AFTER)),
            tasks: Mutex::default(),
        }
    }

    /// Takes snapshots from now on, and keeps them in `checkouts`.
    pub(super) fn serve_from(&mut self, checkouts: Arc<Checkouts>, policy: Arc<KeepPolicy>) {
        self.host = Some(Host { checkouts, policy });
    }

    /// Returns when a snapshot has ended. Cancel-safe.
    pub(super) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Returns the snapshots that are known; `None` if this coordinator takes none.
    pub(super) fn facts(&self, instances: &[Instance]) -> Option<SnapshotFacts> {
        self.host.as_ref()?;
        let now = clock::now();
        let mut state = lock(&self.state);
        state.before.retain(|_, taken| {
            let is_fresh = |over: &Over| now.saturating_duration_since(over.at) < FRESH_FOR;
            taken.as_ref().is_none_or(is_fresh)
        });
        state.after.retain(|launch, taken| {
            *taken == SnapshotState::UnderWay
                || instances.iter().any(|instance| instance.launch == *launch)
        });
        let before = state.before.iter().map(|(key, taken)| {
            let is_over = taken.is_some();
            (key.clone(), if is_over { SnapshotState::Over } else { SnapshotState::UnderWay })
        });
        Some(SnapshotFacts { before: before.collect(), after: state.after.clone() })
    }

    /// Returns the projects whose last snapshot failed.
    pub(super) fn failed(&self) -> Vec<FailedSnapshot> {
        let state = lock(&self.state);
        let failed = state.failed.iter().map(|(project, reason)| FailedSnapshot {
            project_id: project.clone(),
            reason: reason.clone(),
        });
        failed.collect()
    }

    /// Begins a snapshot, unless the same one is under way.
    pub(super) fn begin(&self, order: SnapshotOrder) {
        let Some(Host { checkouts, policy }) = self.host.clone() else {
            return;
        };
        {
            let mut state = lock(&self.state);
            let is_under_way = match &order.cause {
                SnapshotCause::Start(key) => {
                    matches!(state.before.insert(key.clone(), None), Some(None))
                }
                SnapshotCause::End(launch) => {
                    state.after.insert(launch.clone(), SnapshotState::UnderWay).is_some()
                }
            };
            if is_under_way {
                return;
            }
        }
        let (places, limit) = match order.cause {
            SnapshotCause::Start(_) => (&self.places_before, LONGEST_BEFORE),
            SnapshotCause::End(_) => (&self.places_after, LONGEST_AFTER),
        };
        let places = Arc::clone(places);
        let mut done = Done {
            order,
            taken: Err("it was interrupted".to_owned()),
            state: Arc::clone(&self.state),
            ended: Arc::clone(&self.ended),
        };
        self.spawn(async move {
            let began_at = clock::now();
            let work = async {
                let _place = places.acquire_owned().await;
                checkouts.snapshots.snapshot(&done.order, &policy).await
            };
            let taken = match tokio::time::timeout(limit, work).await {
                Ok(taken) => taken.map_err(|error| ErrorChain(&error).to_string()),
                Err(_) => Err(format!(
                    "it was not taken within {} s (`workspace.snapshots: false` turns snapshots off)",
                    limit.as_secs()
                )),
            };
            let SnapshotOrder { project, agent, work_tree, .. } = &done.order;
            let work_tree = work_tree.display();
            match taken {
                Ok(Snapped { commit, left_out }) => {
                    tracing::debug!(
                        project_id = %project, agent_id = %agent, %work_tree, commit, ?left_out,
                        duration_ms = domain::time::millis(clock::now().saturating_duration_since(began_at)),
                        "snapshot taken"
                    );
                    done.note(Ok(commit));
                }
                Err(reason) => {
                    tracing::warn!(
                        project_id = %project, agent_id = %agent, %work_tree, error = reason,
                        "could not take a snapshot of the directory; agents start there without one"
                    );
                    done.note(Err(reason));
                }
            }
        });
    }

    /// Names the snapshot that was taken before the start of `key` with its launch.
    pub(super) fn claimed(&self, key: &InstanceKey, launch: &LaunchId) {
        let taken = lock(&self.state).before.remove(key).flatten();
        let Some((commit, host)) = taken.and_then(|over| over.commit).zip(self.host.clone()) else {
            return;
        };
        let project = key.project.clone();
        let launch = launch.clone();
        self.spawn(async move {
            let named = host.checkouts.snapshots.name_snapshot(&project, &commit, &launch).await;
            if let Err(error) = named {
                tracing::warn!(
                    launch_id = %launch,
                    project_id = %project,
                    commit,
                    error = %ErrorChain(&error),
                    "could not name the snapshot before the launch"
                );
            }
        });
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

/// Notes that a snapshot is over, also if it panicked.
struct Done {
    order: SnapshotOrder,
    /// The commit, or the reason why there is none.
    taken: Result<String, String>,
    state: Arc<Mutex<State>>,
    ended: Arc<Notify>,
}

impl Done {
    fn note(&mut self, taken: Result<String, String>) {
        self.taken = taken;
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        match &self.order.cause {
            SnapshotCause::Start(key) => {
                let commit = self.taken.clone().ok();
                state.before.insert(key.clone(), Some(Over { at: clock::now(), commit }));
            }
            SnapshotCause::End(launch) => {
                state.after.insert(launch.clone(), SnapshotState::Over);
            }
        }
        let project = &self.order.project;
        match &self.taken {
            Ok(_) => state.failed.remove(project),
            Err(reason) => state.failed.insert(project.clone(), reason.clone()),
        };
        drop(state);
        self.ended.notify_one();
    }
}
