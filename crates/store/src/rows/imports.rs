//! Writes the objects of an import. The audit log has one line for all of them, because a file may
//! contain very many.

use crate::StoreError;
use domain::agent::Assignment;
use domain::event::NewEvent;
use domain::export::{Counts, Header};
use domain::{Agent, Comment, Message, Project, Task};

use super::audit::{Entry, Fields, plain};
use super::{Transaction, Wake, assignments, comments, messages, tasks};

/// Writes a new agent.
pub fn add_agent(tx: &mut Transaction<'_>, agent: &Agent) -> Result<(), StoreError> {
    tx.replace(agent, &agent.id)?;
    let now = tx.now();
    tx.event(NewEvent { agent: Some(agent.id.clone()), ..NewEvent::new("agent.created", now) });
    Ok(())
}

/// Writes a new project.
pub fn add_project(tx: &mut Transaction<'_>, project: &Project) -> Result<(), StoreError> {
    tx.replace(project, &project.id)?;
    let id = Some(project.id.clone());
    let now = tx.now();
    tx.event(NewEvent { project: id, ..NewEvent::new("project.created", now) });
    Ok(())
}

/// Writes a new assignment.
pub fn add_assignment(tx: &mut Transaction<'_>, assignment: &Assignment) -> Result<(), StoreError> {
    assignments::insert(tx, assignment)?;
    let agent = Some(assignment.agent.clone());
    let project = Some(assignment.project.clone());
    let now = tx.now();
    tx.event(NewEvent { agent, project, ..NewEvent::new("assignment.added", now) });
    Ok(())
}

/// Writes a new task.
pub fn add_task(tx: &mut Transaction<'_>, task: &Task) -> Result<(), StoreError> {
    tx.replace(task, &task.id)?;
    let now = tx.now();
    tx.event(tasks::status_event(task, now));
    tx.wake(Wake::AgentsOf(task.project.clone()));
    Ok(())
}

/// Adds a comment on a task.
pub fn add_comment(tx: &mut Transaction<'_>, comment: &Comment) -> Result<(), StoreError> {
    comments::insert(tx, comment)
}

/// Adds a message with the next number. It wakes no agent.
pub fn add_message(tx: &mut Transaction<'_>, message: &Message) -> Result<(), StoreError> {
    messages::insert(tx, message)?;
    let chat = Assignment { project: message.project.clone(), agent: message.agent.clone() };
    tx.wake(Wake::Chat(chat));
    Ok(())
}

/// Notes the import of a file for the audit log, and wakes those who look for new objects.
pub fn finish(
    tx: &mut Transaction<'_>,
    header: &Header,
    added: Counts,
    n_started: u64,
) -> Result<(), StoreError> {
    let fields = Fields::from([
        ("program", plain(&header.program)),
        ("agents", plain(added.agents)),
        ("projects", plain(added.projects)),
        ("tasks", plain(added.tasks)),
        ("messages", plain(added.messages)),
        ("started", plain(n_started)),
    ]);
    tx.audit(|_| Ok(Entry::between("import", &header.exported_at, None, fields)))?;
    tx.wake(Wake::Coordinators);
    tx.wake(Wake::ChatExport);
    Ok(())
}
