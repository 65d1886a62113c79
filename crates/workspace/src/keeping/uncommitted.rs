//! Finds what is in no commit: in the files of a workspace, and in the linked work trees inside it.

use std::collections::BTreeSet;
use std::path::Path;

use super::count;
use crate::git::GitError;
use crate::nested::{Nested, part_place};
use crate::source::entries;
use crate::{CheckoutError, Clones, Place, Result};
use domain::workspace::{Cone, Content, KeepOrder};

/// The files of a work tree.
pub(super) struct WorkTree {
    /// The tree of its files, as a commit of the agent would have it.
    pub(super) visible: String,
    /// The commit with which the files are compared. It is another one than the result if the work
    /// was done elsewhere.
    pub(super) head: Option<String>,
}

/// Returns the ref of what is in no commit. It is beside the branch, not below it: git allows no
/// branch below another one.
pub(crate) fn uncommitted_ref(branch: &str) -> String {
    format!("refs/heads/{branch}-uncommitted")
}

impl Clones {
    /// Returns the linked work trees inside a workspace. `objects` are those of its repository.
    pub(super) async fn linked_work_trees(
        &self,
        place: &Place,
        order: &KeepOrder,
        nested: &Nested,
        cone: &Cone,
        result: Option<&str>,
        objects: &BTreeSet<String>,
    ) -> Result<Vec<WorkTree>> {
        let mut found = Vec::new();
        for (path, visible) in &nested.linked {
            let at = nested.heads.get(path);
            let head = self.head_of_files(place, order, at, result, objects).await?;
            let newest = head.as_deref();
            let inner = part_place(place, path);
            let visible = self.files.with_absent(cone, visible.clone(), newest, &inner).await?;
            let visible =
                self.files.as_committed(visible, newest, &Nested::default(), &inner).await?;
            found.push(WorkTree { visible, head });
        }
        Ok(found)
    }

    /// Counts what is in no commit, and returns a commit with it. `work_trees` begins with the files
    /// of the workspace.
    pub(super) async fn take_uncommitted(
        &self,
        place: &Place,
        order: &KeepOrder,
        result: Option<&str>,
        work_trees: &[WorkTree],
        content: &mut Content,
    ) -> Result<Option<String>> {
        let message = format!("left uncommitted by {}\n", order.agent);
        let mut taken: Option<String> = None;
        // The commit after which `taken` is.
        let mut onto: Option<String> = None;
        for (n, WorkTree { visible, head }) in work_trees.iter().enumerate() {
            let from = match head {
                Some(head) => format!("{head}^{{tree}}"),
                None => self.git.empty_tree(place).await?,
            };
            let list = ["diff-tree", "-r", "--no-renames", "--name-status", "-z", &from, visible];
            let changed = self.git.on(&place.keep(), list).long().run().await?;
            // Each path follows a letter, which is A for a file that the commit does not have.
            let letters: Vec<&Path> = entries(&changed).step_by(2).collect();
            if letters.is_empty() {
                continue;
            }
            content.n_uncommitted += count(letters.len());
            if n == 0 {
                let n_added = letters.iter().filter(|kind| **kind == Path::new("A")).count();
                content.n_changed = count(letters.len() - n_added);
            }
            let left = self.git.commit(place, visible, head.iter(), &message, &order.agent).await?;
            let is_first = taken.is_none();
            let before = if is_first { result } else { taken.as_deref() };
            let ends = before.zip(head.as_deref());
            let tree = match ends.filter(|(before, head)| before != head) {
                Some((before, head)) => self.moved(place, before, head, &left, order).await?,
                None => None,
            };
            if let Some(tree) = tree {
                if is_first {
                    onto = result.map(str::to_owned);
                }
                let parents = onto.iter();
                taken = Some(self.git.commit(place, &tree, parents, &message, &order.agent).await?);
            } else if is_first {
                // HEAD is at the result, or the changes do not fit to it.
                taken = Some(left);
                onto.clone_from(head);
            }
        }
        Ok(taken)
    }

    /// Returns the tree of the commit `before` with the changes of `left`, a commit after `head`;
    /// `None` if they do not fit.
    async fn moved(
        &self,
        place: &Place,
        before: &str,
        head: &str,
        left: &str,
        order: &KeepOrder,
    ) -> Result<Option<String>> {
        // Git merges from the commit that both sides have last in common. This side has the other
        // commit as one change of HEAD.
        let message = format!("left uncommitted by {}\n", order.agent);
        let tree = format!("{before}^{{tree}}");
        let parents = [head.to_owned()];
        let ours = self.git.commit(place, &tree, parents.iter(), &message, &order.agent).await?;
        match self.git.merged_tree(place, &ours, left).await {
            Ok(Ok(tree)) => Ok(Some(tree)),
            Ok(Err(_)) | Err(CheckoutError::Git(GitError::TimedOut { .. })) => Ok(None),
            Err(error) if error.is_of_content() => Ok(None),
            Err(error) => Err(error),
        }
    }
}
