//! The repository of a person that workspaces begin from.
//!
//! Git runs there as the owner of the repository, because it obeys files that the owner can write.
//! Root itself runs it only in a repository of root that no other user can change.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::git::{Call, Ended, Git, GitError};
use super::repository::{Repository, find_work_tree};
use super::rights::{Owner, is_open_to_others, is_root_here, run_as};
use super::text::is_id;
use super::{CheckoutError, Result, blocking};
use machine::sys::ownership::is_changed_by_others;
use machine::sys::user_names::name_of;

/// The most entries of a repository that are looked at before git runs there.
const MAX_LOOKS: usize = 200_000;

/// The repository that contains the directory of a project.
#[derive(Debug)]
pub(super) struct Source {
    /// The folder that git is given: the top of the work tree, or a bare repository.
    pub(super) top: PathBuf,
    /// The project's directory, relative to `top`.
    pub(super) subdirectory: String,
    pub(super) is_bare: bool,
    /// The user as whom git runs there; `None` for the daemon's own.
    pub(super) owner: Option<Owner>,
    /// The folder with the objects and refs.
    pub(super) common: PathBuf,
}

/// The branch and the commit that the HEAD of a repository names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// The branch, as a full ref; `None` if HEAD names a commit.
    pub(super) branch: Option<String>,
    /// `None` if the branch has no commit yet.
    pub(super) commit: Option<String>,
}

impl Source {
    /// Finds the repository of `directory`.
    ///
    /// # Errors
    /// `Refused` if the directory is missing, is in no repository, or is inside a `.git` folder,
    /// and for a partial clone without the files of its HEAD.
    pub(super) async fn find(git: &Git, directory: &Path) -> Result<Self> {
        let source = Self::find_any(git, directory).await?;
        source.check_complete(git).await?;
        Ok(source)
    }

    pub(super) async fn find_any(git: &Git, directory: &Path) -> Result<Self> {
        let shown = directory.display();
        if !directory.is_dir() {
            return Err(CheckoutError::Refused(format!(
                "the project's directory `{shown}` does not exist, or is no directory"
            )));
        }
        let Around { directory, owner, .. } = Around::look(directory).await?;
        let ask = |arguments: &[&str]| {
            let arguments = std::iter::once("rev-parse").chain(arguments.iter().copied());
            git.in_folder(&directory, arguments).run_as(owner).text()
        };
        let about = ["--is-bare-repository", "--absolute-git-dir"];
        let about = about.into_iter().chain(["--path-format=absolute", "--git-common-dir"]);
        let (is_bare, own, common) = match ask(&about.collect::<Vec<_>>()).await {
            Ok(answer) => parse_about(&answer),
            Err(GitError::Failed { message, .. }) => {
                return Err(CheckoutError::Refused(not_a_repository(&directory, &message)));
            }
            Err(error) => return Err(error.into()),
        };
        let top = if is_bare {
            own.clone()
        } else {
            match ask(&["--show-toplevel"]).await {
                Ok(top) => PathBuf::from(top),
                Err(GitError::Failed { .. }) => {
                    return Err(CheckoutError::Refused(format!(
                        "`{shown}` is inside the `.git` folder of a repository; name the folder \
                         with its files"
                    )));
                }
                Err(error) => return Err(error.into()),
            }
        };
        blocking(move || {
            let below = place_in(&directory, &top, owner)?;
            check_folders(&top, &BTreeSet::from([own, common.clone()]), owner)?;
            let subdirectory = if is_bare { String::new() } else { below };
            Ok(Self { top, subdirectory, is_bare, owner, common })
        })
        .await
    }

    /// Returns the repository of a folder of git, or of one in a work tree, for reading.
    ///
    /// # Errors
    /// The errors of [`Around::look`].
    pub(super) async fn of_folder(folder: &Path) -> Result<Self> {
        let Around { directory, owner, repository } = Around::look(folder).await?;
        let common = repository.map_or_else(|| directory.clone(), |found| found.common);
        Ok(Self { top: directory, subdirectory: String::new(), is_bare: true, owner, common })
    }

    /// Begins a call of git in the repository. If git cannot use the repository in `top`, it takes
    /// none of the folders above, which others may own. With `core.worktree`, the repository itself
    /// may be above.
    pub(super) fn git<'a, A: AsRef<OsStr>>(
        &self,
        git: &'a Git,
        arguments: impl IntoIterator<Item = A>,
    ) -> Call<'a> {
        let call = git.in_folder(&self.top, arguments).run_as(self.owner);
        let entry = self.top.join(".git");
        match self.top.parent().filter(|_| entry.symlink_metadata().is_ok()) {
            // The variable is a list of paths between colons, and knows no quotes.
            Some(above) if above.as_os_str().as_bytes().contains(&b':') => {
                call.variable("GIT_DIR", entry)
            }
            Some(above) => call.variable("GIT_CEILING_DIRECTORIES", above),
            None => call,
        }
    }

    /// Checks that a partial clone has the files of its HEAD. The daemon fetches nothing for it.
    async fn check_complete(&self, git: &Git) -> Result<()> {
        let promisors = ["config", "--get-regexp", r"^remote\..*\.promisor$"];
        if self.git(git, promisors).end().await?.code != Some(0) {
            return Ok(());
        }
        let list = ["rev-list", "--objects", "--missing=print", "--max-count=1", "HEAD"];
        let listed = self.git(git, list).long().end().await?;
        let listed = String::from_utf8_lossy(&listed.stdout);
        let n_missing = listed.lines().filter(|line| line.starts_with('?')).count();
        if n_missing == 0 {
            return Ok(());
        }
        Err(CheckoutError::Refused(format!(
            "`{}` is a partial clone that lacks {n_missing} objects of its HEAD; \
             run `git fetch --refetch --no-filter` there",
            self.top.display()
        )))
    }

    /// Returns what HEAD names now.
    pub(super) async fn head(&self, git: &Git) -> Result<Head> {
        let find = ["symbolic-ref", "--quiet", "HEAD"];
        let branch = self.git(git, find).end().await?;
        let find = ["rev-parse", "--verify", "--quiet", "--end-of-options", "HEAD^{commit}"];
        let commit = self.git(git, find).end().await?;
        let line = |ended: Ended| {
            let text = String::from_utf8_lossy(&ended.stdout).trim().to_owned();
            Some(text).filter(|text| ended.code == Some(0) && !text.is_empty())
        };
        let commit = line(commit).filter(|id| is_id(id));
        Ok(Head { branch: line(branch), commit })
    }

    /// Returns the address that the source itself was cloned from, without a name or a password.
    pub(super) async fn upstream(&self, git: &Git) -> Option<String> {
        let call = self.git(git, ["config", "--get", "remote.origin.url"]);
        let address = call.text().await.ok().filter(|address| !address.is_empty())?;
        Some(without_user(&address))
    }
}

/// The facts that the files around a directory show about its repository, before git runs.
struct Around {
    /// The directory, without links in its path.
    directory: PathBuf,
    /// The user as whom git runs there: the owner of the work tree around the directory, or else of
    /// the directory itself.
    owner: Option<Owner>,
    /// `None` if the directory is neither in a work tree nor a bare repository.
    repository: Option<Repository>,
}

impl Around {
    /// Looks around a directory.
    ///
    /// # Errors
    /// `Refused` for a repository of several users, for one of root that others can change, and for
    /// a pipe for which git would wait.
    async fn look(directory: &Path) -> Result<Self> {
        let directory = directory.to_owned();
        blocking(move || {
            let directory =
                directory.canonicalize().map_err(CheckoutError::io("look up", &directory))?;
            let top = find_work_tree(&directory).unwrap_or_else(|| directory.clone());
            let owner = owner_of_work_tree(&top)?;
            let repository = run_as(owner, || {
                let is_bare = || top.join("HEAD").is_file() && top.join("objects").is_dir();
                let bare = || is_bare().then(|| Repository::bare(top.clone()));
                let found = Repository::of(&top).or_else(bare);
                for folder in found.iter().flat_map(Repository::folders) {
                    check_entries(&top, &folder)?;
                }
                Ok(found)
            })?;
            if let Some(found) = &repository {
                check_folders(&top, &found.folders(), owner)?;
            }
            Ok(Self { directory, owner, repository })
        })
        .await
    }
}

/// Returns the path of `directory` in the repository `top` that git named. Another user may control
/// what git answered, so both must have the owner as whom git was asked.
///
/// # Errors
/// `Refused` otherwise.
fn place_in(directory: &Path, top: &Path, owner: Option<Owner>) -> Result<String> {
    let real = top.canonicalize().map_err(CheckoutError::io("look up", top))?;
    let below = directory.strip_prefix(real).ok();
    let is_of_owner = !is_root_here() || Owner::of(top) == owner;
    below.filter(|_| is_of_owner).and_then(Path::to_str).map(str::to_owned).ok_or_else(|| {
        CheckoutError::Refused(format!(
            "git names `{}` as the repository of `{}`, but it does not contain that directory, or \
             has another owner; remove `core.worktree` from its settings",
            top.display(),
            directory.display()
        ))
    })
}

/// Checks that the folders of the repository at `top` belong to its owner or to root, or are only
/// root's if root runs git there. An ordinary user can only be itself. Blocks.
pub(super) fn check_folders(
    top: &Path,
    folders: &BTreeSet<PathBuf>,
    owner: Option<Owner>,
) -> Result<()> {
    if !is_root_here() {
        return Ok(());
    }
    folders.iter().try_for_each(|folder| check_folder(top, folder, owner))
}

/// Splits the answer of `rev-parse` about a repository: whether it is bare, its own folder, and the
/// folder that its work trees share. All paths are absolute.
fn parse_about(answer: &str) -> (bool, PathBuf, PathBuf) {
    let (is_bare, folders) = answer.split_once('\n').unwrap_or((answer, ""));
    let end = folders.find("\n/").unwrap_or(folders.len());
    let (own, common) = folders.split_at(end);
    (is_bare == "true", PathBuf::from(own), PathBuf::from(common.trim_start_matches('\n')))
}

/// Returns the owner of a work tree in which agents write, if that is another user. Blocks shortly.
///
/// # Errors
/// `Refused` if that is root, and others can change the tree.
pub(super) fn owner_of_work_tree(work_tree: &Path) -> Result<Option<Owner>> {
    let owner = Owner::of(work_tree);
    if owner.is_none() && is_root_here() && is_changed_by_others(work_tree) {
        return Err(CheckoutError::Refused(advice_on_open(work_tree, work_tree)));
    }
    Ok(owner)
}

/// Returns the sentence about a repository of root that others can change.
pub(super) fn advice_on_open(top: &Path, open: &Path) -> String {
    let top = top.display();
    let open = open.display();
    format!(
        "the repository `{top}` belongs to root, but other users can change `{open}`, so root does \
         not run git there; give it to the user who works in it (`chown -R USER {top}`), or take \
         these rights away (`chmod -R go-w {top}`, and the same for the folders above it)"
    )
}

/// Checks that a folder of the repository at `top` belongs to its owner or to root, or that only
/// root can change it if root runs git there.
fn check_folder(top: &Path, folder: &Path, owner: Option<Owner>) -> Result<()> {
    let found = folder.metadata().map_err(CheckoutError::io("read", folder))?.uid();
    let Some(Owner { uid, .. }) = owner else {
        if is_changed_by_others(folder) {
            return Err(CheckoutError::Refused(advice_on_open(top, folder)));
        }
        return Ok(());
    };
    if [0, uid].contains(&found) {
        return Ok(());
    }
    let shown = folder.display();
    Err(CheckoutError::Refused(format!(
        "`{shown}` belongs to {}, but the work tree `{}` belongs to {}; give both to one user: \
         `chown -R {uid} {shown}`",
        name_of(found),
        top.display(),
        name_of(uid)
    )))
}

/// Checks the entries of a repository, with the rights of its owner: git waits for no pipe among
/// them, and if root runs git there, no other user can change one. Blocks.
///
/// # Errors
/// `Refused`, with the first such entry.
pub(super) fn check_entries(top: &Path, repository: &Path) -> Result<()> {
    let mut folders = vec![repository.to_owned()];
    let mut n_looks = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            // A socket cannot be opened, so git waits for none. Its own monitor of files has one.
            if kind.is_fifo() || kind.is_char_device() || kind.is_block_device() {
                return Err(CheckoutError::Refused(format!(
                    "`{}` is a pipe or a device, for which git would wait; remove it",
                    path.display()
                )));
            }
            if is_root_here() && entry.metadata().is_ok_and(|found| is_open_to_others(&found)) {
                return Err(CheckoutError::Refused(advice_on_open(top, &path)));
            }
            n_looks += 1;
            if n_looks > MAX_LOOKS {
                return Ok(());
            }
            if kind.is_dir() {
                folders.push(path);
            }
        }
    }
    Ok(())
}

/// Returns the sentence about a folder in which git finds no repository.
fn not_a_repository(directory: &Path, message: &str) -> String {
    let shown = directory.display();
    if message.contains("not a git repository (or any") {
        return format!(
            "`{shown}` is in no git repository; run `git init` and commit there, or set the workspace \
             of the project to `shared`"
        );
    }
    format!("git does not use the repository of `{shown}`: {message}")
}

pub(super) fn without_user(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else {
        return address.to_owned();
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// Splits the output of a command that ends each entry with a NUL.
pub(super) fn entries(output: &[u8]) -> impl Iterator<Item = &Path> {
    let entries = output.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
    entries.map(|entry| Path::new(OsStr::from_bytes(entry)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::run_git;

    #[tokio::test]
    async fn git_finds_a_repository_above_only_if_the_work_tree_is_of_that_one() {
        let root = tempfile::tempdir().unwrap();
        let git = Git::new(root.path());
        git.check().await.unwrap();
        let folder = root.path().canonicalize().unwrap();
        let run = |at: &Path, arguments: &[&str]| run_git(root.path(), at, arguments);
        let make = |at: &Path| {
            std::fs::create_dir_all(at).unwrap();
            run(at, &["init", "--quiet"]);
            run(at, &["commit", "--quiet", "--allow-empty", "-m", "first"]);
        };
        let outer = folder.join("outer");
        let below = outer.join("below");
        make(&outer);
        std::fs::create_dir(&below).unwrap();
        run(&outer, &["config", "core.worktree", below.to_str().unwrap()]);
        let source = Source::find(&git, &below).await.unwrap();
        assert_eq!(source.top, below);
        assert!(source.head(&git).await.unwrap().commit.is_some());
        let find = ["rev-parse", "--verify", "HEAD"];
        for top in [outer.join("inner"), outer.join("a:b/inner")] {
            make(&top);
            let source = Source::of_folder(&top).await.unwrap();
            assert_eq!(source.git(&git, find).text().await.unwrap(), run(&top, &find));
            std::fs::write(top.join(".git/HEAD"), "garbage\n").unwrap();
            let taken = source.git(&git, find).text().await;
            assert!(taken.is_err(), "{}: {taken:?}", top.display());
        }
    }

    #[test]
    fn the_folders_of_a_repository_are_told_apart() {
        let of = |answer: &str| parse_about(answer);
        let same = (false, PathBuf::from("/a b/.git"), PathBuf::from("/a b/.git"));
        assert_eq!(of("false\n/a b/.git\n/a b/.git"), same);
        let linked = (false, PathBuf::from("/a/.git/worktrees/x"), PathBuf::from("/a/.git"));
        assert_eq!(of("false\n/a/.git/worktrees/x\n/a/.git"), linked);
        assert!(of("true\n/b.git\n/b.git").0);
    }

    #[test]
    fn an_upstream_is_shown_without_its_user() {
        let clean = "https://git.example/acme/shop.git";
        assert_eq!(without_user("https://ann:secret@git.example/acme/shop.git"), clean);
        assert_eq!(without_user(clean), clean);
        assert_eq!(without_user("git@git.example:acme/shop.git"), "git@git.example:acme/shop.git");
    }
}
