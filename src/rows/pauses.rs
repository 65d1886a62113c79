//! Whether new agents are started.

use crate::domain::Timestamp;
use crate::store::{Read, StoreError, Write, cell};

/// Returns since when no new agents are started; `None` normally.
pub fn since(tx: &mut Read<'_>) -> Result<Option<Timestamp>, StoreError> {
    tx.row("pause", "SELECT since FROM pauses", &[], cell)
}

pub fn set(tx: &mut Write<'_>, since: Option<Timestamp>) -> Result<(), StoreError> {
    tx.execute("DELETE FROM pauses", &[])?;
    if let Some(since) = since {
        tx.execute("INSERT INTO pauses (since) VALUES (?1)", &[since.into()])?;
    }
    Ok(())
}
