//! The configuration of a running daemon, and its relation to the file. The last valid
//! configuration stays in use, even if the file becomes invalid.
//!
//! This module is pure: `app` reads files and distributes the configuration. `web` and the command
//! line show the [`ConfigurationState`].

use super::diff::{diff, settings, without_restart};
use super::{Config, Loaded};
use domain::Timestamp;
use domain::configuration::{Change, ConfigurationState, Rejected, Reloaded};

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
