//! Finds the hooks of a person's repository that judge the commit of a merge.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::signatures::home_of_owner;
use super::{MergeOrder, Sides};
use crate::git::GitError;
use crate::rights::blocking_as;
use crate::source::Source;
use crate::{Result, Results};
use domain::workspace::{HookStep, MergeStyle, hooks_of_commit};

/// The home of a user that this machine does not know.
const NO_HOME: &str = "/nonexistent";

impl Results {
    /// Returns the paths of the hooks that judge the new commit of a branch, unless they are
    /// skipped. A commit of the result itself, and those of a rebase, have none: git runs none.
    pub(super) async fn hooks_of_merge(
        &self,
        order: &MergeOrder,
        sides: &Sides<'_>,
        branch: &str,
        new: &str,
    ) -> Result<Vec<PathBuf>> {
        let Sides { source, place, result } = *sides;
        let is_skipped = order.hooks.step(true, source.owner.is_none()) == HookStep::Skip;
        if is_skipped || order.style == MergeStyle::Rebase || new == result {
            return Ok(Vec::new());
        }
        let is_merge = self.git.resolve(place, &format!("{new}^2")).await?.is_some();
        let folder = self.trees.work_tree_of(source, branch).await?;
        let names = hooks_of_commit(is_merge, folder.is_some());
        let hooks = self.folder_of_hooks(source, folder.as_deref()).await?;
        blocking_as(source.owner, move || {
            let is_hook = |path: &PathBuf| {
                path.metadata().is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
            };
            Ok(names.iter().map(|name| hooks.join(name)).filter(is_hook).collect())
        })
        .await
    }

    /// Returns the folder in which git of the owner finds hooks, at a work tree or at the source.
    async fn folder_of_hooks(&self, source: &Source, work_tree: Option<&Path>) -> Result<PathBuf> {
        let top = work_tree.unwrap_or(&source.top);
        let ask = ["config", "--get", "--type=path", "core.hooksPath"];
        let home = home_of_owner(source.owner).await.unwrap_or_else(|| NO_HOME.into());
        let call = self.git.in_folder(top, ask).run_as(source.owner).with_settings_of(home);
        let asked = call.end().await?;
        match asked.code {
            // Hooks are turned off.
            Some(0) if asked.stdout == b"\n" => Ok(NO_HOME.into()),
            Some(0) => {
                let path = asked.stdout.strip_suffix(b"\n").unwrap_or(&asked.stdout);
                Ok(top.join(OsStr::from_bytes(path)))
            }
            Some(1) => Ok(source.common.join("hooks")),
            _ => {
                Err(GitError::Failed { command: "config".to_owned(), message: asked.message }
                    .into())
            }
        }
    }
}
