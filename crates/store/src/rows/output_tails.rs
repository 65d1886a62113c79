//! The ends of agents' output, for launches whose output is on another machine.

use crate::{Read, StoreError, cell};
use domain::LaunchId;

use super::Transaction;

/// The number of ends of outputs that are kept.
pub const MAX_OUTPUT_TAILS: usize = 1000;

pub fn get(tx: &mut Read<'_>, launch: &LaunchId) -> Result<Option<String>, StoreError> {
    let sql = "SELECT tail FROM output_tails WHERE launch_id = ?1";
    tx.row("output tail", sql, &[launch.into()], cell)
}

/// Stores the tail of a launch, and keeps only the [`MAX_OUTPUT_TAILS`] newest tails of all
/// launches. Ids grow with time.
pub fn put(tx: &mut Transaction<'_>, launch: &LaunchId, tail: &str) -> Result<(), StoreError> {
    let sql = "INSERT INTO output_tails (launch_id, tail) VALUES (?1, ?2) \
        ON CONFLICT (launch_id) DO UPDATE SET tail = excluded.tail";
    tx.execute(sql, &[launch.into(), tail.into()])?;
    let sql = "DELETE FROM output_tails WHERE launch_id <= \
        (SELECT launch_id FROM output_tails ORDER BY launch_id DESC LIMIT 1 OFFSET ?1)";
    tx.execute(sql, &[MAX_OUTPUT_TAILS.into()]).map(drop)
}
