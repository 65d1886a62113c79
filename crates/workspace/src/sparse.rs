//! Workspaces with the files of some folders only (`workspace.paths`).
//!
//! The repository of such a workspace is a sparse checkout, so the commits of the agent have all
//! files. The daemon's own index has only the files that are there. Files that lack are taken for
//! removed inside the folders, and are taken from the result elsewhere.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::create::{MADE, read_made};
use super::inside::{InTheWay, Inside};
use super::rights::{Owner, blocking_as};
use super::source::entries;
use super::{CheckoutError, Checkouts, Place};
use domain::workspace::{Cone, Prepared};

/// The name of the folders in the tree of a kept commit, beside `refs`.
const KEPT: &str = "git/paths";

impl Checkouts {
    /// Returns the folders of a new workspace. One that comes back has those that it had.
    pub(super) async fn cone_of(
        &self,
        paths: &[String],
        kept: Option<&str>,
        start: Option<&str>,
        place: &Place,
    ) -> Result<Cone, CheckoutError> {
        if let Some(kept) = kept {
            let list = ["ls-tree", "--name-only", "--full-tree", kept, "--", KEPT];
            if self.git.on(&place.keep(), list).text().await?.is_empty() {
                return Ok(Cone::default());
            }
            let blob = format!("{kept}:{KEPT}");
            let text = self.git.on(&place.keep(), ["cat-file", "blob", &blob]).run().await?;
            let paths: Vec<String> = serde_json::from_slice(&text).map_err(|error| {
                CheckoutError::Refused(format!("`{blob}` of the kept commit: {error}"))
            })?;
            return Ok(Cone::new(&paths));
        }
        let cone = Cone::new(paths);
        let Some(start) = start.filter(|_| !cone.is_all()) else {
            return Ok(Cone::default());
        };
        for folder in cone.folders() {
            let tree = format!("{start}:{folder}");
            let kind = self.git.on(&place.keep(), ["cat-file", "-t", &tree]).end().await?;
            if kind.stdout.starts_with(b"tree") {
                return Ok(cone);
            }
        }
        Err(CheckoutError::Refused(format!(
            "`workspace.paths` names no folder of the commit that the work begins at: {}",
            cone.folders().join(", ")
        )))
    }

    /// Makes a new repository a sparse checkout. `own` is its folder `.git`.
    pub(super) async fn make_sparse(
        &self,
        cone: &Cone,
        own: &Path,
        owner: Option<Owner>,
    ) -> Result<(), CheckoutError> {
        if cone.is_all() {
            return Ok(());
        }
        for name in ["core.sparseCheckout", "core.sparseCheckoutCone"] {
            self.git.on(own, ["config", name, "true"]).run_as(owner).run().await?;
        }
        let own = own.to_owned();
        let patterns = cone.patterns();
        blocking_as(owner, move || {
            let file = Path::new("info/sparse-checkout");
            Inside::open(&own)?.write(file, patterns.as_bytes(), 0o644)
        })
        .await
    }

    /// Removes the files that are not there from the daemon's index of a new workspace, and makes
    /// the folder in which the agent begins.
    pub(super) async fn leave_out_absent(
        &self,
        cone: &Cone,
        subdirectory: &str,
        made: &Place,
    ) -> Result<(), CheckoutError> {
        if cone.is_all() {
            return Ok(());
        }
        let tree = made.tree();
        let begins_in = PathBuf::from(subdirectory);
        blocking_as(made.owner, move || {
            Inside::open(&tree)?.make_folder(&begins_in, InTheWay::Refuse).map(drop)
        })
        .await?;
        let index = made.index();
        let on_index = |arguments: &[&str]| {
            let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
            self.on_files(made, &arguments, &index)
        };
        let listed = on_index(&["ls-files", "-t", "-z"])?.run().await?;
        let mut absent = Vec::new();
        for entry in entries(&listed) {
            // The letter S marks what the sparse checkout leaves out.
            if let Some(path) = entry.as_os_str().as_bytes().strip_prefix(b"S ") {
                absent.extend_from_slice(path);
                absent.push(0);
            }
        }
        let forget = ["update-index", "-z", "--force-remove", "--stdin"];
        on_index(&forget)?.input(absent).run().await?;
        Ok(())
    }

    /// Returns the tree `visible` of the files that are there, with those files of `result` that the
    /// sparse checkout leaves out.
    pub(super) async fn with_absent(
        &self,
        cone: &Cone,
        visible: String,
        result: Option<&str>,
        place: &Place,
    ) -> Result<String, CheckoutError> {
        let Some(result) = result.filter(|_| !cone.is_all()) else {
            return Ok(visible);
        };
        let list = |tree: String| {
            let arguments = ["ls-tree", "-r", "-z", "--full-tree", &tree].map(OsStr::new);
            self.git.on(&place.keep(), arguments).long().run()
        };
        let here = list(visible.clone()).await?;
        let here: BTreeSet<&[u8]> = entries(&here).filter_map(path_of).collect();
        let all = list(result.to_owned()).await?;
        let mut changes = Vec::new();
        for entry in entries(&all) {
            // One that is there, but ignored, is taken as it is, and so is a submodule.
            let is_submodule = entry.as_os_str().as_bytes().starts_with(b"160000 ");
            let is_there = |path: &[u8]| {
                let found = place.tree().join(OsStr::from_bytes(path)).symlink_metadata();
                found.is_ok_and(|found| is_submodule || !found.is_dir())
            };
            let is_absent =
                |path: &[u8]| !cone.contains(path) && is_free(path, &here) && !is_there(path);
            if path_of(entry).is_some_and(is_absent) {
                changes.extend_from_slice(entry.as_os_str().as_bytes());
                changes.push(0);
            }
        }
        if changes.is_empty() {
            return Ok(visible);
        }
        self.tree_with(place, &visible, changes).await
    }

    /// Returns the entry of the tree `git` of a kept commit that names the folders.
    pub(super) async fn paths_entry(
        &self,
        cone: &Cone,
        place: &Place,
    ) -> Result<String, CheckoutError> {
        let mut entry = String::new();
        if !cone.is_all() {
            let text = serde_json::to_vec(cone.folders()).unwrap_or_default();
            let write = ["hash-object", "-w", "--stdin"];
            let blob = self.git.on(&place.keep(), write).input(text).text().await?;
            let _ = writeln!(entry, "100644 blob {blob}\tpaths");
        }
        Ok(entry)
    }
}

/// The index for the tree with the files that are not there, which earlier versions left in the
/// folder of a workspace.
pub(super) const ABSENT: &str = "index-absent";
pub(super) const ABSENT_LOCK: &str = "index-absent.lock";

/// The facts in the file [`MADE`].
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Made {
    #[serde(flatten)]
    pub(super) prepared: Prepared,
    /// The folders of a sparse checkout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    paths: Vec<String>,
    /// The daemon's index had no submodules from the beginning. Earlier versions left them there.
    #[serde(default)]
    pub(super) has_no_gitlinks: bool,
    /// The commits of the branches of the source at that time; `None` if they were not noted.
    #[serde(default)]
    pub(super) begun: Option<BTreeSet<String>>,
}

impl Made {
    pub(super) fn new(prepared: &Prepared, cone: &Cone, begun: Option<BTreeSet<String>>) -> Self {
        let paths = cone.folders().to_vec();
        Self { prepared: prepared.clone(), paths, has_no_gitlinks: true, begun }
    }
}

/// Returns the folders of a workspace that was made. Without the file that names them, it is kept as
/// one with all files: that loses nothing.
pub(super) fn cone_at(place: &Place) -> Result<Cone, CheckoutError> {
    if !place.folder.join(MADE).exists() {
        return Ok(Cone::default());
    }
    Ok(Cone::new(&read_made(place)?.paths))
}

/// Returns the path in an entry that `git ls-tree` printed.
fn path_of(entry: &Path) -> Option<&[u8]> {
    let entry = entry.as_os_str().as_bytes();
    let tab = entry.iter().position(|byte| *byte == b'\t')?;
    entry.get(tab + 1..)
}

/// Returns whether neither `path` nor a folder above or a file below it is one of `here`.
fn is_free(path: &[u8], here: &BTreeSet<&[u8]>) -> bool {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let mut above = slashes.filter_map(|(at, _)| path.get(..at));
    if here.contains(path) || above.any(|folder| here.contains(folder)) {
        return false;
    }
    let below = [path, b"/"].concat();
    let next = here.range::<&[u8], _>(below.as_slice()..).next();
    next.is_none_or(|next| !next.starts_with(&below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_lacks_takes_no_place_of_another_one() {
        let here: BTreeSet<&[u8]> = [&b"a"[..], b"d/e/f", b"d-x"].into();
        for free in [&b"b"[..], b"d/g", b"d/e/g", b"dd/x"] {
            assert!(is_free(free, &here), "{free:?}");
        }
        for taken in [&b"a"[..], b"a/b", b"d", b"d/e", b"d/e/f/g"] {
            assert!(!is_free(taken, &here), "{taken:?}");
        }
    }
}
