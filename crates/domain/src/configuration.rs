//! The configuration as people see it: its settings, its changes, and its relation to the file.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::time::Timestamp;

/// The time from which a changed setting counts in a running daemon.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Applies {
    /// It counts from the next decision on.
    Now,
    /// Agents that run keep what they were started with.
    ToNewStarts,
    /// It counts after the next start of the daemon.
    AfterRestart,
}

impl Applies {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::ToNewStarts => "to new starts",
            Self::AfterRestart => "after a restart",
        }
    }

    /// Returns the value that a running daemon uses: the new one, unless that waits for a restart.
    pub fn choose<T: Clone>(self, new: T, started: &T) -> T {
        match self {
            Self::Now | Self::ToNewStarts => new,
            Self::AfterRestart => started.clone(),
        }
    }
}

/// One setting that is different.
#[derive(
    Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct Change {
    /// The path in the file, such as `session.max_timeout`.
    pub setting: String,
    /// The values before and after the change; absent for a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<[String; 2]>,
    pub applies: Applies,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.values {
            Some([old, new]) => write!(f, "{}: {old} → {new}", self.setting),
            None => write!(f, "{}: changed", self.setting),
        }
    }
}

/// A setting as it is in use.
#[derive(
    Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Setting {
    /// The path in the file, such as `session.max_timeout`.
    pub setting: String,
    /// The value. It is absent for a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// True if it has its default.
    pub is_default: bool,
    /// The line of the file that sets it; absent if the file does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The variables of the environment that its value in the file refers to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
    /// The time from which a change of it would count.
    pub applies: Applies,
}

/// The relation of the file to the configuration in use.
#[derive(
    Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationState {
    /// The file; `None` means that there is none, and all settings have their defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The time at which the configuration in use was read.
    pub since: Timestamp,
    /// The reason why the file is not in use, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Rejected>,
    /// The changes that count only after a restart.
    #[serde(default)]
    pub waiting: Vec<Change>,
    /// All settings in use. A request of its own returns them.
    #[serde(skip)]
    pub settings: Arc<[Setting]>,
}

/// The reason why the content of the file is not in use.
#[derive(
    Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct Rejected {
    /// The time at which the file was found invalid for the first time.
    pub since: Timestamp,
    /// The current problems with their places, on one line.
    pub problem: String,
}

/// The result of a reload.
#[derive(
    Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Reloaded {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The time of the reload.
    pub at: Timestamp,
    /// The time at which the configuration in use was read. It is earlier if nothing has changed.
    pub since: Timestamp,
    /// The changes that were found at `since`. The daemon reads a changed file by itself, mostly
    /// before a person asks for a reload.
    pub changes: Vec<Change>,
    /// The changes that count only after a restart, also those of earlier reloads.
    pub waiting: Vec<Change>,
}

impl Reloaded {
    /// Returns whether this reload changed anything.
    pub fn is_news(&self) -> bool {
        self.at == self.since
    }
}
