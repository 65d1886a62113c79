//! A transaction as the entities use it: queries, changes of rows, and effects after the commit.

use std::ops::{ControlFlow, Deref, DerefMut};

use super::StoreError;
use super::db::{BoxError, Cells, Db, DbError, Value, cell};

/// An effect that happens after a commit. It must not block.
pub type Effect = Box<dyn FnOnce() + Send>;

/// A transaction that reads.
pub struct Read<'a> {
    db: &'a mut dyn Db,
    /// The first statement that failed.
    failure: Option<DbError>,
    has_written: bool,
}

/// A transaction that reads and writes. Each run of its closure begins with a copy of the same
/// context.
pub struct Write<'a, C = ()> {
    read: Read<'a>,
    effects: Vec<Effect>,
    /// The values that the closure brings along.
    pub context: C,
}

/// A table whose rows are values of one type.
///
/// [`Entity::read`] and [`Entity::values`] have the order of [`Entity::columns`]. The column
/// `revision` comes after them: it counts the writes of a row.
pub trait Entity: Sized {
    /// Its name in errors.
    const NAME: &'static str;
    const TABLE: &'static str;
    /// The number of columns at the beginning that are the key.
    const N_KEY: usize = 1;
    /// The columns of another table that are read after `revision`, each with a comma before it.
    const JOINED_COLUMNS: &'static str = "";
    /// The join of that table. A row has at most one partner, and only `JOINED_COLUMNS` may have
    /// the name of a column that a condition names.
    const JOIN: &'static str = "";

    /// Returns the names of the columns without `revision`.
    fn columns() -> Vec<&'static str>;
    /// Reads a row.
    ///
    /// # Errors
    /// A value that this program cannot have written.
    fn read(cells: &mut Cells<'_>) -> Result<Self, BoxError>;
    /// Reads the columns of the other table into a row.
    ///
    /// # Errors
    /// A value that this program cannot have written.
    fn read_joined(&mut self, _: &mut Cells<'_>) -> Result<(), BoxError> {
        Ok(())
    }
    /// Returns the values in the order of the columns.
    fn values(&self) -> Vec<Value<'_>>;
    /// Returns the number of writes of the row that this value was read from; 0 for a new one.
    fn revision(&self) -> i64;
}

impl<'a> Read<'a> {
    pub(super) fn new(db: &'a mut dyn Db) -> Self {
        Self { db, failure: None, has_written: false }
    }

    pub(super) fn into_failure(self) -> Option<DbError> {
        self.failure
    }

    /// Returns all rows of a query, each as `read` reads it. `name` names a row in errors.
    ///
    /// # Errors
    /// If the statement fails, or `read` fails for a row.
    pub fn rows<T>(
        &mut self,
        name: &'static str,
        sql: &str,
        args: &[Value<'_>],
        mut read: impl FnMut(&mut Cells<'_>) -> Result<T, BoxError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut found = Vec::new();
        let mut bad = None;
        let ran = self.db.query(sql, args, &mut |cells| match read(cells) {
            Ok(row) => {
                found.push(row);
                ControlFlow::Continue(())
            }
            Err(source) => {
                bad = Some(StoreError::Unreadable { what: name, id: cells.name_of_row(), source });
                ControlFlow::Break(())
            }
        });
        self.note(ran, "read")?;
        bad.map_or(Ok(found), Err)
    }

    /// Returns the first row of a query, if it has one.
    ///
    /// # Errors
    /// The errors of [`Read::rows`].
    pub fn row<T>(
        &mut self,
        name: &'static str,
        sql: &str,
        args: &[Value<'_>],
        read: impl FnMut(&mut Cells<'_>) -> Result<T, BoxError>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.rows(name, sql, args, read)?.into_iter().next())
    }

    /// Returns the entities that `rest` selects: `WHERE … ORDER BY …`.
    ///
    /// # Errors
    /// The errors of [`Read::rows`].
    pub fn list<E: Entity>(
        &mut self,
        rest: &str,
        args: &[Value<'_>],
    ) -> Result<Vec<E>, StoreError> {
        self.rows(E::NAME, &select::<E>(rest), args, read::<E>)
    }

    /// Returns the first entity that `rest` selects.
    ///
    /// # Errors
    /// The errors of [`Read::rows`].
    pub fn find<E: Entity>(
        &mut self,
        rest: &str,
        args: &[Value<'_>],
    ) -> Result<Option<E>, StoreError> {
        self.row(E::NAME, &select::<E>(rest), args, read::<E>)
    }

    /// Returns the number in the first cell of the only row of a query.
    ///
    /// # Errors
    /// The errors of [`Read::rows`].
    pub fn number(&mut self, sql: &str, args: &[Value<'_>]) -> Result<i64, StoreError> {
        Ok(self.row("number", sql, args, cell)?.unwrap_or(0))
    }

    /// Returns whether a query has a row.
    ///
    /// # Errors
    /// A failed statement.
    pub fn exists(&mut self, sql: &str, args: &[Value<'_>]) -> Result<bool, StoreError> {
        Ok(self.row("row", sql, args, |_| Ok(()))?.is_some())
    }

    fn note<T>(&mut self, ran: Result<T, DbError>, action: &'static str) -> Result<T, StoreError> {
        ran.map_err(|error| {
            let source = error.to_string().into();
            self.failure.get_or_insert(error);
            StoreError::Unavailable { action, source }
        })
    }
}

/// Returns the statement that reads rows. The table of a join may have columns with the same names.
fn select<E: Entity>(rest: &str) -> String {
    let table = E::TABLE;
    let columns: Vec<String> = E::columns().iter().map(|name| format!("{table}.{name}")).collect();
    format!(
        "SELECT {}, {table}.revision{} FROM {table} {}{rest}",
        columns.join(", "),
        E::JOINED_COLUMNS,
        E::JOIN
    )
}

fn read<E: Entity>(cells: &mut Cells<'_>) -> Result<E, BoxError> {
    let mut entity = E::read(cells)?;
    entity.read_joined(cells)?;
    Ok(entity)
}

impl<'a, C> Write<'a, C> {
    pub(super) fn new(db: &'a mut dyn Db, context: C) -> Self {
        Self { read: Read::new(db), effects: Vec::new(), context }
    }

    pub(super) fn into_parts(self) -> (bool, Vec<Effect>, Option<DbError>) {
        (self.read.has_written, self.effects, self.read.failure)
    }

    /// Runs a statement that changes rows, and returns how many it changed.
    ///
    /// # Errors
    /// A failed statement. The transaction is then rolled back, even if the closure returns `Ok`.
    pub fn execute(&mut self, sql: &str, args: &[Value<'_>]) -> Result<u64, StoreError> {
        self.read.has_written = true;
        let ran = self.read.db.execute(sql, args);
        self.read.note(ran, "write to")
    }

    /// Writes an entity: a new row if its revision is 0, otherwise the row that still has this
    /// revision.
    ///
    /// Returns whether there was such a place. Nothing is written otherwise.
    ///
    /// # Errors
    /// The errors of [`Write::execute`].
    pub fn put<E: Entity>(&mut self, entity: &E) -> Result<bool, StoreError> {
        match entity.revision() {
            0 => {
                let mut args = entity.values();
                args.push(1_i64.into());
                Ok(self.execute(&insert::<E>(), &args)? == 1)
            }
            revision => {
                let mut args = entity.values();
                args.push(revision.into());
                Ok(self.execute(&update::<E>(), &args)? == 1)
            }
        }
    }

    /// Sends `text`, which has no line end, to the other programs that use the database, with the
    /// commit.
    pub fn announce(&mut self, text: &str) {
        self.read.db.announce(text);
    }

    /// Runs `effect` after the commit and before the answer, also if no caller waits any more. It
    /// must not block.
    pub fn after_commit(&mut self, effect: impl FnOnce() + Send + 'static) {
        self.effects.push(Box::new(effect));
    }
}

/// Returns the statement that inserts a row. Its parameters are the columns and the revision.
fn insert<E: Entity>() -> String {
    let columns = E::columns();
    let values: Vec<String> = (1..=columns.len() + 1).map(|n| format!("?{n}")).collect();
    format!(
        "INSERT INTO {} ({}, revision) VALUES ({}) ON CONFLICT ({}) DO NOTHING",
        E::TABLE,
        columns.join(", "),
        values.join(", "),
        columns[..E::N_KEY].join(", ")
    )
}

/// Returns the statement that updates a row. Its first parameters are the columns, and the last one
/// is the revision.
fn update<E: Entity>() -> String {
    let columns = E::columns();
    let pairs: Vec<String> =
        columns.iter().zip(1..).map(|(name, n)| format!("{name} = ?{n}")).collect();
    format!(
        "UPDATE {} SET {}, revision = revision + 1 WHERE {} AND revision = ?{}",
        E::TABLE,
        pairs[E::N_KEY..].join(", "),
        pairs[..E::N_KEY].join(" AND "),
        columns.len() + 1
    )
}

impl<'a, C> Deref for Write<'a, C> {
    type Target = Read<'a>;

    fn deref(&self) -> &Read<'a> {
        &self.read
    }
}

impl<C> DerefMut for Write<'_, C> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.read
    }
}
