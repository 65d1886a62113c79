//! Gives the source the commit of a merge, or a branch to merge by hand.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::judged::still_there;
use super::{BranchMove, MergeOrder, Merged, Sides};
use crate::git::GitError;
use crate::rights::{Owner, blocking_as, is_open_to_others, is_root_here};
use crate::source::{Source, advice_on_open, entries, owner_of_work_tree};
use crate::{CheckoutError, Place, Result, Results, SourceTrees};
use domain::store_state::span;
use domain::workspace::Published;
use machine::sys::user_names::login_of;
use runtime::telemetry::ErrorChain;

impl Results {
    /// Gives the source a branch with the result. A merge that is refused is refused for its own
    /// reason, also without such a branch.
    pub(super) async fn offer_result(
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

    /// Returns the end of a merge that the files or the branch of the source prevent.
    pub(super) async fn in_the_way(
        &self,
        order: &MergeOrder,
        sides: &Sides<'_>,
        branch: &str,
        message: String,
    ) -> Merged {
        let Sides { source, place, result } = *sides;
        let result = self.offer_result(order, source, place, result.to_owned()).await;
        Merged::InTheWay { branch: branch.to_owned(), message, result }
    }

    /// Gives the source the commit that continues its branch. Returns git's message as an error if
    /// files are in the way, or if the branch has moved.
    pub(super) async fn deliver(
        &self,
        source: &Source,
        place: &Place,
        moved: BranchMove<'_>,
    ) -> Result<Result<(), String>> {
        let BranchMove { branch, target, new } = moved;
        let done = match self.ready(source, place, moved).await? {
            Err(message) => return Ok(Err(message)),
            Ok(Some(folder)) => {
                let merge = ["merge", "--ff-only", "--no-verify-signatures", "--quiet", new];
                let call = self.git.in_folder(&folder, merge).run_as(source.owner).long();
                let answer = answer_of(call.run().await, source).await;
                if matches!(answer, Ok(Ok(()))) {
                    return answer;
                }
                let back = self.trees.put_back_unmoved(source, place, folder, moved);
                let left = still_there(&Box::pin(back).await?);
                return match answer {
                    Ok(Err(message)) => Ok(Err(message + &left)),
                    Err(CheckoutError::Refused(reason)) => {
                        Err(CheckoutError::Refused(reason + &left))
                    }
                    other => other,
                };
            }
            Ok(None) => {
                let change = ["update-ref", &format!("refs/heads/{branch}"), new, target];
                source.git(&self.git, change).run().await
            }
        };
        answer_of(done, source).await
    }

    /// Gives the source the objects of a commit that is to continue its branch. Returns the work
    /// tree of the branch, or a message as an error if the branch cannot be moved now.
    pub(super) async fn ready(
        &self,
        source: &Source,
        place: &Place,
        moved: BranchMove<'_>,
    ) -> Result<Result<Option<PathBuf>, String>> {
        let BranchMove { branch, target, new } = moved;
        let checked_out = self.trees.work_tree_of(source, branch).await?;
        if self.trees.is_rebased(source, branch).await? {
            return Ok(Err(format!("the branch `{branch}` is being rebased; finish that first")));
        }
        self.git.give(source, place, new).await?;
        if let Some(folder) = &checked_out {
            if source.owner.is_none() && owner_of_work_tree(folder)?.is_some() {
                return Err(CheckoutError::Refused(format!(
                    "the branch `{branch}` is checked out in `{}`, which belongs to another user \
                     than the repository; merge it there by hand",
                    folder.display()
                )));
            }
            self.check_written(source, place, folder, target, new).await?;
        }
        Ok(Ok(checked_out))
    }

    /// Checks that only root can change the folders in which a merge writes, if root merges.
    async fn check_written(
        &self,
        source: &Source,
        place: &Place,
        folder: &Path,
        target: &str,
        new: &str,
    ) -> Result<()> {
        if source.owner.is_some() || !is_root_here() {
            return Ok(());
        }
        let from = if self.git.resolve(place, target).await?.is_some() {
            target.to_owned()
        } else {
            self.git.empty_tree(place).await?
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
}

impl SourceTrees {
    /// Returns the folder in which a branch of the source is checked out.
    pub(crate) async fn work_tree_of(
        &self,
        source: &Source,
        branch: &str,
    ) -> Result<Option<PathBuf>> {
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

/// Returns git's answer to a change of the source: its message is an error of its own, also if git
/// went beyond a limit, because it would do so again.
///
/// # Errors
/// `Refused` if another git has a lock there; git could not run to its end.
pub(super) async fn answer_of(
    done: Result<Vec<u8>, GitError>,
    source: &Source,
) -> Result<Result<(), String>> {
    match done.map_err(|error| source.explain(error)) {
        Ok(_) => Ok(Ok(())),
        Err(CheckoutError::Git(GitError::Failed { message, .. })) => {
            match about_lock(&message, source.owner).await? {
                Some(reason) => Err(CheckoutError::Refused(reason)),
                None => Ok(Err(message)),
            }
        }
        Err(CheckoutError::Git(error)) if error.is_beyond_limit() => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}

/// Returns the sentence about the lock that git names in a message, as its owner finds it now.
async fn about_lock(said: &str, owner: Option<Owner>) -> Result<Option<String>> {
    let Some(path) = lock_in(said).map(PathBuf::from) else {
        return Ok(None);
    };
    blocking_as(owner, move || {
        let lock = path.display();
        let age = path.symlink_metadata().ok().and_then(|found| {
            let age = found.modified().ok()?.elapsed().unwrap_or_default();
            Some((span(age), login_of(found.uid()).unwrap_or_else(|| found.uid().to_string())))
        });
        Ok(Some(match age {
            Some((age, user)) => format!(
                "another git of the user {user} made the lock `{lock}` {age} ago; merge again when \
                 it has ended, or remove the file if no git is at work there"
            ),
            None => format!("another git held the lock `{lock}`; merge again"),
        }))
    })
    .await
}

/// Returns the path of the lock in a message of git.
fn lock_in(said: &str) -> Option<&str> {
    let (path, _) = said.split_once("Unable to create '")?.1.split_once(".lock': File exists")?;
    let start = said.find(path)?;
    said.get(start..start + path.len() + ".lock".len())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_change_beyond_a_limit_is_answered_and_one_that_was_ended_is_not() {
        let source = Source {
            top: PathBuf::new(),
            subdirectory: String::new(),
            is_bare: true,
            owner: None,
            common: PathBuf::new(),
        };
        let command = "merge".to_owned();
        let limit = Duration::from_mins(2);
        for (error, is_answer) in [
            (GitError::TooSlow { command: command.clone(), limit }, true),
            (GitError::TooMuch { command: command.clone() }, true),
            (GitError::TooLarge { command: command.clone(), n_mib: 256 }, true),
            (GitError::TimedOut { command: command.clone(), limit }, false),
            (GitError::Killed { command }, false),
        ] {
            let said = error.to_string();
            match answer_of(Err(error), &source).await {
                Ok(answer) => assert!(is_answer && answer == Err(said), "{answer:?}"),
                Err(error) => assert!(!is_answer, "{error}"),
            }
        }
    }

    #[test]
    fn a_message_names_the_lock() {
        let said = "fatal: Unable to create '/a b/.git/index.lock': File exists.\n\nAnother git";
        assert_eq!(lock_in(said), Some("/a b/.git/index.lock"));
        assert_eq!(lock_in("error: Unable to create '/a/x': Permission denied"), None);
    }
}
