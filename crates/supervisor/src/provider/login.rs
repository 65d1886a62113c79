//! Finds out whether the CLI of a preset has a login, from variables and from the files in which it
//! keeps one. It never shows what is in them, and never starts the CLI.

use std::path::{Path, PathBuf};

use super::gemini::{self, Kind};
use super::preset;
use config::Preset;
use machine::sys::users::HAS_KEYCHAIN;

/// The login of a CLI, as far as that can be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// This variable is set.
    Variable(&'static str),
    /// This file has a login.
    File(PathBuf),
    /// The CLI may keep its login where only the CLI finds it.
    Unknown,
    /// There is neither a variable nor one of these files.
    No(Vec<PathBuf>),
}

/// Returns the files in which a CLI keeps its login: the variable that leads to its folder, the
/// folder below that place, the folder below the home folder without it, and the names in there.
const fn files(
    preset: Preset,
) -> (&'static str, &'static str, &'static str, &'static [&'static str]) {
    match preset {
        Preset::Claude => ("CLAUDE_CONFIG_DIR", "", ".claude", &[".credentials.json"]),
        Preset::Codex => ("CODEX_HOME", "", ".codex", &["auth.json"]),
        Preset::Gemini => (
            "GEMINI_CLI_HOME",
            ".gemini",
            ".gemini",
            &["oauth_creds.json", "gemini-credentials.json"],
        ),
        // Its settings may have a key.
        Preset::Qwen => ("QWEN_HOME", "", ".qwen", &["settings.json"]),
        Preset::Opencode => ("XDG_DATA_HOME", "opencode", ".local/share/opencode", &["auth.json"]),
        Preset::Copilot => ("COPILOT_HOME", "", ".copilot", &[]),
    }
}

/// Returns the folder in which a CLI keeps its files. `variable` returns the variables of its agents.
pub(super) fn folder_of(
    preset: Preset,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<PathBuf> {
    let value = |name: &str| variable(name).filter(|value| !value.is_empty());
    let (home, below, folder, _) = files(preset);
    value(home)
        .map(|home| PathBuf::from(home).join(below))
        .or_else(|| value("HOME").map(|home| PathBuf::from(home).join(folder)))
}

/// Returns the variables of which each alone logs the CLI in, beside the others that are set.
fn variables(
    preset: Preset,
    variable: &impl Fn(&str) -> Option<String>,
) -> &'static [&'static str] {
    let has = |names: &[&str]| {
        names.iter().all(|name| variable(name).is_some_and(|value| !value.is_empty()))
    };
    match preset {
        Preset::Claude | Preset::Opencode => preset::of(preset).logins,
        // Its headless mode takes no key from OPENAI_API_KEY.
        Preset::Codex => &["CODEX_API_KEY", "CODEX_ACCESS_TOKEN"],
        Preset::Gemini => match gemini::login(variable) {
            Kind::Key => &["GEMINI_API_KEY"],
            Kind::Vertex if has(&["GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"]) => {
                &["GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS"]
            }
            Kind::Vertex => &["GOOGLE_API_KEY"],
            Kind::Account if has(&["GOOGLE_GENAI_USE_GCA"]) => &["GOOGLE_CLOUD_ACCESS_TOKEN"],
            Kind::Account => &[],
        },
        Preset::Qwen if has(&["OPENAI_BASE_URL", "OPENAI_MODEL"]) => &["OPENAI_API_KEY"],
        Preset::Qwen => &[],
        Preset::Copilot if has(&["COPILOT_PROVIDER_BASE_URL"]) => preset::of(preset).logins,
        Preset::Copilot => &["COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"],
    }
}

/// Returns whether the CLI of a preset has a login. `variable` returns the variables that its agents
/// have, and `has_login` whether a file has a login ([`super::Host::has_login`]).
pub fn login_of(
    preset: Preset,
    variable: impl Fn(&str) -> Option<String>,
    has_login: impl Fn(&Path) -> bool,
) -> Login {
    let value = |name: &str| variable(name).filter(|value| !value.is_empty());
    let mut logins = variables(preset, &value).iter();
    if let Some(name) = logins.find(|name| value(name).is_some()) {
        return Login::Variable(name);
    }
    let is_of_machine = preset == Preset::Gemini && gemini::login(&value) == Kind::Vertex;
    let (.., names) = files(preset);
    let folder = folder_of(preset, value);
    let Some(folder) = folder.filter(|_| !names.is_empty() && !is_of_machine) else {
        return Login::Unknown;
    };
    let files: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
    match files.iter().find(|file| has_login(file)) {
        // They may also be without a key.
        Some(_) if preset == Preset::Qwen => Login::Unknown,
        Some(file) => Login::File(file.clone()),
        // On macOS, the other CLIs keep their logins in the keychain of the user.
        None if HAS_KEYCHAIN && !matches!(preset, Preset::Qwen | Preset::Opencode) => {
            Login::Unknown
        }
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

    const HOME: (&str, &str) = ("HOME", "/home/me");

    #[test]
    fn a_login_is_a_variable_or_a_file_and_otherwise_it_says_where_it_looked() {
        let key = ("CODEX_API_KEY", "sk");
        assert_eq!(login(Preset::Codex, &[HOME, key], ""), Login::Variable("CODEX_API_KEY"));
        let empty = ("CODEX_API_KEY", "");
        let file = "/home/me/.codex/auth.json";
        assert_eq!(login(Preset::Codex, &[HOME, empty], file), Login::File(file.into()));
        let of_folder = |preset, name, folder, file: &str| {
            assert_eq!(login(preset, &[HOME, (name, folder)], file), Login::File(file.into()));
        };
        of_folder(Preset::Codex, "CODEX_HOME", "/codex", "/codex/auth.json");
        of_folder(Preset::Gemini, "GEMINI_CLI_HOME", "/g", "/g/.gemini/oauth_creds.json");
        of_folder(Preset::Opencode, "XDG_DATA_HOME", "/data", "/data/opencode/auth.json");
        assert_eq!(login(Preset::Copilot, &[HOME], ""), Login::Unknown);
        assert_eq!(login(Preset::Claude, &[], ""), Login::Unknown);
        assert_eq!(login(Preset::Qwen, &[HOME], "/home/me/.qwen/settings.json"), Login::Unknown);
        let looked = vec![PathBuf::from("/home/me/.qwen/settings.json")];
        assert_eq!(login(Preset::Qwen, &[HOME], ""), Login::No(looked));
        if !HAS_KEYCHAIN {
            let looked = vec![PathBuf::from("/home/me/.claude/.credentials.json")];
            assert_eq!(login(Preset::Claude, &[HOME], ""), Login::No(looked));
        }
    }

    /// The rows of qwen and opencode, and the refused ones of codex and copilot, were tried with the
    /// CLI itself.
    #[test]
    fn a_variable_counts_only_if_it_logs_the_cli_in() {
        use Preset::{Codex, Copilot, Gemini, Opencode, Qwen};
        let (url, model) = ("OPENAI_BASE_URL", "OPENAI_MODEL");
        let (vertex, account) = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA");
        let (project, location) = ("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION");
        let provider = "COPILOT_PROVIDER_BASE_URL";
        let cases: [(Preset, &[&str], bool); 21] = [
            (Codex, &["OPENAI_API_KEY"], false),
            (Codex, &["CODEX_API_KEY"], true),
            (Codex, &["CODEX_ACCESS_TOKEN"], true),
            (Gemini, &["GEMINI_API_KEY"], true),
            (Gemini, &["GEMINI_API_KEY", account], false),
            (Gemini, &["GOOGLE_API_KEY"], false),
            (Gemini, &["GOOGLE_API_KEY", vertex], true),
            (Gemini, &["GOOGLE_APPLICATION_CREDENTIALS", vertex], false),
            (Gemini, &["GOOGLE_APPLICATION_CREDENTIALS", vertex, project, location], true),
            (Gemini, &["GOOGLE_CLOUD_ACCESS_TOKEN"], false),
            (Gemini, &["GOOGLE_CLOUD_ACCESS_TOKEN", account], true),
            (Qwen, &["OPENAI_API_KEY"], false),
            (Qwen, &["OPENAI_API_KEY", url, model], true),
            (Qwen, &["DASHSCOPE_API_KEY", url, model], false),
            (Qwen, &["OPENROUTER_API_KEY", url, model], false),
            (Opencode, &["OPENROUTER_API_KEY"], true),
            (Copilot, &["COPILOT_PROVIDER_API_KEY"], false),
            (Copilot, &["COPILOT_PROVIDER_API_KEY", provider], true),
            (Copilot, &["COPILOT_PROVIDER_BEARER_TOKEN", provider], true),
            (Copilot, &["GH_TOKEN"], true),
            (Copilot, &["GITHUB_TOKEN", provider], true),
        ];
        for (preset, names, is_login) in cases {
            let set: Vec<_> = names.iter().map(|name| (*name, "true")).chain([HOME]).collect();
            let found =
                matches!(login(preset, &set, ""), Login::Variable(name) if name == names[0]);
            assert_eq!(found, is_login, "{preset:?} {names:?}");
        }
    }
}
