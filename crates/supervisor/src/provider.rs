//! Turns a launch into a command line: the program for an `ai_type`, its arguments, environment and
//! prompt. Turns the output of that program into facts ([`output`]). All of this is pure, except
//! for what [`Host`] is asked.
//!
//! This module knows the configuration of providers and nothing of processes. `coordinator` calls
//! it, and so does `cli check`, which shows the commands that would be started. A provider is an
//! entry of the configuration, a preset (one file each), or an entry on top of a preset.

mod claude;
mod codex;
mod conversing;
mod copilot;
mod gemini;
mod kept;
mod login;
mod opencode;
mod operator;
pub mod output;
mod preset;
mod qwen;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub use login::{Login, login_of};

use config::{
    CommandLine, PassEnvironment, Preset, PromptVia, ProviderConfig, Telemetry, Template,
    built_in_names, fill,
};
use domain::agent::DEFAULT_AI_TYPE;
use domain::workspace::WorkspaceMode;
use domain::{
    Attempt, CommandSpec, ConversationOrder, Guidance, InstanceKey, LaunchId, RunAs, Secret,
};
use machine::instance_dir;
use preset::{BuiltIn, Composition, Run, SOCKET_VARIABLE, Server, URL_VARIABLE};

/// Returns the program of a preset.
pub const fn program_of(preset: Preset) -> &'static str {
    preset::of(preset).program
}

/// The remedy for a program that is missing and that no preset knows.
pub const CORRECT_PROGRAM: &str = "correct `cli_command`, or install it";

/// Returns how to install the program of a preset and to log in.
pub const fn installation_of(preset: Preset) -> &'static str {
    preset::of(preset).installation
}

/// The length below which a secret may occur in texts by chance.
const MIN_SECRET: usize = 8;
/// The same limit for variables that every agent gets.
const MIN_USUAL: usize = 12;

/// The launch that is to be started.
#[derive(Debug, Clone)]
pub struct LaunchRequest {
    pub launch: LaunchId,
    pub key: InstanceKey,
    pub ai_type: String,
    pub working_directory: PathBuf,
    /// The folders of the clone of the project's repository that the directory is in, if it is in
    /// one.
    pub clone: Option<CloneFolders>,
    /// The proof of identity: the launch ticket, or the passkey itself if the server gave no
    /// ticket.
    pub passkey: Secret,
    pub attempt: Attempt,
    /// The conversation that its CLI begins or continues.
    pub conversation: Option<ConversationOrder>,
    /// The call without a result before the interruption, as one line.
    pub last_call: Option<String>,
}

/// The folders of a clone, for a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneFolders {
    /// The files and the repository, which the agent changes.
    pub tree: PathBuf,
    /// The folder that the clone borrows from, which the agent only reads: the repository of the
    /// daemon, or what it lends to the user of the agent.
    pub keep: PathBuf,
}

/// A user of this machine that agents run as, with the values that its processes get.
#[derive(Debug, Clone)]
pub struct AgentUser {
    pub run_as: RunAs,
    pub home: PathBuf,
    pub shell: PathBuf,
}

/// The questions of presets about the files of this host.
#[derive(Debug, Clone, Copy)]
pub struct Host {
    /// Returns whether a file exists and is not empty.
    pub has_contents: fn(&Path) -> bool,
    /// Returns whether a file is an object of JSON with an entry.
    pub has_entries: fn(&Path) -> bool,
    /// Returns the folders that git writes to for a commit in a directory.
    pub git_folders: fn(&Path) -> Vec<PathBuf>,
}

impl Host {
    /// Answers without a look at any file, for callers that must not wait for a file system.
    pub const BLIND: Self =
        Self { has_contents: |_| false, has_entries: |_| false, git_folders: |_| Vec::new() };

    /// Returns the question whether a file of the CLI of a preset has a login. opencode leaves an
    /// empty object when a login is removed.
    pub fn has_login(&self, preset: Preset) -> fn(&Path) -> bool {
        if preset == Preset::Opencode { self.has_entries } else { self.has_contents }
    }
}

/// All inputs of command lines except the launch.
#[derive(Debug, Clone)]
pub struct Providers {
    pub entries: BTreeMap<String, ProviderConfig>,
    pub guidance: Guidance,
    /// The daemon's own environment. Each provider says which part of it is passed on.
    pub environment: BTreeMap<String, String>,
    /// Variables of that environment that contain one of these are never passed on. They are the
    /// secrets of the configuration, with which an agent could do more than work.
    pub withheld: Vec<Secret>,
    /// These variables are not passed on either, except those that every agent gets, because a
    /// secret was put together from their values.
    pub withheld_variables: BTreeSet<String>,
    /// The texts that are removed from the output of agents.
    pub redacted: Vec<Secret>,
    /// The socket where the agent reaches the server on this host.
    pub mcp_socket: Option<PathBuf>,
    /// The address where the agent reaches the server over HTTP. Presets use it only without a
    /// socket.
    pub mcp_url: Option<String>,
    /// The directory of the instance folders, which contain the files of presets.
    pub state_dir: PathBuf,
    /// The daemon's own program: the bridge to the server, and the client of agents that are
    /// scripts.
    pub program: PathBuf,
    /// The users that providers name (`run_as`).
    pub users: BTreeMap<String, AgentUser>,
    /// The directory of those launch files that such users may read.
    pub users_files: PathBuf,
    pub host: Host,
}

/// The reason why the agents of a provider need the server's HTTP address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpNeed {
    /// The entry contains `{mcp_url}` or names the variable of the address.
    Entry,
    /// The preset has no socket that it could give to the CLI instead.
    Preset,
}

impl HttpNeed {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Entry => "its entry uses {mcp_url} or COORDINATOR_MCP_URL",
            Self::Preset => {
                "the server has no socket on this host, so the preset configures an HTTP MCP server"
            }
        }
    }
}

/// The reason why there is no command line for a launch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// A template uses an address that the server does not have.
    #[error("provider `{provider}` uses {{{template}}}, but the server is not reached that way")]
    NoAddress { provider: String, template: &'static str },
    /// A preset needs the address of the server.
    #[error("provider `{provider}` needs the server's socket or URL, and neither is known")]
    Unreachable { provider: String },
    #[error("provider `{provider}` runs as `{user}`, and this machine has no such user")]
    NoUser { provider: String, user: String },
    #[error(
        "provider `{provider}` is for another user (`run_as`) than before, which takes a restart of the daemon"
    )]
    WaitsForRestart { provider: String },
}

impl Providers {
    /// Returns the provider that starts `ai_type`, with its name: its entry, else the built-in one
    /// of this name, else `claude`'s.
    pub fn find(&self, ai_type: &str) -> (&str, Cow<'_, ProviderConfig>) {
        let find = |ai_type: &str| {
            let entry = self
                .entries
                .get_key_value(ai_type)
                .map(|(name, entry)| (name.as_str(), Cow::Borrowed(entry)));
            entry.or_else(|| {
                let name = built_in_names().into_iter().find(|name| *name == ai_type)?;
                Some((name, Cow::Owned(ProviderConfig::built_in(name)?)))
            })
        };
        find(ai_type)
            .or_else(|| find(DEFAULT_AI_TYPE))
            .expect("there is a preset of the default's name")
    }

    /// Returns how to install the program of `ai_type`; `None` for programs that are not built in.
    pub fn installation(&self, ai_type: &str) -> Option<&'static str> {
        built_in(&self.find(ai_type).1).map(|built_in| built_in.installation)
    }

    /// Returns whether the agents of `ai_type` print a stream of events, as those of presets do.
    pub fn prints_stream(&self, ai_type: &str) -> bool {
        built_in(&self.find(ai_type).1).is_some()
    }

    /// Returns the reason why the agents of `ai_type` need HTTP; `None` if they do not.
    pub fn http_need(&self, ai_type: &str) -> Option<HttpNeed> {
        let provider = self.find(ai_type).1;
        let environment = provider.environment.values().map(Secret::reveal);
        let args = [&provider.cli_args, &provider.begin_args, &provider.resume_args];
        let mut texts =
            args.into_iter().flatten().chain(&provider.wrap).map(String::as_str).chain(environment);
        if texts.any(|text| Template::McpUrl.is_in(text) || text.contains(URL_VARIABLE)) {
            return Some(HttpNeed::Entry);
        }
        (built_in(&provider).is_some() && self.mcp_socket.is_none()).then_some(HttpNeed::Preset)
    }

    /// Returns the command line of a launch.
    ///
    /// # Errors
    /// [`CommandError`], for example if the server has no address that the provider could use.
    pub fn command(&self, request: &LaunchRequest) -> Result<CommandSpec, CommandError> {
        let (name, provider) = self.find(&request.ai_type);
        if provider.waits_for_restart {
            return Err(CommandError::WaitsForRestart { provider: name.to_owned() });
        }
        let is_shown =
            matches!(provider.command_line, CommandLine::Own { passkey_in_prompt: true, .. });
        // All users can read arguments, but only the agent can read its standard input.
        let prompt = self.prompt(request, is_shown.then_some(&request.passkey));
        let values = Values { providers: self, provider: name, request, prompt: &prompt };
        let templates = conversing::with_conversation(&provider, request);
        let filled = templates.iter().map(|template| values.fill(template));
        let mut arguments = filled.collect::<Result<Vec<_>, _>>()?;
        let wrap = values.wrap(&provider)?;
        let user = self.user_of(name, &provider)?;
        let files_in = user.map(|_| self.users_files.join(request.launch.as_str()));
        let mut environment = self.passed_to(&provider);
        // Each launch gets a folder of its own, unless the entry's `environment` names one.
        environment.remove("TMPDIR");
        if let Some(user) = user {
            become_of(user, &mut environment);
            // These are folders of the daemon's user. A value that is not a path (an address, a
            // model) is valid for all users.
            let places = built_in(&provider).map(|built_in| built_in.places).unwrap_or_default();
            environment.retain(|name, value| {
                !places.contains(&name.as_str()) || !value.reveal().starts_with('/')
            });
        }
        let mut set = BTreeMap::new();
        for (name, value) in &provider.environment {
            set.insert(name.clone(), Secret::new(values.fill(value.reveal())?));
        }
        let stdin = || Some(Secret::new(self.prompt(request, Some(&request.passkey))));
        let mut files = Vec::new();
        let (program, stdin) = match &provider.command_line {
            CommandLine::Own { program, prompt: PromptVia::Stdin, .. } => {
                (program.clone(), stdin())
            }
            CommandLine::Own { program, prompt: PromptVia::Argument, .. } => {
                if !templates.iter().any(|template| Template::Prompt.is_in(template)) {
                    arguments.extend(["-p".to_owned(), prompt]);
                }
                (program.clone(), None)
            }
            CommandLine::Preset { preset, program, model, permissions, telemetry } => {
                let built_in = preset::of(*preset);
                let server = self
                    .server()
                    .ok_or_else(|| CommandError::Unreachable { provider: name.to_owned() })?;
                let mut given = environment.clone();
                given.extend(set.clone());
                let composition = (built_in.compose)(&Run {
                    server,
                    permissions: *permissions,
                    telemetry: *telemetry,
                    model: model.as_deref(),
                    extra: &arguments,
                    files: &files_in.clone().unwrap_or_else(|| {
                        instance_dir::files(&instance_dir::instance(
                            &self.state_dir,
                            &request.launch,
                        ))
                    }),
                    given: &given,
                    working_directory: &request.working_directory,
                    host: self.host,
                });
                if *telemetry == Telemetry::Off {
                    let quiet = built_in.quiet.iter();
                    environment.extend(
                        quiet.map(|(name, value)| ((*name).to_owned(), Secret::new(*value))),
                    );
                }
                let Composition { environment: of_preset, .. } = &composition;
                environment.extend(
                    of_preset
                        .iter()
                        .map(|(name, value)| ((*name).to_owned(), Secret::new(value.as_str()))),
                );
                Composition { arguments, files, .. } = composition;
                (program.clone().unwrap_or_else(|| built_in.program.to_owned()), stdin())
            }
        };
        environment.extend(set);
        environment.extend(self.own_variables(request));
        let transcript = kept::transcript_of(&provider.command_line, &arguments, &environment);
        Ok(CommandSpec {
            wrap,
            run_as: user.map(|user| user.run_as.clone()),
            files_in,
            transcript,
            program,
            arguments,
            redact: secrets(&provider, request, &environment)
                .chain(self.redacted.iter().cloned())
                .collect(),
            environment: environment.into_iter().collect(),
            working_directory: request.working_directory.clone(),
            stdin,
            files,
        })
    }

    /// Returns the user that the agents of a provider run as; `None` for the daemon's own user.
    ///
    /// # Errors
    /// `NoUser`.
    pub fn run_as(&self, ai_type: &str) -> Result<Option<&RunAs>, CommandError> {
        let (name, provider) = self.find(ai_type);
        Ok(self.user_of(name, &provider)?.map(|user| &user.run_as))
    }

    fn user_of(
        &self,
        name: &str,
        provider: &ProviderConfig,
    ) -> Result<Option<&AgentUser>, CommandError> {
        let Some(user) = &provider.run_as else {
            return Ok(None);
        };
        let no_user = || CommandError::NoUser { provider: name.to_owned(), user: user.clone() };
        self.users.get(user).map(Some).ok_or_else(no_user)
    }

    fn prompt(&self, request: &LaunchRequest, passkey: Option<&Secret>) -> String {
        let LaunchRequest { key, working_directory, attempt, last_call, .. } = request;
        let resumed = request.conversation.as_ref().and_then(|order| order.resumed.as_ref());
        let prompt = match resumed {
            Some(resumed) => {
                self.guidance.resumed_prompt(key, passkey, resumed, last_call.as_deref())
            }
            None => self.guidance.prompt(key, working_directory, passkey, attempt),
        };
        if request.clone.is_some() { prompt + self.guidance.own_clone() + "\n" } else { prompt }
    }

    fn server(&self) -> Option<Server<'_>> {
        match (&self.mcp_socket, &self.mcp_url) {
            (Some(socket), _) => Some(Server::Bridge { program: &self.program, socket }),
            (None, Some(url)) => Some(Server::Url(url)),
            (None, None) => None,
        }
    }

    /// Returns the part of the daemon's environment that the provider passes on.
    fn passed_to(&self, provider: &ProviderConfig) -> BTreeMap<String, Secret> {
        let built_in = built_in(provider);
        let is_passed = |name: &str| {
            let mut of_preset =
                built_in.iter().flat_map(|built_in| built_in.logins.iter().chain(built_in.places));
            provider.pass_environment.passes(name) || of_preset.any(|each| *each == name)
        };
        let usual = PassEnvironment::default();
        let is_withheld = |name: &str, value: &str| {
            // A path or a locale may contain a short passkey by chance.
            let (is_named, part) = if usual.passes(name) {
                (false, MIN_USUAL)
            } else {
                (self.withheld_variables.contains(name), MIN_SECRET)
            };
            is_named || self.withheld.iter().any(|secret| holds(value, secret, part))
        };
        let passed = self
            .environment
            .iter()
            .filter(|(name, value)| is_passed(name) && !is_withheld(name, value));
        passed.map(|(name, value)| (name.clone(), Secret::new(value.as_str()))).collect()
    }

    /// Returns the variables of the launch itself. Other settings do not override them.
    fn own_variables(&self, request: &LaunchRequest) -> impl Iterator<Item = (String, Secret)> {
        let mode =
            if request.clone.is_some() { WorkspaceMode::Clone } else { WorkspaceMode::Shared };
        let own = [
            ("AGENT_ID", Secret::new(request.key.agent.as_str())),
            ("PROJECT_ID", Secret::new(request.key.project.as_str())),
            ("AGENT_PASSKEY", request.passkey.clone()),
            ("WORKING_DIRECTORY", Secret::new(text(&request.working_directory))),
            ("AGENT_WORKSPACE", Secret::new(mode.as_str())),
            ("AGENT_LAUNCH_ID", Secret::new(request.launch.as_str())),
            ("AGENT_ATTEMPT", Secret::new(request.attempt.number.to_string())),
            ("AGENT_COORDINATOR", Secret::new(text(&self.program))),
        ];
        let socket =
            self.mcp_socket.as_deref().map(|socket| (SOCKET_VARIABLE, Secret::new(text(socket))));
        let url = self.mcp_url.as_deref().map(|url| (URL_VARIABLE, Secret::new(url)));
        own.into_iter().chain(socket).chain(url).map(|(name, value)| (name.to_owned(), value))
    }
}

/// Returns whether `value` contains `secret`. A secret shorter than `least_part` could be a common
/// word, so only the whole value counts.
fn holds(value: &str, secret: &Secret, least_part: usize) -> bool {
    let secret = secret.reveal();
    if secret.len() < least_part { value.trim() == secret } else { value.contains(secret) }
}

/// Replaces the home and the folders of the daemon's user by those of `user`.
fn become_of(user: &AgentUser, environment: &mut BTreeMap<String, Secret>) {
    environment.retain(|name, _| !name.starts_with("XDG_"));
    let AgentUser { run_as: RunAs { name, .. }, home, shell } = user;
    let own = [
        ("HOME", text(home)),
        ("USER", name.clone()),
        ("LOGNAME", name.clone()),
        ("SHELL", text(shell)),
    ];
    environment.extend(own.map(|(name, value)| (name.to_owned(), Secret::new(value))));
}

/// Returns the secrets that are always removed from the agent's output: its passkey, and the logins
/// of its preset.
fn secrets(
    provider: &ProviderConfig,
    request: &LaunchRequest,
    environment: &BTreeMap<String, Secret>,
) -> impl Iterator<Item = Secret> {
    let logins = built_in(provider).into_iter().flat_map(|built_in| built_in.logins);
    let logins = logins.filter_map(move |name| environment.get(*name).cloned());
    std::iter::once(request.passkey.clone()).chain(logins)
}

fn built_in(provider: &ProviderConfig) -> Option<&'static BuiltIn> {
    match provider.command_line {
        CommandLine::Preset { preset, .. } => Some(preset::of(preset)),
        CommandLine::Own { .. } => None,
    }
}

/// The values of templates for one launch.
struct Values<'a> {
    providers: &'a Providers,
    provider: &'a str,
    request: &'a LaunchRequest,
    /// The prompt in the form that an argument may show.
    prompt: &'a str,
}

impl Values<'_> {
    fn wrap(&self, provider: &ProviderConfig) -> Result<Vec<String>, CommandError> {
        provider.wrap.iter().map(|argument| self.fill(argument)).collect()
    }

    fn fill(&self, template: &str) -> Result<String, CommandError> {
        let Self { providers, provider, request, prompt } = self;
        let needed = |value: Option<String>, template| {
            value.ok_or_else(|| CommandError::NoAddress {
                provider: (*provider).to_owned(),
                template,
            })
        };
        // Without a clone, both folders are the directory, so that one wrapper fits all projects.
        let of_clone = |folder: fn(&CloneFolders) -> &Path| {
            let directory = request.working_directory.as_path();
            text(request.clone.as_ref().map_or(directory, folder))
        };
        fill(template, |template| match template {
            Template::McpUrl => needed(providers.mcp_url.clone(), "mcp_url"),
            Template::McpSocket => needed(providers.mcp_socket.as_deref().map(text), "mcp_socket"),
            Template::Bridge => Ok(text(&providers.program)),
            Template::AgentId => Ok(request.key.agent.to_string()),
            Template::ProjectId => Ok(request.key.project.to_string()),
            Template::WorkingDirectory => Ok(text(&request.working_directory)),
            Template::Workspace => Ok(of_clone(|clone| &clone.tree)),
            Template::Keep => Ok(of_clone(|clone| &clone.keep)),
            Template::LaunchId => Ok(request.launch.to_string()),
            Template::Prompt => Ok((*prompt).to_owned()),
            Template::Conversation => Ok(conversing::session_of(request)),
        })
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
