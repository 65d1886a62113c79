//! Puts index and files of a source back after a merge that did not come to its end.

use std::collections::BTreeSet;
use std::path::Path;

use super::judged::{COMPARE, names_of};
use super::record::Record;
use crate::domain::ProjectId;
use crate::telemetry::ErrorChain;
use crate::workspace::inside::Inside;
use crate::workspace::objects::names_in;
use crate::workspace::rights::blocking_as;
use crate::workspace::source::Source;
use crate::workspace::{CheckoutError, Checkouts};

/// The author of the commit that has the changes of a hook.
const SAVED_BY: [(&str, &str); 4] = [
    ("GIT_AUTHOR_NAME", "agent-coordinator"),
    ("GIT_AUTHOR_EMAIL", "daemon@agent-coordinator.invalid"),
    ("GIT_COMMITTER_NAME", "agent-coordinator"),
    ("GIT_COMMITTER_EMAIL", "daemon@agent-coordinator.invalid"),
];

impl Checkouts {
    /// Puts index and files back to what they were. If a hook changed files, a commit that no ref
    /// names gets their content first, and is returned.
    pub(super) async fn put_back(
        &self,
        source: &Source,
        record: &Record,
        changed: &[String],
    ) -> Result<Option<String>, CheckoutError> {
        let Some(folder) = &record.folder else { return Ok(None) };
        let mut saved = None;
        if !changed.is_empty() {
            let save = self.git.in_folder(folder, ["stash", "create"]).run_as(source.owner).long();
            let save = SAVED_BY.iter().fold(save, |call, (name, value)| call.variable(name, value));
            saved = Some(save.text().await?).filter(|commit| !commit.is_empty());
        }
        // The index of the new commit names the files that the second step removes.
        for step in [&["--reset", &record.new][..], &["--reset", "-u", &record.old_files]] {
            let arguments = ["read-tree"].into_iter().chain(step.iter().copied());
            self.git.in_folder(folder, arguments).run_as(source.owner).long().run().await?;
        }
        Ok(saved)
    }

    /// Puts index and files back if each of them is as before or as in the new commit. Otherwise
    /// changes nothing, and returns those that are not.
    async fn put_back_unchanged(
        &self,
        source: &Source,
        record: &Record,
    ) -> Result<Vec<String>, CheckoutError> {
        let Some(folder) = &record.folder else { return Ok(Vec::new()) };
        let Record { old_files, new, .. } = record;
        let added = self.planned(source, folder, record, "--diff-filter=A").await?;
        let gone = self.planned(source, folder, record, "--diff-filter=D").await?;
        let not_old = self.changed_on_disk(source, folder, old_files).await?;
        let not_new = self.changed_on_disk(source, folder, new).await?;
        let on_disk = not_old.union(&not_new).filter(|name| {
            (not_old.contains(*name) || added.contains(*name))
                && (not_new.contains(*name) || gone.contains(*name))
        });
        let old_staged = self.differing_in_index(source, folder, old_files).await?;
        let new_staged = self.differing_in_index(source, folder, new).await?;
        let in_index = old_staged.intersection(&new_staged);
        let changed: BTreeSet<String> = on_disk.chain(in_index).cloned().collect();
        if changed.is_empty() {
            self.put_back(source, record, &[]).await?;
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
    ) -> Result<BTreeSet<String>, CheckoutError> {
        let git_dir = self.git_dir(source, folder).await?;
        let name = Path::new("index-of-agent-coordinator");
        let index = git_dir.join(name);
        let call = |arguments: &[&str]| {
            let call = self.git.in_folder(folder, arguments).run_as(source.owner).long();
            call.variable("GIT_INDEX_FILE", &index)
        };
        call(&["read-tree", tree]).run().await?;
        let options = ["--ignore-submodules=all", "--diff-filter=d"];
        let compare: Vec<&str> = COMPARE.into_iter().chain(options).collect();
        let listed = call(&compare).run().await;
        blocking_as(source.owner, move || Inside::open(&git_dir)?.remove_file(name)).await?;
        Ok(names_of(&listed?).collect())
    }

    /// Ends a merge that was cut off: the branch has the commit, or index and files are put back.
    /// Returns what was changed since, so that nothing was done.
    async fn end_merge(&self, record: &Record) -> Result<Vec<String>, CheckoutError> {
        let Some(folder) = &record.folder else { return Ok(Vec::new()) };
        let source = Source::find_any(&self.git, &record.directory).await?;
        if self.is_at(&source, record, &record.new).await? {
            return Ok(Vec::new());
        }
        let is_there = self.work_tree_of(&source, &record.branch).await?.as_ref() == Some(folder);
        if !is_there || !self.is_at(&source, record, &record.old).await? {
            return Ok(vec![format!("the branch {}", record.branch)]);
        }
        let changed = self.put_back_unchanged(&source, record).await?;
        if changed.is_empty() {
            self.remove_message(&source, folder).await?;
        }
        Ok(changed)
    }

    /// Ends the merge of a record. What was changed since is named in the log, and returned. After
    /// another failure the record stays, so that the next merge of the project tries again.
    pub(super) async fn end_record(&self, path: &Path) -> Vec<String> {
        let Some(record) = Record::read(path) else { return Vec::new() };
        let ended = match self.end_merge(&record).await {
            Ok(left) if left.is_empty() => Record::remove(path).map(|()| left),
            Ok(left) => {
                let shown = path.display();
                tracing::warn!(path = %shown, files = ?left, "interrupted merge was not undone");
                Record::set_aside(path).map(|()| left)
            }
            Err(error) => Err(error),
        };
        ended.unwrap_or_else(|error| {
            let shown = path.display();
            let error = ErrorChain(&error);
            tracing::warn!(path = %shown, %error, "could not undo an interrupted merge");
            Vec::new()
        })
    }

    /// Ends the merges of a project that were cut off. The caller has the lock of its merges.
    pub(super) async fn end_interrupted(&self, project: &Path) {
        for path in Record::list(project) {
            Box::pin(self.end_record(&path)).await;
        }
    }

    /// Ends all merges that an earlier daemon left in the middle.
    pub async fn end_interrupted_merges(&self) {
        for name in names_in(&self.root) {
            let folder = self.root.join(&name);
            let Ok(project) = name.parse::<ProjectId>() else { continue };
            if Record::list(&folder).is_empty() || self.git.check().await.is_err() {
                continue;
            }
            let _merging = self.lock_merges(&project).await;
            self.end_interrupted(&folder).await;
        }
    }
}
