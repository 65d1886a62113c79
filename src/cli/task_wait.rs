//! `task wait` and `task add --wait`: wait until tasks are over. With `--follow`, the output of
//! their agents is printed meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use super::client::Client;
use super::error::CliError;
use super::events::event_of;
use super::follow::{Following, say};
use super::kept::until_kept;
use super::logs;
use super::named::{Named, ids};
use super::output::{Form, plain, print_json, print_line};
use api::launches::LaunchBody;
use api::tasks::{TaskBody, TaskDetail};
use api::waiting::WaitingBody;
use api::workspaces::WorkspaceBody;
use domain::workspace::WorkspaceState;
use domain::{LaunchId, TaskId, TaskStatus};

/// The exit code if a task was cancelled, and none is blocked.
const EXIT_CANCELLED: u8 = 3;
/// The exit code if a task is blocked, or waits until a person does something.
const EXIT_BLOCKED: u8 = 4;
/// The exit code at the end of `--timeout`, as of timeout(1).
const EXIT_TIMEOUT: u8 = 124;
/// The exit code after Ctrl-C, as of a shell.
const EXIT_INTERRUPTED: u8 = 130;
/// The time between two looks for the process of a launch.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 all are done; 3 one was cancelled; 4 one is blocked, or \
                  needs a person before its agent starts; 124 the timeout is over; 1 failed, \
                  2 usage, 69 no daemon, 78 configuration. If several apply, the highest counts.")]
pub(super) struct WaitForTasks {
    /// Tasks: their ids, short ids such as SHOP-12, or the beginnings of their ids
    #[arg(required = true)]
    tasks: Vec<Named<TaskId>>,
    /// Wait no longer than this, such as 30m [default: wait without limit]
    #[arg(long, value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    form: Form,
}

impl WaitForTasks {
    pub(super) async fn run(self, client: &Client) -> Result<(), CliError> {
        let tasks = ids(&self.tasks, client).await?;
        let over = wait(client, tasks, self.timeout, Shown::of(self.form)).await?;
        if self.form.json {
            print_json(&over)?;
        }
        result_of(&over)
    }
}

/// The lines that a wait prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Nothing,
    /// The end of each task, when it is over.
    Ends,
    /// The output of the agents. The end of each task goes to standard error.
    Output,
}

impl Shown {
    /// Returns what is printed beside an answer in this form.
    pub(super) const fn of(form: Form) -> Self {
        if form.json { Self::Nothing } else { Self::Ends }
    }
}

/// Waits until each task is done, cancelled or blocked, or until it needs a person, also over
/// restarts of the daemon. Returns the tasks.
///
/// # Errors
/// `Result` at the end of the timeout.
pub(super) async fn wait(
    client: &Client,
    tasks: Vec<TaskId>,
    timeout: Option<Duration>,
    shown: Shown,
) -> Result<Vec<TaskDetail>, CliError> {
    let over = Vec::with_capacity(tasks.len());
    let mut waiting = Waiting { client, shown, open: tasks, over, printed: BTreeSet::new() };
    let Some(timeout) = timeout else {
        waiting.until_over().await?;
        return Ok(waiting.over);
    };
    let ended = tokio::time::timeout(timeout, waiting.until_over()).await;
    if let Ok(ended) = ended {
        return ended.map(|()| waiting.over);
    }
    for task in &waiting.open {
        let shown: Option<TaskDetail> = client.get(&format!("/tasks/{task}")).await.ok();
        let short_id = shown.as_ref().map(|shown| shown.task.short_id.to_string());
        let short_id = short_id.unwrap_or_else(|| task.to_string());
        say(&if shown.as_ref().is_some_and(is_being_kept) {
            format!("the work on {short_id} is not kept yet")
        } else {
            let end = shown.as_ref().and_then(end_of);
            format!("{short_id} {}", end.as_deref().unwrap_or("is not over yet"))
        });
    }
    Err(CliError::Result(EXIT_TIMEOUT))
}

/// Waits as [`wait`] does for one task, and prints the output of its agents. Ctrl-C ends only the
/// wait.
///
/// # Errors
/// `Result` at the end of the timeout, and after Ctrl-C.
pub(super) async fn follow(
    client: &Client,
    task: &TaskBody,
    timeout: Option<Duration>,
) -> Result<Vec<TaskDetail>, CliError> {
    let waited = wait(client, vec![task.id.clone()], timeout, Shown::Output);
    tokio::select! {
        over = waited => over,
        Ok(()) = tokio::signal::ctrl_c() => {
            say(&line_after_ctrl_c(task));
            Err(CliError::Result(EXIT_INTERRUPTED))
        }
    }
}

/// Returns the line that the task goes on, and how to follow it again.
fn line_after_ctrl_c(task: &TaskBody) -> String {
    let TaskBody { short_id, project_id, assignee_id, .. } = task;
    let output = assignee_id.as_ref().map_or_else(String::new, |agent| {
        format!("`logs {agent} {project_id} --follow` prints the output of its agent, and ")
    });
    format!("{short_id} goes on; {output}`task wait {short_id}` waits for its end")
}

/// Returns the exit code that tells how the tasks ended, as the error of the command.
pub(super) fn result_of(over: &[TaskDetail]) -> Result<(), CliError> {
    let codes = over.iter().map(|task| match task.task.status {
        TaskStatus::Cancelled => EXIT_CANCELLED,
        TaskStatus::Done => 0,
        _ => EXIT_BLOCKED,
    });
    match codes.max() {
        None | Some(0) => Ok(()),
        Some(code) => Err(CliError::Result(code)),
    }
}

/// A wait for tasks.
struct Waiting<'a> {
    client: &'a Client,
    shown: Shown,
    open: Vec<TaskId>,
    over: Vec<TaskDetail>,
    /// The launches whose output was printed.
    printed: BTreeSet<LaunchId>,
}

/// The result of a look at the tasks.
enum Found {
    /// All are over.
    Ends,
    /// A launch for one, whose output was not printed yet.
    Output(LaunchId),
    /// Some go on.
    Nothing,
}

impl Waiting<'_> {
    /// Moves the tasks from `open` to `over` as they end. Cancel-safe.
    async fn until_over(&mut self) -> Result<(), CliError> {
        let mut following = Following::new();
        loop {
            let followed = match self.follow_events(&mut following).await {
                Ok(Found::Ends) => return Ok(()),
                Ok(Found::Output(launch)) => self.print_output(launch).await,
                Ok(Found::Nothing) => {
                    let ended = "the daemon ended the stream of events";
                    Err(CliError::Lost(ended.to_owned()))
                }
                Err(error) => Err(error),
            };
            if let Err(error) = followed {
                following.lost(error).await?;
            }
        }
    }

    /// Looks at the tasks when they may have changed. Returns `Found::Nothing` at the end of the
    /// stream of events.
    async fn follow_events(&mut self, following: &mut Following) -> Result<Found, CliError> {
        // The stream begins before the tasks are read, so that no change in between is missed.
        let mut events = self.client.open("/events").await?;
        following.connected();
        let mut rest = Vec::new();
        let mut is_changed = true;
        loop {
            if is_changed {
                let found = self.look().await?;
                if !matches!(found, Found::Nothing) {
                    return Ok(found);
                }
            }
            let Some(piece) = events.next().await? else { return Ok(Found::Nothing) };
            rest.extend_from_slice(&piece);
            is_changed = false;
            while let Some(end) = rest.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = rest.drain(..end + 2).collect();
                let event = event_of(&String::from_utf8_lossy(&block));
                // An event without a task, such as a pause, may keep the agents of these tasks from
                // starting.
                is_changed |= event.is_some_and(|event| {
                    event.task_id.is_none_or(|task| self.open.contains(&task))
                });
            }
        }
    }

    async fn look(&mut self) -> Result<Found, CliError> {
        let mut being_kept = Vec::new();
        // A task that was told is not told again if the next one can't be read.
        let mut n = 0;
        while let Some(id) = self.open.get(n).cloned() {
            let task: TaskDetail = self.client.get(&format!("/tasks/{id}")).await?;
            // The launches are read after the task, so that none is missed that ended it.
            if let Some(launch) = self.find_output(&task).await? {
                return Ok(Found::Output(launch));
            }
            let is_waited_for = is_being_kept(&task);
            match end_of(&task) {
                Some(end) if !is_waited_for => {
                    self.tell(&task, &end)?;
                    self.over.push(task);
                    self.open.remove(n);
                }
                _ => {
                    being_kept.extend(is_waited_for.then_some(id));
                    n += 1;
                }
            }
        }
        for id in being_kept {
            until_kept(self.client, &id).await?;
            let task: TaskDetail = self.client.get(&format!("/tasks/{id}")).await?;
            if let Some(end) = end_of(&task) {
                self.tell(&task, &end)?;
                self.over.push(task);
                self.open.retain(|other| *other != id);
            }
        }
        Ok(if self.open.is_empty() { Found::Ends } else { Found::Nothing })
    }

    /// Returns the oldest launch for a task whose output was not printed, if output is wanted.
    async fn find_output(&self, detail: &TaskDetail) -> Result<Option<LaunchId>, CliError> {
        if self.shown != Shown::Output {
            return Ok(None);
        }
        let launches: Vec<LaunchBody> = self.client.get(&launches_of(&detail.task)).await?;
        let is_wanted = |launch: &LaunchBody| {
            let task = launch.task_id.as_ref().or(launch.claimed_task_id.as_ref());
            task == Some(&detail.task.id) && !self.printed.contains(&launch.launch_id)
        };
        Ok(launches.into_iter().rev().find(is_wanted).map(|launch| launch.launch_id))
    }

    /// Prints the output of a launch until it has ended, and then its outcome.
    async fn print_output(&mut self, launch: LaunchId) -> Result<(), CliError> {
        let path = format!("/launches/{launch}");
        let begun = loop {
            let now: LaunchBody = self.client.get(&path).await?;
            if now.pid.is_some() || now.outcome.is_some() {
                break now;
            }
            // No event tells that the process of a launch has begun.
            tokio::time::sleep(LOOK_AGAIN).await;
        };
        self.printed.insert(launch.clone());
        if begun.pid.is_some() {
            say(&format!("{launch} runs"));
            match logs::follow(self.client, &launch).await {
                // The reader of the output is gone. The agent goes on.
                Err(CliError::Hushed) => return Err(CliError::Hushed),
                Err(error) => {
                    error.print();
                    say("the output is not printed; waiting for the end of the task");
                    return Ok(());
                }
                Ok(()) => {}
            }
        }
        let ended: LaunchBody = self.client.get(&path).await?;
        let outcome = ended.outcome.unwrap_or_default();
        let reason = ended.reason.map_or_else(String::new, |reason| format!(" ({reason})"));
        say(&format!("{launch} ended: {}", plain(&format!("{outcome}{reason}"))));
        Ok(())
    }

    /// Tells a person how a task is over.
    fn tell(&self, task: &TaskDetail, end: &str) -> Result<(), CliError> {
        let line = format!("{} {end}", task.task.short_id);
        match self.shown {
            Shown::Nothing => Ok(()),
            Shown::Ends => print_line(&line),
            Shown::Output => {
                say(&line);
                Ok(())
            }
        }
    }
}

/// Returns the question for the launches among which those for a task are. It is asked again after
/// each event of the task, so that the last ones of its agent are enough.
fn launches_of(task: &TaskBody) -> String {
    let agent = task.assignee_id.as_ref().map(|agent| format!("&agent={agent}"));
    let agent = agent.unwrap_or_default();
    format!("/launches?project={}&purpose=task&limit=10{agent}", task.project_id)
}

/// Returns whether the work on a finished task is still being kept.
fn is_being_kept(detail: &TaskDetail) -> bool {
    let is_in_use = |workspace: &WorkspaceBody| workspace.state == WorkspaceState::InUse;
    !detail.task.status.is_open() && detail.workspace.as_ref().is_some_and(is_in_use)
}

/// Returns how a task is over, as the rest of a sentence; `None` if it is not.
fn end_of(detail: &TaskDetail) -> Option<String> {
    let status = detail.task.status;
    match (status, &detail.task.blocked_reason, &detail.waiting) {
        (TaskStatus::Blocked, Some(reason), _) => Some(format!("is blocked: {}", plain(reason))),
        (TaskStatus::Done | TaskStatus::Cancelled | TaskStatus::Blocked, ..) => {
            Some(format!("is {status}"))
        }
        (TaskStatus::InProgress, _, Some(waiting)) if is_over(waiting) => {
            Some(format!("needs a person: {}", plain(&waiting.text)))
        }
        _ => None,
    }
}

/// Returns whether only a person ends the wait of a task. A coordinator that restarts comes back by
/// itself.
fn is_over(waiting: &WaitingBody) -> bool {
    match waiting.reason.as_str() {
        "held" | "no_assignee" => true,
        "no_coordinator" | "host_silent" => false,
        _ => waiting.needs_person,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_launches_of_the_assignee_are_asked_for() {
        let task = |assignee: Option<&str>| -> TaskBody {
            let task = serde_json::json!({
                "id": "tsk", "shortId": "SHOP-1", "projectId": "shop", "title": "",
                "description": "", "status": "in_progress", "priority": "medium",
                "dependencies": [], "createdAt": "2026-11-23T00:00:00.000Z",
                "statusSince": "2026-11-23T00:00:00.000Z", "assigneeId": assignee,
            });
            serde_json::from_value(task).expect("a task")
        };
        let query = "/launches?project=shop&purpose=task&limit=10";
        assert_eq!(launches_of(&task(None)), query);
        assert_eq!(launches_of(&task(Some("ann"))), format!("{query}&agent=ann"));
    }
}
