//! Mends what version 0.1.0 left, once for each project.
//!
//! That version ran git as root in the repositories of people, and linked their packs into the keep
//! repository. The owner of a repository cannot change the files of root in it, but can overwrite a
//! pack that the keep repository shares. The coordinator's repositories of a project that belong to
//! root go to the keeper as soon as this machine has that account.

use std::ffi::{CStr, OsStr};
use std::fmt::Display;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, lchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Uid, fchown, openat, statat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::disk::n_free;
use super::lending::close;
use super::objects::names_in;
use super::rights::{Owner, run_as};
use super::source::Source;
use super::{CheckoutError, Checkouts, LENT, Place, blocking, rename, write};
use domain::ProjectId;
use domain::printable::bytes;
use machine::crash_point::{self, CrashPoint};
use machine::locks::lock;
use machine::sys::{beneath, files};
use runtime::telemetry::ErrorChain;

/// The file of a keep repository that says that nothing is to be mended, and what was left.
pub(super) const MENDED: &str = "mended";
/// The file of a project with the keeper, as `chown` takes it, while the handover goes on.
const HANDOVER: &str = "handover";
/// The most names in the path of an entry that is given back.
const MAX_DEPTH: usize = 200;
/// The most entries that are named.
const MAX_NAMED: usize = 20;

/// The entries of root that stay in a repository.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Left {
    /// The owner of the repository, as `chown` takes it.
    owner: String,
    /// The first ones.
    entries: Vec<String>,
}

/// The upgrade of a project from version 0.1.0.
#[derive(Debug, PartialEq, Eq)]
pub struct Upgrade {
    pub project: String,
    /// The most bytes that its first use copies. Copies that share their content need no room.
    pub n_bytes: u64,
    /// The owner of its repository, as `chown` takes it.
    pub owner: String,
    /// The first entries of root that stay in its repository.
    pub left: Vec<String>,
}

/// The bytes of the files that an upgrade copies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copying {
    n_copied: u64,
    n_all: u64,
}

impl Checkouts {
    /// Returns how far the upgrade of a project is; `None` if it copies nothing now.
    pub fn upgrade_progress(&self, project: &ProjectId) -> Option<String> {
        let upgrading = lock(&self.upgrading);
        let Copying { n_copied, n_all } = upgrading.get(&self.root.join(project.as_str()))?;
        Some(format!("the upgrade has copied {} of {}", bytes(*n_copied), bytes(*n_all)))
    }

    /// Returns the upgrades that copy something, or that left something to a person. Blocks.
    pub fn list_upgrades(&self) -> Vec<Upgrade> {
        let mut found = Vec::new();
        for project in names_in(&self.root) {
            let folder = self.root.join(&project);
            let place = Place::new(folder.clone(), folder.clone(), folder);
            let mark = place.as_keeper(|keep| Ok(std::fs::read(keep.join(MENDED)).ok()));
            let mark = mark.ok().flatten();
            let keeper = place.keeper();
            let find = |keep: &Path| shared_files(&keep.join("objects"), keeper);
            let goes_to_keeper = self.keeper.is_some() && keeper.is_none();
            let shared = if mark.is_none() || goes_to_keeper {
                place.as_keeper(find).unwrap_or_default()
            } else {
                Vec::new()
            };
            let n_bytes = shared.iter().map(|(_, n_bytes)| n_bytes).sum();
            let left = serde_json::from_slice(&mark.unwrap_or_default());
            let Left { owner, mut entries } = left.unwrap_or_default();
            // A person may have given them meanwhile.
            let is_of_root = |path: &String| {
                Path::new(path).symlink_metadata().is_ok_and(|found| found.uid() == 0)
            };
            entries.retain(is_of_root);
            if n_bytes > 0 || !entries.is_empty() {
                found.push(Upgrade { project, n_bytes, owner, left: entries });
            }
        }
        found
    }

    /// Mends what version 0.1.0 left of a project, unless that was done. Ends in the same state
    /// after a crash. The caller has the lock of the project.
    ///
    /// # Errors
    /// Nothing is lost then, and the next attempt goes on. A damaged pack is only named in the log.
    pub(super) async fn mend(&self, source: &Source, place: &Place) -> Result<(), CheckoutError> {
        let is_mended = place.as_keeper(|keep| Ok(keep.join(MENDED).exists()))?;
        if is_mended || !place.has_keep()? {
            return Ok(());
        }
        self.copy_linked_objects(place).await?;
        let mut text = Vec::new();
        if let Some(owner) = source.owner {
            let top = source.top.clone();
            let left = blocking(move || give_back(&top, owner)).await?;
            if !left.is_empty() {
                let entries: Vec<String> =
                    left.iter().take(MAX_NAMED).map(|path| path.display().to_string()).collect();
                tracing::warn!(
                    ?entries,
                    n_entries = left.len(),
                    uid = owner.uid,
                    "entries of root stay in a project's repository; look at them, and run chown"
                );
                let left = Left { owner: format!("{}:{}", owner.uid, owner.gid), entries };
                text = serde_json::to_vec(&left).unwrap_or_default();
            }
        }
        place.as_keeper(|keep| write(&keep.join(MENDED), text))
    }

    /// Gives the coordinator's repositories of a project to the keeper, if they belong to root and
    /// the keeper can reach them. Ends in the same state after a crash. The caller has the lock of
    /// the project.
    ///
    /// # Errors
    /// Nothing is lost then, and the next attempt goes on.
    pub(super) async fn give_to_keeper(&self, place: &Place) -> Result<(), CheckoutError> {
        let is_given = place.keeper().is_some();
        if self.keeper.is_none() || is_given || lock(&self.not_given).contains(&place.project) {
            return Ok(());
        }
        let Some(keeper) = self.keeper_with_way()? else {
            return Ok(());
        };
        let here = place.clone();
        if let Some((path, reason)) = blocking(move || find_obstacle(&here, keeper)).await? {
            lock(&self.not_given).insert(place.project.clone());
            tracing::warn!(
                path = %path.display(),
                reason,
                "root keeps the coordinator's repositories of a project because of this entry; \
                 bring the content here in place of it, and restart the daemon"
            );
            return Ok(());
        }
        // This opens the folders on the way.
        if self.keeper_of(place)?.is_none() {
            return Ok(());
        }
        self.copy_linked_objects(place).await?;
        let project = place.project.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let place = place.clone();
        let given = blocking(move || hand_over(&place, keeper)).await;
        given.map_err(|error| self.name_full_disk(error))?;
        tracing::info!(
            project_id = %project,
            uid = keeper.uid,
            "the coordinator's repositories of a project belong to the keeper"
        );
        Ok(())
    }

    /// Replaces each file with objects of a keep repository of the daemon's own user that another
    /// user can change by a copy, and checks the packs among them.
    async fn copy_linked_objects(&self, place: &Place) -> Result<(), CheckoutError> {
        if place.keeper().is_some() {
            return Ok(());
        }
        let keep = &place.keep();
        let objects = keep.join("objects");
        let keeper = self.keeper;
        let upgrading = Arc::clone(&self.upgrading);
        let project = place.project.clone();
        let copied = blocking(move || {
            let note = |copying| {
                lock(&upgrading).insert(project.clone(), copying);
            };
            let copied = shared_files(&objects, keeper)
                .and_then(|shared| replace_shared(&objects, shared, || n_free(&objects), note));
            lock(&upgrading).remove(&project);
            copied
        })
        .await;
        let copied = copied.map_err(|error| self.name_full_disk(error))?;
        for file in copied.iter().filter(|file| file.extension() == Some(OsStr::new("pack"))) {
            let index = file.with_extension("idx");
            let check = [OsStr::new("verify-pack"), index.as_os_str()];
            if let Err(error) = self.git.on(keep, check).long().run().await {
                tracing::error!(
                    pack = %file.display(), error = %ErrorChain(&error),
                    "a kept pack is damaged; restore it from a backup"
                );
            }
        }
        Ok(())
    }
}

/// Completes what [`Checkouts::give_to_keeper`] began before the daemon ended, so that root writes
/// nothing into what the keeper has already. The user in the mark gets the rest.
pub(super) async fn finish_handover(place: &Place) -> Result<(), CheckoutError> {
    let mark = place.project.join(HANDOVER);
    if mark.symlink_metadata().is_err() {
        return Ok(());
    }
    let place = place.clone();
    blocking(move || {
        let text = std::fs::read_to_string(&mark).map_err(CheckoutError::io("read", &mark))?;
        // Nothing has changed before the mark was whole.
        let Some(keeper) = keeper_in(&text).filter(|_| place.keep().is_dir()) else {
            return std::fs::remove_file(&mark).map_err(CheckoutError::io("remove", &mark));
        };
        if let Some((path, reason)) = find_obstacle(&place, keeper)? {
            return Err(CheckoutError::Refused(format!(
                "`{}` was replaced while it went to the user with id {}: it {reason}; put back \
                 what was there",
                path.display(),
                keeper.uid
            )));
        }
        hand_over(&place, keeper)
    })
    .await
}

/// Returns the user in the mark of a handover.
fn keeper_in(mark: &str) -> Option<Owner> {
    let (uid, gid) = mark.strip_suffix('\n')?.split_once(':')?;
    Some(Owner { uid: uid.parse().ok()?, gid: gid.parse().ok()? })
}

/// Writes the mark of a handover, which outlives a crash of the machine.
fn write_mark(mark: &Path, keeper: Owner) -> Result<(), CheckoutError> {
    write(mark, format!("{}:{}\n", keeper.uid, keeper.gid))?;
    for path in [Some(mark), mark.parent()].into_iter().flatten() {
        let synced = File::open(path).and_then(|file| file.sync_all());
        synced.map_err(CheckoutError::io("write to the disk", path))?;
    }
    Ok(())
}

/// Gives the coordinator's repositories of a project to the keeper. From the first change of an
/// owner to the last one, the mark [`HANDOVER`] is beside them. The folder `keep.git` comes last:
/// until then root is the keeper. Blocks.
///
/// # Errors
/// `NoRoom`, before anything changes, for copies of the files that have a second name. `Refused` if
/// an entry cannot be given. If others were given before it, the mark stays.
fn hand_over(place: &Place, keeper: Owner) -> Result<(), CheckoutError> {
    let folders = given_folders(place);
    let mut shared = Vec::new();
    for folder in &folders {
        each_not_given(folder, keeper, &mut |path, found| {
            if found.is_file() && found.nlink() > 1 {
                shared.push((path.to_owned(), found.len()));
            }
            Ok(())
        })?;
    }
    replace_shared(&place.project, shared, || n_free(&place.project), |_| ())?;
    let mark = place.project.join(HANDOVER);
    let mut has_begun = mark.symlink_metadata().is_ok();
    if !has_begun {
        write_mark(&mark, keeper)?;
    }
    for folder in &folders {
        each_not_given(folder, keeper, &mut |path, found| {
            // The group of what is lent is that of its user. Old clones of root need that of the
            // keep repository.
            let gid = (found.gid() == 0 && path != place.keep()).then_some(keeper.gid);
            if let Err(error) = lchown(path, Some(keeper.uid), gid) {
                if !has_begun {
                    let _ = std::fs::remove_file(&mark);
                }
                return Err(refuse_entry(path, keeper, &error));
            }
            has_begun = true;
            crash_point::reach(CrashPoint::EntryHandedOver);
            Ok(())
        })?;
    }
    close(place)?;
    if place.keeper().is_none_or(|owner| owner.uid != keeper.uid) {
        return Err(refuse_entry(&place.keep(), keeper, &"its owner stayed the same"));
    }
    std::fs::remove_file(&mark).map_err(CheckoutError::io("remove", &mark))
}

/// Returns the error for an entry that cannot be given to the keeper.
fn refuse_entry(path: &Path, keeper: Owner, error: &dyn Display) -> CheckoutError {
    CheckoutError::Refused(format!(
        "`{}` cannot be given to the user with id {}: {error}; remove what prevents it, such as \
         `chattr +i`",
        path.display(),
        keeper.uid
    ))
}

/// Returns the folders that the keeper gets, the keep repository as the last one.
fn given_folders(place: &Place) -> Vec<PathBuf> {
    let lent = names_in(&place.project).into_iter().filter(|name| name.starts_with(LENT));
    lent.map(|name| place.project.join(name)).chain([place.keep()]).collect()
}

/// Returns an entry of what is to go to the keeper that leads to something elsewhere, and what it
/// is. Blocks.
fn find_obstacle(
    place: &Place,
    keeper: Owner,
) -> Result<Option<(PathBuf, &'static str)>, CheckoutError> {
    let project = &place.project;
    let disk = project.metadata().map_err(CheckoutError::io("read", project))?.dev();
    let mut obstacle = None;
    for folder in given_folders(place) {
        let alternates = folder.join("objects/info/alternates");
        each_not_given(&folder, keeper, &mut |path, found| {
            let reason = if !found.is_dir() && !found.is_file() {
                "is neither a folder nor a regular file"
            } else if found.is_dir() && found.dev() != disk {
                "is on another disk than the folder of the project"
            } else if path == alternates && found.len() > 0 {
                "names other folders with objects"
            } else {
                return Ok(());
            };
            obstacle = Some((path.to_owned(), reason));
            Ok(())
        })?;
    }
    Ok(obstacle)
}

/// Calls `work` with each entry that the keeper does not have, a folder after all that is in it.
fn each_not_given(
    path: &Path,
    keeper: Owner,
    work: &mut dyn FnMut(&Path, &Metadata) -> Result<(), CheckoutError>,
) -> Result<(), CheckoutError> {
    let found = path.symlink_metadata().map_err(CheckoutError::io("read", path))?;
    if found.uid() == keeper.uid {
        return Ok(());
    }
    if found.is_dir() {
        for entry in path.read_dir().map_err(CheckoutError::io("read", path))? {
            let entry = entry.map_err(CheckoutError::io("read", path))?;
            each_not_given(&entry.path(), keeper, work)?;
        }
    }
    work(path, &found)
}

/// Returns the files in a folder of objects that have a second name or another owner than the
/// daemon's user and the keeper, with their sizes in bytes. Blocks.
fn shared_files(
    objects: &Path,
    keeper: Option<Owner>,
) -> Result<Vec<(PathBuf, u64)>, CheckoutError> {
    let own_uid = rustix::process::geteuid().as_raw();
    let is_own = |uid| uid == own_uid || keeper.is_some_and(|keeper| keeper.uid == uid);
    let mut shared = Vec::new();
    for folder in names_in(objects).into_iter().map(|name| objects.join(name)) {
        for file in names_in(&folder).into_iter().map(|name| folder.join(name)) {
            let found = file.symlink_metadata().map_err(CheckoutError::io("read", &file))?;
            if found.is_file() && (found.nlink() > 1 || !is_own(found.uid())) {
                shared.push((file, found.len()));
            }
        }
    }
    Ok(shared)
}

/// Returns the name of a copy until it is whole. The folder of the file is as closed as the file.
fn new_copy(file: &Path) -> PathBuf {
    file.with_file_name(".new-copy")
}

/// Replaces files in `folder` that another user can change by copies, if the disk has room for all
/// of them. Calls `note` before each one. Returns their paths. Blocks.
fn replace_shared(
    folder: &Path,
    shared: Vec<(PathBuf, u64)>,
    n_free: impl Fn() -> Option<u64>,
    note: impl Fn(Copying),
) -> Result<Vec<PathBuf>, CheckoutError> {
    for (file, _) in &shared {
        // An attempt that was killed may have left it, and it takes room.
        let _ = std::fs::remove_file(new_copy(file));
    }
    let is_copied = |(file, _): &&(PathBuf, u64)| !can_share(file);
    let n_bytes: u64 = shared.iter().filter(is_copied).map(|(_, n_bytes)| n_bytes).sum();
    check_room(folder, n_bytes, n_free())?;
    replace_by_copies(shared, note)
}

/// Returns whether a copy of a file can share its content and needs no room, as on btrfs and XFS.
/// [`std::fs::copy`] makes such copies there. Tries it with a new file, and removes that.
fn can_share(file: &Path) -> bool {
    let new = new_copy(file);
    let make = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    let shared = File::open(file).and_then(|from| files::share(&from, &make()?));
    let _ = std::fs::remove_file(&new);
    shared.is_ok()
}

/// Checks that there is room in `folder` for copies of so many bytes, so that nothing changes
/// without it.
fn check_room(folder: &Path, n_bytes: u64, n_free: Option<u64>) -> Result<(), CheckoutError> {
    match n_free.filter(|n_free| *n_free < n_bytes) {
        None => Ok(()),
        Some(n_free) => Err(CheckoutError::NoRoom(format!(
            "`{}` has files that other users can change; their replacement copies {n_bytes} bytes, \
             but only {n_free} are free; make room on that disk",
            folder.display()
        ))),
    }
}

/// Replaces each such file by a copy. Returns their paths. Blocks.
fn replace_by_copies(
    shared: Vec<(PathBuf, u64)>,
    note: impl Fn(Copying),
) -> Result<Vec<PathBuf>, CheckoutError> {
    let n_all = shared.iter().map(|(_, n_bytes)| n_bytes).sum();
    let mut n_copied = 0;
    let mut copied = Vec::new();
    for (file, n_bytes) in shared {
        note(Copying { n_copied, n_all });
        let new = new_copy(&file);
        let made = std::fs::copy(&file, &new).and_then(|_| File::open(&new)?.sync_all());
        if made.is_err() {
            // The next attempt may be late, and a full disk holds up others.
            let _ = std::fs::remove_file(&new);
        }
        made.map_err(CheckoutError::io("copy", &file))?;
        rename(&new, &file)?;
        crash_point::reach(CrashPoint::PackCopied);
        n_copied += n_bytes;
        copied.push(file);
    }
    Ok(copied)
}

/// Gives the files and folders of root in a repository and its work tree to the owner, as far as
/// all users may read them. Returns the other entries of root. Blocks.
fn give_back(top: &Path, owner: Owner) -> Result<Vec<PathBuf>, CheckoutError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let failed = |error: Errno| CheckoutError::io("open", top)(error.into());
    // The owner may have put another folder on the way, but only one that is its own counts.
    let opened =
        run_as(Some(owner), || rustix::fs::open(top, flags, Mode::empty()).map_err(failed))?;
    let mut giver = Giver { owner, left: Vec::new() };
    if rustix::fs::fstat(&opened).map_err(failed)?.st_uid == owner.uid {
        giver.look(opened.as_fd(), top)?;
    }
    Ok(giver.left)
}

struct Giver {
    owner: Owner,
    left: Vec<PathBuf>,
}

impl Giver {
    fn look(&mut self, folder: BorrowedFd<'_>, path: &Path) -> Result<(), CheckoutError> {
        let entries = Dir::read_from(folder)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| CheckoutError::io("read", path)(error.into()))?;
        for entry in entries {
            let name = entry.file_name();
            if ![c".", c".."].contains(&name) {
                let below = path.join(OsStr::from_bytes(name.to_bytes()));
                if self.look_at(folder, name, &below).is_err() {
                    self.left.push(below);
                }
            }
        }
        Ok(())
    }

    fn look_at(&mut self, folder: BorrowedFd<'_>, name: &CStr, path: &Path) -> io::Result<()> {
        if path.components().count() > MAX_DEPTH {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        let uid = Uid::from_raw(self.owner.uid);
        let gid = Gid::from_raw(self.owner.gid);
        let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let opened = match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => beneath::open_folder(folder, name)?,
            FileType::RegularFile if found.st_uid == 0 => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                openat(folder, name, flags, Mode::empty())?
            }
            _ => {
                self.left.extend((found.st_uid == 0).then(|| path.to_owned()));
                return Ok(());
            }
        };
        // Another entry may have this name by now, so only the opened one counts.
        let found = rustix::fs::fstat(&opened)?;
        let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        if found.st_uid == 0 {
            // A file that its new owner could not read may be root's own.
            let is_given = if is_folder {
                found.st_mode & 0o005 == 0o005
            } else {
                found.st_nlink == 1 && found.st_mode & 0o004 != 0
            };
            if !is_given {
                self.left.push(path.to_owned());
                return Ok(());
            }
            fchown(&opened, Some(uid), Some(gid))?;
            crash_point::reach(CrashPoint::EntryGiven);
        }
        if is_folder { self.look(opened.as_fd(), path).map_err(io::Error::other) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
