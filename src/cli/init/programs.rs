//! The agent CLIs of this machine, as `init` shows them.

use serde::Serialize;

use crate::app::programs::{ProgramSearch, list, program_of_entry, providers, version_of};
use crate::cli::doctor::providers::sight_of_login;
use crate::cli::error::CliError;
use config::{Config, EXAMPLE, Environment, Preset};
use domain::nearest::nearest;

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
    for (name, entry, sight) in list(&providers) {
        let (_, preset) = program_of_entry(&entry);
        let (has_login, login) = match preset {
            Some(preset) => sight_of_login(preset, &entry, environment),
            None => (true, "its login is its own matter".to_owned()),
        };
        let mut program = Program {
            ai_type: name.to_owned(),
            version: None,
            login,
            problem: None,
            path: None,
            has_login,
        };
        match sight {
            ProgramSearch::Found(file) if preset.is_some() => {
                program.version = version_of(&file).await;
            }
            ProgramSearch::Found(_) => {}
            ProgramSearch::Missing(missing) if !providers.entries.contains_key(name) => {
                program.problem = Some(format!("{}; {}", missing.problem, missing.remedy));
                let complete = missing.elsewhere.filter(|elsewhere| elsewhere.lacks.is_none());
                program.path = complete.map(|elsewhere| elsewhere.path);
                program.has_login &= program.path.is_some();
            }
            ProgramSearch::Missing(_) | ProgramSearch::Unknown => continue,
        }
        found.push(program);
    }
    found.sort_by_key(|program| program.problem.is_some());
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
