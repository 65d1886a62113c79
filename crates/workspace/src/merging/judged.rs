//! Brings a commit into a branch of the source after hooks of the source have judged it.
//!
//! A hook runs with the result in the work tree. So the files come first, and the branch is moved
//! last, from the commit at which it was. A [`Record`] says meanwhile what is under way. After a
//! crash, [`SourceTrees::end_interrupted_merges`] puts index and files back.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use tokio::sync::OwnedMutexGuard;

use super::deliver::answer_of;
use super::parts::Parts;
use super::put_back::PutBack;
use super::record::Record;
use super::{BranchMove, MergeOrder, Merged, Sides};
use crate::git::HookRun;
use crate::inside::Inside;
use crate::rights::blocking_as;
use crate::source::{Source, entries};
use crate::{CheckoutError, KeepState, Result, Results, SourceTrees};
use domain::workspace::COMMIT_MSG;
use machine::crash_point::{self, CrashPoint};
use runtime::telemetry::ErrorChain;

/// The file with the message for a hook, in git's folder. `COMMIT_EDITMSG` is the person's.
const MESSAGE: &str = "MESSAGE_OF_AGENT_COORDINATOR";
/// The most bytes of a message that are read after a hook.
const MAX_MESSAGE: u64 = 1024 * 1024;
/// The options of each comparison of files.
pub(super) const COMPARE: [&str; 6] =
    ["diff", "--name-only", "-z", "--no-ext-diff", "--no-textconv", "--no-renames"];

/// The verdict of the hooks.
enum Verdict {
    /// They passed. One of them may have changed the message.
    Passed(Option<String>),
    /// Git did not write the files of the commit, for this reason.
    InTheWay(String),
    /// A hook failed with these words, or changed these files.
    Refused { hook: PathBuf, said: String, files: Vec<String> },
}

impl Results {
    /// Gives the source the commit that continues its branch, if the hooks pass. The keep
    /// repository, which `locked` locks, is not locked while they run.
    pub(super) async fn deliver_judged(
        &self,
        order: &MergeOrder,
        sides: &Sides<'_>,
        moved: BranchMove<'_>,
        hooks: &[PathBuf],
        locked: OwnedMutexGuard<KeepState>,
    ) -> Result<Merged> {
        let Sides { source, place, .. } = *sides;
        let BranchMove { branch, target, new } = moved;
        let folder = match self.ready(source, place, moved).await? {
            Ok(folder) => folder,
            Err(message) => return Ok(self.in_the_way(order, sides, branch, message).await),
        };
        let record = Record {
            directory: order.source.clone(),
            folder,
            branch: branch.to_owned(),
            old: target.to_owned(),
            new: new.clone(),
        };
        if let Some(folder) = &record.folder {
            let files = self.trees.differing(source, folder, &record.old).await?;
            if !files.is_empty() {
                return Ok(Merged::Dirty { branch: branch.to_owned(), files });
            }
            let files = self.trees.unknown_in_the_way(source, folder, &record).await?;
            if !files.is_empty() {
                let message = format!("these files are in no commit:\n{}", files.join("\n"));
                return Ok(self.in_the_way(order, sides, branch, message).await);
            }
        }
        let path = Record::path(&place.project, &order.id);
        record.write(&path)?;
        crash_point::reach(CrashPoint::MergeRecorded);
        drop(locked);
        let judging = self.judge_and_move(order, sides, &record, &path, hooks);
        let mut merged = Box::pin(judging).await;
        if !matches!(merged, Ok(Merged::Into { .. })) {
            let left = match Box::pin(self.trees.end_record(&path)).await {
                Ok(left) => left,
                Err(error) => vec![ErrorChain(&error).to_string()],
            };
            if let Ok(Merged::InTheWay { message, .. }) = &mut merged {
                message.push_str(&still_there(&left));
            }
        }
        merged
    }

    /// Lets the hooks judge the recorded commit, and moves the branch to it. After another end than
    /// `Into` and a refusal of a hook, the record is still there.
    async fn judge_and_move(
        &self,
        order: &MergeOrder,
        sides: &Sides<'_>,
        record: &Record,
        path: &Path,
        hooks: &[PathBuf],
    ) -> Result<Merged> {
        let Sides { source, place, result } = *sides;
        let branch = record.branch.clone();
        let Parts { tree, parents, message, .. } = self.parts_of(place, &record.new).await?;
        let message = String::from_utf8_lossy(&message).into_owned();
        let verdict = Box::pin(self.trees.judge(order, source, record, hooks, &message)).await?;
        let folder = record.folder.as_ref().unwrap_or(&source.top);
        self.trees.remove_message(source, folder).await?;
        let _locked = self.keep.lock_keep(&order.project, place).await?;
        let message = match verdict {
            Verdict::Passed(message) => message,
            Verdict::InTheWay(message) => {
                return Ok(self.in_the_way(order, sides, &branch, message).await);
            }
            Verdict::Refused { hook, said, files } => {
                let PutBack { saved, left } = self.trees.put_back(source, record, &files).await?;
                crash_point::reach(CrashPoint::MergePutBack);
                if left.is_empty() { Record::remove(path) } else { Record::set_aside(path) }?;
                let hook = hook.to_string_lossy().into_owned();
                let said = said + &still_there(&left);
                return Ok(Merged::HookRefused { branch, hook, said, files, saved });
            }
        };
        let mut record = record.clone();
        if let Some(message) = message {
            let signatures = self.signatures(source, order).await;
            let made = self.git.commit_as(place, &tree, parents.iter(), &message, &signatures);
            record.new = made.await?;
            self.git.give(source, place, &record.new).await?;
        }
        record.new = self.signed(sides, &record.old, record.new).await?;
        record.write(path)?;
        let moved = BranchMove { branch: &branch, target: &record.old, new: &record.new };
        self.note_merge(place, &order.branch, result, moved).await?;
        crash_point::reach(CrashPoint::MergeJudged);
        if let Err(message) = self.trees.move_branch(source, &record).await? {
            return Ok(self.in_the_way(order, sides, &branch, message).await);
        }
        crash_point::reach(CrashPoint::MergeDelivered);
        Record::remove(path)?;
        Ok(Merged::Into { branch, commit: record.new })
    }
}

impl SourceTrees {
    /// Writes the files of the new commit, and runs the hooks.
    async fn judge(
        &self,
        order: &MergeOrder,
        source: &Source,
        record: &Record,
        hooks: &[PathBuf],
        message: &str,
    ) -> Result<Verdict> {
        if let Some(folder) = &record.folder
            && let Err(message) = self.write_files(source, folder, record).await?
        {
            return Ok(Verdict::InTheWay(message));
        }
        crash_point::reach(CrashPoint::MergeWritten);
        let folder = record.folder.as_deref().unwrap_or(&source.top);
        let git_dir = self.git_dir(source, folder).await?;
        let mut after = message.to_owned();
        for hook in hooks {
            let is_of_message = hook.ends_with(COMMIT_MSG);
            let file = git_dir.join(MESSAGE);
            if is_of_message {
                let inside = git_dir.clone();
                let message = message.to_owned();
                blocking_as(source.owner, move || {
                    Inside::open(&inside)?.write(Path::new(MESSAGE), message.as_bytes(), 0o644)
                })
                .await?;
            }
            let run = HookRun {
                program: hook,
                argument: Some(file).filter(|_| is_of_message),
                folder,
                owner: source.owner,
                limit: order.hooks.timeout,
            };
            let ran = self.git.run_hook(run).await?;
            let files = match &record.folder {
                Some(folder) => self.differing(source, folder, &record.new).await?,
                None => Vec::new(),
            };
            let hook = hook.clone();
            if let Err(said) = ran {
                return Ok(Verdict::Refused { hook, said, files });
            }
            if !files.is_empty() {
                return Ok(Verdict::Refused { hook, said: String::new(), files });
            }
            if is_of_message {
                after = self.message_in(source, &git_dir).await?;
                if after.trim().is_empty() {
                    let said = "it left an empty message".to_owned();
                    return Ok(Verdict::Refused { hook, said, files });
                }
            }
        }
        Ok(Verdict::Passed(Some(after).filter(|after| after != message)))
    }

    /// Writes the files of the new commit into the index and the work tree. Git overwrites no file
    /// that it does not know.
    async fn write_files(
        &self,
        source: &Source,
        folder: &Path,
        record: &Record,
    ) -> Result<Result<(), String>> {
        let merge = [
            "merge",
            "--squash",
            "--ff-only",
            "--no-overwrite-ignore",
            "--no-verify-signatures",
            "--quiet",
            &record.new,
        ];
        let call = self.git.in_folder(folder, merge).run_as(source.owner).long();
        let written = answer_of(call.run().await, source).await?;
        self.remove_message(source, folder).await?;
        Ok(written)
    }

    /// Removes the message that git has for a squash, which a later commit of the person would
    /// get, and the one that the hook had.
    pub(super) async fn remove_message(&self, source: &Source, folder: &Path) -> Result<()> {
        let git_dir = self.git_dir(source, folder).await?;
        let remove = move || {
            let inside = Inside::open(&git_dir)?;
            inside.remove_file(Path::new("SQUASH_MSG"))?;
            inside.remove_file(Path::new(MESSAGE))
        };
        blocking_as(source.owner, remove).await
    }

    /// Moves the branch to the new commit, unless it is at another one than before.
    async fn move_branch(&self, source: &Source, record: &Record) -> Result<Result<(), String>> {
        if record.folder.is_some() {
            let place = self.work_tree_of(source, &record.branch).await?;
            if place != record.folder {
                let branch = &record.branch;
                return Ok(Err(format!("the branch `{branch}` was switched while its hooks ran")));
            }
        }
        let name = format!("refs/heads/{}", record.branch);
        let change = ["update-ref", "-m", "agent-coordinator: merge", &name];
        let change = change.into_iter().chain([record.new.as_str(), record.old.as_str()]);
        let folder = record.folder.as_ref().unwrap_or(&source.top);
        let call = self.git.in_folder(folder, change).run_as(source.owner);
        answer_of(call.run().await, source).await
    }

    /// Returns whether the branch is at a commit.
    pub(super) async fn is_at(
        &self,
        source: &Source,
        record: &Record,
        commit: &str,
    ) -> Result<bool> {
        let name = format!("refs/heads/{}", record.branch);
        let find = ["rev-parse", "--quiet", "--verify", "--end-of-options", &name];
        let found = source.git(&self.git, find).end().await?;
        Ok(String::from_utf8_lossy(&found.stdout).trim() == commit)
    }

    /// Returns the files that git knows and that differ from a tree, in the index or on disk.
    pub(super) async fn differing(
        &self,
        source: &Source,
        folder: &Path,
        tree: &str,
    ) -> Result<Vec<String>> {
        let mut files = self.differing_in_index(source, folder, tree).await?;
        // The files of submodules are not those of the result.
        let compare = COMPARE.into_iter().chain(["--ignore-submodules=all", tree, "--"]);
        let call = self.git.in_folder(folder, compare).run_as(source.owner).long();
        files.extend(names_of(&call.run().await?));
        Ok(files.into_iter().collect())
    }

    /// Returns the files that differ between the index and a tree.
    pub(super) async fn differing_in_index(
        &self,
        source: &Source,
        folder: &Path,
        tree: &str,
    ) -> Result<BTreeSet<String>> {
        let options = ["--cached", "--ignore-submodules=none", tree, "--"];
        let compare = COMPARE.into_iter().chain(options);
        let call = self.git.in_folder(folder, compare).run_as(source.owner).long();
        Ok(names_of(&call.run().await?).collect())
    }

    /// Returns the files in the places of new files of the commit. Git does not know them.
    pub(super) async fn unknown_in_the_way(
        &self,
        source: &Source,
        folder: &Path,
        record: &Record,
    ) -> Result<Vec<String>> {
        let planned = self.planned(source, folder, record, "--diff-filter=A").await?;
        let folder = folder.to_owned();
        blocking_as(source.owner, move || {
            let is_file = |name: &String| {
                folder.join(name).symlink_metadata().is_ok_and(|found| !found.is_dir())
            };
            Ok(planned.into_iter().filter(is_file).collect())
        })
        .await
    }

    /// Returns the files that the commit changes, and that a filter of git selects.
    pub(super) async fn planned(
        &self,
        source: &Source,
        folder: &Path,
        record: &Record,
        filter: &str,
    ) -> Result<BTreeSet<String>> {
        let Record { old, new, .. } = record;
        let list = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", filter, old, new];
        let listed = self.git.in_folder(folder, list).run_as(source.owner).long().run().await?;
        Ok(names_of(&listed).collect())
    }

    /// Returns git's own folder for a work tree, or for the source.
    pub(super) async fn git_dir(&self, source: &Source, folder: &Path) -> Result<PathBuf> {
        let find = ["rev-parse", "--absolute-git-dir"];
        Ok(self.git.in_folder(folder, find).run_as(source.owner).text().await?.into())
    }

    /// Returns the message that a hook left.
    async fn message_in(&self, source: &Source, git_dir: &Path) -> Result<String> {
        let git_dir = git_dir.to_owned();
        blocking_as(source.owner, move || {
            let failed = CheckoutError::io("read the message in", &git_dir);
            let mut message = Vec::new();
            let opened = Inside::open(&git_dir)?.open_file(Path::new(MESSAGE));
            opened
                .and_then(|file| file.take(MAX_MESSAGE).read_to_end(&mut message))
                .map_err(failed)?;
            Ok(String::from_utf8_lossy(&message).into_owned())
        })
        .await
    }
}

/// Returns the lines about a merge that could not be undone; none if it was.
pub(super) fn still_there(left: &[String]) -> String {
    if left.is_empty() {
        return String::new();
    }
    format!("\nthe files of the result are still there, because of:\n{}", left.join("\n"))
}

/// Splits names that end with a NUL.
pub(super) fn names_of(output: &[u8]) -> impl Iterator<Item = String> {
    entries(output).map(|name| name.to_string_lossy().into_owned())
}
