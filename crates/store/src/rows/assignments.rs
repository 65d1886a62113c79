//! Assignments: the agents of each project.

use crate::{Read, StoreError};
use domain::agent::Assignment;
use domain::event::NewEvent;

use super::audit::Entry;
use super::record::{Record, record};
use super::{Transaction, Wake};

record! {
    Assignment {
        project = "project_id";
        agent = "agent_id";
    }
}

/// Returns all assignments by project, then agent.
pub fn list(tx: &mut Read<'_>) -> Result<Vec<Assignment>, StoreError> {
    let sql = "SELECT project_id, agent_id FROM assignments ORDER BY project_id, agent_id";
    tx.rows("assignment", sql, &[], Assignment::read)
}

/// Returns whether the agent works in the project.
pub fn exists(tx: &mut Read<'_>, assignment: &Assignment) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM assignments WHERE project_id = ?1 AND agent_id = ?2";
    tx.exists(sql, &assignment.values())
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
    tx.execute(sql, &assignment.values()).map(drop)
}

/// Removes an assignment, if it exists.
pub fn remove(tx: &mut Transaction<'_>, assignment: &Assignment) -> Result<(), StoreError> {
    let sql = "DELETE FROM assignments WHERE project_id = ?1 AND agent_id = ?2";
    tx.execute(sql, &assignment.values())?;
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
