//! `import` adds the objects of an export to a daemon.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Write as _};
use std::path::PathBuf;

use clap::Args;
use hyper::body::Bytes;

use super::client::Client;
use super::error::CliError;
use super::output::{Form, plain, print_json, print_line};
use config::Environment;
use domain::AgentId;
use domain::export::lines::LineSplitter;
use domain::export::{Counts, MAX_FILE};
use machine::sys::regular_file;
use runtime::http::Problem;
use service::ImportReport;

/// The number of directories, users or agents that are listed.
const MAX_LISTED: usize = 20;
/// The bytes that are read at once.
const PIECE: usize = 1 << 20;

#[derive(Debug, Args)]
#[command(
    after_help = "An object that exists already is refused, or left as it is with --merge; it is \
                  never changed. A chat that has messages here counts as one that exists.\n\n\
                  Exit codes: 0 imported, or would be; 1 refused, failed or not confirmed; \
                  2 usage; 69 no daemon runs."
)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(super) struct ImportArguments {
    /// A file that `export` wrote; `-` reads standard input
    file: PathBuf,
    /// Check everything, show what would be imported, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Leave objects as they are that exist already, and add the others
    #[arg(long)]
    merge: bool,
    /// Start the tasks that are in progress in the file, and let waiting ones begin
    #[arg(long)]
    start: bool,
    /// Import without a question
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    form: Form,
}

impl ImportArguments {
    pub(super) async fn run(
        self,
        client: &Client,
        environment: &Environment,
    ) -> Result<(), CliError> {
        let asks = !self.dry_run && !self.yes;
        if asks && self.form.json {
            let told = "--json does not ask: add --yes or --dry-run";
            return Err(CliError::Usage(told.to_owned()));
        }
        let is_piped = self.file.as_os_str() == "-";
        let name =
            if is_piped { "standard input".to_owned() } else { self.file.display().to_string() };
        let content = if is_piped {
            read(io::stdin().lock(), &name)?
        } else {
            let path = environment.working_directory().join(&self.file);
            let file = regular_file::check_named(&path)
                .and_then(|()| File::open(&path))
                .map_err(|error| CliError::Failed(format!("could not read `{name}`: {error}")))?;
            read(file, &name)?
        };
        let send = async |dry_run: bool| {
            let path =
                format!("/import?dryRun={dry_run}&merge={}&start={}", self.merge, self.start);
            let answer =
                client.post_text_or_problem::<ImportReport>(&path, content.clone()).await?;
            answer.map_err(|problem| refused(&name, problem))
        };
        if asks || self.dry_run {
            let plan = send(true).await?;
            if self.form.json {
                return print_json(&plan);
            }
            print_line(&described(&plan))?;
            if self.dry_run {
                return print_line("nothing was changed (--dry-run)");
            }
            confirm(is_piped)?;
        }
        let report = send(false).await?;
        if self.form.json {
            return print_json(&report);
        }
        if !asks {
            print_line(&described(&report))?;
        }
        print_line(&format!("imported: {}", report.added))?;
        match without_passkey(&report) {
            Some(text) => print_line(&text),
            None => Ok(()),
        }
    }
}

/// Reads a file whose size and whose lines are limited.
fn read(mut from: impl Read, name: &str) -> Result<Bytes, CliError> {
    let mut content = Vec::new();
    let mut splitter = LineSplitter::default();
    let mut piece = vec![0; PIECE];
    loop {
        let n_read = match from.read(&mut piece) {
            Ok(n_read) => n_read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                return Err(CliError::Failed(format!("could not read `{name}`: {error}")));
            }
        };
        let piece = &piece[..n_read];
        if piece.is_empty() {
            return Ok(content.into());
        }
        splitter.push(piece, |_, _| {}).map_err(|too_long| {
            CliError::Failed(format!("{name}:{}: {too_long}", too_long.line))
        })?;
        if content.len() + piece.len() > MAX_FILE {
            return Err(CliError::Failed(format!(
                "`{name}` is larger than {} MiB: export its projects one by one (--project)",
                MAX_FILE >> 20
            )));
        }
        content.extend_from_slice(piece);
    }
}

/// Returns a refusal with the places in the file.
fn refused(name: &str, problem: Problem) -> CliError {
    if problem.problems.is_empty() {
        return problem.into();
    }
    let mut text = format!("nothing of {name} was imported:");
    for place in problem.problems {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {}: {}", place.path, place.message);
    }
    CliError::Failed(text)
}

/// Returns what an import adds and uses.
fn described(report: &ImportReport) -> String {
    let mut lines = vec![format!("adds {}", report.added)];
    if report.left != Counts::default() {
        lines.push(format!("leaves as they are: {}", report.left));
    }
    if !report.directories.is_empty() {
        lines.push("directories of its projects:".to_owned());
        let directories = report.directories.iter().map(|directory| {
            let note = if directory.is_dir() { "" } else { " (not on this machine)" };
            format!("{}{note}", plain(&directory.to_string_lossy()))
        });
        list(&mut lines, directories);
    }
    if !report.users.is_empty() {
        lines.push("users that its agents run as:".to_owned());
        let users = report.users.iter().map(|user| {
            let ai_types: Vec<&str> = user.ai_types.iter().map(String::as_str).collect();
            format!("{} ({})", plain(&user.user), plain(&ai_types.join(", ")))
        });
        list(&mut lines, users);
    }
    match (report.n_started, report.n_set_todo) {
        (0, 0) => lines.push("no task starts".to_owned()),
        (0, n) => {
            lines.push(format!("no task starts; in progress, and todo here: {n} (--start starts)"));
        }
        (n, _) => lines.push(format!("tasks that start, or wait to start: {n}")),
    }
    lines.join("\n")
}

fn list(lines: &mut Vec<String>, entries: impl ExactSizeIterator<Item = String>) {
    let n_more = entries.len().saturating_sub(MAX_LISTED);
    lines.extend(entries.take(MAX_LISTED).map(|entry| format!("  {entry}")));
    if n_more > 0 {
        lines.push(format!("  and {n_more} more"));
    }
}

/// Returns how agents get passkeys, if an import has added agents without one.
fn without_passkey(report: &ImportReport) -> Option<String> {
    let agents = &report.without_passkey;
    if agents.is_empty() {
        return None;
    }
    let shown: Vec<&str> = agents.iter().take(MAX_LISTED).map(AgentId::as_str).collect();
    let more = match agents.len().saturating_sub(MAX_LISTED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    Some(format!(
        "without a passkey: {}{more}\nthe daemon starts them without one; for an agent that is \
         started in another way: agent-coordinator agent set AGENT --generate-passkey",
        shown.join(", ")
    ))
}

/// Asks on the terminal.
///
/// # Errors
/// There is no terminal, or the answer is not yes.
fn confirm(is_piped: bool) -> Result<(), CliError> {
    let mut shown = io::stderr();
    if is_piped || !io::stdin().is_terminal() || !shown.is_terminal() {
        let told = "nothing was imported: without a terminal, confirm the import with --yes";
        return Err(CliError::Usage(told.to_owned()));
    }
    write!(shown, "Import this? [y/N] ")?;
    shown.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(CliError::Failed("nothing was imported".to_owned()))
}
