//! Decides what a merge does if the branch has, or had, an earlier merge of the result.

use super::reverted::Reverted;

/// The commits that a merge makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MergeStyle {
    /// One with both sides as its parents, if the branch went on meanwhile.
    #[default]
    Merge,
    /// One with all changes.
    Squash,
    /// Each commit of the result again, after those of the branch.
    Rebase,
}

/// The meaning of earlier merges for a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Repeat {
    /// The branch gets what it lacks. If an earlier merge was reverted, a person is to choose one
    /// of the other two.
    #[default]
    Once,
    /// The branch gets all changes, as if nothing had been merged before.
    Again,
    /// The branch gets only the changes since the merge that was reverted.
    OnlyNew,
}

/// The earlier merges of a result that a branch has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EarlierMerges {
    /// The branch contains the commits of the result.
    pub has_result: bool,
    /// A commit of an earlier merge that is undone on the branch.
    pub reverted: Option<Reverted>,
    /// The newest result that a commit of the branch stands for: it was squashed or replayed.
    pub stood_for: Option<String>,
    /// The commit that the result and the branch had in common before the first merge.
    pub begin: Option<String>,
}

/// The step by which a result comes into a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// The branch has the result, so that nothing is done.
    HasResult,
    /// A person is to say what the revert means.
    Ask(Reverted),
    /// Merges what has changed since this commit; `None` for the newest one that both sides have.
    Since(Option<String>),
    /// Merges all that has changed since this commit once more. The branch may have the commits of
    /// the result, so that a merge of the branch into the result is no way out of a conflict.
    Again(Option<String>),
}

/// Decides what a merge of `result` does. The work began at `base`.
///
/// A squash or a replay of a result that was reverted merges it again, because the person sees all
/// changes in the new commits. A plain merge would leave them out without a word, so it asks.
pub fn find_way(
    style: MergeStyle,
    repeat: Repeat,
    base: Option<&str>,
    result: &str,
    earlier: EarlierMerges,
) -> Way {
    let EarlierMerges { has_result, reverted, stood_for, begin } = earlier;
    let again = Way::Again(begin.or_else(|| base.map(str::to_owned)));
    match (repeat, reverted) {
        (Repeat::Again, _) => again,
        (Repeat::Once, Some(reverted)) if style == MergeStyle::Merge => Way::Ask(reverted),
        (Repeat::Once, Some(_)) => again,
        _ if has_result || stood_for.as_deref() == Some(result) => Way::HasResult,
        _ => Way::Since(stood_for),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_merged_once_and_a_reverted_one_as_a_person_says() {
        use MergeStyle::{Merge, Rebase, Squash};
        use Repeat::{Again, Once, OnlyNew};
        let none = EarlierMerges::default;
        let reverted = || Reverted { commit: "m".to_owned(), by: "v".to_owned() };
        let has = |it: EarlierMerges| EarlierMerges { has_result: true, ..it };
        let stands = |of: &str| EarlierMerges { stood_for: Some(of.to_owned()), ..none() };
        let undone = || EarlierMerges { reverted: Some(reverted()), ..none() };
        let since = |commit: &str| Way::Since(Some(commit.to_owned()));
        let again = |commit: &str| Way::Again(Some(commit.to_owned()));
        let begun = || EarlierMerges { begin: Some("t".to_owned()), ..undone() };
        let cases = [
            ("a first merge", Merge, Once, none(), Way::Since(None)),
            ("merged before", Merge, Once, has(none()), Way::HasResult),
            ("squashed before", Squash, Once, stands("r"), Way::HasResult),
            ("squashed before, and newer", Squash, Once, stands("q"), since("q")),
            ("replayed before, and newer", Rebase, Once, stands("q"), since("q")),
            ("squashed before, merged now", Merge, Once, stands("q"), since("q")),
            ("reverted", Merge, Once, has(undone()), Way::Ask(reverted())),
            ("reverted, and newer", Merge, Once, undone(), Way::Ask(reverted())),
            ("reverted, as one commit", Squash, Once, has(undone()), again("b")),
            ("reverted, replayed", Rebase, Once, undone(), again("b")),
            ("reverted, and begun later", Squash, Once, begun(), again("t")),
            ("the newer commits", Merge, OnlyNew, undone(), Way::Since(None)),
            ("nothing newer", Merge, OnlyNew, has(undone()), Way::HasResult),
            ("all once more", Merge, Again, has(none()), again("b")),
            ("squashed once more", Squash, Again, stands("r"), again("b")),
        ];
        for (name, style, repeat, earlier, expected) in cases {
            assert_eq!(find_way(style, repeat, Some("b"), "r", earlier), expected, "{name}");
        }
    }
}
