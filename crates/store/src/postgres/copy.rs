//! A PostgreSQL database at one end of a copy.

use std::ops::ControlFlow;

use super::super::StoreError;
use super::super::copy::End;
use super::super::db::{Cells, DbError, cell};
use super::super::transaction::Read;
use super::Postgres;
use super::failure::failed;

impl End for Postgres {
    fn columns(&self) -> &'static str {
        "SELECT t.relname, c.attname, format_type(c.atttypid, c.atttypmod), c.attidentity <> '' \
         FROM pg_catalog.pg_class AS t JOIN pg_catalog.pg_namespace AS n ON n.oid = t.relnamespace \
         JOIN pg_catalog.pg_attribute AS c ON c.attrelid = t.oid \
         WHERE n.nspname = current_schema() AND t.relkind = 'r' AND c.attnum > 0 \
         AND NOT c.attisdropped ORDER BY t.relname, c.attnum"
    }

    fn scan(
        &mut self,
        sql: &str,
        each: &mut dyn FnMut(&mut Cells<'_>) -> ControlFlow<()>,
    ) -> Result<(), DbError> {
        let statement = self.statement(sql)?;
        // `Client::query` would keep all rows in memory.
        self.client
            .scan(&statement, &mut |row| each(&mut Cells::new(row)))
            .map_err(|error| failed(&error, sql))
    }

    fn next_number(&mut self, table: &str, column: &str) -> Result<i64, StoreError> {
        let mut tx = Read::new(self);
        let sql = "SELECT pg_get_serial_sequence(?1, ?2)";
        let sequence: String =
            tx.row("sequence", sql, &[table.into(), column.into()], cell)?.unwrap_or_default();
        let next = "last_value + CASE WHEN is_called THEN 1 ELSE 0 END";
        tx.number(&format!("SELECT {next} FROM {sequence}"), &[])
    }

    fn set_next_number(&mut self, table: &str, column: &str, next: i64) -> Result<(), DbError> {
        // The function `setval` would not be undone with the transaction.
        self.run(&format!("ALTER TABLE {table} ALTER COLUMN {column} RESTART WITH {next}"))
    }

    fn leave(&mut self) {
        // The end of the connection does the same a moment later.
        let _ = self.run("SELECT pg_advisory_unlock_all()");
    }
}
