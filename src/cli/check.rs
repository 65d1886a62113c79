//! `check`: is the configuration right, and what would be started?

use std::path::PathBuf;

use super::error::CliError;
use super::output::print_line;
use crate::config::{Environment, Loaded, PassEnvironment, manifest};
use crate::domain::{Guidance, InstanceKey, Purpose, Secret};
use crate::provider::{LaunchRequest, Providers};

/// Shorter values are words or numbers; what begins with a slash is a path.
const MIN_SECRET: usize = 6;

pub(super) fn check(loaded: &Loaded, environment: &Environment) -> Result<(), CliError> {
    let config = &loaded.config;
    let manifest = match &config.manifest {
        Some(path) => Some((path, manifest::load(path, environment).map_err(CliError::Configuration)?)),
        None => None,
    };
    match &loaded.source {
        Some(path) => print_line(&format!("{}: correct", path.display()))?,
        None => print_line("no configuration file found: all settings have their defaults")?,
    }
    if let Some((path, manifest)) = manifest {
        print_line(&format!(
            "{}: correct ({} agents, {} projects, {} tasks)",
            path.display(),
            manifest.agents.len(),
            manifest.projects.len(),
            manifest.tasks.len()
        ))?;
    }
    print_line(&format!("state directory: {}", config.state_dir.display()))?;
    let providers = Providers {
        entries: config.providers.clone(),
        guidance: Guidance::new(config.language),
        environment: environment.variables().collect(),
        mcp_socket: config.mcp_socket.clone(),
        mcp_url: None,
        program: std::env::current_exe().unwrap_or_default(),
    };
    if config.providers.is_empty() {
        print_line("no ai_providers: no agent can be started")?;
    }
    for name in config.providers.keys() {
        print_line("")?;
        for line in describe(name, &providers) {
            print_line(&masked(line, environment))?;
        }
    }
    Ok(())
}

/// A line without the values of variables that a configuration may take secrets from; their names stand in their place.
fn masked(line: String, environment: &Environment) -> String {
    let usual = PassEnvironment::default();
    let mut secrets: Vec<_> = environment
        .variables()
        .filter(|(name, value)| {
            value.len() >= MIN_SECRET && !value.starts_with('/') && !usual.passes(name) && line.contains(value.as_str())
        })
        .collect();
    // Longer ones first: one may be part of another.
    secrets.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
    secrets.into_iter().fold(line, |line, (name, value)| line.replace(&value, &format!("${{{name}}}")))
}

/// The final command of a provider, for a made-up launch.
fn describe(name: &str, providers: &Providers) -> Vec<String> {
    let key = InstanceKey::new(
        "AGENT_ID".parse().expect("a sample id"),
        "PROJECT_ID".parse().expect("a sample id"),
        Purpose::Task,
    );
    let request = LaunchRequest {
        launch: "LAUNCH_ID".parse().expect("a sample id"),
        key,
        ai_type: name.to_owned(),
        working_directory: PathBuf::from("WORKING_DIRECTORY"),
        passkey: Secret::new("[passkey]"),
    };
    let command = match providers.command(&request) {
        Ok(command) => command,
        Err(unknown) => return vec![unknown.to_string()],
    };
    let found = match crate::app::find_program(&command) {
        Ok(found) => format!("  program: {}", found.display()),
        Err(error) => format!("  not startable: {error}"),
    };
    let words: Vec<String> =
        std::iter::once(&command.program).chain(&command.arguments).map(|word| quoted(word)).collect();
    let variables: Vec<&str> = command.environment.iter().map(|(name, _)| name.as_str()).collect();
    let stdin = if command.stdin.is_some() { "the prompt" } else { "nothing" };
    vec![
        format!("provider {name}:"),
        found,
        format!("  command: {}", words.join(" ")),
        format!("  standard input: {stdin}"),
        format!("  variables: {}", variables.join(" ")),
    ]
}

/// A word as a shell would take it.
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
        let environment = Environment::new("/", [("API_KEY", "s3cret-value"), ("PATH", "/usr/bin"), ("N", "1")]);
        let line = "  command: cli --api-key s3cret-value --path /usr/bin -n 1".to_owned();
        assert_eq!(masked(line, &environment), "  command: cli --api-key ${API_KEY} --path /usr/bin -n 1");
    }
}
