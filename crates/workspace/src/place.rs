//! The places of workspaces, and what can be seen of them without git.

use std::io;
use std::path::{Path, PathBuf};

use super::create::{HOOK_FOLLOWS, MADE};
use super::lending::borrows_from_keep;
use super::nested::{GITLINKS, GITLINKS_LOCK, PARTS};
use super::repository::Repository;
use super::rights::{Owner, run_as};
use super::sparse::{ABSENT, ABSENT_LOCK};
use super::{CheckoutError, Result, remove_folder};
use domain::workspace::Order;
use domain::{ProjectId, WorkspaceId};

/// The folder for git's files of a workspace of another user.
pub(super) const SCRATCH: &str = "scratch";
/// The beginning of the names of the folders that the workspaces of other users borrow from.
pub(super) const LENT: &str = "lent-";

/// The places of one workspace.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) project: PathBuf,
    pub(super) folder: PathBuf,
    /// The files: the folder `tree` of a workspace, or the git work tree of a person.
    pub(super) tree: PathBuf,
    /// The owner of the tree, if that is another user than the daemon's.
    pub(super) owner: Option<Owner>,
    /// The repository with which the files of a person are read, if their owner is another user.
    pub(super) temporary: Option<PathBuf>,
}

impl Place {
    /// Returns the places of a workspace whose tree the daemon's own user owns.
    pub(super) const fn new(project: PathBuf, folder: PathBuf, tree: PathBuf) -> Self {
        Self { project, folder, tree, owner: None, temporary: None }
    }

    /// Returns the owner of the coordinator's repositories of the project; `None` if that is the
    /// daemon's own user, or if there are none yet.
    pub(super) fn keeper(&self) -> Option<Owner> {
        Owner::of(&self.keep())
    }

    /// Works on the keep repository with the rights of its owner. Blocks.
    pub(super) fn as_keeper<T: Send>(
        &self,
        work: impl FnOnce(&Path) -> Result<T> + Send,
    ) -> Result<T> {
        let keep = self.keep();
        run_as(self.keeper(), || work(&keep))
    }

    /// Returns whether the project has a keep repository.
    ///
    /// # Errors
    /// The keeper cannot see that.
    pub(super) fn has_keep(&self) -> Result<bool> {
        self.as_keeper(|keep| match keep.join("HEAD").metadata() {
            Ok(found) => Ok(found.is_file()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(CheckoutError::io("read", keep)(error)),
        })
    }

    /// Returns the user as whom git runs on files with this owner. Beside the keeper, root is one
    /// like any other.
    pub(super) fn user_of(&self, owner: Option<Owner>) -> Option<Owner> {
        owner.or_else(|| self.keeper().map(|_| Owner::ROOT))
    }

    /// Returns the user who will own a new workspace.
    pub(super) fn user_of_order(&self, order: &Order) -> Option<Owner> {
        self.user_of(Owner::of_order(order))
    }

    /// Returns the format of the ids in the keep repository: `sha1` or `sha256`.
    pub(super) fn format(&self) -> &'static str {
        let format = self.as_keeper(|keep| Ok(Repository::bare(keep.to_owned()).format()));
        format.unwrap_or("sha1")
    }

    /// Checks that the tree is a folder, and not a link to one.
    ///
    /// # Errors
    /// `Gone`; `Refused` for a link.
    pub(super) fn check_tree(&self) -> Result<()> {
        for path in [&self.folder, &self.tree()] {
            if path.is_symlink() {
                return Err(CheckoutError::Refused(format!(
                    "`{}` is a symbolic link, which is never followed; remove it by hand",
                    path.display()
                )));
            }
        }
        if self.tree().is_dir() { Ok(()) } else { Err(CheckoutError::Gone(self.tree())) }
    }

    /// Removes the daemon's own files of a workspace whose tree is gone, so that the workspace can
    /// be made again. Anything else in its folder stays, and prevents that.
    ///
    /// # Errors
    /// `Refused`, with the folder.
    pub(super) fn clear_gone(&self) -> Result<()> {
        if self.tree().symlink_metadata().is_ok() || !self.folder.is_dir() {
            return Ok(());
        }
        let extra = [ABSENT, ABSENT_LOCK, MADE, HOOK_FOLLOWS];
        let locks = ["index.lock", "index-ignored.lock", GITLINKS_LOCK];
        remove_folder(&self.folder.join(PARTS))?;
        for name in ["index", "index-ignored", GITLINKS].into_iter().chain(locks).chain(extra) {
            let _ = std::fs::remove_file(self.folder.join(name));
        }
        remove_folder(&self.scratch())?;
        std::fs::remove_dir(&self.folder).map_err(|error| {
            CheckoutError::Refused(format!(
                "`{}` has other files, and no folder `tree`: {error}; move them away",
                self.folder.display()
            ))
        })
    }

    pub(super) fn tree(&self) -> PathBuf {
        self.tree.clone()
    }

    pub(super) fn index(&self) -> PathBuf {
        match self.owner {
            None => self.folder.join("index"),
            Some(_) => self.scratch().join("index"),
        }
    }

    /// Returns the folder in which git writes as the owner of the tree.
    pub(super) fn scratch(&self) -> PathBuf {
        self.temporary.clone().unwrap_or_else(|| self.folder.join(SCRATCH))
    }

    /// Returns the folder that the workspaces of a user borrow from.
    pub(super) fn lent(&self, owner: Owner) -> PathBuf {
        self.project.join(format!("{LENT}{}", owner.uid))
    }

    pub(super) fn keep(&self) -> PathBuf {
        self.project.join("keep.git")
    }

    pub(super) fn files(&self) -> PathBuf {
        self.temporary.clone().unwrap_or_else(|| self.project.join("files.git"))
    }
}

/// The folder with the workspaces of this host.
#[derive(Debug, Clone)]
pub struct WorkspacePlaces {
    pub(super) root: PathBuf,
}

impl WorkspacePlaces {
    /// Returns the folder that an agent gets as its working directory.
    pub fn directory(
        &self,
        project: &ProjectId,
        workspace: &WorkspaceId,
        subdirectory: &str,
    ) -> PathBuf {
        let tree = self.place(project, workspace).tree();
        if subdirectory.is_empty() { tree } else { tree.join(subdirectory) }
    }

    /// Returns the folder that a workspace borrows from: the keep repository, or a folder for the
    /// user who owns the workspace.
    pub fn lending_folder(&self, project: &ProjectId, workspace: &WorkspaceId) -> PathBuf {
        let place = self.place(project, workspace);
        // A clone of root that is older than the keeper's repositories borrows from there.
        let is_old = || borrows_from_keep(&place.tree);
        let owner = place.owner.filter(|owner| *owner != Owner::ROOT || !is_old());
        owner.map_or_else(|| place.keep(), |owner| place.lent(owner))
    }

    /// Returns the id of the user who owns the files of a workspace; `None` for the daemon's own
    /// user.
    pub fn owner(&self, project: &ProjectId, workspace: &WorkspaceId) -> Option<u32> {
        let owner = self.place(project, workspace).owner.filter(|owner| *owner != Owner::ROOT);
        owner.map(|owner| owner.uid)
    }

    /// Returns whether the files of a workspace were removed but for what a crash left of them.
    pub fn is_half_removed(&self, project: &ProjectId, workspace: &WorkspaceId) -> bool {
        let place = self.place(project, workspace);
        let gone = place.project.join(format!(".gone-{workspace}"));
        self.is_removed(project, workspace) && gone.symlink_metadata().is_ok()
    }

    /// Checks that the repository of a workspace is there, before an agent starts in it.
    ///
    /// # Errors
    /// `Gone`, `Refused`.
    pub fn check(&self, project: &ProjectId, workspace: &WorkspaceId) -> Result<()> {
        let place = self.place(project, workspace);
        place.check_tree()?;
        let head = place.tree().join(".git/HEAD");
        if head.is_file() { Ok(()) } else { Err(CheckoutError::Gone(head)) }
    }

    /// Returns whether the folder with the files of a workspace is missing on this host.
    pub fn is_gone(&self, project: &ProjectId, workspace: &WorkspaceId) -> bool {
        matches!(self.place(project, workspace).check_tree(), Err(CheckoutError::Gone(_)))
    }

    /// Returns whether the files of a workspace were removed, or set aside for that. A host without
    /// the keep repository knows nothing of it: its disk may be missing.
    pub fn is_removed(&self, project: &ProjectId, workspace: &WorkspaceId) -> bool {
        let place = self.place(project, workspace);
        let found = place.folder.symlink_metadata();
        let is_missing = found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        is_missing && place.has_keep().unwrap_or(false)
    }

    pub(super) fn place(&self, project: &ProjectId, workspace: &WorkspaceId) -> Place {
        let project = self.root.join(project.as_str());
        let folder = project.join(workspace.as_str());
        let tree = folder.join("tree");
        let owner = Owner::of(&tree);
        let place = Place::new(project, folder, tree);
        let is_there = place.tree.symlink_metadata().is_ok();
        Place { owner: if is_there { place.user_of(owner) } else { owner }, ..place }
    }
}
