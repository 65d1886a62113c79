//! Looks for the agent CLIs of this machine: for the page of the first run, `init` and `doctor`. It
//! calls no model and keeps no credential.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use futures::future::join_all;
use serde::de::IgnoredAny;
use tokio::time::Instant;

use crate::clock;
use crate::config::{CommandLine, Config, Environment, Preset, ProviderConfig};
use crate::domain::agent::DEFAULT_AI_TYPE;
use crate::locks::lock;
use crate::provider::{CORRECT_PROGRAM, Host, Login, installation_of, login_of, program_of};
use crate::rest::{FoundProgram, MissingProgram, ProgramLogin, Programs};
use crate::sys::ownership::is_only_of_root;
use crate::workspace::git_folders;

/// The time that a CLI has to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which the version of a program is kept.
const VERSION_KEPT_FOR: Duration = Duration::from_mins(1);

/// The files of this host.
pub const HOST: Host = Host {
    has_contents: |path| {
        std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0)
    },
    has_entries,
    git_folders,
};

fn has_entries(path: &Path) -> bool {
    let text = path.is_file().then(|| std::fs::read(path).ok()).flatten().unwrap_or_default();
    serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(&text)
        .is_ok_and(|entries| !entries.is_empty())
}

/// Returns the search for the programs of this configuration.
pub(super) fn programs(config: &Config, environment: &Environment) -> Programs {
    let providers = config.providers.clone();
    let directory = Some(environment.working_directory().to_owned());
    // A service manager starts daemons in `/`.
    let directory = directory.filter(|path| path.parent().is_some());
    let environment = environment.clone();
    let versions = Arc::<Versions>::default();
    let asked = (providers.clone(), environment.clone());
    Programs::new(directory, move || {
        let providers = providers.clone();
        let environment = environment.clone();
        let versions = Arc::clone(&versions);
        Box::pin(async move { look(&providers, &environment, &versions).await })
    })
    .with_missing(move |ai_type| missing(&asked.0, &asked.1, ai_type))
}

/// Returns the program of an AI type if it is not installed.
fn missing(
    providers: &BTreeMap<String, ProviderConfig>,
    environment: &Environment,
    ai_type: &str,
) -> Option<MissingProgram> {
    let entry =
        |name: &str| providers.get(name).cloned().or_else(|| ProviderConfig::built_in(name));
    let entry = entry(ai_type).or_else(|| entry(DEFAULT_AI_TYPE))?;
    let (program, preset) = program_of_entry(&entry);
    let is_missing = find_program(program, environment).is_none();
    is_missing
        .then(|| MissingProgram { program: program.to_owned(), remedy: remedy_of_missing(preset) })
}

/// Returns what a person does about a program that was not found.
pub fn remedy_of_missing(preset: Option<Preset>) -> &'static str {
    preset.map_or(CORRECT_PROGRAM, installation_of)
}

/// The versions that programs printed a short time ago, because the page of the first run asks with
/// each load.
#[derive(Default)]
struct Versions(Mutex<BTreeMap<PathBuf, Printed>>);

/// The version of a program.
#[derive(Clone)]
struct Printed {
    version: Option<String>,
    /// The state of the file that printed it.
    file: Option<FileState>,
    at: Instant,
}

/// The length and the time of the last change of a file.
type FileState = (u64, SystemTime);

impl Versions {
    /// Returns the version of a program. It is asked again after a minute, and when its file has
    /// changed.
    async fn of(&self, program: &Path, now: Instant) -> Option<String> {
        let file = file_state(program);
        let is_known = |printed: &&Printed| {
            printed.file == file && now.saturating_duration_since(printed.at) < VERSION_KEPT_FOR
        };
        let known = lock(&self.0).get(program).filter(is_known).cloned();
        if let Some(printed) = known {
            return printed.version;
        }
        let version = version_of(program).await;
        let printed = Printed { version: version.clone(), file, at: now };
        lock(&self.0).insert(program.to_owned(), printed);
        version
    }
}

fn file_state(path: &Path) -> Option<FileState> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.len(), metadata.modified().ok()?))
}

/// Returns the programs that exist. Each one is asked for its version at the same time.
async fn look(
    providers: &BTreeMap<String, ProviderConfig>,
    environment: &Environment,
    versions: &Versions,
) -> Vec<FoundProgram> {
    let entries = entries(providers, environment);
    let found = entries.iter().map(|(ai_type, entry)| async move {
        let (program, preset) = program_of_entry(entry);
        let program = find_program(program, environment)?;
        let (version, login) = match preset {
            Some(preset) if entry.run_as.is_none() => {
                let login = match login(preset, entry, environment) {
                    Login::Variable(_) | Login::File(_) => ProgramLogin::Yes,
                    Login::No(_) => ProgramLogin::No,
                    Login::Unknown => ProgramLogin::Unknown,
                };
                (versions.of(&program, clock::now()).await, login)
            }
            _ => (None, ProgramLogin::Unknown),
        };
        Some(FoundProgram { ai_type: (*ai_type).to_owned(), program, version, login })
    });
    let mut found: Vec<FoundProgram> = join_all(found).await.into_iter().flatten().collect();
    // Programs that can start at once come first.
    found.sort_by_key(|program| match program.login {
        ProgramLogin::Yes => 0,
        ProgramLogin::Unknown | ProgramLogin::NotNeeded => 1,
        ProgramLogin::No => 2,
    });
    found
}

/// Returns the configured providers and the presets whose CLI is installed.
pub fn entries<'c>(
    providers: &'c BTreeMap<String, ProviderConfig>,
    environment: &Environment,
) -> BTreeMap<&'c str, ProviderConfig> {
    let mut entries: BTreeMap<&str, ProviderConfig> =
        providers.iter().map(|(name, entry)| (name.as_str(), entry.clone())).collect();
    let is_installed = |preset: Preset| find_program(program_of(preset), environment).is_some();
    for (name, preset) in Preset::ALL {
        if is_installed(preset) {
            entries.entry(name).or_insert_with(|| ProviderConfig::of_preset(preset));
        }
    }
    entries
}

/// Returns the program that an entry starts, and its preset.
pub fn program_of_entry(entry: &ProviderConfig) -> (&str, Option<Preset>) {
    match &entry.command_line {
        CommandLine::Own { program, .. } => (program, None),
        CommandLine::Preset { preset, program, .. } => {
            (program.as_deref().unwrap_or(program_of(*preset)), Some(*preset))
        }
    }
}

/// Returns whether the CLI of a preset has a login, and the place where that was seen.
pub fn login(preset: Preset, entry: &ProviderConfig, environment: &Environment) -> Login {
    let variable = |name: &str| {
        let set = entry.environment.get(name).map(|value| value.reveal().to_owned());
        set.or_else(|| environment.variable(name).map(str::to_owned))
    };
    login_of(preset, variable, HOST.has_login(preset))
}

/// Returns the program that a name or a path stands for.
pub fn find_program(program: &str, environment: &Environment) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        std::fs::metadata(path)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(environment.working_directory().join(program)).filter(is_program);
    }
    let path = environment.variable("PATH")?;
    path.split(':').map(|folder| Path::new(folder).join(program)).find(is_program)
}

/// The variables of the daemon that a program gets which only prints its version. The others may
/// be secrets.
const PASSED_ON: [&str; 4] = ["HOME", "LANG", "PATH", "TMPDIR"];

/// Returns the first line that a program prints for `--version`. Root runs no program that another
/// user can change.
pub async fn version_of(program: &Path) -> Option<String> {
    let is_root = rustix::process::geteuid().is_root();
    if is_root && !is_only_of_root(program) {
        return None;
    }
    let mut command = tokio::process::Command::new(program);
    command.arg("--version").stdin(Stdio::null()).kill_on_drop(true).env_clear();
    command.envs(PASSED_ON.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    let output = tokio::time::timeout(VERSION_TIMEOUT, command.output()).await.ok()?.ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_installed_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().to_owned();
        let environment = Environment::new(folder.path(), [("PATH", path.as_str())]);
        let of = |ai_type| missing(&BTreeMap::new(), &environment, ai_type);
        let codex = of("codex").unwrap();
        assert_eq!(codex.program, "codex");
        assert_eq!(codex.remedy, remedy_of_missing(Some(Preset::Codex)));
        assert_eq!(of("unknown").unwrap().program, "claude", "the default starts it");
        write(&folder.path().join("codex"), "1.0");
        assert_eq!(of("codex"), None);
        assert_eq!(of(crate::config::EXAMPLE), None, "it is bundled");
    }

    #[test]
    fn a_file_of_opencode_has_a_login_only_with_an_entry() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("auth.json");
        let has_login = HOST.has_login(Preset::Opencode);
        assert!(!has_login(&path) && !has_login(folder.path()));
        for (text, expected) in [
            ("", false),
            ("{}", false),
            ("[]", false),
            ("{\"anthropic\": {", false),
            (r#"{ "anthropic": { "type": "api", "key": "sk" } }"#, true),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(has_login(&path), expected, "{text}");
        }
        std::fs::write(&path, "{}").unwrap();
        assert!(HOST.has_login(Preset::Gemini)(&path), "its file may be encrypted");
    }

    /// Writes a program that notes each start and prints a version.
    fn write(program: &Path, version: &str) {
        let text = format!("#!/bin/sh\necho >>\"$0.starts\"\necho '{version}'\n");
        let new = program.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o700)).unwrap();
        std::fs::rename(&new, program).unwrap();
    }

    #[tokio::test]
    async fn a_program_is_asked_again_after_a_minute_or_when_its_file_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("cli");
        let n_starts = || std::fs::read(folder.path().join("cli.starts")).unwrap().len();
        let versions = Versions::default();
        let now = clock::now();
        write(&program, "1.0");
        for _ in 0..3 {
            assert_eq!(versions.of(&program, now).await.as_deref(), Some("1.0"));
        }
        assert_eq!(n_starts(), 1);
        write(&program, "1.0.1");
        assert_eq!(versions.of(&program, now).await.as_deref(), Some("1.0.1"));
        assert_eq!(n_starts(), 2);
        versions.of(&program, now + VERSION_KEPT_FOR).await;
        assert_eq!(n_starts(), 3);
    }
}
