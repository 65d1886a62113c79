//! Decides whether a person has dealt with a merge that could not be undone.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::id::{ProjectId, WorkspaceId};
use crate::time::Timestamp;

/// A merge that did not come to its end, and whose files could not be put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftMerge {
    pub workspace: WorkspaceId,
    pub project: ProjectId,
    /// The work tree with its files.
    pub folder: PathBuf,
    /// The branch that was to get the result.
    pub branch: String,
    /// The files that still differ; none if that is not known.
    pub files: Vec<String>,
    /// The time of the merge.
    pub since: Timestamp,
}

/// Returns the files of a result that a person has still to deal with: those that differ from the
/// commit that is checked out. Other changes of the person have nothing to do with the merge.
pub fn still_left(
    of_result: &BTreeSet<String>,
    differing: impl IntoIterator<Item = String>,
) -> Vec<String> {
    let left: BTreeSet<String> =
        differing.into_iter().filter(|file| of_result.contains(file)).collect();
    left.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_result_are_left() {
        let of_result = BTreeSet::from(["a", "b", "c"].map(str::to_owned));
        let left = |differing: &[&str]| {
            still_left(&of_result, differing.iter().map(|file| (*file).to_owned()))
        };
        assert_eq!(left(&["c", "own", "a", "c"]), ["a", "c"]);
        assert!(left(&["own"]).is_empty() && left(&[]).is_empty());
    }
}
