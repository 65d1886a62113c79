//! From a launch to a command line, purely: what is started for an `ai_type`, with which words, environment and prompt.
//!
//! Knows the configuration of providers and nothing of processes. Called by `coordinator`, and by `cli check` to show what
//! would be started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::config::{PromptVia, ProviderConfig};
use crate::domain::agent::DEFAULT_AI_TYPE;
use crate::domain::{CommandSpec, Guidance, InstanceKey, LaunchId, Secret};

/// What is to be started.
#[derive(Debug, Clone)]
pub struct LaunchRequest {
    pub launch: LaunchId,
    pub key: InstanceKey,
    pub ai_type: String,
    pub working_directory: PathBuf,
    /// Stands for the passkey: the launch ticket, or the passkey itself where the server gave no ticket.
    pub passkey: Secret,
}

/// All that command lines are made from, besides the launch.
#[derive(Debug, Clone)]
pub struct Providers {
    pub entries: BTreeMap<String, ProviderConfig>,
    pub guidance: Guidance,
    /// The daemon's own environment; each provider says what of it is passed on.
    pub environment: BTreeMap<String, String>,
    /// Where the agent reaches the server.
    pub mcp_socket: PathBuf,
    /// The same over HTTP, where the server listens for that.
    pub mcp_url: Option<String>,
    /// The daemon's own program, for agents that are scripts.
    pub program: PathBuf,
}

/// No way is known to start this `ai_type`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no provider for ai_type `{ai_type}`: add ai_providers.{ai_type}, or ai_providers.claude for all without an entry"
)]
pub struct UnknownProvider {
    ai_type: String,
}

impl Providers {
    /// The provider that starts `ai_type`: its entry, else `claude`'s (seed 004). Its name comes with it.
    pub fn find(&self, ai_type: &str) -> Option<(&str, &ProviderConfig)> {
        let entry = self.entries.get_key_value(ai_type).or_else(|| self.entries.get_key_value(DEFAULT_AI_TYPE));
        entry.map(|(name, provider)| (name.as_str(), provider))
    }

    /// The command line of a launch.
    ///
    /// # Errors
    /// [`UnknownProvider`].
    pub fn command(&self, request: &LaunchRequest) -> Result<CommandSpec, UnknownProvider> {
        let (_, provider) =
            self.find(&request.ai_type).ok_or_else(|| UnknownProvider { ai_type: request.ai_type.clone() })?;
        let shown = (provider.passkey_in_prompt || provider.prompt == PromptVia::Stdin).then_some(&request.passkey);
        let prompt = self.guidance.prompt(&request.key, &request.working_directory, shown);
        let mut arguments = provider.cli_args.clone();
        let stdin = match provider.prompt {
            PromptVia::Argument => {
                arguments.extend(["-p".to_owned(), prompt]);
                None
            }
            PromptVia::Stdin => Some(Secret::new(prompt)),
        };
        Ok(CommandSpec {
            program: provider.cli_command.clone(),
            arguments,
            environment: self.environment_of(provider, request),
            working_directory: request.working_directory.clone(),
            stdin,
            redact: vec![request.passkey.clone()],
        })
    }

    /// What the provider passes on, then what it sets, then what is the launch's own: nothing overrides that.
    fn environment_of(&self, provider: &ProviderConfig, request: &LaunchRequest) -> Vec<(String, Secret)> {
        let path = |path: &Path| Secret::new(path.to_string_lossy());
        let passed = self.environment.iter().filter(|(name, _)| provider.pass_environment.passes(name));
        let mut variables: BTreeMap<String, Secret> =
            passed.map(|(name, value)| (name.clone(), Secret::new(value.as_str()))).collect();
        variables.extend(provider.environment.clone());
        let own = [
            ("AGENT_ID", Secret::new(request.key.agent.as_str())),
            ("PROJECT_ID", Secret::new(request.key.project.as_str())),
            ("AGENT_PASSKEY", request.passkey.clone()),
            ("WORKING_DIRECTORY", path(&request.working_directory)),
            ("AGENT_LAUNCH_ID", Secret::new(request.launch.as_str())),
            ("COORDINATOR_MCP_SOCKET", path(&self.mcp_socket)),
            ("AGENT_COORDINATOR", path(&self.program)),
        ];
        variables.extend(self.mcp_url.as_deref().map(|url| ("COORDINATOR_MCP_URL".to_owned(), Secret::new(url))));
        variables.extend(own.map(|(name, value)| (name.to_owned(), value)));
        variables.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Language, Purpose};

    fn providers(provider: ProviderConfig) -> Providers {
        Providers {
            entries: BTreeMap::from([("claude".to_owned(), provider)]),
            guidance: Guidance::new(Language::Japanese),
            environment: BTreeMap::from([
                ("PATH".to_owned(), "/bin".to_owned()),
                ("DEV_PASSKEY".to_owned(), "somebody's secret".to_owned()),
            ]),
            mcp_socket: PathBuf::from("/run/mcp.sock"),
            mcp_url: Some("http://127.0.0.1:7420/mcp".to_owned()),
            program: PathBuf::from("/bin/agent-coordinator"),
        }
    }

    fn request(ai_type: &str) -> LaunchRequest {
        LaunchRequest {
            launch: "lch_1".parse().expect("an id"),
            key: InstanceKey::new("agt_x".parse().expect("an id"), "prj_a".parse().expect("an id"), Purpose::Task),
            ai_type: ai_type.to_owned(),
            working_directory: PathBuf::from("/proj_a"),
            passkey: Secret::new("tkt_secret"),
        }
    }

    fn with_seed_arguments() -> ProviderConfig {
        let arguments = vec!["--dangerously-skip-permissions".to_owned()];
        ProviderConfig { cli_args: arguments, ..ProviderConfig::new("claude") }
    }

    #[test]
    fn an_entry_with_the_seeds_keys_is_started_in_the_seeds_shape() {
        let command = providers(with_seed_arguments()).command(&request("claude")).expect("a provider");
        assert_eq!(command.program, "claude");
        assert_eq!(command.arguments[..2], ["--dangerously-skip-permissions", "-p"]);
        assert_eq!(command.arguments.len(), 3);
        assert!(command.stdin.is_none());
    }

    #[test]
    fn no_argument_holds_the_passkey() {
        let command = providers(with_seed_arguments()).command(&request("claude")).expect("a provider");
        assert!(command.arguments.iter().all(|argument| !argument.contains("tkt_secret")));
    }

    #[test]
    fn passkey_in_prompt_restores_the_seeds_text() {
        let provider = ProviderConfig { passkey_in_prompt: true, ..with_seed_arguments() };
        let command = providers(provider).command(&request("claude")).expect("a provider");
        assert!(command.arguments[2].contains(r#"authenticate(agent_id="agt_x", passkey="tkt_secret""#));
    }

    #[test]
    fn an_unknown_ai_type_is_started_as_claude() {
        let command = providers(with_seed_arguments()).command(&request("gpt")).expect("a provider");
        assert_eq!(command.program, "claude");
        let none = Providers { entries: BTreeMap::new(), ..providers(with_seed_arguments()) };
        assert!(none.command(&request("gpt")).is_err());
    }

    #[test]
    fn the_environment_is_the_launchs_and_what_the_provider_passes() {
        let command = providers(with_seed_arguments()).command(&request("claude")).expect("a provider");
        let value = |name: &str| {
            let found = command.environment.iter().find(|(each, _)| each == name);
            found.map(|(_, value)| value.reveal().to_owned())
        };
        assert_eq!(value("AGENT_ID").as_deref(), Some("agt_x"));
        assert_eq!(value("PROJECT_ID").as_deref(), Some("prj_a"));
        assert_eq!(value("AGENT_PASSKEY").as_deref(), Some("tkt_secret"));
        assert_eq!(value("WORKING_DIRECTORY").as_deref(), Some("/proj_a"));
        assert_eq!(value("PATH").as_deref(), Some("/bin"));
        assert_eq!(value("DEV_PASSKEY"), None);
    }
}
