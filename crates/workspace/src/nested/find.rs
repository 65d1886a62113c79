//! Finds the parts of a workspace that git does not take with the other files.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::FileType;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::{IS_LINK, PARTS, Part, PartKind};
use crate::Place;
use crate::objects::short_hash;
use crate::repository::Repository;
use crate::rights::may_read;
use crate::text::{named_repository, only_line, read_text};

/// The longest file of a name that git refuses, in bytes. It is held in memory while it is taken.
const MAX_FILE: u64 = 64 << 20;

fn size_of(file: &Path) -> u64 {
    file.symlink_metadata().map_or(0, |found| found.len())
}

/// Returns whether git refuses an entry of this name and kind under every setting.
pub(crate) fn is_kept_aside(name: &OsStr, kind: FileType) -> bool {
    let is_like = |other: &[u8]| name.as_bytes().eq_ignore_ascii_case(other);
    (name != ".git" && is_like(b".git")) || (kind.is_symlink() && is_like(b".gitmodules"))
}

/// Returns the places with which the files of the part at `path` are read.
pub(crate) fn part_place(place: &Place, path: &Path) -> Place {
    let name = short_hash(path.as_os_str().as_bytes());
    let folder = place.folder.join(PARTS).join(name);
    Place { folder, tree: place.tree().join(path), ..place.clone() }
}

/// Returns the part that an entry begins, if git does not take the entry with the other files; with
/// the reason if its repository cannot be kept. `path` is relative to `tree`.
pub(crate) fn part_at(
    tree: &Path,
    path: &Path,
    kind: FileType,
) -> Option<(Part, Option<&'static str>)> {
    let name = path.file_name()?;
    if !(kind.is_dir() || kind.is_file() || kind.is_symlink()) {
        return None;
    }
    let aside = if kind.is_dir() { PartKind::Folder } else { PartKind::File };
    if name != ".git" {
        let file = tree.join(path);
        let is_readable = !kind.is_file() || (may_read(&file) && size_of(&file) <= MAX_FILE);
        let part = Part { path: path.to_owned(), kind: aside };
        return (is_kept_aside(name, kind) && is_readable).then_some((part, None));
    }
    if kind.is_file() && read_text(&tree.join(path)).is_none() {
        return None;
    }
    let work_tree = |repository| {
        let path = path.parent().unwrap_or(path).to_owned();
        Part { path, kind: PartKind::WorkTree(repository) }
    };
    Some(match repository_at(tree, path, kind) {
        Ok(Some(repository)) => (work_tree(Some(repository)), None),
        Ok(None) => (Part { path: path.to_owned(), kind: aside }, None),
        Err(reason) => (work_tree(None), Some(reason)),
    })
}

/// Returns the repository that an entry `.git` is or names, with paths relative to `tree`. An
/// entry that git does not take for one is none.
fn repository_at(
    tree: &Path,
    path: &Path,
    kind: FileType,
) -> Result<Option<Repository>, &'static str> {
    if kind.is_symlink() {
        return Err(IS_LINK);
    }
    let inside = |folder: PathBuf| {
        let top = tree.canonicalize().ok()?;
        Some(folder.canonicalize().ok()?.strip_prefix(top).ok()?.to_owned())
    };
    let mut own = path.to_owned();
    if kind.is_file() {
        let text = read_text(&tree.join(path)).unwrap_or_default();
        let Some(named) = named_repository(&text) else {
            return Ok(None);
        };
        let folder = tree.join(path.parent().unwrap_or(path)).join(named);
        if !folder.exists() {
            return Ok(None);
        }
        own = inside(folder).ok_or("the repository that it names is not in the clone")?;
    }
    let kind_of = |path: PathBuf| path.symlink_metadata().ok().map(|found| found.file_type());
    let folder = tree.join(&own);
    let Some(head) = kind_of(folder.join("HEAD")).filter(|kind| !kind.is_dir()) else {
        return Ok(None);
    };
    let common = match read_text(&folder.join("commondir")) {
        Some(named) => inside(folder.join(only_line(&named)))
            .ok_or("the repository that it belongs to is not in the clone")?,
        None => own.clone(),
    };
    let [objects, refs] = ["objects", "refs"].map(|name| kind_of(tree.join(&common).join(name)));
    if objects.is_none() && refs.is_none() {
        return Ok(None);
    }
    if [Some(head), objects, refs].iter().flatten().any(FileType::is_symlink) {
        return Err("a part of it is a link, which is not followed");
    }
    Ok(Some(Repository { own, common }))
}

/// Sorts the parts, and removes those repositories that belong to the work tree of another part.
pub(crate) fn settle(parts: &mut Vec<Part>) {
    let used: BTreeSet<PathBuf> = parts
        .iter()
        .filter_map(|part| match &part.kind {
            PartKind::WorkTree(Some(repository)) => Some(repository.clone()),
            _ => None,
        })
        .flat_map(|Repository { own, common }| [own, common])
        .collect();
    parts.retain(|part| part.kind != PartKind::Repository || !used.contains(&part.path));
    parts.sort_by(|one, other| one.path.cmp(&other.path));
}
