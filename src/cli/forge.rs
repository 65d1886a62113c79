//! `forge check` checks the configured forges. It reads the configuration and asks the hosts. It
//! needs no daemon.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use clap::Subcommand;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use serde::Serialize;

use super::client::Client;
use super::error::CliError;
use super::forge_items;
use super::output::{self, Form, ListForm};
use config::{Environment, ForgeHost, Forges};
use domain::printable;
use forge::check::{Finding, HostReport, MissingLabels, RepositoryReport, check};
use forge::{connect, is_open_to_others};
use runtime::clock;
use runtime::telemetry::ErrorChain;

/// The time between two messages that name the hosts without an answer.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The commands about forges.
#[derive(Debug, Subcommand)]
pub(super) enum ForgeCommand {
    /// Check the token, bot, rights and labels of each host and repository of the configuration
    ///
    /// The command asks the forges with the tokens of the configuration. It needs no daemon. The
    /// exit code is 1 if a problem prevents work on items.
    Check {
        /// Create missing labels
        #[arg(long)]
        create_labels: bool,
        #[command(flatten)]
        form: Form,
    },
    /// List the items that agents work on, with their pending writes, and the items that wait
    ///
    /// An item waits until an agent of its repository and a slot are free; position 1 is the next.
    /// Repositories are served in turn.
    List {
        /// List ended items instead, the newest end first
        #[arg(long)]
        ended: bool,
        /// The largest number of items
        #[arg(long, default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        form: ListForm,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    is_good: bool,
    hosts: &'a [HostReport],
}

impl ForgeCommand {
    pub(super) fn run(
        self,
        file: Option<&Path>,
        environment: &Environment,
    ) -> Result<(), CliError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        match self {
            Self::Check { create_labels, form } => {
                let missing =
                    if create_labels { MissingLabels::Create } else { MissingLabels::Report };
                let config = super::load(file, environment)?.config;
                report(&runtime.block_on(check_all(&config.forges, missing)), form)
            }
            Self::List { ended, limit, form } => {
                let paths = super::find_daemon(file, environment)?;
                let client = Client::new(paths.control_socket(), paths.coordinator_socket());
                runtime.block_on(forge_items::list(&client, ended, limit, form))
            }
        }
    }
}

fn report(reports: &[HostReport], form: Form) -> Result<(), CliError> {
    let is_good = reports.iter().all(HostReport::is_good);
    if form.json {
        output::print_json(&Answer { is_good, hosts: reports })?;
    } else {
        print(reports)?;
    }
    if is_good {
        Ok(())
    } else {
        Err(CliError::Failed("there are problems at the forges".to_owned()))
    }
}

/// Checks all hosts at once, so that a host that hangs delays no other. The reports are in the
/// order of the configuration.
pub(super) async fn check_all(forges: &Forges, missing: MissingLabels) -> Vec<HostReport> {
    let hosts = &forges.hosts;
    let interval = forges.access.write_interval;
    let checks = hosts
        .iter()
        .enumerate()
        .map(|(i, host)| check_one(host, interval, missing).map(move |report| (i, report)));
    let mut checks: FuturesUnordered<_> = checks.collect();
    let mut reports = Vec::with_capacity(hosts.len());
    let mut reminder = tokio::time::interval_at(clock::now() + TIMEOUT, TIMEOUT);
    loop {
        tokio::select! {
            biased;
            report = checks.next() => match report {
                Some(report) => reports.push(report),
                None => break,
            },
            _ = reminder.tick() => {
                let is_awaited = |i: &usize| !reports.iter().any(|(done, _)| done == i);
                let awaited: BTreeSet<&str> =
                    (0..hosts.len()).filter(is_awaited).map(|i| hosts[i].host()).collect();
                let awaited = Vec::from_iter(awaited).join(", ");
                // Standard error may be closed.
                let _ = writeln!(std::io::stderr(), "waiting for {}", printable::lines(&awaited));
            }
        }
    }
    reports.sort_by_key(|(i, _)| *i);
    reports.into_iter().map(|(_, report)| report).collect()
}

async fn check_one(
    host: &ForgeHost,
    write_interval: Duration,
    missing: MissingLabels,
) -> HostReport {
    let mut report = match connect(host, write_interval) {
        Ok(forge) => check(host, &forge, missing).await,
        Err(error) => {
            let finding =
                Finding::problem(ErrorChain(&error).to_string(), "set `token` or `token_file`");
            HostReport::of(host, vec![finding])
        }
    };
    if let Some(path) = &host.account.token_file
        && is_open_to_others(path)
    {
        let found = format!("all users of this machine can read `{}`", path.display());
        report.findings.push(Finding::note(found, format!("chmod 600 {}", path.display())));
    }
    report
}

fn print(reports: &[HostReport]) -> Result<(), CliError> {
    let mut table = output::table(&["WHERE", "STATE", "FOUND", "WHAT TO DO"]);
    let mut add = |place: &str, findings: &[Finding], good: String| {
        let is_good = !findings.iter().any(|finding| finding.is_problem);
        if is_good {
            table.add_row([
                output::plain(place),
                "ok".to_owned(),
                output::plain(&good),
                String::new(),
            ]);
        }
        for finding in findings {
            let word = if finding.is_problem { "problem" } else { "note" };
            table.add_row([
                output::plain(place),
                word.to_owned(),
                output::plain(&finding.found),
                output::plain(&finding.advice),
            ]);
        }
    };
    for report in reports {
        add(&report.host, &report.findings, of_host(report));
        for repository in &report.repositories {
            add(&format!("  {}", repository.name), &repository.findings, of_repository(repository));
        }
    }
    output::print_table(&table, "no hosts are configured: docs/forges.md says how to begin")
}

fn of_host(report: &HostReport) -> String {
    let owner = report.token_of.as_deref().unwrap_or("nobody");
    let scopes = report.scopes.as_ref().map_or_else(
        || "the forge does not report its rights".to_owned(),
        |scopes| format!("scopes {}", scopes.join(", ")),
    );
    format!("token of {owner} ({scopes}), bot {}", report.bot_name)
}

fn of_repository(report: &RepositoryReport) -> String {
    let created: Vec<String> =
        report.labels_created.iter().map(|label| format!("`{label}`")).collect();
    if created.is_empty() {
        "rights, bot and labels are as they should be".to_owned()
    } else {
        format!("labels created: {}", created.join(", "))
    }
}
