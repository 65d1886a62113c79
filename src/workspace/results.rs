//! People look at the result of a workspace, and merge it into the source.
//!
//! A merge is made in the keep repository. The source only gets a commit that continues its own
//! branch, and never by force. Files that a person has changed are not overwritten.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::author::Author;
use super::git::GitError;
use super::keep_repository::SOURCE;
use super::keeping::uncommitted_ref;
use super::rights::{is_open_to_others, is_root_here};
use super::source::{Source, advice_on_open, entries, owner_of_work_tree};
use super::{CheckoutError, Checkouts, Place};
use crate::crash_point::{self, CrashPoint};
use crate::domain::workspace::{KeepOrder, Published};
use crate::domain::{ProjectId, WorkspaceId};
use crate::telemetry::ErrorChain;

/// The digit of the id that stands for no commit.
const NO_COMMIT: &str = "0";
/// The longest diff, in bytes.
pub const MAX_DIFF: u64 = 5 * 1024 * 1024;

/// Which changes to show.
#[derive(Debug, Clone)]
pub struct DiffOrder {
    pub keep: KeepOrder,
    /// The result; `None` for the commit that is kept as the branch of the task.
    pub result: Option<String>,
    /// An agent may be using the workspace, so its newest commits are taken first.
    pub is_in_use: bool,
    pub of: DiffKind,
}

/// The kind of a diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffKind {
    /// The commits since the base.
    Committed,
    /// The changes that are in no commit.
    Uncommitted,
    /// One line per file of the commits since the base.
    Stat,
}

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
    pub style: MergeStyle,
    pub with_uncommitted: bool,
    /// The result; `None` for the commit that is kept as the branch of the task.
    pub result: Option<String>,
    /// The commit that the person has seen as the result.
    pub expected_head: Option<String>,
    /// The branch that got an earlier result of the workspace.
    pub last: Option<Published>,
    /// Gives the source a branch to merge by hand, if there is a conflict.
    pub offers_branch: bool,
    /// The person who merges.
    pub author: Author,
    /// The message of the commit, if one is made.
    pub message: String,
}

/// The commits that a merge makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MergeStyle {
    /// One with both sides as its parents, if the branch went on meanwhile.
    #[default]
    Merge,
    /// One with all changes.
    Squash,
    /// Each commit of the result again, after those of the branch.
    Rebase,
}

/// The end of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merged {
    /// The branch of the source contains the result.
    Into { branch: String, commit: String },
    /// The branch contained it before.
    Already { branch: String, commit: String },
    /// The changes do not fit to the branch, which is at this commit and was not changed. The
    /// source may have the result as a branch of its own.
    Conflict { branch: String, commit: String, files: Vec<String>, result: Option<Published> },
    /// The files of the source are in the way. They are as they were, and the source has the result
    /// as a branch of its own.
    InTheWay { branch: String, message: String, result: Option<Published> },
    /// The result is another one than the person has seen.
    Stale { head: String },
    /// The branch has all commits of the result. There may be files that are in no commit.
    Nothing,
}

impl Checkouts {
    /// Returns a diff as text. It is cut after [`MAX_DIFF`] bytes.
    ///
    /// # Errors
    /// Git cannot be run, or does not know the commits.
    pub async fn diff(&self, order: &DiffOrder) -> Result<Vec<u8>, CheckoutError> {
        self.git.check().await?;
        let KeepOrder { id, project, branch, base_commit, .. } = &order.keep;
        let place = self.place(project, id);
        let taken = if order.is_in_use { self.take(project, id).await? } else { None };
        let result = match taken {
            None => self.result_or_branch(&place, order.result.as_ref(), branch).await?,
            taken => taken,
        };
        let range = match (order.of, result, base_commit) {
            (DiffKind::Uncommitted, _, _) => {
                let left = self.resolve(&place, &uncommitted_ref(branch)).await?;
                let Some(left) = left else {
                    return Ok(Vec::new());
                };
                // In a repository that had no commit it has no parent.
                match self.resolve(&place, &format!("{left}^")).await? {
                    Some(parent) => vec![parent, left],
                    None => vec![self.empty_tree(&place).await?, left],
                }
            }
            (_, Some(result), Some(base)) => self.changes(&place, base, &result).await?,
            (_, Some(result), None) => {
                vec![self.empty_tree(&place).await?, result]
            }
            (_, None, _) => return Ok(Vec::new()),
        };
        let mut arguments = vec!["diff", "--no-ext-diff", "--no-textconv", "--no-color"];
        arguments.extend((order.of == DiffKind::Stat).then_some("--stat"));
        arguments.push("--end-of-options");
        arguments.extend(range.iter().map(String::as_str));
        let call = self.git.on(&place.keep(), arguments).long().cut_at(MAX_DIFF);
        let ended = call.end().await?;
        match ended.code {
            Some(0) => Ok(ended.stdout),
            // It was ended because its output is too long.
            _ if ended.stdout.len() as u64 >= MAX_DIFF => {
                let mut cut = ended.stdout;
                let note = format!(
                    "\n… the diff is longer than {MAX_DIFF} bytes; see the rest with git\n"
                );
                cut.extend_from_slice(note.as_bytes());
                Ok(cut)
            }
            _ => {
                let command = "diff".to_owned();
                Err(GitError::Failed { command, message: ended.message }.into())
            }
        }
    }

    /// Writes the files of a kept state into `to`, a new or an empty folder of this host.
    ///
    /// # Errors
    /// `Refused` for another folder, or if the state is not there any more.
    pub async fn write_kept_to(
        &self,
        project: &ProjectId,
        workspace: &WorkspaceId,
        kept: &str,
        to: &Path,
    ) -> Result<(), CheckoutError> {
        self.git.check().await?;
        let place = self.place(project, workspace);
        let _locked = self.lock_keep(project, &place).await?;
        if !place.keep().is_dir() || self.resolve(&place, kept).await?.is_none() {
            return Err(CheckoutError::Refused(format!(
                "`{}` does not have the kept commit {kept}",
                place.keep().display()
            )));
        }
        self.write_into_new(kept, &place, to).await
    }

    /// Merges the result into a branch of the source. A repeated merge ends in the same state.
    ///
    /// # Errors
    /// `Refused` if the branch does not exist. After another error, the source has the result
    /// completely or not at all.
    pub async fn merge(&self, order: &MergeOrder) -> Result<Merged, CheckoutError> {
        self.git.check().await?;
        let place = self.place(&order.project, &order.id);
        let source = Source::find(&self.git, &order.source).await?;
        let _locked = self.lock_keep(&order.project, &place).await?;
        let head = self.follow(&source, &place).await?;
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
        // The branch of a repository without commits gets its first one.
        let is_unborn = head.commit.is_none() && head.branch == Some(name);
        let target = if is_unborn {
            None
        } else {
            self.resolve(&place, &format!("{SOURCE}/heads/{branch}")).await?
        };
        if target.is_none() && !is_unborn {
            return Err(CheckoutError::Refused(format!(
                "the project's repository has no branch `{branch}`"
            )));
        }
        let result = self.result_or_branch(&place, order.result.as_ref(), &order.branch).await?;
        if let (Some(expected), Some(result)) = (&order.expected_head, &result)
            && expected != result
        {
            return Ok(Merged::Stale { head: result.clone() });
        }
        let left = self.resolve(&place, &uncommitted_ref(&order.branch)).await?;
        let has_more = left.is_some() && !order.with_uncommitted;
        if let (true, Some(left), Some(result)) = (order.with_uncommitted, &left, &result)
            && !self.contains(&place, left, result).await?
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
        // Files that are in no commit are then all that there is to merge.
        let nothing_new = |branch: &String, target: &String| {
            let already = Merged::Already { branch: branch.clone(), commit: target.clone() };
            if has_more { Merged::Nothing } else { already }
        };
        if let Some(target) = &target
            && self.contains(&place, target, &result).await?
        {
            return Ok(nothing_new(&branch, target));
        }
        if let Some(target) = &target {
            let find = self.git.on(&place.keep(), ["merge-base", target, &result]).end().await?;
            let is_unrelated = find.code != Some(0);
            if is_unrelated && self.has_same_files(&place, target, &result).await? {
                return Ok(nothing_new(&branch, target));
            }
            if is_unrelated {
                return Err(CheckoutError::Refused(format!(
                    "the result and `{branch}` have no commit in common, so they are not merged; \
                     get the branch of the result with `task publish`, and run \
                     `git merge --allow-unrelated-histories` in your repository"
                )));
            }
        }
        let combined = match &target {
            Some(target) => self.combine(order, &place, target, &result).await?,
            None => Ok(self.first_commit(order, &place, &result).await?),
        };
        let target = target.unwrap_or_else(|| NO_COMMIT.repeat(result.len()));
        let new = match combined {
            // A commit of the result itself may be there for its history alone.
            Ok(new) if new != result && self.has_same_files(&place, &target, &new).await? => {
                return Ok(nothing_new(&branch, &target));
            }
            Ok(new) => new,
            Err(files) => {
                let result = if order.offers_branch {
                    self.offer_result(order, &source, &place, result).await
                } else {
                    None
                };
                return Ok(Merged::Conflict { branch, commit: target, files, result });
            }
        };
        crash_point::reach(CrashPoint::MergeMade);
        let delivered = self.deliver(&source, &place, (&branch, &target), &new).await?;
        crash_point::reach(CrashPoint::MergeDelivered);
        match delivered {
            Ok(()) => Ok(Merged::Into { branch, commit: new }),
            Err(message) => {
                let result = self.offer_result(order, &source, &place, result).await;
                Ok(Merged::InTheWay { branch, message, result })
            }
        }
    }

    /// Returns the commit of a result, or else the one that is kept as the branch of the task.
    async fn result_or_branch(
        &self,
        place: &Place,
        result: Option<&String>,
        branch: &str,
    ) -> Result<Option<String>, CheckoutError> {
        let own = format!("refs/heads/{branch}");
        self.resolve(place, result.unwrap_or(&own)).await
    }

    /// Gives the source a branch with the result. A merge that is refused is refused for its own
    /// reason, also without such a branch.
    async fn offer_result(
        &self,
        order: &MergeOrder,
        source: &Source,
        place: &Place,
        commit: String,
    ) -> Option<Published> {
        let wanted = Published { branch: order.branch.clone(), commit };
        let offered = self.offer(source, place, wanted, order.last.as_ref()).await;
        offered
            .inspect_err(|error| {
                tracing::warn!(
                    workspace_id = %order.id, error = %ErrorChain(error),
                    "could not give the project's repository a branch with the result"
                );
            })
            .ok()
    }

    pub(super) async fn empty_tree(&self, place: &Place) -> Result<String, CheckoutError> {
        Ok(self.git.on(&place.keep(), ["mktree"]).text().await?)
    }

    /// Returns the commit that a branch without commits gets.
    async fn first_commit(
        &self,
        order: &MergeOrder,
        place: &Place,
        result: &str,
    ) -> Result<String, CheckoutError> {
        if order.style != MergeStyle::Squash {
            return Ok(result.to_owned());
        }
        let author = order.author.name().await;
        let tree = format!("{result}^{{tree}}");
        self.commit(place, &tree, std::iter::empty(), &order.message, author).await
    }

    /// Returns whether two commits have the same files.
    async fn has_same_files(
        &self,
        place: &Place,
        target: &str,
        new: &str,
    ) -> Result<bool, CheckoutError> {
        let same = ["diff-tree", "--quiet", "--no-ext-diff", "-r", target, new];
        Ok(self.git.on(&place.keep(), same).end().await?.code == Some(0))
    }

    /// Makes the commit that has the branch at `target` and the result. Returns the files that
    /// conflict as an error.
    async fn combine(
        &self,
        order: &MergeOrder,
        place: &Place,
        target: &str,
        result: &str,
    ) -> Result<Result<String, Vec<String>>, CheckoutError> {
        let is_squashed = order.style == MergeStyle::Squash;
        if !is_squashed && self.contains(place, result, target).await? {
            return Ok(Ok(result.to_owned()));
        }
        if order.style == MergeStyle::Rebase {
            return self.replay(place, target, result).await;
        }
        let tree = match self.merged_tree(place, target, result).await? {
            Ok(tree) => tree,
            Err(files) => return Ok(Err(files)),
        };
        let parents = [target, result].map(str::to_owned);
        let parents = parents.iter().take(if is_squashed { 1 } else { 2 });
        let author = order.author.name().await;
        Ok(Ok(self.commit(place, &tree, parents, &order.message, author).await?))
    }

    /// Merges two commits without files. Returns the tree, or the files that conflict as an error.
    pub(super) async fn merged_tree(
        &self,
        place: &Place,
        ours: &str,
        theirs: &str,
    ) -> Result<Result<String, Vec<String>>, CheckoutError> {
        let arguments = ["merge-tree", "--write-tree", "-z", "--name-only", ours, theirs];
        let ended = self.git.on(&place.keep(), arguments).long().end().await?;
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

    /// Gives the source a commit that continues its branch, which is at `target`. Returns git's
    /// message as an error if files are in the way, or if the branch has moved.
    async fn deliver(
        &self,
        source: &Source,
        place: &Place,
        (branch, target): (&str, &str),
        new: &String,
    ) -> Result<Result<(), String>, CheckoutError> {
        let checked_out = self.work_tree_of(source, branch).await?;
        self.give(source, place, new).await?;
        let done = if let Some(folder) = checked_out {
            if source.owner.is_none() && owner_of_work_tree(&folder)?.is_some() {
                return Err(CheckoutError::Refused(format!(
                    "the branch `{branch}` is checked out in `{}`, which belongs to another user \
                     than the repository; merge it there by hand",
                    folder.display()
                )));
            }
            self.check_written(source, place, &folder, (target, new)).await?;
            let merge = ["merge", "--ff-only", "--no-verify-signatures", "--quiet", new];
            self.git.in_folder(&folder, merge).run_as(source.owner).long().run().await
        } else {
            let change = ["update-ref", &format!("refs/heads/{branch}"), new, target];
            source.git(&self.git, change).run().await
        };
        match done.map_err(|error| source.explain(error)) {
            Ok(_) => Ok(Ok(())),
            Err(CheckoutError::Git(GitError::Failed { message, .. })) => Ok(Err(message)),
            Err(error) => Err(error),
        }
    }

    /// Checks that only root can change the folders in which a merge writes, if root merges.
    async fn check_written(
        &self,
        source: &Source,
        place: &Place,
        folder: &Path,
        (target, new): (&str, &str),
    ) -> Result<(), CheckoutError> {
        if source.owner.is_some() || !is_root_here() {
            return Ok(());
        }
        let from = if self.resolve(place, target).await?.is_some() {
            target.to_owned()
        } else {
            self.empty_tree(place).await?
        };
        let list = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", &from, new];
        let listed = self.git.on(&place.keep(), list).long().run().await?;
        let folders: BTreeSet<&Path> =
            entries(&listed).flat_map(|path| path.ancestors().skip(1)).collect();
        for below in folders {
            let below = folder.join(below);
            if below.symlink_metadata().is_ok_and(|found| is_open_to_others(&found)) {
                return Err(CheckoutError::Refused(advice_on_open(folder, &below)));
            }
        }
        Ok(())
    }

    /// Returns the folder in which a branch of the source is checked out.
    pub(super) async fn work_tree_of(
        &self,
        source: &Source,
        branch: &str,
    ) -> Result<Option<PathBuf>, CheckoutError> {
        let list = ["worktree", "list", "--porcelain", "-z"];
        let listed = source.git(&self.git, list).run().await?;
        let mut folder = None;
        let wanted = format!("branch refs/heads/{branch}");
        for line in entries(&listed).map(Path::to_string_lossy) {
            if let Some(path) = line.strip_prefix("worktree ") {
                folder = Some(PathBuf::from(path));
            } else if line == wanted {
                return Ok(folder);
            }
        }
        Ok(None)
    }
}
