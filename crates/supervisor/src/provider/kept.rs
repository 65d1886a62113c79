//! Where the CLI of a launch will keep the transcript of its conversation.

use std::collections::BTreeMap;

use super::login;
use config::{CommandLine, Preset};
use domain::cli_lines::kept::{Asked, Keeper};
use domain::{Secret, TranscriptSpec};

/// Returns the transcript of a launch with these arguments and variables; `None` without a preset,
/// and for opencode, which keeps a database.
pub(super) fn transcript_of(
    command_line: &CommandLine,
    arguments: &[String],
    environment: &BTreeMap<String, Secret>,
) -> Option<TranscriptSpec> {
    let CommandLine::Preset { preset, .. } = command_line else {
        return None;
    };
    let keeper = match preset {
        Preset::Claude => Keeper::Claude,
        Preset::Codex => Keeper::Codex,
        Preset::Copilot => Keeper::Copilot,
        Preset::Gemini => Keeper::Gemini,
        Preset::Qwen => Keeper::Qwen,
        Preset::Opencode => return None,
    };
    let value = |name: &str| environment.get(name).map(|value| value.reveal().to_owned());
    let folder = login::folder_of(*preset, value).filter(|folder| folder.is_absolute())?;
    Some(TranscriptSpec { keeper, folder, asked: Asked::by(arguments) })
}
