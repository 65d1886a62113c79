//! Puts index and files of a source back after a merge that did not come to its end.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

use super::deliver::answer_of;
use super::judged::{COMPARE, names_of};
use super::record::Record;
use super::{BranchMove, is_none};
use crate::git::GitError;
use crate::inside::Inside;
use crate::objects::names_in;
use crate::rights::blocking_as;
use crate::source::Source;
use crate::{CheckoutError, Place, Result, SourceTrees};
use runtime::telemetry::ErrorChain;

/// The author of the commit that has the changes of a hook.
const SAVED_BY: [(&str, &str); 4] = [
    ("GIT_AUTHOR_NAME", "agent-coordinator"),
    ("GIT_AUTHOR_EMAIL", "daemon@agent-coordinator.invalid"),
    ("GIT_COMMITTER_NAME", "agent-coordinator"),
    ("GIT_COMMITTER_EMAIL", "daemon@agent-coordinator.invalid"),
];

/// The index for comparisons, in git's folder, and the lock of git for it.
const OWN_INDEX: &str = "index-of-agent-coordinator";
const OWN_LOCK: &str = "index-of-agent-coordinator.lock";

/// The end of a step that puts index and files back.
#[derive(Debug, Default)]
pub(super) struct PutBack {
    /// The commit that has the files that a hook changed.
    pub(super) saved: Option<String>,
    /// The reasons why they were not put back.
    pub(super) left: Vec<String>,
}

impl PutBack {
    fn left(reason: String) -> Self {
        Self { saved: None, left: vec![reason] }
    }
}

impl SourceTrees {
    /// Puts index and files back to what they were, after a hook refused the commit or changed
    /// these files. A commit that no ref names gets the changed files first. Git writes over no
    /// file that was changed otherwise.
    pub(super) async fn put_back(
        &self,
        source: &Source,
        record: &Record,
        changed: &[String],
    ) -> Result<PutBack> {
        let Some(folder) = &record.folder else { return Ok(PutBack::default()) };
        if !self.is_still_there(source, record, folder).await? {
            return Ok(PutBack::left(format!("the branch {}", record.branch)));
        }
        let returned = self.planned(source, folder, record, "--diff-filter=D").await?;
        if let Some(name) = existing(source, folder, returned).await?.into_iter().next() {
            return Ok(PutBack::left(name));
        }
        let mut saved = None;
        if !changed.is_empty() {
            let save = self.git.in_folder(folder, ["stash", "create"]).run_as(source.owner).long();
            let save = SAVED_BY.iter().fold(save, |call, (name, value)| call.variable(name, value));
            saved = Some(save.text().await?).filter(|commit| !commit.is_empty());
            self.set_files(source, folder, &record.new, changed).await?;
        }
        let arguments = ["read-tree", "-m", "-u", &record.new, &record.old];
        let back = self.git.in_folder(folder, arguments).run_as(source.owner).long().run().await;
        match answer_of(back, source).await? {
            Ok(()) => Ok(PutBack { saved, left: Vec::new() }),
            Err(message) => Ok(PutBack { saved, left: vec![message] }),
        }
    }

    /// Puts index and files back if git wrote those of a commit, and then could not move the branch
    /// to it, such as because of a lock. Returns the reasons why they are still there.
    pub(super) async fn put_back_unmoved(
        &self,
        source: &Source,
        place: &Place,
        folder: PathBuf,
        moved: BranchMove<'_>,
    ) -> Result<Vec<String>> {
        let BranchMove { branch, target, new } = moved;
        let has_none = is_none(target);
        let record = Record {
            directory: source.top.clone(),
            folder: Some(folder.clone()),
            branch: branch.to_owned(),
            old: if has_none { self.git.empty_tree(place).await? } else { target.to_owned() },
            new: new.clone(),
        };
        // A branch that another git moved meanwhile has its own files.
        let before = if has_none { "" } else { target };
        if !self.is_at(source, &record, before).await? {
            return Ok(Vec::new());
        }
        let planned = self.planned(source, &folder, &record, "--diff-filter=ADMT").await?;
        let differing = self.differing_in_index(source, &folder, new).await?;
        if planned.is_empty() || !planned.is_disjoint(&differing) {
            // Git wrote nothing.
            return Ok(Vec::new());
        }
        let arguments = ["read-tree", "-m", "-u", &record.new, &record.old];
        let back = self.git.in_folder(&folder, arguments).run_as(source.owner).long().run().await;
        Ok(answer_of(back, source).await?.err().into_iter().collect())
    }

    /// Returns whether the branch is at its old commit, and is checked out in the same work tree.
    async fn is_still_there(
        &self,
        source: &Source,
        record: &Record,
        folder: &Path,
    ) -> Result<bool> {
        let place = self.work_tree_of(source, &record.branch).await?;
        Ok(place.as_deref() == Some(folder) && self.is_at(source, record, &record.old).await?)
    }

    /// Gives files in index and work tree the content that they have in a tree. Those that it has
    /// not are removed.
    async fn set_files(
        &self,
        source: &Source,
        folder: &Path,
        tree: &str,
        files: &[String],
    ) -> Result<()> {
        let command = ["checkout", "--quiet", "--no-overlay"];
        self.of_files(source, folder, &command, tree, files).await
    }

    /// Runs a command about these files of a tree.
    async fn of_files(
        &self,
        source: &Source,
        folder: &Path,
        command: &[&str],
        tree: &str,
        files: &[String],
    ) -> Result<()> {
        let names = ["--pathspec-from-file=-", "--pathspec-file-nul", tree];
        let arguments = command.iter().copied().chain(names);
        let call = self.git.in_folder(folder, arguments).run_as(source.owner).long();
        let call = call.variable("GIT_LITERAL_PATHSPECS", "1").input(files.join("\0"));
        let command = command.join(" ");
        let failed = |message| GitError::Failed { command, message }.into();
        answer_of(call.run().await, source).await?.map_err(failed)
    }

    /// Puts index and files back if each of them is as before or as in the new commit. Otherwise
    /// changes nothing, and returns those that are not.
    async fn put_back_unchanged(&self, source: &Source, record: &Record) -> Result<Vec<String>> {
        let Some(folder) = &record.folder else { return Ok(Vec::new()) };
        let Record { old, new, .. } = record;
        let added = self.planned(source, folder, record, "--diff-filter=A").await?;
        let gone = self.planned(source, folder, record, "--diff-filter=D").await?;
        let not_old = self.changed_on_disk(source, folder, old).await?;
        let not_new = self.changed_on_disk(source, folder, new).await?;
        let on_disk = not_old.union(&not_new).filter(|name| {
            (not_old.contains(*name) || added.contains(*name))
                && (not_new.contains(*name) || gone.contains(*name))
        });
        let old_staged = self.differing_in_index(source, folder, old).await?;
        let new_staged = self.differing_in_index(source, folder, new).await?;
        let in_index = old_staged.intersection(&new_staged);
        let others = self.planned(source, folder, record, "--diff-filter=d").await?;
        let planned: BTreeSet<String> = others.into_iter().chain(gone.clone()).collect();
        let changed = on_disk.chain(in_index).filter(|name| planned.contains(*name));
        let mut changed: BTreeSet<String> = changed.cloned().collect();
        // Git would remove a folder in the place of a file, with all that is in it.
        changed.extend(folders(source, folder, planned.clone()).await?);
        if changed.is_empty() && !planned.is_empty() {
            let planned: Vec<String> = planned.into_iter().collect();
            // Afterwards the index or the old commit has each of the files.
            self.of_files(source, folder, &["reset", "--quiet"], new, &planned).await?;
            self.set_files(source, folder, old, &planned).await?;
        }
        Ok(changed.into_iter().collect())
    }

    /// Returns the files of a tree that are on disk with another content. It reads all of them,
    /// because the index may be that of a step that was cut off.
    async fn changed_on_disk(
        &self,
        source: &Source,
        folder: &Path,
        tree: &str,
    ) -> Result<BTreeSet<String>> {
        let git_dir = self.git_dir(source, folder).await?;
        let index = git_dir.join(OWN_INDEX);
        let remove = async || {
            let git_dir = git_dir.clone();
            let remove = move || {
                let inside = Inside::open(&git_dir)?;
                inside.remove_file(Path::new(OWN_INDEX))?;
                inside.remove_file(Path::new(OWN_LOCK))
            };
            blocking_as(source.owner, remove).await
        };
        // A git that was killed has left them.
        remove().await?;
        let call = |arguments: &[&str]| {
            let call = self.git.in_folder(folder, arguments).run_as(source.owner).long();
            call.variable("GIT_INDEX_FILE", &index)
        };
        call(&["read-tree", tree]).run().await?;
        let options = ["--ignore-submodules=all", "--diff-filter=d"];
        let compare: Vec<&str> = COMPARE.into_iter().chain(options).collect();
        let listed = call(&compare).run().await;
        remove().await?;
        Ok(names_of(&listed?).collect())
    }

    /// Ends a merge that was cut off: the branch has the commit, or index and files are put back.
    /// Returns what was changed since, so that nothing was done.
    async fn end_merge(&self, record: &Record) -> Result<Vec<String>> {
        let Some(folder) = &record.folder else { return Ok(Vec::new()) };
        let source = Source::find_any(&self.git, &record.directory).await?;
        if self.is_at(&source, record, &record.new).await? {
            return Ok(Vec::new());
        }
        if !self.is_still_there(&source, record, folder).await? {
            return Ok(vec![format!("the branch {}", record.branch)]);
        }
        let changed = self.put_back_unchanged(&source, record).await?;
        if changed.is_empty() {
            self.remove_message(&source, folder).await?;
        }
        Ok(changed)
    }

    /// Ends the merge of a record. The reasons why that was not possible are in the log, and
    /// returned.
    ///
    /// # Errors
    /// It is not possible now, so that the record stays.
    pub(super) async fn end_record(&self, path: &Path) -> Result<Vec<String>> {
        let Some(record) = Record::read(path) else { return Ok(Vec::new()) };
        let left = self.end_merge(&record).await?;
        if left.is_empty() {
            Record::remove(path)?;
        } else {
            tracing::warn!(
                path = %path.display(), files = ?left, "interrupted merge was not undone"
            );
            Record::set_aside(path)?;
        }
        Ok(left)
    }

    /// Ends the merges into a repository that were cut off, of each project. The caller has the
    /// lock of its merges.
    ///
    /// # Errors
    /// `Refused` if one of them cannot be undone now.
    pub(super) async fn end_interrupted(&self, source: &Source) -> Result<()> {
        for (path, record) in self.records() {
            let of = Source::find_any(&self.git, &record.directory).await;
            if of.is_ok_and(|of| of.common == source.common) {
                Box::pin(self.end_record(&path)).await.map_err(|error| {
                    CheckoutError::Refused(format!(
                        "an earlier merge was cut off, and its files cannot be put back now: {}",
                        ErrorChain(&error)
                    ))
                })?;
            }
        }
        Ok(())
    }

    /// Ends all merges that an earlier daemon left in the middle.
    pub async fn end_interrupted_merges(&self) {
        for (path, record) in self.records() {
            let end = async {
                self.git.check().await?;
                let source = Source::find_any(&self.git, &record.directory).await?;
                let _merging = self.lock_merges(&source).await;
                self.end_record(&path).await
            };
            if let Err(error) = end.await {
                let error = ErrorChain(&error);
                let path = path.display();
                tracing::warn!(%path, %error, "could not undo an interrupted merge");
            }
        }
    }

    /// Returns the records of all merges that are under way.
    fn records(&self) -> Vec<(PathBuf, Record)> {
        let projects = names_in(&self.places.root).into_iter();
        let paths = projects.flat_map(|name| Record::list(&self.places.root.join(name)));
        paths.filter_map(|path| Record::read(&path).map(|record| (path, record))).collect()
    }
}

/// Returns which of these names exist in a work tree.
async fn existing(
    source: &Source,
    folder: &Path,
    names: BTreeSet<String>,
) -> Result<BTreeSet<String>> {
    select(source, folder, names, |_| true).await
}

/// Returns which of these names are folders in a work tree.
async fn folders(
    source: &Source,
    folder: &Path,
    names: BTreeSet<String>,
) -> Result<BTreeSet<String>> {
    select(source, folder, names, Metadata::is_dir).await
}

async fn select(
    source: &Source,
    folder: &Path,
    names: BTreeSet<String>,
    is_meant: fn(&Metadata) -> bool,
) -> Result<BTreeSet<String>> {
    let folder = folder.to_owned();
    blocking_as(source.owner, move || {
        let is_selected = |name: &String| {
            folder.join(name).symlink_metadata().is_ok_and(|found| is_meant(&found))
        };
        Ok(names.into_iter().filter(is_selected).collect())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Checkouts;
    use crate::tests::run_git;

    #[tokio::test]
    async fn a_branch_that_moved_meanwhile_keeps_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("source");
        std::fs::create_dir(&top).unwrap();
        let git = |arguments: &[&str]| run_git(folder.path(), &top, arguments);
        let commit = |message: &str| {
            git(&["commit", "--quiet", "--allow-empty", "-m", message]);
            git(&["rev-parse", "HEAD"])
        };
        git(&["init", "--quiet", "--initial-branch=main"]);
        let target = commit("first");
        std::fs::write(top.join("work.txt"), "work\n").unwrap();
        git(&["add", "."]);
        let new = commit("the result");
        git(&["reset", "--quiet", "--soft", &target]);
        let checkouts = Checkouts::new(folder.path().join("workspaces"));
        let trees = &checkouts.trees;
        trees.git.check().await.unwrap();
        let source = Source::find(&trees.git, &top).await.unwrap();
        let place = trees.places.place(&"shop".parse().unwrap(), &"one".parse().unwrap());
        let put_back = async || {
            let moved = BranchMove { branch: "main", target: &target, new: &new };
            let back = trees.put_back_unmoved(&source, &place, top.clone(), moved);
            let left = Box::pin(back).await.unwrap();
            assert!(left.is_empty(), "{left:?}");
            top.join("work.txt").exists()
        };
        // A person commits the same file in the place of git's attempt to move the branch.
        commit("the same by hand");
        assert!(put_back().await);
        assert_eq!(git(&["status", "--porcelain"]), "");
        git(&["reset", "--quiet", "--soft", &target]);
        assert!(!put_back().await);
        assert_eq!(git(&["status", "--porcelain"]), "");
    }
}
