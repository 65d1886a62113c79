//! `task wait` and `task add --wait`: wait until tasks are over.

use std::time::Duration;

use super::client::Client;
use super::error::CliError;
use super::events::event_of;
use super::follow::{Following, say};
use super::kept::until_kept;
use super::named::{Named, ids};
use super::output::{Form, plain, print_json, print_line};
use crate::domain::workspace::WorkspaceState;
use crate::domain::{TaskId, TaskStatus};
use crate::rest::routes::tasks::TaskDetail;
use crate::rest::routes::waiting::WaitingBody;
use crate::rest::routes::workspaces::WorkspaceBody;

/// The exit code if a task was cancelled, and none is blocked.
const EXIT_CANCELLED: u8 = 3;
/// The exit code if a task is blocked, or waits until a person does something.
const EXIT_BLOCKED: u8 = 4;
/// The exit code at the end of `--timeout`, as of timeout(1).
const EXIT_TIMEOUT: u8 = 124;

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
        let over = wait(client, tasks, self.timeout, self.form).await?;
        if self.form.json {
            print_json(&over)?;
        }
        result_of(&over)
    }
}

/// Waits until each task is done, cancelled or blocked, or until it needs a person, also over
/// restarts of the daemon. Returns the tasks. Without JSON it prints each one when it is over.
///
/// # Errors
/// `Result` at the end of the timeout.
pub(super) async fn wait(
    client: &Client,
    tasks: Vec<TaskId>,
    timeout: Option<Duration>,
    form: Form,
) -> Result<Vec<TaskDetail>, CliError> {
    let mut open = tasks;
    let mut over = Vec::with_capacity(open.len());
    let waiting = until_over(client, &mut open, &mut over, form);
    let Some(timeout) = timeout else {
        waiting.await?;
        return Ok(over);
    };
    if let Ok(ended) = tokio::time::timeout(timeout, waiting).await {
        return ended.map(|()| over);
    }
    for task in &open {
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

/// Moves the tasks from `open` to `over` as they end. Cancel-safe.
async fn until_over(
    client: &Client,
    open: &mut Vec<TaskId>,
    over: &mut Vec<TaskDetail>,
    form: Form,
) -> Result<(), CliError> {
    let mut following = Following::new();
    loop {
        let followed = async {
            // The stream begins before the tasks are read, so that no change in between is missed.
            let mut events = client.open("/events").await?;
            following.connected();
            let mut rest = Vec::new();
            let mut is_changed = true;
            loop {
                if is_changed {
                    look(client, open, over, form).await?;
                }
                if open.is_empty() {
                    return Ok(true);
                }
                let Some(piece) = events.next().await? else { return Ok(false) };
                rest.extend_from_slice(&piece);
                is_changed = false;
                while let Some(end) = rest.windows(2).position(|two| two == b"\n\n") {
                    let block: Vec<u8> = rest.drain(..end + 2).collect();
                    let event = event_of(&String::from_utf8_lossy(&block));
                    // An event without a task, such as a pause, may keep the agents of these tasks from
                    // starting.
                    is_changed |= event
                        .is_some_and(|event| event.task_id.is_none_or(|task| open.contains(&task)));
                }
            }
        };
        match followed.await {
            Ok(true) => return Ok(()),
            Ok(false) => {
                let ended = "the daemon ended the stream of events";
                following.lost(CliError::Lost(ended.to_owned())).await?;
            }
            Err(error) => following.lost(error).await?,
        }
    }
}

async fn look(
    client: &Client,
    open: &mut Vec<TaskId>,
    over: &mut Vec<TaskDetail>,
    form: Form,
) -> Result<(), CliError> {
    let mut being_kept = Vec::new();
    // A task that was told is not told again if the next one can't be read.
    let mut n = 0;
    while let Some(id) = open.get(n) {
        let task: TaskDetail = client.get(&format!("/tasks/{id}")).await?;
        let is_waited_for = is_being_kept(&task);
        match end_of(&task) {
            Some(end) if !is_waited_for => {
                tell(&task, &end, form)?;
                over.push(task);
                open.remove(n);
            }
            _ => {
                being_kept.extend(is_waited_for.then(|| id.clone()));
                n += 1;
            }
        }
    }
    for id in being_kept {
        until_kept(client, &id).await?;
        let task: TaskDetail = client.get(&format!("/tasks/{id}")).await?;
        if let Some(end) = end_of(&task) {
            tell(&task, &end, form)?;
            over.push(task);
            open.retain(|other| *other != id);
        }
    }
    Ok(())
}

/// Tells a person how a task is over.
fn tell(task: &TaskDetail, end: &str, form: Form) -> Result<(), CliError> {
    if form.json {
        return Ok(());
    }
    print_line(&format!("{} {end}", task.task.short_id))
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
