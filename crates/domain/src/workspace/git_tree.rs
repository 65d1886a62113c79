//! Checks trees of git, before files are written from them.
//!
//! A tree of an agent can have entries that are not sorted, or two entries with one name. Git then
//! writes another one of them than it lists, so that a file could be written through a link. Git
//! itself makes no such tree. Odd but harmless trees of old histories pass: modes with a zero in
//! front, for example.

use std::collections::BTreeSet;

/// The defect of a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeFault {
    #[error("it is no list of entries")]
    Unreadable,
    #[error("it has two entries with the name `{0}`")]
    Twice(String),
    #[error("its entries are not sorted: `{0}` is at the wrong place")]
    Unsorted(String),
    #[error("it has an entry with the name `{0}`")]
    Name(String),
    #[error("its entry `{0}` is a link")]
    Link(String),
    #[error("its entry `{0}` has no id")]
    NoId(String),
}

/// The files of git in a work tree, which are never links.
const OF_GIT: [&str; 2] = [".gitmodules", ".gitattributes"];

/// The bits of a mode that tell the kind of an entry.
const KIND: u32 = 0o170_000;

/// An entry of a tree.
struct Entry<'a> {
    mode: u32,
    name: &'a [u8],
    id: &'a [u8],
}

impl Entry<'_> {
    const fn is_folder(&self) -> bool {
        self.mode & KIND == 0o040_000
    }

    /// Returns the name as git sorts it.
    fn key(&self) -> Vec<u8> {
        let end: &[u8] = if self.is_folder() { b"/" } else { b"" };
        [self.name, end].concat()
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(self.name).into_owned()
    }

    fn fault(&self) -> Option<TreeFault> {
        let is = |other: &str| self.name.eq_ignore_ascii_case(other.as_bytes());
        if [".", "..", ".git", ""].into_iter().any(is) || self.name.contains(&b'/') {
            return Some(TreeFault::Name(self.shown()));
        }
        if self.mode & KIND == 0o120_000 && OF_GIT.into_iter().any(is) {
            return Some(TreeFault::Link(self.shown()));
        }
        self.id.iter().all(|byte| *byte == 0).then(|| TreeFault::NoId(self.shown()))
    }
}

/// Splits the first entry off a tree whose ids have this number of bytes.
fn split(tree: &[u8], id_size: usize) -> Option<(Entry<'_>, &[u8])> {
    let space = tree.iter().position(|byte| *byte == b' ')?;
    let mode = tree.get(..space)?;
    let rest = tree.get(space + 1..)?;
    let mode = u32::from_str_radix(std::str::from_utf8(mode).ok()?, 8).ok()?;
    let nul = rest.iter().position(|byte| *byte == 0)?;
    let name = rest.get(..nul)?;
    let id = rest.get(nul + 1..nul + 1 + id_size)?;
    Some((Entry { mode, name, id }, rest.get(nul + 1 + id_size..)?))
}

/// Returns the defect of a tree, in the form of `git cat-file tree`, if it has one. `id_size` is
/// the number of bytes of an id: 20, or 32 for SHA-256.
pub fn fault_of(mut tree: &[u8], id_size: usize) -> Option<TreeFault> {
    let mut names: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut last: Vec<u8> = Vec::new();
    while !tree.is_empty() {
        let Some((entry, rest)) = split(tree, id_size) else {
            return Some(TreeFault::Unreadable);
        };
        if let Some(fault) = entry.fault() {
            return Some(fault);
        }
        let key = entry.key();
        if !names.insert(entry.name.to_vec()) {
            return Some(TreeFault::Twice(entry.shown()));
        }
        if key < last {
            return Some(TreeFault::Unsorted(entry.shown()));
        }
        last = key;
        tree = rest;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(entries: &[(&str, &str)]) -> Vec<u8> {
        let entry = |(mode, name): &(&str, &str)| {
            [mode.as_bytes(), b" ", name.as_bytes(), b"\0", &[7; 20]].concat()
        };
        entries.iter().flat_map(entry).collect()
    }

    fn fault(entries: &[(&str, &str)]) -> Option<TreeFault> {
        fault_of(&tree(entries), 20)
    }

    #[test]
    fn trees_that_git_writes_pass_and_so_do_odd_ones_of_old_histories() {
        // A folder is sorted as if its name ended with a slash.
        let sorted = [("100644", "a"), ("100644", "a.txt"), ("40000", "a-b"), ("120000", "link")];
        assert_eq!(fault(&[sorted[0], sorted[2], sorted[1], sorted[3]]), None);
        assert_eq!(fault(&[("100644", "lib.c"), ("40000", "lib"), ("100644", "lib0")]), None);
        assert_eq!(fault(&[("040000", "old"), ("100664", "shared"), ("160000", "sub")]), None);
        assert_eq!(fault(&[]), None);
        assert_eq!(fault_of(&[b"40000 a\0".as_slice(), &[1; 32]].concat(), 32), None);
    }

    #[test]
    fn a_tree_that_hides_a_path_or_leads_elsewhere_is_named() {
        let name = |name: &str| Some(TreeFault::Name(name.to_owned()));
        // The folder comes before the link, so that git lists one and writes the other.
        let twice = Some(TreeFault::Twice("link".to_owned()));
        assert_eq!(fault(&[("40000", "link"), ("120000", "link")]), twice);
        let apart = [("120000", "link"), ("100644", "link-b"), ("40000", "link")];
        assert_eq!(fault(&apart), twice);
        let unsorted = Some(TreeFault::Unsorted("a".to_owned()));
        assert_eq!(fault(&[("100644", "b"), ("100644", "a")]), unsorted);
        for bad in [".", "..", ".git", ".GIT", "", "a/b"] {
            assert_eq!(fault(&[("40000", bad)]), name(bad), "{bad}");
        }
        let link = Some(TreeFault::Link(".gitmodules".to_owned()));
        for mode in ["120000", "0120000"] {
            assert_eq!(fault(&[(mode, ".gitmodules")]), link, "{mode}");
        }
        assert_eq!(fault(&[("0040000", "link"), ("120000", "link")]), twice);
        assert_eq!(fault(&[("link", "a")]), Some(TreeFault::Unreadable));
        let nothing = [b"100644 a\0".as_slice(), &[0; 20]].concat();
        assert_eq!(fault_of(&nothing, 20), Some(TreeFault::NoId("a".to_owned())));
        assert_eq!(fault_of(b"100644 a", 20), Some(TreeFault::Unreadable));
        assert_eq!(fault_of(b"100644 a\0short", 20), Some(TreeFault::Unreadable));
    }
}
