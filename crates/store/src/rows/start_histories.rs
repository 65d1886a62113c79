//! The memory of a key beyond its launches: holds, failures, wishes for a chat. A key without a row
//! has nothing to remember.

use crate::{Read, StoreError};
use domain::{InstanceKey, StartHistory};

use super::record::{Record, entity};
use super::{Transaction, Wake};

entity! {
    StartHistory in "pairs" called "pair", key of 3 columns {
        key: InstanceKey;
        held_since, audited plain;
        n_failures, audited plain;
        last_end_at;
        failed_at as millis;
        suspended_since, audited plain;
        is_misconfigured;
        wanted_since, audited plain;
        read_up_to;
    }
}

/// Stores times as a JSON list of milliseconds.
pub(super) mod millis {
    use crate::{BoxError, Cells, Value};
    use domain::Timestamp;

    pub fn read(cells: &mut Cells<'_>) -> Result<Vec<Timestamp>, BoxError> {
        let millis: Vec<i64> = cells.json()?;
        Ok(millis.into_iter().map(Timestamp::from_millis).collect())
    }

    pub fn value(times: &[Timestamp]) -> Value<'static> {
        let millis: Vec<i64> = times.iter().map(|at| at.as_millis()).collect();
        Value::json(&millis)
    }
}

/// Returns the record of a key; a fresh one if nothing is remembered.
pub fn get(tx: &mut Read<'_>, key: &InstanceKey) -> Result<StartHistory, StoreError> {
    let found = tx.find("WHERE agent_id = ?1 AND project_id = ?2 AND purpose = ?3", &key.values());
    Ok(found?.unwrap_or_else(|| StartHistory::new(key.clone())))
}

/// Returns the held keys, by key.
pub fn list_held(tx: &mut Read<'_>) -> Result<Vec<StartHistory>, StoreError> {
    // This is the order of the purposes, which is not the order of their words.
    let rest = "WHERE held_since IS NOT NULL ORDER BY agent_id, project_id, purpose = 'chat'";
    tx.list(rest, &[])
}

/// Returns the suspended keys that have work and that no person holds, by key.
pub fn list_suspended(tx: &mut Read<'_>) -> Result<Vec<StartHistory>, StoreError> {
    let rest = "WHERE suspended_since IS NOT NULL AND held_since IS NULL \
        AND ((purpose = 'chat' AND wanted_since IS NOT NULL) OR (purpose <> 'chat' \
            AND EXISTS (SELECT 1 FROM tasks WHERE tasks.assignee_id = pairs.agent_id \
                AND tasks.project_id = pairs.project_id AND tasks.status = 'in_progress' \
                AND (tasks.checking_since IS NOT NULL) = (pairs.purpose = 'check')))) \
        AND EXISTS (SELECT 1 FROM assignments WHERE assignments.agent_id = pairs.agent_id \
            AND assignments.project_id = pairs.project_id) \
        AND EXISTS (SELECT 1 FROM agents WHERE agents.id = pairs.agent_id \
            AND agents.status = 'active') \
        AND EXISTS (SELECT 1 FROM projects WHERE projects.id = pairs.project_id \
            AND projects.status = 'active') \
        ORDER BY agent_id, project_id, purpose";
    tx.list(rest, &[])
}

/// Returns the keys that are suspended because they cannot work as they are configured, by key.
pub fn list_misconfigured(tx: &mut Read<'_>) -> Result<Vec<StartHistory>, StoreError> {
    tx.list("WHERE is_misconfigured ORDER BY agent_id, project_id, purpose", &[])
}

/// Changes the record of a key, and returns whether that made a difference.
pub fn change(
    tx: &mut Transaction<'_>,
    key: &InstanceKey,
    change: impl FnOnce(StartHistory) -> StartHistory,
) -> Result<bool, StoreError> {
    let before = get(tx, key)?;
    let after = change(before.clone());
    write(tx, &before, &after)
}

/// Writes the record of a key that was `before`, and returns whether it differs. Writes nothing if
/// it does not.
pub fn write(
    tx: &mut Transaction<'_>,
    before: &StartHistory,
    after: &StartHistory,
) -> Result<bool, StoreError> {
    if after == before {
        return Ok(false);
    }
    tx.replace_audited(after, &after.key, |_| Ok(Some(before.clone())))?;
    if after.concerns_coordinators() {
        tx.wake(Wake::Coordinators);
    }
    if after.wanted_since != before.wanted_since {
        tx.wake(Wake::Chat(after.key.pair()));
    }
    Ok(true)
}
