//! `backup` copies the state of a daemon into a file, and `restore` puts such a file in its place.
//! Both read and write the database themselves, so `backup` works with and without a daemon.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::client::Client;
use super::error::CliError;
use super::output::{self, Form};
use crate::app::{self, BackupContents, IfExists, RestoreReport};
use api::status::StatusBody;
use config::{Config, Environment};
use domain::Timestamp;
use runtime::telemetry::ErrorChain;

#[derive(Debug, Args)]
pub(super) struct BackupArguments {
    /// The file to make; its folder must exist
    file: PathBuf,
    /// Replace a file of this name
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
pub(super) struct RestoreArguments {
    /// A file that `backup` made, or another copy of the database
    file: PathBuf,
    #[command(flatten)]
    form: Form,
}

/// A backup as `--json` shows it.
#[derive(Serialize)]
struct Backup {
    file: PathBuf,
    #[serde(flatten)]
    contents: Contents,
    /// The data that is not in the backup, each with its place.
    left_out: Vec<String>,
}

#[derive(Serialize)]
struct Contents {
    bytes: u64,
    schema: i64,
    projects: u64,
    agents: u64,
    tasks: u64,
    messages: u64,
    open_launches: u64,
}

/// A restore as `--json` shows it.
#[derive(Serialize)]
struct Restore {
    file: PathBuf,
    store: String,
    #[serde(flatten)]
    contents: Contents,
    made_at: Option<Timestamp>,
    replaced: Option<PathBuf>,
    new_coordinator_id: Option<String>,
    /// The keys of projects whose next short id is greater than in the backup.
    continued: Vec<Continued>,
}

#[derive(Serialize)]
struct Continued {
    key: String,
    next_number: i64,
}

impl From<&BackupContents> for Contents {
    fn from(found: &BackupContents) -> Self {
        let n = |table: &str| {
            found.n_rows.iter().find(|(name, _)| *name == table).map_or(0, |(_, n)| *n)
        };
        Self {
            bytes: found.bytes,
            schema: found.schema,
            projects: n("projects"),
            agents: n("agents"),
            tasks: n("tasks"),
            messages: n("messages"),
            open_launches: found.n_open_launches,
        }
    }
}

impl Contents {
    fn words(&self) -> String {
        let count = |n: u64, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
        format!(
            "{}, {}, {}, {}",
            count(self.projects, "project"),
            count(self.agents, "agent"),
            count(self.tasks, "task"),
            count(self.messages, "message"),
        )
    }
}

impl BackupArguments {
    pub(super) fn run(self, config: &Config, environment: &Environment) -> Result<(), CliError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let file = environment.working_directory().join(&self.file);
        let if_exists = if self.force { IfExists::Replace } else { IfExists::Refuse };
        // The daemon and its agents get the processor first.
        let _ = rustix::process::nice(19);
        let made = runtime.block_on(async {
            check_store_of_daemon(config).await?;
            app::back_up(config, file.clone(), if_exists).await.map_err(failed)
        })?;
        if let Some(difference) = &made.difference {
            eprintln!(
                "agent-coordinator: warning: `restore` will refuse this backup, because the \
                 database has another schema than this program made: {}",
                output::plain(difference)
            );
        }
        let contents = Contents::from(&made);
        let left_out = left_out(config);
        if self.form.json {
            return output::print_json(&Backup { file, contents, left_out });
        }
        let mut lines = vec![format!(
            "saved in `{}` ({}): {}",
            file.display(),
            size(contents.bytes),
            contents.words()
        )];
        match contents.open_launches {
            0 => {}
            1 => lines.push("1 launch has not ended; a restore ends it".to_owned()),
            n => lines.push(format!("{n} launches have not ended; a restore ends them")),
        }
        lines.push("not in it:".to_owned());
        lines.extend(left_out.iter().map(|each| format!("  {each}")));
        output::print_line(&lines.join("\n"))
    }
}

impl RestoreArguments {
    pub(super) fn run(self, config: &Config, environment: &Environment) -> Result<(), CliError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let file = environment.working_directory().join(&self.file);
        let report = runtime.block_on(app::restore(config, file.clone())).map_err(failed)?;
        let RestoreReport { restored, origin, new_coordinator } = report;
        let contents = Contents::from(&restored.contents);
        let made_at = origin.as_ref().map(|origin| Timestamp::from_millis(origin.made_at));
        let store = config.store.url.to_string();
        if self.form.json {
            let continued = restored.continued.into_iter();
            return output::print_json(&Restore {
                file,
                store,
                contents,
                made_at,
                replaced: restored.replaced,
                new_coordinator_id: new_coordinator,
                continued: continued
                    .map(|(key, next_number)| Continued { key, next_number })
                    .collect(),
            });
        }
        let when = made_at.map(|at| format!(" of {at}")).unwrap_or_default();
        let mut lines = vec![format!(
            "restored `{}`{when} into `{store}`: {}",
            file.display(),
            contents.words()
        )];
        lines.push(match &restored.replaced {
            Some(path) => format!("the former state is in `{}`", path.display()),
            None => "there was no state before".to_owned(),
        });
        lines.extend(restored.continued.iter().map(|(key, next)| {
            format!(
                "the next task of `{key}` is {key}-{next}, because smaller numbers may be in use"
            )
        }));
        if let Some(id) = new_coordinator {
            lines.push(format!(
                "this is another place than that of the backup: its coordinator is `{id}`"
            ));
        }
        if contents.open_launches > 0 {
            lines.push(format!(
                "launches that had not ended: {}; they end when the daemon starts, and their \
                 tasks are started again",
                contents.open_launches
            ));
        }
        lines.push(
            "the clones of tasks and the snapshots of directories are not in a backup; those that are on \
             this machine stay"
                .to_owned(),
        );
        output::print_line(&lines.join("\n"))
    }
}

/// Refuses to back up another store than that of the daemon that runs with this configuration.
async fn check_store_of_daemon(config: &Config) -> Result<(), CliError> {
    let paths = &config.paths;
    let client = Client::new(paths.control_socket(), paths.coordinator_socket());
    let used = match client.get::<StatusBody>("/status").await {
        Ok(status) => status.store.map(|store| store.url),
        // A database can be saved while its daemon is stopped or does not answer.
        Err(_) => None,
    };
    let named = config.store.url.to_string();
    match used {
        Some(used) if used != named => Err(CliError::Failed(format!(
            "the daemon uses the store `{used}`, and its configuration names `{named}` now: restart \
             it, or correct `store.url`"
        ))),
        _ => Ok(()),
    }
}

/// Returns what a backup does not contain, each with its place.
fn left_out(config: &Config) -> Vec<String> {
    let state_dir = &config.paths.state_dir;
    vec![
        format!(
            "the clones of tasks and the snapshots of directories: {}",
            config.workspace.root_in(state_dir).display()
        ),
        format!("the output of agents: {}", state_dir.display()),
        "transcripts and files of chats, in the directories of projects".to_owned(),
        "the configuration and its files with secrets".to_owned(),
    ]
}

fn size(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    if tenths == 0 {
        format!("{} KiB", bytes >> 10)
    } else {
        format!("{}.{} MiB", tenths / 10, tenths % 10)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is an argument of map_err")]
fn failed(error: anyhow::Error) -> CliError {
    CliError::Failed(ErrorChain(error.as_ref()).to_string())
}
