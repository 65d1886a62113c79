//! `doctor` looks at everything that a daemon needs and reports it in one list with remedies. It
//! changes nothing, starts no agent CLI, and shows no credential.

mod barrier;
mod machine;
pub(super) mod providers;

use clap::Args;
use serde::Serialize;

use super::client::Client;
use super::error::CliError;
use super::output::{self, Form};
use crate::app;
use api::status::StatusBody;
use barrier::Barrier;
use config::{Config, Environment, Loaded};
use runtime::telemetry::ErrorChain;

#[derive(Debug, Args)]
pub(super) struct DoctorArguments {
    /// Do not ask the forges
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    form: Form,
}

/// The state of one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    /// It cannot be seen from here.
    Unknown,
    /// It works, and a person should know something about it.
    Warning,
    /// It keeps the daemon or its agents from their work.
    Problem,
}

impl State {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// The state of one thing.
#[derive(Debug, Serialize)]
struct Finding {
    state: State,
    /// The thing, such as `store` or `login of codex`.
    subject: String,
    found: String,
    /// The action that mends it; empty if none is needed.
    remedy: String,
}

impl Finding {
    fn new(state: State, subject: &str, found: impl Into<String>, remedy: &str) -> Self {
        Self { state, subject: subject.to_owned(), found: found.into(), remedy: remedy.to_owned() }
    }

    fn ok(subject: &str, found: impl Into<String>) -> Self {
        Self::new(State::Ok, subject, found, "")
    }

    /// Returns the finding that this user could not look at a thing.
    fn hidden(subject: &str, barrier: &Barrier) -> Self {
        Self::new(State::Unknown, subject, barrier.found(), &barrier.remedy())
    }
}

#[derive(Serialize)]
struct Report<'a> {
    is_good: bool,
    findings: &'a [Finding],
}

impl DoctorArguments {
    pub(super) fn run(self, loaded: &Loaded, environment: &Environment) -> Result<(), CliError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let config = &loaded.config;
        let mut findings = vec![configuration(loaded)];
        findings.extend(manifest(config, environment));
        let barrier = Barrier::to_use_of(&config.paths.state_dir);
        let of_daemon = match &barrier {
            Some(barrier) => vec![Finding::hidden("daemon", barrier)],
            None => runtime.block_on(daemon(config)),
        };
        let is_up = of_daemon.iter().any(|each| each.state == State::Ok);
        findings.extend(of_daemon);
        findings.push(machine::state_dir(config));
        findings.extend(machine::sockets(config));
        findings.push(store(config));
        findings.extend(machine::disks(config));
        findings.push(machine::clock(config));
        findings.push(machine::service_manager(environment));
        findings.push(runtime.block_on(shims()));
        findings.push(runtime.block_on(git(config)));
        findings.extend(machine::upgrades(config));
        let clones = config.workspace.root_in(&config.paths.state_dir);
        let hidden = Barrier::to_list_of(&clones);
        findings.extend(hidden.map(|barrier| Finding::hidden("clones of tasks", &barrier)));
        findings.extend(providers::users(config));
        findings.extend(providers::logins(config, environment));
        findings.extend((is_up || barrier.is_some()).then(providers::other_environment));
        if !self.offline {
            findings.extend(runtime.block_on(forges(config)));
        }
        let n_problems = findings.iter().filter(|each| each.state == State::Problem).count();
        let is_good = n_problems == 0;
        if self.form.json {
            output::print_json(&Report { is_good, findings: &findings })?;
        } else {
            for finding in &findings {
                print(finding)?;
            }
        }
        match n_problems {
            0 => Ok(()),
            1 => Err(CliError::Failed("there is 1 problem".to_owned())),
            n => Err(CliError::Failed(format!("there are {n} problems"))),
        }
    }
}

fn print(finding: &Finding) -> Result<(), CliError> {
    let Finding { state, subject, found, remedy } = finding;
    output::print_line(&format!("{:<8} {subject}: {}", state.as_str(), output::plain(found)))?;
    if remedy.is_empty() {
        return Ok(());
    }
    output::print_line(&format!("{:<8} -> {remedy}", ""))
}

fn configuration(loaded: &Loaded) -> Finding {
    let subject = "configuration";
    match &loaded.source {
        Some(path) => Finding::ok(subject, format!("{} is correct", path.display())),
        None => Finding::ok(subject, "there is no file, and all settings have their defaults"),
    }
}

/// Reads the manifest on the disk as `check` does, if there is one.
fn manifest(config: &Config, environment: &Environment) -> Option<Finding> {
    let subject = "manifest";
    let path = config.general.manifest.as_deref()?;
    if let Some(barrier) = Barrier::before(path) {
        return Some(Finding::hidden(subject, &barrier));
    }
    Some(match config::manifest::load_configured(config, environment) {
        Ok(_) => Finding::ok(subject, format!("{} is correct", path.display())),
        Err(error) => {
            let remedy = "correct it; `agent-coordinator check` shows each mistake in its line";
            Finding::new(State::Problem, subject, error.on_one_line(), remedy)
        }
    })
}

/// Asks the daemon, if one runs.
async fn daemon(config: &Config) -> Vec<Finding> {
    let subject = "daemon";
    let paths = &config.paths;
    let client = Client::new(paths.control_socket(), paths.coordinator_socket());
    let status: StatusBody = match client.get("/status").await {
        Ok(status) => status,
        Err(CliError::NoDaemon { .. }) => {
            let remedy = "start it with `agent-coordinator run`";
            return vec![Finding::new(State::Warning, subject, "no daemon runs", remedy)];
        }
        Err(CliError::Failed(error)) => {
            let remedy = "look at its log; run this as the user of the daemon";
            return vec![Finding::new(State::Problem, subject, error, remedy)];
        }
        Err(_) => {
            let remedy = "look at its log";
            return vec![Finding::new(State::Problem, subject, "it does not answer", remedy)];
        }
    };
    let own = env!("CARGO_PKG_VERSION");
    let mut findings = vec![if status.version == own {
        Finding::ok(subject, format!("version {own} runs"))
    } else {
        let found = format!("version {} runs, and this is version {own}", status.version);
        Finding::new(State::Warning, subject, found, "restart the daemon; its agents go on")
    }];
    if status.paused {
        let remedy = "`agent-coordinator resume` ends the pause";
        findings.push(Finding::new(State::Warning, subject, "it starts no agents", remedy));
    }
    if let Some(path) = status.pause_file_path {
        let found = format!("the pause file `{path}` keeps agents from starting");
        findings.push(Finding::new(State::Warning, subject, found, "remove it to go on"));
    }
    if let Some(problem) = status.store.and_then(|store| store.problem) {
        let remedy = "docs/project/faults.md names the causes";
        findings.push(Finding::new(State::Problem, "store in use", problem, remedy));
    }
    if let Some(problem) = status.server.and_then(|server| server.problem) {
        let remedy = "check the address and the token of `server`";
        findings.push(Finding::new(State::Problem, "server", problem, remedy));
    }
    for account in status.parked {
        let found = format!("agents of `{}` are not started", account.provider);
        let remedy = "log in again, then run `agent-coordinator resume --provider AI_TYPE`";
        findings.push(Finding::new(State::Problem, "account", found, remedy));
    }
    findings
}

fn store(config: &Config) -> Finding {
    match app::look_at_store(&config.store) {
        Ok(lines) if lines.is_empty() => machine::sqlite(config),
        Ok(lines) => Finding::ok("store", lines.join("; ")),
        Err(error) => {
            let found = ErrorChain(error.as_ref()).to_string();
            Finding::new(State::Problem, "store", found, "docs/postgres.md names the causes")
        }
    }
}

/// Returns which program the shims of this program run.
async fn shims() -> Finding {
    let program = std::env::current_exe().unwrap_or_default();
    let of_shims = app::program_of_shims(&program);
    let found = format!("they run `{}`", of_shims.display());
    let own = format!("{} {}", app::SHIM_PROGRAM, env!("CARGO_PKG_VERSION"));
    let remedy = format!("install `{own}` beside `{}`, with its owner", program.display());
    let warning = |found: String| Finding::new(State::Warning, "shims", found, &remedy);
    if of_shims == program {
        return warning(format!("{found}, which needs more memory for each agent"));
    }
    match app::programs::version_of(&of_shims).await {
        Some(other) if other != own => warning(format!("{found}, which is `{other}`")),
        None if app::programs::may_ask(&of_shims) => {
            let found = format!("{found}, which did not tell its version");
            let remedy = "run it by hand; it prints its version";
            Finding::new(State::Unknown, "shims", found, remedy)
        }
        Some(_) | None => Finding::ok("shims", found),
    }
}

async fn git(config: &Config) -> Finding {
    match app::check_git(config).await {
        Ok(()) => Finding::ok("git", "it is there and new enough for clones of tasks"),
        Err(error) => {
            let remedy = "install a newer git; projects with `workspace: shared` work without it";
            Finding::new(State::Warning, "git", ErrorChain(error.as_ref()).to_string(), remedy)
        }
    }
}

async fn forges(config: &Config) -> Vec<Finding> {
    let missing = forge::check::MissingLabels::Report;
    let reports = super::forge::check_all(&config.forges, missing).await;
    let mut findings = Vec::new();
    for report in reports {
        let subject = format!("forge {}", report.host);
        if report.is_good() {
            findings.push(Finding::ok(&subject, "the token and its rights are sufficient"));
        }
        let of_repositories = report.repositories.iter().flat_map(|repository| {
            repository.findings.iter().map(|each| (format!("{subject} {}", repository.name), each))
        });
        let of_host = report.findings.iter().map(|each| (subject.clone(), each));
        for (subject, each) in of_host.chain(of_repositories) {
            let state = if each.is_problem { State::Problem } else { State::Warning };
            findings.push(Finding::new(state, &subject, each.found.clone(), &each.advice));
        }
    }
    findings
}
