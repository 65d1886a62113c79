//! `execution`: list.

use clap::Subcommand;

use super::activity::{trouble, used};
use super::client::Client;
use super::error::CliError;
use super::history::{Whose, parts};
use super::named::{Named, id_of};
use super::output::{ListForm, Zone, ago, now, print_json};
use super::screen::Rows;
use api::executions::ExecutionItem;
use api::tasks::ExecutionBody;
use domain::TaskId;

#[derive(Debug, Subcommand)]
pub(super) enum ExecutionCommand {
    /// List the work of agents on tasks with its duration and usage, the newest first
    List {
        #[command(flatten)]
        whose: Whose,
        /// Select this task
        #[arg(long)]
        task: Option<Named<TaskId>>,
        /// Select work that has not ended
        #[arg(long)]
        open: bool,
        #[command(flatten)]
        zone: Zone,
        #[command(flatten)]
        form: ListForm,
    },
}

impl ExecutionCommand {
    pub(super) async fn run(self, client: &Client) -> Result<(), CliError> {
        let Self::List { whose, task, open, zone, form } = self;
        let task = id_of(task.as_ref(), client).await?;
        let more = [task.map(|task| format!("task={task}")), open.then(|| "open=true".to_owned())];
        let query = whose.query(client, more.into_iter().flatten()).await?;
        let executions: Vec<ExecutionItem> =
            parts(client, "/executions", query, whose.limit).await?;
        if form.json { print_json(&executions) } else { print_executions(&executions, zone, form) }
    }
}

fn print_executions(
    executions: &[ExecutionItem],
    zone: Zone,
    form: ListForm,
) -> Result<(), CliError> {
    let now = now();
    let result = |execution: &ExecutionBody| {
        let failure = execution.failure.as_ref().map(|failure| trouble(failure, now, zone));
        let result = execution.result.map(|result| result.as_str().to_owned()).or(failure);
        let going_on = || if execution.ended_at.is_some() { "none" } else { "working" }.to_owned();
        result.or_else(|| execution.outcome.clone()).unwrap_or_else(going_on)
    };
    let rows = Rows::of(
        executions,
        &[
            ("TASK", &|item| item.task_id.to_string()),
            ("AGENT", &|item| item.execution.agent_id.to_string()),
            ("PROJECT", &|item| item.project_id.to_string()),
            ("LAUNCH", &|item| item.execution.launch_id.to_string()),
            ("BEGAN", &|item| ago(item.execution.started_at, now)),
            ("RESULT", &|item| result(&item.execution)),
            ("USED", &|item| used(item.execution.usage.as_ref())),
        ],
    );
    form.print(&rows, "No executions.")
}
