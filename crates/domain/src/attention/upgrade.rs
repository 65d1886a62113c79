//! The entry about the upgrade of a project that has no room on its disk.

use crate::id::ProjectId;
use crate::language::Language;
use crate::printable::bytes;

/// An upgrade of a project that waits for room on its disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingUpgrade {
    pub project: ProjectId,
    /// The bytes that its next attempt copies.
    pub n_bytes: u64,
    /// The bytes that are free now.
    pub n_free: u64,
}

impl WaitingUpgrade {
    pub(super) fn title(&self, language: Language) -> String {
        let project = &self.project;
        match language {
            Language::English => format!("No disk space for the upgrade of {project}"),
            Language::Japanese => format!("{project} の更新に必要なディスク容量が不足"),
        }
    }

    pub(super) fn text(&self, language: Language) -> String {
        let [needed, free] = [self.n_bytes, self.n_free].map(bytes);
        match language {
            Language::English => format!(
                "Its tasks wait: the next step copies {needed} once, but only {free} are free"
            ),
            Language::Japanese => {
                format!("タスクは待機中。一度だけ {needed} をコピーしますが、空きは {free} です")
            }
        }
    }

    pub(super) const fn remedy(language: Language) -> &'static str {
        language.either(
            "make room on the disk of `workspace.root`; its tasks then go on by themselves",
            "`workspace.root` のディスクの空きを増やすと自動的に再開",
        )
    }
}
