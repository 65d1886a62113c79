//! Checks the trees of commits before the daemon uses them.
//!
//! An agent can write any object. A tree that hides a path, or that names more files than a disk
//! has, is not used: neither taken from a clone, nor written as files.

use std::collections::BTreeSet;

use super::git::{Call, GitError};
use super::nested::raw_objects;
use super::objects::lines;
use super::rights::Owner;
use super::transfer::revisions;
use super::{CheckoutError, Git, Place, Result};
use domain::WorkspaceId;
use domain::workspace::fault_of;

/// The most bytes of objects that are taken from a clone at once: 64 GiB.
pub(super) const MAX_BYTES: u64 = 64 << 30;
/// The most bytes of trees that are read at once.
const MAX_READ: u64 = 16 << 20;
/// The most bytes of one tree. That of a folder with a million files has less.
const MAX_TREE: u64 = 128 << 20;

impl Git {
    /// Checks the trees among these objects. `on_objects` begins a call that can read them.
    ///
    /// # Errors
    /// `Malformed`, with the first such tree.
    pub(super) async fn check_trees<'a>(
        &'a self,
        ids: &BTreeSet<String>,
        on_objects: &impl Fn(&[&str]) -> Call<'a>,
    ) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let print = ["cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)"];
        let listed = on_objects(&print).input(lines(ids)).text().await?;
        let mut chunk: Vec<String> = Vec::new();
        let mut n_bytes = 0;
        for line in listed.lines() {
            let columns: Vec<&str> = line.split(' ').collect();
            if let [id, "tree", size] = columns[..] {
                let size = size.parse::<u64>().unwrap_or(0);
                if size > MAX_TREE {
                    return Err(CheckoutError::Malformed(format!(
                        "the tree {id} is not used: it has more than {MAX_TREE} bytes"
                    )));
                }
                if n_bytes + size > MAX_READ {
                    self.check_chunk(&std::mem::take(&mut chunk), on_objects).await?;
                    n_bytes = 0;
                }
                n_bytes += size;
                chunk.push(id.to_owned());
            }
        }
        self.check_chunk(&chunk, on_objects).await
    }

    async fn check_chunk<'a>(
        &'a self,
        ids: &[String],
        on_objects: &impl Fn(&[&str]) -> Call<'a>,
    ) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let printed = on_objects(&["cat-file", "--batch"]).input(lines(ids)).run().await?;
        for (id, (kind, tree)) in ids.iter().zip(raw_objects(&printed)) {
            if kind == "tree"
                && let Some(fault) = fault_of(tree, id.len() / 2)
            {
                return Err(CheckoutError::Malformed(format!(
                    "the tree {id} is not used: {fault}"
                )));
            }
        }
        Ok(())
    }

    /// Checks all trees of a commit of the keep repository, before files are written from it.
    ///
    /// # Errors
    /// `Refused`, with the commit and the reason.
    pub(super) async fn check_commit(&self, place: &Place, commit: &str) -> Result<()> {
        let refused = |error| match error {
            CheckoutError::Malformed(reason) => {
                CheckoutError::Refused(format!("the commit {commit} is not checked out: {reason}"))
            }
            error => error,
        };
        self.check_size(place, commit).await.map_err(refused)?;
        let tree = format!("{commit}^{{tree}}");
        let list = ["rev-list", "--objects", "--no-object-names", "--filter=blob:none", &tree];
        let listed = self.on(&place.keep(), list).long().text().await?;
        let ids = listed.lines().map(str::to_owned).collect();
        let on_keep = |arguments: &[&str]| self.on(&place.keep(), arguments.iter().copied()).long();
        self.check_trees(&ids, &on_keep).await.map_err(refused)
    }

    /// Checks the commit that the work in a clone has come to. `objects` were just taken from the
    /// clone.
    ///
    /// # Errors
    /// `Malformed` if it has too many files, or if the user of the agent has named a commit that
    /// neither the clone nor what it borrows from has: another agent's, for example.
    pub(super) async fn check_result(
        &self,
        place: &Place,
        id: &WorkspaceId,
        commit: &String,
        objects: &BTreeSet<String>,
    ) -> Result<()> {
        self.check_size(place, commit).await?;
        match self.foreign(place, id, [commit], objects).await?.first() {
            Some(other) => Err(CheckoutError::Malformed(format!(
                "the commit {commit} is not used: neither the clone nor what it borrows from has \
                 {other}"
            ))),
            None => Ok(()),
        }
    }

    /// Returns the objects of the keep repository that `ids` reach, but that the owner of a clone
    /// can have from nowhere: they are neither among `objects`, which were just taken from the
    /// clone, nor lent to its owner, nor kept of the clone before.
    pub(super) async fn foreign(
        &self,
        place: &Place,
        id: &WorkspaceId,
        ids: impl IntoIterator<Item = &String>,
        objects: &BTreeSet<String>,
    ) -> Result<BTreeSet<String>> {
        let Some(owner) = place.owner.filter(|owner| *owner != Owner::ROOT) else {
            // Such an agent can read the keep repository itself.
            return Ok(BTreeSet::new());
        };
        let ids = self.kinds(place, ids.into_iter()).await?;
        if ids.is_empty() {
            return Ok(BTreeSet::new());
        }
        let lent = self.lent_commits(place, owner).await?;
        let own = format!("--glob=refs/agent-coordinator/kept/{id}/*");
        let list = ["rev-list", "--objects", "--no-object-names", "--stdin", "--not", &own];
        let input = revisions(ids.keys(), &lent);
        let listed = self.on(&place.keep(), list).input(input).long().text().await?;
        let rest: BTreeSet<String> =
            listed.lines().filter(|id| !objects.contains(*id)).map(str::to_owned).collect();
        if rest.is_empty() {
            return Ok(rest);
        }
        // Git also lists an object of an older commit if the newest lent commits lack it.
        let check = ["cat-file", "--batch-check=%(objectname)"];
        let in_lent = self.on(&place.keep(), check).input(lines(&rest)).long();
        let in_lent = in_lent.variable("GIT_OBJECT_DIRECTORY", place.lent(owner).join("objects"));
        let listed = in_lent.text().await?;
        let foreign = listed.lines().filter_map(|line| line.strip_suffix(" missing"));
        Ok(foreign.map(str::to_owned).collect())
    }

    /// Checks that a commit of the keep repository has not too many files. A few objects can name
    /// more files than any disk has.
    ///
    /// # Errors
    /// `Malformed`, with the commit.
    pub(super) async fn check_size(&self, place: &Place, commit: &str) -> Result<()> {
        // Two bytes for each file and each folder.
        let most = self.limits.files;
        let list = ["ls-tree", "-r", "-t", "-z", "--full-tree", "--format=.", commit];
        let listed = self.on(&place.keep(), list).long().cut_at(2 * most + 1);
        let ended = listed.end().await?;
        if ended.stdout.len() as u64 > 2 * most {
            return Err(CheckoutError::Malformed(format!(
                "the commit {commit} is not used: it has more than {most} files and folders \
                 (`workspace.limits.files`)"
            )));
        }
        if ended.code != Some(0) {
            let command = "ls-tree".to_owned();
            return Err(GitError::Failed { command, message: ended.message }.into());
        }
        Ok(())
    }
}
