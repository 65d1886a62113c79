//! Rows that a test or a benchmark writes into the store by itself, without a use case.

use std::sync::Arc;

use domain::agent::Assignment;
use domain::event::NewEvent;
use domain::{
    Account, Agent, Check, Credential, Execution, ForgeItem, Launch, LaunchId, Message, Notice,
    Project, Session, StartHistory, Task, Timestamp,
};
use store::rows::project_keys::{self, KeyRecord};
use store::rows::{
    Context, Store, Transaction, assignments, events, launches, messages, output_tails, pauses,
};
use store::{Entity, StoreError};

/// A row, or a statement about rows.
#[derive(Debug, Clone)]
#[allow(dead_code, reason = "a benchmark needs only some of them")]
pub enum Row {
    Account(Account),
    Agent(Agent),
    Check(Check),
    Assign(Assignment),
    Credential(Credential),
    Event(NewEvent),
    Execution(Execution),
    ForgeItem(Box<ForgeItem>),
    ForgetEvents(i64),
    ForgetLaunch(LaunchId),
    Launch(Launch),
    Message(Message),
    Notice(Notice),
    OutputTail(LaunchId, String),
    Pair(StartHistory),
    Pause(Option<Timestamp>),
    Project(Project),
    Session(Session),
    Task(Task),
    Unassign(Assignment),
}

/// Writes all rows, or none. Entities publish nothing.
pub async fn write(store: &Store, rows: Vec<Row>) -> Result<(), StoreError> {
    let context = Context::new(Timestamp::from_millis(0), "test".to_owned(), None);
    let all = move |tx: &mut Transaction<'_>| rows.iter().try_for_each(|row| row.write(tx));
    store.write(context, Arc::new(|_| ()), all).await
}

impl Row {
    fn write(&self, tx: &mut Transaction<'_>) -> Result<(), StoreError> {
        match self {
            Self::Account(row) => put(tx, row, &row.ai_type),
            Self::Agent(row) => put(tx, row, &row.id),
            Self::Check(row) => put(tx, row, &row.id),
            Self::Assign(row) => assignments::add(tx, row),
            Self::Credential(row) => put(tx, row, &row.id),
            Self::Event(event) => events::add(tx, event),
            Self::Execution(row) => put(tx, row, &row.id),
            Self::ForgeItem(row) => put(tx, &**row, &row.id),
            Self::ForgetEvents(up_to) => events::forget(tx, *up_to),
            Self::ForgetLaunch(id) => launches::forget(tx, id),
            Self::Launch(row) => put(tx, row, &row.id),
            Self::Message(row) => messages::add(tx, row),
            Self::Notice(row) => put(tx, row, &row.id),
            Self::OutputTail(launch, tail) => output_tails::put(tx, launch, tail),
            Self::Pair(row) => put(tx, row, &row.key),
            Self::Pause(since) => pauses::set(tx, *since),
            Self::Project(row) => {
                let (key, project) = (row.key.clone(), row.id.clone());
                // A test writes tasks with small numbers of its own.
                project_keys::put(tx, &KeyRecord { key, project, next_number: 10_000_000 })?;
                put(tx, row, &row.id)
            }
            Self::Session(row) => put(tx, row, &row.id),
            Self::Task(row) => put(tx, row, &row.id),
            Self::Unassign(row) => assignments::remove(tx, row),
        }
    }
}

fn put<E: Entity>(tx: &mut Transaction<'_>, row: &E, id: &impl ToString) -> Result<(), StoreError> {
    if tx.put(row)? {
        return Ok(());
    }
    Err(StoreError::Outdated { what: E::NAME, id: id.to_string() })
}
