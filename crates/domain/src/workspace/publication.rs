//! The branch with a result in the repository of a person (`workspace.publish: branch`).

use std::path::PathBuf;

use crate::id::{ProjectId, WorkspaceId};
use crate::task::{Task, TaskStatus};
use crate::words::words;

use super::{Content, Hook, Workspace, WorkspaceState};

words! {
    /// The destination of the results of projects with clones.
    pub enum PublishResults as "destination of results" {
        /// Results stay with the coordinator until a person merges them.
        Nothing = "none",
        /// The project's repository gets a branch with the result.
        Branch = "branch",
    }
}

/// A branch of the source that has a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    pub branch: String,
    pub commit: String,
}

/// The facts that a result is published by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishOrder {
    pub id: WorkspaceId,
    pub project: ProjectId,
    /// The branch that the work is committed on, and its last commit.
    pub branch: String,
    pub commit: String,
    /// The directory of the project.
    pub source: PathBuf,
    /// The branch that got an earlier result of the workspace.
    pub last: Option<Published>,
}

impl Workspace {
    /// Returns the branch of the source that has its result, or had an earlier one.
    pub fn published(&self) -> Option<Published> {
        let found = self.published_branch.clone().zip(self.published_commit.clone());
        found.map(|(branch, commit)| Published { branch, commit })
    }

    /// Returns the workspace after its result was published.
    #[must_use]
    pub fn published_as(self, Published { branch, commit }: Published) -> Self {
        let reason = self.reason.clone().filter(|reason| Hook::of_failure(reason).is_some());
        let content = self.content.map(|content| Content { is_offered: false, ..content });
        let published_branch = Some(branch);
        Self { published_branch, published_commit: Some(commit), reason, content, ..self }
    }

    /// Returns the workspace after the source got the branch because a merge of it was refused.
    #[must_use]
    pub fn offered_as(self, offered: Published) -> Self {
        let content = self.content.clone().map(|it| Content { is_offered: true, ..it });
        Self { content, ..self.published_as(offered) }
    }

    /// Returns whether its last step failed, and was not a hook. Of a result that is to be
    /// published, that step was the publication.
    pub fn publication_failed(&self) -> bool {
        self.reason.as_deref().is_some_and(|reason| Hook::of_failure(reason).is_none())
    }

    /// Returns whether its result may be published now: its task is done, its content is kept, and
    /// it was not discarded, merged or published yet.
    pub fn is_to_be_published(&self, task: &Task) -> bool {
        let content = self.content.as_ref().filter(|content| content.n_commits > 0);
        let head = content.and_then(Content::result);
        self.state == WorkspaceState::Ready
            && task.status == TaskStatus::Done
            && self.discarded_at.is_none()
            && self.merged_commit.is_none()
            && head.is_some_and(|head| self.published_commit.as_ref() != Some(head))
    }
}

/// Returns the name of a branch for a result: the wanted one, or one with a number.
pub fn numbered(wanted: &str, n: u32) -> String {
    if n < 2 { wanted.to_owned() } else { format!("{wanted}-{n}") }
}

/// Returns the wanted name of a branch, or one without `/` if git allows no such branch beside the
/// ones that exist: no branch is below another one.
pub fn fitting<'a>(wanted: &str, existing: impl IntoIterator<Item = &'a str>) -> String {
    let is_below = |path: &str, above: &str| {
        path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
    };
    let mut existing = existing.into_iter();
    if existing.any(|other| is_below(wanted, other) || is_below(other, wanted)) {
        return wanted.replace('/', "-");
    }
    wanted.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_has_a_name_that_fits_to_the_others() {
        let of = |existing: &[&str]| fitting("agents/shop-1", existing.iter().copied());
        assert_eq!(of(&["main", "agents/shop-1", "agents-x"]), "agents/shop-1");
        assert_eq!(of(&["main", "agents"]), "agents-shop-1");
        assert_eq!(of(&["agents/shop-1/x"]), "agents-shop-1");
        assert_eq!((numbered("a", 1), numbered("a", 2)), ("a".to_owned(), "a-2".to_owned()));
    }
}
