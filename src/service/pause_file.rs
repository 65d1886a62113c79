//! The file whose existence keeps agents from starting, as the last look at it showed it.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::domain::StartFacts;
use crate::locks::lock;

/// The pause file, while it exists. It is in memory: the process that watches it reports it again
/// after a restart.
#[derive(Debug, Default)]
pub(super) struct PauseFile(Mutex<Option<PathBuf>>);

impl PauseFile {
    /// Notes the pause file, or that there is none. Returns whether starts are held now and were
    /// not before, or the reverse.
    pub(super) fn set(&self, file: Option<&Path>) -> bool {
        let mut current = lock(&self.0);
        let before = std::mem::replace(&mut *current, file.map(Path::to_owned));
        before.is_some() != file.is_some()
    }

    /// Returns the pause file, if it keeps agents from starting.
    pub(super) fn get(&self) -> Option<PathBuf> {
        lock(&self.0).clone()
    }

    /// Returns whether the pause file keeps agents from starting.
    pub(super) fn exists(&self) -> bool {
        self.get().is_some()
    }

    /// Returns the facts of a key with the pause file among them.
    pub(super) fn apply(&self, facts: StartFacts) -> StartFacts {
        StartFacts { is_paused: facts.is_paused || self.exists(), ..facts }
    }
}
