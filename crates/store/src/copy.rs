//! Copies a database into an empty one, of the same engine or of the other.
//!
//! ```text
//!  source: one snapshot ──► rows ──► target: one transaction ──► rows, read back ──► COMMIT
//!                            └──────── rows and checksum ─────────┘
//! ```
//!
//! The source is only read. The target is written in one transaction, so a copy that fails or is
//! interrupted leaves no rows in it. The tables and their columns come from the schema, so a new
//! table is copied without a change here.

use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;

use sha2::{Digest as _, Sha256};

use postgres_url::PostgresUrl;

use super::db::{BoxError, Cells, DbError, Value};
use super::engine::Connection;
use super::transaction::Read;
use super::{StoreError, backup, open, postgres};

/// The tables that describe a database and the servers that use it. They are not copied.
const OF_ONE_DATABASE: [&str; 4] = ["_sqlx_migrations", "servers", "writer", backup::ORIGIN];
/// The number of rows that one statement inserts.
const N_ROWS: usize = 64;

/// A database at one end of a copy.
#[derive(Debug, Clone)]
pub enum Database {
    /// The path of an SQLite file.
    Sqlite(PathBuf),
    Postgres(Box<PostgresUrl>),
}

/// Shows the URL, which has no password.
impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => url.fmt(f),
        }
    }
}

/// The state of a copy, which is reported after each batch of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    pub table: &'a str,
    /// The rows of this table that were copied.
    pub n_rows: u64,
    /// The whole table was copied and compared.
    pub is_done: bool,
}

/// A table that was copied and compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedTable {
    pub name: String,
    pub n_rows: u64,
    /// The sum of the hashes of all rows in hexadecimal digits. The engine and the order of the
    /// rows do not change it.
    pub checksum: String,
}

/// The reason why a database was not copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error(transparent)]
    Sqlite(#[from] open::OpenError),
    #[error(transparent)]
    Postgres(#[from] postgres::open::OpenError),
    #[error(
        "the target `{target}` is not empty ({found}), and was left as it is: name an empty \
         database"
    )]
    NotEmpty {
        target: String,
        /// The tables with their numbers of rows.
        found: String,
    },
    #[error(
        "the source and the target have different columns in the table `{table}`, and nothing was \
         copied: correct the schema of the source"
    )]
    Schemas { table: String },
    #[error("could not {action}, and nothing was copied")]
    Failed {
        action: String,
        #[source]
        source: BoxError,
    },
    #[error(
        "the target has other rows than the source in the table `{table}` ({found}), and nothing \
         was copied: check the disks and the memory of both machines, then try again"
    )]
    Differs { table: String, found: String },
    #[error(
        "the connection to the target ended during the commit: copy again; if the target is then \
         refused as not empty, this copy is complete"
    )]
    Uncertain {
        #[source]
        source: BoxError,
    },
}

impl CopyError {
    fn failed(action: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self::Failed { action: action.into(), source: source.into() }
    }
}

/// The calls of a connection that a copy needs in addition.
pub(super) trait End: Connection {
    /// Returns a query for the columns of all tables: the table, the column, its type, and whether
    /// the database numbers its rows. The rows are in the order of tables and columns.
    fn columns(&self) -> &'static str;

    /// Runs a query and calls `each` with its rows until that breaks. Only a few rows are in memory
    /// at once.
    fn scan(
        &mut self,
        sql: &str,
        each: &mut dyn FnMut(&mut Cells<'_>) -> ControlFlow<()>,
    ) -> Result<(), DbError>;

    /// Returns the number that the database would give the next row in this column.
    fn next_number(&mut self, table: &str, column: &str) -> Result<i64, StoreError>;

    fn set_next_number(&mut self, table: &str, column: &str, next: i64) -> Result<(), DbError>;

    /// Lets servers use the database, before the connection ends.
    fn leave(&mut self);
}

/// A table as its schema describes it.
#[derive(Debug, PartialEq, Eq)]
struct Table {
    name: String,
    columns: Vec<Column>,
    /// The column that the database numbers.
    numbered: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
struct Column {
    name: String,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Int,
    Bool,
    Text,
}

/// The number of rows and their hashes. It is the same for the same rows in another order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    n_rows: u64,
    hashes: u128,
}

/// Copies all rows of the state from one database into an empty one. It brings the schema of the
/// target up to date first.
///
/// PostgreSQL's lock of servers is taken at both ends. The caller holds the lock of an SQLite file.
/// Blocks, so it is not called on a thread that drives asynchronous tasks.
///
/// # Errors
/// [`CopyError`] names the database, the problem and the remedy.
pub fn copy(
    from: &Database,
    to: &Database,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<CopiedTable>, CopyError> {
    let mut source: Box<dyn End> = match from {
        Database::Sqlite(path) => Box::new(open::to_read(path)?),
        Database::Postgres(url) => Box::new(postgres::open::to_read(url)?),
    };
    let mut target: Box<dyn End> = match to {
        Database::Sqlite(path) => Box::new(open::to_fill(path, |target| refuse_rows(target, to))?),
        Database::Postgres(url) => {
            Box::new(postgres::open::to_fill(url, |target| refuse_rows(target, to))?)
        }
    };
    let copied = copy_all(&mut *source, &mut *target, progress);
    for end in [&mut source, &mut target] {
        end.rollback();
        end.leave();
    }
    copied
}

/// Returns an error if a table of the target has rows.
fn refuse_rows(target: &mut dyn End, name: &Database) -> Result<(), CopyError> {
    let failed = |error| CopyError::failed(format!("read the target `{name}`"), error);
    let mut found = Vec::new();
    for table in tables(target).map_err(failed)? {
        let sql = format!("SELECT COUNT(*) FROM {}", table.name);
        match Read::new(target).number(&sql, &[]).map_err(failed)? {
            0 => {}
            1 => found.push(format!("`{}` has 1 row", table.name)),
            n_rows => found.push(format!("`{}` has {n_rows} rows", table.name)),
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    Err(CopyError::NotEmpty { target: name.to_string(), found: found.join(", ") })
}

fn copy_all(
    source: &mut dyn End,
    target: &mut dyn End,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<CopiedTable>, CopyError> {
    source.begin_read().map_err(|error| CopyError::failed("read the source", error.to_string()))?;
    target
        .begin(Box::new(|| ()))
        .map_err(|error| CopyError::failed("write the target", error.to_string()))?;
    let all = tables(source).map_err(|error| CopyError::failed("read the source", error))?;
    let known = tables(target).map_err(|error| CopyError::failed("read the target", error))?;
    let differs = |table: &&Table| !known.contains(table);
    let is_new = |table: &&Table| all.iter().all(|of_source| of_source.name != table.name);
    if let Some(table) = all.iter().find(differs).or_else(|| known.iter().find(is_new)) {
        return Err(CopyError::Schemas { table: table.name.clone() });
    }
    let mut copied = Vec::with_capacity(all.len());
    for table in &all {
        copied.push(copy_table(table, source, target, progress)?);
    }
    match target.commit() {
        Ok(()) => Ok(copied),
        Err(DbError::Lost(source)) => Err(CopyError::Uncertain { source }),
        Err(error) => Err(CopyError::failed("commit the copy", error.to_string())),
    }
}

fn copy_table(
    table: &Table,
    source: &mut dyn End,
    target: &mut dyn End,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<CopiedTable, CopyError> {
    let name = table.name.as_str();
    let mut sum = Sum::default();
    let mut waiting = Vec::new();
    let mut insert = |rows: &mut Vec<Value<'static>>| {
        let inserted = target.execute(&table.insert(rows.len() / table.columns.len()), rows);
        rows.clear();
        inserted.map_err(|error| {
            CopyError::failed(format!("write the table `{name}`"), error.to_string())
        })
    };
    read_all(source, table, "source", |row| {
        sum.add(&row);
        waiting.extend(row);
        if waiting.len() == N_ROWS * table.columns.len() {
            insert(&mut waiting)?;
            progress(Progress { table: name, n_rows: sum.n_rows, is_done: false });
        }
        Ok(())
    })?;
    if !waiting.is_empty() {
        insert(&mut waiting)?;
    }
    let mut read_back = Sum::default();
    read_all(target, table, "target", |row| {
        read_back.add(&row);
        Ok(())
    })?;
    if read_back != sum {
        let found = format!(
            "{} rows with the checksum {}, {} rows with the checksum {} in the source",
            read_back.n_rows,
            read_back.checksum(),
            sum.n_rows,
            sum.checksum()
        );
        return Err(CopyError::Differs { table: name.to_owned(), found });
    }
    if let Some(column) = &table.numbered {
        copy_number(name, column, source, target)?;
    }
    progress(Progress { table: name, n_rows: sum.n_rows, is_done: true });
    Ok(CopiedTable { name: name.to_owned(), n_rows: sum.n_rows, checksum: sum.checksum() })
}

/// Lets the target continue to number rows where the source would. Numbers of rows that were
/// deleted are not used again, because readers have seen them.
fn copy_number(
    table: &str,
    column: &str,
    source: &mut dyn End,
    target: &mut dyn End,
) -> Result<(), CopyError> {
    let failed = |end: &'static str| {
        move |error: StoreError| {
            CopyError::failed(format!("read the next number of `{table}` in the {end}"), error)
        }
    };
    let next = source.next_number(table, column).map_err(failed("source"))?;
    let sql = format!("SELECT COALESCE(MAX({column}), 0) FROM {table}");
    let newest = Read::new(target).number(&sql, &[]).map_err(failed("target"))?;
    // The rows of a database that was restored by hand may have greater numbers.
    let next = next.max(newest + 1);
    target.set_next_number(table, column, next).map_err(|error| {
        CopyError::failed(format!("set the next number of `{table}`"), error.to_string())
    })?;
    let found = target.next_number(table, column).map_err(failed("target"))?;
    if found == next {
        return Ok(());
    }
    let found = format!("the next number is {found}, {next} in the source");
    Err(CopyError::Differs { table: table.to_owned(), found })
}

/// Calls `each` with all rows of a table until that fails.
fn read_all(
    end: &mut dyn End,
    table: &Table,
    name: &str,
    mut each: impl FnMut(Vec<Value<'static>>) -> Result<(), CopyError>,
) -> Result<(), CopyError> {
    let mut result = Ok(());
    let ran = end.scan(&table.select(), &mut |cells| {
        result = table
            .values(cells)
            .map_err(|error| {
                let row = cells.name_of_row();
                CopyError::failed(
                    format!("read the row `{row}` of `{}` in the {name}", table.name),
                    error,
                )
            })
            .and_then(&mut each);
        if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    result?;
    ran.map_err(|error| {
        CopyError::failed(
            format!("read the table `{}` of the {name}", table.name),
            error.to_string(),
        )
    })
}

/// Returns the tables that a copy takes, with their columns.
fn tables(end: &mut dyn End) -> Result<Vec<Table>, StoreError> {
    let sql = end.columns();
    let mut tables: Vec<Table> = Vec::new();
    Read::new(end).rows("column", sql, &[], |cells| {
        let table: &str = cells.get()?;
        let column: &str = cells.get()?;
        let kind: &str = cells.get()?;
        let is_numbered: bool = cells.get()?;
        if OF_ONE_DATABASE.contains(&table) {
            return Ok(());
        }
        if tables.last().is_none_or(|last| last.name != table) {
            tables.push(Table { name: table.to_owned(), columns: Vec::new(), numbered: None });
        }
        if let Some(last) = tables.last_mut() {
            let kind = Kind::of(kind).ok_or_else(|| {
                format!("the column `{column}` of `{table}` has the unexpected type `{kind}`")
            })?;
            last.columns.push(Column { name: column.to_owned(), kind });
            if is_numbered {
                last.numbered = Some(column.to_owned());
            }
        }
        Ok(())
    })?;
    Ok(tables)
}

impl Kind {
    /// Returns the kind of a column's type in either engine.
    fn of(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "integer" | "bigint" => Some(Self::Int),
            "boolean" => Some(Self::Bool),
            "text" => Some(Self::Text),
            _ => None,
        }
    }
}

impl Table {
    fn list_columns(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        names.join(", ")
    }

    /// Returns the query for all rows.
    fn select(&self) -> String {
        format!("SELECT {} FROM {}", self.list_columns(), self.name)
    }

    /// Returns the statement that inserts so many rows.
    fn insert(&self, n_rows: usize) -> String {
        let n_columns = self.columns.len();
        let rows: Vec<String> = (0..n_rows)
            .map(|row| {
                let values: Vec<String> =
                    (1..=n_columns).map(|n| format!("?{}", row * n_columns + n)).collect();
                format!("({})", values.join(", "))
            })
            .collect();
        format!("INSERT INTO {} ({}) VALUES {}", self.name, self.list_columns(), rows.join(", "))
    }

    /// Reads a row that [`Table::select`] has found. A value that does not fit the type of its
    /// column is an error, because only SQLite could keep it.
    fn values(&self, cells: &mut Cells<'_>) -> Result<Vec<Value<'static>>, BoxError> {
        let value = |column: &Column| -> Result<Value<'static>, BoxError> {
            Ok(match column.kind {
                Kind::Int => cells.get::<Option<i64>>()?.into(),
                Kind::Text => cells.get::<Option<String>>()?.into(),
                Kind::Bool => match cells.get::<Option<i64>>()? {
                    None => Value::Null,
                    Some(0) => Value::Bool(false),
                    Some(1) => Value::Bool(true),
                    Some(other) => {
                        let name = &column.name;
                        return Err(
                            format!("column `{name}`: expected 0 or 1, found {other}").into()
                        );
                    }
                },
            })
        };
        self.columns.iter().map(value).collect()
    }
}

impl Sum {
    fn add(&mut self, row: &[Value<'_>]) {
        let mut hash = Sha256::new();
        for value in row {
            match value {
                Value::Null => hash.update([0]),
                Value::Int(number) => {
                    hash.update([1]);
                    hash.update(number.to_le_bytes());
                }
                Value::Bool(is_true) => hash.update([2, (*is_true).into()]),
                Value::Text(text) => {
                    hash.update([3]);
                    hash.update((text.len() as u64).to_le_bytes());
                    hash.update(text.as_bytes());
                }
            }
        }
        let hash: [u8; 32] = hash.finalize().into();
        let (half, _) = hash.split_first_chunk().expect("it has 32 bytes");
        self.n_rows += 1;
        self.hashes = self.hashes.wrapping_add(u128::from_le_bytes(*half));
    }

    fn checksum(&self) -> String {
        format!("{:032x}", self.hashes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(rows: &[&[Value<'_>]]) -> Sum {
        let mut sum = Sum::default();
        for row in rows {
            sum.add(row);
        }
        sum
    }

    #[test]
    fn a_sum_depends_on_each_cell_and_not_on_the_order_of_the_rows() {
        let (one, two): ([Value<'_>; 2], [Value<'_>; 2]) =
            (["a".into(), Value::Int(1)], ["b".into(), Value::Null]);
        let both = sum(&[&one, &two]);
        assert_eq!(both, sum(&[&two, &one]));
        assert_eq!((both.n_rows, both.checksum().len()), (2, 32));
        let others: [&[&[Value<'_>]]; 7] = [
            &[],
            &[&one],
            &[&one, &one],
            &[&one, &two, &two],
            &[&["a".into(), Value::Null], &["b".into(), Value::Int(1)]],
            &[&["a".into(), "1".into()], &two],
            &[&["ab".into(), Value::Int(1)], &["".into(), Value::Null]],
        ];
        for other in others {
            assert_ne!(sum(other).hashes, both.hashes, "{other:?}");
        }
        let cells = |texts: [&'static str; 2]| sum(&[&texts.map(Into::into)]);
        assert_ne!(cells(["ab", "c"]), cells(["a", "bc"]));
    }

    #[test]
    fn rows_are_inserted_with_numbered_parameters() {
        let columns = ["id", "n"].map(|name| Column { name: name.to_owned(), kind: Kind::Int });
        let table = Table { name: "t".to_owned(), columns: columns.into(), numbered: None };
        assert_eq!(table.insert(2), "INSERT INTO t (id, n) VALUES (?1, ?2), (?3, ?4)");
    }
}
