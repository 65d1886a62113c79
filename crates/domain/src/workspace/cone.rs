//! The folders of a repository that a workspace has files of.
//!
//! A workspace also has the files that lie directly in a folder above one of them, such as those at
//! the top of the repository. This is the "cone mode" of git's sparse checkout.

use std::collections::BTreeSet;

/// The longest list of folders.
const MAX_FOLDERS: usize = 100;
/// The longest path of a folder, in bytes.
const MAX_PATH: usize = 1_000;

/// The folders of a workspace. Without any, it has all files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cone {
    /// No folder is in another one.
    folders: Vec<String>,
}

impl Cone {
    /// Returns the cone of folders, which [`check_paths`] accepts.
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

/// Checks a list of folders.
///
/// # Errors
/// The reason why one of them is no folder of a repository.
pub fn check_paths(paths: &[String]) -> Result<(), String> {
    if paths.len() > MAX_FOLDERS {
        return Err(format!("it has more than {MAX_FOLDERS} folders"));
    }
    paths.iter().try_for_each(|path| {
        check_path(path).map_err(|problem| format!("`{}` {problem}", path.escape_debug()))
    })
}

fn check_path(path: &str) -> Result<(), &'static str> {
    let folder = path.trim_end_matches('/');
    if path.starts_with('/') {
        return Err("is absolute; name a folder from the top of the repository");
    }
    if path.len() > MAX_PATH {
        return Err("is too long");
    }
    if folder.contains(['*', '?', '[', ']', '\\']) {
        return Err("has a pattern; name a folder");
    }
    if folder.contains(char::is_control) || folder.trim() != folder {
        return Err("has a control character, or a space at an end");
    }
    let is_bad = |part: &str| matches!(part, "" | "." | "..") || part.eq_ignore_ascii_case(".git");
    if folder.split('/').any(is_bad) {
        return Err("names no folder of a repository");
    }
    Ok(())
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
        assert_eq!(cone(&["libs", "apps/shop/web"]).patterns(), expected);
    }

    #[test]
    fn only_folders_of_a_repository_are_accepted() {
        for good in ["src", "src/", "a b/ü", "a/.hidden", "..a"] {
            assert_eq!(check_paths(&[good.to_owned()]), Ok(()), "{good}");
        }
        for (bad, reason) in [
            ("/srv", "is absolute"),
            ("..", "names no folder"),
            ("a/../b", "names no folder"),
            ("a//b", "names no folder"),
            ("", "names no folder"),
            (".", "names no folder"),
            ("a/.GIT/hooks", "names no folder"),
            ("src/*", "has a pattern"),
            ("!a\nb", "has a control"),
            (" a", "has a control"),
        ] {
            let refused = check_paths(&[bad.to_owned()]).expect_err(bad);
            assert!(refused.contains(reason), "{bad}: {refused}");
        }
        assert!(check_paths(&vec!["a".to_owned(); 101]).is_err());
        assert!(check_paths(&["a".repeat(1_001)]).is_err());
    }
}
