//! Declares the columns of a type once, in the order of the statements:
//!
//! ```text
//! entity! {
//!     Execution in "executions" called "execution" {
//!         id;                              // the column `id`
//!         task = "task_id";                // a column with another name than the field
//!         key: InstanceKey;                // the columns of a record
//!         branches as json;                // `json::read` and `json::value` convert the cell
//!         summary, audited long;           // `audit::long` shows it in the audit log
//!     }
//!     also audited |execution| {           // values that are not those of one column
//!         "purpose" = plain(execution.key.purpose);
//!     }
//!     with usage of "executions.launch_id" in usage; // a field that `launch_spend` fills
//! }
//! ```
//!
//! `entity!` makes the [`Entity`](crate::Entity) of a table. The column `revision` comes
//! after the others and is not listed. The first column is the key of the table, unless `key of 3
//! columns` after the name says otherwise.
//!
//! `record!` takes the same list for a type that is a part of an entity. A type whose columns are
//! not those of its fields implements [`Record`] itself.

use crate::{BoxError, Cells, Value};

/// A type with a value in each of several columns.
pub(super) trait Record: Sized {
    /// Returns the names of the columns.
    fn columns() -> Vec<&'static str>;

    /// Reads the columns in their order.
    ///
    /// # Errors
    /// A value that this program cannot have written.
    fn read(cells: &mut Cells<'_>) -> Result<Self, BoxError>;

    /// Returns the values in the order of the columns.
    fn values(&self) -> Vec<Value<'_>>;
}

/// Returns the statement that inserts a row with these columns, unless there is one with its id.
pub(super) fn insert_into(table: &str, columns: &[&str]) -> String {
    let values: Vec<String> = (1..=columns.len()).map(|n| format!("?{n}")).collect();
    format!(
        "INSERT INTO {table} ({}) VALUES ({}) ON CONFLICT (id) DO NOTHING",
        columns.join(", "),
        values.join(", ")
    )
}

macro_rules! record {
    (
        $Record:ident {
            $($field:ident $(: $Part:ty)? $(= $column:literal)? $(as $form:ident)?;)+
        }
    ) => {
        impl $crate::rows::record::Record for $Record {
            $crate::rows::record::methods! {
                [] $($field $(: $Part)? $(= $column)? $(as $form)?;)+
            }
        }
    };
}

macro_rules! entity {
    (
        $Entity:ident in $table:literal called $name:literal
        $(, key of $n_key:literal columns)? $(, audited as $audited:literal)? {
            $(
                $field:ident $(: $Part:ty)? $(= $column:literal)? $(as $form:ident)?
                $(, audited $how:ident)?;
            )+
        }
        $(also audited |$it:ident| { $($shown:literal = $value:expr;)+ })?
        $(with usage of $launch:literal in $($place:ident).+;)?
    ) => {
        impl $crate::Entity for $Entity {
            const NAME: &'static str = $name;
            const TABLE: &'static str = $table;
            $(const N_KEY: usize = $n_key;)?
            $(
                const JOINED_COLUMNS: &'static str = $crate::rows::launch_spend::USAGE_AFTER_OTHERS;
                const JOIN: &'static str = $crate::rows::launch_spend::newest_of!($launch);

                fn read_joined(
                    &mut self,
                    cells: &mut $crate::Cells<'_>,
                ) -> Result<(), $crate::BoxError> {
                    self.$($place).+ = $crate::rows::launch_spend::read_usage(cells)?;
                    Ok(())
                }
            )?

            $crate::rows::record::methods! {
                [revision] $($field $(: $Part)? $(= $column)? $(as $form)?;)+
            }

            fn revision(&self) -> i64 {
                self.revision
            }
        }

        impl $crate::rows::audit::Audited for $Entity {
            $(const CALLED: &'static str = $audited;)?

            fn shown(&self) -> $crate::rows::audit::Fields {
                $(let $it = self;)?
                $crate::rows::audit::fields(
                    [$($crate::rows::record::field!(
                        @shown &self.$field, $field $(= $column)? $(, $how)?
                    )),+],
                    [$($(($shown, $value)),+)?],
                )
            }
        }
    };
}

/// Expands to the methods that `record!` and `entity!` have in common. The field in brackets is
/// read last and is neither named nor written with the others.
macro_rules! methods {
    (
        [$($revision:ident)?]
        $($field:ident $(: $Part:ty)? $(= $column:literal)? $(as $form:ident)?;)+
    ) => {
        fn columns() -> Vec<&'static str> {
            let mut names = Vec::new();
            $($crate::rows::record::field!(@names names, $field $(: $Part)? $(= $column)?);)+
            names
        }

        fn read(cells: &mut $crate::Cells<'_>) -> Result<Self, $crate::BoxError> {
            Ok(Self {
                $($field: $crate::rows::record::field!(@read cells, $(: $Part)? $(as $form)?),)+
                $($revision: cells.get()?,)?
            })
        }

        fn values(&self) -> Vec<$crate::Value<'_>> {
            let mut values = Vec::new();
            $($crate::rows::record::field!(
                @values values, &self.$field, $(: $Part)? $(as $form)?
            );)+
            values
        }
    };
}

/// Expands the parts of one field for `record!` and `entity!`.
macro_rules! field {
    (@names $names:ident, $field:ident) => {
        $names.extend([stringify!($field)])
    };
    (@names $names:ident, $field:ident = $column:literal) => {
        $names.extend([$column])
    };
    (@names $names:ident, $field:ident : $Part:ty) => {
        $names.extend(<$Part as $crate::rows::record::Record>::columns())
    };

    (@read $cells:ident,) => {
        $cells.get()?
    };
    (@read $cells:ident, : $Part:ty) => {
        <$Part as $crate::rows::record::Record>::read($cells)?
    };
    (@read $cells:ident, as $form:ident) => {
        $form::read($cells)?
    };

    (@values $values:ident, $value:expr,) => {
        $values.extend([<_ as Into<$crate::Value<'_>>>::into($value)])
    };
    (@values $values:ident, $value:expr, : $Part:ty) => {
        $values.extend(<$Part as $crate::rows::record::Record>::values($value))
    };
    (@values $values:ident, $value:expr, as $form:ident) => {
        $values.extend([$form::value($value)])
    };

    (@shown $value:expr, $field:ident $(= $column:literal)?) => {
        None
    };
    (@shown $value:expr, $field:ident, $how:ident) => {
        Some((stringify!($field), $crate::rows::audit::$how($value)))
    };
    (@shown $value:expr, $field:ident = $column:literal, $how:ident) => {
        Some(($column, $crate::rows::audit::$how($value)))
    };
}

pub(super) use {entity, field, methods, record};
