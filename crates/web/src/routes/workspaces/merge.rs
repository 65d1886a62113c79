//! `POST /tasks/{task}/workspace/merge`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use crate::extract::{InBody, InTask};
use crate::{Problem, RestState};
use api::workspaces::{MergeRequest, MergedBody};
use domain::workspace::Published;
use service::{HookWish, MergeStyle, MergeWish, Merged, Repeat};

pub(super) async fn merge(
    State(state): State<RestState>,
    InTask(task): InTask,
    InBody(request): InBody<MergeRequest>,
) -> Result<Json<MergedBody>, Problem> {
    let MergeRequest { into, squash, rebase, with_uncommitted, expected_head, .. } = request;
    let MergeRequest { again, only_new, run_hooks, no_hooks, remember, now, ask_agent, .. } =
        request;
    let style = style_of(squash, rebase)?;
    let repeat = repeat_of(again, only_new)?;
    let wish = MergeWish {
        into,
        style,
        repeat,
        with_uncommitted,
        hooks: hooks_of(run_hooks, no_hooks, remember)?,
        expected_head,
        now,
        ask_agent,
    };
    let body = |branch, commit, was_merged| MergedBody {
        branch,
        commit,
        was_merged,
        merge: None,
        is_unchanged: false,
    };
    match state.service.workspaces.merge(&task, &wish).await? {
        Merged::Into { branch, commit } => {
            tracing::info!(task_id = %task, branch, commit, "result merged");
            Ok(Json(body(branch, commit, false)))
        }
        Merged::Already { branch, commit, merge } => {
            Ok(Json(MergedBody { merge, ..body(branch, commit, true) }))
        }
        Merged::Unchanged { branch, commit } => {
            Ok(Json(MergedBody { is_unchanged: true, ..body(branch, commit, true) }))
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
pub(crate) fn style_of(squash: bool, rebase: bool) -> Result<MergeStyle, Problem> {
    let styles = [(squash, MergeStyle::Squash), (rebase, MergeStyle::Rebase)];
    let both =
        "a result is merged as one commit (`squash`) or as its own ones (`rebase`), not both";
    at_most_one(styles, "two_merge_styles", both)
}

/// Returns what earlier merges mean for a merge.
///
/// # Errors
/// Both options are set.
pub(crate) fn repeat_of(again: bool, only_new: bool) -> Result<Repeat, Problem> {
    let both = "all changes are merged `again`, or the newer ones (`onlyNew`), not both";
    at_most_one([(again, Repeat::Again), (only_new, Repeat::OnlyNew)], "again_and_only_new", both)
}

/// Returns the wish about the hooks of the project's repository.
///
/// # Errors
/// Both options are set, or another wish than that no hooks run is to be remembered.
pub(crate) fn hooks_of(run: bool, no: bool, remember: bool) -> Result<HookWish, Problem> {
    let both = "the hooks of the repository run (`runHooks`) or not (`noHooks`), not both";
    let wishes = [(run, HookWish::Run), (no, HookWish::Skip)];
    match (at_most_one(wishes, "run_hooks_and_no_hooks", both)?, remember) {
        (wish, false) => Ok(wish),
        (HookWish::Skip, true) => Ok(HookWish::SkipAlways),
        (_, true) => {
            let detail = "`remember` goes with `noHooks` only; that hooks run is never remembered";
            let problem = Problem::new(StatusCode::CONFLICT, "hooks_not_remembered", detail);
            Err(problem.with_hint(Some("the configuration file says it: `workspace.merge_hooks`")))
        }
    }
}

/// Returns the value of the option that is set, or the default.
///
/// # Errors
/// The problem with this code and this text, if both are set.
fn at_most_one<T: Default>(
    options: [(bool, T); 2],
    code: &'static str,
    both: &str,
) -> Result<T, Problem> {
    let mut set = options.into_iter().filter_map(|(is_set, value)| is_set.then_some(value));
    let first = set.next().unwrap_or_default();
    match set.next() {
        None => Ok(first),
        Some(_) => Err(Problem::new(StatusCode::CONFLICT, code, both.to_owned())),
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
                "the branch has commits of an earlier merge of the result, so merge by hand"
            } else {
                "let its agent resolve that (`askAgent`, `--ask-agent`), or merge by hand, and run \
                 `task merge` after that, so that it counts as merged"
            },
        ),
        Merged::InTheWay { branch, message, result } => (
            "merge_in_the_way",
            format!("`{branch}` was not changed: {message}{}", offered(result.as_ref())),
            "commit or stash the files that git names, then merge again",
        ),
        Merged::HooksAsk { branch, hooks, may_run: true } => (
            "merge_hooks",
            format!(
                "`{branch}` was not changed: the repository has the hook {}, which may run files \
                 of the result",
                hooks.join(", ")
            ),
            "look at the diff, and merge with the hooks (`runHooks`, `--run-hooks`) or without \
             them (`noHooks`, `--no-hooks`, and for all merges of the project also `remember`, \
             `--remember`)",
        ),
        Merged::HooksAsk { branch, hooks, may_run: false } => (
            "merge_hooks_not_allowed",
            format!(
                "`{branch}` was not changed: the hook {} may run files of the result with the \
                 rights of the daemon, but agents run as other users",
                hooks.join(", ")
            ),
            "merge without the hooks (`noHooks`, `--no-hooks`, and for all merges of the project \
             also `remember`, `--remember`)",
        ),
        Merged::HookRefused { branch, hook, said, files, saved } => (
            "merge_hook_refused",
            refused_by(branch, hook, said, files, saved.as_deref()),
            "mend that, or merge without the hooks (`noHooks`, `--no-hooks`)",
        ),
        Merged::Dirty { branch, files } => (
            "merge_files_changed",
            format!(
                "`{branch}` was not changed: hooks run only if these files have no changes: {}",
                files.join(", ")
            ),
            "commit or stash them, or merge without the hooks (`noHooks`, `--no-hooks`)",
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

/// Returns the sentence about a hook that refused a merge.
fn refused_by(
    branch: &str,
    hook: &str,
    said: &str,
    files: &[String],
    saved: Option<&str>,
) -> String {
    let changed = match (files, saved) {
        ([], _) => String::new(),
        (files, None) => format!("; it changed {}", files.join(", ")),
        (files, Some(saved)) => {
            let files = files.join(", ");
            format!("; it changed {files}, which `git show {saved}` shows in the repository")
        }
    };
    let colon = if said.is_empty() { "" } else { ": " };
    format!("`{branch}` was not changed: the hook {hook} refused the merge{changed}{colon}{said}")
}

fn offered(result: Option<&Published>) -> String {
    let named = |Published { branch, .. }: &Published| {
        format!("; the repository has the result as the branch `{branch}`")
    };
    result.map(named).unwrap_or_default()
}
