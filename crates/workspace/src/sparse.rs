//! Workspaces with the files of some folders only.
//!
//! A hook chooses the folders in a new workspace, by `git sparse-checkout set`. The commits of the
//! agent have all files. The daemon's own index has only files that are there. Files that lack
//! are taken for removed inside the folders, and are taken from the result elsewhere.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::create::{MADE, read_made};
use super::inside::{InTheWay, Inside};
use super::rights::{Owner, blocking_as};
use super::source::entries;
use super::text::{read_text, value_of};
use super::{CheckoutError, Clones, Place, Result, WorkFiles, write};
use domain::workspace::{Cone, Prepared};

/// The name of the folders in the tree of a kept commit, beside `refs`.
const KEPT: &str = "git/paths";

impl WorkFiles {
    /// Returns the folders that the work had when it was kept. Other new workspaces have all.
    pub(super) async fn kept_cone(&self, kept: Option<&str>, place: &Place) -> Result<Cone> {
        let Some(kept) = kept else {
            return Ok(Cone::default());
        };
        let list = ["ls-tree", "--name-only", "--full-tree", kept, "--", KEPT];
        if self.git.on(&place.keep(), list).text().await?.is_empty() {
            return Ok(Cone::default());
        }
        let blob = format!("{kept}:{KEPT}");
        let text = self.git.on(&place.keep(), ["cat-file", "blob", &blob]).run().await?;
        let paths: Vec<String> = serde_json::from_slice(&text).map_err(|error| {
            CheckoutError::Refused(format!("`{blob}` of the kept commit: {error}"))
        })?;
        Ok(Cone::new(&paths))
    }

    /// Returns the tree `visible` of the files that are there, with those files of `result` that the
    /// sparse checkout leaves out.
    pub(super) async fn with_absent(
        &self,
        cone: &Cone,
        visible: String,
        result: Option<&str>,
        place: &Place,
    ) -> Result<String> {
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
        self.git.tree_with(place, &visible, changes).await
    }
}

impl Clones {
    /// Makes a new repository a sparse checkout. `own` is its folder `.git`.
    pub(super) async fn make_sparse(
        &self,
        cone: &Cone,
        own: &Path,
        owner: Option<Owner>,
    ) -> Result<()> {
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

    /// Returns the entry of the tree `git` of a kept commit that names the folders.
    pub(super) async fn paths_entry(&self, cone: &Cone, place: &Place) -> Result<String> {
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
    pub(super) paths: Vec<String>,
    /// The daemon's index had no submodules from the beginning. Earlier versions left them there.
    #[serde(default)]
    pub(super) has_no_gitlinks: bool,
    /// The commits of the branches of the source at that time; `None` if they were not noted.
    #[serde(default)]
    pub(super) begun: Option<BTreeSet<String>>,
}

/// Notes the folders that a hook chose in a new workspace, which no agent has used yet.
///
/// # Errors
/// `Refused` if it chose files by patterns: they cannot be told from files that are removed.
pub(super) async fn note_cone(place: &Place) -> Result<()> {
    let own = place.tree().join(".git");
    let found = blocking_as(place.owner, move || Ok(read_cone(&own))).await?;
    let Some(cone) = found else {
        return Err(CheckoutError::Refused(
            "the hook `after_create` made a sparse checkout that cannot be kept; name up to 100 \
             folders, as in `git sparse-checkout set FOLDER`"
                .to_owned(),
        ));
    };
    let made = Made { paths: cone.folders().to_vec(), ..read_made(place)? };
    if !cone.is_all() {
        make_beginning(&made.prepared.subdirectory, place).await?;
    }
    write(&place.folder.join(MADE), serde_json::to_vec(&made).unwrap_or_default())
}

/// Makes the folder in which the agent begins. No folder of the cone may contain it.
pub(super) async fn make_beginning(subdirectory: &str, made: &Place) -> Result<()> {
    let tree = made.tree();
    let begins_in = PathBuf::from(subdirectory);
    blocking_as(made.owner, move || {
        Inside::open(&tree)?.make_folder(&begins_in, InTheWay::Refuse).map(drop)
    })
    .await
}

/// Reads the folders of a repository as text, because a hook has written there. `None` for a sparse
/// checkout by other patterns.
fn read_cone(own: &Path) -> Option<Cone> {
    let is_sparse = |file: &str| {
        let text = read_text(&own.join(file))?;
        value_of(&text, "core", "sparseCheckout").map(|value| value == "true")
    };
    // Git writes the setting for one work tree, which comes before that of the repository.
    if !is_sparse("config.worktree").or_else(|| is_sparse("config")).unwrap_or(false) {
        return Some(Cone::default());
    }
    Cone::from_patterns(&read_text(&own.join("info/sparse-checkout"))?)
}

/// Returns the folders of a workspace that was made. Without the file that names them, it is kept as
/// one with all files: that loses nothing.
pub(super) fn cone_at(place: &Place) -> Result<Cone> {
    Ok(find_made(place)?.map(|made| Cone::new(&made.paths)).unwrap_or_default())
}

/// Returns the facts about a workspace since it was made; `None` without the file.
pub(super) fn find_made(place: &Place) -> Result<Option<Made>> {
    place.folder.join(MADE).exists().then(|| read_made(place)).transpose()
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
