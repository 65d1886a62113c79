//! The commits of a branch that later commits of the branch undo.

use super::merge_message::REVERTS;

/// The fewest digits by which a message names a commit.
const MIN_DIGITS: usize = 7;

/// A commit of a branch with its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    pub id: String,
    pub message: String,
}

/// A commit that is undone, and the commit that undoes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reverted {
    /// The id, or its beginning.
    pub commit: String,
    pub by: String,
}

/// Returns the commits that are undone by commits of `newest_first`, which come after their
/// children. A revert that is itself reverted undoes nothing.
pub fn find_reverted(newest_first: &[Commit]) -> Vec<Reverted> {
    let mut found: Vec<Reverted> = Vec::new();
    for Commit { id, message } in newest_first {
        if found.iter().any(|it| id.starts_with(&it.commit)) {
            continue;
        }
        let named = message.lines().filter_map(|line| line.strip_prefix(REVERTS));
        for rest in named {
            let commit: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
            if commit.len() >= MIN_DIGITS {
                found.push(Reverted { commit, by: id.clone() });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(digit: &str, message: &str) -> Commit {
        Commit { id: digit.repeat(40), message: message.to_owned() }
    }

    fn reverts(digit: &str) -> String {
        format!("Revert \"work\"\n\nThis reverts commit {}.\n", digit.repeat(40))
    }

    #[test]
    fn a_revert_that_is_reverted_undoes_nothing() {
        let found = |commits: &[Commit]| {
            let found = find_reverted(commits);
            found.iter().map(|it| it.commit[..1].to_owned() + &it.by[..1]).collect::<Vec<_>>()
        };
        let first = commit("b", &reverts("a"));
        let second = commit("c", &reverts("b"));
        let third = commit("d", &reverts("c"));
        assert_eq!(found(&[first.clone(), commit("a", "work\n")]), ["ab"]);
        assert_eq!(found(&[second.clone(), first.clone()]), ["bc"]);
        assert_eq!(found(&[third, second, first]), ["cd", "ab"]);
    }

    #[test]
    fn a_revert_names_the_commit_in_a_line_of_its_message() {
        let of = |message: &str| find_reverted(&[commit("b", message)]);
        let merge =
            "Revert \"Merge\"\n\nThis reverts commit abcdef0, reversing\nchanges made to 1.\n";
        assert_eq!(of(merge)[0].commit, "abcdef0");
        for message in ["This reverts commit abc.", "    This reverts commit abcdef0.", "Revert a"]
        {
            assert_eq!(of(message), [], "{message}");
        }
        let two = of("This reverts commit abcdef0.\nThis reverts commit 1234567.\n");
        assert_eq!(two.len(), 2);
    }
}
