//! The pauses of all starts: by people, and by the pause file. Each has one row.

use crate::{Read, StoreError, cell};
use domain::Timestamp;

use super::audit::{Entry, Fields, plain};
use super::{Transaction, Wake};

/// Returns since when people pause all starts; `None` normally.
pub fn since(tx: &mut Read<'_>) -> Result<Option<Timestamp>, StoreError> {
    tx.row("pause", "SELECT since FROM pauses WHERE file IS NULL", &[], cell)
}

/// Returns the path of the pause file, if it pauses all starts.
pub fn file(tx: &mut Read<'_>) -> Result<Option<String>, StoreError> {
    tx.row("pause", "SELECT file FROM pauses WHERE file IS NOT NULL", &[], cell)
}

/// Returns whether anything pauses all starts.
pub fn is_paused(tx: &mut Read<'_>) -> Result<bool, StoreError> {
    Ok(tx.number("SELECT COUNT(*) FROM pauses", &[])? > 0)
}

/// Lets people pause all starts since then, or ends their pause.
pub fn set(tx: &mut Transaction<'_>, paused_since: Option<Timestamp>) -> Result<(), StoreError> {
    tx.audit(|tx| {
        let before = since(tx)?;
        Ok(Entry::between("coordinator", &"starts", Some(shown(before)), shown(paused_since)))
    })?;
    tx.execute("DELETE FROM pauses WHERE file IS NULL", &[])?;
    if let Some(since) = paused_since {
        tx.execute("INSERT INTO pauses (since) VALUES (?1)", &[since.into()])?;
    }
    tx.wake(Wake::Coordinators);
    Ok(())
}

/// Lets the pause file at this path pause all starts, or ends its pause.
pub fn set_file(tx: &mut Transaction<'_>, file: Option<&str>) -> Result<(), StoreError> {
    tx.execute("DELETE FROM pauses WHERE file IS NOT NULL", &[])?;
    if let Some(file) = file {
        let sql = "INSERT INTO pauses (since, file) VALUES (?1, ?2)";
        tx.execute(sql, &[tx.now().into(), file.into()])?;
    }
    tx.wake(Wake::Coordinators);
    Ok(())
}

fn shown(paused_since: Option<Timestamp>) -> Fields {
    Fields::from([("paused_since", plain(paused_since))])
}
