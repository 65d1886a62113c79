//! Projects.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Read, StoreError};
use domain::event::NewEvent;
use domain::workspace::WorkspaceOverrides;
use domain::{Project, ProjectId};

use super::audit::plain;
use super::filter::{self, column_of_ids};
use super::record::{entity, record};
use super::{Transaction, Wake};

entity! {
    Project in "projects" called "project" {
        id;
        name, audited plain;
        key = "project_key";
        is_key_edited;
        working_directory;
        status, audited plain;
        created_at;
        workspace, audited plain;
        overrides: WorkspaceOverrides;
        archived_from;
    }
    also audited |project| {
        "key" = plain(&project.key);
        "working_directory" = plain(project.working_directory.to_string_lossy());
        "workspace_base" = plain(&project.overrides.base);
        "workspace_branch" = plain(&project.overrides.branch);
        "merge_hooks" = plain(project.overrides.own_merge_hooks());
    }
}

record! {
    WorkspaceOverrides {
        base = "workspace_base";
        branch = "workspace_branch";
        skips_merge_hooks;
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
