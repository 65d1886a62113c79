//! `output`: the limits of the stored output of agents.

use super::reader::Section;

/// Limits of the output logs of one launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The size at which an output log is rotated, in bytes.
    pub max_file: u64,
    /// The number of files kept per launch, including the current one.
    pub files: usize,
}

impl Default for Output {
    fn default() -> Self {
        Self { max_file: 10 * 1024 * 1024, files: 5 }
    }
}

impl Output {
    pub(super) fn read(mut section: Section<'_, '_>) -> Self {
        let default = Self::default();
        let range = 64 * 1024..=1024 * 1024 * 1024 * 1024;
        let max_file = section.field("max_file").and_then(|field| field.size(range));
        Self {
            max_file: max_file.unwrap_or(default.max_file),
            files: section.integer("files", default.files, 1..=1_000),
        }
    }
}
