//! The record of a merge whose commit hooks judge. It is a file in the daemon's own folder of the
//! project, from before the first change of the source until the end of the merge.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::objects::names_in;
use crate::text::read_text;
use crate::{CheckoutError, Result, rename, write};
use domain::WorkspaceId;

const BEGINNING: &str = "merging-";
const LEFT: &str = "left";

/// A merge that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The directory of the project.
    pub(super) directory: PathBuf,
    /// The work tree that the branch is checked out in.
    pub(super) folder: Option<PathBuf>,
    pub(super) branch: String,
    /// The commit of the branch before.
    pub(super) old: String,
    pub(super) new: String,
}

impl Record {
    /// Returns the path of the record for a workspace.
    pub(super) fn path(project: &Path, id: &WorkspaceId) -> PathBuf {
        project.join(format!("{BEGINNING}{id}.json"))
    }

    /// Returns the paths of the records in the folder of a project.
    pub(super) fn list(project: &Path) -> Vec<PathBuf> {
        list_with("json", project)
    }

    /// Returns the paths of the records there that were set aside.
    pub(super) fn list_left(project: &Path) -> Vec<PathBuf> {
        list_with(LEFT, project)
    }

    /// Reads a record that was set aside, with the workspace in its name.
    pub(super) fn read_left(path: &Path) -> Option<(WorkspaceId, Self)> {
        let id = path.file_stem()?.to_str()?.strip_prefix(BEGINNING)?.parse().ok()?;
        Some((id, serde_json::from_str(&read_text(path)?).ok()?))
    }

    /// Reads a record; `None` if it is gone, or malformed, and was set aside for that.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let read = serde_json::from_str(&read_text(path)?);
        let malformed = |error| {
            let path = path.display();
            tracing::warn!(%path, %error, "the record of a merge is malformed");
        };
        read.map_err(malformed).or_else(|()| Self::set_aside(path).map(|()| None)).ok()?
    }

    /// Returns the folder whose files the merge changes; the directory of the project if the branch
    /// is checked out in no work tree.
    pub(super) fn changed_folder(&self) -> &Path {
        self.folder.as_ref().unwrap_or(&self.directory)
    }

    /// Writes the record, so that it also outlives the host.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let new = path.with_extension("new");
        write(&new, serde_json::to_vec(self).unwrap_or_default())?;
        sync(&new)?;
        rename(&new, path)?;
        path.parent().map_or(Ok(()), sync)
    }

    /// Removes a record. One that is gone is fine.
    pub(super) fn remove(path: &Path) -> Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(CheckoutError::io("remove", path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Sets a record aside, so that the inbox names its files until a person has dealt with them.
    pub(super) fn set_aside(path: &Path) -> Result<()> {
        rename(path, &path.with_extension(LEFT))
    }
}

fn list_with(extension: &str, project: &Path) -> Vec<PathBuf> {
    let has = |name: &String| Path::new(name).extension().is_some_and(|it| it == extension);
    let is_meant = |name: &String| name.starts_with(BEGINNING) && has(name);
    names_in(project).into_iter().filter(is_meant).map(|name| project.join(name)).collect()
}

fn sync(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(CheckoutError::io("write", path))
}
