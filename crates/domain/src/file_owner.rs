//! The user of this machine that owns the files that the daemon writes for an agent.

use std::collections::BTreeMap;

use super::agent::DEFAULT_AI_TYPE;
use super::command::RunAs;

/// The owner of the files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum FileOwner {
    /// The files belong to the daemon's own user.
    #[default]
    Daemon,
    /// The files belong to the user that the agent runs as.
    User(RunAs),
    /// The configuration names a user that this machine does not have, so no file is written.
    Missing { name: String },
}

/// The owner for each `ai_type`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileOwners(BTreeMap<String, FileOwner>);

impl FileOwners {
    /// Returns the owner of files for agents of `ai_type`. A type that has no provider is started
    /// by the default one.
    pub fn of(&self, ai_type: &str) -> FileOwner {
        self.0.get(ai_type).or_else(|| self.0.get(DEFAULT_AI_TYPE)).cloned().unwrap_or_default()
    }
}

impl FromIterator<(String, FileOwner)> for FileOwners {
    /// Collects the owners. The last of several owners for one `ai_type` counts.
    fn from_iter<I: IntoIterator<Item = (String, FileOwner)>>(owners: I) -> Self {
        Self(owners.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_type_has_the_owner_of_the_default_one() {
        let missing = FileOwner::Missing { name: "worker".to_owned() };
        let owners: FileOwners = [("codex", FileOwner::Daemon), (DEFAULT_AI_TYPE, missing.clone())]
            .map(|(ai_type, owner)| (ai_type.to_owned(), owner))
            .into_iter()
            .collect();
        assert_eq!(owners.of("codex"), FileOwner::Daemon);
        assert_eq!(owners.of("anything"), missing);
        assert_eq!(FileOwners::default().of("claude"), FileOwner::Daemon);
    }
}
