//! The keys of projects, which begin the short ids of their tasks. A short id never names a second
//! task, also if projects are deleted.

use domain::{Project, ProjectId, ProjectKey, Refusal};
use store::rows::project_keys::{self, KeyRecord};
use store::rows::{Transaction, projects, tasks};
use store::{Read, StoreError};

use crate::ServiceError;

/// Claims the key of a new project: `wanted`, or the first one that is free.
///
/// # Errors
/// `KeyTaken` if `wanted` belongs to another project.
pub(super) fn claim_first(
    tx: &mut Transaction<'_>,
    project: &Project,
    wanted: Option<&ProjectKey>,
) -> Result<ProjectKey, ServiceError> {
    let Some(key) = wanted else {
        return Ok(claim_suggested(tx, project)?);
    };
    if let Some(other) = owner(tx, key, &project.id)? {
        return Err(Refusal::KeyTaken { key: key.clone(), project: other }.into());
    }
    claim(tx, key, &project.id)?;
    Ok(key.clone())
}

/// Claims the best key for a new project that no other project has.
pub(super) fn claim_suggested(
    tx: &mut Transaction<'_>,
    project: &Project,
) -> Result<ProjectKey, StoreError> {
    for key in ProjectKey::candidates(&project.name, &project.id) {
        if owner(tx, &key, &project.id)?.is_none() {
            claim(tx, &key, &project.id)?;
            return Ok(key);
        }
    }
    unreachable!("the candidates do not end")
}

/// Claims the new key of a project, if it has one, and gives it to the tasks.
///
/// # Errors
/// `KeyTaken` if the key belongs to another project, or belonged to a deleted one: the numbers of
/// existing tasks may have been given with it.
pub(super) fn change(
    tx: &mut Transaction<'_>,
    before: &Project,
    after: &Project,
) -> Result<(), ServiceError> {
    if before.key == after.key {
        return Ok(());
    }
    let Project { id, key, .. } = after;
    let record = project_keys::get(tx, key)?.filter(|record| record.project != *id);
    if let Some(KeyRecord { project, .. }) = record {
        return Err(Refusal::KeyTaken { key: key.clone(), project }.into());
    }
    claim(tx, key, id)?;
    Ok(tasks::set_key(tx, id, key)?)
}

/// Returns the project other than `project` that has a key or had it, and that exists.
fn owner(
    tx: &mut Read<'_>,
    key: &ProjectKey,
    project: &ProjectId,
) -> Result<Option<ProjectId>, StoreError> {
    let record = project_keys::get(tx, key)?.filter(|record| record.project != *project);
    let Some(KeyRecord { project, .. }) = record else { return Ok(None) };
    Ok(projects::get(tx, &project)?.map(|project| project.id))
}

/// Records the key of a project. Its next number is greater than all that were given with this key,
/// or to this project.
fn claim(
    tx: &mut Transaction<'_>,
    key: &ProjectKey,
    project: &ProjectId,
) -> Result<(), StoreError> {
    let own = project_keys::list_of_project(tx, project)?;
    let known = project_keys::get(tx, key)?;
    let next_number = own.iter().chain(&known).map(|record| record.next_number).max().unwrap_or(1);
    let record = KeyRecord { key: key.clone(), project: project.clone(), next_number };
    project_keys::put(tx, &record)
}
