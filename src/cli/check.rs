//! `check`: is the configuration right, and what would be started?

use std::path::PathBuf;

use super::error::CliError;
use super::output::print_line;
use crate::config::{Environment, Loaded, manifest};
use crate::domain::{Guidance, InstanceKey, Purpose, Secret};
use crate::provider::{LaunchRequest, Providers};

pub(super) fn check(loaded: &Loaded, environment: &Environment) -> Result<(), CliError> {
    let config = &loaded.config;
    match &loaded.source {
        Some(path) => print_line(&format!("{}: correct", path.display()))?,
        None => print_line("no configuration file found: all settings have their defaults")?,
    }
    if let Some(path) = &config.manifest {
        let manifest = manifest::load(path, environment).map_err(CliError::Configuration)?;
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
        program: std::env::current_exe().unwrap_or_default(),
    };
    if config.providers.is_empty() {
        print_line("no ai_providers: no agent can be started")?;
    }
    for name in config.providers.keys() {
        print_line("")?;
        for line in describe(name, &providers) {
            print_line(&line)?;
        }
    }
    Ok(())
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
