//! The configuration of a running daemon, and its relation to the file. The last valid
//! configuration stays in use, even if the file becomes invalid.
//!
//! This module is pure: `app` reads files and distributes the configuration. `web` and the command
//! line show the [`ConfigurationState`].

use std::path::PathBuf;
use std::sync::Arc;

use super::diff::{Change, Setting, diff, settings, without_restart};
use super::{Config, Loaded};
use domain::Timestamp;

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

/// The configuration in use, and the one that was read last.
#[derive(Debug)]
pub struct Live {
    in_use: Config,
    read: Config,
    /// The changes of the last read that had any.
    changes: Vec<Change>,
    configuration_state: ConfigurationState,
}

impl Live {
    /// Returns the state at the start, when the whole configuration is in use.
    pub fn new(loaded: Loaded, now: Timestamp) -> Self {
        let Loaded { config, source, places } = loaded;
        let configuration_state = ConfigurationState {
            file: source,
            since: now,
            rejected: None,
            waiting: Vec::new(),
            settings: settings(&config, &places).into(),
        };
        Self { in_use: config.clone(), read: config, changes: Vec::new(), configuration_state }
    }

    /// Returns the configuration in use.
    pub const fn in_use(&self) -> &Config {
        &self.in_use
    }

    pub const fn configuration_state(&self) -> &ConfigurationState {
        &self.configuration_state
    }

    /// Returns the configuration that would be in use after `new` is taken.
    pub fn preview(&self, new: &Config) -> Config {
        without_restart(new.clone(), &self.in_use)
    }

    /// Takes a valid file whose settings were applied as far as possible without a restart. Taking
    /// the same file again changes nothing.
    pub fn take(&mut self, loaded: Loaded, now: Timestamp) -> Reloaded {
        let Loaded { config, source, places } = loaded;
        let changes = diff(&self.read, &config);
        self.in_use = self.preview(&config);
        let waiting = diff(&self.in_use, &config);
        if !changes.is_empty() {
            self.changes = changes;
            self.configuration_state.since = now;
        }
        self.read = config;
        let since = self.configuration_state.since;
        self.configuration_state = ConfigurationState {
            file: source.clone(),
            since,
            rejected: None,
            waiting: waiting.clone(),
            settings: settings(&self.in_use, &places).into(),
        };
        Reloaded { file: source, at: now, since, changes: self.changes.clone(), waiting }
    }

    /// Notes a file that can't be used. The configuration in use stays.
    pub fn reject(&mut self, problem: String, now: Timestamp) {
        let since = self.configuration_state.rejected.take().map_or(now, |rejected| rejected.since);
        self.configuration_state.rejected = Some(Rejected { since, problem });
    }
}
