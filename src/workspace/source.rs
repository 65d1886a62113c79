//! The repository of a person that workspaces begin from.
//!
//! Git runs there as the owner of the repository, because it obeys files that the owner can write.
//! Root itself runs it only in a repository of root that no other user can change.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::git::{Call, Git, GitError};
use super::repository::{Repository, find_work_tree};
use super::rights::{Owner, is_open_to_others, is_root_here, run_as};
use super::{CheckoutError, blocking};
use crate::sys::ownership::is_changed_by_others;
use crate::sys::user_names::name_of;

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
    pub(super) async fn find(git: &Git, directory: &Path) -> Result<Self, CheckoutError> {
        let source = Self::find_any(git, directory).await?;
        source.check_complete(git).await?;
        Ok(source)
    }

    pub(super) async fn find_any(git: &Git, directory: &Path) -> Result<Self, CheckoutError> {
        let shown = directory.display();
        if !directory.is_dir() {
            return Err(CheckoutError::Refused(format!(
                "the project's directory `{shown}` does not exist, or is no directory"
            )));
        }
        let owner = owner_at(directory).await?;
        let ask = |arguments: &[&str]| {
            let arguments = std::iter::once("rev-parse").chain(arguments.iter().copied());
            git.in_folder(directory, arguments).run_as(owner).text()
        };
        let about = ["--is-bare-repository", "--absolute-git-dir"];
        let about = about.into_iter().chain(["--path-format=absolute", "--git-common-dir"]);
        let (is_bare, own, common) = match ask(&about.collect::<Vec<_>>()).await {
            Ok(answer) => parse_about(&answer),
            Err(GitError::Failed { message, .. }) => {
                return Err(CheckoutError::Refused(not_a_repository(directory, &message)));
            }
            Err(error) => return Err(error.into()),
        };
        let source = if is_bare {
            Self { top: own.clone(), subdirectory: String::new(), is_bare, owner, common }
        } else {
            match ask(&["--show-toplevel"]).await {
                Ok(top) => {
                    let prefix = ask(&["--show-prefix"]).await?;
                    let subdirectory = prefix.trim_end_matches('/').to_owned();
                    Self { top: PathBuf::from(top), subdirectory, is_bare, owner, common }
                }
                Err(GitError::Failed { .. }) => {
                    return Err(CheckoutError::Refused(format!(
                        "`{shown}` is inside the `.git` folder of a repository; name the folder \
                         with its files"
                    )));
                }
                Err(error) => return Err(error.into()),
            }
        };
        let top = source.top.clone();
        let common = source.common.clone();
        let directory = directory.to_owned();
        blocking(move || {
            check_place(&directory, &top, owner)?;
            check_folders(&top, &[own, common], owner)
        })
        .await?;
        Ok(source)
    }

    /// Returns the repository in a folder of git, or at the top of a work tree, for reading.
    ///
    /// # Errors
    /// `Refused` for one of several users, and for a pipe for which git would wait.
    pub(super) async fn of_folder(folder: &Path) -> Result<Self, CheckoutError> {
        let owner = owner_at(folder).await?;
        let top = folder.to_owned();
        blocking(move || {
            let found = run_as(owner, || Ok(Repository::of(&top)))?;
            let bare = || Repository { own: top.clone(), common: top.clone() };
            let Repository { own, common } = found.unwrap_or_else(bare);
            check_folders(&top, &[own, common.clone()], owner)?;
            Ok(Self { subdirectory: String::new(), is_bare: true, owner, common, top })
        })
        .await
    }

    /// Begins a call of git in the repository.
    pub(super) fn git<'a, A: AsRef<OsStr>>(
        &self,
        git: &'a Git,
        arguments: impl IntoIterator<Item = A>,
    ) -> Call<'a> {
        git.in_folder(&self.top, arguments).run_as(self.owner)
    }

    /// Checks that a partial clone has the files of its HEAD. The daemon fetches nothing for it.
    async fn check_complete(&self, git: &Git) -> Result<(), CheckoutError> {
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
    pub(super) async fn head(&self, git: &Git) -> Result<Head, CheckoutError> {
        let call = self.git(git, ["ls-remote", "--symref", ".", "HEAD"]);
        Ok(parse_head(&call.text().await?))
    }

    /// Returns the address that the source itself was cloned from, without a name or a password.
    pub(super) async fn upstream(&self, git: &Git) -> Option<String> {
        let call = self.git(git, ["config", "--get", "remote.origin.url"]);
        let address = call.text().await.ok().filter(|address| !address.is_empty())?;
        Some(without_user(&address))
    }
}

/// Returns as whom git runs in `directory`: the owner of the work tree around it, or else of the
/// directory itself.
///
/// # Errors
/// `Refused` if git would wait for a pipe there; and if the owner is root, and others can put
/// something in its place.
pub(super) async fn owner_at(directory: &Path) -> Result<Option<Owner>, CheckoutError> {
    let directory = directory.to_owned();
    blocking(move || {
        let top = find_work_tree(&directory).or_else(|| directory.canonicalize().ok());
        let top = top.unwrap_or(directory);
        let owner = owner_of_files(&top)?;
        let folders = run_as(owner, || {
            let found = Repository::of(&top);
            let folders = found.map_or_else(|| vec![top.clone()], |it| vec![it.own, it.common]);
            folders.iter().try_for_each(|folder| check_entries(&top, folder))?;
            Ok(folders)
        })?;
        check_folders(&top, &folders, owner)?;
        Ok(owner)
    })
    .await
}

/// Checks that `directory` is in the repository `top` that git named, and that both have the owner
/// as whom git was asked. Another user controls that answer.
fn check_place(directory: &Path, top: &Path, owner: Option<Owner>) -> Result<(), CheckoutError> {
    let canonical = |path: &Path| path.canonicalize().map_err(CheckoutError::io("look up", path));
    let is_root = rustix::process::geteuid().is_root();
    if is_root && (!canonical(directory)?.starts_with(canonical(top)?) || Owner::of(top) != owner) {
        return Err(CheckoutError::Refused(format!(
            "git names `{}` as the repository of `{}`, which is in no folder of the same owner",
            top.display(),
            directory.display()
        )));
    }
    Ok(())
}

/// Checks that the folders of the repository at `top` belong to its owner or to root, or are only
/// root's if root runs git there. An ordinary user can only be itself. Blocks.
pub(super) fn check_folders(
    top: &Path,
    folders: &[PathBuf],
    owner: Option<Owner>,
) -> Result<(), CheckoutError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    folders.iter().try_for_each(|folder| check_owner(top, folder, owner))
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
pub(super) fn owner_of_files(work_tree: &Path) -> Result<Option<Owner>, CheckoutError> {
    let owner = Owner::of(work_tree);
    if owner.is_none() && rustix::process::geteuid().is_root() && is_changed_by_others(work_tree) {
        return Err(CheckoutError::Refused(open_to_others(work_tree, work_tree)));
    }
    Ok(owner)
}

/// Returns the sentence about a repository of root that others can change.
pub(super) fn open_to_others(top: &Path, open: &Path) -> String {
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
fn check_owner(top: &Path, folder: &Path, owner: Option<Owner>) -> Result<(), CheckoutError> {
    let found = folder.metadata().map_err(CheckoutError::io("read", folder))?.uid();
    let Some(Owner { uid, .. }) = owner else {
        if is_changed_by_others(folder) {
            return Err(CheckoutError::Refused(open_to_others(top, folder)));
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
pub(super) fn check_entries(top: &Path, repository: &Path) -> Result<(), CheckoutError> {
    let mut folders = vec![repository.to_owned()];
    let mut n_looks = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            let is_plain = kind.is_dir() || kind.is_file() || kind.is_symlink();
            if !is_plain {
                return Err(CheckoutError::Refused(format!(
                    "`{}` is a pipe, a socket or a device, for which git would wait; remove it",
                    path.display()
                )));
            }
            if is_root_here() && entry.metadata().is_ok_and(|found| is_open_to_others(&found)) {
                return Err(CheckoutError::Refused(open_to_others(top, &path)));
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

fn parse_head(printed: &str) -> Head {
    let mut head = Head::default();
    for line in printed.lines() {
        if let Some((target, "HEAD")) = line.split_once('\t') {
            match target.strip_prefix("ref: ") {
                Some(branch) => head.branch = Some(branch.to_owned()),
                None => head.commit = Some(target.to_owned()),
            }
        }
    }
    head
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
    fn a_head_names_a_branch_a_commit_or_both() {
        let both = parse_head("ref: refs/heads/main\tHEAD\n1234\tHEAD");
        assert_eq!(both.branch.as_deref(), Some("refs/heads/main"));
        assert_eq!(both.commit.as_deref(), Some("1234"));
        let detached = parse_head("1234\tHEAD\n5678\trefs/remotes/origin/HEAD");
        assert_eq!((detached.branch, detached.commit.as_deref()), (None, Some("1234")));
        assert_eq!(parse_head(""), Head::default());
    }

    #[test]
    fn an_upstream_is_shown_without_its_user() {
        let clean = "https://git.example/acme/shop.git";
        assert_eq!(without_user("https://ann:secret@git.example/acme/shop.git"), clean);
        assert_eq!(without_user(clean), clean);
        assert_eq!(without_user("git@git.example:acme/shop.git"), "git@git.example:acme/shop.git");
    }
}
