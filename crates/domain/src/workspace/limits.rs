//! The limits of git, and of what the daemon takes from clones and from the repositories of projects.

use std::time::Duration;

/// The limits. Each is a setting of this name in `workspace.limits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GitLimits {
    /// The memory that a process of git allocates, in bytes.
    pub git_memory: u64,
    /// The time of a call of git that transfers objects or writes many files.
    pub git_time: Duration,
    /// The files and folders of a commit.
    pub files: u64,
    /// The objects that are taken from one repository in a clone at once.
    pub objects: usize,
}

impl Default for GitLimits {
    fn default() -> Self {
        Self {
            git_memory: 1 << 30,
            git_time: Duration::from_mins(30),
            files: 1_000_000,
            objects: 2_000_000,
        }
    }
}
