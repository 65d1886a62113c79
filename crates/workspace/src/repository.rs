//! Finds the repository of a folder from its files alone. No git process runs for that, so a folder
//! outside of any repository costs only a few system calls.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::objects::is_folder;
use super::text::{named_repository, only_line, read_text, value_of};

/// The folders of a repository that belong to one work tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Repository {
    /// Has HEAD and the index of the work tree.
    pub(super) own: PathBuf,
    /// Has the objects and refs that all work trees of the repository share.
    pub(super) common: PathBuf,
}

impl Repository {
    /// Returns a bare repository.
    pub(super) fn bare(folder: PathBuf) -> Self {
        Self { own: folder.clone(), common: folder }
    }

    /// Returns the repository of a work tree; `None` if `top` is not the top of one.
    pub(super) fn of(top: &Path) -> Option<Self> {
        let entry = top.join(".git");
        let own = if entry.metadata().ok()?.is_dir() {
            entry
        } else {
            top.join(named_repository(&read_text(&entry)?)?)
        };
        let common = match read_text(&own.join("commondir")) {
            Some(common) => own.join(only_line(&common)),
            None => own.clone(),
        };
        let is_repository = own.join("HEAD").is_file() && common.join("objects").is_dir();
        is_repository.then_some(Self { own, common })
    }

    /// Returns the folder `.git` of `top` as a repository, although git finds none there because
    /// HEAD or the folder of objects is missing. `None` if no part of a repository is left.
    pub(super) fn damaged(top: &Path) -> Option<Self> {
        let folder = top.join(".git");
        let has = |part: &&str| folder.join(part).symlink_metadata().is_ok();
        let has_part = ["HEAD", "objects", "refs"].iter().any(has);
        (is_folder(&folder) && has_part).then(|| Self::bare(folder))
    }

    /// Returns its folders, each once.
    pub(super) fn folders(&self) -> BTreeSet<PathBuf> {
        BTreeSet::from([self.own.clone(), self.common.clone()])
    }

    pub(super) fn objects(&self) -> PathBuf {
        self.common.join("objects")
    }

    /// Returns the objects as a value of `GIT_ALTERNATE_OBJECT_DIRECTORIES`.
    pub(super) fn as_alternate(&self) -> OsString {
        let objects = self.objects();
        let bytes = objects.as_os_str().as_bytes();
        if !bytes.contains(&b':') && !bytes.starts_with(b"\"") {
            return objects.into_os_string();
        }
        let mut quoted = vec![b'"'];
        for byte in bytes {
            if matches!(byte, b'"' | b'\\') {
                quoted.push(b'\\');
            }
            quoted.push(*byte);
        }
        quoted.push(b'"');
        OsString::from_vec(quoted)
    }

    /// Returns the format of its ids: `sha1` or `sha256`.
    pub(super) fn format(&self) -> &'static str {
        let config = read_text(&self.common.join("config")).unwrap_or_default();
        let format = value_of(&config, "extensions", "objectFormat");
        let is_long = format.is_some_and(|format| format.eq_ignore_ascii_case("sha256"));
        if is_long { "sha256" } else { "sha1" }
    }

    /// Returns whether its refs are in a database, which cannot be read as text.
    pub(super) fn has_ref_database(&self) -> bool {
        self.common.join("reftable").is_dir()
    }
}

/// Returns the top of the git work tree that contains `directory`, without links in its path. Like
/// git, it looks for one only on the file system of the directory. Blocks, and starts no process.
pub fn find_work_tree(directory: &Path) -> Option<PathBuf> {
    find_top(directory, Repository::of)
}

/// Returns the top of the git work tree that contains `directory` like [`find_work_tree`], also of
/// one whose repository is damaged: an agent may have removed a part of it. The nearest one counts,
/// although git takes a healthy repository above a damaged one. Blocks.
pub fn find_shared_tree(directory: &Path) -> Option<PathBuf> {
    find_top(directory, |top| Repository::of(top).or_else(|| Repository::damaged(top)))
}

fn find_top(
    directory: &Path,
    repository_of: impl Fn(&Path) -> Option<Repository>,
) -> Option<PathBuf> {
    let directory = directory.canonicalize().ok()?;
    if directory.components().any(|part| part.as_os_str() == OsStr::new(".git")) {
        return None;
    }
    let device = directory.metadata().ok()?.dev();
    let is_here = |folder: &&Path| folder.metadata().is_ok_and(|found| found.dev() == device);
    let above = directory.ancestors().take_while(is_here);
    above.into_iter().find(|folder| repository_of(folder).is_some()).map(Path::to_owned)
}

/// Returns the folders that git writes to for a commit in `directory`. An agent may have written to
/// them. Therefore an entry `.git` that is a file leads elsewhere only if git's link back names that
/// file, and the repository is around its own folder. Blocks.
pub fn git_folders(directory: &Path) -> Vec<PathBuf> {
    let folders = find_work_tree(directory).and_then(|top| {
        let entry = top.join(".git");
        let kind = entry.symlink_metadata().ok()?.file_type();
        if kind.is_dir() {
            return Some(vec![entry]);
        }
        let Repository { own, common } = Repository::of(&top).filter(|_| kind.is_file())?;
        let own = own.canonicalize().ok()?;
        let common = common.canonicalize().ok()?;
        let back = own.join(only_line(&read_text(&own.join("gitdir"))?)).canonicalize().ok()?;
        let is_around = own.parent() == Some(common.join("worktrees").as_path());
        (is_around && back == entry).then(|| vec![common, own])
    });
    folders.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_tree_is_found_from_below_and_through_links() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap().join("repo");
        let below = top.join("a/b");
        std::fs::create_dir_all(&below).unwrap();
        assert_eq!(find_work_tree(&below), None);
        std::fs::create_dir_all(top.join(".git/objects")).unwrap();
        assert_eq!(find_work_tree(&below), None, "a folder of this name is not enough");
        std::fs::write(top.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        assert_eq!(find_work_tree(&below), Some(top.clone()));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&below, &link).unwrap();
        assert_eq!(find_work_tree(&link), Some(top.clone()));
        assert_eq!(find_work_tree(&top.join(".git/objects")), None);
        assert_eq!(find_work_tree(&top.join("missing")), None);
        let other = folder.path().join("other");
        let own = top.join(".git/worktrees/other");
        std::fs::create_dir_all(&own).unwrap();
        std::fs::create_dir_all(&other).unwrap();
        std::fs::write(own.join("HEAD"), "ref: refs/heads/other\n").unwrap();
        std::fs::write(own.join("commondir"), "../..\n").unwrap();
        std::fs::write(other.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
        assert_eq!(find_work_tree(&other), Some(other.canonicalize().unwrap()));
        let found = Repository::of(&other).unwrap();
        assert_eq!(found.objects().canonicalize().unwrap(), top.join(".git/objects"));
        assert_eq!(git_folders(&other), [] as [PathBuf; 0], "git links back to its work trees");
        for back in [other.join(".git"), "../../../../other/.git".into()] {
            std::fs::write(own.join("gitdir"), format!("{}\n", back.display())).unwrap();
            assert_eq!(git_folders(&other), [top.join(".git"), own.clone()]);
        }
        std::fs::write(own.join("gitdir"), top.join(".git").to_str().unwrap()).unwrap();
        assert_eq!(git_folders(&other), [] as [PathBuf; 0], "it is of another work tree");
    }

    #[test]
    fn an_agent_that_writes_to_its_repository_names_no_other_one() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let made = |name: &str| {
            let git = folder.join(name).join(".git");
            std::fs::create_dir_all(git.join("objects")).unwrap();
            std::fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
            git
        };
        let victim = made("victim");
        let git = made("mine");
        let below = folder.join("mine/below");
        std::fs::create_dir(&below).unwrap();
        assert_eq!(git_folders(&below), std::slice::from_ref(&git));
        std::fs::write(git.join("commondir"), victim.to_str().unwrap()).unwrap();
        assert_eq!(git_folders(&below), std::slice::from_ref(&git));
        std::fs::rename(&git, folder.join("mine/moved")).unwrap();
        std::os::unix::fs::symlink(&victim, &git).unwrap();
        assert_eq!(git_folders(&below), [] as [PathBuf; 0]);
        std::fs::remove_file(&git).unwrap();
        std::fs::write(&git, format!("gitdir: {}\n", victim.display())).unwrap();
        assert_eq!(git_folders(&below), [] as [PathBuf; 0], "no link back");
        // The agent replaces its own folder by that of another work tree.
        let theirs = victim.join("worktrees/theirs");
        std::fs::create_dir_all(&theirs).unwrap();
        std::fs::write(theirs.join("HEAD"), "ref: refs/heads/theirs\n").unwrap();
        std::fs::write(theirs.join("commondir"), "../..\n").unwrap();
        std::fs::write(theirs.join("gitdir"), "/elsewhere/.git\n").unwrap();
        let link = folder.join("mine/link");
        std::os::unix::fs::symlink(&theirs, &link).unwrap();
        std::fs::write(&git, format!("gitdir: {}\n", link.display())).unwrap();
        assert_eq!(git_folders(&below), [] as [PathBuf; 0], "their link back names another file");
        std::fs::remove_file(&git).unwrap();
        assert_eq!(git_folders(&folder), [] as [PathBuf; 0], "no repository");
    }

    #[test]
    fn the_format_of_ids_is_that_of_the_setting() {
        let folder = tempfile::tempdir().unwrap();
        for (config, format) in [
            ("[core]\n\tbare = true\n", "sha1"),
            ("[extensions]\n\tobjectformat = sha256\n", "sha256"),
            ("[extensions]\n\tobjectFormat = sha1\n\tobjectFormat = sha256\n", "sha256"),
            ("# objectFormat = sha256\n", "sha1"),
            ("[user]\n\tobjectFormat = sha256\n", "sha1"),
        ] {
            std::fs::write(folder.path().join("config"), config).unwrap();
            let repository = Repository::bare(folder.path().to_owned());
            assert_eq!(repository.format(), format, "{config:?}");
        }
    }

    #[test]
    fn a_folder_of_objects_with_a_colon_is_quoted() {
        let of = |path: &str| {
            let common = PathBuf::from(path);
            Repository::bare(common).as_alternate()
        };
        assert_eq!(of("/a b"), OsString::from("/a b/objects"));
        assert_eq!(of("/a:\"b"), OsString::from("\"/a:\\\"b/objects\""));
    }
}
