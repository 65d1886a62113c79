//! The agent CLIs of this machine, as `init` shows them.

use serde::Serialize;

use crate::app::programs::{
    Sight, entries, list_unfit, look_for, program_of_entry, providers, version_of,
};
use crate::cli::doctor::providers::sight_of_login;
use crate::cli::error::CliError;
use crate::config::{Config, EXAMPLE, Environment, Preset, ProviderConfig};
use crate::domain::nearest::nearest;

/// An agent CLI that is installed, or an entry of the configuration.
#[derive(Debug, Serialize)]
pub(super) struct Program {
    pub ai_type: String,
    /// The first line that the program prints for `--version`; missing if it prints none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether there is a login, and how that was seen.
    pub login: String,
    /// The reason why agents do not find it, with the remedy; missing if they find it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The `PATH` with which they find it.
    #[serde(skip)]
    pub path: Option<String>,
    #[serde(skip)]
    has_login: bool,
}

/// Looks for the CLIs of all presets and for the entries of the configuration. CLIs that no
/// launch finds come last. It calls no model and keeps no credential.
pub(super) async fn look(config: &Config, environment: &Environment) -> Vec<Program> {
    let mut found = Vec::new();
    let providers = providers(config, environment);
    for (name, entry) in entries(&providers) {
        let (_, preset) = program_of_entry(&entry);
        let Sight::Found(program) = look_for(name, &providers) else {
            continue;
        };
        let (version, (has_login, login)) = match preset {
            Some(preset) => {
                (version_of(&program).await, sight_of_login(preset, &entry, environment))
            }
            None => (None, (true, "its login is its own matter".to_owned())),
        };
        let ai_type = name.to_owned();
        found.push(Program { ai_type, version, login, problem: None, path: None, has_login });
    }
    for (name, preset, missing) in list_unfit(&providers) {
        let entry = ProviderConfig::of_preset(preset);
        let (has_login, login) = sight_of_login(preset, &entry, environment);
        let path = missing.elsewhere.map(|elsewhere| elsewhere.path);
        found.push(Program {
            ai_type: name.to_owned(),
            version: None,
            login,
            problem: Some(format!("{}; {}", missing.problem, missing.remedy)),
            has_login: has_login && path.is_some(),
            path,
        });
    }
    if !found.iter().any(|program| program.ai_type == EXAMPLE) {
        found.push(Program {
            ai_type: EXAMPLE.to_owned(),
            version: Some(format!("bundled with {}", env!("CARGO_PKG_VERSION"))),
            login: "it needs none".to_owned(),
            problem: None,
            path: None,
            has_login: false,
        });
    }
    found
}

/// Returns the agent that `init` proposes: the first one with a login, else the bundled one.
pub(super) fn best(programs: &[Program]) -> &str {
    let first = programs.iter().find(|program| program.has_login);
    first.map_or(EXAMPLE, |program| &program.ai_type)
}

/// Returns the name if such an agent can be started here.
///
/// # Errors
/// It cannot; the error names the nearest one that can.
pub(super) fn startable(named: &str, programs: &[Program]) -> Result<String, CliError> {
    let names: Vec<&str> = programs.iter().map(|program| program.ai_type.as_str()).collect();
    if names.contains(&named) {
        return Ok(named.to_owned());
    }
    if Preset::ALL.iter().any(|(preset, _)| *preset == named) {
        return Err(CliError::Failed(format!(
            "{named} is not installed; docs/providers.md has the steps. Found: {}",
            names.join(", ")
        )));
    }
    let hint = nearest(named, names.iter().copied())
        .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    Err(CliError::Usage(format!(
        "no agent of the type `{named}` can be started{hint} (found: {})",
        names.join(", ")
    )))
}
