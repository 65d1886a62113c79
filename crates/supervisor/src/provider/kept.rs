//! The place where the CLI of a launch will keep the transcript of its conversation.

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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use config::ProviderConfig;

    #[track_caller]
    fn check(name: &str, variables: &[(&str, &str)], expected: Option<(Keeper, &str)>) {
        let line = ProviderConfig::built_in(name).expect("a preset").command_line;
        let variables =
            variables.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value)));
        let found = transcript_of(&line, &[], &variables.collect());
        let found = found.as_ref().map(|spec| (spec.keeper, spec.folder.as_path()));
        assert_eq!(found, expected.map(|(keeper, folder)| (keeper, Path::new(folder))), "{name}");
    }

    #[test]
    fn a_transcript_lies_in_the_folder_that_the_variables_of_the_launch_name() {
        let home = ("HOME", "/home/me");
        check("claude", &[home], Some((Keeper::Claude, "/home/me/.claude")));
        check("claude", &[home, ("CLAUDE_CONFIG_DIR", "/c")], Some((Keeper::Claude, "/c")));
        check("codex", &[home, ("CODEX_HOME", "/c")], Some((Keeper::Codex, "/c")));
        check("gemini", &[home, ("GEMINI_CLI_HOME", "/g")], Some((Keeper::Gemini, "/g/.gemini")));
        check("qwen", &[home, ("QWEN_HOME", "/q")], Some((Keeper::Qwen, "/q")));
        check(
            "copilot",
            &[home, ("COPILOT_HOME", "")],
            Some((Keeper::Copilot, "/home/me/.copilot")),
        );
        check("copilot", &[("COPILOT_HOME", "elsewhere")], None);
        check("opencode", &[home], None);
        check("claude", &[], None);
    }
}
