//! Finds a file by the names below a folder in which others may write.
//!
//! No link below the folder is followed, and only regular files are opened. All functions block.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, Mode, OFlags};

use super::{beneath, regular_file};

/// The most entries of folders that one search looks at.
const MOST: usize = 100_000;

/// Opens the file to which `names` lead from `folder`, and returns its path from there. A name may
/// have one star, which stands for any text. Of several files, the one with the greatest name is
/// opened. `None` if there is none, also if a folder cannot be read.
pub fn find(folder: &Path, names: &[String]) -> Option<(PathBuf, File)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top: OwnedFd = rustix::fs::open(folder, flags, Mode::empty()).ok()?;
    let mut left = MOST;
    search(top.as_fd(), names, &mut left)
}

fn search(folder: BorrowedFd<'_>, names: &[String], left: &mut usize) -> Option<(PathBuf, File)> {
    let (name, rest) = names.split_first()?;
    let candidates = match name.split_once('*') {
        None => vec![CString::new(name.as_str()).ok()?],
        Some((start, end)) => entries(folder, start.as_bytes(), end.as_bytes(), left),
    };
    candidates.iter().find_map(|name| {
        let path = path_of(name);
        if rest.is_empty() {
            return Some((path.to_owned(), regular_file::open_at(folder, path).ok()?));
        }
        let inner = beneath::open_folder(folder, name).ok()?;
        let (below, file) = search(inner.as_fd(), rest, left)?;
        Some((path.join(below), file))
    })
}

/// Returns the entries of a folder that begin and end like this, the greatest first.
fn entries(folder: BorrowedFd<'_>, start: &[u8], end: &[u8], left: &mut usize) -> Vec<CString> {
    let Ok(dir) = Dir::read_from(folder) else {
        return Vec::new();
    };
    let fits = |name: &CStr| {
        let name = name.to_bytes();
        let inner = name.strip_prefix(start).and_then(|name| name.strip_suffix(end));
        inner.is_some() && name != b"." && name != b".."
    };
    let mut found = Vec::new();
    for entry in dir.map_while(Result::ok) {
        if *left == 0 {
            break;
        }
        *left -= 1;
        if fits(entry.file_name()) {
            found.push(entry.file_name().to_owned());
        }
    }
    found.sort_unstable();
    found.reverse();
    found
}

fn path_of(name: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(name.to_bytes()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[track_caller]
    fn check(folder: &Path, names: &[&str], expected: Option<&str>) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let found = find(folder, &names).map(|(path, _)| path);
        assert_eq!(found.as_deref(), expected.map(Path::new), "{names:?}");
    }

    #[test]
    fn a_file_is_found_by_its_names_and_behind_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["a/x", "b/x", "c/id.txt", "d"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        std::fs::write(path("a/x/1-id.txt"), "").unwrap();
        std::fs::write(path("b/id.txt"), "").unwrap();
        std::fs::write(outside.path().join("id.txt"), "").unwrap();
        symlink(outside.path(), path("e")).unwrap();
        symlink(outside.path().join("id.txt"), path("d/id.txt")).unwrap();
        check(folder.path(), &["b", "id.txt"], Some("b/id.txt"));
        check(folder.path(), &["*", "id.txt"], Some("b/id.txt"));
        check(folder.path(), &["*", "*", "*-id.txt"], Some("a/x/1-id.txt"));
        check(folder.path(), &["c", "id.txt"], None);
        check(folder.path(), &["d", "id.txt"], None);
        check(folder.path(), &["e", "id.txt"], None);
        check(folder.path(), &["none", "*"], None);
        check(&path("none"), &["*"], None);
    }

    #[test]
    fn the_folder_itself_may_be_a_link() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("real")).unwrap();
        std::fs::write(folder.path().join("real/a"), "").unwrap();
        std::fs::write(folder.path().join("real/b"), "").unwrap();
        symlink("real", folder.path().join("link")).unwrap();
        check(&folder.path().join("link"), &["*"], Some("b"));
    }
}
