//! Merges the result of a workspace into the source.
//!
//! A merge is made in the keep repository. The source only gets a commit that continues its own
//! branch, and never by force. Files that a person has changed are not overwritten.

mod begin;
mod conflict;
mod deliver;
mod earlier;
mod hooks;
mod judged;
mod left;
mod parts;
mod put_back;
mod record;
mod replay;
mod signatures;
mod signing;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{OwnedMutexGuard, oneshot};

use super::author::Author;
use super::git::GitError;
use super::keep_repository::SOURCE;
use super::keeping::uncommitted_ref;
use super::source::{Head, Source, entries};
use super::{CheckoutError, Git, Place, Result, Results, SourceTrees};
use domain::workspace::{
    HookRule, HookStep, MergeMessage, MergeStyle, Published, Repeat, Reverted, Way, WorkKind,
    find_way,
};
use domain::{ProjectId, WorkspaceId};
pub(super) use earlier::merged_ref;
pub use earlier::{FoundRevert, RevertOrder};
pub(super) use left::LastLook;
use machine::crash_point::{self, CrashPoint};
use machine::locks::lock;
use replay::Replay;
pub(super) use signatures::Signatures;

/// The digit of the id that stands for no commit.
const NO_COMMIT: &str = "0";
/// The author of the commits that are made on the way, and that no ref names.
const ON_THE_WAY: &str = "agent-coordinator";

/// A merge that a person wants.
#[derive(Debug, Clone)]
pub struct MergeOrder {
    pub id: WorkspaceId,
    pub project: ProjectId,
    pub branch: String,
    /// The directory of the project.
    pub source: PathBuf,
    /// The branch of the source that gets the result.
    pub into: Option<String>,
    /// The branch that the work began at, as a full ref.
    pub base_ref: Option<String>,
    /// The commit that the work began at.
    pub base_commit: Option<String>,
    pub style: MergeStyle,
    pub repeat: Repeat,
    pub with_uncommitted: bool,
    /// The result; `None` for the commit that is kept as the branch of the task.
    pub result: Option<String>,
    /// The kind of work that the agent left.
    pub work: WorkKind,
    /// The commit that the person has seen as the result.
    pub expected_head: Option<String>,
    /// The commit by which the result came into a branch, if it did.
    pub merged: Option<String>,
    /// The branch that got an earlier result of the workspace.
    pub last: Option<Published>,
    /// Gives the source a branch to merge by hand, if there is a conflict.
    pub offers_branch: bool,
    /// The rule for the hooks of the source.
    pub hooks: HookRule,
    /// The person who merges.
    pub author: Author,
    /// The message of the commit, if one is made.
    pub message: MergeMessage,
}

/// The end of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merged {
    /// The branch of the source contains the result.
    Into { branch: String, commit: String },
    /// The branch contained it before, and is at this commit. The merge that brought it is another
    /// one, if it is noted.
    Already { branch: String, commit: String, merge: Option<String> },
    /// The task changed nothing. The branch is at this commit.
    Unchanged { branch: String, commit: String },
    /// The changes do not fit to the branch, which is at this commit and was not changed. The
    /// source may have the result as a branch of its own.
    Conflict {
        branch: String,
        commit: String,
        files: Vec<String>,
        result: Option<Published>,
        /// The branch may have the commits of the result, so that its agent cannot resolve the
        /// conflict by a merge of the branch.
        is_again: bool,
    },
    /// The files of the source are in the way. They are as they were, and the source has the result
    /// as a branch of its own.
    InTheWay { branch: String, message: String, result: Option<Published> },
    /// Hooks of the source judge the new commit, and may run files of the result. A person is to
    /// say whether they run. If they may not, the merge can only go on without them.
    HooksAsk { branch: String, hooks: Vec<String>, may_run: bool },
    /// A hook of the source failed with these words, or changed files of the branch. All is as it
    /// was. A commit that no ref names has the files that the hook changed.
    HookRefused {
        branch: String,
        hook: String,
        said: String,
        files: Vec<String>,
        saved: Option<String>,
    },
    /// Files in the work tree of the branch have changes, so that no hook runs there.
    Dirty { branch: String, files: Vec<String> },
    /// The branch has a commit of an earlier merge of the result, and one that undoes it. A person
    /// is to say what that means for this merge.
    Reverted { branch: String, merge: String, revert: String },
    /// The result is another one than the person has seen.
    Stale { head: String },
    /// The merge could only take files that are in no commit, and the person did not ask for them.
    Nothing,
}

/// The two sides of a merge.
struct Sides<'a> {
    source: &'a Source,
    place: &'a Place,
    result: &'a str,
}

/// A branch of the source that is to move.
#[derive(Clone, Copy)]
struct BranchMove<'a> {
    branch: &'a str,
    /// The commit at which it is.
    target: &'a str,
    /// The commit that continues it.
    new: &'a String,
}

impl Results {
    /// Merges like [`Self::merge`], also if the caller does not wait for the end.
    ///
    /// # Errors
    /// The errors of [`Self::merge`].
    pub async fn merge_to_end(self: &Arc<Self>, order: MergeOrder) -> Result<Merged> {
        let (sender, ended) = oneshot::channel();
        let host = Arc::clone(self);
        let merge = async move {
            // A caller that has gone needs no answer.
            let _ = sender.send(Box::pin(host.merge(&order)).await);
        };
        {
            let mut under_way = lock(&self.under_way);
            while under_way.try_join_next().is_some() {}
            under_way.spawn(merge);
        }
        let stops = |_| CheckoutError::Refused("the merge was cut off".to_owned());
        ended.await.map_err(stops)?
    }

    /// Merges the result into a branch of the source. A repeated merge ends in the same state.
    ///
    /// # Errors
    /// `Refused` if the branch does not exist. After another error, the source has the result
    /// completely or not at all.
    pub async fn merge(&self, order: &MergeOrder) -> Result<Merged> {
        self.git.check().await?;
        let place = self.places.place(&order.project, &order.id);
        let source = Source::find(&self.git, &order.source).await?;
        let _merging = self.trees.lock_merges(&source).await;
        self.trees.end_interrupted(&source).await?;
        let locked = self.keep.lock_keep(&order.project, &place).await?;
        let head = self.keep.follow(&source, &place).await?;
        let (branch, target) = self.target(order, head, &place).await?;
        let result = self.result_or_branch(&place, order.result.as_ref(), &order.branch).await?;
        if let (Some(expected), Some(result)) = (&order.expected_head, &result)
            && expected != result
        {
            return Ok(Merged::Stale { head: result.clone() });
        }
        if let (WorkKind::Nothing, Some(commit)) = (order.work, &target) {
            return Ok(Merged::Unchanged { branch, commit: commit.clone() });
        }
        let left = self.git.resolve(&place, &uncommitted_ref(&order.branch)).await?;
        let has_more = left.is_some() && !order.with_uncommitted;
        // Files that are in no commit are all that there is to merge.
        let is_only_files = has_more && order.work == WorkKind::OnlyFiles;
        // `--again` asks for all changes, and these files may have some of them.
        let lacks_files = is_only_files || has_more && order.repeat == Repeat::Again;
        if let (true, Some(left), Some(result)) = (order.with_uncommitted, &left, &result)
            && !self.git.contains(&place, left, result).await?
        {
            return Err(CheckoutError::Refused(
                "what is in no commit was left beside other commits than the result, and does not \
                 fit to it; merge without it, and look at it with `task diff --uncommitted`"
                    .to_owned(),
            ));
        }
        let Some(result) = left.filter(|_| order.with_uncommitted).or(result) else {
            return Ok(Merged::Nothing);
        };
        let sides = Sides { source: &source, place: &place, result: &result };
        let mut is_again = false;
        let combined = match &target {
            None => Ok(self.first_commit(order, &sides).await?),
            Some(target) => match self.way(order, &place, target, &result).await? {
                Way::HasResult if is_only_files => return Ok(Merged::Nothing),
                Way::HasResult => return self.already(order, &sides, branch, target).await,
                Way::Ask(Reverted { commit: merge, by: revert }) => {
                    return Ok(Merged::Reverted { branch, merge, revert });
                }
                Way::Since(since) => self.combine(order, &sides, target, since).await?,
                Way::Again(since) => {
                    is_again = true;
                    self.combine(order, &sides, target, since).await?
                }
            },
        };
        let target = target.unwrap_or_else(|| NO_COMMIT.repeat(result.len()));
        let new = match combined {
            // A commit of the result itself may be there for its history alone.
            Ok(new) if new != result && self.has_same_files(&place, &target, &new).await? => {
                if lacks_files {
                    return Ok(Merged::Nothing);
                }
                return self.already(order, &sides, branch, &target).await;
            }
            Ok(new) => new,
            Err(files) => {
                let result = if order.offers_branch {
                    self.offer_result(order, &source, &place, result).await
                } else {
                    None
                };
                return Ok(Merged::Conflict { branch, commit: target, files, result, is_again });
            }
        };
        let hooks = self.hooks_of_merge(order, &sides, &branch, &new).await?;
        match order.hooks.step(!hooks.is_empty(), source.owner.is_none()) {
            HookStep::Skip => {}
            step @ (HookStep::Ask | HookStep::AskWithout) => {
                let may_run = step == HookStep::Ask;
                let hooks = hooks.iter().map(|hook| hook.to_string_lossy().into_owned()).collect();
                return Ok(Merged::HooksAsk { branch, hooks, may_run });
            }
            HookStep::Run if is_none(&target) => {
                return Err(CheckoutError::Refused(
                    "the hooks of the repository do not run for its first commit; merge without \
                     them (`--no-hooks`)"
                        .to_owned(),
                ));
            }
            HookStep::Run => {
                let moved = BranchMove { branch: &branch, target: &target, new: &new };
                let judged = self.deliver_judged(order, &sides, moved, &hooks, locked);
                return Box::pin(judged).await;
            }
        }
        let new = self.signed(&sides, &target, new).await?;
        let moved = BranchMove { branch: &branch, target: &target, new: &new };
        self.note_merge(&place, &order.branch, &result, moved).await?;
        crash_point::reach(CrashPoint::MergeMade);
        let delivered = self.deliver(&source, &place, moved).await?;
        crash_point::reach(CrashPoint::MergeDelivered);
        match delivered {
            Ok(()) => Ok(Merged::Into { branch, commit: new }),
            Err(message) => Ok(self.in_the_way(order, &sides, &branch, message).await),
        }
    }

    /// Returns the branch that gets the result, and its commit. The branch of a repository without
    /// commits gets its first one.
    ///
    /// # Errors
    /// `Refused` if there is no such branch.
    async fn target(
        &self,
        order: &MergeOrder,
        head: Head,
        place: &Place,
    ) -> Result<(String, Option<String>)> {
        let name = match (&order.into, &order.base_ref) {
            (Some(into), _) => format!("refs/heads/{into}"),
            (None, Some(base)) => base.clone(),
            (None, None) => head.branch.clone().unwrap_or_default(),
        };
        let Some(branch) = name.strip_prefix("refs/heads/").map(str::to_owned) else {
            return Err(CheckoutError::Refused(
                "the project's repository is at no branch; name the branch with `--into`"
                    .to_owned(),
            ));
        };
        if head.commit.is_none() && head.branch == Some(name) {
            return Ok((branch, None));
        }
        let target = self.git.resolve(place, &format!("{SOURCE}/heads/{branch}")).await?;
        if target.is_none() {
            return Err(CheckoutError::Refused(format!(
                "the project's repository has no branch `{branch}`"
            )));
        }
        Ok((branch, target))
    }

    /// Decides how the result comes into a branch that is at `target`.
    ///
    /// # Errors
    /// `Refused` if the two have no commit in common.
    async fn way(
        &self,
        order: &MergeOrder,
        place: &Place,
        target: &str,
        result: &str,
    ) -> Result<Way> {
        let is_related = self.git.common(place, target, result).await?.is_some();
        if !is_related && self.has_same_files(place, target, result).await? {
            return Ok(Way::HasResult);
        }
        let earlier = self.earlier_merges(order, place, target, result).await?;
        let base = order.base_commit.as_deref();
        let way = find_way(order.style, order.repeat, base, result, earlier);
        let is_mergeable = match &way {
            _ if is_related => true,
            // The first commit of the branch stands for an earlier result.
            Way::Since(Some(since)) => self.git.contains(place, result, since).await?,
            Way::HasResult | Way::Ask(_) => true,
            Way::Since(None) | Way::Again(_) => false,
        };
        if is_mergeable {
            return Ok(way);
        }
        Err(CheckoutError::Refused(
            "the result and the branch have no commit in common, so they are not merged; get the \
             branch of the result with `task publish`, and run \
             `git merge --allow-unrelated-histories` in your repository"
                .to_owned(),
        ))
    }

    /// Returns the commit that a branch without commits gets.
    async fn first_commit(&self, order: &MergeOrder, sides: &Sides<'_>) -> Result<String> {
        if order.style != MergeStyle::Squash {
            return Ok(sides.result.to_owned());
        }
        let tree = format!("{}^{{tree}}", sides.result);
        self.commit_merge(order, sides, &tree, &[], sides.result).await
    }

    /// Returns whether two commits have the same files.
    async fn has_same_files(&self, place: &Place, target: &str, new: &str) -> Result<bool> {
        let same = ["diff-tree", "--quiet", "--no-ext-diff", "-r", target, new];
        Ok(self.git.on(&place.keep(), same).end().await?.code == Some(0))
    }

    /// Makes the commit that has the branch at `target` and what the result changed since a commit.
    /// Returns the files that conflict as an error.
    async fn combine(
        &self,
        order: &MergeOrder,
        sides: &Sides<'_>,
        target: &str,
        since: Option<String>,
    ) -> Result<Result<String, Vec<String>>> {
        let Sides { source, place, result } = *sides;
        let is_squashed = order.style == MergeStyle::Squash;
        if !is_squashed && since.is_none() && self.git.contains(place, result, target).await? {
            return Ok(Ok(result.to_owned()));
        }
        let begin = since.as_deref().unwrap_or(target);
        if order.style == MergeStyle::Rebase {
            let Signatures { committer, .. } = self.signatures(source, order).await;
            let replay = Replay { begin, result, target };
            return self.replay(place, replay, &committer).await;
        }
        let ours = match &since {
            None => target.to_owned(),
            // Git merges from the commit that both sides have last in common. This side has all of
            // the branch as one change since the commit. `git merge-tree --merge-base` would say
            // the same, but needs git 2.40.
            Some(since) => {
                let tree = format!("{target}^{{tree}}");
                self.git
                    .commit(place, &tree, std::iter::once(since), "the branch\n", ON_THE_WAY)
                    .await?
            }
        };
        let tree = match self.git.merged_tree(place, &ours, result).await? {
            Ok(tree) => tree,
            Err(files) => return Ok(Err(files)),
        };
        let is_one = is_squashed || self.git.contains(place, target, result).await?;
        let parents: &[&str] = if is_one { &[target] } else { &[target, result] };
        let range = format!("{begin}..{result}");
        Ok(Ok(self.commit_merge(order, sides, &tree, parents, &range).await?))
    }

    /// Makes a commit of a merge for the person who merges. `range` has the commits of the result
    /// that it brings.
    async fn commit_merge(
        &self,
        order: &MergeOrder,
        sides: &Sides<'_>,
        tree: &str,
        parents: &[&str],
        range: &str,
    ) -> Result<String> {
        let commits = self.commits_in(sides.place, range).await?;
        let signatures = self.signatures(sides.source, order).await;
        let login = order.author.login().await;
        let is_squashed = !parents.contains(&sides.result);
        let message = order.message.of(&signatures.author, &login, &commits, is_squashed);
        let parents: Vec<String> = parents.iter().map(|&parent| parent.to_owned()).collect();
        self.git.commit_as(sides.place, tree, parents.iter(), &message, &signatures).await
    }
}

impl SourceTrees {
    /// Waits until no other merge into a repository is under way. Several projects may have it.
    async fn lock_merges(&self, source: &Source) -> OwnedMutexGuard<()> {
        let merges = Arc::clone(lock(&self.merges).entry(source.common.clone()).or_default());
        merges.lock_owned().await
    }
}

impl Git {
    /// Returns the newest commit that two commits have in common.
    async fn common(&self, place: &Place, one: &str, other: &str) -> Result<Option<String>> {
        let found = self.on(&place.keep(), ["merge-base", one, other]).end().await?;
        let commit = String::from_utf8_lossy(&found.stdout).trim().to_owned();
        Ok(Some(commit).filter(|_| found.code == Some(0)))
    }

    /// Merges two commits without files. Returns the tree, or the files that conflict as an error.
    pub(super) async fn merged_tree(
        &self,
        place: &Place,
        ours: &str,
        theirs: &str,
    ) -> Result<Result<String, Vec<String>>> {
        let arguments = ["merge-tree", "--write-tree", "-z", "--name-only", ours, theirs];
        let ended = self.on(&place.keep(), arguments).long().end().await?;
        // A missing commit gives the exit code of a conflict, but no tree.
        let mut found = entries(&ended.stdout).map(|entry| entry.to_string_lossy().into_owned());
        let tree = found.next().filter(|tree| tree.bytes().all(|b| b.is_ascii_hexdigit()));
        match (ended.code, tree) {
            (Some(0), Some(tree)) => Ok(Ok(tree)),
            (Some(1), Some(_)) => {
                // The names of the files end with an empty entry, and messages follow.
                let names = ended.stdout.split(|byte| *byte == 0).skip(1);
                let names = names.take_while(|name| !name.is_empty());
                let names = names.map(|name| String::from_utf8_lossy(name).into_owned());
                Ok(Err(names.collect()))
            }
            _ => {
                let command = "merge-tree".to_owned();
                Err(GitError::Failed { command, message: ended.message }.into())
            }
        }
    }
}

/// Returns whether an id stands for no commit.
fn is_none(id: &str) -> bool {
    id.replace(NO_COMMIT, "").is_empty()
}
