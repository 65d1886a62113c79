//! The facts about a folder that is to become the directory of a project.

/// A folder of this machine, before it is the directory of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Folder {
    /// The path does not begin at the root.
    NotAbsolute,
    Missing,
    /// The path names something else, such as a file.
    NotAFolder,
    /// It is the root of all files, so that an agent would work on the whole machine.
    Root,
    /// The user of the daemon may not enter the folder, or one above it.
    Closed,
    /// The user of the daemon may not write into it.
    ReadOnly,
    /// It is in no git repository.
    Plain,
    InRepository(FolderRepository),
    /// It could not be looked at. The reason is in English.
    Failed(String),
}

/// The git repository that a folder is in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FolderRepository {
    /// The branch that is checked out, without `refs/heads/`.
    pub branch: Option<String>,
    /// The commit that is checked out; `None` before the first one.
    pub commit: Option<String>,
    /// Whether all files are in the commit; `None` if that is not known.
    pub is_clean: Option<bool>,
    /// The reason why tasks cannot have clones, in English.
    pub no_clones: Option<String>,
}

impl Folder {
    /// Returns whether agents can work in it.
    pub const fn is_usable(&self) -> bool {
        matches!(self, Self::Plain | Self::InRepository(_))
    }

    /// Returns whether a clone for each task is proposed: a clone begins at a commit.
    pub fn suits_clones(&self) -> bool {
        let Self::InRepository(repository) = self else { return false };
        repository.commit.is_some() && repository.no_clones.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_are_proposed_if_a_repository_has_a_commit_and_can_be_cloned() {
        let in_repository = |commit: Option<&str>, no_clones: Option<&str>| {
            Folder::InRepository(FolderRepository {
                commit: commit.map(str::to_owned),
                no_clones: no_clones.map(str::to_owned),
                ..FolderRepository::default()
            })
        };
        assert!(in_repository(Some("12"), None).suits_clones());
        assert!(!in_repository(None, None).suits_clones());
        assert!(!in_repository(Some("12"), Some("it is a partial clone")).suits_clones());
        assert!(!Folder::Plain.suits_clones() && Folder::Plain.is_usable());
        assert!(!Folder::Missing.is_usable() && !Folder::Root.is_usable());
    }
}
