//! Projects.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::domain::event::NewEvent;
use crate::domain::workspace::WorkspaceOverrides;
use crate::domain::{Project, ProjectId};
use crate::store::{BoxError, Cells, Entity, Read, StoreError, Value};

use super::audit::{Audited, Fields, plain};
use super::filter::{self, column_of_ids};
use super::{Transaction, Wake};

impl Entity for Project {
    const NAME: &'static str = "project";
    const TABLE: &'static str = "projects";
    const COLUMNS: &'static str = "id, name, project_key, is_key_edited, working_directory, status, \
        created_at, workspace, workspace_base, workspace_branch, skips_merge_hooks, \
        archived_from";

    fn read(cells: &mut Cells<'_>) -> Result<Self, BoxError> {
        Ok(Self {
            id: cells.get()?,
            name: cells.get()?,
            key: cells.get()?,
            is_key_edited: cells.get()?,
            working_directory: PathBuf::from(cells.get::<String>()?),
            status: cells.get()?,
            created_at: cells.get()?,
            workspace: cells.get()?,
            overrides: WorkspaceOverrides {
                base: cells.get()?,
                branch: cells.get()?,
                skips_merge_hooks: cells.get()?,
            },
            archived_from: cells.get()?,
            revision: cells.get()?,
        })
    }

    fn values(&self) -> Vec<Value<'_>> {
        vec![
            (&self.id).into(),
            (&self.name).into(),
            (&self.key).into(),
            self.is_key_edited.into(),
            // A path that is not UTF-8 becomes NULL, which the column refuses.
            self.working_directory.to_str().into(),
            self.status.into(),
            self.created_at.into(),
            self.workspace.into(),
            (&self.overrides.base).into(),
            (&self.overrides.branch).into(),
            self.overrides.skips_merge_hooks.into(),
            self.archived_from.into(),
        ]
    }

    fn revision(&self) -> i64 {
        self.revision
    }
}

impl Audited for Project {
    fn shown(&self) -> Fields {
        Fields::from([
            ("name", plain(&self.name)),
            ("key", plain(&self.key)),
            ("working_directory", plain(self.working_directory.to_string_lossy())),
            ("status", plain(self.status)),
            ("workspace", plain(self.workspace)),
            ("workspace_base", plain(self.overrides.base.as_deref())),
            ("workspace_branch", plain(self.overrides.branch.as_deref())),
            ("merge_hooks", plain(self.overrides.own_merge_hooks())),
        ])
    }
}

pub fn get(tx: &mut Read<'_>, id: &ProjectId) -> Result<Option<Project>, StoreError> {
    tx.find("WHERE id = ?1", &[id.into()])
}

/// Returns all projects by id.
pub fn list(tx: &mut Read<'_>) -> Result<Vec<Project>, StoreError> {
    tx.list("ORDER BY id", &[])
}

/// Returns the names of these projects. An id without a project is left out.
pub fn names(
    tx: &mut Read<'_>,
    ids: &BTreeSet<ProjectId>,
) -> Result<BTreeMap<ProjectId, String>, StoreError> {
    column_of_ids::<Project, ProjectId, String>(tx, "name", ids)
}

/// Returns the id and the name of the first project by id whose id begins with a text.
pub fn find_with_prefix(
    tx: &mut Read<'_>,
    prefix: &str,
) -> Result<Option<(ProjectId, String)>, StoreError> {
    filter::find_with_prefix::<Project, ProjectId>(tx, prefix)
}

pub fn count(tx: &mut Read<'_>) -> Result<u64, StoreError> {
    tx.number("SELECT COUNT(*) FROM projects", &[]).map(i64::unsigned_abs)
}

/// Writes a project.
///
/// # Errors
/// A working directory that is not UTF-8, and a failed statement.
pub fn put(tx: &mut Transaction<'_>, project: &Project) -> Result<(), StoreError> {
    if project.working_directory.to_str().is_none() {
        let source = format!("the working directory of project `{}` is not UTF-8", project.id);
        return Err(StoreError::Unavailable { action: "write to", source: source.into() });
    }
    tx.replace_audited(project, &project.id, |tx| get(tx, &project.id))?;
    let kind = if project.revision == 0 { "project.created" } else { "project.changed" };
    let event = NewEvent { project: Some(project.id.clone()), ..NewEvent::new(kind, tx.now()) };
    tx.row_event(event);
    tx.wake(Wake::Coordinators);
    tx.wake(Wake::ChatExport);
    Ok(())
}
