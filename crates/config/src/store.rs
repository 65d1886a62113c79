//! `store`: the database with the state of the server.

use std::fmt;
use std::path::{Path, PathBuf};

use domain::Secret;
use postgres_url::{PostgresUrl, UrlError};

use super::declaration::{Keys, keys};
use super::environment::Environment;
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

/// The reason why a text is not the URL of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreUrlError {
    #[error(transparent)]
    Postgres(#[from] UrlError),
    #[error("expected {0}")]
    Expected(&'static str),
}

const EXPECTED: &str = "`sqlite:` and the path of a file, such as `sqlite:state.db`, \
    or `postgres://user@host/database`";

impl StoreUrl {
    /// Reads a URL. A relative path in it starts at `folder`, and `~/` at the home folder.
    ///
    /// # Errors
    /// A text of another form, a URL with a password, or a home folder that is not known.
    pub fn parse(
        text: &str,
        folder: &Path,
        environment: &Environment,
    ) -> Result<Self, StoreUrlError> {
        if text.starts_with("postgres") {
            return Ok(Self::Postgres(Box::new(text.parse::<PostgresUrl>()?.below(folder))));
        }
        let is_path =
            |path: &&str| !path.is_empty() && !path.starts_with(':') && !path.contains('?');
        let path = text.strip_prefix("sqlite:").map(|path| path.strip_prefix("//").unwrap_or(path));
        let Some(path) = path.filter(is_path) else {
            return Err(StoreUrlError::Expected(EXPECTED));
        };
        // `~/` comes after the scheme here, so the text as a whole does not begin with it.
        let Some(below_home) = path.strip_prefix("~/") else {
            return Ok(Self::Sqlite(folder.join(path)));
        };
        let home = environment.folder("HOME").ok_or(StoreUrlError::Expected(
            "a path that needs no home folder, as the environment variable `HOME` is not set",
        ))?;
        Ok(Self::Sqlite(home.join(below_home)))
    }
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
        let keys = ["password", "password_file"];
        section.check_only_one(keys);
        let given = keys.into_iter().find(|key| section.span_of(key).is_some());
        if let (StoreUrl::Sqlite(_), Some(key)) = (&store.url, given) {
            let message = format!("`store.{key}` is set, and the store is an SQLite file");
            section.refuse(key, message, "only `store.url: postgres://…` has a password");
        }
        store.below(state_dir)
    }
}

fn url() -> Kind<StoreUrl> {
    Kind::new(EXPECTED, |field, _| read_url(&field), StoreUrl::to_string)
        .written_as("sqlite:~/.local/state/agent-coordinator/state.db")
}

fn read_url(field: &Field<'_, '_>) -> Option<StoreUrl> {
    let text = field.text()?;
    let reader = field.reader();
    match StoreUrl::parse(&text, reader.source().folder(), reader.environment()) {
        Ok(url) => Some(url),
        Err(StoreUrlError::Postgres(error)) => {
            let message = format!("`store.url` is not valid: {error}");
            field.note(Problem::new(message, field.span()).label("here"));
            None
        }
        Err(StoreUrlError::Expected(what)) => {
            field.expected(what);
            None
        }
    }
}
