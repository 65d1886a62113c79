//! Reads git's text files without git: an agent may have written them, and git obeys some of them.
//!
//! Each function takes the text of one kind of file. It understands what git writes, and takes
//! anything else for nothing.

use std::io::Read as _;
use std::path::Path;

use super::objects::open;

/// The largest file that is read, in bytes. The rest of a larger one is left out.
const MAX_TEXT: u64 = 16 * 1024 * 1024;

/// Reads a file; `None` if it is missing or not a regular file. Follows no link at its end. Blocks.
pub(super) fn read_text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    open(path).ok()?.take(MAX_TEXT).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns whether a word is the id of an object, by SHA-1 or SHA-256.
pub(super) fn is_id(word: &str) -> bool {
    matches!(word.len(), 40 | 64)
        && word.bytes().all(|b| b.is_ascii_hexdigit())
        && word.bytes().any(|b| b != b'0')
}

/// Returns the ref that a HEAD names; `None` if it names a commit.
pub(super) fn ref_of_head(head: &str) -> Option<&str> {
    head.strip_prefix("ref: ").map(str::trim)
}

/// Returns the id in the file of a ref.
pub(super) fn id_of_ref(text: &str) -> Option<&str> {
    text.split_whitespace().next().filter(|id| is_id(id))
}

/// Returns the names of the refs in `packed-refs` with their ids.
pub(super) fn packed_refs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let named = text.lines().filter_map(|line| line.split_once(' '));
    named.filter(|(id, _)| is_id(id)).map(|(id, name)| (name, id))
}

/// Returns the ids in a file with one in each line, such as `shallow`.
pub(super) fn ids_of_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| is_id(line))
}

/// Returns the repository that a file `.git` names.
pub(super) fn named_repository(text: &str) -> Option<&str> {
    text.strip_prefix("gitdir: ").map(str::trim_end)
}

/// Returns the only line of a file, such as `commondir`, `gitdir` or `head-name`.
pub(super) fn only_line(text: &str) -> &str {
    text.trim_end()
}

/// Returns the folders of objects in `info/alternates`.
pub(super) fn borrowed_folders(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Returns the last value of a setting. Names have no case. Files that the text includes, and lines
/// that go on in the next one, are not read.
pub(super) fn value_of<'a>(text: &'a str, section: &str, name: &str) -> Option<&'a str> {
    let mut is_here = false;
    let mut found = None;
    for line in text.lines() {
        let mut line = line.trim();
        if let Some((header, rest)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            is_here = header.trim().eq_ignore_ascii_case(section);
            line = rest;
        }
        let pair = line.split_once('=').filter(|_| is_here);
        if let Some((_, value)) = pair.filter(|(key, _)| key.trim().eq_ignore_ascii_case(name)) {
            let value = value.split(['#', ';']).next().unwrap_or_default();
            found = Some(value.trim().trim_matches('"'));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "1111111111111111111111111111111111111111";
    const TWO: &str = "2222222222222222222222222222222222222222222222222222222222222222";

    #[test]
    fn a_head_names_a_ref_or_a_commit() {
        for (head, name) in [
            ("ref: refs/heads/main\n", Some("refs/heads/main")),
            ("ref: refs/heads/main", Some("refs/heads/main")),
            ("ref:  refs/heads/main \r\n", Some("refs/heads/main")),
            (ONE, None),
            ("refs/heads/main\n", None),
            (" ref: refs/heads/main\n", None),
            ("", None),
        ] {
            assert_eq!(ref_of_head(head), name, "{head:?}");
        }
    }

    #[test]
    fn the_file_of_a_ref_begins_with_an_id() {
        for (text, id) in [
            (format!("{ONE}\n"), Some(ONE)),
            (format!("{TWO}\n"), Some(TWO)),
            (format!("{ONE}\tbranch 'main' of elsewhere\n"), Some(ONE)),
            (ONE[1..].to_owned(), None),
            (ONE.replace('1', "0"), None),
            (ONE.replace('1', "g"), None),
            ("ref: refs/heads/main\n".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(id_of_ref(&text), id, "{text:?}");
        }
    }

    #[test]
    fn packed_refs_have_names_comments_and_peeled_tags() {
        let text = format!(
            "# pack-refs with: peeled fully-peeled sorted \n{ONE} refs/heads/a b\n\
             {TWO} refs/tags/v1\n^{ONE}\nshort refs/heads/x\n{ONE}\n\n"
        );
        let found: Vec<_> = packed_refs(&text).collect();
        assert_eq!(found, [("refs/heads/a b", ONE), ("refs/tags/v1", TWO)]);
        assert_eq!(packed_refs("").count(), 0);
    }

    #[test]
    fn a_shallow_repository_lists_commits() {
        let text = format!("{ONE}\n{TWO}\n\n{ONE} x\nx\n");
        assert_eq!(ids_of_lines(&text).collect::<Vec<_>>(), [ONE, TWO]);
        assert_eq!(ids_of_lines("").count(), 0);
    }

    #[test]
    fn a_file_in_place_of_a_repository_names_one() {
        for (text, named) in [
            ("gitdir: ../.git/worktrees/a\n", Some("../.git/worktrees/a")),
            ("gitdir: /srv/with space/.git\r\n", Some("/srv/with space/.git")),
            ("gitdir: x", Some("x")),
            ("gitdir:x\n", None),
            ("a file of the agent\n", None),
            ("", None),
        ] {
            assert_eq!(named_repository(text), named, "{text:?}");
        }
    }

    #[test]
    fn a_path_ends_before_the_end_of_its_line() {
        for (text, path) in [("../..\n", "../.."), (" a \r\n", " a"), ("x", "x"), ("", "")] {
            assert_eq!(only_line(text), path, "{text:?}");
        }
    }

    #[test]
    fn a_repository_borrows_from_folders() {
        for (text, folders) in [
            ("../../../../keep.git/objects\n", &["../../../../keep.git/objects"][..]),
            ("# a comment\n\n/a\n/b c\n", &["/a", "/b c"][..]),
            ("", &[][..]),
        ] {
            assert_eq!(borrowed_folders(text).collect::<Vec<_>>(), folders, "{text:?}");
        }
    }

    #[test]
    fn the_last_value_of_a_setting_counts() {
        for (text, value) in [
            ("[core]\n\tsparseCheckout = true\n", Some("true")),
            ("[CORE]\n\tSPARSECHECKOUT=true\n", Some("true")),
            ("[core] sparseCheckout = true", Some("true")),
            ("[core]\nsparseCheckout = true\nsparseCheckout = false\n", Some("false")),
            ("[core]\nsparseCheckout = true\n[user]\nname = x\n[core]\nbare = no\n", Some("true")),
            ("[core]\nsparseCheckout = \"true\" # ours\n", Some("true")),
            ("[core]\nsparseCheckout = true ; ours\n", Some("true")),
            ("[core]\nsparseCheckout =\n", Some("")),
            ("[core]\nsparseCheckoutCone = true\n", None),
            ("[core]\n# sparseCheckout = true\n", None),
            ("[core]\n;sparseCheckout = true\n", None),
            ("[core]\nsparseCheckout\n", None),
            ("[core \"sparse\"]\nsparseCheckout = true\n", None),
            ("[user]\nsparseCheckout = true\n", None),
            ("sparseCheckout = true\n", None),
            ("[core\nsparseCheckout = true\n", None),
            ("", None),
        ] {
            assert_eq!(value_of(text, "core", "sparseCheckout"), value, "{text:?}");
        }
    }
}
