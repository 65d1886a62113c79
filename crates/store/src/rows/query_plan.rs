//! The plan of SQLite for a query, for tests.

use crate::{StoreError, Value, open};

/// Returns the tables and indexes that `sql` reads from one end to the other.
pub(super) async fn scans(sql: &str, n_args: usize) -> Vec<String> {
    let engine = open::memory().unwrap();
    let sql = format!("EXPLAIN QUERY PLAN {sql}");
    let plan: Result<Vec<String>, StoreError> = engine
        .read(move |tx| {
            tx.rows("plan", &sql, &vec![Value::Null; n_args], |cells| {
                let _: (i64, i64, i64) = (cells.get()?, cells.get()?, cells.get()?);
                cells.get()
            })
        })
        .await;
    plan.unwrap().into_iter().filter(|step| step.starts_with("SCAN")).collect()
}
