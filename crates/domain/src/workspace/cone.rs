//! The folders of a repository that a workspace has files of.
//!
//! A workspace also has the files that lie directly in a folder above one of them, such as those at
//! the top of the repository. This is the "cone mode" of git's sparse checkout.

use std::collections::BTreeSet;

/// The longest list of folders that is read from patterns.
const MAX_FOLDERS: usize = 100;

/// The folders of a workspace. Without any, it has all files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cone {
    /// No folder is in another one.
    folders: Vec<String>,
}

impl Cone {
    /// Returns the cone of folders, each from the top of the repository.
    pub fn new(paths: &[String]) -> Self {
        let all: BTreeSet<&str> = paths.iter().map(|path| path.trim_end_matches('/')).collect();
        let is_in_other =
            |path: &&str| all.iter().any(|other| is_below(path.as_bytes(), other.as_bytes()));
        let folders = all.iter().copied().filter(|path| !is_in_other(path));
        Self { folders: folders.map(str::to_owned).collect() }
    }

    /// Returns whether a workspace with this cone has all files.
    pub fn is_all(&self) -> bool {
        self.folders.is_empty()
    }

    pub fn folders(&self) -> &[String] {
        &self.folders
    }

    /// Returns whether the file at `path` is in it.
    pub fn contains(&self, path: &[u8]) -> bool {
        let slash = path.iter().rposition(|byte| *byte == b'/');
        let Some(folder) = slash.and_then(|slash| path.get(..slash)) else {
            return true;
        };
        let is_in = |known: &String| {
            let known = known.as_bytes();
            known == folder || is_below(folder, known) || is_below(known, folder)
        };
        self.is_all() || self.folders.iter().any(is_in)
    }

    /// Returns the cone of the patterns in `.git/info/sparse-checkout`; `None` if they name something
    /// else than folders, or too many. Git writes a backslash before `*`, `?` and the like.
    pub fn from_patterns(patterns: &str) -> Option<Self> {
        let lines: BTreeSet<&str> = patterns.lines().collect();
        let is_whole = |folder: &&str| !lines.contains(format!("!/{folder}/*/").as_str());
        let folders = lines.iter().filter_map(|line| line.strip_prefix('/')?.strip_suffix('/'));
        let paths: Vec<String> = folders.filter(is_whole).map(str::to_owned).collect();
        if paths.is_empty() || paths.len() > MAX_FOLDERS || patterns.contains('\\') {
            return None;
        }
        let cone = Self::new(&paths);
        let is_same = cone.patterns().lines().collect::<BTreeSet<_>>() == lines;
        is_same.then_some(cone)
    }

    /// Returns the patterns for `.git/info/sparse-checkout`.
    pub fn patterns(&self) -> String {
        let above = |folder: &String| {
            let slashes: Vec<usize> = folder.match_indices('/').map(|(at, _)| at).collect();
            let parents = slashes.into_iter().filter_map(|at| folder.get(..at));
            parents.map(str::to_owned).collect::<Vec<_>>()
        };
        let above: BTreeSet<String> = self.folders.iter().flat_map(above).collect();
        let above = above.iter().map(|folder| format!("/{folder}/\n!/{folder}/*/\n"));
        let whole = self.folders.iter().map(|folder| format!("/{folder}/\n"));
        ["/*\n!/*/\n".to_owned()].into_iter().chain(above).chain(whole).collect()
    }
}

/// Returns whether `path` is below the folder `above`, and not that folder itself.
fn is_below(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cone(paths: &[&str]) -> Cone {
        Cone::new(&paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_cone_has_its_folders_and_the_files_of_the_folders_above() {
        let of = cone(&["apps/shop/web", "libs/", "libs/core"]);
        assert_eq!(of.folders(), ["apps/shop/web", "libs"]);
        for path in ["top", "apps/one", "apps/shop/one", "apps/shop/web/a/b", "libs/core/x"] {
            assert!(of.contains(path.as_bytes()), "{path}");
        }
        for path in ["other/x", "apps/other/x", "apps/shop/other/x", "apps/shop/web2/x", "lib/x"] {
            assert!(!of.contains(path.as_bytes()), "{path}");
        }
        assert!(cone(&[]).is_all() && cone(&[]).contains(b"any/where"));
    }

    #[test]
    fn the_patterns_are_those_of_git() {
        let expected = "/*\n!/*/\n/apps/\n!/apps/*/\n/apps/shop/\n!/apps/shop/*/\n\
            /apps/shop/web/\n/libs/\n";
        let of = cone(&["libs", "apps/shop/web"]);
        assert_eq!(of.patterns(), expected);
        assert_eq!(Cone::from_patterns(expected), Some(of));
    }

    #[test]
    fn patterns_that_do_not_name_folders_are_no_cone() {
        for patterns in ["", "/*\n", "/*\n!/*/\n", "docs\n", "/*\n!/*/\n/a/\n*.txt\n"] {
            assert_eq!(Cone::from_patterns(patterns), None, "{patterns}");
        }
        // Without this line, git leaves out the files in `apps` itself.
        assert_eq!(Cone::from_patterns("/*\n!/*/\n/apps/shop/\n"), None);
        assert_eq!(Cone::from_patterns("/*\n!/*/\n/a\\*b/\n"), None);
        let many: Vec<String> = (0..=MAX_FOLDERS).map(|n| format!("folder{n}")).collect();
        assert_eq!(Cone::from_patterns(&Cone::new(&many).patterns()), None);
        assert!(Cone::from_patterns(&Cone::new(&many[1..]).patterns()).is_some());
    }
}
