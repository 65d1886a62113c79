//! Mends what version 0.1.0 left, once for each project.
//!
//! That version ran git as root in the repositories of people, and linked their packs into the keep
//! repository. Files of root in a source keep its owner from working there. A pack with a second
//! name can be overwritten by the owner of that name.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Uid, fchown, openat, statat};

use super::objects::names_in;
use super::rights::Owner;
use super::source::Source;
use super::{CheckoutError, Checkouts, Place, blocking, make_folder, remove_folder, rename, write};
use crate::sys::beneath;

/// The file of a keep repository that says that nothing is to be mended.
pub(super) const MENDED: &str = "mended";
/// The most entries that are named in the log.
const MAX_NAMED: usize = 20;

impl Checkouts {
    /// Mends what version 0.1.0 left of a project, unless that was done. Ends in the same state after
    /// a crash. The caller has the lock of the project.
    ///
    /// # Errors
    /// Nothing is lost then, and the next attempt goes on.
    pub(super) async fn mend(&self, source: &Source, place: &Place) -> Result<(), CheckoutError> {
        let keep = place.keep();
        let mark = keep.join(MENDED);
        if mark.exists() || !keep.join("HEAD").is_file() {
            return Ok(());
        }
        self.copy_linked_packs(&keep).await.map_err(|error| self.name_full_disk(error))?;
        if let Some(owner) = source.owner {
            let (top, common) = (source.top.clone(), source.common.clone());
            let is_bare = source.is_bare;
            let left = blocking(move || give_back(&top, &common, is_bare, owner)).await?;
            if !left.is_empty() {
                let shown: Vec<String> =
                    left.iter().take(MAX_NAMED).map(|path| path.display().to_string()).collect();
                tracing::warn!(
                    entries = ?shown, n_entries = left.len(), uid = owner.uid,
                    "entries of root stay in a project's repository; look at them, and run chown"
                );
            }
        }
        write(&mark, b"")
    }

    /// Replaces each pack of a keep repository that has a second name by a copy.
    async fn copy_linked_packs(&self, keep: &Path) -> Result<(), CheckoutError> {
        let packs = keep.join("objects/pack");
        let copies = keep.join("objects/.copies");
        let is_linked = |name: &String| {
            let found = packs.join(name).symlink_metadata();
            found.is_ok_and(|found| found.is_file() && found.nlink() > 1)
        };
        let linked: Vec<String> = names_in(&packs).into_iter().filter(is_linked).collect();
        for pack in linked.iter().filter(|name| name.ends_with(".pack")) {
            remove_folder(&copies)?;
            make_folder(&copies)?;
            let stem = pack.trim_end_matches(".pack");
            let names: Vec<String> =
                names_in(&packs).into_iter().filter(|name| name.starts_with(stem)).collect();
            for name in &names {
                let (from, to) = (packs.join(name), copies.join(name));
                let copy = move || {
                    std::fs::copy(&from, &to).map_err(CheckoutError::io("copy", &from))?;
                    File::open(&to)
                        .and_then(|file| file.sync_all())
                        .map_err(CheckoutError::io("write", &to))
                };
                blocking(copy).await?;
            }
            let index = copies.join(stem).with_extension("idx");
            let check = [OsStr::new("verify-pack"), index.as_os_str()];
            self.git.on(keep, check).long().run().await?;
            // Git looks for the index, so the pack comes first.
            for name in names
                .iter()
                .filter(|name| *name == pack)
                .chain(names.iter().filter(|name| *name != pack))
            {
                rename(&copies.join(name), &packs.join(name))?;
            }
        }
        remove_folder(&copies)
    }
}

/// Gives the files and folders of root in a repository and its work tree to the owner: folders, and
/// files with one name that all users may read. Returns the other entries of root. Blocks.
fn give_back(
    top: &Path,
    common: &Path,
    is_bare: bool,
    owner: Owner,
) -> Result<Vec<PathBuf>, CheckoutError> {
    let mut giver = Giver { owner, left: Vec::new() };
    giver.look_below(common)?;
    if !is_bare {
        giver.look_below(top)?;
    }
    Ok(giver.left)
}

struct Giver {
    owner: Owner,
    left: Vec<PathBuf>,
}

impl Giver {
    fn look_below(&mut self, path: &Path) -> Result<(), CheckoutError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty());
        let folder = folder.map_err(|error| CheckoutError::io("open", path)(error.into()))?;
        self.look(folder.as_fd(), path)
    }

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
        let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let (uid, gid) = (Uid::from_raw(self.owner.uid), Gid::from_raw(self.owner.gid));
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => {
                let inner = beneath::open_folder(folder, name)?;
                if found.st_uid == 0 {
                    fchown(&inner, Some(uid), Some(gid))?;
                }
                self.look(inner.as_fd(), path).map_err(io::Error::other)
            }
            FileType::RegularFile if found.st_uid == 0 => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = openat(folder, name, flags, Mode::empty())?;
                let found = rustix::fs::fstat(&file)?;
                let is_plain = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
                // What its new owner could not read may be root's own.
                if is_plain && found.st_nlink == 1 && found.st_mode & 0o004 != 0 {
                    fchown(&file, Some(uid), Some(gid))?;
                } else {
                    self.left.push(path.to_owned());
                }
                Ok(())
            }
            _ if found.st_uid == 0 => {
                self.left.push(path.to_owned());
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
