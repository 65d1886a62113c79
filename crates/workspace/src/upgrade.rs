//! Mends what version 0.1.0 left, once for each project.
//!
//! That version ran git as root in the repositories of people, and linked their packs into the keep
//! repository. The owner of a repository cannot change the files of root in it, but can overwrite a
//! pack that the keep repository shares.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Uid, fchown, openat, statat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::disk::n_free;
use super::git::GitError;
use super::objects::names_in;
use super::rights::{Owner, run_as};
use super::source::Source;
use super::{CheckoutError, KeepRepositories, Place, Result, blocking, make_folder, rename, write};
use domain::ProjectId;
use domain::attention::WaitingUpgrade;
use domain::printable::bytes;
use machine::crash_point::{self, CrashPoint};
use machine::locks::lock;
use machine::sys::{beneath, files};

/// The file of a keep repository that says that nothing is to be mended, and what was left.
pub(super) const MENDED: &str = "mended";
/// The name of the folder of copies until they are whole. It is as closed as the files, because it
/// is beside them.
const NEW_COPY: &str = ".new-copy";
/// The most names in the path of an entry that is given back.
const MAX_DEPTH: usize = 200;
/// The most entries that are named.
const MAX_NAMED: usize = 20;

/// The entries of root that stay in a repository.
#[derive(Debug, Default, Serialize, Deserialize)]
struct LeftEntries {
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

impl KeepRepositories {
    /// Returns how far the upgrade of a project is; `None` if it copies nothing now.
    pub fn upgrade_progress(&self, project: &ProjectId) -> Option<String> {
        let upgrading = lock(&self.upgrading);
        let Copying { n_copied, n_all } =
            upgrading.get(&self.places.root.join(project.as_str()))?;
        Some(format!("the upgrade has copied {} of {}", bytes(*n_copied), bytes(*n_all)))
    }

    /// Returns the upgrades that wait for room on their disks. One that has room by now does not
    /// wait.
    pub async fn list_waiting_upgrades(&self) -> Vec<WaitingUpgrade> {
        let waiting = lock(&self.waiting).clone();
        let waits = |(project, (folder, n_bytes)): (PathBuf, (PathBuf, u64))| {
            let project = project.file_name()?.to_str()?.parse().ok()?;
            let n_free = n_free(&folder).filter(|n_free| *n_free < n_bytes)?;
            Some(WaitingUpgrade { project, n_bytes, n_free })
        };
        let list = move || Ok(waiting.into_iter().filter_map(waits).collect());
        blocking(list).await.unwrap_or_default()
    }

    /// Notes whether the upgrade of a project waits for room, by the result of its copying.
    pub(super) fn note_room<T>(&self, place: &Place, copied: Result<T>) -> Result<T> {
        match &copied {
            Err(CheckoutError::NoRoomForCopies { folder, n_bytes, .. }) => {
                lock(&self.waiting).insert(place.project.clone(), (folder.clone(), *n_bytes));
            }
            // Another error says nothing about the room.
            Err(_) => {}
            Ok(_) => drop(lock(&self.waiting).remove(&place.project)),
        }
        copied
    }

    /// Returns the upgrades that copy something, or that left something to a person. Blocks.
    pub fn list_upgrades(&self) -> Vec<Upgrade> {
        let mut found = Vec::new();
        for project in names_in(&self.places.root) {
            let folder = self.places.root.join(&project);
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
            let LeftEntries { owner, mut entries } = left.unwrap_or_default();
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
    /// Nothing is lost then, and the next attempt goes on.
    pub(super) async fn mend(&self, source: &Source, place: &Place) -> Result<()> {
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
                let left = LeftEntries { owner: format!("{}:{}", owner.uid, owner.gid), entries };
                text = serde_json::to_vec(&left).unwrap_or_default();
            }
        }
        place.as_keeper(|keep| write(&keep.join(MENDED), text))
    }

    /// Replaces each file with objects of a keep repository of the daemon's own user that another
    /// user can change by a copy. Git checks the copy of a pack before that.
    ///
    /// # Errors
    /// `NoRoomForCopies` before anything changes. `Refused` for a damaged pack, which stays.
    pub(super) async fn copy_linked_objects(&self, place: &Place) -> Result<()> {
        if place.keeper().is_some() {
            return Ok(());
        }
        let copied = self.replace_linked_objects(place).await;
        self.note_room(place, copied.map_err(|error| self.disk.name_full_disk(error)))
    }

    async fn replace_linked_objects(&self, place: &Place) -> Result<()> {
        let objects = place.keep().join("objects");
        let keeper = self.keeper;
        let look = move || {
            // An attempt that was killed may have left copies where all files were replaced.
            for folder in names_in(&objects) {
                remove_copies(&objects.join(folder).join(NEW_COPY));
            }
            let shared = shared_files(&objects, keeper)?;
            with_room(&objects, shared, || n_free(&objects))
        };
        let groups = blocking(look).await?;
        let n_all = groups.iter().map(|files| size_of_all(files)).sum();
        let mut n_copied = 0;
        let progress = Progress { upgrading: &self.upgrading, project: &place.project };
        for files in groups {
            progress.tell(Copying { n_copied, n_all });
            n_copied += size_of_all(&files);
            let (copies, pack) = blocking(move || {
                let copies = Copies::make(files)?;
                let pack = copies.complete_pack()?;
                Ok((copies, pack))
            })
            .await?;
            if let Some(pack) = pack {
                self.check_copy(place, &pack).await?;
            }
            blocking(move || copies.put_in_place()).await?;
        }
        Ok(())
    }

    /// Checks the copy of a pack.
    ///
    /// # Errors
    /// `Refused`, with the name of the pack, if it is damaged.
    async fn check_copy(&self, place: &Place, pack: &Path) -> Result<()> {
        let index = Copies::copy_of(&pack.with_extension("idx"));
        let check = [OsStr::new("verify-pack"), index.as_os_str()];
        match self.git.on(&place.keep(), check).long().run().await {
            Err(error @ GitError::Failed { .. }) => Err(CheckoutError::Refused(format!(
                "the kept pack `{}` is damaged, and stays as it is: {error}; restore it from a \
                 backup",
                pack.display()
            ))),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(()),
        }
    }
}

/// Says how far an upgrade is, as long as it goes on.
struct Progress<'a> {
    upgrading: &'a Mutex<BTreeMap<PathBuf, Copying>>,
    project: &'a Path,
}

impl Progress<'_> {
    fn tell(&self, copying: Copying) {
        lock(self.upgrading).insert(self.project.to_owned(), copying);
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        lock(self.upgrading).remove(self.project);
    }
}

/// Returns the files in a folder of objects that have a second name or another owner than the
/// daemon's user and the keeper, with their sizes in bytes. Blocks.
fn shared_files(objects: &Path, keeper: Option<Owner>) -> Result<Files> {
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

/// Files with their sizes in bytes.
type Files = Vec<(PathBuf, u64)>;

fn size_of_all(files: &[(PathBuf, u64)]) -> u64 {
    files.iter().map(|(_, n_bytes)| n_bytes).sum()
}

fn new_copy(file: &Path) -> PathBuf {
    file.with_file_name(NEW_COPY)
}

/// Replaces files in `folder` that another user can change by copies, if the disk has room for all
/// of them. Blocks.
pub(super) fn replace_shared(
    folder: &Path,
    shared: Files,
    n_free: impl Fn() -> Option<u64>,
) -> Result<()> {
    let groups = with_room(folder, shared, n_free)?;
    groups.into_iter().try_for_each(|files| Copies::make(files)?.put_in_place())
}

/// Returns the files that belong together, such as a pack and its index, if the disk has room for
/// copies of all. Blocks.
fn with_room(
    folder: &Path,
    mut shared: Files,
    n_free: impl Fn() -> Option<u64>,
) -> Result<Vec<Files>> {
    for (file, _) in &shared {
        // An attempt that was killed may have left it, and it takes room.
        remove_copies(&new_copy(file));
    }
    let is_copied = |(file, _): &&(PathBuf, u64)| !can_share(file);
    let n_bytes: u64 = shared.iter().filter(is_copied).map(|(_, n_bytes)| n_bytes).sum();
    check_room(folder, n_bytes, n_free())?;
    shared.sort();
    let stem = |(file, _): &(PathBuf, u64)| file.with_extension("");
    Ok(shared.chunk_by(|one, other| stem(one) == stem(other)).map(<[_]>::to_vec).collect())
}

/// Removes a folder of copies, or the file that an earlier build left in its place.
fn remove_copies(new: &Path) {
    let _ = std::fs::remove_file(new);
    let _ = std::fs::remove_dir_all(new);
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
fn check_room(folder: &Path, n_bytes: u64, n_free: Option<u64>) -> Result<()> {
    match n_free.filter(|n_free| *n_free < n_bytes) {
        None => Ok(()),
        Some(n_free) => {
            Err(CheckoutError::NoRoomForCopies { folder: folder.to_owned(), n_bytes, n_free })
        }
    }
}

/// Copies of files that belong together. They are removed with this: the next attempt may be late,
/// and a full disk holds up others.
struct Copies {
    files: Files,
}

impl Copies {
    /// Copies files of one folder. Blocks.
    fn make(files: Files) -> Result<Self> {
        let copies = Self { files };
        let Some((first, _)) = copies.files.first() else {
            return Ok(copies);
        };
        make_folder(&new_copy(first))?;
        for (file, _) in &copies.files {
            let new = Self::copy_of(file);
            let made = std::fs::copy(file, &new).and_then(|_| File::open(&new)?.sync_all());
            made.map_err(CheckoutError::io("copy", file))?;
        }
        Ok(copies)
    }

    /// Returns the pack, if a part of one was copied. Links its other part beside the copy, because
    /// git checks a pack with its index. Blocks.
    fn complete_pack(&self) -> Result<Option<PathBuf>> {
        let Some((first, _)) = self.files.first() else {
            return Ok(None);
        };
        let parts = ["pack", "idx"].map(|ending| first.with_extension(ending));
        let has_part = self.files.iter().any(|(file, _)| parts.contains(file));
        let is_whole = has_part && parts.iter().all(|part| part.exists());
        if !is_whole {
            return Ok(None);
        }
        for part in &parts {
            let new = Self::copy_of(part);
            if !new.exists() {
                std::fs::hard_link(part, new).map_err(CheckoutError::io("link", part))?;
            }
        }
        let [pack, _] = parts;
        Ok(Some(pack))
    }

    fn copy_of(file: &Path) -> PathBuf {
        new_copy(file).join(file.file_name().unwrap_or_default())
    }

    /// Replaces the files by their copies. Blocks.
    fn put_in_place(&self) -> Result<()> {
        for (file, _) in &self.files {
            rename(&Self::copy_of(file), file)?;
            crash_point::reach(CrashPoint::PackCopied);
        }
        Ok(())
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        if let Some((file, _)) = self.files.first() {
            remove_copies(&new_copy(file));
        }
    }
}

/// Gives the files and folders of root in a repository and its work tree to the owner, as far as
/// all users may read them. Returns the other entries of root. Blocks.
fn give_back(top: &Path, owner: Owner) -> Result<Vec<PathBuf>> {
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
    fn look(&mut self, folder: BorrowedFd<'_>, path: &Path) -> Result<()> {
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
