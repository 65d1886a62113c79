//! `notice`: list.

use clap::Subcommand;

use super::client::Client;
use super::error::CliError;
use super::history::{Whose, parts};
use super::named::{Named, id_of};
use super::output::{ListForm, ago, now, or_dash, print_json};
use super::screen::Rows;
use api::notices::NoticeBody;
use domain::{TaskId, Timestamp};

#[derive(Debug, Subcommand)]
pub(super) enum NoticeCommand {
    /// List the notices of agents, the newest first
    List {
        #[command(flatten)]
        whose: Whose,
        /// Select this task
        #[arg(long)]
        task: Option<Named<TaskId>>,
        /// Select notices that are not settled
        #[arg(long)]
        open: bool,
        #[command(flatten)]
        form: ListForm,
    },
}

impl NoticeCommand {
    pub(super) async fn run(self, client: &Client) -> Result<(), CliError> {
        let Self::List { whose, task, open, form } = self;
        let task = id_of(task.as_ref(), client).await?;
        let more = [task.map(|task| format!("task={task}")), open.then(|| "open=true".to_owned())];
        let query = whose.query(client, more.into_iter().flatten()).await?;
        let notices: Vec<NoticeBody> = parts(client, "/notices", query, whose.limit).await?;
        if form.json { print_json(&notices) } else { print_notices(&notices, form) }
    }
}

fn print_notices(notices: &[NoticeBody], form: ListForm) -> Result<(), CliError> {
    let now = now();
    let when = |at: Option<Timestamp>| or_dash(at.map(|at| ago(at, now)));
    let rows = Rows::of(
        notices,
        &[
            ("NOTICE", &|notice| notice.id.to_string()),
            ("ACTION", &|notice| notice.action.to_string()),
            ("TASK", &|notice| or_dash(notice.task_id.as_ref())),
            ("LAUNCH", &|notice| notice.launch_id.to_string()),
            ("CREATED", &|notice| ago(notice.created_at, now)),
            ("READ", &|notice| when(notice.read_at)),
            ("SETTLED", &|notice| when(notice.settled_at)),
        ],
    );
    form.print(&rows, "No notices.")
}
