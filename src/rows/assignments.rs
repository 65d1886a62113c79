//! Assignments: the agents of each project.

use crate::domain::agent::Assignment;
use crate::domain::event::NewEvent;
use crate::store::{BoxError, Cells, Read, StoreError, Value};

use super::audit::Entry;
use super::{Transaction, Wake};

pub(super) fn read(cells: &mut Cells<'_>) -> Result<Assignment, BoxError> {
    Ok(Assignment { project: cells.get()?, agent: cells.get()? })
}

/// Returns the columns `project_id, agent_id`.
pub(super) fn values(assignment: &Assignment) -> [Value<'_>; 2] {
    [(&assignment.project).into(), (&assignment.agent).into()]
}

/// Returns all assignments by project, then agent.
pub fn list(tx: &mut Read<'_>) -> Result<Vec<Assignment>, StoreError> {
    let sql = "SELECT project_id, agent_id FROM assignments ORDER BY project_id, agent_id";
    tx.rows("assignment", sql, &[], read)
}

/// Returns whether the agent works in the project.
pub fn exists(tx: &mut Read<'_>, assignment: &Assignment) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM assignments WHERE project_id = ?1 AND agent_id = ?2";
    tx.exists(sql, &values(assignment))
}

/// Adds an assignment. One that exists stays.
pub fn add(tx: &mut Transaction<'_>, assignment: &Assignment) -> Result<(), StoreError> {
    insert(tx, assignment)?;
    tell(tx, assignment, "add", "assignment.added")
}

/// Inserts the row of an assignment. One that exists stays.
pub(super) fn insert(tx: &mut Transaction<'_>, assignment: &Assignment) -> Result<(), StoreError> {
    let sql = "INSERT INTO assignments (project_id, agent_id) VALUES (?1, ?2) \
        ON CONFLICT (project_id, agent_id) DO NOTHING";
    tx.execute(sql, &values(assignment)).map(drop)
}

/// Removes an assignment, if it exists.
pub fn remove(tx: &mut Transaction<'_>, assignment: &Assignment) -> Result<(), StoreError> {
    let sql = "DELETE FROM assignments WHERE project_id = ?1 AND agent_id = ?2";
    tx.execute(sql, &values(assignment))?;
    tell(tx, assignment, "remove", "assignment.removed")
}

fn tell(
    tx: &mut Transaction<'_>,
    assignment: &Assignment,
    action: &'static str,
    kind: &'static str,
) -> Result<(), StoreError> {
    let Assignment { project, agent } = assignment;
    let name = format!("{agent} in {project}");
    tx.audit(|_| Ok(Some(Entry::bare(action, "assignment", name))))?;
    let project = Some(project.clone());
    let agent = Some(agent.clone());
    tx.row_event(NewEvent { agent, project, ..NewEvent::new(kind, tx.now()) });
    tx.wake(Wake::Coordinators);
    Ok(())
}
