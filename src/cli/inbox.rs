//! `inbox`: what needs a person, and what the person of the terminal did with it.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Subcommand;

use super::client::Client;
use super::error::CliError;
use super::follow::Following;
use super::named::{Named, id_of};
use super::output::{Form, Zone, ago, now, plain, print_json, print_json_line, print_line};
use super::output_closed;
use api::attention::{AttentionBody, MarkRequest};
use domain::attention::{AttentionKind, AttentionState};
use domain::{AttentionId, ProjectId};

/// The time between two looks of `--follow`.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The entries to print, and what to do with one.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Exit codes: 0 done, 1 refused or failed, 2 usage, 69 no daemon, 78 configuration."
)]
pub(super) struct InboxArguments {
    #[command(subcommand)]
    action: Option<InboxAction>,
    /// Print new entries as they come, until interrupted. It waits for a daemon that restarts
    #[arg(short = 'f', long)]
    follow: bool,
    /// Select this project
    #[arg(long)]
    project: Option<Named<ProjectId>>,
    /// Select this kind
    #[arg(long, value_name = "KIND")]
    kind: Option<AttentionKind>,
    /// Also print what you put off or marked as done
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    zone: Zone,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Subcommand)]
enum InboxAction {
    /// Mark an entry as done: you do not see it again until its condition comes again
    Done {
        /// Id of the entry, as `inbox` prints it
        id: AttentionId,
    },
    /// Put an entry off
    Later {
        /// Id of the entry, as `inbox` prints it
        id: AttentionId,
        /// The time for which it is put off, such as `30min` or `2days`
        #[arg(long = "for", value_name = "DURATION", default_value = "1h", value_parser = humantime::parse_duration)]
        delay: Duration,
    },
    /// Make an entry open again
    Reopen {
        /// Id of the entry, as `inbox --all` prints it
        id: AttentionId,
    },
}

impl InboxArguments {
    pub(super) async fn run(self, client: &Client) -> Result<(), CliError> {
        if let Some(action) = self.action {
            return action.run(client).await;
        }
        let project = id_of(self.project.as_ref(), client).await?;
        let filter = [
            project.map(|project| format!("project={project}")),
            self.kind.map(|kind| format!("kind={kind}")),
            (!self.all).then(|| format!("state={}", AttentionState::Open)),
        ];
        let query = filter.into_iter().flatten().collect::<Vec<_>>().join("&");
        let path = format!("/attention?{query}");
        if self.follow {
            return super::while_read(follow(client, &path, self.zone, self.form)).await;
        }
        let entries: Vec<AttentionBody> = client.get(&path).await?;
        if self.form.json {
            return print_json(&entries);
        }
        print_line(&describe(&entries, self.zone))
    }
}

impl InboxAction {
    async fn run(self, client: &Client) -> Result<(), CliError> {
        let mark = |id: &AttentionId| format!("/attention/{id}/mark");
        match self {
            Self::Done { id } => client.post_only(&mark(&id), &MarkRequest::default()).await,
            Self::Later { id, delay } => {
                // The server counts whole seconds.
                let for_seconds =
                    Some(delay.as_secs().saturating_add(u64::from(delay.subsec_nanos() > 0)));
                let request = MarkRequest { for_seconds, ..MarkRequest::default() };
                client.post_only(&mark(&id), &request).await
            }
            Self::Reopen { id } => client.delete(&mark(&id)).await,
        }
    }
}

/// Prints each entry once, when it comes.
async fn follow(client: &Client, path: &str, zone: Zone, form: Form) -> Result<(), CliError> {
    let mut following = Following::new();
    let mut known = BTreeSet::new();
    loop {
        match client.get::<Vec<AttentionBody>>(path).await {
            Ok(entries) => {
                following.connected();
                for entry in entries.iter().filter(|entry| !known.contains(&entry.id)) {
                    if form.json {
                        print_json_line(entry)?;
                    } else {
                        print_line(&lines_of(entry, zone))?;
                    }
                }
                known = entries.into_iter().map(|entry| entry.id).collect();
                tokio::select! {
                    () = tokio::time::sleep(LOOK_INTERVAL) => {}
                    () = output_closed() => return Err(CliError::Hushed),
                }
            }
            Err(error) => following.lost(error).await?,
        }
    }
}

/// Returns the entries by group.
fn describe(entries: &[AttentionBody], zone: Zone) -> String {
    if entries.is_empty() {
        return "Nothing needs you.".to_owned();
    }
    let mut text: Vec<String> = Vec::new();
    for (place, entry) in entries.iter().enumerate() {
        if place == 0 || entries[place - 1].group != entry.group {
            let n = entries.iter().filter(|other| other.group == entry.group).count();
            let gap = if place == 0 { "" } else { "\n" };
            text.push(format!("{gap}{} ({n})", entry.group.as_str().to_uppercase()));
        }
        text.push(lines_of(entry, zone));
    }
    text.join("\n")
}

/// Returns an entry in two or three lines: its object, what is wrong, and how to end that.
fn lines_of(entry: &AttentionBody, zone: Zone) -> String {
    let task = entry.task_short_id.as_ref().map(|task| format!("{task}  ")).unwrap_or_default();
    let since = entry.since.map(|since| format!("  {} ago", ago(since, now())));
    let state = match (entry.state, entry.later_until) {
        (AttentionState::Later, Some(until)) => format!("  (later: {})", zone.time(until)),
        (AttentionState::Open, _) => String::new(),
        (state, _) => format!("  ({state})"),
    };
    let title = plain(&entry.title);
    let since = since.unwrap_or_default();
    let until = entry.until.map(|until| format!(" until {}", zone.time(until)));
    let mut lines = vec![
        format!("  {task}{title}{since}{state}"),
        format!("    {}{}", plain(&entry.text), until.unwrap_or_default()),
    ];
    lines.extend(entry.remedy.as_ref().map(|remedy| format!("    -> {}", plain(remedy))));
    lines.extend(entry.item_url.as_ref().map(|url| format!("    {}", plain(url))));
    lines.push(format!("    {}", entry.id));
    lines.join("\n")
}
