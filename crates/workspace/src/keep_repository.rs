//! The keep repository of a project: a bare repository that only the daemon changes. It belongs to
//! the keeper, if this machine has that account.
//!
//! Nothing is pruned from it, because workspaces borrow its objects.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::git::GitError;
use super::handover::finish_handover;
use super::lending::let_others_enter;
use super::objects::{is_folder, names_in};
use super::rights::{Owner, give, run_as};
use super::source::{Head, Source};
use super::temporary::{Settings, make_repository, remove_remains};
use super::text::{read_text, value_of};
use super::upgrade::MENDED;
use super::{
    CheckoutError, Git, KeepRepositories, KeepState, LENT, Place, Result, make_folder,
    remove_folder, rename, write,
};
use domain::ProjectId;
use machine::crash_point::{self, CrashPoint};
use machine::locks::lock;
use machine::sys::ownership::is_changed_by_others;

/// The refs that follow the branches of the source.
pub(super) const SOURCE: &str = "refs/agent-coordinator/source";
/// Settings of a keep repository.
const SETTINGS: &str = "[gc]\n\tauto = 0\n\tpruneExpire = never\n\
    [maintenance]\n\tauto = false\n\
    [core]\n\tlogAllRefUpdates = always\n\
    [receive]\n\tdenyDeletes = true\n";
/// The setting with which git refuses to prune objects.
const PRECIOUS: &str = "extensions.preciousObjects";
/// Refuses each push, such as the `push --mirror` of an agent.
const PRE_RECEIVE: &str = "#!/bin/sh\n\
    echo 'this repository belongs to agent-coordinator, which takes the work from the clone itself' >&2\n\
    exit 1\n";
/// Files are read and written byte for byte: these attributes come before their own.
pub(super) const ATTRIBUTES: &str = "* -text !eol -ident -filter -working-tree-encoding\n";

/// The beginning of each fetch of a forge into a keep repository. It writes only the named refs.
pub(super) const FETCH: [&str; 6] = [
    "fetch",
    "--quiet",
    "--no-tags",
    "--no-write-fetch-head",
    "--no-auto-maintenance",
    "--no-recurse-submodules",
];

impl KeepRepositories {
    /// Checks that git is there and new enough. It makes no file.
    ///
    /// # Errors
    /// `Missing`, `TooOld`.
    pub async fn check_git(&self) -> Result<(), GitError> {
        self.git.check_version().await
    }

    /// Makes the keep repository of a project unless it exists, and brings it up to date with the
    /// source. Returns what the source's HEAD names.
    pub(super) async fn follow(&self, source: &Source, place: &Place) -> Result<Head> {
        self.mend(source, place).await?;
        let head = source.head(&self.git).await?;
        if !place.has_keep()? || !place.has_files() {
            let format = source.git(&self.git, ["rev-parse", "--show-object-format"]);
            self.make_keep(&format.text().await?, place).await?;
        } else {
            self.give_to_keeper(place).await?;
        }
        let brought = self.git.bring_branches(source, place, &head).await;
        brought.map_err(|error| self.disk.name_full_disk(error))?;
        Ok(head)
    }

    /// Makes the keep repository of a project unless it exists, and the repository with the
    /// settings with which the files of workspaces are read. It has nothing of the source yet.
    pub(super) async fn make_keep(&self, format: &str, place: &Place) -> Result<()> {
        if place.has_keep()? {
            self.give_to_keeper(place).await?;
        } else {
            make_folder(&place.project)?;
            // Objects that root has lent go to the keeper later, together with the keep repository.
            let has_lent = names_in(&place.project).iter().any(|name| {
                name.starts_with(LENT) && Owner::of(&place.project.join(name)).is_none()
            });
            let keeper = self.keeper_of(place)?.filter(|_| !has_lent);
            let new = place.project.join(".new-keep");
            make_new(&new, keeper)?;
            let format = format!("--object-format={format}");
            let init = ["init", "--quiet", "--bare", "--template=", &format].map(OsStr::new);
            let init = self.git.call(init.into_iter().chain([new.as_os_str()]));
            init.run_as(keeper).run().await?;
            crash_point::reach(CrashPoint::KeepHalfMade);
            run_as(keeper, || finish_keep(&new))?;
            rename(&new, &place.keep())?;
        }
        place.make_files(format)
    }

    /// Returns the user to whom the repositories of a project are to belong; `None` for the daemon's
    /// own user. The keeper needs a way to them, which others cannot change, and a file system that
    /// lets root give it files.
    pub(super) fn keeper_of(&self, place: &Place) -> Result<Option<Owner>> {
        let Some(keeper) = self.keeper_with_way()? else {
            return Ok(None);
        };
        let_others_enter(&self.places.root, place)?;
        let can_have = enters(keeper, &place.project)? && can_give(&place.project, keeper)?;
        Ok(can_have.then_some(keeper))
    }

    /// Returns the keeper if it can enter the folder above the root, and others cannot change that
    /// way. Opens nothing.
    pub(super) fn keeper_with_way(&self) -> Result<Option<Owner>> {
        let Some(keeper) = self.keeper else {
            return Ok(None);
        };
        let root = self
            .places
            .root
            .canonicalize()
            .map_err(CheckoutError::io("read", &self.places.root))?;
        let has_way = root.parent().is_none_or(|above| enters(keeper, above).unwrap_or(false));
        Ok((has_way && !is_changed_by_others(&root)).then_some(keeper))
    }

    /// Makes the locked keep repository of a project ready for a step. Completes a handover, and
    /// removes what earlier processes of the daemon and killed calls left.
    async fn made_ready(
        &self,
        mut state: OwnedMutexGuard<KeepState>,
        place: &Place,
    ) -> Result<OwnedMutexGuard<KeepState>> {
        finish_handover(place).await?;
        if let Some(keeper) = place.keeper().or(self.keeper) {
            // This may wait for a directory on the network. Afterwards the groups are known, so
            // that no thread of the runtime waits for them.
            keeper.groups().await;
        }
        self.check_keepers_way(place)?;
        place.tidy(&mut state)?;
        self.remove_left_locks(&mut state, place)?;
        Ok(state)
    }

    /// Checks that the keeper can enter the keep repository of a project. One that it cannot see
    /// would count as missing.
    ///
    /// # Errors
    /// `Refused`.
    fn check_keepers_way(&self, place: &Place) -> Result<()> {
        let Some(keeper) = place.keeper() else {
            return Ok(());
        };
        let_others_enter(&self.places.root, place)?;
        place.as_keeper(|keep| {
            keep.join(".").symlink_metadata().map(drop).map_err(|error| {
                CheckoutError::Refused(format!(
                    "the user with id {} may not enter `{}`: {error}; open the folders above it",
                    keeper.uid,
                    keep.display()
                ))
            })
        })
    }

    /// Removes the locks and the parts of objects that killed calls of this process have left in
    /// the keep repository. The caller has the lock of the project, so that no other call has
    /// them.
    fn remove_left_locks(&self, state: &mut KeepState, place: &Place) -> Result<()> {
        let n_killed = self.git.n_killed();
        if std::mem::replace(&mut state.n_killed, n_killed) != n_killed {
            place.remove_locks()?;
        }
        Ok(())
    }

    /// Lets git refuse each prune of the keep repository, as long as the project has a clone. A
    /// clone may borrow objects that no ref of the keep repository reaches. The caller has the lock
    /// of the project.
    pub(super) async fn guard_objects(&self, place: &Place) -> Result<()> {
        let text = place.as_keeper(|keep| Ok(read_text(&keep.join("config"))))?;
        let is_guarded =
            text.is_some_and(|text| value_of(&text, "extensions", "preciousObjects").is_some());
        let has_clone = || {
            let mut names = names_in(&place.project).into_iter();
            names.any(|name| place.project.join(name).join("tree").is_dir())
        };
        let changes: &[&[&str]] = match (is_guarded, has_clone()) {
            (false, true) => {
                &[&["config", "core.repositoryFormatVersion", "1"], &["config", PRECIOUS, "true"]]
            }
            (true, false) => &[&["config", "--unset-all", PRECIOUS]],
            _ => &[],
        };
        for change in changes {
            self.git.on(&place.keep(), change.iter()).run().await?;
        }
        Ok(())
    }

    /// Waits until no other step changes the keep repository of a project.
    async fn lock(&self, project: &ProjectId) -> OwnedMutexGuard<KeepState> {
        self.lock_of(project).lock_owned().await
    }

    fn lock_of(&self, project: &ProjectId) -> Arc<AsyncMutex<KeepState>> {
        Arc::clone(lock(&self.locks).entry(project.clone()).or_default())
    }

    /// Locks the keep repository of a project, and makes it ready for a step.
    pub(super) async fn lock_keep(
        &self,
        project: &ProjectId,
        place: &Place,
    ) -> Result<OwnedMutexGuard<KeepState>> {
        self.made_ready(self.lock(project).await, place).await
    }

    /// Locks the keep repository like [`Self::lock_keep`]; `None` if another step has it.
    pub(super) async fn try_lock_keep(
        &self,
        project: &ProjectId,
        place: &Place,
    ) -> Result<Option<OwnedMutexGuard<KeepState>>> {
        match self.lock_of(project).try_lock_owned() {
            Ok(state) => self.made_ready(state, place).await.map(Some),
            Err(_) => Ok(None),
        }
    }
}

impl Git {
    /// Returns the commit that a ref of the keep repository names.
    pub(super) async fn resolve(&self, place: &Place, name: &str) -> Result<Option<String>> {
        let name = format!("{name}^{{commit}}");
        let arguments = ["rev-parse", "--quiet", "--verify", "--end-of-options", &name];
        let ended = self.on(&place.keep(), arguments).end().await?;
        let printed = String::from_utf8_lossy(&ended.stdout).trim().to_owned();
        Ok((ended.code == Some(0) && !printed.is_empty()).then_some(printed))
    }
}

impl Place {
    /// Returns whether the project has the repository with the settings for reading files. One with
    /// an entry of another user does not count.
    fn has_files(&self) -> bool {
        let files = self.files();
        is_folder(&files) && is_all_of_root(&files)
    }

    /// Makes the repository with the settings with which the files of workspaces are read, unless
    /// it exists. It is the daemon's, because git obeys it with the rights of each owner of files.
    /// Blocks.
    pub(super) fn make_files(&self, format: &str) -> Result<()> {
        if self.has_files() {
            return Ok(());
        }
        let new = self.project.join(".new-files");
        make_new(&new, None)?;
        make_repository(&new, &Settings { format, attributes: ATTRIBUTES, excluded: "" })?;
        let files = self.files();
        remove_folder(&files)?;
        rename(&new, &files)
    }

    /// Removes what an earlier process of the daemon left half-done, once in this process. Only one
    /// process changes a keep repository, so a lock file in it has no holder.
    fn tidy(&self, state: &mut KeepState) -> Result<()> {
        if std::mem::replace(&mut state.is_tidied, true) || !self.project.is_dir() {
            return Ok(());
        }
        let read = std::fs::read_dir(&self.project);
        for entry in read.map_err(CheckoutError::io("read", &self.project))?.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(".new-") || name.starts_with(".q-") {
                remove_unfinished(&entry.path())?;
            }
        }
        remove_remains(&self.project);
        self.remove_locks()
    }

    /// Removes the locks of the keep repository, and the parts of objects. No call has them.
    fn remove_locks(&self) -> Result<()> {
        self.as_keeper(|keep| {
            remove_locks(keep);
            Ok(())
        })?;
        self.remove_temporary()
    }

    /// Removes the parts of objects that a call into the keep repository has left.
    pub(super) fn remove_temporary(&self) -> Result<()> {
        self.as_keeper(|keep| {
            remove_temporary(&keep.join("objects"));
            Ok(())
        })
    }
}

/// Returns whether a user can enter a folder.
fn enters(user: Owner, folder: &Path) -> Result<bool> {
    run_as(Some(user), || Ok(folder.join(".").symlink_metadata().is_ok()))
}

/// Makes an empty folder for a user, in place of what an attempt has left.
pub(super) fn make_new(folder: &Path, owner: Option<Owner>) -> Result<()> {
    remove_folder(folder)?;
    make_folder(folder)?;
    owner.map_or(Ok(()), |owner| give(folder, owner))
}

/// Returns whether root can give entries of a folder to a user. Some file systems report success,
/// but keep the owner.
fn can_give(folder: &Path, user: Owner) -> Result<bool> {
    let probe = folder.join(".new-probe");
    let given = make_new(&probe, Some(user));
    let has_changed = Owner::of(&probe).is_some_and(|owner| owner.uid == user.uid);
    remove_folder(&probe)?;
    match given {
        Err(CheckoutError::Io { source, .. }) if is_refused(&source) => Ok(false),
        given => given.map(|()| has_changed),
    }
}

/// Returns whether a file system refuses another owner, such as a share of another machine on which
/// root is an ordinary user.
fn is_refused(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::PERM | Errno::INVAL | Errno::NOTSUP))
}

/// Returns whether a path and all that is in it belong to root. The entries of a daemon of an
/// ordinary user are its own.
fn is_all_of_root(path: &Path) -> bool {
    Owner::of(path).is_none()
        && names_in(path).iter().map(|name| path.join(name)).all(|below| is_all_of_root(&below))
}

/// Gives a new keep repository its settings.
fn finish_keep(new: &Path) -> Result<()> {
    let config = new.join("config");
    let text = std::fs::read_to_string(&config).map_err(CheckoutError::io("read", &config))?;
    write(&config, text + SETTINGS)?;
    make_folder(&new.join("hooks"))?;
    let hook = new.join("hooks/pre-receive");
    write(&hook, PRE_RECEIVE)?;
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755))
        .map_err(CheckoutError::io("make executable", &hook))?;
    write(&new.join(MENDED), b"")
}

/// Removes a folder or a file, such as an index that a call had not written completely.
fn remove_unfinished(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(_) => remove_folder(path),
    }
}

/// Removes the lock files of refs, and of the lists of refs.
fn remove_locks(folder: &Path) {
    let Ok(read) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in read.flatten() {
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && entry.file_name() != "objects" {
            remove_locks(&path);
        } else if path.extension() == Some(OsStr::new("lock")) {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Removes the files that a call wrote to when it was killed.
fn remove_temporary(objects: &Path) {
    for folder in names_in(objects) {
        let folder = objects.join(folder);
        for name in names_in(&folder) {
            if name.starts_with("tmp_") {
                let _ = std::fs::remove_file(folder.join(name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_refuses_another_owner_is_told_from_a_fault() {
        for refused in [Errno::PERM, Errno::INVAL, Errno::NOTSUP] {
            assert!(is_refused(&refused.into()), "{refused}");
        }
        for fault in [Errno::IO, Errno::NOSPC, Errno::ROFS] {
            assert!(!is_refused(&fault.into()), "{fault}");
        }
    }

    #[test]
    fn a_folder_whose_entries_root_can_give_is_left_as_it_was() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        assert!(can_give(folder.path(), Owner { uid: 2, gid: 2 }).unwrap());
        // The system calls succeed with this id, and change nothing.
        let no_user = Owner { uid: u32::MAX, gid: u32::MAX };
        assert!(!can_give(folder.path(), no_user).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
