//! `delete`, `archive` and `unarchive` of tasks, agents and projects.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::client::Client;
use super::error::CliError;
use super::output::{Form, plain, print_json, print_line};
use api::removals::{AffectedBody, Archived, DeletionBody};
use domain::removal::AffectedKind;

/// The choices of a deletion.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct DeleteArguments {
    /// Delete without asking
    #[arg(long)]
    yes: bool,
    /// Print what would be deleted, and delete nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    #[command(flatten)]
    form: Form,
}

/// The choice of a list about archived things.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct ArchivedArguments {
    /// List only what is archived
    #[arg(long)]
    archived: bool,
    /// List what is archived, too
    #[arg(long, conflicts_with = "archived")]
    all: bool,
}

impl ArchivedArguments {
    /// Returns the part of the query; `None` for the default.
    pub(super) fn query(self) -> Option<String> {
        let choice = match (self.archived, self.all) {
            (true, _) => Archived::Only,
            (false, true) => Archived::All,
            (false, false) => return None,
        };
        Some(format!("archived={choice}"))
    }
}

impl DeleteArguments {
    /// Deletes the thing at `path`, such as `/tasks/tsk_1`, after a person has confirmed what goes
    /// with it.
    ///
    /// # Errors
    /// A refusal; `Usage` if there is no terminal for the question and `--yes` is missing.
    pub(super) async fn run(
        self,
        client: &Client,
        path: &str,
        discards: bool,
    ) -> Result<(), CliError> {
        let query = if discards { "?discard=true" } else { "" };
        if self.form.json && !self.yes && !self.dry_run {
            let told = "`--json` asks no question: add `--yes`, or `--dry-run`";
            return Err(CliError::Usage(told.to_owned()));
        }
        if !self.yes {
            let preview: DeletionBody = client.get(&format!("{path}/deletion{query}")).await?;
            if self.dry_run {
                return self.show(&preview);
            }
            if let Some(refused) = refusal(&preview) {
                return Err(CliError::Failed(refused));
            }
            if !confirmed(&preview)? {
                return Err(CliError::Failed("nothing was deleted".to_owned()));
            }
        }
        let deleted: DeletionBody = client.delete_and_read(&format!("{path}{query}")).await?;
        if self.form.json {
            return print_json(&deleted);
        }
        print_line(&format!("{} is deleted", plain(&deleted.what)))
    }

    fn show(self, preview: &DeletionBody) -> Result<(), CliError> {
        if self.form.json {
            print_json(preview)?;
        } else {
            lines(preview).iter().try_for_each(|line| print_line(line))?;
        }
        refusal(preview).map_or(Ok(()), |refused| Err(CliError::Failed(refused)))
    }
}

/// Returns why a deletion would be refused, with the way out.
fn refusal(preview: &DeletionBody) -> Option<String> {
    let refused = plain(preview.refused.as_ref()?);
    let hint = preview.hint.as_ref().map(|hint| format!("\nhint: {}", plain(hint)));
    Some(refused + &hint.unwrap_or_default())
}

/// Returns the lines that name all that a deletion affects.
fn lines(preview: &DeletionBody) -> Vec<String> {
    let name = plain(&preview.name);
    let what = plain(&preview.what);
    let first = if what.ends_with(&name) { what } else { format!("{what} {name}") };
    let first = if preview.affected.is_empty() { first } else { format!("{first}, with:") };
    std::iter::once(first).chain(preview.affected.iter().map(line)).collect()
}

fn line(affected: &AffectedBody) -> String {
    let AffectedBody { kind, count, names } = affected;
    let (one, many) = match kind {
        AffectedKind::Tasks => ("task", "tasks"),
        AffectedKind::Workspaces => ("clone", "clones"),
        AffectedKind::Assignments => ("assignment", "assignments"),
        AffectedKind::Comments => ("comment", "comments"),
        AffectedKind::Messages => ("message of chats", "messages of chats"),
        AffectedKind::Launches => ("launch with its output", "launches with their output"),
        AffectedKind::KeptTasks => ("task that stays", "tasks that stay"),
    };
    let noun = if *count == 1 { one } else { many };
    let names: Vec<String> = names.iter().map(|name| plain(name)).collect();
    let more = match count.saturating_sub(names.len()) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let names =
        if names.is_empty() { String::new() } else { format!(": {}{more}", names.join(", ")) };
    format!("  {count} {noun}{names}")
}

/// Asks on a terminal whether what `preview` lists is deleted.
///
/// # Errors
/// `Usage` if there is no terminal. The terminal cannot be read.
fn confirmed(preview: &DeletionBody) -> Result<bool, CliError> {
    let mut shown = io::stderr();
    if !is_on_terminal() {
        let told = "deleting needs a terminal for its question, or `--yes`; `--dry-run` lists what \
                    would be deleted";
        return Err(CliError::Usage(told.to_owned()));
    }
    for line in lines(preview) {
        let _ = writeln!(shown, "{line}");
    }
    ask("Delete all this for good?")
}

/// Returns whether a question can be asked.
pub(super) fn is_on_terminal() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks on a terminal. Returns whether the answer is yes.
pub(super) fn ask(question: &str) -> Result<bool, CliError> {
    let mut shown = io::stderr();
    let _ = write!(shown, "{question} [y/N] ");
    let _ = shown.flush();
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Does `what` (`archive` or `unarchive`) with the thing at `path`, and prints `done`.
pub(super) async fn change<T: Serialize + DeserializeOwned>(
    client: &Client,
    path: &str,
    what: &str,
    form: Form,
    done: impl FnOnce(&T) -> String,
) -> Result<(), CliError> {
    let changed: T = client.post(&format!("{path}/{what}"), &serde_json::json!({})).await?;
    if form.json { print_json(&changed) } else { print_line(&done(&changed)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::RemovableKind;

    #[test]
    fn the_question_names_what_is_affected() {
        let preview = DeletionBody {
            kind: RemovableKind::Task,
            id: "tsk_1".to_owned(),
            name: "Log in\u{1b}[31m".to_owned(),
            what: "Task SHOP-1".to_owned(),
            affected: vec![
                AffectedBody {
                    kind: AffectedKind::Tasks,
                    count: 7,
                    names: vec!["SHOP-1 Log in".to_owned(), "SHOP-2 Test".to_owned()],
                },
                AffectedBody { kind: AffectedKind::Messages, count: 1, names: Vec::new() },
            ],
            refused: None,
            refused_code: None,
            hint: None,
        };
        let expected = [
            "Task SHOP-1 Log in [31m, with:",
            "  7 tasks: SHOP-1 Log in, SHOP-2 Test and 5 more",
            "  1 message of chats",
        ];
        assert_eq!(lines(&preview), expected);
    }
}
