//! An SQLite database at one end of a copy.

use std::ops::ControlFlow;

use super::super::StoreError;
use super::super::copy::End;
use super::super::db::{Cells, Db as _, DbError, cell};
use super::super::transaction::Read;
use super::Sqlite;

impl End for Sqlite {
    fn columns(&self) -> &'static str {
        "SELECT t.name, c.name, c.type, t.sql LIKE '%AUTOINCREMENT%' AND c.pk = 1 \
         FROM sqlite_schema AS t JOIN pragma_table_info(t.name) AS c \
         WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY t.name, c.cid"
    }

    fn scan(
        &mut self,
        sql: &str,
        each: &mut dyn FnMut(&mut Cells<'_>) -> ControlFlow<()>,
    ) -> Result<(), DbError> {
        self.query(sql, &[], each)
    }

    fn next_number(&mut self, table: &str, _column: &str) -> Result<i64, StoreError> {
        let sql = "SELECT seq + 1 FROM sqlite_sequence WHERE name = ?1";
        // A table that never had a row is not listed.
        Ok(Read::new(self).row("number", sql, &[table.into()], cell)?.unwrap_or(1))
    }

    fn set_next_number(&mut self, table: &str, _column: &str, next: i64) -> Result<(), DbError> {
        self.execute("DELETE FROM sqlite_sequence WHERE name = ?1", &[table.into()])?;
        let sql = "INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)";
        self.execute(sql, &[table.into(), (next - 1).into()]).map(drop)
    }

    fn leave(&mut self) {}
}
