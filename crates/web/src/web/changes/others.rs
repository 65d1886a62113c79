//! The branches and commits that an agent left beside a result, and the decisions about them.

use axum::extract::State;
use axum::response::Response;

use super::message::Message;
use super::{ChangesPart, ShowReason, show};
use crate::extract::{InForm, InTask};
use crate::routes::workspaces::choice_of;
use crate::web::layout::Frame;
use crate::web::words::Words;
use crate::{Problem, RestState};
use api::workspaces::ResultRequest;
use domain::Refusal;
use domain::workspace::{Content, OtherTip};
use service::ServiceError;

/// A branch or a commit beside the result, as the page shows it.
pub(super) struct OtherRow<'a> {
    /// The branch, or the first digits of the commit.
    pub(super) shown: &'a str,
    /// The commit, which the buttons send: a branch may have moved since.
    pub(super) commit: &'a str,
    pub(super) size: String,
    pub(super) is_dropped: bool,
}

/// Takes a branch as the result, or notes whether it is needed.
pub(super) async fn decide(
    frame: Frame,
    State(state): State<RestState>,
    InTask(id): InTask,
    InForm(request): InForm<ResultRequest>,
) -> Result<Response, Problem> {
    let choice = choice_of(request)?;
    let message = match state.service.workspaces.decide_result(&id, &choice).await {
        Ok(()) => None,
        Err(ServiceError::Refused(Refusal::WorkspaceFailed { reason, .. })) => {
            Some(Message::failed(frame.w.not_decided(), reason))
        }
        Err(error) => return Err(error.into()),
    };
    show(frame, &state, &id, ShowReason::Answer(message)).await
}

impl ChangesPart {
    /// Returns the branches and commits beside the result.
    pub(super) fn others(&self) -> Vec<OtherRow<'_>> {
        let Self { frame, content, .. } = self;
        content.others.iter().map(|other| OtherRow::of(other, content, frame.w)).collect()
    }
}

impl<'a> OtherRow<'a> {
    fn of(other: &'a OtherTip, content: &Content, w: &Words) -> Self {
        Self {
            shown: other.name(),
            commit: &other.commit,
            size: w.of_commits_more(other.n_commits),
            is_dropped: content.is_dropped(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Language;

    #[test]
    fn a_row_shows_a_branch_or_the_beginning_of_a_commit_and_sends_the_commit() {
        let commit = "0123456789abcdef0123456789abcdef01234567".to_owned();
        let at_branch =
            OtherTip { branch: Some("x".to_owned()), commit: commit.clone(), n_commits: 1 };
        let at_none = OtherTip { branch: None, commit: "f".repeat(40), n_commits: 2 };
        let content = Content { dropped: [commit].into(), ..Content::default() };
        let row = |other, language| OtherRow::of(other, &content, Words::of(language));
        let first = row(&at_branch, Language::English);
        assert_eq!([first.shown, first.commit], ["x", at_branch.commit.as_str()]);
        assert_eq!(first.size, "1 commit more");
        assert!(first.is_dropped);
        let second = row(&at_none, Language::Japanese);
        assert_eq!([second.shown, second.commit], ["f".repeat(10), "f".repeat(40)]);
        assert_eq!(second.size, "2 コミット先行");
        assert!(!second.is_dropped);
    }
}
