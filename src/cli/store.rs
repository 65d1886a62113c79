//! `store copy` copies the state of a server from one database into another. It needs no daemon and
//! reads no configuration.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde::Serialize;

use super::error::CliError;
use super::output::{self, Form};
use crate::app::{self, CopiedTable, Progress};
use ::config::{self, Environment, StoreUrl, StoreUrlError};
use postgres_url::UrlError;
use runtime::clock;
use runtime::telemetry::ErrorChain;

/// The time between two changes of the line on a terminal.
const INTERVAL: Duration = Duration::from_millis(100);
/// Erases the line of a terminal and goes to its beginning.
const EMPTY_LINE: &str = "\r\x1b[K";

/// The commands about the database.
#[derive(Debug, Subcommand)]
pub(super) enum StoreCommand {
    /// Copy all state into an empty database: from SQLite to PostgreSQL, back, or to another file
    ///
    /// Stop the daemon first, and set `store.url` to the new database afterwards. The source is only
    /// read. The target gets all rows or none, and each table is read back and compared before the
    /// commit. The file of an SQLite target is created; a PostgreSQL database must exist. The URLs
    /// have the form of `store.url`: sqlite:state.db, postgres://user@host/database.
    Copy(CopyArguments),
}

#[derive(Debug, Args)]
pub(super) struct CopyArguments {
    /// The database to read; a relative path starts at the working directory
    #[arg(long, value_name = "URL")]
    from: String,
    /// The database to fill, which must be empty
    #[arg(long, value_name = "URL")]
    to: String,
    /// A file with the password of the user in the first URL
    #[arg(long, value_name = "FILE")]
    from_password_file: Option<PathBuf>,
    /// A file with the password of the user in the second URL
    #[arg(long, value_name = "FILE")]
    to_password_file: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
}

#[derive(Serialize)]
struct Answer {
    from: String,
    to: String,
    tables: Vec<Table>,
}

#[derive(Serialize)]
struct Table {
    table: String,
    rows: u64,
    checksum: String,
}

impl StoreCommand {
    pub(super) fn run(self, environment: &Environment) -> Result<(), CliError> {
        let Self::Copy(copy) = self;
        copy.run(environment)
    }
}

impl CopyArguments {
    fn run(self, environment: &Environment) -> Result<(), CliError> {
        let from = parse("from", &self.from, self.from_password_file, environment)?;
        let to = parse("to", &self.to, self.to_password_file, environment)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut shown = ProgressLine::new(io::stderr().is_terminal());
        let copied =
            runtime.block_on(app::copy_store(&from, &to, move |progress| shown.show(progress)));
        match copied {
            Ok(tables) => print(&from.url, &to.url, tables, self.form),
            Err(error) => Err(CliError::Failed(ErrorChain(error.as_ref()).to_string())),
        }
    }
}

/// Reads the URL after `--<name>`.
fn parse(
    name: &str,
    url: &str,
    password_file: Option<PathBuf>,
    environment: &Environment,
) -> Result<config::Store, CliError> {
    let folder = environment.working_directory();
    let password_file = password_file.map(|path| folder.join(path));
    match (StoreUrl::parse(url, folder, environment), password_file) {
        (Ok(StoreUrl::Sqlite(_)), Some(_)) => Err(CliError::Usage(format!(
            "--{name}-password-file: an SQLite file has no password; leave this option out"
        ))),
        (Ok(url), password_file) => Ok(config::Store { url, password: None, password_file }),
        // The text repeats nothing of the URL.
        (Err(StoreUrlError::Postgres(UrlError::HasPassword)), _) => Err(CliError::Usage(format!(
            "--{name}: the URL has a password, which other users see in the list of processes: \
             write it into a file and name that with `--{name}-password-file`"
        ))),
        (Err(error), _) => Err(CliError::Usage(format!("--{name}: {error}"))),
    }
}

fn print(
    from: &StoreUrl,
    to: &StoreUrl,
    copied: Vec<CopiedTable>,
    form: Form,
) -> Result<(), CliError> {
    if form.json {
        let tables = copied.into_iter().map(|CopiedTable { name, n_rows, checksum }| Table {
            table: name,
            rows: n_rows,
            checksum,
        });
        let from = from.to_string();
        let to = to.to_string();
        return output::print_json(&Answer { from, to, tables: tables.collect() });
    }
    let mut table = output::table(&["TABLE", "ROWS", "CHECKSUM"]);
    for copied in copied {
        table.add_row([copied.name, copied.n_rows.to_string(), copied.checksum]);
    }
    output::print_table(&table, "there are no tables")
}

/// Shows the progress on standard error. A terminal has one line that changes. Otherwise each
/// table that was copied gets a line.
struct ProgressLine {
    is_terminal: bool,
    changed_at: Option<Instant>,
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.is_terminal {
            let _ = write!(io::stderr(), "{EMPTY_LINE}");
        }
    }
}

impl ProgressLine {
    const fn new(is_terminal: bool) -> Self {
        Self { is_terminal, changed_at: None }
    }

    fn show(&mut self, progress: Progress<'_>) {
        let Progress { table, n_rows, is_done } = progress;
        let is_recent = self.changed_at.is_some_and(|at| at.elapsed() < INTERVAL);
        // Standard error may be closed.
        let _ = match (self.is_terminal, is_done) {
            (true, false) if is_recent => return,
            (true, false) => {
                self.changed_at = Some(clock::unpaused());
                write!(io::stderr(), "{EMPTY_LINE}{table}: {n_rows} rows")
            }
            (true, true) | (false, false) => return,
            (false, true) => {
                let rows = if n_rows == 1 { "row" } else { "rows" };
                writeln!(io::stderr(), "{table}: {n_rows} {rows} copied and compared")
            }
        };
    }
}
