//! Agents.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Read, StoreError, cell};
use domain::event::NewEvent;
use domain::{Agent, AgentId};

use super::audit::hidden;
use super::filter::{self, column_of_ids};
use super::record::entity;
use super::{Transaction, Wake};

entity! {
    Agent in "agents" called "agent" {
        id;
        name, audited plain;
        ai_type, audited plain;
        system_prompt, audited long;
        passkey = "passkey_hash";
        status, audited plain;
        created_at;
        archived_from;
    }
    also audited |agent| {
        "passkey" = hidden(agent.passkey.as_ref());
    }
}

pub fn get(tx: &mut Read<'_>, id: &AgentId) -> Result<Option<Agent>, StoreError> {
    tx.find("WHERE id = ?1", &[id.into()])
}

/// Returns all agents by id.
pub fn list(tx: &mut Read<'_>) -> Result<Vec<Agent>, StoreError> {
    tx.list("ORDER BY id", &[])
}

/// Returns the ids of all agents, in their order.
pub fn list_ids(tx: &mut Read<'_>) -> Result<Vec<AgentId>, StoreError> {
    tx.rows("agent", "SELECT id FROM agents ORDER BY id", &[], cell)
}

/// Returns the names of these agents. An id without an agent is left out.
pub fn names(
    tx: &mut Read<'_>,
    ids: &BTreeSet<AgentId>,
) -> Result<BTreeMap<AgentId, String>, StoreError> {
    column_of_ids::<Agent, AgentId, String>(tx, "name", ids)
}

/// Returns the id and the name of the first agent by id whose id begins with a text.
pub fn find_with_prefix(
    tx: &mut Read<'_>,
    prefix: &str,
) -> Result<Option<(AgentId, String)>, StoreError> {
    filter::find_with_prefix::<Agent, AgentId>(tx, prefix)
}

/// Returns the names of all agents.
pub fn list_names(tx: &mut Read<'_>) -> Result<BTreeMap<AgentId, String>, StoreError> {
    let sql = "SELECT id, name FROM agents ORDER BY id";
    let names = tx.rows("agent", sql, &[], |cells| Ok((cells.get()?, cells.get()?)))?;
    Ok(names.into_iter().collect())
}

pub fn count(tx: &mut Read<'_>) -> Result<u64, StoreError> {
    tx.number("SELECT COUNT(*) FROM agents", &[]).map(i64::unsigned_abs)
}

/// Writes an agent.
pub fn put(tx: &mut Transaction<'_>, agent: &Agent) -> Result<(), StoreError> {
    tx.replace_audited(agent, &agent.id, |tx| get(tx, &agent.id))?;
    let kind = if agent.revision == 0 { "agent.created" } else { "agent.changed" };
    let event = NewEvent { agent: Some(agent.id.clone()), ..NewEvent::new(kind, tx.now()) };
    tx.row_event(event);
    tx.wake(Wake::Coordinators);
    Ok(())
}
