//! The workspaces on this host: private clones of the repositories of projects.
//!
//! The coordinator has a bare repository of its own for each project, the keep repository. Nothing
//! is ever removed from it. A workspace borrows its objects, so that it is made fast and needs
//! little space. After each launch the content of the workspace is kept: a commit of the keep
//! repository reaches all files and objects. Only then may the files be removed.
//!
//! Each step may be repeated after a crash and then ends in the same state. Steps that make several
//! files work under a temporary name that begins with `.new-`, and end with a rename.
//!
//! ```text
//! <root>/.reserve                       disk space that is given up when work could not be kept
//! <root>/.gitconfig and .git-home       what each call of git uses
//! <root>/<project>/keep.git             the keep repository
//! <root>/<project>/keep.git/mended      nothing of version 0.1.0 is to be mended; what stays root's
//! <root>/<project>/handover             the user who gets what is root's, until that is done
//! <root>/<project>/files.git            settings for reading the files of workspaces as they are
//! <root>/<project>/<workspace>/tree     what the agent gets
//! <root>/<project>/<workspace>/index    git's index of a tree of the daemon's user
//! <root>/<project>/<workspace>/scratch  git's index and objects of a tree of another user
//! <root>/<project>/<workspace>/made.json   what is known since it was made
//! <root>/<project>/merging-<workspace>.json  a merge whose hooks run; `.left` if it was not undone
//! <root>/<project>/.check-<workspace>/tree  a fresh clone for a check
//! <root>/<project>/shared/index         git's index of the project's directory, for snapshots
//! <root>/<project>/lent-<uid>           what the workspaces of another user borrow from
//! ```
//!
//! A project without clones has snapshots of its directory in its keep repository instead.
//!
//! The keep repository and `lent-<uid>` belong to the keeper if this machine has that account, and
//! else to the daemon's own user. Only the keeper opens something in them (`Place::as_keeper`),
//! and git runs on them as the keeper. Clones of root are then like those of any other user.
//! `files.git` is always the daemon's, because git obeys it with the rights of each owner of files.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests may wait and ask the time"))]

mod author;
mod base;
mod behind;
mod clean;
mod create;
mod disk;
mod folder;
mod forget;
mod git;
mod handover;
mod inside;
mod keep_repository;
mod keeping;
mod lending;
mod lfs;
mod merging;
mod nested;
mod objects;
mod place;
mod publish;
mod refs;
mod remote;
mod removal;
mod repository;
mod restore;
mod results;
mod rights;
mod snapshot;
mod source;
mod sparse;
mod strays;
mod submodules;
mod temporary;
mod text;
mod transfer;
mod trees;
mod upgrade;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinSet;

pub use author::Author;
pub use behind::BehindOrder;
pub use disk::{Disk, Usage};
pub use git::GitError;
pub use merging::{FoundRevert, MergeOrder, Merged, RevertOrder};
pub use place::WorkspacePlaces;
pub use removal::Removal;
pub use repository::{find_shared_tree, find_work_tree, git_folders};
pub use results::{DiffKind, DiffOrder, MAX_DIFF};
pub use snapshot::{Snapped, SnapshotEntry};
pub use upgrade::Upgrade;

use domain::workspace::{GitLimits, Job};
use domain::{ProjectId, WorkspaceId};
use git::Git;
use machine::locks::lock;
use place::{LENT, Place, SCRATCH};
use rights::Owner;
use runtime::single_look::SingleLook;

/// The rules for the ignored files of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeepPolicy {
    /// The most bytes of ignored files that are kept with a workspace.
    pub ignored_max: u64,
    /// The names of ignored folders that are never kept, because they can be built again.
    pub rebuildable: Vec<String>,
}

impl KeepPolicy {
    /// Returns whether an ignored entry, which ends with a slash if it is a folder, is never kept.
    fn is_rebuildable(&self, ignored: &Path) -> bool {
        let name = ignored.file_name().unwrap_or_default().to_string_lossy();
        let is_folder = ignored.as_os_str().as_bytes().ends_with(b"/");
        is_folder && self.rebuildable.iter().any(|known| *known == name)
    }
}

/// The settings of the workspaces of a host.
#[derive(Debug, Clone)]
pub struct HostSettings {
    /// The folder of all workspaces. It is made with the first one.
    pub root: PathBuf,
    /// The root is a setting, and not the folder that is used without one. No repository of a
    /// project may contain such a root.
    pub is_root_configured: bool,
    pub limits: GitLimits,
    /// The user and the group to which new repositories of the coordinator belong. Only a daemon of
    /// root has such a keeper.
    pub keeper: Option<(u32, u32)>,
}

impl HostSettings {
    /// Returns the default settings of the workspaces in `root`.
    pub fn new(root: PathBuf) -> Self {
        Self { root, is_root_configured: false, limits: GitLimits::default(), keeper: None }
    }
}

/// All workspaces of this host.
///
/// `Git` reads and writes the objects of keep repositories. Each part has only the fields that it
/// uses, and calls only parts that are above it here.
#[derive(Debug)]
pub struct Checkouts {
    pub places: WorkspacePlaces,
    pub disk: Arc<Disk>,
    pub keep: Arc<KeepRepositories>,
    pub remotes: Arc<Remotes>,
    pub clones: Arc<Clones>,
    pub snapshots: Snapshots,
    pub trees: Arc<SourceTrees>,
    pub results: Arc<Results>,
    /// The steps that would fail again in the same way, until a person asks for another try.
    pub given_up: Mutex<BTreeMap<WorkspaceId, Job>>,
}

/// The keep repositories of all projects. Makes, locks and updates them, and lends their objects.
#[derive(Debug)]
pub struct KeepRepositories {
    git: Arc<Git>,
    places: WorkspacePlaces,
    disk: Arc<Disk>,
    /// The user to whom new repositories of the coordinator belong, if that is another one.
    keeper: Option<Owner>,
    /// One lock per project: a change of its keep repository.
    locks: Mutex<BTreeMap<ProjectId, Arc<AsyncMutex<KeepState>>>>,
    /// The upgrades that copy files now, by the folder of the project.
    upgrading: Mutex<BTreeMap<PathBuf, upgrade::Copying>>,
    /// The upgrades without room for their copies: by the folder of the project, the folder of the
    /// copies and their bytes.
    waiting: Mutex<BTreeMap<PathBuf, (PathBuf, u64)>>,
    /// The folders of projects whose repositories stay with root, because of an entry in them.
    not_given: Mutex<BTreeSet<PathBuf>>,
}

/// Fetches from repositories at forges, pushes to them, and fetches submodules.
#[derive(Debug)]
pub struct Remotes {
    git: Arc<Git>,
    places: WorkspacePlaces,
    disk: Arc<Disk>,
    keep: Arc<KeepRepositories>,
    /// The reasons why submodules of repositories at forges were not fetched, by their commits.
    submodule_failures: Mutex<BTreeMap<String, String>>,
}

/// Takes the files of work trees into keep repositories, with the repositories among them, and
/// writes them into folders again.
#[derive(Debug, Clone)]
struct WorkFiles {
    git: Arc<Git>,
    disk: Arc<Disk>,
}

/// Makes the clones of tasks and checks, keeps their content, and removes them.
#[derive(Debug)]
pub struct Clones {
    git: Arc<Git>,
    places: WorkspacePlaces,
    disk: Arc<Disk>,
    keep: Arc<KeepRepositories>,
    remotes: Arc<Remotes>,
    files: WorkFiles,
    is_root_configured: bool,
}

/// Takes snapshots of the directories of projects without clones, and restores them.
#[derive(Debug)]
pub struct Snapshots {
    git: Arc<Git>,
    places: WorkspacePlaces,
    keep: Arc<KeepRepositories>,
    files: WorkFiles,
}

/// Changes the work trees of people for a merge, and undoes merges that a crash interrupted.
#[derive(Debug)]
pub struct SourceTrees {
    git: Arc<Git>,
    places: WorkspacePlaces,
    /// One lock per repository of people: a merge. It is held while hooks of the source run.
    merges: Mutex<BTreeMap<PathBuf, Arc<AsyncMutex<()>>>>,
    /// The merges that could not be undone, as they were found last.
    left: AsyncMutex<merging::LastLook>,
    /// The looks whether the folders of such merges are there.
    folder_looks: Mutex<BTreeMap<PathBuf, Arc<SingleLook<bool>>>>,
}

/// Shows the results of tasks, and gives them to the repositories of people.
#[derive(Debug)]
pub struct Results {
    git: Arc<Git>,
    places: WorkspacePlaces,
    keep: Arc<KeepRepositories>,
    files: WorkFiles,
    clones: Arc<Clones>,
    trees: Arc<SourceTrees>,
    /// The merges that go on without their callers.
    under_way: Mutex<JoinSet<()>>,
}

impl Checkouts {
    /// Returns the workspaces in `root` with the default settings.
    pub fn new(root: PathBuf) -> Self {
        Self::with_settings(HostSettings::new(root))
    }

    /// Returns the workspaces of a host. It makes no file.
    pub fn with_settings(settings: HostSettings) -> Self {
        let HostSettings { root, is_root_configured, limits, keeper } = settings;
        let keeper = keeper.filter(|(uid, _)| *uid != 0 && rustix::process::geteuid().is_root());
        let mut git = Git::new(&root);
        git.limits = limits;
        let shared = Arc::new(git);
        let git = || Arc::clone(&shared);
        let places = || WorkspacePlaces { root: root.clone() };
        let disk = Arc::new(Disk::new(places()));
        let keep = Arc::new(KeepRepositories {
            git: git(),
            places: places(),
            disk: Arc::clone(&disk),
            keeper: keeper.map(|(uid, gid)| Owner { uid, gid }),
            locks: Mutex::default(),
            upgrading: Mutex::default(),
            waiting: Mutex::default(),
            not_given: Mutex::default(),
        });
        let remotes = Arc::new(Remotes {
            git: git(),
            places: places(),
            disk: Arc::clone(&disk),
            keep: Arc::clone(&keep),
            submodule_failures: Mutex::default(),
        });
        let files = WorkFiles { git: git(), disk: Arc::clone(&disk) };
        let clones = Arc::new(Clones {
            git: git(),
            places: places(),
            disk: Arc::clone(&disk),
            keep: Arc::clone(&keep),
            remotes: Arc::clone(&remotes),
            files: files.clone(),
            is_root_configured,
        });
        let snapshots = Snapshots {
            git: git(),
            places: places(),
            keep: Arc::clone(&keep),
            files: files.clone(),
        };
        let trees = Arc::new(SourceTrees {
            git: git(),
            places: places(),
            merges: Mutex::default(),
            left: AsyncMutex::default(),
            folder_looks: Mutex::default(),
        });
        let results = Arc::new(Results {
            git: git(),
            places: places(),
            keep: Arc::clone(&keep),
            files,
            clones: Arc::clone(&clones),
            trees: Arc::clone(&trees),
            under_way: Mutex::default(),
        });
        let given_up = Mutex::default();
        let places = places();
        Self { places, disk, keep, remotes, clones, snapshots, trees, results, given_up }
    }

    /// Notes a step whose workspace can be used if it would fail again: it went beyond a limit, or
    /// makes a fresh clone. Such a clone is made from kept commits alone, and most of its refusals
    /// are about their size or their trees. Returns whether it is given up.
    pub fn give_up(&self, job: &Job, error: &CheckoutError) -> bool {
        let is_given_up = error.is_beyond_limit() || matches!(job, Job::PrepareClean { .. });
        if is_given_up {
            lock(&self.given_up).insert(job.workspace().clone(), job.clone());
        }
        is_given_up
    }
}

/// The knowledge of this process about a keep repository.
#[derive(Debug, Default)]
struct KeepState {
    /// The remains of an earlier process were removed.
    is_tidied: bool,
    /// The number of killed calls whose locks were removed.
    n_killed: u64,
}

/// The result of a step, which usually fails with a [`CheckoutError`].
type Result<T, E = CheckoutError> = std::result::Result<T, E>;

/// The reason why a step did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CheckoutError {
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("could not {action} `{}`", .path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the disk of `{}` is full", .root.display())]
    DiskFull {
        root: PathBuf,
        #[source]
        source: Box<CheckoutError>,
    },
    /// The step needs disk space that is used up.
    #[error("{0}")]
    NoRoom(String),
    /// The upgrade of a project needs more disk space than there is.
    #[error(
        "`{}` has files that other users can change; their replacement copies {n_bytes} bytes, but \
         only {n_free} are free; make room on that disk", .folder.display()
    )]
    NoRoomForCopies { folder: PathBuf, n_bytes: u64, n_free: u64 },
    /// The step cannot succeed before a person changes something.
    #[error("{0}")]
    Refused(String),
    /// An agent left a malformed object. The daemon does not take it, but takes the rest of the
    /// work.
    #[error("{0}")]
    Malformed(String),
    /// A submodule of a new workspace. It may be there by the next attempt.
    #[error("submodule `{name}`")]
    Submodule {
        name: String,
        #[source]
        source: Box<CheckoutError>,
    },
    #[error("the files of the workspace are gone: there is no `{}`", .0.display())]
    Gone(PathBuf),
    #[error("could not use the files of the user with id {uid} with the rights of that user")]
    OtherUser {
        uid: u32,
        #[source]
        source: io::Error,
    },
}

impl CheckoutError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// Returns whether a step failed because of the content that it worked on, so that it would
    /// fail again: that content is left out and named.
    fn is_of_content(&self) -> bool {
        match self {
            Self::Malformed(_) => true,
            Self::Git(error) => error.is_of_content(),
            _ => false,
        }
    }

    /// Returns whether the step is in vain until a person does something.
    pub fn needs_person(&self) -> bool {
        match self {
            Self::Malformed(_) | Self::Gone(_) => true,
            _ => self.stops_only_its_step(),
        }
    }

    /// Returns whether a step is in vain, but the workspace that it is about can be used.
    pub fn stops_only_its_step(&self) -> bool {
        matches!(self, Self::Refused(_)) || self.is_beyond_limit()
    }

    /// Returns whether git went beyond a limit, also in a submodule.
    fn is_beyond_limit(&self) -> bool {
        match self {
            Self::Git(error) => error.is_beyond_limit(),
            Self::Submodule { source, .. } => source.is_beyond_limit(),
            _ => false,
        }
    }
}

/// Makes a folder that only the daemon's user can enter.
fn make_folder(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(path).map_err(CheckoutError::io("make the folder", path))
}

/// Removes a folder with all that is in it. Follows no link. A folder that does not exist is fine.
fn remove_folder(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(CheckoutError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    std::fs::write(path, content).map_err(CheckoutError::io("write", path))
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).map_err(CheckoutError::io("rename", from))
}

/// Runs a function that reads or writes many files, on a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panicked) => Err(CheckoutError::Refused(format!("a step failed: {panicked}"))),
    }
}

#[cfg(test)]
mod tests;
