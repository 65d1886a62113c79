//! `coordinator_config.yaml` and the [`manifest`]: turns the text of a person into values that the
//! rest of the program trusts.
//!
//! ```text
//! file ─ source ─► text ─ tree ─► values with places ─ reader, one file per section ─►
//! Config, or a Report of all problems
//! ```
//!
//! The file of a section declares each of its keys once (`declaration`): effect, type, default,
//! kind of values, and the time when a change counts. The reader, the comparison for a reload, the
//! list of settings, `config/coordinator_config.yaml` and `docs/configuration.md` come from this
//! declaration. [`Live`] is the configuration of a running daemon, which may be read again.
//!
//! The environment is an argument ([`Environment`]). Only two checks look at the machine: `run_as`
//! must not be a name of the keeper, and `workspace.root` must not be a symbolic link.
//!
//! This crate does not know the use of the settings. `cli` and `app` load them. `service`,
//! `supervisor`, `forge` and `web` take the structs of the sections that they need.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests may wait and ask the time"))]

mod agents;
mod backoff;
mod chat;
mod checks;
mod continuation;
mod declaration;
mod diff;
mod environment;
mod forge;
mod general;
mod hooks;
mod http;
mod interpolate;
mod kinds;
mod limits;
mod live;
mod log;
pub mod manifest;
mod notice;
mod output;
mod parking;
mod paths;
mod providers;
mod reader;
mod report;
mod retention;
mod run;
mod secrets;
mod session;
mod shutdown;
mod source;
mod start;
mod stop;
mod store;
mod templates;
mod tree;
mod units;
mod workspace;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use domain::AgentId;
use domain::account::Parking;
use domain::conversation::ContinueLimits;
use domain::creation::CreationLimits;
use domain::plan::{RunLimits, StartLimits};
use domain::retention::Retention;
use domain::start_history::Backoff;
use domain::workspace::GitLimits;

use declaration::Keys;
use reader::{Reader, Section};
use report::{Problem, Transcript};
use source::{MAX_BYTES, Source, Unreadable};

pub use agents::AgentCredentials;
pub use chat::Chat;
pub use checks::{CheckKeys, NamedCheck};
pub use diff::{diff, settings};
pub use environment::Environment;
pub use forge::{
    ForgeAccess, ForgeAccount, ForgeHost, Forges, PauseResume, TaskStop, WatchedRepository,
    Webhook, repositories_path,
};
pub use general::General;
pub use hooks::WorkspaceHooks;
pub use http::{Http, Listen};
pub use limits::AgentLimits;
pub use live::Live;
pub use log::{LogConfig, LogFormat};
pub use notice::Notice;
pub use output::Output;
pub use paths::Paths;
pub use providers::{
    CommandLine, EXAMPLE, KEEPER, PassEnvironment, Permissions, Preset, PromptVia, ProviderConfig,
    Telemetry, built_in_names,
};
pub use reader::{SettingPlace, SettingPlaces};
pub use report::Report;
pub use secrets::Secrets;
pub use session::Session;
pub use shutdown::{AtShutdown, Shutdown};
pub use start::Start;
pub use stop::Stop;
pub use store::{Store, StoreUrl, StoreUrlError};
pub use templates::{Template, fill};
pub use workspace::Workspace;

/// The name of the configuration in each of its usual places.
pub const FILE_NAME: &str = "coordinator_config.yaml";
/// The variable that names the file if the command line doesn't.
const FILE_VARIABLE: &str = "AGENT_COORDINATOR_CONFIG";

/// All settings, checked. All paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The keys that are in no section.
    pub general: General,
    pub limits: StartLimits,
    pub agent_limits: AgentLimits,
    pub creation: CreationLimits,
    /// The places of files and sockets.
    pub paths: Paths,
    /// The database of the server.
    pub store: Store,
    /// The HTTP listener of the server.
    pub http: Http,
    /// The providers by `ai_type`. `provider` knows the meaning of an `ai_type` without an entry.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// The credentials of the agents that this coordinator starts for a server on another host.
    pub agents: BTreeMap<AgentId, AgentCredentials>,
    /// The checks in the order of the file.
    pub checks: Vec<NamedCheck>,
    pub session: Session,
    pub start: Start,
    pub stop: Stop,
    pub run: RunLimits,
    pub notice: Notice,
    pub chat: Chat,
    pub backoff: Backoff,
    pub parking: Parking,
    /// The settings about conversations of CLIs (`continue`).
    pub conversations: ContinueLimits,
    pub shutdown: Shutdown,
    pub log: LogConfig,
    pub output: Output,
    /// The clones of tasks.
    pub workspace: Workspace,
    /// Commands of the operator that run in the clones.
    pub hooks: WorkspaceHooks,
    /// The limits of git on clones and projects.
    pub git_limits: GitLimits,
    /// The time that the past is kept.
    pub retention: Retention,
    /// GitHub and GitLab, whose items become tasks.
    pub forges: Forges,
    /// The variables of the environment from which secret settings were completed.
    pub secret_variables: BTreeSet<String>,
}

impl Config {
    /// Returns all defaults, with all stored files below `state_dir`.
    pub fn with_state_dir(state_dir: impl Into<PathBuf>) -> Self {
        let paths = Paths::below(state_dir.into());
        Self {
            general: General::default(),
            limits: StartLimits::default(),
            agent_limits: AgentLimits::default(),
            creation: CreationLimits::default(),
            store: Store::default().below(&paths.state_dir),
            http: Http::default(),
            providers: BTreeMap::new(),
            agents: BTreeMap::new(),
            checks: Vec::new(),
            session: Session::default(),
            start: Start::default(),
            stop: Stop::default(),
            run: RunLimits::default(),
            notice: Notice::default(),
            chat: Chat::default(),
            backoff: Backoff::default(),
            parking: Parking::default(),
            conversations: ContinueLimits::default(),
            shutdown: Shutdown::default(),
            log: LogConfig::default(),
            output: Output::default(),
            workspace: Workspace::default(),
            hooks: WorkspaceHooks::default(),
            git_limits: GitLimits::default(),
            retention: Retention::default(),
            forges: Forges::below(&paths.state_dir),
            paths,
            secret_variables: BTreeSet::new(),
        }
    }

    fn read(mut top: Section<'_, '_>) -> Self {
        let paths = Paths::read_checked(&mut top);
        let general = General::read(&mut top);
        let mut section = top.section(StartLimits::SECTION);
        let limits = StartLimits::read(&mut section);
        limits::check_reserve(&limits, &section, general.max_concurrent);
        let agent_limits = AgentLimits::read(&mut section);
        let creation = CreationLimits::read(&mut section);
        drop(section);
        // An invalid token counts as given. Its invalidity is a problem of its own.
        let token = match top.span_of("coordinator_token") {
            Some(_) => http::Token::Given,
            None => http::Token::Missing,
        };
        let mut section = top.section(Http::SECTION);
        let http = Http::read(&mut section);
        http.check(&section, token);
        drop(section);
        let forges = Forges::read(&mut top, &paths.state_dir, &http);
        let mut section = top.section(Workspace::SECTION);
        let workspace = Workspace::read(&mut section);
        let hooks = WorkspaceHooks::read(&mut section.section("hooks"));
        let git_limits = GitLimits::read(&mut section.section("limits"));
        drop(section);
        Self {
            general,
            limits,
            agent_limits,
            creation,
            store: Store::read_checked(&mut top, &paths.state_dir),
            paths,
            http,
            providers: providers::read(&mut top),
            agents: agents::read(&mut top),
            checks: checks::read(&mut top),
            session: Session::read_section(&mut top),
            start: Start::read_section(&mut top),
            stop: Stop::read_section(&mut top),
            run: RunLimits::read_section(&mut top),
            notice: Notice::read_section(&mut top),
            chat: Chat::read_section(&mut top),
            backoff: Backoff::read_section(&mut top),
            parking: Parking::read_section(&mut top),
            conversations: ContinueLimits::read_section(&mut top),
            shutdown: Shutdown::read_section(&mut top),
            log: LogConfig::read_section(&mut top),
            output: Output::read_section(&mut top),
            workspace,
            hooks,
            git_limits,
            retention: Retention::read_section(&mut top),
            forges,
            // This comes after all fields that may note a variable.
            secret_variables: top.reader().secret_variables(),
        }
    }
}

/// A configuration and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    pub config: Config,
    /// The file that was read, absolute. `None` means that there was no file, so that all settings
    /// have their defaults.
    pub source: Option<PathBuf>,
    /// The places of the settings in the file.
    pub places: SettingPlaces,
}

/// The error for a configuration or a manifest that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file exists or was named, but can't be read.
    #[error("could not read `{}`{}", .path.display(), .named_by.map(|by| format!(", which {by} names")).unwrap_or_default())]
    Unreadable {
        path: PathBuf,
        /// The option, variable or setting that named the file; `None` if the file was found in
        /// a usual place.
        named_by: Option<&'static str>,
        #[source]
        source: io::Error,
    },
    /// The file was read and has problems. The report contains all of them.
    #[error("{0}")]
    Invalid(Report),
}

impl ConfigError {
    /// Returns the error on one line, for a log.
    pub fn on_one_line(&self) -> String {
        match self {
            Self::Unreadable { source, .. } => format!("{self}: {source}"),
            Self::Invalid(report) => report.on_one_line(),
        }
    }

    /// Returns the whole text, with the colours of a terminal.
    pub fn colored(&self) -> String {
        match self {
            Self::Unreadable { .. } => self.to_string(),
            Self::Invalid(report) => report.colored(),
        }
    }
}

/// Finds, reads and checks the configuration. It looks at `path` (`--config`),
/// `$AGENT_COORDINATOR_CONFIG`, the working directory, the user's configuration folder and `/etc`,
/// in this order. The first file that exists is used. Without a file, all settings have their
/// defaults.
///
/// # Errors
/// Fails if a named file is missing, if a file can't be read, or if it has problems. The report
/// contains all problems at once.
pub fn load(path: Option<&Path>, environment: &Environment) -> Result<Loaded, ConfigError> {
    if let Some(source) = find(path, environment)? {
        let (config, places) = read(&source, environment).map_err(ConfigError::Invalid)?;
        return Ok(Loaded {
            config,
            places,
            source: Some(environment.working_directory().join(source.name())),
        });
    }
    // Defaults can be wrong, too: a home folder may be too long for a socket.
    let nothing = Source::new("the default settings", environment.working_directory(), "");
    let (config, places) = read(&nothing, environment).map_err(ConfigError::Invalid)?;
    Ok(Loaded { config, source: None, places })
}

/// Reads the file of `former` again. If there was no file, looks for one as at the start.
///
/// # Errors
/// Fails like [`load`], and if the file is gone or empty.
pub fn load_again(former: Option<&Path>, environment: &Environment) -> Result<Loaded, ConfigError> {
    let Some(path) = former else {
        return load(None, environment);
    };
    let source = open(path, None, environment)?;
    if source.text().trim().is_empty() {
        // For the moment that it takes to write a file, all defaults would end nothing and start
        // the wrong agents.
        let source = io::Error::other(
            "it is empty; a daemon that runs takes that for a file that is still being written",
        );
        return Err(ConfigError::Unreadable { path: path.to_owned(), named_by: None, source });
    }
    let (config, places) = read(&source, environment).map_err(ConfigError::Invalid)?;
    Ok(Loaded { config, source: Some(path.to_owned()), places })
}

/// Reads the addresses that a client of the daemon needs, from the file that [`load`] would read. A
/// client is admitted although only the daemon has the variable of a passkey. It is admitted
/// although the file has a mistake that the running daemon doesn't have yet, even one that makes
/// the file invalid YAML.
///
/// # Errors
/// Fails like [`load`], for the keys of the addresses only.
pub fn find_daemon(path: Option<&Path>, environment: &Environment) -> Result<Paths, ConfigError> {
    let nothing = || Source::new("the default settings", environment.working_directory(), "");
    let source = find(path, environment)?.unwrap_or_else(nothing);
    let peek = |source: &Source| Reader::new(source, environment).peek(Paths::read_checked);
    peek(&source).or_else(|report| {
        let is_yaml = tree::parse(&source).is_ok();
        let salvaged = if is_yaml { None } else { peek(&source.only_lines_of(&paths::KEYS)).ok() };
        salvaged.ok_or(ConfigError::Invalid(report))
    })
}

fn read(source: &Source, environment: &Environment) -> Result<(Config, SettingPlaces), Report> {
    let reader = Reader::new(source, environment);
    let (config, _) = reader.read(Config::read)?;
    Ok((config, reader.places()))
}

/// Returns the text of the file that is used, or `None` if there is none.
fn find(path: Option<&Path>, environment: &Environment) -> Result<Option<Source>, ConfigError> {
    if let Some(path) = path {
        return open(path, Some("--config"), environment).map(Some);
    }
    if let Some(path) = environment.variable(FILE_VARIABLE).filter(|path| !path.is_empty()) {
        return open(Path::new(path), Some("$AGENT_COORDINATOR_CONFIG"), environment).map(Some);
    }
    let user = environment.configuration_folder();
    let places = [
        Some(PathBuf::from(FILE_NAME)),
        user.map(|folder| folder.join(FILE_NAME)),
        Some(Path::new("/etc/agent-coordinator").join(FILE_NAME)),
    ];
    for place in places.into_iter().flatten() {
        match open(&place, None, environment) {
            Ok(source) => return Ok(Some(source)),
            Err(ConfigError::Unreadable { source, .. }) if is_absence(&source) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn open(
    path: &Path,
    named_by: Option<&'static str>,
    environment: &Environment,
) -> Result<Source, ConfigError> {
    Source::read(path, environment.working_directory()).map_err(|error| match error {
        Unreadable::Io(source) => {
            ConfigError::Unreadable { path: path.to_owned(), named_by, source }
        }
        Unreadable::TooLarge => {
            let message = format!(
                "larger than {}, so this is probably another file",
                units::show_size(MAX_BYTES)
            );
            ConfigError::Invalid(Report::about(path.display().to_string(), message))
        }
        Unreadable::NotText(source, at) => {
            let problem = Problem::new("not a text in UTF-8 from here on", at..at);
            ConfigError::Invalid(
                Transcript::new(&source, &source.guess_secrets()).report(vec![problem]),
            )
        }
    })
}

#[cfg(test)]
mod tests;
