//! `output`: how much of what agents print is kept.

use super::reader::Section;

/// Limits of the output logs of one launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Size at which an output log is rotated, in bytes.
    pub max_file: u64,
    /// Files kept per launch, the current one included.
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
