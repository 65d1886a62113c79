//! `POST /tasks/{task}/workspace/merge`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::domain::workspace::Published;
use crate::rest::extract::{InBody, InTask};
use crate::rest::{Problem, RestState};
use crate::service::{MergeStyle, MergeWish, Merged, Repeat};

/// The options of a merge.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option that a person sets")]
pub struct MergeRequest {
    /// The branch that gets the result; without it the one that the work began at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
    /// One commit with all changes instead of a merge.
    #[serde(default)]
    pub squash: bool,
    /// Each commit of the result again, after those of the branch.
    #[serde(default)]
    pub rebase: bool,
    /// All changes once more, as if nothing had been merged before.
    #[serde(default)]
    pub again: bool,
    /// Only the changes since an earlier merge that was reverted.
    #[serde(default)]
    pub only_new: bool,
    /// Also what is in no commit.
    #[serde(default)]
    pub with_uncommitted: bool,
    /// The commit that was seen as the result; another one is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_head: Option<String>,
    /// Although the task is open.
    #[serde(default)]
    pub now: bool,
    /// On a conflict, sets the task in progress again, so that its agent resolves it.
    #[serde(default)]
    pub ask_agent: bool,
}

/// The end of a merge.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MergedBody {
    /// The branch of the project's repository.
    pub branch: String,
    /// Its newest commit.
    pub commit: String,
    /// Whether the branch had the result before.
    pub was_merged: bool,
    /// Whether the task changed nothing.
    #[serde(default)]
    pub is_unchanged: bool,
}

pub(super) async fn merge(
    State(state): State<RestState>,
    InTask(task): InTask,
    InBody(request): InBody<MergeRequest>,
) -> Result<Json<MergedBody>, Problem> {
    let MergeRequest { into, squash, rebase, with_uncommitted, expected_head, .. } = request;
    let MergeRequest { again, only_new, now, ask_agent, .. } = request;
    let style = style_of(squash, rebase)?;
    let repeat = repeat_of(again, only_new)?;
    let wish = MergeWish { into, style, repeat, with_uncommitted, expected_head, now, ask_agent };
    match state.service.workspaces.merge(&task, &wish).await? {
        Merged::Into { branch, commit } => {
            tracing::info!(task_id = %task, branch, commit, "result merged");
            Ok(Json(MergedBody { branch, commit, was_merged: false, is_unchanged: false }))
        }
        Merged::Already { branch, commit } => {
            Ok(Json(MergedBody { branch, commit, was_merged: true, is_unchanged: false }))
        }
        Merged::Unchanged { branch, commit } => {
            Ok(Json(MergedBody { branch, commit, was_merged: true, is_unchanged: true }))
        }
        refused @ Merged::Conflict { .. } if ask_agent => {
            tracing::info!(task_id = %task, "agent asked to resolve a conflict");
            Err(refusal(&refused).with_hint(Some(
                "its agent was asked to resolve that; merge again when it is done",
            )))
        }
        refused => Err(refusal(&refused)),
    }
}

/// Returns the style of a merge that the two options name.
///
/// # Errors
/// Both are set.
pub(in crate::rest) fn style_of(squash: bool, rebase: bool) -> Result<MergeStyle, Problem> {
    match (squash, rebase) {
        (true, true) => Err(Problem::new(
            StatusCode::CONFLICT,
            "two_merge_styles",
            "a result is merged as one commit (`squash`) or as its own ones (`rebase`), not both"
                .to_owned(),
        )),
        (true, false) => Ok(MergeStyle::Squash),
        (false, true) => Ok(MergeStyle::Rebase),
        (false, false) => Ok(MergeStyle::Merge),
    }
}

/// Returns what earlier merges mean for a merge.
///
/// # Errors
/// Both options are set.
pub(in crate::rest) fn repeat_of(again: bool, only_new: bool) -> Result<Repeat, Problem> {
    match (again, only_new) {
        (true, true) => Err(Problem::new(
            StatusCode::CONFLICT,
            "again_and_only_new",
            "all changes are merged `again`, or the newer ones (`onlyNew`), not both".to_owned(),
        )),
        (true, false) => Ok(Repeat::Again),
        (false, true) => Ok(Repeat::OnlyNew),
        (false, false) => Ok(Repeat::Once),
    }
}

/// Returns the problem of a merge that changed nothing.
fn refusal(merged: &Merged) -> Problem {
    let (code, detail, hint) = match merged {
        Merged::Conflict { branch, files, result, is_again, .. } => (
            "merge_conflict",
            format!(
                "the result and `{branch}` change the same lines of: {}{}",
                files.join(", "),
                offered(result.as_ref())
            ),
            if *is_again {
                "the branch has the commits of the result and their revert, so merge by hand"
            } else {
                "let its agent resolve that (`askAgent`, `--ask-agent`), or merge by hand"
            },
        ),
        Merged::InTheWay { branch, message, result } => (
            "merge_in_the_way",
            format!("`{branch}` was not changed: {message}{}", offered(result.as_ref())),
            "commit or stash the files that git names, then merge again",
        ),
        Merged::Reverted { branch, merge, revert } => (
            "merge_reverted",
            format!("`{branch}` had the result by the commit {merge}, and {revert} reverted that"),
            "merge all of it again (`again`, `--again`), or only what is newer (`onlyNew`, \
             `--only-new`)",
        ),
        Merged::Stale { head } => (
            "merge_stale",
            format!("the result is {head} now, and not the expected commit"),
            "look at the diff again",
        ),
        Merged::Nothing
        | Merged::Into { .. }
        | Merged::Already { .. }
        | Merged::Unchanged { .. } => (
            "nothing_to_merge",
            "the task has no commit that the branch lacks".to_owned(),
            "`task diff --uncommitted` shows the files that are in no commit; they are merged with \
             `withUncommitted` (`--with-uncommitted`)",
        ),
    };
    Problem::new(StatusCode::CONFLICT, code, detail).with_hint(Some(hint))
}

fn offered(result: Option<&Published>) -> String {
    let named = |Published { branch, .. }: &Published| {
        format!("; the repository has the result as the branch `{branch}`")
    };
    result.map(named).unwrap_or_default()
}
