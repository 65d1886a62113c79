//! Looks for the agent CLIs of this machine: for the page of the first run, `init` and `doctor`. It
//! calls no model and reads no credential.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures::future::join_all;

use crate::config::{CommandLine, Config, Environment, Preset, ProviderConfig};
use crate::provider::{Login, login_of, program_of};
use crate::rest::{FoundProgram, ProgramLogin, Programs};

/// The time that a CLI has to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the search for the programs of this configuration.
pub(super) fn programs(config: &Config, environment: &Environment) -> Programs {
    let providers = config.providers.clone();
    let directory = Some(environment.working_directory().to_owned());
    // A service manager starts daemons in `/`.
    let directory = directory.filter(|path| path.parent().is_some());
    let environment = environment.clone();
    Programs::new(directory, move || {
        let providers = providers.clone();
        let environment = environment.clone();
        Box::pin(async move { look(&providers, &environment).await })
    })
}

/// Returns the programs that exist. Each one is asked for its version at the same time.
async fn look(
    providers: &BTreeMap<String, ProviderConfig>,
    environment: &Environment,
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
                (version_of(&program).await, login)
            }
            _ => (None, ProgramLogin::Unknown),
        };
        Some(FoundProgram { ai_type: (*ai_type).to_owned(), program, version, login })
    });
    let mut found: Vec<FoundProgram> = join_all(found).await.into_iter().flatten().collect();
    // Programs that can start at once come first.
    found.sort_by_key(|program| match program.login {
        ProgramLogin::Yes => 0,
        ProgramLogin::Unknown => 1,
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
    let has_contents = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0)
    };
    login_of(preset, variable, has_contents)
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

/// Returns the first line that a program prints for `--version`.
pub async fn version_of(program: &Path) -> Option<String> {
    let mut command = tokio::process::Command::new(program);
    command.arg("--version").stdin(Stdio::null()).kill_on_drop(true).env_clear();
    command.envs(PASSED_ON.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    let output = tokio::time::timeout(VERSION_TIMEOUT, command.output()).await.ok()?.ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}
