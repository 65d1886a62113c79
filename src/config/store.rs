//! `store`: the database with the state of the server.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::domain::Secret;
use crate::postgres_url::PostgresUrl;

use super::declaration::{Keys, keys};
use super::kinds::{Kind, path, secret};
use super::reader::{Field, Section};
use super::report::Problem;

keys! {
    /// The database with the state of the server: projects, agents, tasks and sessions.
    pub struct Store in "store" {
        /// `sqlite:` and the path of a file, or the URL of a PostgreSQL database such as
        /// `postgres://coordinator@db.example/coordinator?sslmode=verify-full` (docs/postgres.md).
        /// Default: `state.db` in `state_dir`.
        pub url: StoreUrl = StoreUrl::Sqlite("state.db".into()), url(), AfterRestart;

        /// The password for PostgreSQL. Take it from a variable, `"${DB_PASSWORD}"`, rather than
        /// writing it here.
        pub password: Option<Secret> = None, secret().or_none(), AfterRestart;

        /// A file with the password, in place of `password`. It is read at each start of the
        /// daemon. A line end after the password is left out.
        pub password_file: Option<PathBuf> = None, path().or_none(), AfterRestart;
    }
}

/// The database of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// An SQLite file.
    Sqlite(PathBuf),
    /// A PostgreSQL database. Its URL has no password.
    Postgres(Box<PostgresUrl>),
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => url.fmt(f),
        }
    }
}

impl Store {
    /// Returns the store with the default file in `state_dir`.
    pub(super) fn below(self, state_dir: &Path) -> Self {
        let url = match self.url {
            StoreUrl::Sqlite(path) => StoreUrl::Sqlite(state_dir.join(path)),
            StoreUrl::Postgres(url) => StoreUrl::Postgres(url),
        };
        Self { url, ..self }
    }

    pub(super) fn read_checked(top: &mut Section<'_, '_>, state_dir: &Path) -> Self {
        let mut section = top.section(Self::SECTION);
        let store = Self::read(&mut section);
        let [password, file] = ["password", "password_file"].map(|key| section.span_of(key));
        let note = |message: &str, span, help: &str| {
            section.reader().note(Problem::new(message, span).label("here").help(help));
        };
        if let (Some(_), Some(file)) = (&password, &file) {
            let message = "`store.password` and `store.password_file` are both set";
            note(message, file.clone(), "keep one of the two");
        }
        if let (StoreUrl::Sqlite(_), Some(span)) = (&store.url, password.or(file)) {
            let message = "`store.password` is set, and the store is an SQLite file";
            note(message, span, "only `store.url: postgres://…` has a password");
        }
        store.below(state_dir)
    }
}

fn url() -> Kind<StoreUrl> {
    let expected = "`sqlite:` and the path of a file, such as `sqlite:state.db`, \
        or `postgres://user@host/database`";
    Kind::new(expected, |field, what| read_url(&field, what), StoreUrl::to_string)
        .written_as("sqlite:~/.local/state/agent-coordinator/state.db")
}

fn read_url(field: &Field<'_, '_>, what: &str) -> Option<StoreUrl> {
    let text = field.text()?;
    let reader = field.reader();
    let folder = reader.source().folder();
    if text.starts_with("postgres") {
        return match text.parse::<PostgresUrl>() {
            Ok(url) => Some(StoreUrl::Postgres(Box::new(url.below(folder)))),
            Err(error) => {
                let message = format!("`store.url` is not valid: {error}");
                field.note(Problem::new(message, field.span()).label("here"));
                None
            }
        };
    }
    let path = field.parsed(what, |text| {
        let path = text.strip_prefix("sqlite:")?;
        let path = path.strip_prefix("//").unwrap_or(path);
        (!path.is_empty() && !path.starts_with(':') && !path.contains('?')).then(|| path.to_owned())
    })?;
    // `~/` comes after the scheme here, so the text as a whole does not begin with it.
    let path = match path.strip_prefix("~/") {
        Some(below_home) => reader.environment().folder("HOME").map(|home| home.join(below_home)),
        None => Some(PathBuf::from(path)),
    };
    if path.is_none() {
        field.expected(
            "a path that needs no home folder, as the environment variable `HOME` is not set",
        );
    }
    Some(StoreUrl::Sqlite(folder.join(path?)))
}
