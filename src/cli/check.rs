//! `check` checks the configuration and shows the commands that would be started.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::CliError;
use super::output::{Form, print_json, print_line};
use crate::app;
use config::{
    CommandLine, Environment, Loaded, PassEnvironment, Preset, ProviderConfig, Template,
    built_in_names, manifest,
};
use domain::nearest::nearest;
use domain::{
    Attempt, CommandSpec, FileContent, InstanceKey, LaunchFile, Purpose, Secret, ServerAddress,
};
use runtime::telemetry::ErrorChain;
use supervisor::provider::{LaunchRequest, Providers};

/// The least length of a secret. Shorter values are words or numbers. A value that begins with a
/// slash is a path.
const MIN_SECRET: usize = 6;

#[derive(Debug, clap::Args)]
pub(super) struct CheckArguments {
    #[command(flatten)]
    form: Form,
}

/// The answer for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    is_good: bool,
    /// The reason why the daemon cannot do its work.
    problem: Option<String>,
    /// The file that is used; none if all settings have their defaults.
    configuration: Option<PathBuf>,
    /// The lines that people see.
    lines: Vec<String>,
}

/// Prints lines for people at once, or collects them for a program.
struct Printer {
    form: Form,
    lines: Vec<String>,
}

impl Printer {
    fn line(&mut self, line: &str) -> Result<(), CliError> {
        if self.form.json {
            self.lines.push(line.to_owned());
            return Ok(());
        }
        print_line(line)
    }
}

impl CheckArguments {
    pub(super) fn run(self, loaded: &Loaded, environment: &Environment) -> Result<(), CliError> {
        let mut printer = Printer { form: self.form, lines: Vec::new() };
        let checked = check(loaded, environment, &mut printer);
        let problem = match &checked {
            Ok(()) => None,
            Err(CliError::Failed(problem)) => Some(problem.clone()),
            // The configuration cannot be used, and the error says so.
            Err(_) => return checked,
        };
        if self.form.json {
            print_json(&Answer {
                is_good: problem.is_none(),
                problem,
                configuration: loaded.source.clone(),
                lines: printer.lines,
            })?;
        }
        checked
    }
}

/// Returns the URL of MCP at this address. Only a start finds a free port.
fn url_of(address: SocketAddr) -> String {
    let address = address.to_string();
    match address.strip_suffix(":0") {
        Some(host) => format!("http://{host}:PORT/mcp"),
        None => format!("http://{address}/mcp"),
    }
}

fn check(
    loaded: &Loaded,
    environment: &Environment,
    printer: &mut Printer,
) -> Result<(), CliError> {
    let config = &loaded.config;
    let manifest =
        manifest::load_configured(config, environment).map_err(CliError::Configuration)?;
    // This check comes before the output calls anything correct.
    app::check_users(config)
        .map_err(|problem| CliError::File(format!("agent-coordinator: {problem}\n")))?;
    match &loaded.source {
        Some(path) => printer.line(&format!("{}: correct", path.display()))?,
        None => printer.line("no configuration file found: all settings have their defaults")?,
    }
    if let (Some(path), Some(manifest)) = (&config.general.manifest, &manifest) {
        printer.line(&format!(
            "{}: correct ({} agents, {} projects, {} tasks)",
            path.display(),
            manifest.wanted.agents.len(),
            manifest.wanted.projects.len(),
            manifest.wanted.tasks.len()
        ))?;
    }
    let warning = app::check_state_dir(&config.paths.state_dir)
        .map_err(|problem| CliError::File(format!("agent-coordinator: {problem}\n")))?;
    printer.line(&format!("state directory: {}", config.paths.state_dir.display()))?;
    if let Some(warning) = warning {
        printer.line(&format!("warning: {warning}"))?;
    }
    let store = app::look_at_store(&config.store);
    match &store {
        Ok(lines) => lines.iter().try_for_each(|line| printer.line(line))?,
        Err(problem) => printer.line(&format!("store: {}", ErrorChain(problem.as_ref())))?,
    }
    let kept_port = app::kept_port(&config.paths.state_dir).map_err(|error| {
        CliError::File(format!(
            "agent-coordinator: could not read the kept port for HTTP: {error}\n"
        ))
    })?;
    let address = config.http.expected_address(kept_port);
    let url = address.map(url_of);
    let of_port = match address {
        Some(address) if address.port() == 0 => " (PORT is a free port)",
        Some(_) | None => "",
    };
    let http = match &url {
        Some(url) if config.http.agents => format!("{url}{of_port}"),
        Some(url) => format!("{url}{of_port} (not for agents)"),
        None => "off".to_owned(),
    };
    printer.line(&format!("MCP: unix:{}, HTTP {http}", config.paths.mcp_socket_path.display()))?;
    if config.paths.server != ServerAddress::Socket(config.paths.mcp_socket_path.clone()) {
        printer.line(&format!("server of `supervise`: {}", config.paths.server))?;
    }
    if matches!(config.paths.server, ServerAddress::Url(_)) && !config.http.agents {
        printer.line(
            "warning: `http.agents` is off: agents of `supervise` reach that server over HTTP only",
        )?;
    }
    let secrets = app::secrets(config, manifest.as_ref());
    for setting in secrets.too_short() {
        printer.line(&format!(
            "warning: the secret in `{setting}` has fewer than 12 characters: it is not taken out of what agents write and print"
        ))?;
    }
    let providers = Providers {
        withheld: secrets.withheld(),
        withheld_variables: secrets.variables().clone(),
        redacted: secrets.redacted(),
        mcp_url: url.filter(|_| config.http.agents),
        host: app::programs::HOST,
        ..app::programs::providers(config, environment)
    };
    let agents = manifest.map(|manifest| manifest.wanted.agents).unwrap_or_default();
    let ai_types: BTreeSet<&str> = agents.iter().map(|agent| agent.ai_type.as_str()).collect();
    let in_need = names_of(&ai_types, &providers)
        .into_iter()
        .filter(|name| providers.http_need(name).is_some());
    let in_need: Vec<&str> = in_need.collect();
    if providers.mcp_url.is_none() && !in_need.is_empty() {
        let setting = if config.http.agents { "http.listen" } else { "http.agents" };
        printer.line(&format!(
            "warning: `{setting}` is off, and these providers need HTTP: {}",
            in_need.join(", ")
        ))?;
    }
    let Described { lines, absent, not_startable } = describe_all(&ai_types, &providers);
    for line in lines {
        printer.line(&masked(line, environment))?;
    }
    if store.is_err() {
        return Err(CliError::Failed(format!(
            "the server can't use its store {}",
            config.store.url
        )));
    }
    // The providers of presets always exist, so that only these count.
    let counted = names_of(&ai_types, &providers);
    let not_startable: Vec<&str> =
        counted.iter().copied().filter(|name| not_startable.contains(*name)).collect();
    if !not_startable.is_empty() {
        return Err(CliError::Failed(format!(
            "these providers are not startable: {}",
            not_startable.join(", ")
        )));
    }
    let absent: Vec<&str> = counted.iter().copied().filter(|name| absent.contains(*name)).collect();
    if absent.is_empty() {
        return Ok(());
    }
    let kept = agents.iter().filter(|agent| absent.contains(&providers.find(&agent.ai_type).0));
    let kept: Vec<&str> = kept.map(|agent| agent.id.as_str()).collect();
    let problem = format!("the programs of these providers were not found: {}", absent.join(", "));
    let problem = match kept.as_slice() {
        [] => problem,
        kept => format!("{problem}; these agents of the manifest can't start: {}", kept.join(", ")),
    };
    // Without agents, one of the configured providers is enough.
    let needed: BTreeSet<&str> = ai_types.iter().map(|ai_type| providers.find(ai_type).0).collect();
    let decisive = if needed.is_empty() { &counted } else { &needed };
    if decisive.iter().all(|name| absent.contains(name)) {
        return Err(CliError::Failed(problem));
    }
    printer.line(&format!("\nwarning: {problem}"))
}

/// The description of some providers.
#[derive(Default)]
struct Described {
    lines: Vec<String>,
    /// The providers whose program or wrapper does not exist on this machine.
    absent: BTreeSet<String>,
    /// The providers that the configuration makes impossible to start.
    not_startable: BTreeSet<String>,
}

impl Described {
    fn add(&mut self, name: &str, providers: &Providers, absent: Absent) {
        let (lines, start) = describe(name, providers, absent);
        self.lines.extend(lines);
        match start {
            Start::Possible => {}
            Start::NoProgram => {
                self.absent.insert(name.to_owned());
            }
            Start::Impossible => {
                self.not_startable.insert(name.to_owned());
            }
        }
    }
}

/// The possibility to start a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    Possible,
    /// This machine lacks its program or its wrapper.
    NoProgram,
    /// The configuration has no command for it.
    Impossible,
}

/// Returns the configured providers and those that agents of these types need.
fn names_of<'a>(ai_types: &BTreeSet<&str>, providers: &'a Providers) -> BTreeSet<&'a str> {
    let needed = ai_types.iter().map(|ai_type| providers.find(ai_type).0);
    providers.entries.keys().map(String::as_str).chain(needed).collect()
}

/// Returns the names of the configured providers and of the built-in ones.
fn known_names(providers: &Providers) -> impl Iterator<Item = &str> {
    providers.entries.keys().map(String::as_str).chain(built_in_names())
}

/// Describes the configured providers and those that the manifest's agents need; if there are none,
/// all presets.
fn describe_all(ai_types: &BTreeSet<&str>, providers: &Providers) -> Described {
    let names = names_of(ai_types, providers);
    let mut described = Described::default();
    if names.is_empty() {
        let presets = Preset::ALL.map(|(name, _)| name).join(", ");
        described.lines.push(format!(
            "no ai_providers: agents are started by the presets of these names: {presets}"
        ));
        for (name, _) in Preset::ALL {
            described.add(name, providers, Absent::IsNotShown);
        }
        return described;
    }
    for ai_type in ai_types {
        let (name, _) = providers.find(ai_type);
        if name != *ai_type {
            let meant = nearest(ai_type, known_names(providers))
                .map(|meant| format!(" (did you mean `{meant}`?)"))
                .unwrap_or_default();
            described.lines.push(format!(
                "warning: ai_type {ai_type}: no provider of this name{meant}; `run` refuses it \
                 for a new agent, and an agent that has it already is started as {name}"
            ));
        }
    }
    for name in names {
        described.add(name, providers, Absent::IsShown);
    }
    described
}

/// Returns the line with the names of variables in place of their values. It hides the variables
/// that a configuration may take secrets from.
fn masked(line: String, environment: &Environment) -> String {
    let usual = PassEnvironment::default();
    let mut secrets: Vec<_> = environment
        .variables()
        .filter(|(name, value)| {
            value.len() >= MIN_SECRET
                && !value.starts_with('/')
                && !usual.passes(name)
                && line.contains(value.as_str())
        })
        .collect();
    // Longer values come first, because one may be part of another.
    secrets.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
    secrets
        .into_iter()
        .fold(line, |line, (name, value)| line.replace(&value, &format!("${{{name}}}")))
}

/// The handling of a command whose program does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Absent {
    IsShown,
    IsNotShown,
}

/// Returns the final command of a provider for a made-up launch, and whether it can be started.
fn describe(name: &str, providers: &Providers, absent: Absent) -> (Vec<String>, Start) {
    let key = InstanceKey::new(
        "AGENT_ID".parse().expect("a sample id"),
        "PROJECT_ID".parse().expect("a sample id"),
        Purpose::Task,
    );
    let request = LaunchRequest {
        clone: None,
        launch: "LAUNCH_ID".parse().expect("a sample id"),
        key,
        ai_type: name.to_owned(),
        working_directory: PathBuf::from("WORKING_DIRECTORY"),
        passkey: Secret::new("[passkey]"),
        attempt: Attempt::FIRST,
        conversation: None,
        last_call: None,
    };
    let mut lines = vec![String::new(), format!("provider {name}:")];
    let http_need = providers.http_need(name);
    lines.extend(http_need.map(|need| format!("  needs HTTP: {}", need.as_str())));
    let command = match providers.command(&request) {
        Ok(command) => command,
        Err(error) => {
            lines.push(format!("  not startable: {error}"));
            return (lines, Start::Impossible);
        }
    };
    let mut start = Start::Possible;
    let unstartable = app::anywhere(command.clone())
        .and_then(|command| app::find_unstartable(&command, name, providers));
    match app::find_program(&command) {
        Ok(found) => lines.push(format!("  program: {}", found.display())),
        Err(error) => {
            start = Start::NoProgram;
            let path = command.environment.iter().find(|(name, _)| name == "PATH");
            lines.push(format!("  not startable: {error}"));
            lines.push(format!(
                "  looked in: {}",
                path.map_or("no PATH is set", |(_, path)| path.reveal())
            ));
            let elsewhere = unstartable.as_ref().filter(|it| it.elsewhere.is_some());
            lines.extend(match elsewhere {
                Some(unstartable) => Some(format!("  {}", unstartable.remedy)),
                None => providers.installation(name).map(|how| format!("  to install it: {how}")),
            });
            if absent == Absent::IsNotShown {
                return (lines, start);
            }
        }
    }
    if let Some(wrapper) = command.wrap.first() {
        let of_wrapper = CommandSpec { program: wrapper.clone(), ..command.clone() };
        lines.push(match app::find_program(&of_wrapper) {
            Ok(found) => format!("  started by: {}", found.display()),
            Err(error) => {
                start = Start::NoProgram;
                format!("  not startable: {error}")
            }
        });
    }
    // A program that is named by its path, and an interpreter, may be missing as well.
    if let Some(unstartable) = unstartable.filter(|_| start == Start::Possible) {
        start = Start::NoProgram;
        lines.push(format!("  not startable: {unstartable}"));
    }
    lines.extend(without_clones(&providers.find(name).1));
    lines.extend(
        command.run_as.as_ref().map(|user| format!("  user: {} ({})", user.name, user.uid)),
    );
    let words =
        command.wrap.iter().chain(std::iter::once(&command.program)).chain(&command.arguments);
    let words: Vec<String> = words.map(|word| quoted(word)).collect();
    let variables: Vec<&str> = command.environment.iter().map(|(name, _)| name.as_str()).collect();
    let stdin = if command.stdin.is_some() { "the prompt" } else { "nothing" };
    lines.extend(hint(&providers.find(name).1));
    lines.push(format!("  command: {}", words.join(" ")));
    lines.push(format!("  standard input: {stdin}"));
    lines.push(format!("  variables: {}", variables.join(" ")));
    lines.extend(command.files.iter().map(|LaunchFile { path, content }| match content {
        FileContent::Text(text) => {
            format!(
                "  file {}: {}",
                path.display(),
                text.split_whitespace().collect::<Vec<_>>().join(" ")
            )
        }
        FileContent::Link(target) => {
            format!("  link {}: {}", path.display(), target.display())
        }
    }));
    (lines, start)
}

/// Returns a hint about a preset, if the entry only names the program of a CLI that has one.
fn hint(provider: &ProviderConfig) -> Option<String> {
    let CommandLine::Own { program, .. } = &provider.command_line else {
        return None;
    };
    let program = Path::new(program).file_name()?.to_str()?;
    let (name, _) = Preset::ALL.into_iter().find(|(name, _)| *name == program)?;
    Some(format!(
        "  hint: `preset: {name}` would give it the coordinator's tools (docs/providers.md)"
    ))
}

/// Returns the advice for a sandbox in which agents cannot use clones.
fn without_clones(provider: &ProviderConfig) -> Option<String> {
    let wrapper = Path::new(provider.wrap.first()?).file_name()?;
    let has_keep = provider.wrap.iter().any(|word| Template::Keep.is_in(word));
    let has_all = provider.wrap.windows(2).any(|pair| pair.iter().all(|path| path == "/"));
    (wrapper == "bwrap" && !has_keep && !has_all).then(|| {
        "  clones: projects with `workspace: clone` need two folders in the sandbox: `--ro-bind, \
         \"{keep}\", \"{keep}\"`, then `--bind, \"{workspace}\", \"{workspace}\"` \
         (docs/isolation.md)"
            .to_owned()
    })
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./=:@%+,".contains(&b);
    if !word.is_empty() && word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_variables_are_not_shown() {
        let environment =
            Environment::new("/", [("API_KEY", "s3cret-value"), ("PATH", "/usr/bin"), ("N", "1")]);
        let line = "  command: cli --api-key s3cret-value --path /usr/bin -n 1".to_owned();
        assert_eq!(
            masked(line, &environment),
            "  command: cli --api-key ${API_KEY} --path /usr/bin -n 1"
        );
    }
}
