//! Gives the source a branch with a result: `publish: branch`, and merges by hand.
//!
//! A branch that people moved, checked out or rebase is never changed. The next name is taken
//! then.

use std::path::PathBuf;

use super::objects::names_in;
use super::rights::blocking_as;
use super::source::Source;
use super::text::{only_line, read_text};
use super::{CheckoutError, Place, Result, Results, SourceTrees};
use domain::workspace::{PublishOrder, Published, fitting, numbered};
use machine::crash_point::{self, CrashPoint};

/// The number of names that are tried for a branch.
const MAX_NAMES: u32 = 100;

impl Results {
    /// Gives the source a branch with the result of a workspace. A repeated call ends in the same
    /// state.
    ///
    /// # Errors
    /// `Refused` if the commit of the result is gone, or no name is free.
    pub async fn publish_branch(&self, order: &PublishOrder) -> Result<Published> {
        self.git.check().await?;
        let place = self.places.place(&order.project, &order.id);
        let source = Source::find(&self.git, &order.source).await?;
        let _locked = self.keep.lock_keep(&order.project, &place).await?;
        self.keep.follow(&source, &place).await?;
        let PublishOrder { branch, commit, .. } = order;
        if self.git.resolve(&place, commit).await?.is_none() {
            return Err(CheckoutError::Refused(format!(
                "`{}` does not have the commit {commit}",
                place.keep().display()
            )));
        }
        let wanted = Published { branch: branch.clone(), commit: commit.clone() };
        self.offer(&source, &place, wanted, order.last.as_ref()).await
    }

    /// Gives the source the wanted branch, or one with another name. `last` is the branch that an
    /// earlier result got.
    pub(super) async fn offer(
        &self,
        source: &Source,
        place: &Place,
        wanted: Published,
        last: Option<&Published>,
    ) -> Result<Published> {
        let Published { branch, commit } = wanted;
        let theirs = self.git.branches_of(source).await?;
        let fitting = fitting(&branch, theirs.keys().map(String::as_str));
        for n in 1..=MAX_NAMES {
            let branch = numbered(&fitting, n);
            let published = Published { branch: branch.clone(), commit: commit.clone() };
            if let Some(their) = theirs.get(&branch) {
                if *their == commit || self.git.contains(place, their, &commit).await? {
                    return Ok(published);
                }
                let is_ours = last.is_some_and(|it| it.branch == branch && it.commit == *their);
                let continues = is_ours && self.git.contains(place, &commit, their).await?;
                if !continues || self.is_in_use(source, &branch).await? {
                    continue;
                }
            }
            self.git.give(source, place, &commit).await?;
            // Git refuses the change if the branch has moved meanwhile.
            let before = theirs.get(&branch).map_or("", String::as_str);
            let name = format!("refs/heads/{branch}");
            let change = format!("update {name} {commit} {before}\n");
            let change =
                if before.is_empty() { format!("create {name} {commit}\n") } else { change };
            let changed = source.git(&self.git, ["update-ref", "--stdin"]).input(change);
            changed.run().await.map_err(|error| source.explain(error))?;
            crash_point::reach(CrashPoint::ResultPublished);
            return Ok(published);
        }
        Err(CheckoutError::Refused(format!(
            "the project's repository has {MAX_NAMES} other branches with the name `{branch}`"
        )))
    }

    /// Returns whether a branch of the source is checked out or being rebased.
    async fn is_in_use(&self, source: &Source, branch: &str) -> Result<bool> {
        let is_checked_out = self.trees.work_tree_of(source, branch).await?.is_some();
        Ok(is_checked_out || self.trees.is_rebased(source, branch).await?)
    }
}

impl SourceTrees {
    /// Returns whether a branch of the source is being rebased. No work tree names it meanwhile,
    /// and the end of the rebase moves it.
    pub(super) async fn is_rebased(&self, source: &Source, branch: &str) -> Result<bool> {
        let common = source.common.clone();
        let wanted = format!("refs/heads/{branch}");
        blocking_as(source.owner, move || {
            let linked = common.join("worktrees");
            let all = names_in(&linked).into_iter().map(|name| linked.join(name));
            let is_there = |own: PathBuf| {
                ["rebase-merge", "rebase-apply"].into_iter().any(|rebase| {
                    let name = read_text(&own.join(rebase).join("head-name"));
                    name.is_some_and(|name| only_line(&name) == wanted)
                })
            };
            Ok(all.chain([common]).any(is_there))
        })
        .await
    }
}
