//! Commands about results wait until the work of a finished task is kept, and say so.

use std::time::Duration;

use super::client::Client;
use super::error::CliError;
use super::follow::say;
use api::workspaces::WorkspaceBody;
use domain::TaskId;
use domain::workspace::WorkspaceState;

/// The time after which a person is told what a command waits for.
const TELL_AFTER: Duration = Duration::from_secs(1);

/// Waits for an answer of the daemon about the result of a task. If it takes longer than a second
/// because the work is being kept, that is said on standard error.
pub(super) async fn telling<T>(
    client: &Client,
    task: &TaskId,
    answer: impl Future<Output = T>,
) -> T {
    tokio::pin!(answer);
    tokio::select! {
        answer = &mut answer => return answer,
        () = tokio::time::sleep(TELL_AFTER) => {}
    }
    let found: Result<WorkspaceBody, CliError> =
        client.get(&format!("/tasks/{task}/workspace")).await;
    if let Ok(WorkspaceBody { state: WorkspaceState::InUse, short_id, task_status, .. }) = found
        && !task_status.is_open()
    {
        say(&format!("waiting until the work of {short_id} is kept"));
    }
    answer.await
}

/// Waits until the work of a finished task is kept, a minute at most.
pub(super) async fn until_kept(client: &Client, task: &TaskId) -> Result<(), CliError> {
    let path = format!("/tasks/{task}/workspace?kept=true");
    telling(client, task, client.get::<WorkspaceBody>(&path)).await.map(drop)
}
