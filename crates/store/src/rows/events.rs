//! Events in the order of the commits. The store numbers them.

use std::collections::BTreeSet;

use crate::{BoxError, Cells, Read, StoreError, cell};
use domain::event::{Event, EventSpan, NewEvent};
use domain::id::TaskId;
use domain::task::Mover;
use domain::{AgentId, LaunchId, ProjectId, ShortId, Timestamp};

use super::Transaction;
use super::filter::Filter;

/// The columns and the tables. The store may not have a task that an event names.
const SELECT: &str = "SELECT e.seq, e.at, e.kind, e.agent_id, e.project_id, e.launch_id, \
    e.task_id, e.author, e.detail, t.project_key, t.number \
    FROM events AS e LEFT JOIN tasks AS t ON t.id = e.task_id";

fn read(cells: &mut Cells<'_>) -> Result<Event, BoxError> {
    let event = Event {
        seq: cells.get()?,
        at: cells.get()?,
        kind: cells.get()?,
        agent: cells.get()?,
        project: cells.get()?,
        launch: cells.get()?,
        task: cells.get()?,
        task_short_id: None,
        author: cells.get()?,
        detail: cells.get()?,
    };
    let key = cells.get::<Option<_>>()?;
    let number = cells.get::<Option<_>>()?;
    let task_short_id = key.zip(number).map(|(key, number)| ShortId { key, number });
    Ok(Event { task_short_id, ..event })
}

/// Returns the events after `seq` in their order, at most `limit`.
pub fn list(tx: &mut Read<'_>, after: i64, limit: usize) -> Result<Vec<Event>, StoreError> {
    let sql = format!("{SELECT} WHERE e.seq > ?1 ORDER BY e.seq LIMIT ?2");
    tx.rows("event", &sql, &[after.into(), limit.into()], read)
}

/// Returns the events after `seq` that name a task, at most `limit`.
pub fn list_of_task(
    tx: &mut Read<'_>,
    task: &TaskId,
    after: i64,
    limit: usize,
) -> Result<Vec<Event>, StoreError> {
    let sql = format!("{SELECT} WHERE e.task_id = ?1 AND e.seq > ?2 ORDER BY e.seq LIMIT ?3");
    tx.rows("event", &sql, &[task.into(), after.into(), limit.into()], read)
}

/// Returns the newest milestones of a task: its creation, its moves, what becomes of its forge
/// item, and merges of its result. The newest comes first.
pub fn list_milestones_of_task(
    tx: &mut Read<'_>,
    task: &TaskId,
    limit: usize,
) -> Result<Vec<Event>, StoreError> {
    let sql = format!(
        "{SELECT} WHERE e.task_id = ?1 \
        AND e.kind IN ('task.created', 'task.status', 'forge.item', 'workspace.merged') \
        ORDER BY e.seq DESC LIMIT ?2"
    );
    tx.rows("event", &sql, &[task.into(), limit.into()], read)
}

/// Returns the name of the person who changed a task last; `None` if an agent or the daemon did.
pub fn last_author_of_task(tx: &mut Read<'_>, task: &TaskId) -> Result<Option<String>, StoreError> {
    let sql = "SELECT author FROM events WHERE task_id = ?1 \
        AND kind IN ('task.created', 'task.status', 'task.changed') ORDER BY seq DESC LIMIT 1";
    let author: Option<Option<String>> = tx.row("event", sql, &[task.into()], cell)?;
    Ok(author.flatten())
}

/// Returns who gave a task its status; `None` if the daemon did, or if the event is not kept any
/// more.
pub fn mover_of_task(tx: &mut Read<'_>, task: &TaskId) -> Result<Option<Mover>, StoreError> {
    let sql = "SELECT e.author, l.agent_id FROM events AS e \
        LEFT JOIN launches AS l ON l.id = e.launch_id WHERE e.task_id = ?1 \
        AND e.kind IN ('task.created', 'task.status') ORDER BY e.seq DESC LIMIT 1";
    let found = tx.row("event", sql, &[task.into()], |cells| {
        let author: Option<String> = cells.get()?;
        let agent: Option<AgentId> = cells.get()?;
        Ok(author.map(Mover::Person).or_else(|| agent.map(Mover::Agent)))
    })?;
    Ok(found.flatten())
}

/// Returns the people who had launches on these tasks stopped, by launch.
pub fn list_stopped_by(
    tx: &mut Read<'_>,
    tasks: &BTreeSet<TaskId>,
) -> Result<Vec<(LaunchId, String)>, StoreError> {
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    let mut filter = Filter::default();
    filter.among("task_id", tasks);
    filter.also("kind = 'launch.stopping' AND launch_id IS NOT NULL AND author IS NOT NULL");
    let sql = "SELECT launch_id, author FROM events";
    filter.rows(tx, "event", sql, "", |cells| Ok((cells.get()?, cells.get()?)))
}

/// Returns the person who stopped an agent in a project at this time. `None` if no person did it, or
/// if the event is not kept any more.
pub fn find_who_stopped(
    tx: &mut Read<'_>,
    agent: &AgentId,
    project: &ProjectId,
    at: Timestamp,
) -> Result<Option<String>, StoreError> {
    let sql = "SELECT author FROM events WHERE kind = 'person.stop' \
        AND agent_id = ?1 AND project_id = ?2 AND at = ?3 ORDER BY seq DESC LIMIT 1";
    let found = tx.row("event", sql, &[agent.into(), project.into(), at.into()], cell)?;
    Ok(found.flatten())
}

/// Returns the numbers of the oldest and the newest event, or 0.
pub fn span(tx: &mut Read<'_>) -> Result<EventSpan, StoreError> {
    // Two queries, because each is answered from one end of the index.
    let oldest = tx.number("SELECT COALESCE(MIN(seq), 0) FROM events", &[])?;
    let newest = tx.number("SELECT COALESCE(MAX(seq), 0) FROM events", &[])?;
    Ok(EventSpan { oldest, newest })
}

/// Returns the greatest number of an event from before `at`, or 0.
pub fn last_before(tx: &mut Read<'_>, at: Timestamp) -> Result<i64, StoreError> {
    tx.number("SELECT COALESCE(MAX(seq), 0) FROM events WHERE at < ?1", &[at.into()])
}

/// Adds an event with the next number. Its author is the person who acts.
pub fn add(tx: &mut Transaction<'_>, event: &NewEvent) -> Result<(), StoreError> {
    let sql = "INSERT INTO events (at, kind, agent_id, project_id, launch_id, task_id, author, detail) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let author = tx.author();
    tx.execute(
        sql,
        &[
            event.at.into(),
            event.kind.into(),
            (&event.agent).into(),
            (&event.project).into(),
            (&event.launch).into(),
            (&event.task).into(),
            (&author).into(),
            (&event.detail).into(),
        ],
    )
    .map(drop)
}

/// Forgets the events up to this number.
pub fn forget(tx: &mut Transaction<'_>, up_to: i64) -> Result<(), StoreError> {
    tx.execute("DELETE FROM events WHERE seq <= ?1", &[up_to.into()]).map(drop)
}
