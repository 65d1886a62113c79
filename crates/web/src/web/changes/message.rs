//! The messages that answer the actions of a reader with a result.

use super::{MergeFields, short_commit};
use crate::web::words::Words;
use domain::workspace::Published;
use service::Merged;

/// The outcome of an action of the reader.
pub(super) struct Message {
    /// A class of the page: `good`, `wait` or `bad`.
    pub(super) tone: &'static str,
    pub(super) text: String,
    /// The names of files, or the lines that git printed.
    pub(super) lines: Vec<String>,
    pub(super) hint: Option<String>,
    /// The error behind it, which exists in English only.
    pub(super) detail_in_english: Option<String>,
    /// It tells a conflict, which the part shows as long as it lasts.
    pub(super) is_conflict: bool,
    /// The merge that the reader can repeat in several ways.
    pub(super) repeats: Option<Repeats>,
}

/// A merge that a reader can repeat. The choice sets one of the options that were sent.
pub(super) struct Repeats {
    pub(super) choice: Choice,
    pub(super) sent: MergeFields,
}

/// The ways in which a reader can repeat a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// With all changes of a result that was reverted, or with the newer ones.
    Reverted,
    /// With the hooks of the project's repository, or without them.
    Hooks,
    /// Without the hooks.
    NoHooks,
}

impl Choice {
    /// Returns the ways on after a merge, if there are any.
    pub(super) const fn after(merged: &Merged) -> Option<Self> {
        match merged {
            Merged::Reverted { .. } => Some(Self::Reverted),
            Merged::HooksAsk { may_run: true, .. } => Some(Self::Hooks),
            Merged::HooksAsk { .. } | Merged::HookRefused { .. } | Merged::Dirty { .. } => {
                Some(Self::NoHooks)
            }
            _ => None,
        }
    }

    pub(super) fn is_of_hooks(self) -> bool {
        self != Self::Reverted
    }

    pub(super) fn may_run_hooks(self) -> bool {
        self == Self::Hooks
    }
}

impl Message {
    /// Returns a message without lines and buttons.
    pub(super) const fn short(tone: &'static str, text: String, hint: Option<String>) -> Self {
        let lines = Vec::new();
        let detail_in_english = None;
        Self { tone, text, lines, hint, detail_in_english, is_conflict: false, repeats: None }
    }

    /// Returns a message about an error.
    pub(super) fn failed(text: &str, reason: String) -> Self {
        Self { detail_in_english: Some(reason), ..Self::short("bad", text.to_owned(), None) }
    }
}

/// Returns the message about the end of a merge.
pub(super) fn message_of(w: &Words, merged: Merged) -> Message {
    let none = Vec::new();
    let is_conflict = matches!(merged, Merged::Conflict { .. });
    let said = |tone, text, lines, hint: Option<&str>| Message {
        tone,
        text,
        lines,
        hint: hint.map(str::to_owned),
        detail_in_english: None,
        is_conflict,
        repeats: None,
    };
    match merged {
        Merged::Into { branch, commit } => {
            said("good", w.of_merged_into(&branch, short_commit(&commit)), none, None)
        }
        Merged::Already { branch, merge, .. } => {
            let merge = merge.as_deref().map(short_commit);
            said("good", w.of_merged_before(&branch, merge), none, None)
        }
        Merged::Unchanged { .. } => said("good", w.changed_nothing.to_owned(), none, None),
        Merged::Conflict { branch, files, result, is_again, .. } => {
            let hint = if is_again { w.merge_again_conflict_hint } else { w.merge_conflict_hint };
            let hint = with_branch(w, hint, result);
            said("bad", w.of_merge_conflict(&branch), files, Some(&hint))
        }
        Merged::InTheWay { branch, message, result } => {
            let lines = message.lines().map(str::to_owned).collect();
            let hint = with_branch(w, w.merge_in_the_way_hint, result);
            said("bad", w.of_merge_in_the_way(&branch), lines, Some(&hint))
        }
        Merged::Reverted { branch, merge, revert } => {
            let [merge, revert] = [&merge, &revert].map(|commit| short_commit(commit));
            let text = w.of_merge_reverted(&branch, merge, revert);
            said("bad", text, none, Some(w.merge_reverted_hint))
        }
        Merged::HooksAsk { branch, hooks, may_run } => {
            let hint = if may_run { w.merge_hooks_hint() } else { w.merge_hooks_not_allowed() };
            said("wait", w.of_merge_hooks(&branch), hooks, Some(hint))
        }
        Merged::HookRefused { branch, hook, said: words, files, saved } => {
            let words = words.lines().map(str::to_owned);
            let lines = words.chain(files.iter().cloned()).collect();
            let hint = w.of_hook_refused_hint(saved.as_deref().map(short_commit));
            said("bad", w.of_hook_refused(&branch, &hook, !files.is_empty()), lines, Some(&hint))
        }
        Merged::Dirty { branch, files } => {
            said("bad", w.of_merge_dirty(&branch), files, Some(w.merge_dirty_hint()))
        }
        Merged::Stale { .. } => said("wait", w.merge_stale.to_owned(), none, None),
        Merged::Nothing => {
            said("wait", w.nothing_to_merge.to_owned(), none, Some(w.nothing_to_merge_hint))
        }
    }
}

/// Returns a hint that also names the branch of the project's repository with the result.
pub(super) fn with_branch(w: &Words, hint: &str, result: Option<Published>) -> String {
    match result {
        Some(Published { branch, .. }) => format!("{hint} {}", w.of_result_branch(&branch)),
        None => hint.to_owned(),
    }
}
