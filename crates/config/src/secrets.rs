//! The secrets of the configuration. Agents must not get them, and stored or sent text must not
//! contain them.

use std::collections::BTreeSet;

use super::Config;
use super::manifest::Manifest;
use domain::Secret;
use domain::redact::is_long_enough;

/// The ends of the names of variables that hold a login.
const LOGIN_VARIABLES: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSKEY", "CREDENTIAL"];

/// Secrets, each with the setting that holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    /// The secrets that agents must not have.
    own: Vec<(String, Secret)>,
    /// The secrets that a provider gives to its agents.
    given: Vec<(String, Secret)>,
    /// The paths of files that hold a secret.
    files: Vec<Secret>,
    /// The variables from which a secret setting was completed.
    variables: BTreeSet<String>,
}

impl Secrets {
    /// Returns the secrets of the configuration file itself.
    pub fn of(config: &Config) -> Self {
        let mut secrets = Self { variables: config.secret_variables.clone(), ..Self::default() };
        if let Some(token) = &config.general.coordinator_token {
            secrets.add("coordinator_token", token.clone());
        }
        if let Some(password) = &config.store.password {
            secrets.add("store.password", password.clone());
        }
        if let Some(path) = &config.store.password_file {
            secrets.files.push(Secret::new(path.to_string_lossy()));
        }
        for (agent, credentials) in &config.agents {
            secrets.add(format!("agents.{agent}.passkey"), credentials.passkey.clone());
        }
        for (section, host) in config.forges.sections() {
            match &host.account.token_file {
                Some(path) => secrets.files.push(Secret::new(path.to_string_lossy())),
                None => secrets.add(format!("{section}.token"), host.account.token.clone()),
            }
        }
        if let Some(webhook) = &config.forges.webhook {
            secrets.add("forge.webhook.secret", webhook.secret.clone());
        }
        for (name, provider) in &config.providers {
            for (variable, value) in &provider.environment {
                // A template or a path is not a secret.
                let is_login = is_login(variable)
                    && !value.reveal().contains('{')
                    && !value.reveal().starts_with('/');
                if is_login {
                    secrets.given.push((
                        format!("ai_providers.{name}.environment.{variable}"),
                        value.clone(),
                    ));
                }
            }
        }
        secrets
    }

    /// Adds the secret that `setting` holds.
    pub fn add(&mut self, setting: impl Into<String>, secret: Secret) {
        self.own.push((setting.into(), secret));
    }

    /// Adds the secrets of the manifest.
    pub fn add_manifest(&mut self, manifest: &Manifest) {
        for agent in &manifest.wanted.agents {
            if let Some(passkey) = &agent.passkey {
                self.add(format!("agents.{}.passkey (manifest)", agent.id), passkey.clone());
            }
        }
        self.variables.extend(manifest.secret_variables.iter().cloned());
    }

    /// Returns the values that a variable of an agent must not contain.
    pub fn withheld(&self) -> Vec<Secret> {
        self.own.iter().map(|(_, secret)| secret).chain(&self.files).cloned().collect()
    }

    /// Returns the variables that agents must not get. Their values do not matter.
    pub const fn variables(&self) -> &BTreeSet<String> {
        &self.variables
    }

    /// Returns the secrets that are removed from stored and sent text.
    pub fn redacted(&self) -> Vec<Secret> {
        let all = self.own.iter().chain(&self.given).map(|(_, secret)| secret);
        all.filter(|secret| is_long_enough(secret.reveal())).cloned().collect()
    }

    /// Returns the settings whose secrets are too short to be removed from text.
    pub fn too_short(&self) -> impl Iterator<Item = &str> {
        let short = self.own.iter().filter(|(_, secret)| !is_long_enough(secret.reveal()));
        short.map(|(setting, _)| setting.as_str())
    }
}

fn is_login(variable: &str) -> bool {
    let name = variable.to_ascii_uppercase();
    LOGIN_VARIABLES.iter().any(|end| name.strip_suffix('S').unwrap_or(&name).ends_with(end))
}
