//! Things that people deleted: their rows, as long as that can be undone, and their last names for
//! good.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::domain::event::NewEvent;
use crate::domain::removal::{DeletedContent, DeletedLink, DeletedName, Deletion, RemovableKind};
use crate::domain::{Assignment, Removable, ShortId, TaskId, Timestamp};
use crate::store::{BoxError, Cell, Cells, Columns, Entity, Read, StoreError, Value, cell};

use super::audit::{Entry, Fields, plain};
use super::record::Record as _;
use super::{Transaction, Wake, assignments};

/// The rows of a deletion as they are stored.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Content {
    projects: Vec<Row>,
    agents: Vec<Row>,
    tasks: Vec<Row>,
    assignments: Vec<Assignment>,
    links: Vec<DeletedLink>,
}

/// The cells of a row by their columns.
type Row = BTreeMap<String, Json>;

/// The column after those of the entity.
const REVISION: &str = "revision";

/// A stored row that is read like one of a table.
struct StoredRow<'a> {
    columns: Vec<&'static str>,
    row: &'a Row,
}

impl Columns for StoredRow<'_> {
    fn cell(&self, column: usize) -> Result<Cell<'_>, BoxError> {
        let name = self.columns.get(column).copied().unwrap_or(REVISION);
        Ok(match self.row.get(name) {
            // An older version has stored the row without its revision.
            None if name == REVISION => Cell::Int(0),
            None | Some(Json::Null) => Cell::Null,
            Some(Json::Bool(is_true)) => Cell::Int(i64::from(*is_true)),
            Some(Json::Number(number)) => {
                Cell::Int(number.as_i64().ok_or_else(|| format!("{number} is too great"))?)
            }
            Some(Json::String(text)) => Cell::Text(text),
            Some(_) => return Err(format!("the cell `{name}` has a list or an object").into()),
        })
    }

    fn name(&self, column: usize) -> Option<&str> {
        self.columns.get(column).copied()
    }
}

fn row_of<E: Entity>(entity: &E) -> Row {
    let json = |value: Value<'_>| match value {
        Value::Null => Json::Null,
        Value::Int(number) => number.into(),
        Value::Bool(is_true) => is_true.into(),
        Value::Text(text) => text.into(),
    };
    let cells = E::columns().into_iter().zip(entity.values());
    let mut row: Row = cells.map(|(name, value)| (name.to_owned(), json(value))).collect();
    row.insert(REVISION.to_owned(), entity.revision().into());
    row
}

fn entity_of<E: Entity>(row: &Row) -> Result<E, BoxError> {
    E::read(&mut Cells::new(&StoredRow { columns: E::columns(), row }))
}

fn entities<E: Entity>(rows: &[Row]) -> Result<Vec<E>, BoxError> {
    rows.iter().map(entity_of).collect()
}

fn to_stored(content: &DeletedContent) -> Content {
    Content {
        projects: content.projects.iter().map(row_of).collect(),
        agents: content.agents.iter().map(row_of).collect(),
        tasks: content.tasks.iter().map(row_of).collect(),
        assignments: content.assignments.clone(),
        links: content.links.clone(),
    }
}

fn from_stored(content: Content) -> Result<DeletedContent, BoxError> {
    Ok(DeletedContent {
        projects: entities(&content.projects)?,
        agents: entities(&content.agents)?,
        tasks: entities(&content.tasks)?,
        assignments: content.assignments,
        links: content.links,
    })
}

fn read_removable(cells: &mut Cells<'_>) -> Result<Removable, BoxError> {
    Ok(match cells.get()? {
        RemovableKind::Task => Removable::Task(cells.get()?),
        RemovableKind::Agent => Removable::Agent(cells.get()?),
        RemovableKind::Project => Removable::Project(cells.get()?),
    })
}

fn read(cells: &mut Cells<'_>) -> Result<Deletion, BoxError> {
    Ok(Deletion {
        of: read_removable(cells)?,
        deleted_at: cells.get()?,
        undo_until: cells.get()?,
        content: from_stored(cells.json()?)?,
    })
}

pub(super) fn key_values(of: &Removable) -> [Value<'_>; 2] {
    [of.kind().into(), of.id().into()]
}

/// Returns the deletion of a thing, if it can perhaps be undone.
pub fn find(tx: &mut Read<'_>, of: &Removable) -> Result<Option<Deletion>, StoreError> {
    let sql = "SELECT kind, object_id, deleted_at, undo_until, content FROM deletions \
        WHERE kind = ?1 AND object_id = ?2";
    tx.row("deletion", sql, &key_values(of), read)
}

/// Returns whether the rows of a deleted thing are kept.
pub fn exists(tx: &mut Read<'_>, of: &Removable) -> Result<bool, StoreError> {
    tx.exists("SELECT 1 FROM deletions WHERE kind = ?1 AND object_id = ?2", &key_values(of))
}

/// Returns the things whose deletion cannot be undone any more, the oldest first.
pub fn list_over(tx: &mut Read<'_>, now: Timestamp) -> Result<Vec<Removable>, StoreError> {
    let sql = "SELECT kind, object_id FROM deletions WHERE undo_until < ?1 \
        ORDER BY undo_until, kind, object_id";
    tx.rows("deletion", sql, &[now.into()], read_removable)
}

/// Takes the rows of a deletion out of their tables, and keeps them until it cannot be undone any
/// more. The last names of its things are `names`.
///
/// # Errors
/// A failed statement.
pub fn add(
    tx: &mut Transaction<'_>,
    deletion: &Deletion,
    names: &[DeletedName],
) -> Result<(), StoreError> {
    let Deletion { of, deleted_at, undo_until, content } = deletion;
    for task in &content.tasks {
        tx.execute("DELETE FROM tasks WHERE id = ?1", &[(&task.id).into()])?;
    }
    for Assignment { project, agent } in &content.assignments {
        let sql = "DELETE FROM assignments WHERE project_id = ?1 AND agent_id = ?2";
        tx.execute(sql, &[project.into(), agent.into()])?;
    }
    for agent in &content.agents {
        tx.execute("DELETE FROM agents WHERE id = ?1", &[(&agent.id).into()])?;
    }
    for project in &content.projects {
        tx.execute("DELETE FROM projects WHERE id = ?1", &[(&project.id).into()])?;
    }
    for DeletedName { of, short_id, name } in names {
        let sql = "INSERT INTO deleted_names (kind, object_id, short_id, name) \
            VALUES (?1, ?2, ?3, ?4)";
        let [kind, id] = key_values(of);
        tx.execute(sql, &[kind, id, short_id.into(), name.into()])?;
    }
    let sql = "INSERT INTO deletions (kind, object_id, deleted_at, undo_until, content) \
        VALUES (?1, ?2, ?3, ?4, ?5)";
    let [kind, id] = key_values(of);
    let content = Value::json(&to_stored(content));
    tx.execute(sql, &[kind, id, (*deleted_at).into(), (*undo_until).into(), content])?;
    tell(tx, deletion, Change::Deleted)
}

/// Brings the rows of a deletion back.
///
/// # Errors
/// A failed statement.
pub fn undo(tx: &mut Transaction<'_>, deletion: &Deletion) -> Result<(), StoreError> {
    let DeletedContent { projects, agents, tasks, assignments, links: _ } = &deletion.content;
    for project in projects {
        put_back(tx, project, &project.id)?;
        forget_name(tx, &Removable::Project(project.id.clone()))?;
    }
    for agent in agents {
        put_back(tx, agent, &agent.id)?;
        forget_name(tx, &Removable::Agent(agent.id.clone()))?;
    }
    for assignment in assignments {
        assignments::add(tx, assignment)?;
    }
    for task in tasks {
        put_back(tx, task, &task.id)?;
        forget_name(tx, &Removable::Task(task.id.clone()))?;
    }
    forget(tx, &deletion.of)?;
    tell(tx, deletion, Change::Undone)
}

fn put_back<E: Entity>(
    tx: &mut Transaction<'_>,
    entity: &E,
    id: &impl ToString,
) -> Result<(), StoreError> {
    if tx.put_back(entity)? {
        return Ok(());
    }
    Err(StoreError::Outdated { what: E::NAME, id: id.to_string() })
}

/// Forgets the rows of a deletion.
pub fn forget(tx: &mut Transaction<'_>, of: &Removable) -> Result<(), StoreError> {
    let sql = "DELETE FROM deletions WHERE kind = ?1 AND object_id = ?2";
    tx.execute(sql, &key_values(of)).map(drop)
}

fn forget_name(tx: &mut Transaction<'_>, of: &Removable) -> Result<(), StoreError> {
    let sql = "DELETE FROM deleted_names WHERE kind = ?1 AND object_id = ?2";
    tx.execute(sql, &key_values(of)).map(drop)
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

/// Removes what belongs to a task that was deleted for good.
///
/// # Errors
/// A failed statement.
pub fn forget_task(tx: &mut Transaction<'_>, task: &TaskId) -> Result<(), StoreError> {
    tx.execute("DELETE FROM executions WHERE task_id = ?1", &[task.into()])?;
    tx.execute("DELETE FROM checks WHERE task_id = ?1", &[task.into()])?;
    tx.execute("DELETE FROM comments WHERE task_id = ?1", &[task.into()])?;
    // A workspace that was never made has nothing to remove.
    let sql = "DELETE FROM workspaces WHERE task_id = ?1 AND state = 'wanted' AND content IS NULL";
    tx.execute(sql, &[task.into()]).map(drop)
}

/// Removes what belongs to an agent or a project that was deleted for good.
///
/// # Errors
/// A failed statement.
pub fn forget_chats(tx: &mut Transaction<'_>, of: &Removable) -> Result<(), StoreError> {
    match of {
        Removable::Task(_) => Ok(()),
        Removable::Agent(agent) => {
            tx.execute("DELETE FROM messages WHERE agent_id = ?1", &[agent.into()])?;
            tx.execute("DELETE FROM pairs WHERE agent_id = ?1", &[agent.into()]).map(drop)
        }
        Removable::Project(project) => {
            tx.execute("DELETE FROM messages WHERE project_id = ?1", &[project.into()])?;
            tx.execute("DELETE FROM pairs WHERE project_id = ?1", &[project.into()]).map(drop)
        }
    }
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

/// The workspaces of which nothing is left, and whose tasks were deleted for good.
const ORPHANS: &str = "FROM workspaces WHERE state = 'removed' AND content IS NULL \
    AND forever_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM deletions) \
    AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.id = workspaces.task_id)";

/// Returns whether [`forget_workspaces`] would remove a row.
pub fn has_empty_workspaces(tx: &mut Read<'_>) -> Result<bool, StoreError> {
    tx.exists(&format!("SELECT 1 {ORPHANS} LIMIT 1"), &[])
}

/// Removes the rows of workspaces of which nothing is left, and whose tasks were deleted for good.
pub fn forget_workspaces(tx: &mut Transaction<'_>) -> Result<(), StoreError> {
    tx.execute(&format!("DELETE {ORPHANS}"), &[]).map(drop)
}

fn name_of(Deletion { of, content, .. }: &Deletion) -> String {
    let task = || content.tasks.first().map(|task| format!("{} {}", task.short_id, task.title));
    let agent = || content.agents.first().map(|agent| agent.name.clone());
    let project = || content.projects.first().map(|project| project.name.clone());
    let name = match of {
        Removable::Task(_) => task(),
        Removable::Agent(_) => agent(),
        Removable::Project(_) => project(),
    };
    name.unwrap_or_default()
}

/// A change of what is deleted.
#[derive(Clone, Copy)]
enum Change {
    Deleted,
    Undone,
}

/// Adds the events and the entry of the audit log, and wakes the listeners that a deletion
/// concerns.
fn tell(tx: &mut Transaction<'_>, deletion: &Deletion, change: Change) -> Result<(), StoreError> {
    let (action, kinds) = match change {
        Change::Deleted => ("delete", ["task.deleted", "agent.deleted", "project.deleted"]),
        Change::Undone => ("undelete", ["task.undeleted", "agent.undeleted", "project.undeleted"]),
    };
    let Deletion { of, content, .. } = deletion;
    let now = tx.now();
    for task in &content.tasks {
        tx.event(NewEvent {
            project: Some(task.project.clone()),
            task: Some(task.id.clone()),
            detail: Some(task.short_id.to_string()),
            ..NewEvent::new(kinds[0], now)
        });
    }
    for agent in &content.agents {
        tx.event(NewEvent {
            agent: Some(agent.id.clone()),
            detail: Some(agent.name.clone()),
            ..NewEvent::new(kinds[1], now)
        });
    }
    for project in &content.projects {
        tx.event(NewEvent {
            project: Some(project.id.clone()),
            detail: Some(project.name.clone()),
            ..NewEvent::new(kinds[2], now)
        });
    }
    let what = of.kind().as_str();
    let id = of.id().to_owned();
    // The id says nothing to a reader when the row is gone.
    let before = Fields::from([("name", plain(name_of(deletion)))]);
    tx.audit(|_| Ok(Some(Entry::bare(action, what, id).with_before(before))))?;
    tx.wake(Wake::Coordinators);
    tx.wake(Wake::ChatExport);
    Ok(())
}
