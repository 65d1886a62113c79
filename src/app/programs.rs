//! Looks for the agent CLIs of this machine: for the page of the first run, `init` and `doctor`. It
//! calls no model and keeps no credential.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use futures::future::join_all;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::isolation;
use config::{CommandLine, Config, Environment, Preset, ProviderConfig};
use domain::{CommandSpec, Guidance};
use machine::locks::lock;
use machine::sys::ownership::is_only_of_root;
use machine::sys::regular_file;
use machine::sys::usual_folders::Elsewhere;
use runtime::clock;
use runtime::single_look::SingleLook;
use supervisor::coordinator::{Unstartable, command_anywhere, find_unstartable};
use supervisor::process::{StartFault, find_program};
use supervisor::provider::{Host, Login, Providers, login_of, program_of};
use web::{FoundProgram, MissingProgram, ProgramList, ProgramLogin, Programs, UnfitProgram};
use workspace::git_folders;

/// The time that a CLI has to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest look at the files of all programs and their logins.
const LONGEST_LOOK: Duration = Duration::from_secs(5);
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

/// Returns whether a small file is a JSON object with an entry. An agent may write there, so a pipe
/// is not waited for.
fn has_entries(path: &Path) -> bool {
    let file = regular_file::open_followed(path).ok();
    let text = file.and_then(|file| regular_file::read_small_text_of(file).ok());
    let entries: Value = serde_json::from_str(&text.unwrap_or_default()).unwrap_or_default();
    entries.as_object().is_some_and(|entries| !entries.is_empty())
}

/// Returns the providers as this process looks for their programs: with all its variables, and
/// without a look at other files.
pub fn providers(config: &Config, environment: &Environment) -> Providers {
    let url = config.http.expected_address(None);
    Providers {
        entries: config.providers.clone(),
        guidance: Guidance::new(config.general.language),
        environment: environment.variables().collect(),
        withheld: Vec::new(),
        withheld_variables: BTreeSet::new(),
        redacted: Vec::new(),
        mcp_socket: Some(config.paths.mcp_socket_path.clone()),
        mcp_url: url.map(super::http::mcp_url),
        state_dir: config.paths.state_dir.clone(),
        program: std::env::current_exe().unwrap_or_default(),
        users: isolation::users(config),
        users_files: isolation::users_files(config),
        host: Host::BLIND,
    }
}

/// The program of an `ai_type`, as its launches look for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramSearch {
    Found(PathBuf),
    Missing(Missing),
    /// It is looked for in the directory of each project, or there is no command.
    Unknown,
}

/// A program without which no agent of an `ai_type` can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The name or the path with which it was looked for.
    pub program: String,
    pub problem: String,
    /// The action that mends it.
    pub remedy: String,
    /// The usual folder that has it.
    pub elsewhere: Option<Elsewhere>,
}

/// Looks for the program of an `ai_type`, its wrapper and its interpreter, as a launch does.
fn look_for(ai_type: &str, providers: &Providers) -> ProgramSearch {
    let Some(command) = command_anywhere(ai_type, providers) else { return ProgramSearch::Unknown };
    // The users of a machine may be on the network, and they are looked up at the start.
    let command = CommandSpec { run_as: None, ..command };
    let Some(unstartable) = find_unstartable(&command, ai_type, providers) else {
        return find_program(&command).map_or(ProgramSearch::Unknown, ProgramSearch::Found);
    };
    let Unstartable { fault, elsewhere, remedy } = unstartable;
    let problem = fault.to_string();
    let program = match fault {
        StartFault::Program(_) => command.program,
        StartFault::Wrapper(_) => command.wrap.into_iter().next().unwrap_or_default(),
        StartFault::Interpreter { name, .. } => name,
        StartFault::Directory(_) | StartFault::User(_) | StartFault::UserId(_) => {
            return ProgramSearch::Unknown;
        }
    };
    ProgramSearch::Missing(Missing { program, problem, remedy, elsewhere })
}

/// Returns the configured providers, and the presets without an entry whose CLI is on this machine,
/// also if no launch finds it, or if it lacks its interpreter. They are in the order of their names.
pub fn list(providers: &Providers) -> Vec<(&str, ProviderConfig, ProgramSearch)> {
    let entries = &providers.entries;
    let configured = entries.iter().map(|(name, entry)| {
        let name = name.as_str();
        (name, entry.clone(), look_for(name, providers))
    });
    let presets = Preset::ALL.into_iter().filter(|(name, _)| !entries.contains_key(*name));
    let others = presets.filter_map(|(name, preset)| {
        let sight = look_for(name, providers);
        let is_here = match &sight {
            ProgramSearch::Found(_) => true,
            ProgramSearch::Missing(it) => {
                it.elsewhere.is_some() || it.program != program_of(preset)
            }
            ProgramSearch::Unknown => false,
        };
        is_here.then(|| (name, ProviderConfig::of_preset(preset), sight))
    });
    let mut listed: Vec<_> = configured.chain(others).collect();
    listed.sort_by_key(|(name, ..)| *name);
    listed
}

/// Returns the search for the programs of the providers in use.
pub(super) fn programs(
    in_use: watch::Receiver<Arc<Providers>>,
    environment: &Environment,
) -> Programs {
    let directory = Some(environment.working_directory().to_owned());
    // A service manager starts daemons in `/`.
    let directory = directory.filter(|path| path.parent().is_some());
    let environment = environment.clone();
    let versions = Arc::<Versions>::default();
    let seen = Arc::<SingleLook<FoundPrograms>>::default();
    let asked = in_use.clone();
    Programs::new(directory, move || {
        let providers = Arc::clone(&in_use.borrow());
        let environment = environment.clone();
        let versions = Arc::clone(&versions);
        let seen = Arc::clone(&seen);
        Box::pin(async move {
            let see = move || see(&providers, &environment);
            look(seen.find(LONGEST_LOOK, see).await, &versions).await
        })
    })
    .with_missing(move |ai_type| {
        let providers = Arc::clone(&asked.borrow());
        missing(&providers, ai_type)
    })
}

/// Returns the program of an `ai_type` if it is not installed.
fn missing(providers: &Providers, ai_type: &str) -> Option<MissingProgram> {
    match look_for(ai_type, providers) {
        ProgramSearch::Missing(Missing { program, remedy, .. }) => {
            Some(MissingProgram { program, remedy })
        }
        ProgramSearch::Found(_) | ProgramSearch::Unknown => None,
    }
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
    /// Returns the version of a program. It is asked again after a minute, and when the state of
    /// its file has changed.
    async fn of(&self, program: &Path, file: Option<FileState>, now: Instant) -> Option<String> {
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

/// The programs and the logins that the files of this machine show.
#[derive(Debug, Clone, Default)]
struct FoundPrograms {
    programs: Vec<SeenProgram>,
    unfit: Vec<UnfitProgram>,
}

/// A program that can start, as its files show it.
#[derive(Debug, Clone)]
struct SeenProgram {
    ai_type: String,
    program: PathBuf,
    login: ProgramLogin,
    file: Option<FileState>,
    /// It is asked for its version.
    is_asked: bool,
}

/// Looks at the programs that exist, and at their logins. Blocking.
fn see(providers: &Providers, environment: &Environment) -> FoundPrograms {
    let mut seen = FoundPrograms::default();
    for (ai_type, entry, sight) in list(providers) {
        let ai_type = ai_type.to_owned();
        match sight {
            ProgramSearch::Found(program) => {
                let preset = program_of_entry(&entry).1.filter(|_| entry.run_as.is_none());
                let login = match preset.map(|preset| login(preset, &entry, environment)) {
                    Some(Login::Variable(_) | Login::File(_)) => ProgramLogin::Yes,
                    Some(Login::No(_)) => ProgramLogin::No,
                    Some(Login::Unknown) | None => ProgramLogin::Unknown,
                };
                let file = file_state(&program);
                let is_asked = preset.is_some();
                seen.programs.push(SeenProgram { ai_type, program, login, file, is_asked });
            }
            ProgramSearch::Missing(Missing { problem, remedy, .. }) => {
                let fault = format!("{problem}; {remedy}");
                seen.unfit.push(UnfitProgram { ai_type, fault });
            }
            ProgramSearch::Unknown => {}
        }
    }
    seen
}

/// Returns the programs that were seen. Each one that can start is asked for its version at the
/// same time.
async fn look(seen: FoundPrograms, versions: &Versions) -> ProgramList {
    let FoundPrograms { programs, unfit } = seen;
    let found = programs.into_iter().map(|seen| async move {
        let SeenProgram { ai_type, program, login, file, is_asked } = seen;
        let version = if is_asked { versions.of(&program, file, clock::now()).await } else { None };
        FoundProgram { ai_type, program, version, login }
    });
    let mut found = join_all(found).await;
    // Programs that can start at once come first.
    found.sort_by_key(|program| match program.login {
        ProgramLogin::Yes => 0,
        ProgramLogin::Unknown | ProgramLogin::NotNeeded => 1,
        ProgramLogin::No => 2,
    });
    ProgramList { found, unfit }
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

/// The variables of the daemon that a program gets which only prints its version. The others may
/// be secrets.
const PASSED_ON: [&str; 4] = ["HOME", "LANG", "PATH", "TMPDIR"];

/// Returns whether this process may ask a program for its version. Root runs no program that another
/// user can change. Blocking.
pub fn may_ask(program: &Path) -> bool {
    !rustix::process::geteuid().is_root() || is_only_of_root(program)
}

/// Returns the first line that a program prints for `--version`, if it [may be asked](may_ask).
pub async fn version_of(program: &Path) -> Option<String> {
    let mut command = tokio::process::Command::new(program);
    command.arg("--version").stdin(Stdio::null()).kill_on_drop(true).env_clear();
    command.envs(PASSED_ON.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    let file = program.to_owned();
    let output = async {
        let is_allowed = tokio::task::spawn_blocking(move || may_ask(&file)).await;
        if is_allowed.unwrap_or_default() { command.output().await.ok() } else { None }
    };
    let output = tokio::time::timeout(VERSION_TIMEOUT, output).await.ok()??;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use domain::Secret;
    use supervisor::provider::installation_of;

    #[test]
    fn a_program_that_is_not_installed_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().to_owned();
        let environment = Environment::new(folder.path(), [("PATH", path.as_str())]);
        let mut config = Config::with_state_dir(folder.path());
        let of = |config: &Config, ai_type| missing(&providers(config, &environment), ai_type);
        let codex = of(&config, "codex").unwrap();
        assert_eq!(codex.program, "codex");
        assert_eq!(codex.remedy, installation_of(Preset::Codex));
        assert_eq!(of(&config, "unknown").unwrap().program, "claude", "the default starts it");
        write(&folder.path().join("codex"), "1.0");
        assert_eq!(of(&config, "codex"), None);
        assert_eq!(of(&config, config::EXAMPLE), None, "it is bundled");

        // The entry's own PATH and wrapper count.
        let mut entry = ProviderConfig::of_preset(Preset::Codex);
        let mut with_entry = |entry: &ProviderConfig| {
            config.providers.insert("codex".to_owned(), entry.clone());
            of(&config, "codex")
        };
        entry.environment.insert("PATH".to_owned(), Secret::new("/nowhere"));
        assert_eq!(with_entry(&entry).unwrap().program, "codex");
        entry.environment.insert("PATH".to_owned(), Secret::new(path.as_str()));
        assert_eq!(with_entry(&entry), None);
        entry.wrap = vec!["no-such-wrapper".to_owned()];
        let wrapper = with_entry(&entry).unwrap();
        assert_eq!(wrapper.program, "no-such-wrapper");
        assert_eq!(wrapper.remedy, "correct `wrap`, or install it");
    }

    #[test]
    fn a_program_in_a_usual_folder_is_named_with_the_setting_that_finds_it() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".bun/bin");
        std::fs::create_dir_all(&folder).unwrap();
        write(&folder.join("codex"), "1.0");
        let variables = [("PATH", "/nowhere"), ("HOME", home.path().to_str().unwrap())];
        let environment = Environment::new(home.path(), variables);
        let mut config = Config::with_state_dir(home.path());
        let looked = providers(&config, &environment);
        let listed = list(&looked);
        let [("codex", _, ProgramSearch::Missing(missing))] = &listed[..] else {
            panic!("{listed:?}")
        };
        let path = format!("{}:/nowhere", folder.display());
        let line = format!(
            r#"ai_providers: {{ codex: {{ preset: codex, environment: {{ PATH: "{path}" }} }} }}"#
        );
        let expected = format!(
            "it is at `{}`: add `{line}` to the configuration, or \
             `Environment=\"PATH={path}\"` in the daemon's unit",
            folder.join("codex").display()
        );
        assert_eq!(missing.remedy, expected);
        let file = home.path().join("config.yaml");
        std::fs::write(&file, line).unwrap();
        config.providers = config::load(Some(&file), &environment).unwrap().config.providers;
        let looked = providers(&config, &environment);
        let listed = list(&looked);
        let [("codex", _, ProgramSearch::Found(program))] = &listed[..] else {
            panic!("{listed:?}")
        };
        assert_eq!(*program, folder.join("codex"));
    }

    #[tokio::test]
    async fn pages_are_told_of_a_program_that_no_launch_finds() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".bun/bin");
        std::fs::create_dir_all(&folder).unwrap();
        write(&folder.join("codex"), "1.0");
        let variables = [("PATH", "/nowhere"), ("HOME", home.path().to_str().unwrap())];
        let environment = Environment::new(home.path(), variables);
        let looked = providers(&Config::with_state_dir(home.path()), &environment);
        let listed = look(see(&looked, &environment), &Versions::default()).await;
        assert!(listed.found.is_empty(), "{listed:?}");
        let [UnfitProgram { ai_type, fault }] = &listed.unfit[..] else { panic!("{listed:?}") };
        let place = format!("; it is at `{}`: ", folder.join("codex").display());
        assert!(ai_type == "codex" && fault.contains(&place), "{fault}");
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
        let large = format!(r#"{{ "a": "{}" }}"#, "x".repeat(64 * 1024));
        std::fs::write(&path, large).unwrap();
        assert!(!has_login(&path), "an agent may have written it");
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
        let file = || file_state(&program);
        let n_starts = || std::fs::read(folder.path().join("cli.starts")).unwrap().len();
        let versions = Versions::default();
        let now = clock::now();
        write(&program, "1.0");
        for _ in 0..3 {
            assert_eq!(versions.of(&program, file(), now).await.as_deref(), Some("1.0"));
        }
        assert_eq!(n_starts(), 1);
        write(&program, "1.0.1");
        assert_eq!(versions.of(&program, file(), now).await.as_deref(), Some("1.0.1"));
        assert_eq!(n_starts(), 2);
        versions.of(&program, file(), now + VERSION_KEPT_FOR).await;
        assert_eq!(n_starts(), 3);
    }
}
