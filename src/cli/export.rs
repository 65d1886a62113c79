//! `export` writes projects, agents, tasks and chats of a daemon as JSON lines.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::client::Client;
use super::error::CliError;
use super::named::{Named, ids};
use super::output::{self, Form};
use crate::app::Signals;
use config::Environment;
use domain::ProjectId;
use domain::export::{Counts, Line};
use machine::sys::draft::{Draft, IfExists};

/// More bytes than the last line of an export has.
const MAX_END: usize = 1024;

#[derive(Debug, Args)]
pub(super) struct ExportArguments {
    /// The file to write, with mode 0600; `-` or none writes to standard output
    file: Option<PathBuf>,
    /// Select this project, with its agents, tasks and chats; may be repeated
    #[arg(long)]
    project: Vec<Named<ProjectId>>,
    /// Replace a file of this name
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    form: Form,
}

/// An export as `--json` shows it.
#[derive(Serialize)]
struct Exported {
    file: PathBuf,
    #[serde(flatten)]
    counts: Counts,
}

impl ExportArguments {
    pub(super) async fn run(
        self,
        client: &Client,
        environment: &Environment,
    ) -> Result<(), CliError> {
        let file = self.file.filter(|file| file.as_os_str() != "-");
        if file.is_none() && (self.form.json || self.force) {
            let told = "--json and --force are about a file: name one";
            return Err(CliError::Usage(told.to_owned()));
        }
        let projects = ids(&self.project, client).await?;
        let projects: Vec<&str> = projects.iter().map(ProjectId::as_str).collect();
        let path = match projects.join(",") {
            none if none.is_empty() => "/export".to_owned(),
            projects => format!("/export?projects={projects}"),
        };
        let Some(file) = file else {
            let mut output = io::stdout().lock();
            fetch(client, &path, |piece| Ok(output.write_all(piece)?)).await?;
            return Ok(output.flush()?);
        };
        let file = environment.working_directory().join(file);
        let if_exists = if self.force { IfExists::Replace } else { IfExists::Refuse };
        let mut draft = make_draft(&file, if_exists)?;
        let write = |piece: &[u8]| {
            let mut to = draft.file();
            to.write_all(piece).map_err(|error| failed(draft.path(), &error))
        };
        let mut signals = Signals::listen()?;
        let counts = tokio::select! {
            fetched = fetch(client, &path, write) => fetched?,
            _ = signals.next() => {
                let told = "interrupted, and nothing was written";
                return Err(CliError::Failed(told.to_owned()));
            }
        };
        put_in_place(&mut draft, &file, if_exists)?;
        if self.form.json {
            return output::print_json(&Exported { file, counts });
        }
        output::print_line(&format!("exported into `{}`: {counts}", file.display()))
    }
}

/// Makes `<file>.partial`, which gets the name of `file` when it is whole.
fn make_draft(file: &Path, if_exists: IfExists) -> Result<Draft, CliError> {
    match fs::symlink_metadata(file) {
        Ok(found) if !found.is_file() => {
            let told = format!("`{}` is not a file: name another path", file.display());
            return Err(CliError::Failed(told));
        }
        Ok(_) if if_exists == IfExists::Refuse => return Err(exists(file)),
        _ => {}
    }
    let path = file.with_added_extension("partial");
    Draft::make(&path).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            let told = format!("another export to `{}` is under way: wait for it", file.display());
            CliError::Failed(told)
        }
        _ => failed(&path, &error),
    })
}

/// Syncs the draft and gives it its final name.
fn put_in_place(draft: &mut Draft, file: &Path, if_exists: IfExists) -> Result<(), CliError> {
    draft.file().sync_all().map_err(|error| failed(draft.path(), &error))?;
    draft.put_in_place(file, if_exists).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists(file),
        _ => failed(file, &error),
    })
}

fn exists(file: &Path) -> CliError {
    CliError::Failed(format!(
        "`{}` exists, and was left as it is: name another file, or add --force",
        file.display()
    ))
}

fn failed(path: &Path, error: &io::Error) -> CliError {
    CliError::Failed(format!("could not write `{}`: {error}", path.display()))
}

/// Hands each piece of an export to `take`. Returns the numbers of its objects.
async fn fetch(
    client: &Client,
    path: &str,
    mut take: impl FnMut(&[u8]) -> Result<(), CliError>,
) -> Result<Counts, CliError> {
    let mut opened = client.open(path).await?;
    let mut end: Vec<u8> = Vec::new();
    while let Some(piece) = opened.next().await? {
        take(&piece)?;
        end.extend_from_slice(&piece);
        end.drain(..end.len().saturating_sub(MAX_END));
    }
    match serde_json::from_slice(last_line(&end)) {
        Ok(Line::End(counts)) => Ok(counts),
        _ => Err(CliError::Lost("the export is not whole; see the log of the daemon".to_owned())),
    }
}

fn last_line(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.trim_ascii_end();
    bytes.rsplit(|byte| *byte == b'\n').next().unwrap_or_default()
}
