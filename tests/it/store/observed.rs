//! A connection whose calls a test sees.

use std::ops::ControlFlow;

use agent_coordinator::store::{Cells, Connection, Db, DbError, Value};

/// Is told of each call before the database is.
pub trait Observer: Send + 'static {
    fn statement(&mut self, sql: &str, args: &[Value<'_>]);
}

/// A connection, and who is told of its calls.
pub struct Observed<O>(pub Box<dyn Connection>, pub O);

impl<O: Observer> Db for Observed<O> {
    fn execute(&mut self, sql: &str, args: &[Value<'_>]) -> Result<u64, DbError> {
        self.1.statement(sql, args);
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
    fn begin(&mut self) -> Result<(), DbError> {
        self.0.begin()
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
        self.0.commit()
    }

    fn rollback(&mut self) {
        self.0.rollback();
    }

    fn reconnect(&mut self) -> Result<(), DbError> {
        self.0.reconnect()
    }

    fn rest(&mut self) {
        self.0.rest();
    }

    fn look_after(&mut self) {
        self.0.look_after();
    }

    fn close(&mut self) {
        self.0.close();
    }
}
