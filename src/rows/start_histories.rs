//! The memory of a key beyond its launches: holds, failures, wishes for a chat. A key without a row
//! has nothing to remember.

use crate::domain::{InstanceKey, StartHistory, Timestamp};
use crate::store::{BoxError, Cells, Entity, Read, StoreError, Value};

use super::audit::{Audited, Fields, plain};
use super::record::Record;
use super::{Transaction, Wake};

impl Entity for StartHistory {
    const NAME: &'static str = "pair";
    const TABLE: &'static str = "pairs";
    const N_KEY: usize = 3;
    const COLUMNS: &'static str = "agent_id, project_id, purpose, held_since, n_failures, last_end_at, failed_at, \
        suspended_since, is_misconfigured, wanted_since, read_up_to";

    fn read(cells: &mut Cells<'_>) -> Result<Self, BoxError> {
        let key = InstanceKey::read(cells)?;
        let record = read_memory(cells, key)?;
        Ok(Self { revision: cells.get()?, ..record })
    }

    fn values(&self) -> Vec<Value<'_>> {
        let failed_at: Vec<i64> = self.failed_at.iter().map(|at| at.as_millis()).collect();
        let mut values = self.key.values();
        values.extend([
            self.held_since.into(),
            self.n_failures.into(),
            self.last_end_at.into(),
            Value::json(&failed_at),
            self.suspended_since.into(),
            self.is_misconfigured.into(),
            self.wanted_since.into(),
            self.read_up_to.into(),
        ]);
        values
    }

    fn revision(&self) -> i64 {
        self.revision
    }
}

impl Audited for StartHistory {
    fn shown(&self) -> Fields {
        Fields::from([
            ("held_since", plain(self.held_since)),
            ("suspended_since", plain(self.suspended_since)),
            ("n_failures", plain(self.n_failures)),
            ("wanted_since", plain(self.wanted_since)),
        ])
    }
}

/// Reads the columns from `held_since` to `read_up_to`.
pub(super) fn read_memory(
    cells: &mut Cells<'_>,
    key: InstanceKey,
) -> Result<StartHistory, BoxError> {
    Ok(StartHistory {
        key,
        held_since: cells.get()?,
        n_failures: cells.get()?,
        last_end_at: cells.get()?,
        failed_at: cells.json::<Vec<i64>>()?.into_iter().map(Timestamp::from_millis).collect(),
        suspended_since: cells.get()?,
        is_misconfigured: cells.get()?,
        wanted_since: cells.get()?,
        read_up_to: cells.get()?,
        revision: 0,
    })
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
    Ok(true)
}
