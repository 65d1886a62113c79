//! The interface of a database engine: statements with parameters, and rows whose cells are read in
//! order.
//!
//! Nothing here knows which engine answers. The SQL that the entities write is the part that SQLite
//! and PostgreSQL have in common.

use std::borrow::Cow;
use std::error::Error;
use std::ops::ControlFlow;

use serde::de::value::{BorrowedStrDeserializer, Error as WordError};
use serde::{Deserialize, Serialize};

use domain::Timestamp;

/// Any error of a driver, or of the text in a cell.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A parameter of a statement. `?1` in the SQL is the first one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value<'a> {
    Null,
    Int(i64),
    /// For a BOOLEAN column, which an engine may keep as a number.
    Bool(bool),
    Text(Cow<'a, str>),
}

/// The value of a row in one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell<'a> {
    Null,
    Int(i64),
    Text(&'a str),
}

/// The reason why a statement failed.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// The statement or its parameters are wrong, for example because a constraint refuses them.
    /// Other statements work.
    #[error("{0}")]
    Statement(#[source] BoxError),
    /// The database failed: disk full, damaged, locked or gone. Changes without a commit are lost.
    #[error("{0}")]
    Database(#[source] BoxError),
    /// The connection to the database ended, or the database cannot be reached. A new connection
    /// may work.
    #[error("{0}")]
    Lost(#[source] BoxError),
}

/// Runs statements on one connection of an engine.
pub trait Db: Send {
    /// Runs a statement that returns no rows, and returns how many rows it changed.
    fn execute(&mut self, sql: &str, args: &[Value<'_>]) -> Result<u64, DbError>;

    /// Runs a query and calls `each` with its rows until that breaks.
    fn query(
        &mut self,
        sql: &str,
        args: &[Value<'_>],
        each: &mut dyn FnMut(&mut Cells<'_>) -> ControlFlow<()>,
    ) -> Result<(), DbError>;

    /// Sends `text` to the other programs that use the database, with the commit. An engine whose
    /// database has only one program does nothing.
    fn announce(&mut self, _text: &str) {}
}

/// The cells of one row of an engine.
pub trait Columns {
    fn cell(&self, column: usize) -> Result<Cell<'_>, BoxError>;
    /// Returns the name of a column, or `None` after the last one.
    fn name(&self, column: usize) -> Option<&str>;
}

/// Reads the cells of a row one after the other.
pub struct Cells<'r> {
    row: &'r dyn Columns,
    next: usize,
}

/// Reads the only cell of a row.
///
/// # Errors
/// The errors of [`Cells::get`].
pub fn cell<T: for<'r> FromCell<'r>>(cells: &mut Cells<'_>) -> Result<T, BoxError> {
    cells.get()
}

/// A type that one cell can hold.
pub trait FromCell<'r>: Sized {
    /// Reads the value from a cell.
    ///
    /// # Errors
    /// A cell with another type, or a number out of range.
    fn from_cell(cell: Cell<'r>) -> Result<Self, BoxError>;
}

impl<'r> Cells<'r> {
    pub fn new(row: &'r dyn Columns) -> Self {
        Self { row, next: 0 }
    }

    fn cell(&mut self) -> Result<Cell<'r>, BoxError> {
        let cell = self.row.cell(self.next)?;
        self.next += 1;
        Ok(cell)
    }

    /// Reads the next cell.
    ///
    /// # Errors
    /// A cell without this type, or no next cell.
    pub fn get<T: FromCell<'r>>(&mut self) -> Result<T, BoxError> {
        let column = self.next;
        self.cell().and_then(T::from_cell).map_err(|error| self.in_column(column, &error))
    }

    /// Reads JSON.
    pub fn json<T: Deserialize<'r>>(&mut self) -> Result<T, BoxError> {
        Ok(serde_json::from_str(self.get()?)?)
    }

    /// Returns the values of the columns that name a row, for an error about it.
    pub fn name_of_row(&self) -> String {
        let mut names = Vec::new();
        for column in 0.. {
            let Some(name) = self.row.name(column) else { break };
            if !NAMING.contains(&name) {
                continue;
            }
            let text = match self.row.cell(column) {
                Ok(Cell::Text(text)) => text.to_owned(),
                Ok(Cell::Int(number)) => number.to_string(),
                Ok(Cell::Null) | Err(_) => continue,
            };
            if name == "id" {
                return text;
            }
            names.push(text);
        }
        names.join("/")
    }

    fn in_column(&self, column: usize, error: &BoxError) -> BoxError {
        let name = self.row.name(column).unwrap_or("(none)");
        format!("column `{name}`: {error}").into()
    }
}

/// The columns that name a row. An `id` names it alone.
const NAMING: [&str; 8] =
    ["id", "seq", "agent_id", "project_id", "purpose", "ai_type", "launch_id", "day"];

/// Reads the word of an enum, as serde knows it.
///
/// # Errors
/// A text that is not one of its words.
pub fn word<'r, T: Deserialize<'r>>(text: &'r str) -> Result<T, BoxError> {
    Ok(T::deserialize(BorrowedStrDeserializer::<WordError>::new(text))?)
}

fn unexpected<T>(expected: &str, found: Cell<'_>) -> Result<T, BoxError> {
    let found = match found {
        Cell::Null => "NULL",
        Cell::Int(_) => "a number",
        Cell::Text(_) => "a text",
    };
    Err(format!("expected {expected}, found {found}").into())
}

impl<'r> FromCell<'r> for &'r str {
    fn from_cell(cell: Cell<'r>) -> Result<Self, BoxError> {
        if let Cell::Text(text) = cell { Ok(text) } else { unexpected("a text", cell) }
    }
}

impl FromCell<'_> for String {
    fn from_cell(cell: Cell<'_>) -> Result<Self, BoxError> {
        if let Cell::Text(text) = cell { Ok(text.to_owned()) } else { unexpected("a text", cell) }
    }
}

impl FromCell<'_> for i64 {
    fn from_cell(cell: Cell<'_>) -> Result<Self, BoxError> {
        if let Cell::Int(number) = cell { Ok(number) } else { unexpected("a number", cell) }
    }
}

impl FromCell<'_> for bool {
    fn from_cell(cell: Cell<'_>) -> Result<Self, BoxError> {
        i64::from_cell(cell).map(|number| number != 0)
    }
}

impl FromCell<'_> for Timestamp {
    fn from_cell(cell: Cell<'_>) -> Result<Self, BoxError> {
        i64::from_cell(cell).map(Self::from_millis)
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl FromCell<'_> for $number {
            fn from_cell(cell: Cell<'_>) -> Result<Self, BoxError> {
                Ok(i64::from_cell(cell)?.try_into()?)
            }
        }
    )*};
}

numbers!(i32, u32, u64, usize);

impl<'r, T: FromCell<'r>> FromCell<'r> for Option<T> {
    fn from_cell(cell: Cell<'r>) -> Result<Self, BoxError> {
        if cell == Cell::Null { Ok(None) } else { T::from_cell(cell).map(Some) }
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<i32> for Value<'_> {
    fn from(number: i32) -> Self {
        Self::Int(number.into())
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Int(number.into())
    }
}

/// Converts a number. One beyond the range of a column becomes the greatest number that the column
/// can hold.
impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Int(number.try_into().unwrap_or(i64::MAX))
    }
}

/// Converts a number like [`u64`].
impl From<usize> for Value<'_> {
    fn from(number: usize) -> Self {
        Self::Int(number.try_into().unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value<'_> {
    fn from(is_true: bool) -> Self {
        Self::Bool(is_true)
    }
}

impl From<Timestamp> for Value<'_> {
    fn from(at: Timestamp) -> Self {
        Self::Int(at.as_millis())
    }
}

macro_rules! copies {
    ($($copy:ty),*) => {$(
        impl From<&$copy> for Value<'_> {
            fn from(value: &$copy) -> Self {
                (*value).into()
            }
        }
    )*};
}

copies!(i64, i32, u32, u64, bool, Timestamp);

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<'a, T> From<&'a Option<T>> for Value<'a>
where
    &'a T: Into<Value<'a>>,
{
    fn from(value: &'a Option<T>) -> Self {
        value.as_ref().into()
    }
}

impl Value<'static> {
    /// Returns the JSON of a value, which [`Cells::json`] reads.
    pub fn json(value: &impl Serialize) -> Self {
        let text = serde_json::to_string(value);
        text.expect("lists, and enums with text keys, have a JSON form").into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Given(Vec<(&'static str, Cell<'static>)>);

    impl Columns for Given {
        fn cell(&self, column: usize) -> Result<Cell<'_>, BoxError> {
            self.0.get(column).map(|(_, cell)| *cell).ok_or_else(|| "no such column".into())
        }

        fn name(&self, column: usize) -> Option<&str> {
            self.0.get(column).map(|(name, _)| *name)
        }
    }

    #[test]
    fn cells_are_read_in_order_and_by_type() {
        let row = Given(vec![
            ("id", Cell::Text("tsk_1")),
            ("n", Cell::Int(7)),
            ("note", Cell::Null),
            ("is_open", Cell::Int(1)),
        ]);
        let mut cells = Cells::new(&row);
        assert_eq!(cells.get::<String>().unwrap(), "tsk_1");
        assert_eq!(cells.get::<u32>().unwrap(), 7);
        assert_eq!(cells.get::<Option<&str>>().unwrap(), None);
        assert!(cells.get::<bool>().unwrap());
        assert!(cells.get::<bool>().is_err());
    }

    #[test]
    fn an_error_names_the_column() {
        let row = Given(vec![("n", Cell::Text("many")), ("m", Cell::Int(-1))]);
        let mut cells = Cells::new(&row);
        let error = cells.get::<i64>().unwrap_err().to_string();
        assert_eq!(error, "column `n`: expected a number, found a text");
        assert!(cells.get::<u64>().unwrap_err().to_string().starts_with("column `m`: "));
    }

    #[test]
    fn the_key_names_a_row_without_an_id() {
        let key = [("project_id", Cell::Text("p")), ("agent_id", Cell::Text("a"))];
        let with_id = Given([&key[..], &[("id", Cell::Text("l"))]].concat());
        let of_launch = Given(vec![("launch_id", Cell::Text("l")), ("day", Cell::Int(7))]);
        assert_eq!(Cells::new(&Given(key.to_vec())).name_of_row(), "p/a");
        assert_eq!(Cells::new(&with_id).name_of_row(), "l");
        assert_eq!(Cells::new(&of_launch).name_of_row(), "l/7");
    }
}
