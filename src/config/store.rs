//! `store`: the database with the state of the server.

use std::fmt;
use std::path::PathBuf;

use crate::domain::Secret;
use crate::postgres_url::PostgresUrl;

use super::reader::{Field, Reader, Section};
use super::report::Problem;

/// The database of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// An SQLite file.
    Sqlite(PathBuf),
    Postgres(Box<PostgresStore>),
}

/// A PostgreSQL database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresStore {
    pub url: PostgresUrl,
    /// The password of the user in the URL. `None` if the server asks for none.
    pub password: Option<Password>,
}

/// A password, or the file that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Password {
    Given(Secret),
    /// The file is read at each start of the daemon. A line end after the password is left out.
    File(PathBuf),
}

/// Shows the URL, which has no password.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(store) => store.url.fmt(f),
        }
    }
}

impl StoreUrl {
    /// Reads the section. Returns `None` if it has no valid URL.
    pub(super) fn read(mut section: Section<'_, '_>) -> Option<Self> {
        let url = section.field("url");
        let given = section.optional("password");
        let file = section.optional("password_file");
        if let (Some(_), Some(file)) = (&given, &file) {
            let message = "`store.password` and `store.password_file` are both set";
            let problem = Problem::new(message, file.span()).label("here");
            file.note(problem.help("keep one of the two"));
        }
        let password_span = given.as_ref().or(file.as_ref()).map(Field::span);
        let given = given.and_then(|field| field.secret()).map(Password::Given);
        let password = given.or_else(|| Some(Password::File(file?.path()?)));
        let found = url.and_then(|field| read_url(&field, section.reader(), password));
        if let (Some(Self::Sqlite(_)) | None, Some(span)) = (&found, password_span) {
            let message = "`store.password` is set, and the store is an SQLite file";
            let problem = Problem::new(message, span).label("here");
            section.reader().note(problem.help("only `store.url: postgres://…` has a password"));
        }
        found
    }
}

fn read_url(
    field: &Field<'_, '_>,
    reader: &Reader<'_>,
    password: Option<Password>,
) -> Option<StoreUrl> {
    let text = field.text()?;
    let folder = reader.source().folder();
    if text.starts_with("postgres") {
        return match text.parse::<PostgresUrl>() {
            Ok(url) => {
                let url = url.below(folder);
                Some(StoreUrl::Postgres(Box::new(PostgresStore { url, password })))
            }
            Err(error) => {
                let message = format!("`store.url` is not valid: {error}");
                field.note(Problem::new(message, field.span()).label("here"));
                None
            }
        };
    }
    let what = "`sqlite:` and the path of a file, such as `sqlite:state.db`, \
        or `postgres://user@host/database`";
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
