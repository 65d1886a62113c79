//! The pause of all starts.

use crate::domain::Timestamp;
use crate::store::{Read, StoreError, cell};

use super::audit::{Entry, Fields, plain};
use super::{Transaction, Wake};

/// Returns since when no new agents are started; `None` normally.
pub fn since(tx: &mut Read<'_>) -> Result<Option<Timestamp>, StoreError> {
    tx.row("pause", "SELECT since FROM pauses", &[], cell)
}

/// Pauses starts since then, or ends the pause.
pub fn set(tx: &mut Transaction<'_>, paused_since: Option<Timestamp>) -> Result<(), StoreError> {
    tx.audit(|tx| {
        let before = since(tx)?;
        Ok(Entry::between("coordinator", &"starts", Some(shown(before)), shown(paused_since)))
    })?;
    tx.execute("DELETE FROM pauses", &[])?;
    if let Some(since) = paused_since {
        tx.execute("INSERT INTO pauses (since) VALUES (?1)", &[since.into()])?;
    }
    tx.wake(Wake::Coordinators);
    Ok(())
}

fn shown(paused_since: Option<Timestamp>) -> Fields {
    Fields::from([("paused_since", plain(paused_since))])
}
