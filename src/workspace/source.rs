//! The repository of a person that workspaces begin from.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::CheckoutError;
use super::git::{Git, GitError};

/// The repository that contains the directory of a project.
#[derive(Debug)]
pub(super) struct Source {
    /// The folder that git is given: the top of the work tree, or a bare repository.
    pub(super) top: PathBuf,
    /// The project's directory, relative to `top`.
    pub(super) subdirectory: String,
    pub(super) is_bare: bool,
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
        let ask = |arguments: &[&str]| {
            let arguments = std::iter::once("rev-parse").chain(arguments.iter().copied());
            git.in_folder(directory, arguments).text()
        };
        let is_bare = match ask(&["--is-bare-repository"]).await {
            Ok(answer) => answer == "true",
            Err(GitError::Failed { .. }) => {
                return Err(CheckoutError::Refused(format!(
                    "`{shown}` is in no git repository; run `git init` and commit there, or set the workspace of the project to `shared`"
                )));
            }
            Err(error) => return Err(error.into()),
        };
        if is_bare {
            let top = PathBuf::from(ask(&["--absolute-git-dir"]).await?);
            return Ok(Self { top, subdirectory: String::new(), is_bare });
        }
        match ask(&["--show-toplevel"]).await {
            Ok(top) => {
                let prefix = ask(&["--show-prefix"]).await?;
                let subdirectory = prefix.trim_end_matches('/').to_owned();
                Ok(Self { top: PathBuf::from(top), subdirectory, is_bare })
            }
            Err(GitError::Failed { .. }) => Err(CheckoutError::Refused(format!(
                "`{shown}` is inside the `.git` folder of a repository; name the folder with its files"
            ))),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks that a partial clone has the files of its HEAD. The daemon fetches nothing for it.
    async fn check_complete(&self, git: &Git) -> Result<(), CheckoutError> {
        let promisors = ["config", "--get-regexp", r"^remote\..*\.promisor$"];
        if git.in_folder(&self.top, promisors).end().await?.code != Some(0) {
            return Ok(());
        }
        let list = ["rev-list", "--objects", "--missing=print", "--max-count=1", "HEAD"];
        let listed = git.in_folder(&self.top, list).long().end().await?;
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
        let arguments = [OsStr::new("ls-remote"), OsStr::new("--symref"), self.top.as_os_str()];
        let call = git.call(arguments.into_iter().chain([OsStr::new("HEAD")]));
        Ok(parse_head(&call.text().await?))
    }

    /// Returns the address that the source itself was cloned from, without a name or a password.
    pub(super) async fn upstream(&self, git: &Git) -> Option<String> {
        let call = git.in_folder(&self.top, ["config", "--get", "remote.origin.url"]);
        let address = call.text().await.ok().filter(|address| !address.is_empty())?;
        Some(without_user(&address))
    }
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
