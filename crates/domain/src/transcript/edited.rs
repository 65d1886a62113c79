//! The lines that a call of a tool changes in a file, from the arguments of the call.

use serde_json::Value;

/// The names of the old and of the new text, in the families of agent CLIs.
const OLD_AND_NEW: [(&str, &str); 3] =
    [("old_string", "new_string"), ("oldString", "newString"), ("old_str", "new_str")];

/// The numbers of lines that an edit adds and removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EditedLines {
    /// The lines of the new text without those that both texts begin and end with.
    pub n_added: usize,
    /// The same for the old text.
    pub n_removed: usize,
}

impl EditedLines {
    /// Reads the arguments of a call: one replacement, or a list of them as `edits`. Returns `None`
    /// if they have no replacement, or one that changes nothing.
    pub(super) fn of(arguments: &Value) -> Option<Self> {
        let one = std::slice::from_ref(arguments);
        let edits = arguments["edits"].as_array().map_or(one, Vec::as_slice);
        let found = edits.iter().filter_map(Self::of_one);
        let sum = |sum: Self, edit: Self| Self {
            n_added: sum.n_added + edit.n_added,
            n_removed: sum.n_removed + edit.n_removed,
        };
        found.reduce(sum).filter(|edited| *edited != Self::default())
    }

    fn of_one(edit: &Value) -> Option<Self> {
        let mut texts = OLD_AND_NEW
            .iter()
            .filter_map(|(old, new)| edit[*old].as_str().zip(edit[*new].as_str()));
        let (old, new) = texts.next()?;
        let old: Vec<_> = old.lines().collect();
        let new: Vec<_> = new.lines().collect();
        let n_same = |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| {
            pairs.take_while(|(old, new)| old == new).count()
        };
        let n_before = n_same(&mut old.iter().zip(&new));
        let old = &old[n_before..];
        let new = &new[n_before..];
        let n_after = n_same(&mut old.iter().rev().zip(new.iter().rev()));
        Some(Self { n_added: new.len() - n_after, n_removed: old.len() - n_after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(arguments: &str, expected: Option<(usize, usize)>) {
        let found = EditedLines::of(&serde_json::from_str(arguments).unwrap());
        let found = found.map(|edited| (edited.n_added, edited.n_removed));
        assert_eq!(found, expected, "{arguments}");
    }

    #[test]
    fn lines_that_stay_do_not_count() {
        check(r#"{"old_string": "a\nb\nc", "new_string": "a\nB\nB2\nc"}"#, Some((2, 1)));
        check(r#"{"oldString": "", "newString": "a\nb\n"}"#, Some((2, 0)));
        check(r#"{"old_str": "a\na\na", "new_str": "a\na"}"#, Some((0, 1)));
    }

    #[test]
    fn the_edits_of_one_call_are_added_up() {
        check(
            r#"{"file_path": "f", "edits": [{"old_string": "a", "new_string": "b"},
                {"old_string": "c\nd", "new_string": ""}, {"odd": 1}]}"#,
            Some((1, 3)),
        );
    }

    #[test]
    fn other_arguments_are_no_edit() {
        for arguments in [
            "null",
            "[]",
            r#"{"command": "ls"}"#,
            r#"{"edits": 3}"#,
            r#"{"edits": []}"#,
            r#"{"old_string": "a", "new_string": 2}"#,
            r#"{"old_string": "a", "new_string": "a"}"#,
        ] {
            check(arguments, None);
        }
    }
}
