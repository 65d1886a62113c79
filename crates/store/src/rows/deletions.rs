//! Deletions by people. A deletion removes all rows of a thing, and only its last names stay.

use crate::{BoxError, Cells, Read, StoreError, Value, cell};
use domain::event::NewEvent;
use domain::removal::RemovableKind;
use domain::{Assignment, ProjectId, Removable, ShortId, Task, TaskId};

use super::audit::{Entry, Fields, plain};
use super::record::Record as _;
use super::{Transaction, Wake, creation_digests};

fn read_removable(cells: &mut Cells<'_>) -> Result<Removable, BoxError> {
    Ok(match cells.get()? {
        RemovableKind::Task => Removable::Task(cells.get()?),
        RemovableKind::Agent => Removable::Agent(cells.get()?),
        RemovableKind::Project => Removable::Project(cells.get()?),
    })
}

pub(super) fn key_values(of: &Removable) -> [Value<'_>; 2] {
    [of.kind().into(), of.id().into()]
}

/// Removes a thing with all that belongs to it, except for the launches of a project and the
/// workspaces of tasks. `name` is its name. `tasks` are those that go with it; a task itself is the
/// first of them. Their last names stay.
pub fn add(
    tx: &mut Transaction<'_>,
    of: &Removable,
    name: &str,
    tasks: &[Task],
) -> Result<(), StoreError> {
    for task in tasks {
        tx.execute("DELETE FROM tasks WHERE id = ?1", &[(&task.id).into()])?;
        forget_task(tx, &task.id)?;
        let of = Removable::Task(task.id.clone());
        leave_name(tx, &of, Some(task.short_id.to_string()), &task.title)?;
    }
    match of {
        Removable::Task(_) => {}
        Removable::Agent(agent) => {
            tx.execute("DELETE FROM agents WHERE id = ?1", &[agent.into()])?;
            tx.execute("DELETE FROM assignments WHERE agent_id = ?1", &[agent.into()])?;
            tx.execute("DELETE FROM messages WHERE agent_id = ?1", &[agent.into()])?;
            tx.execute("DELETE FROM pairs WHERE agent_id = ?1", &[agent.into()])?;
            leave_name(tx, of, None, name)?;
        }
        Removable::Project(project) => {
            tx.execute("DELETE FROM projects WHERE id = ?1", &[project.into()])?;
            tx.execute("DELETE FROM assignments WHERE project_id = ?1", &[project.into()])?;
            tx.execute("DELETE FROM messages WHERE project_id = ?1", &[project.into()])?;
            tx.execute("DELETE FROM pairs WHERE project_id = ?1", &[project.into()])?;
            leave_name(tx, of, None, name)?;
        }
    }
    tell(tx, of, name, tasks)
}

/// Stores the last name of a thing, in place of the request that created it.
fn leave_name(
    tx: &mut Transaction<'_>,
    of: &Removable,
    short_id: Option<String>,
    name: &str,
) -> Result<(), StoreError> {
    creation_digests::forget(tx, of)?;
    let has_launches = matches!(of, Removable::Project(_));
    let sql = "INSERT INTO deleted_names (kind, object_id, short_id, name, has_launches) \
        VALUES (?1, ?2, ?3, ?4, ?5)";
    let [kind, id] = key_values(of);
    tx.execute(sql, &[kind, id, short_id.into(), name.into(), has_launches.into()]).map(drop)
}

/// Returns the deleted projects that may have launches left.
pub fn list_with_launches(tx: &mut Read<'_>) -> Result<Vec<ProjectId>, StoreError> {
    let sql = "SELECT object_id FROM deleted_names WHERE has_launches = TRUE ORDER BY object_id";
    tx.rows("name", sql, &[], cell)
}

/// Notes that a deleted project has no launches any more.
pub fn note_without_launches(
    tx: &mut Transaction<'_>,
    project: &ProjectId,
) -> Result<(), StoreError> {
    let sql = "UPDATE deleted_names SET has_launches = FALSE \
        WHERE kind = 'project' AND object_id = ?1";
    tx.execute(sql, &[project.into()]).map(drop)
}

/// Returns the last name of a deleted thing; `None` if none with this id was deleted.
pub fn name(tx: &mut Read<'_>, of: &Removable) -> Result<Option<String>, StoreError> {
    let sql = "SELECT name FROM deleted_names WHERE kind = ?1 AND object_id = ?2";
    tx.row("name", sql, &key_values(of), cell)
}

/// Returns the last names of all deleted agents and projects.
pub fn list_names(tx: &mut Read<'_>) -> Result<Vec<(Removable, String)>, StoreError> {
    let sql = "SELECT kind, object_id, name FROM deleted_names WHERE kind <> 'task'";
    tx.rows("name", sql, &[], |cells| Ok((read_removable(cells)?, cells.get()?)))
}

/// Returns the deleted task that had a short id last.
pub fn find_short(tx: &mut Read<'_>, short_id: &ShortId) -> Result<Option<TaskId>, StoreError> {
    let sql = "SELECT object_id FROM deleted_names WHERE short_id = ?1";
    tx.row("name", sql, &[short_id.to_string().into()], cell)
}

/// Removes what belongs to a deleted task.
fn forget_task(tx: &mut Transaction<'_>, task: &TaskId) -> Result<(), StoreError> {
    tx.execute("DELETE FROM executions WHERE task_id = ?1", &[task.into()])?;
    tx.execute("DELETE FROM checks WHERE task_id = ?1", &[task.into()])?;
    tx.execute("DELETE FROM conversations WHERE task_id = ?1", &[task.into()])?;
    tx.execute("DELETE FROM comments WHERE task_id = ?1", &[task.into()]).map(drop)
}

/// Returns the number of messages in all chats of an agent or a project.
pub fn count_messages(tx: &mut Read<'_>, of: &Removable) -> Result<usize, StoreError> {
    let n = match of {
        Removable::Task(_) => 0,
        Removable::Agent(agent) => {
            tx.number("SELECT COUNT(*) FROM messages WHERE agent_id = ?1", &[agent.into()])?
        }
        Removable::Project(project) => {
            tx.number("SELECT COUNT(*) FROM messages WHERE project_id = ?1", &[project.into()])?
        }
    };
    Ok(usize::try_from(n).unwrap_or_default())
}

/// Returns the number of launches of a project.
pub fn count_launches(tx: &mut Read<'_>, of: &Removable) -> Result<usize, StoreError> {
    let Removable::Project(project) = of else { return Ok(0) };
    let sql = "SELECT COUNT(*) FROM launches WHERE project_id = ?1";
    Ok(usize::try_from(tx.number(sql, &[project.into()])?).unwrap_or_default())
}

/// Returns the agents and projects whose chat is wanted, and which an agent or a project takes part
/// in.
pub fn list_wanted_chats(tx: &mut Read<'_>, of: &Removable) -> Result<Vec<Assignment>, StoreError> {
    match of {
        Removable::Task(_) => Ok(Vec::new()),
        Removable::Agent(agent) => {
            let sql = "SELECT project_id, agent_id FROM pairs WHERE agent_id = ?1 \
                AND purpose = 'chat' AND wanted_since IS NOT NULL ORDER BY project_id";
            tx.rows("pair", sql, &[agent.into()], Assignment::read)
        }
        Removable::Project(project) => {
            let sql = "SELECT project_id, agent_id FROM pairs WHERE project_id = ?1 \
                AND purpose = 'chat' AND wanted_since IS NOT NULL ORDER BY agent_id";
            tx.rows("pair", sql, &[project.into()], Assignment::read)
        }
    }
}

/// The workspaces of which nothing is left, and whose tasks were deleted.
const ORPHANS: &str = "FROM workspaces WHERE state = 'removed' AND content IS NULL \
    AND forever_at IS NOT NULL \
    AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.id = workspaces.task_id)";

/// Returns whether [`forget_workspaces`] would remove a row.
pub fn has_empty_workspaces(tx: &mut Read<'_>) -> Result<bool, StoreError> {
    tx.exists(&format!("SELECT 1 {ORPHANS} LIMIT 1"), &[])
}

/// Removes the rows of workspaces of which nothing is left, and whose tasks were deleted.
pub fn forget_workspaces(tx: &mut Transaction<'_>) -> Result<(), StoreError> {
    tx.execute(&format!("DELETE {ORPHANS}"), &[]).map(drop)
}

/// Adds the events and the entry of the audit log, and wakes the listeners that a deletion
/// concerns.
fn tell(
    tx: &mut Transaction<'_>,
    of: &Removable,
    name: &str,
    tasks: &[Task],
) -> Result<(), StoreError> {
    let now = tx.now();
    for task in tasks {
        tx.event(NewEvent {
            project: Some(task.project.clone()),
            task: Some(task.id.clone()),
            detail: Some(task.short_id.to_string()),
            ..NewEvent::new("task.deleted", now)
        });
    }
    let detail = Some(name.to_owned());
    match of {
        // It is one of `tasks`.
        Removable::Task(_) => {}
        Removable::Agent(agent) => tx.event(NewEvent {
            agent: Some(agent.clone()),
            detail,
            ..NewEvent::new("agent.deleted", now)
        }),
        Removable::Project(project) => tx.event(NewEvent {
            project: Some(project.clone()),
            detail,
            ..NewEvent::new("project.deleted", now)
        }),
    }
    let what = of.kind().as_str();
    let id = of.id().to_owned();
    // The id says nothing to a reader when the row is gone.
    let shown = match (of, tasks) {
        (Removable::Task(_), [task, ..]) => format!("{} {name}", task.short_id),
        _ => name.to_owned(),
    };
    let before = Fields::from([("name", plain(shown))]);
    tx.audit(|_| Ok(Some(Entry::bare("delete", what, id).with_before(before))))?;
    tx.wake(Wake::Coordinators);
    tx.wake(Wake::ChatExport);
    Ok(())
}
