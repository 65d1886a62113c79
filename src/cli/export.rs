//! `export` writes projects, agents, tasks and chats of a daemon as JSON lines.

mod draft;

use std::io::{self, Write as _};
use std::path::PathBuf;

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
use draft::Draft;

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
        let mut draft = Draft::make(&file, self.force)?;
        let mut signals = Signals::listen()?;
        let counts = tokio::select! {
            fetched = fetch(client, &path, |piece| draft.write(piece)) => fetched?,
            _ = signals.next() => {
                let told = "interrupted, and nothing was written";
                return Err(CliError::Failed(told.to_owned()));
            }
        };
        draft.put_in_place(self.force)?;
        if self.form.json {
            return output::print_json(&Exported { file, counts });
        }
        output::print_line(&format!("exported into `{}`: {counts}", file.display()))
    }
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
