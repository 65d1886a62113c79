//! Directories in which several agents work on tasks at once, because their projects have no clones.
//! All rules concern git work trees, and a directory outside of any is free of them:
//!
//! - At most `shared_at_once` agents work on tasks in one work tree.
//! - A snapshot of the work tree is taken before each start, and another one when all processes of
//!   the launch have ended. A snapshot that fails prevents no start.
//! - People are warned when a second agent works there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Snapshot;
use crate::id::{AgentId, LaunchId, ProjectId};
use crate::instance::Instance;
use crate::key::{InstanceKey, Purpose};
use crate::start_history::{Candidate, StartReason};

/// The facts about directories of projects without clones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SharedFacts {
    /// The git work tree of each directory, on this machine. A directory outside of any has no
    /// entry.
    pub work_trees: BTreeMap<PathBuf, PathBuf>,
    /// The directories of the open task launches that work in no clone.
    pub directories: BTreeMap<LaunchId, PathBuf>,
    /// The snapshots that are known; `None` if this coordinator takes none.
    pub snapshots: Option<SnapshotFacts>,
}

/// The snapshots that a coordinator has begun.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotFacts {
    /// The snapshots before starts.
    pub before: BTreeMap<InstanceKey, SnapshotState>,
    /// The snapshots after the end of launches.
    pub after: BTreeMap<LaunchId, SnapshotState>,
}

/// The state of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotState {
    UnderWay,
    /// It was taken, or was given up.
    Over,
}

/// The facts that a snapshot is taken by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotOrder {
    pub project: ProjectId,
    pub agent: AgentId,
    /// The top of the git work tree.
    pub work_tree: PathBuf,
    pub cause: SnapshotCause,
}

/// The reason for a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotCause {
    /// The next start of this key.
    Start(InstanceKey),
    /// The end of this launch.
    End(LaunchId),
}

/// A git work tree in which several agents work at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Crowd {
    pub work_tree: PathBuf,
    /// The launches that work there, by id.
    pub launches: Vec<CrowdMember>,
}

/// A launch that works in the same git work tree as another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CrowdMember {
    pub launch_id: LaunchId,
    pub agent_id: AgentId,
    pub project_id: ProjectId,
}

/// A project whose last snapshot failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedSnapshot {
    pub project_id: ProjectId,
    pub reason: String,
}

impl FailedSnapshot {
    /// Returns the warning for people.
    pub fn warning(&self) -> String {
        let Self { project_id, reason } = self;
        format!("the last snapshot of the directory of {project_id} failed: {reason}")
    }
}

impl SharedFacts {
    /// Returns whether a snapshot after the end of this launch is being taken.
    pub fn is_under_way_after(&self, launch: &LaunchId) -> bool {
        let after = self.snapshots.as_ref().and_then(|snapshots| snapshots.after.get(launch));
        after == Some(&SnapshotState::UnderWay)
    }

    fn work_tree_of(&self, launch: &LaunchId) -> Option<&Path> {
        self.work_trees.get(self.directories.get(launch)?).map(PathBuf::as_path)
    }
}

/// Returns the snapshot to take after the end of an instance, unless it has begun before.
pub fn after_end(instance: &Instance, snapshot: &Snapshot) -> Option<SnapshotOrder> {
    let shared = &snapshot.shared;
    let snapshots = shared.snapshots.as_ref()?;
    let work_tree = shared.work_tree_of(&instance.launch)?;
    (!snapshots.after.contains_key(&instance.launch)).then(|| SnapshotOrder {
        project: instance.key.project.clone(),
        agent: instance.key.agent.clone(),
        work_tree: work_tree.to_owned(),
        cause: SnapshotCause::End(instance.launch.clone()),
    })
}

/// Returns the launches of this coordinator that work on tasks, by their git work tree.
fn by_work_tree(snapshot: &Snapshot) -> BTreeMap<&Path, Vec<CrowdMember>> {
    let mut found: BTreeMap<&Path, Vec<CrowdMember>> = BTreeMap::new();
    if snapshot.shared.work_trees.is_empty() {
        return found;
    }
    for launch in &snapshot.launches {
        let is_mine = launch.coordinator.as_ref() == Some(&snapshot.coordinator);
        if let Some(tree) = snapshot.shared.work_tree_of(&launch.id).filter(|_| is_mine) {
            found.entry(tree).or_default().push(CrowdMember {
                launch_id: launch.id.clone(),
                agent_id: launch.key.agent.clone(),
                project_id: launch.key.project.clone(),
            });
        }
    }
    found
}

/// Returns the git work trees in which several agents work.
pub fn crowds(snapshot: &Snapshot) -> Vec<Crowd> {
    let all = by_work_tree(snapshot).into_iter().filter(|(_, launches)| launches.len() > 1);
    all.map(|(tree, mut launches)| {
        launches.sort_by(|a, b| a.launch_id.cmp(&b.launch_id));
        Crowd { work_tree: tree.to_owned(), launches }
    })
    .collect()
}

impl Crowd {
    /// Returns whether an agent of the project is among them.
    pub fn concerns(&self, project: &ProjectId) -> bool {
        self.launches.iter().any(|launch| launch.project_id == *project)
    }

    /// Returns the warning for people. It names the directory, the agents, and what to do.
    pub fn warning(&self) -> String {
        let mut agents: Vec<&str> =
            self.launches.iter().map(|launch| launch.agent_id.as_str()).collect();
        agents.dedup();
        format!(
            "{} agents work in {} at once ({}), and can overwrite each other's files; \
             a project with `workspace: clone`, or `workspace.shared_at_once: 1`, avoids that",
            self.launches.len(),
            self.work_tree.display(),
            agents.join(", ")
        )
    }
}

/// The step of a start before its claim.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BeforeStart {
    Nothing,
    /// A snapshot is under way.
    Wait,
    /// A snapshot is to be taken.
    Take(SnapshotOrder),
}

/// Counts the agents in each git work tree while a plan is made.
#[derive(Debug)]
pub(super) struct WorkTrees<'a> {
    facts: &'a SharedFacts,
    at_once: Option<usize>,
    n_agents: BTreeMap<&'a Path, usize>,
}

impl<'a> WorkTrees<'a> {
    /// Returns the agents of the open launches of this coordinator.
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let launches = by_work_tree(snapshot).into_iter();
        let n_agents = launches.map(|(tree, launches)| (tree, launches.len())).collect();
        Self { facts: &snapshot.shared, at_once: snapshot.limits.shared_at_once, n_agents }
    }

    fn of_candidate(&self, candidate: &Candidate) -> Option<&'a Path> {
        let is_shared = candidate.key.purpose == Purpose::Task && !candidate.needs_clone;
        let tree = self.facts.work_trees.get(&candidate.working_directory);
        tree.filter(|_| is_shared).map(PathBuf::as_path)
    }

    fn n_agents(&self, tree: &Path) -> usize {
        self.n_agents.get(tree).copied().unwrap_or(0)
    }

    /// Returns the reason for which the candidate waits for other agents, if there is one.
    pub(super) fn keeping(&self, candidate: &Candidate) -> Option<StartReason> {
        let tree = self.of_candidate(candidate)?;
        (self.n_agents(tree) >= self.at_once?).then_some(StartReason::DirectoryInUse)
    }

    /// Returns the figures behind [`Self::keeping`].
    pub(super) fn detail(&self, candidate: &Candidate) -> Option<String> {
        let tree = self.of_candidate(candidate)?;
        let n_agents = self.n_agents(tree);
        let at_once = self.at_once?;
        let tree = tree.display();
        Some(format!("{n_agents} in {tree}, and `workspace.shared_at_once` is {at_once}"))
    }

    /// Counts the candidate in its work tree, and returns what its start waits for.
    pub(super) fn take(&mut self, candidate: &Candidate) -> BeforeStart {
        let Some(tree) = self.of_candidate(candidate) else {
            return BeforeStart::Nothing;
        };
        *self.n_agents.entry(tree).or_default() += 1;
        let Some(snapshots) = &self.facts.snapshots else {
            return BeforeStart::Nothing;
        };
        match snapshots.before.get(&candidate.key) {
            Some(SnapshotState::Over) => BeforeStart::Nothing,
            Some(SnapshotState::UnderWay) => BeforeStart::Wait,
            None => BeforeStart::Take(SnapshotOrder {
                project: candidate.key.project.clone(),
                agent: candidate.key.agent.clone(),
                work_tree: tree.to_owned(),
                cause: SnapshotCause::Start(candidate.key.clone()),
            }),
        }
    }
}
