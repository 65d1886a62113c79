//! `status` prints an overview of the daemon: what needs a person, what runs, what waits and why,
//! and what ended lately.

mod needs;
mod text;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use super::client::Client;
use super::error::CliError;
use super::named::{Named, id_of};
use super::output::{Form, Zone, ago, now, plain, print_json};
use super::screen::Screen;
use api::attention::AttentionBody;
use api::launches::LaunchBody;
use api::status::{ParkedBody, StatusBody};
use domain::instance::ExitHint;
use domain::plan::shared::{Crowd, FailedSnapshot};
use domain::{AgentId, LaunchId, ProjectId, Timestamp};

/// The time between two updates of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// The exit code with `--exit-code` if something needs a person.
const EXIT_NEEDS_PERSON: u8 = 3;
/// The number of launches of a project that are searched for ended ones.
const N_SEARCHED: usize = 30;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 done; with --exit-code, 3 if something needs a person; 1 failed, 2 usage, \
                  69 no daemon, 78 configuration.\n\nA person is needed for what \
                  `inbox --all` lists: blocked and failed tasks; agents that are suspended or misconfigured, or \
                  have no passkey; broken clones; refused logins, and quotas that have been used up for an hour; \
                  coordinators, servers and stores that are away; forges that refuse the token or have been away \
                  for 10 minutes; results of finished tasks that are not merged; a rejected \
                  configuration; processes that survive SIGKILL. A pause and a hold do not count, \
                  and what you put off with `inbox` does."
)]
pub(super) struct StatusArguments {
    /// Update the output every second until interrupted. It waits for a daemon that restarts
    #[arg(long, conflicts_with_all = ["json", "exit_code"])]
    watch: bool,
    /// Select this project
    #[arg(long)]
    project: Option<Named<ProjectId>>,
    /// Print all columns and more of the ended launches, also if lines become longer than the
    /// terminal
    #[arg(long, conflicts_with = "json")]
    wide: bool,
    /// Exit with 3 if something needs a person
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    zone: Zone,
    #[command(flatten)]
    form: Form,
}

/// The form of the text.
#[derive(Debug, Clone, Copy)]
struct TextForm {
    is_wide: bool,
    zone: Zone,
}

/// The state at one moment, with what needs a person.
struct Overview {
    status: StatusBody,
    needs: Vec<String>,
}

impl StatusArguments {
    pub(super) async fn run(self, client: &Client) -> Result<(), CliError> {
        let project = id_of(self.project.as_ref(), client).await?;
        let shown = TextForm { is_wide: self.wide, zone: self.zone };
        if self.watch {
            return watch(client, project.as_ref(), shown).await;
        }
        let status = status_of(client, project.as_ref()).await?;
        if self.form.json {
            print_json(&status)?;
            if !self.exit_code {
                return Ok(());
            }
        }
        let needs = needs_of(client, &status, project.as_ref()).await?;
        if !self.form.json {
            let text = text::describe(&status, &needs, shown, Screen::of_output());
            writeln!(io::stdout(), "{text}")?;
        }
        if self.exit_code && !needs.is_empty() {
            return Err(CliError::Result(EXIT_NEEDS_PERSON));
        }
        Ok(())
    }
}

/// Returns whether the server has the tasks and answers. A coordinator alone has no tasks.
fn has_tasks(status: &StatusBody) -> bool {
    status.server.is_none() && status.health == "ok"
}

/// Returns the state, of one project if it is given.
async fn status_of(client: &Client, project: Option<&ProjectId>) -> Result<StatusBody, CliError> {
    let mut status: StatusBody = client.get("/status").await?;
    let Some(project) = project else { return Ok(status) };
    status.instances.retain(|instance| instance.launch.project_id == *project);
    status.deferred.retain(|waits| waits.project_id == *project);
    status.forge_items.retain(|item| item.project_id == *project);
    status.to_merge.retain(|it| it.project_id == *project);
    status.ended.retain(|launch| launch.project_id == *project);
    if has_tasks(&status) {
        // The last ends of all projects may not contain those of this one.
        let path = format!("/launches?limit={N_SEARCHED}&project={project}");
        let launches: Vec<LaunchBody> = client.get(&path).await?;
        status.ended = launches.into_iter().filter(|launch| launch.outcome.is_some()).collect();
    }
    Ok(status)
}

/// Returns what needs a person.
async fn needs_of(
    client: &Client,
    status: &StatusBody,
    project: Option<&ProjectId>,
) -> Result<Vec<String>, CliError> {
    if !has_tasks(status) {
        return Ok(needs::without_store(status));
    }
    // The marks of one person do not change this list: others and scripts read it, too.
    let mut entries: Vec<AttentionBody> = client.get("/attention").await?;
    // An entry without a project concerns all projects.
    entries.retain(|entry| {
        project.is_none() || entry.project_id.is_none() || entry.project_id.as_ref() == project
    });
    Ok(needs::lines_of(&entries, status))
}

async fn overview(client: &Client, project: Option<&ProjectId>) -> Result<Overview, CliError> {
    let status = status_of(client, project).await?;
    let needs = needs_of(client, &status, project).await?;
    Ok(Overview { status, needs })
}

/// Prints the state again and again. It waits for a daemon that is away, and says so.
async fn watch(
    client: &Client,
    project: Option<&ProjectId>,
    shown: TextForm,
) -> Result<(), CliError> {
    let mut newest = overview(client, project).await?;
    let mut away_since: Option<Timestamp> = None;
    let mut note: Option<String> = None;
    // The first frame clears the terminal. Later ones are written over the one before, so that
    // nothing flickers.
    let mut start = "\x1b[2J\x1b[H";
    loop {
        // The last column stays free: there, clearing the rest of a line would clear its last
        // character.
        let screen = Screen::of_output();
        let screen = Screen { width: screen.width.map(|width| width.max(2) - 1), ..screen };
        let mut text = text::describe(&newest.status, &newest.needs, shown, screen);
        if let Some(note) = &note {
            text = format!("{}\n\n{text}", screen.wrapped(note));
        }
        let mut stdout = io::stdout();
        stdout.write_all(frame(start, &text, screen.height).as_bytes())?;
        stdout.flush()?;
        start = "\x1b[H";
        tokio::time::sleep(WATCH_INTERVAL).await;
        let now = now();
        match overview(client, project).await {
            Ok(overview) => {
                newest = overview;
                if let Some(since) = away_since.take() {
                    let from = shown.zone.time(since);
                    let until = shown.zone.time(now);
                    note = Some(format!("reconnected: no daemon answered from {from} to {until}"));
                }
            }
            Err(error) if error.is_absence() => {
                let since = *away_since.get_or_insert(now);
                let since = shown.zone.time(since);
                note = Some(format!(
                    "No daemon has answered since {since}; waiting for it. This is its last state:"
                ));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns the bytes that replace what the terminal shows by the first lines of `text`.
fn frame(start: &str, text: &str, height: Option<usize>) -> String {
    let mut frame = start.to_owned();
    // The cursor stands on a line of its own.
    let n_lines = height.map_or(usize::MAX, |height| height.max(2) - 1);
    for line in text.lines().take(n_lines) {
        let _ = writeln!(frame, "{line}\x1b[K");
    }
    frame.push_str("\x1b[J");
    frame
}

/// Returns the hint in words for a person.
pub(super) const fn in_words(hint: ExitHint) -> &'static str {
    match hint {
        ExitHint::OutOfMemory => "out of memory",
        ExitHint::KilledFromOutside => "killed from outside",
        ExitHint::CoreDumped => "core dumped",
    }
}

/// Returns the line about a launch whose coordinator is away, and how to end that launch. Such a
/// coordinator is gone, or another database was restored.
pub(super) fn abandoned_line(launch: &LaunchId, agent: &AgentId, project: &ProjectId) -> String {
    format!(
        "the coordinator of {launch} is not there. If it does not come back, only `stop {agent} {project} --force` ends that \
         launch; make sure first that its processes are gone"
    )
}

/// Returns the line that says why no agent of a provider starts, and until when.
pub(super) fn parked_line(parked: &ParkedBody, now: Timestamp) -> String {
    let ParkedBody { provider, reason, until, .. } = parked;
    let until = match &parked.tried_by {
        Some(launch) => format!("{launch} tries whether it works again"),
        None if *until <= now => "the next start tries whether it works again".to_owned(),
        None => format!(
            "no agent of it starts for {}{}, or until `resume --provider {provider}`",
            ago(now, *until),
            if parked.guessed { " (guessed)" } else { "" }
        ),
    };
    format!("parked: {provider} ({reason}): {until}")
}

/// Returns the line that the pause file keeps agents from starting, and how to end that.
pub(super) fn pause_file_line(path: &str) -> String {
    format!(
        "The pause file `{path}` exists: no agent is started, and work of forges is paused. Remove it to go on."
    )
}

/// Returns a line for each warning about directories without clones.
pub(super) fn warnings<'a>(
    crowds: impl IntoIterator<Item = &'a Crowd>,
    failed_snapshots: impl IntoIterator<Item = &'a FailedSnapshot>,
) -> Option<String> {
    let crowds = crowds.into_iter().map(Crowd::warning);
    let failed = failed_snapshots.into_iter().map(FailedSnapshot::warning);
    let all: Vec<String> =
        crowds.chain(failed).map(|warning| format!("warning: {}", plain(&warning))).collect();
    (!all.is_empty()).then(|| all.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_no_more_lines_than_the_terminal() {
        assert_eq!(frame("\x1b[H", "a\nb\nc", Some(3)), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
        assert_eq!(frame("", "a\nb", None).matches('\n').count(), 2);
        assert_eq!(frame("", "a\nb", Some(0)).matches('\n').count(), 1);
    }
}
