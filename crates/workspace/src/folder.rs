//! Looks at a folder that is to become the directory of a project.
//!
//! It runs nothing that the folder brings along: a repository of the daemon's own has the settings
//! with which git compares the files, so that no filter of the folder's repository runs.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Access, access};

use super::git::GitError;
use super::objects::open;
use super::repository::Repository;
use super::rights::run_as;
use super::source::Source;
use super::temporary::{Settings, TemporaryRepository};
use super::text::read_text;
use super::{CheckoutError, Clones, Result, blocking};
use domain::workspace::{Folder, FolderRepository};

/// The time for the comparison of all files.
const COMPARE_TIMEOUT: Duration = Duration::from_secs(5);

impl Clones {
    /// Checks that `directory` is in a repository that can be cloned.
    ///
    /// # Errors
    /// `Refused`, and the errors of [`check_git`](super::KeepRepositories::check_git).
    pub async fn check_source(&self, directory: &Path) -> Result<()> {
        self.git.check().await?;
        self.check_apart(&Source::find(&self.git, directory).await?)
    }

    /// Checks that the clones and the repository of a project are not in each other. Without a
    /// setting, the clones may be in a repository, which then leaves them out.
    pub(super) fn check_apart(&self, source: &Source) -> Result<()> {
        let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let root = canonical(&self.places.root);
        let top = canonical(&source.top);
        let given = self.places.root.display();
        let refusal = if self.is_root_configured && self.places.root.is_symlink() {
            format!(
                "`workspace.root` is `{given}`, a link to `{}`; name that folder",
                root.display()
            )
        } else if top.starts_with(&root) {
            format!(
                "the repository of the project, `{}`, is in the folder of the clones, `{}`; \
                 move it, or set `workspace.root` to another folder",
                top.display(),
                root.display()
            )
        } else if self.is_root_configured && root.starts_with(&top) {
            format!(
                "the folder of the clones, `{}`, is in the repository of the project, `{}`; \
                 set `workspace.root` to a folder outside of it",
                root.display(),
                top.display()
            )
        } else {
            return Ok(());
        };
        Err(CheckoutError::Refused(refusal))
    }

    /// Looks at a folder, without git: the result is `Plain` if agents can work in it.
    pub async fn look_at_path(&self, directory: &Path) -> Folder {
        let path = directory.to_owned();
        match blocking(move || Ok(of_path(&path))).await {
            Ok(folder) => folder,
            Err(error) => Folder::Failed(error.to_string()),
        }
    }

    /// Looks at a folder, and at the git repository that it is in.
    pub async fn look_at(&self, directory: &Path) -> Folder {
        let folder = self.look_at_path(directory).await;
        if folder != Folder::Plain {
            return folder;
        }
        match self.repository_of(directory).await {
            Ok(repository) => repository.map_or(Folder::Plain, Folder::InRepository),
            // Without git, a repository is a folder like any other.
            Err(CheckoutError::Git(GitError::Missing | GitError::TooOld { .. })) => Folder::Plain,
            Err(error) => Folder::Failed(error.to_string()),
        }
    }

    async fn repository_of(&self, directory: &Path) -> Result<Option<FolderRepository>> {
        self.git.check().await?;
        let source = match Source::find_any(&self.git, directory).await {
            Ok(source) => source,
            Err(CheckoutError::Refused(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let head = source.head(&self.git).await?;
        let is_clean = match &head.commit {
            Some(commit) if !source.is_bare => {
                let compared = self.is_clean(&source, commit);
                tokio::time::timeout(COMPARE_TIMEOUT, compared).await.ok().and_then(Result::ok)
            }
            _ => None,
        };
        Ok(Some(FolderRepository {
            branch: head
                .branch
                .as_deref()
                .filter(|_| head.commit.is_some())
                .and_then(|name| name.strip_prefix("refs/heads/"))
                .map(str::to_owned),
            commit: head.commit,
            is_clean,
            no_clones: self.check_source(directory).await.err().map(|error| error.to_string()),
        }))
    }

    /// Returns whether the files of the source are those of the commit. Submodules do not count.
    ///
    /// # Errors
    /// It cannot be told.
    async fn is_clean(&self, source: &Source, commit: &str) -> Result<bool> {
        let unknown = || CheckoutError::Refused("the files cannot be compared".to_owned());
        let root = self.places.root.clone();
        let top = source.top.clone();
        let owner = source.owner;
        let (temporary, repository) = blocking(move || {
            let read = || {
                let repository = Repository::of(&top).ok_or_else(unknown)?;
                let index = repository.own.join("index");
                let index = open(&index).map_err(CheckoutError::io("read", &index))?;
                let excluded = read_text(&repository.common.join("info/exclude"));
                Ok((repository, index, excluded.unwrap_or_default()))
            };
            let (repository, mut index, excluded) = run_as(owner, read)?;
            let format = repository.format();
            let settings = Settings { format, attributes: "", excluded: &excluded };
            let temporary = TemporaryRepository::new(&root, owner, &settings)?;
            temporary.fill("index", &mut index)?;
            Ok((temporary, repository))
        })
        .await?;
        let call = |arguments: &[&str]| {
            let call = self.git.on_tree(temporary.path(), &source.top, arguments).run_as(owner);
            // Git writes what it learns about the files into the index that it reads.
            let call = call.variable("GIT_INDEX_FILE", temporary.path().join("index"));
            call.variable("GIT_ALTERNATE_OBJECT_DIRECTORIES", repository.as_alternate())
        };
        let no_submodules = "--ignore-submodules=all";
        let staged = ["diff-index", "--cached", "--quiet", no_submodules, commit, "--"];
        let changed = ["diff", "--quiet", "--no-ext-diff", "--no-textconv", no_submodules];
        for comparison in [&staged[..], &changed[..]] {
            match call(comparison).end().await?.code {
                Some(0) => {}
                Some(1) => return Ok(false),
                _ => return Err(unknown()),
            }
        }
        let others = ["ls-files", "--others", "--exclude-standard", "--directory"];
        let others = others.into_iter().chain(["--no-empty-directory"]).collect::<Vec<_>>();
        let ended = call(&others).cut_at(1).end().await?;
        // A call that was cut has no exit code.
        if ended.code.is_some_and(|code| code != 0) {
            return Err(unknown());
        }
        Ok(ended.stdout.is_empty())
    }
}

/// Returns what the file system says about a folder: `Plain` if agents can work in it.
fn of_path(path: &Path) -> Folder {
    if !path.is_absolute() {
        return Folder::NotAbsolute;
    }
    let found = match path.metadata() {
        Ok(found) => found,
        Err(error) => {
            return match error.kind() {
                ErrorKind::NotFound => Folder::Missing,
                ErrorKind::NotADirectory => Folder::NotAFolder,
                ErrorKind::PermissionDenied => Folder::Closed,
                _ => Folder::Failed(error.to_string()),
            };
        }
    };
    if !found.is_dir() {
        return Folder::NotAFolder;
    }
    if path.canonicalize().is_ok_and(|path| path.parent().is_none()) {
        return Folder::Root;
    }
    let may_enter = access(path, Access::READ_OK | Access::EXEC_OK).is_ok();
    of_rights(may_enter, access(path, Access::WRITE_OK).is_ok())
}

/// Returns what the rights of the daemon in a folder mean for agents.
pub(super) const fn of_rights(may_enter: bool, may_write: bool) -> Folder {
    match (may_enter, may_write) {
        (false, _) => Folder::Closed,
        (true, false) => Folder::ReadOnly,
        (true, true) => Folder::Plain,
    }
}
