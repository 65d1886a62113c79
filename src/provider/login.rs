//! Finds out whether the CLI of a preset has a login, from variables and from the files in which it
//! keeps one. It never reads what is in them, and never starts the CLI.

use std::path::{Path, PathBuf};

use super::preset;
use crate::config::Preset;
use crate::sys::users::HAS_KEYCHAIN;

/// Whether a CLI has a login, as far as that can be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// This variable is set.
    Variable(&'static str),
    /// This file has contents.
    File(PathBuf),
    /// The CLI may keep its login where only the CLI finds it.
    Unknown,
    /// There is neither a variable nor one of these files.
    No(Vec<PathBuf>),
}

/// Returns the files in which a CLI keeps its login: the variable with its folder, the folder below
/// the home folder without it, and the names in there.
const fn files(preset: Preset) -> (&'static str, &'static str, &'static [&'static str]) {
    match preset {
        Preset::Claude => ("CLAUDE_CONFIG_DIR", ".claude", &[".credentials.json"]),
        Preset::Codex => ("CODEX_HOME", ".codex", &["auth.json"]),
        Preset::Gemini => {
            ("GEMINI_CLI_HOME", ".gemini", &["oauth_creds.json", "gemini-credentials.json"])
        }
        Preset::Qwen => ("", ".qwen", &["oauth_creds.json"]),
        Preset::Opencode => ("", ".local/share/opencode", &["auth.json"]),
        Preset::Copilot => ("COPILOT_HOME", ".copilot", &[]),
    }
}

/// Returns whether the CLI of a preset has a login. `variable` returns the variables that its agents
/// have, and `has_contents` whether a file exists and is not empty.
pub fn login_of(
    preset: Preset,
    variable: impl Fn(&str) -> Option<String>,
    has_contents: impl Fn(&Path) -> bool,
) -> Login {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    if let Some(name) = preset::of(preset).logins.iter().find(|name| is_set(name)) {
        return Login::Variable(name);
    }
    let (folder_variable, folder, names) = files(preset);
    let folder = variable(folder_variable)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(folder)));
    let Some(folder) = folder.filter(|_| !names.is_empty()) else {
        return Login::Unknown;
    };
    let files: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
    match files.iter().find(|file| has_contents(file)) {
        Some(file) => Login::File(file.clone()),
        // On macOS, these CLIs keep their logins in the keychain of the user.
        None if HAS_KEYCHAIN => Login::Unknown,
        None => Login::No(files),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(preset: Preset, variables: &[(&str, &str)], file: &str) -> Login {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        login_of(preset, variable, |path| path.as_os_str() == file)
    }

    #[test]
    fn a_login_is_a_variable_or_a_file_and_otherwise_it_says_where_it_looked() {
        let home = ("HOME", "/home/me");
        let key = ("OPENAI_API_KEY", "sk");
        assert_eq!(login(Preset::Codex, &[home, key], ""), Login::Variable("OPENAI_API_KEY"));
        let empty = ("OPENAI_API_KEY", "");
        let file = "/home/me/.codex/auth.json";
        assert_eq!(login(Preset::Codex, &[home, empty], file), Login::File(file.into()));
        let folder = ("CODEX_HOME", "/codex");
        let file = "/codex/auth.json";
        assert_eq!(login(Preset::Codex, &[home, folder], file), Login::File(file.into()));
        assert_eq!(login(Preset::Copilot, &[home], ""), Login::Unknown);
        assert_eq!(login(Preset::Claude, &[], ""), Login::Unknown);
        if !HAS_KEYCHAIN {
            let looked = vec![PathBuf::from("/home/me/.claude/.credentials.json")];
            assert_eq!(login(Preset::Claude, &[home], ""), Login::No(looked));
        }
    }
}
