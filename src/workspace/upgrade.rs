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
use rustix::io::Errno;

use super::objects::names_in;
use super::rights::{Owner, run_as};
use super::source::Source;
use super::{CheckoutError, Checkouts, Place, blocking, make_folder, remove_folder, rename, write};
use crate::sys::beneath;

/// The file of a keep repository that says that nothing is to be mended.
pub(super) const MENDED: &str = "mended";
/// The most entries that are named in the log.
const MAX_NAMED: usize = 20;

impl Checkouts {
    /// Mends what version 0.1.0 left of a project, unless that was done. Ends in the same state
    /// after a crash. The caller has the lock of the project.
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
            let top = source.top.clone();
            let left = blocking(move || give_back(&top, owner)).await?;
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
        let is_pack = |name: &&String| Path::new(name).extension() == Some(OsStr::new("pack"));
        for pack in linked.iter().filter(is_pack) {
            remove_folder(&copies)?;
            make_folder(&copies)?;
            let stem = pack.trim_end_matches(".pack");
            let names: Vec<String> =
                names_in(&packs).into_iter().filter(|name| name.starts_with(stem)).collect();
            for name in &names {
                let from = packs.join(name);
                let to = copies.join(name);
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
            if let Err(error) = self.git.on(keep, check).long().run().await {
                // A copy of what is damaged mends nothing.
                tracing::error!(%pack, %error, "a kept pack is damaged; restore it from a backup");
                continue;
            }
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
            // What its new owner could not read may be root's own.
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
        }
        if is_folder { self.look(opened.as_fd(), path).map_err(io::Error::other) } else { Ok(()) }
    }
}
