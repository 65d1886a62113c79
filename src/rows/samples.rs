//! The load of the daemon, one row a minute for a day.

use crate::domain::series::{KEPT_MINUTES, Sample};
use crate::store::{Read, StoreError};

use super::Transaction;

/// Returns all samples in their order.
pub fn list(tx: &mut Read<'_>) -> Result<Vec<Sample>, StoreError> {
    let sql =
        "SELECT minute, running, waiting, tokens, cost_usd_micros FROM samples ORDER BY minute";
    tx.rows("sample", sql, &[], |cells| {
        let minute = cells.get()?;
        let mut number = || Ok::<_, crate::store::BoxError>(cells.get::<i64>()?.unsigned_abs());
        let running = number()?;
        let waiting = number()?;
        let tokens = number()?;
        let cost_usd_micros = number()?;
        Ok(Sample { minute, running, waiting, tokens, cost_usd_micros })
    })
}

/// Adds the sample of a minute, unless it has one, and forgets those that are too old.
pub fn add(tx: &mut Transaction<'_>, sample: &Sample) -> Result<(), StoreError> {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let sql = "INSERT INTO samples (minute, running, waiting, tokens, cost_usd_micros) \
        VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (minute) DO NOTHING";
    tx.execute(
        sql,
        &[
            sample.minute.into(),
            number(sample.running).into(),
            number(sample.waiting).into(),
            number(sample.tokens).into(),
            number(sample.cost_usd_micros).into(),
        ],
    )?;
    let oldest = sample.minute - KEPT_MINUTES;
    tx.execute("DELETE FROM samples WHERE minute < ?1", &[oldest.into()]).map(drop)
}
