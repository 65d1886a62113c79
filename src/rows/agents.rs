//! Agents.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::event::NewEvent;
use crate::domain::{Agent, AgentId};
use crate::store::{BoxError, Cells, Entity, Read, StoreError, Value, cell};

use super::audit::{AuditValue, Audited, Fields, plain};
use super::filter::{self, column_of_ids};
use super::{Transaction, Wake};

impl Entity for Agent {
    const NAME: &'static str = "agent";
    const TABLE: &'static str = "agents";
    const COLUMNS: &'static str =
        "id, name, ai_type, system_prompt, passkey_hash, status, created_at, archived_from";

    fn read(cells: &mut Cells<'_>) -> Result<Self, BoxError> {
        Ok(Self {
            id: cells.get()?,
            name: cells.get()?,
            ai_type: cells.get()?,
            system_prompt: cells.get()?,
            passkey: cells.get()?,
            status: cells.get()?,
            created_at: cells.get()?,
            archived_from: cells.get()?,
            revision: cells.get()?,
        })
    }

    fn values(&self) -> Vec<Value<'_>> {
        vec![
            (&self.id).into(),
            (&self.name).into(),
            (&self.ai_type).into(),
            (&self.system_prompt).into(),
            (&self.passkey).into(),
            self.status.into(),
            self.created_at.into(),
            self.archived_from.into(),
        ]
    }

    fn revision(&self) -> i64 {
        self.revision
    }
}

impl Audited for Agent {
    fn shown(&self) -> Fields {
        Fields::from([
            ("name", plain(&self.name)),
            ("ai_type", plain(&self.ai_type)),
            ("system_prompt", AuditValue::Long(self.system_prompt.clone())),
            (
                "passkey",
                AuditValue::Hidden(self.passkey.as_ref().map(|hash| hash.as_str().to_owned())),
            ),
            ("status", plain(self.status)),
        ])
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
