//! The findings of `doctor` about the CLIs of agents: their programs, users and logins.

use super::{Finding, State};
use crate::app;
use crate::app::programs::{self, ProgramSearch};
use config::{Config, Environment, Preset, ProviderConfig};
use supervisor::provider::{Login, installation_of};

pub(super) fn users(config: &Config) -> Option<Finding> {
    let subject = "users";
    if let Err(error) = app::check_users(config) {
        return Some(Finding::new(State::Problem, subject, error.to_string(), ""));
    }
    let is_root = rustix::process::geteuid().is_root();
    let has_users = config.providers.values().any(|provider| provider.run_as.is_some());
    (is_root && !has_users).then(|| {
        let remedy = "run the daemon as an ordinary user, or set `run_as` (docs/isolation.md)";
        Finding::new(State::Warning, subject, "agents run as root", remedy)
    })
}

/// Returns the finding that the daemon may see other programs and logins than this command.
pub(super) fn other_environment() -> Finding {
    let found = "programs and logins were looked up with the variables of this command, such as PATH; \
                 the daemon that runs has its own";
    let remedy = "if they differ, run `doctor` as the daemon is started, such as in its unit";
    Finding::new(State::Unknown, "environment", found, remedy)
}

/// Returns a finding for each configured provider, and for each CLI of a preset that is installed,
/// also if no launch finds it.
pub(super) fn logins(config: &Config, environment: &Environment) -> Vec<Finding> {
    let providers = programs::providers(config, environment);
    let listed = programs::list(&providers).into_iter();
    let found = listed.map(|(name, entry, sight)| {
        let is_configured = providers.entries.contains_key(name);
        look(name, &entry, sight, is_configured, environment)
    });
    let findings: Vec<Finding> = found.collect();
    if findings.is_empty() {
        let names = Preset::ALL.map(|(name, _)| name).join(", ");
        let remedy = "install one of them; docs/providers.md has the steps";
        let found = format!("no agent CLI is installed (looked for: {names})");
        return vec![Finding::new(State::Warning, "agent CLIs", found, remedy)];
    }
    findings
}

fn look(
    name: &str,
    entry: &ProviderConfig,
    sight: ProgramSearch,
    is_configured: bool,
    environment: &Environment,
) -> Finding {
    let subject = format!("provider {name}");
    let (program, preset) = programs::program_of_entry(entry);
    let found = match sight {
        ProgramSearch::Found(found) => found.display().to_string(),
        ProgramSearch::Unknown => format!("`{program}`, which only a start looks for"),
        ProgramSearch::Missing(missing) => {
            let state = if is_configured { State::Problem } else { State::Warning };
            return Finding::new(state, &subject, missing.problem, &missing.remedy);
        }
    };
    let Some(preset) = preset else {
        return Finding::ok(&subject, format!("{found}; its login is its own matter"));
    };
    if let Some(user) = &entry.run_as {
        let text = format!("{found}; login unknown, because it runs as `{user}`");
        return Finding::new(State::Unknown, &subject, text, "");
    }
    let (state, login) = state_of_login(preset, entry, environment);
    let remedy = match state {
        State::Problem => installation_of(preset),
        State::Unknown => "start the CLI once by hand to see",
        State::Ok | State::Warning => "",
    };
    Finding::new(state, &subject, format!("{found}; {login}"), remedy)
}

/// Returns whether a CLI has a login, and a text that says how that was seen.
pub(in crate::cli) fn sight_of_login(
    preset: Preset,
    entry: &ProviderConfig,
    environment: &Environment,
) -> (bool, String) {
    let (state, login) = state_of_login(preset, entry, environment);
    (state == State::Ok, login)
}

fn state_of_login(
    preset: Preset,
    entry: &ProviderConfig,
    environment: &Environment,
) -> (State, String) {
    match programs::login(preset, entry, environment) {
        Login::Variable(variable) => {
            (State::Ok, format!("login: yes (the variable {variable} is set)"))
        }
        Login::File(path) => (State::Ok, format!("login: yes ({} exists)", path.display())),
        Login::Unknown => {
            (State::Unknown, "login: unknown (the CLI keeps it where only it looks)".to_owned())
        }
        Login::No(looked) => {
            let looked: Vec<String> =
                looked.iter().map(|path| path.display().to_string()).collect();
            let looked = looked.join(" or ");
            (State::Problem, format!("login: no (no variable for it, and no {looked})"))
        }
    }
}
