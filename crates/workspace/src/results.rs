//! People look at the result of a workspace.

use std::path::Path;

use super::git::GitError;
use super::keeping::uncommitted_ref;
use super::{CheckoutError, Git, Place, Result, Results};
use domain::workspace::KeepOrder;
use domain::{ProjectId, WorkspaceId};

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
    /// The commits since the base, or since a later commit that the branch of the source has.
    Committed,
    /// The changes that are in no commit.
    Uncommitted,
    /// One line per file of the same commits.
    Stat,
}

impl Results {
    /// Returns a diff as text. It is cut after [`MAX_DIFF`] bytes. If it does not begin where the work
    /// began, its first line says so; `git apply` skips that line.
    ///
    /// # Errors
    /// Git cannot be run, or does not know the commits.
    pub async fn diff(&self, order: &DiffOrder) -> Result<Vec<u8>> {
        self.git.check().await?;
        let KeepOrder { id, project, branch, .. } = &order.keep;
        let place = self.places.place(project, id);
        let taken = if order.is_in_use { self.clones.take(project, id).await? } else { None };
        let result = match taken {
            None => self.result_or_branch(&place, order.result.as_ref(), branch).await?,
            taken => taken,
        };
        let mut since = None;
        let range = match (order.of, result) {
            (DiffKind::Uncommitted, _) => {
                let left = self.git.resolve(&place, &uncommitted_ref(branch)).await?;
                let Some(left) = left else {
                    return Ok(Vec::new());
                };
                // In a repository that had no commit it has no parent.
                match self.git.resolve(&place, &format!("{left}^")).await? {
                    Some(parent) => vec![parent, left],
                    None => vec![self.git.empty_tree(&place).await?, left],
                }
            }
            (_, Some(result)) => match self.git.begin_of(&place, &order.keep, &result).await? {
                Some(begin) => {
                    let changes = self.git.changes(&place, &begin, &result).await?;
                    since = Some(begin);
                    changes
                }
                None => vec![self.git.empty_tree(&place).await?, result],
            },
            (_, None) => return Ok(Vec::new()),
        };
        let mut arguments = vec!["diff", "--no-ext-diff", "--no-textconv", "--no-color"];
        arguments.extend((order.of == DiffKind::Stat).then_some("--stat"));
        arguments.push("--end-of-options");
        arguments.extend(range.iter().map(String::as_str));
        let call = self.git.on(&place.keep(), arguments).long().cut_at(MAX_DIFF);
        let ended = call.end().await?;
        let diff = match ended.code {
            Some(0) => ended.stdout,
            // It was ended because its output is too long.
            _ if ended.stdout.len() as u64 >= MAX_DIFF => {
                let mut cut = ended.stdout;
                let note = format!(
                    "\n… the diff is longer than {MAX_DIFF} bytes; see the rest with git\n"
                );
                cut.extend_from_slice(note.as_bytes());
                cut
            }
            _ => {
                let command = "diff".to_owned();
                return Err(GitError::Failed { command, message: ended.message }.into());
            }
        };
        match (since, &order.keep.base_commit) {
            (Some(since), Some(base)) if since != *base && !diff.is_empty() => {
                let note = format!(
                    "Changes since {since}, which the project's branch has. The work began at \
                     {base}.\n\n"
                );
                Ok([note.into_bytes(), diff].concat())
            }
            _ => Ok(diff),
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
    ) -> Result<()> {
        self.git.check().await?;
        let place = self.places.place(project, workspace);
        let _locked = self.keep.lock_keep(project, &place).await?;
        if !place.keep().is_dir() || self.git.resolve(&place, kept).await?.is_none() {
            return Err(CheckoutError::Refused(format!(
                "`{}` does not have the kept commit {kept}",
                place.keep().display()
            )));
        }
        self.files.write_into_new(kept, &place, to).await
    }

    /// Returns the commit of a result, or else the one that is kept as the branch of the task.
    pub(super) async fn result_or_branch(
        &self,
        place: &Place,
        result: Option<&String>,
        branch: &str,
    ) -> Result<Option<String>> {
        let own = format!("refs/heads/{branch}");
        self.git.resolve(place, result.unwrap_or(&own)).await
    }
}

impl Git {
    pub(super) async fn empty_tree(&self, place: &Place) -> Result<String> {
        Ok(self.on(&place.keep(), ["mktree"]).text().await?)
    }
}
