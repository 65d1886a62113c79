//! The loop's knowledge of shared directories: their git work trees, the snapshots, and the agents
//! that work in one of them at once. [`domain::plan::shared`] has the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::snapshots::SnapshotJobs;
use super::{ControlPlane, Coordinator, HookRunner, Mode, ProcessLayer};
use domain::plan::shared::{Crowd, SharedFacts};
use domain::start_history::StartReason;
use domain::{Candidate, Instance, LaunchId, Purpose};
use runtime::clock;
use workspace::{Checkouts, KeepPolicy, find_shared_tree};

/// The time for which the work tree of a directory is remembered.
const FOUND_FOR: Duration = Duration::from_secs(2);
/// The longest time that the loop waits for the file system when it looks for work trees.
const LONGEST_LOOK: Duration = Duration::from_millis(500);

/// The shared directories of this machine.
pub(super) struct SharedDirectories {
    pub(super) snapshots: SnapshotJobs,
    work_trees: WorkTreeFinder,
    /// The git work trees in which several agents work.
    crowds: Vec<Crowd>,
    /// The git work trees in which several agents have worked. Each is logged once.
    logged: BTreeSet<PathBuf>,
}

impl SharedDirectories {
    pub(super) fn new() -> Self {
        Self {
            snapshots: SnapshotJobs::new(),
            work_trees: WorkTreeFinder::default(),
            crowds: Vec::new(),
            logged: BTreeSet::new(),
        }
    }

    /// Returns the facts for a plan. `directories` are those of open launches.
    pub(super) async fn observe(
        &mut self,
        mode: Mode,
        startable: &[Candidate],
        directories: BTreeMap<LaunchId, PathBuf>,
        instances: &[Instance],
    ) -> SharedFacts {
        // An ended fleet does not wait for snapshots: the next start takes one.
        let snapshots = match mode {
            Mode::Running => self.snapshots.facts(instances),
            Mode::LeavingAgents | Mode::StoppingAgents | Mode::StoppingAgentsNow => None,
        };
        let work_trees = self.work_trees.find(startable, &directories).await;
        SharedFacts { work_trees, directories, snapshots }
    }

    /// Logs each git work tree in which several agents begin to work, once.
    pub(super) fn note_crowds(&mut self, crowds: Vec<Crowd>) {
        for crowd in &crowds {
            if self.logged.insert(crowd.work_tree.clone()) {
                tracing::warn!(
                    work_tree = %crowd.work_tree.display(), n_agents = crowd.launches.len(),
                    "several agents work in one directory, and can overwrite each other's files; \
                     `workspace: clone` of the project or `workspace.shared_at_once: 1` avoids that"
                );
            }
        }
        self.crowds = crowds;
    }

    pub(super) fn crowds(&self) -> Vec<Crowd> {
        self.crowds.clone()
    }
}

/// The clones and the shared directories of this host. A coordinator has them if its server is in
/// the same process.
pub struct HostFiles {
    pub checkouts: Arc<Checkouts>,
    /// The files that clones and snapshots keep.
    pub policy: KeepPolicy,
    /// The operator's hooks in clones.
    pub hooks: Arc<HookRunner>,
    /// Whether projects without clones have snapshots of their directories.
    pub takes_snapshots: bool,
}

impl<C: ControlPlane, P: ProcessLayer> Coordinator<C, P> {
    /// Works on the files of this host. Without that, each directory counts as one outside of git,
    /// and no start may need a clone.
    #[must_use]
    pub fn with_files(mut self, files: HostFiles) -> Self {
        let HostFiles { checkouts, policy, hooks, takes_snapshots } = files;
        let policy = Arc::new(policy);
        self.shared.work_trees.is_on = true;
        if takes_snapshots {
            self.shared.snapshots.serve_from(Arc::clone(&checkouts), Arc::clone(&policy));
        }
        self.workspaces.serve_from(checkouts, policy, hooks);
        self
    }
}

/// The work trees of directories, as they were found lately.
#[derive(Default)]
struct WorkTreeFinder {
    is_on: bool,
    found: BTreeMap<PathBuf, (Instant, Option<PathBuf>)>,
    /// The looks that have not ended. A file system that hangs keeps one thread for each directory.
    looks: BTreeMap<PathBuf, JoinHandle<Option<PathBuf>>>,
}

impl WorkTreeFinder {
    /// Returns the work tree of each directory that is in one; none before it is turned on. A file
    /// system that does not answer counts as none.
    async fn find(
        &mut self,
        startable: &[Candidate],
        directories: &BTreeMap<LaunchId, PathBuf>,
    ) -> BTreeMap<PathBuf, PathBuf> {
        if !self.is_on {
            return BTreeMap::new();
        }
        let is_shared = |candidate: &&Candidate| {
            candidate.key.purpose == Purpose::Task
                && !candidate.needs_clone
                && candidate.reason == StartReason::Ready
        };
        let of_starts = startable.iter().filter(is_shared).map(|it| &it.working_directory);
        let wanted: BTreeSet<&PathBuf> = of_starts.chain(directories.values()).collect();
        let now = clock::now();
        self.found.retain(|directory, (at, _)| {
            wanted.contains(directory) && now.saturating_duration_since(*at) < FOUND_FOR
        });
        let deadline = now + LONGEST_LOOK;
        for directory in wanted {
            if self.found.contains_key(directory) {
                continue;
            }
            let is_silent = self.looks.contains_key(directory);
            let look = self.looks.entry(directory.clone()).or_insert_with_key(|directory| {
                let directory = directory.clone();
                tokio::task::spawn_blocking(move || find_shared_tree(&directory))
            });
            // An earlier call has waited for this one already.
            let until = if is_silent { now } else { deadline };
            match tokio::time::timeout_at(until, look).await {
                Ok(tree) => {
                    self.looks.remove(directory);
                    self.found.insert(directory.clone(), (now, tree.ok().flatten()));
                }
                Err(_) if is_silent => {}
                Err(_) => tracing::warn!(
                    directory = %directory.display(),
                    "the file system does not answer; agents start there without a snapshot"
                ),
            }
        }
        let found = self.found.iter();
        found.filter_map(|(path, (_, tree))| Some((path.clone(), tree.clone()?))).collect()
    }
}
