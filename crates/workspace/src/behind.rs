//! Looks how far a branch of the source is: at which commit, and how many it got since the work of a
//! workspace began.

use std::path::{Path, PathBuf};

use super::git::GitError;
use super::source::Source;
use super::{Result, Results};

/// The facts that the commits are counted by.
#[derive(Debug, Clone)]
pub struct BehindOrder {
    /// The directory of the project.
    pub source: PathBuf,
    /// The branch that the work began at, as a full ref.
    pub base_ref: String,
    /// The commit that the work began at.
    pub base_commit: String,
    /// The last commit of the work.
    pub head_commit: Option<String>,
}

impl Results {
    /// Returns the commit at which a branch of the source is; `None` if git does not say that. The
    /// source may run git as another user, so that the answer is not to be trusted.
    ///
    /// # Errors
    /// Git cannot be run.
    pub async fn head_of(&self, directory: &Path, branch: &str) -> Result<Option<String>> {
        self.git.check().await?;
        let source = Source::of_folder(directory).await?;
        let find = ["rev-parse", "--verify", "--quiet", &format!("refs/heads/{branch}")];
        Ok(source.git(&self.git, find).text().await.ok())
    }

    /// Returns the number of commits that the branch of the source has and the work has not. `None`
    /// if the branch is gone, or if the work began at a commit that the source does not have.
    ///
    /// # Errors
    /// Git cannot be run.
    pub async fn behind(&self, order: &BehindOrder) -> Result<Option<u64>> {
        self.git.check().await?;
        let source = Source::of_folder(&order.source).await?;
        let mut known = Vec::new();
        for commit in [Some(&order.base_commit), order.head_commit.as_ref()].into_iter().flatten() {
            let exists = ["cat-file", "-e", &format!("{commit}^{{commit}}")];
            if source.git(&self.git, exists).end().await?.code == Some(0) {
                known.push(format!("^{commit}"));
            }
        }
        if known.is_empty() {
            return Ok(None);
        }
        let count = ["rev-list", "--count", "--end-of-options", &order.base_ref];
        let arguments = count.into_iter().chain(known.iter().map(String::as_str));
        match source.git(&self.git, arguments).text().await {
            Ok(printed) => Ok(printed.trim().parse().ok()),
            Err(GitError::Failed { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
