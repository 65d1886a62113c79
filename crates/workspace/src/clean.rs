//! Makes a fresh clone for a check, beside the clone of its task.
//!
//! It has the commit that the agent reported and nothing else. Protected paths are as in the commit
//! that the work began at: the clone is then at a commit of the daemon, after the reported one. The
//! attributes of that earlier commit count while the files are written, because attributes can
//! change what a file is. The files `.gitattributes` of the result come last, as they are.
//!
//! The clone of the task is left alone, so there is nothing to bring back after a crash. The folder
//! is removed before the clone of the task is kept, which follows each launch.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::create::{Beginning, MADE, read_made};
use super::inside::Inside;
use super::lending::make_tree;
use super::nested::path_in;
use super::rights::{blocking_as, set_mode};
use super::source::entries as entries_of;
use super::sparse::cone_at;
use super::{Clones, Place, Result, WorkspacePlaces, blocking, remove_folder, rename, write};
use domain::workspace::{CleanOrder, Order, Prepared};
use domain::{ProjectId, RunAs, WorkspaceId};
use machine::crash_point::{self, CrashPoint};

/// The most folders of earlier checks that are tried once more, because they could not be removed.
const MAX_GONE: usize = 8;
/// The pattern of all files that give attributes.
const ATTRIBUTE_FILES: &str = ":(glob)**/.gitattributes";
/// The file that says that the files were written with the attributes that the work began with.
const FIRST_ATTRIBUTES: &str = "first-attributes";
/// The author of the commit that brings protected paths back.
const AUTHOR: &str = "agent-coordinator";

impl Clones {
    /// Makes the fresh clone of a check. One that was made for the same order is left as it is.
    ///
    /// # Errors
    /// Each error is perhaps over by the next attempt.
    pub async fn prepare_clean(&self, order: &CleanOrder) -> Result<()> {
        self.git.check().await?;
        if self.places.is_clean_ready(order) {
            return Ok(());
        }
        let place = self.places.place(&order.project, &order.id);
        place.check_tree()?;
        let made = read_made(&place)?.prepared;
        let cone = cone_at(&place)?;
        self.remove_clean(&order.project, &order.id).await?;
        let new = place.project.join(format!(".new-check-{}", order.id));
        remove_folder(&new)?;
        let (commit, attributes) = {
            let _locked = self.keep.lock_keep(&order.project, &place).await?;
            let mut commit = order.commit.clone();
            let mut attributes = None;
            if let Some(reported) = &order.commit {
                let protected = order.protected.iter().map(|path| format!(":(glob){path}"));
                if !order.protected.is_empty()
                    && let Some(made) = self.as_before(order, reported, protected, &place).await?
                {
                    commit = Some(made.commit);
                }
                let judged = commit.as_ref().unwrap_or(reported);
                let pattern = std::iter::once(ATTRIBUTE_FILES.to_owned());
                attributes = self.as_before(order, judged, pattern, &place).await?;
            }
            (commit, attributes)
        };
        let all = Order {
            id: order.id.clone(),
            project: order.project.clone(),
            branch: made.branch.clone(),
            source: PathBuf::new(),
            agent: order.agent.clone(),
            base: None,
            submodules: false,
            lfs: false,
            dependencies: Vec::new(),
            begins_at: None,
            restores: None,
            forge: None,
            run_as: place.owner.map(|owner| RunAs {
                name: String::new(),
                uid: owner.uid,
                gid: owner.gid,
                groups: vec![owner.gid],
            }),
        };
        let first = attributes.as_ref().map(|attributes| &attributes.commit);
        for commit in commit.iter().chain(first) {
            if let Some(owner) = place.owner {
                self.lend_commit(&order.project, &place, owner, commit).await?;
            }
        }
        let prepared = Prepared { base_commit: order.base_commit.clone(), ..made };
        if let Some(commit) = &commit {
            self.git.check_commit(&place, commit).await?;
        }
        let made = async {
            let start = commit.as_deref();
            make_tree(&new, place.owner)?;
            let written = attributes.as_ref().map_or(start, |it| Some(it.commit.as_str()));
            let from = Beginning { start: written, source: None, upstream: None };
            self.check_out(&all, &prepared, &from, &cone, &place, &new).await?;
            if let Some((start, attributes)) = start.zip(attributes.as_ref()) {
                let branch = format!("refs/heads/{}", prepared.branch);
                self.write_attributes(start, attributes, &branch, &place, &new).await?;
            }
            match start {
                Some(start) => {
                    self.remotes.add_known_submodules(&place, start, &cone, &new.join("tree")).await
                }
                None => Ok(()),
            }
        };
        let made = made.await.map_err(|error| self.disk.name_full_disk(error));
        if made.is_err() {
            remove_folder(&new)?;
        }
        made?;
        if attributes.is_some() {
            write(&new.join(FIRST_ATTRIBUTES), b"")?;
        }
        write(&new.join(MADE), serde_json::to_vec(order).unwrap_or_default())?;
        set_mode(&new.join(MADE), 0o600)?;
        crash_point::reach(CrashPoint::WorkspaceMade);
        rename(&new, &folder(&place))
    }

    /// Removes the fresh clone of a check, if there is one. No check may be running in it.
    ///
    /// # Errors
    /// Something that cannot be removed.
    pub async fn remove_clean(&self, project: &ProjectId, id: &WorkspaceId) -> Result<()> {
        let folder = folder(&self.places.place(project, id));
        if folder.symlink_metadata().is_err() {
            return Ok(());
        }
        blocking(move || {
            // A later check does not use files that cannot be removed now.
            let gone = |n: usize| folder.with_extension(format!("gone-{n}"));
            let is_there = |n: &usize| gone(*n).symlink_metadata().is_ok();
            for n in (0..MAX_GONE).filter(is_there) {
                let _ = remove_folder(&gone(n));
            }
            let free = (0..MAX_GONE).find(|n| !is_there(n)).unwrap_or_default();
            let gone = gone(free);
            rename(&folder, &gone)?;
            remove_folder(&gone).or_else(|error| {
                // Root needs no permission, and must not follow what another user changes
                // meanwhile.
                if rustix::process::geteuid().is_root() {
                    return Err(error);
                }
                // Caches of packages are often read only.
                make_writable(&gone);
                remove_folder(&gone)
            })
        })
        .await
    }

    /// Gives a fresh clone that was written with the first attributes the commit `start` and its
    /// files `.gitattributes`, byte for byte.
    async fn write_attributes(
        &self,
        start: &str,
        AsBefore { changed, .. }: &AsBefore,
        branch: &str,
        place: &Place,
        new: &Path,
    ) -> Result<()> {
        let tree = new.join("tree");
        let own = tree.join(".git");
        let on_own = |arguments: &[&str]| {
            self.git.on(&own, arguments.iter().copied()).run_as(place.owner).long()
        };
        on_own(&["update-ref", branch, start]).run().await?;
        on_own(&["read-tree", "--reset", start]).run().await?;
        let mut files = Vec::new();
        for path in changed {
            let mut name = std::ffi::OsString::from(format!("{start}:"));
            name.push(path);
            let print = [OsStr::new("cat-file"), OsStr::new("blob"), &name];
            let ended = self.git.on(&place.keep(), print).end().await?;
            files.push((path.clone(), (ended.code == Some(0)).then_some(ended.stdout)));
        }
        blocking_as(place.owner, move || {
            let inside = Inside::open(&tree)?;
            files.iter().try_for_each(|(path, content)| match content {
                Some(content) => inside.write(path, content, 0o644),
                None => inside.remove_file(path),
            })
        })
        .await
    }

    /// Returns a commit after `commit` in which the files of some patterns are as the work began
    /// with them, and the files that this changes; `None` if it changes none.
    async fn as_before(
        &self,
        order: &CleanOrder,
        commit: &String,
        patterns: impl Iterator<Item = String>,
        place: &Place,
    ) -> Result<Option<AsBefore>> {
        let keep = place.keep();
        let base = match &order.base_commit {
            Some(base) => base.clone(),
            None => self.git.on(&keep, ["mktree"]).text().await?,
        };
        let options = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev"];
        let options = options.into_iter().chain([commit, &base, "--"]).map(str::to_owned);
        let listed = self.git.on(&keep, options.chain(patterns)).long().run().await?;
        let entries = index_entries(&listed);
        if entries.is_empty() {
            return Ok(None);
        }
        let changed = entries_of(&entries);
        let changed = changed.filter_map(|entry| path_in(entry.as_os_str().as_bytes())).collect();
        let tree = self.git.tree_with(place, commit, entries).await?;
        let message = "some files as they were before the work\n";
        let commit =
            self.git.commit(place, &tree, std::iter::once(commit), message, AUTHOR).await?;
        Ok(Some(AsBefore { commit, changed }))
    }
}

impl WorkspacePlaces {
    /// Returns whether the fresh clone of a check is there.
    pub fn is_clean_ready(&self, order: &CleanOrder) -> bool {
        let place = self.place(&order.project, &order.id);
        let text = std::fs::read(folder(&place).join(MADE)).unwrap_or_default();
        serde_json::from_slice::<CleanOrder>(&text).is_ok_and(|made| made == *order)
    }

    /// Returns whether the files of a fresh clone were written with the attributes that the work
    /// began with, because the result has other ones.
    pub fn has_first_attributes(&self, order: &CleanOrder) -> bool {
        folder(&self.place(&order.project, &order.id)).join(FIRST_ATTRIBUTES).exists()
    }

    /// Returns the folder that a check gets as its working directory.
    pub fn clean_directory(&self, order: &CleanOrder, subdirectory: &str) -> PathBuf {
        let tree = folder(&self.place(&order.project, &order.id)).join("tree");
        if subdirectory.is_empty() { tree } else { tree.join(subdirectory) }
    }
}

/// A commit with some files as the work began with them.
struct AsBefore {
    commit: String,
    /// These files. The result changed them.
    changed: Vec<PathBuf>,
}

/// The fresh clone of the task whose place this is.
fn folder(place: &Place) -> PathBuf {
    let name = place.folder.file_name().unwrap_or_default().to_string_lossy();
    place.project.join(format!(".check-{name}"))
}

/// Returns what `update-index --index-info` reads, from what `diff-tree --raw -z` printed: the
/// entries of the second tree.
fn index_entries(listed: &[u8]) -> Vec<u8> {
    let mut entries = Vec::new();
    let mut parts = listed.split(|byte| *byte == 0);
    while let (Some(facts), Some(path)) = (parts.next(), parts.next()) {
        // `:OLD_MODE NEW_MODE OLD_ID NEW_ID LETTER`
        let facts: Vec<&[u8]> = facts.split(|byte| *byte == b' ').collect();
        if let [_, mode, _, id, _] = facts[..] {
            entries.extend_from_slice(&[mode, b" ", id, b"\t", path, b"\0"].concat());
        }
    }
    entries
}

/// Lets the owner change the folders in `folder`. Follows no link.
fn make_writable(folder: &Path) {
    let _ = std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700));
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_writable(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entries_of_the_second_tree_are_read_also_with_odd_names() {
        let listed = b":100644 000000 aa 00 D\0ci/a b\0:000000 100755 00 bb A\0ci/x\ny\0";
        let entries = index_entries(listed);
        assert_eq!(entries, b"000000 00\tci/a b\x00100755 bb\tci/x\ny\0");
        assert_eq!(index_entries(b""), b"");
    }
}
