//! A connection whose calls a test can observe and let fail.

use std::ops::ControlFlow;
use std::time::Duration;

use domain::store_state::Database;
use store::{Cells, Connection, Db, DbError, Locked, Value};

/// Observes each call. An error that it returns replaces the answer of the database.
pub trait Observer: Send + 'static {
    fn statement(&mut self, _sql: &str, _args: &[Value<'_>]) {}

    /// Called before a statement that changes rows.
    fn before_change(&mut self) -> Result<(), DbError> {
        Ok(())
    }

    fn before_commit(&mut self) -> Result<(), DbError> {
        Ok(())
    }

    /// Called after a commit of the database.
    fn after_commit(&mut self) -> Result<(), DbError> {
        Ok(())
    }

    /// Returns the answer to a new connection about the last commit. `None` asks the database.
    fn was_committed(&mut self) -> Option<bool> {
        None
    }

    fn delay(&mut self) -> Option<Duration> {
        None
    }
}

/// A connection with its observer.
pub struct Observed<O>(pub Box<dyn Connection>, pub O);

impl<O: Observer> Db for Observed<O> {
    fn execute(&mut self, sql: &str, args: &[Value<'_>]) -> Result<u64, DbError> {
        self.1.statement(sql, args);
        self.1.before_change()?;
        self.0.execute(sql, args)
    }

    fn query(
        &mut self,
        sql: &str,
        args: &[Value<'_>],
        each: &mut dyn FnMut(&mut Cells<'_>) -> ControlFlow<()>,
    ) -> Result<(), DbError> {
        self.1.statement(sql, args);
        self.0.query(sql, args, each)
    }
}

impl<O: Observer> Connection for Observed<O> {
    fn begin(&mut self, locked: Locked) -> Result<(), DbError> {
        self.0.begin(locked)
    }

    fn begin_read(&mut self) -> Result<(), DbError> {
        self.0.begin_read()
    }

    fn savepoint(&mut self) -> Result<(), DbError> {
        self.0.savepoint()
    }

    fn undo_to_savepoint(&mut self) -> Result<(), DbError> {
        self.0.undo_to_savepoint()
    }

    fn commit(&mut self) -> Result<(), DbError> {
        self.1.before_commit()?;
        self.0.commit()?;
        self.1.after_commit()
    }

    fn rollback(&mut self) {
        self.0.rollback();
    }

    fn reconnect(&mut self) -> Result<bool, DbError> {
        let was_committed = self.0.reconnect()?;
        Ok(self.1.was_committed().unwrap_or(was_committed))
    }

    fn database(&self) -> Database {
        self.0.database()
    }

    fn rest(&mut self) {
        self.0.rest();
    }

    fn look_after(&mut self) {
        self.0.look_after();
    }

    fn delay(&mut self) -> Option<Duration> {
        self.1.delay()
    }

    fn close(&mut self) {
        self.0.close();
    }
}
