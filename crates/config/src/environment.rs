//! The part of the daemon's environment that configuration depends on, as a value. Therefore
//! `config` asks the process for nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Environment variables and the working directory.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    working_directory: PathBuf,
}

impl Environment {
    /// Returns the environment of this process. It leaves out variables that are not UTF-8, because
    /// no setting can have such a value.
    pub fn of_process() -> Self {
        Self {
            variables: std::env::vars_os()
                .filter_map(|(name, value)| {
                    Some((name.into_string().ok()?, value.into_string().ok()?))
                })
                .collect(),
            working_directory: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
        }
    }

    /// Returns a made-up environment, for tests.
    pub fn new<'a>(
        working_directory: impl Into<PathBuf>,
        variables: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let variables = variables
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Self { variables, working_directory: working_directory.into() }
    }

    /// Returns the value of a variable, even an empty one.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Returns all variables with their values.
    pub fn variables(&self) -> impl Iterator<Item = (String, String)> + '_ {
        self.variables.iter().map(|(name, value)| (name.clone(), value.clone()))
    }

    /// Returns the folder at which relative paths on the command line start.
    pub fn working_directory(&self) -> &Path {
        &self.working_directory
    }

    /// Returns the user's folder for the configuration; `None` without a home folder.
    pub fn configuration_folder(&self) -> Option<PathBuf> {
        Some(self.user_folder("XDG_CONFIG_HOME", ".config")?.join("agent-coordinator"))
    }

    /// Returns the path in a variable if it is absolute. The XDG rules ignore other paths.
    pub(super) fn folder(&self, name: &str) -> Option<PathBuf> {
        self.variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// Returns the folder in `$XDG_…`, else its usual place below the home folder.
    pub(super) fn user_folder(&self, xdg: &str, below_home: &str) -> Option<PathBuf> {
        self.folder(xdg).or_else(|| Some(self.folder("HOME")?.join(below_home)))
    }
}

// The output omits the values, because they may be secrets.
impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment")
            .field("variables", &self.variables.keys())
            .field("working_directory", &self.working_directory)
            .finish()
    }
}
