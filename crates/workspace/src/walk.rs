//! Reads which files a workspace has, without following a link.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{DirEntry, FileType, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::nested::{LFS, Part, PartKind, is_kept_aside, part_at};
use super::rights::{is_open_to_others, is_root_here, may_read};
use super::{CheckoutError, Result};

/// The longest path that git and the system accept, in bytes.
const MAX_PATH: usize = 4_095;

/// The files of a work tree that git reads for itself.
const OF_GIT: [&str; 3] = [".gitignore", ".gitattributes", ".gitmodules"];

/// The largest of these files, in bytes. Git holds them in memory.
const MAX_OF_GIT: u64 = 100 << 20;

/// The findings of a walk.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// A mark of the names, kinds, sizes, times and inodes of all entries. It differs when a file
    /// has changed.
    pub(super) digest: String,
    /// The space that all entries use, in bytes.
    pub(super) disk_bytes: u64,
    /// Entries that cannot be kept, relative to the tree, each with the reason.
    pub(super) left_out: Vec<(PathBuf, &'static str)>,
    /// The parts that git does not take with the other files, by path: each is before the parts
    /// in it.
    pub(super) parts: Vec<Part>,
}

/// Walks through `tree`, also through its `.git`.
///
/// # Errors
/// `tree` itself is unreadable.
pub(super) fn walk(tree: &Path) -> Result<Walk> {
    let mut walker = Walker { found: Walk::default(), hash: Sha256::new() };
    for (name, found) in read_entries(tree).map_err(CheckoutError::io("read", tree))? {
        walker.look(tree, Path::new(&name), found, name == ".git");
    }
    let Walker { mut found, hash } = walker;
    super::nested::settle(&mut found.parts);
    found.digest = URL_SAFE_NO_PAD.encode(hash.finalize());
    Ok(found)
}

/// Returns the entries that git cannot take, each with the reason. Does not look at the `.git` at
/// the top, nor below the folders `skipped`, which are relative to `tree`.
///
/// # Errors
/// `tree` itself is unreadable.
pub(super) fn find_refused(
    tree: &Path,
    skipped: &BTreeSet<PathBuf>,
) -> Result<Vec<(PathBuf, &'static str)>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    let read = |folder: &Path| std::fs::read_dir(tree.join(folder));
    read(Path::new("")).map_err(CheckoutError::io("read", tree))?;
    while let Some(folder) = folders.pop() {
        let Ok(entries) = read(&folder) else {
            found.push((folder, "the folder cannot be read"));
            continue;
        };
        for entry in entries.flatten() {
            let path = folder.join(entry.file_name());
            let Ok(kind) = entry.file_type() else {
                found.push((path, "it cannot be read"));
                continue;
            };
            if path == Path::new(".git") || skipped.contains(&path) {
                continue;
            }
            match refusal(tree, &path, kind) {
                Some(reason) => found.push((path, reason)),
                None if kind.is_dir()
                    && entry.metadata().is_ok_and(|it| is_open_to_others(&it)) =>
                {
                    found.push((path, "another user can change it, and root reads nothing there"));
                }
                None if kind.is_dir() => folders.push(path),
                None => {}
            }
        }
    }
    Ok(found)
}

/// Finds the files of git that git cannot read: pipes, for which it would wait, and those that are
/// larger than [`MAX_OF_GIT`]. Returns their paths in `tree`, each with the reason, which
/// continues a sentence.
pub(super) fn find_unreadable(tree: &Path) -> Vec<(PathBuf, &'static str)> {
    let mut unreadable = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(tree.join(&folder)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() && name != ".git" {
                folders.push(folder.join(name));
                continue;
            }
            if OF_GIT.into_iter().all(|other| name != other) {
                continue;
            }
            let is_large = || entry.metadata().is_ok_and(|found| found.len() > MAX_OF_GIT);
            if kind.is_fifo() || kind.is_char_device() || kind.is_block_device() {
                unreadable.push((folder.join(name), "is a pipe, for which git would wait"));
            } else if kind.is_file() && is_large() {
                unreadable.push((folder.join(name), "is larger than git can read (100 MiB)"));
            }
        }
    }
    unreadable
}

/// Returns the first folder of a tree that another user can change, while root reads or writes
/// there.
pub(super) fn find_open(tree: &Path) -> Option<PathBuf> {
    if !is_root_here() {
        return None;
    }
    let mut folders = vec![tree.to_owned()];
    while let Some(folder) = folders.pop() {
        if folder.symlink_metadata().is_ok_and(|found| is_open_to_others(&found)) {
            return Some(folder);
        }
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.extend(below.filter(|entry| entry.file_name() != ".git").map(|it| it.path()));
    }
    None
}

/// Returns the path of `folder` in a work tree, if it is in there. The work tree itself is not.
pub(super) fn path_within(folder: &Path, tree: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let path = folder.strip_prefix(tree.canonicalize().ok()?).ok()?;
    Some(path.to_owned()).filter(|path| !path.as_os_str().is_empty())
}

/// Returns the reason for which git cannot take an entry that is not in the repository itself.
fn refusal(tree: &Path, path: &Path, kind: FileType) -> Option<&'static str> {
    let name = path.file_name().unwrap_or_default();
    if path.as_os_str().len() > MAX_PATH {
        Some("its path is too long")
    } else if kind.is_socket() {
        Some("it is a socket")
    } else if !(kind.is_dir() || kind.is_file() || kind.is_symlink()) {
        Some("it is a special file")
    } else if kind.is_file() && !may_read(&tree.join(path)) {
        Some("it cannot be read")
    } else if name == ".git" {
        Some("it is a repository inside the repository")
    } else if is_kept_aside(name, kind) {
        Some("git allows no file of this name")
    } else {
        None
    }
}

struct Walker {
    found: Walk,
    hash: Sha256,
}

impl Walker {
    /// Looks at one entry, and at all that is below it. In the `.git` of a repository, all names
    /// are allowed.
    fn look(&mut self, tree: &Path, path: &Path, found: io::Result<Metadata>, is_own_git: bool) {
        if path.as_os_str().len() > MAX_PATH {
            return self.leave_out(path, "its path is too long");
        }
        let Ok(found) = found else {
            return self.leave_out(path, "it cannot be read");
        };
        self.found.disk_bytes += found.blocks() * 512;
        self.hash.update(path.as_os_str().as_bytes());
        self.hash.update([0]);
        for number in [
            i64::from(found.mode()),
            found.size().cast_signed(),
            found.ino().cast_signed(),
            found.mtime(),
            found.mtime_nsec(),
            found.ctime(),
            found.ctime_nsec(),
        ] {
            self.hash.update(number.to_le_bytes());
        }
        let kind = found.file_type();
        let mut is_git = is_own_git;
        if path == ".git" && !kind.is_dir() {
            self.leave_out(path, "it is not the repository, but a link or a file");
        } else if !is_own_git && let Some((part, reason)) = part_at(tree, path, kind) {
            is_git = matches!(part.kind, PartKind::WorkTree(Some(_)));
            self.found.parts.push(part);
            if let Some(reason) = reason {
                self.leave_out(path, reason);
            }
        } else if !is_own_git && let Some(reason) = refusal(tree, path, kind) {
            self.leave_out(path, reason);
        }
        if !kind.is_dir() {
            return;
        }
        match read_entries(&tree.join(path)) {
            Ok(entries) => {
                let has = |name: &str| entries.iter().any(|(other, _)| other == name);
                if is_own_git && path != ".git" && has("HEAD") && has("objects") {
                    let kind = PartKind::Repository;
                    self.found.parts.push(Part { path: path.to_owned(), kind });
                }
                if is_own_git && path.ends_with(LFS) {
                    let kind = PartKind::Folder;
                    self.found.parts.push(Part { path: path.to_owned(), kind });
                }
                for (name, found) in entries {
                    self.look(tree, &path.join(name), found, is_git);
                }
            }
            Err(_) => self.leave_out(path, "the folder cannot be read"),
        }
    }

    fn leave_out(&mut self, path: &Path, reason: &'static str) {
        self.found.left_out.push((path.to_owned(), reason));
    }
}

/// Returns the entries of a folder, by name. Each is looked at from the open folder, which is
/// faster than by its path.
fn read_entries(folder: &Path) -> io::Result<Vec<(OsString, io::Result<Metadata>)>> {
    let look = |entry: DirEntry| (entry.file_name(), entry.metadata());
    let entries: io::Result<Vec<_>> =
        std::fs::read_dir(folder)?.map(|entry| entry.map(look)).collect();
    let mut entries = entries?;
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_git_would_wait_for_or_hold_in_memory_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path();
        let pipe = |path: &str| {
            nix::unistd::mkfifo(&tree.join(path), nix::sys::stat::Mode::S_IRWXU).unwrap();
        };
        for below in ["a/b", ".git", "c/.gitmodules"] {
            std::fs::create_dir_all(tree.join(below)).unwrap();
        }
        pipe("a/b/.gitignore");
        // Git reads these by other rules, or not at all.
        pipe("a/other");
        pipe(".git/.gitignore");
        symlink("/dev/zero", tree.join("a/.gitattributes")).unwrap();
        std::fs::write(tree.join(".gitignore"), "*.log\n").unwrap();
        let large = std::fs::File::create(tree.join(".gitattributes")).unwrap();
        large.set_len(MAX_OF_GIT).unwrap();
        let paths = || find_unreadable(tree).into_iter().map(|(path, _)| path);
        assert_eq!(paths().collect::<Vec<_>>(), [Path::new("a/b/.gitignore")]);
        large.set_len(MAX_OF_GIT + 1).unwrap();
        let mut found = find_unreadable(tree);
        found.sort();
        assert_eq!(found[0], (".gitattributes".into(), "is larger than git can read (100 MiB)"));
        assert!(found[1].1.starts_with("is a pipe"), "{found:?}");
        assert_eq!(found.len(), 2);
    }
}
