//! The commands of `task` that concern results: diff, merge, publish, result, discard, restore.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;

use super::client::Client;
use super::error::CliError;
use super::follow::say;
use super::kept::telling;
use super::named::Named;
use super::output::{Form, plain, print_json, print_line};
use super::workspace::{changes, in_no_commit, of_task, others, print_changed, print_others};
use api::workspaces::{
    ForeverRequest, MergeRequest, MergedBody, PublishedBody, RestoreTaskRequest, ResultRequest,
    WorkspaceBody,
};
use config::Environment;
use domain::TaskId;
use domain::printable::counted;
use domain::workspace::WorkspaceState;

/// The arguments of `task diff`.
#[derive(Debug, clap::Args)]
pub(super) struct DiffTask {
    /// Task id
    task: Named<TaskId>,
    /// Print one line per file
    #[arg(long)]
    stat: bool,
    /// Print the changes that are in no commit
    #[arg(long, conflicts_with = "stat")]
    uncommitted: bool,
}

impl DiffTask {
    pub(super) async fn run(self, client: &Client) -> Result<(), CliError> {
        let Self { task, stat, uncommitted } = self;
        let id = task.id(client).await?;
        let path = format!("/tasks/{id}/workspace/diff?stat={stat}&uncommitted={uncommitted}");
        let mut diff = Vec::new();
        let read = client.stream(&path, |bytes| {
            diff.extend_from_slice(bytes);
            Ok(())
        });
        telling(client, &id, read).await?;
        let mut stdout = std::io::stdout();
        if stdout.is_terminal() {
            print_line(&String::from_utf8_lossy(&diff))?;
        } else {
            // A program, such as `git apply`, gets every byte.
            stdout.write_all(&diff)?;
        }
        let is_empty = diff.is_empty() && !uncommitted;
        if stat || is_empty {
            let workspace = of_task(client, &task).await?;
            let n_files = workspace.content.as_ref().map_or(0, |content| content.n_uncommitted);
            if is_empty && n_files > 0 {
                let files = in_no_commit(n_files);
                let short_id = &workspace.short_id;
                say(&format!("{files}: `task diff {short_id} --uncommitted` shows that"));
            }
            for line in others(&workspace) {
                say(&line);
            }
        }
        Ok(())
    }
}

/// The arguments of `task merge`.
#[allow(clippy::struct_excessive_bools, reason = "each is an option that a person sets")]
#[derive(Debug, clap::Args)]
pub(super) struct MergeTask {
    /// Task id
    task: Named<TaskId>,
    /// The branch that gets the result [default: the branch that the work began at]
    #[arg(long, value_name = "BRANCH")]
    into: Option<String>,
    /// Make one commit with all changes instead of a merge
    #[arg(long)]
    squash: bool,
    /// Add each commit of the result after those of the branch, with its author
    #[arg(long, conflicts_with = "squash")]
    rebase: bool,
    /// Merge all changes once more, as if nothing had been merged before
    #[arg(long)]
    again: bool,
    /// After a revert of an earlier merge, merge only the newer changes
    #[arg(long, conflicts_with = "again")]
    only_new: bool,
    /// Run the hooks of the repository that judge the commit; they may run files of the result
    #[arg(long)]
    run_hooks: bool,
    /// Merge without these hooks
    #[arg(long, conflicts_with = "run_hooks")]
    no_hooks: bool,
    /// With --no-hooks, also merge without them later: `project show` says so, and `project set
    /// --merge-hooks ''` takes that back
    #[arg(long, requires = "no_hooks")]
    remember: bool,
    /// Also merge the changes that are in no commit
    #[arg(long)]
    with_uncommitted: bool,
    /// Refuse the merge if the result is another commit than this one
    #[arg(long, value_name = "COMMIT")]
    expected_head: Option<String>,
    /// Merge what there is now, although the task is open
    #[arg(long)]
    now: bool,
    /// On a conflict, let the agent of the task resolve it: the task is in progress again
    #[arg(long)]
    ask_agent: bool,
    #[command(flatten)]
    form: Form,
}

impl MergeTask {
    pub(super) async fn run(self, client: &Client) -> Result<(), CliError> {
        let Self { task, into, squash, rebase, with_uncommitted, expected_head, .. } = self;
        let Self { again, only_new, run_hooks, no_hooks, remember, now, ask_agent, form, .. } =
            self;
        let task = task.id(client).await?;
        let request = MergeRequest {
            into,
            squash,
            rebase,
            again,
            only_new,
            run_hooks,
            no_hooks,
            remember,
            with_uncommitted,
            expected_head,
            now,
            ask_agent,
        };
        let path = format!("/tasks/{task}/workspace/merge");
        let merged: MergedBody = telling(client, &task, client.post(&path, &request)).await?;
        if form.json {
            return print_json(&merged);
        }
        if merged.is_unchanged {
            return print_line("the task changed nothing, so there is nothing to merge");
        }
        print_line(&end_of(&merged, again, only_new))?;
        if remember {
            say("later merges in this project run no hooks either (`project show`)");
        }
        let left: WorkspaceBody = client.get(&format!("/tasks/{task}/workspace")).await?;
        let n_left = left.content.map_or(0, |content| content.n_uncommitted);
        if !with_uncommitted && n_left > 0 {
            let short_id = left.short_id;
            let verb = if n_left == 1 { "is" } else { "are" };
            let files = counted(n_left, "file");
            say(&format!(
                "{files} {verb} in no commit and not merged: `task diff {short_id} \
                 --uncommitted` shows that, `task merge {short_id} --with-uncommitted` merges it"
            ));
        }
        Ok(())
    }
}

/// Returns the sentence about a merge. `is_again` says that all changes were to be merged once more,
/// and `is_only_new` that only newer ones were.
fn end_of(merged: &MergedBody, is_again: bool, is_only_new: bool) -> String {
    let MergedBody { branch, commit, was_merged, merge, .. } = merged;
    let short = |commit: &String| commit.get(..12).unwrap_or(commit).to_owned();
    match (was_merged, merge) {
        (false, _) => format!("{branch} has the result: {}", short(commit)),
        (true, _) if is_again => {
            format!("{branch} has all changes of the result, so nothing is missing")
        }
        (true, merge) => {
            let merge = merge.as_ref().map(|merge| format!(": {}", short(merge)));
            let merge = merge.unwrap_or_default();
            let newer = if is_only_new { "there is no newer commit; " } else { "" };
            format!("{newer}{branch} had the result before{merge} (`--again` merges it once more)")
        }
    }
}

/// The arguments of `task publish`.
#[derive(Debug, clap::Args)]
pub(super) struct PublishTask {
    /// Task id
    task: Named<TaskId>,
    #[command(flatten)]
    form: Form,
}

impl PublishTask {
    pub(super) async fn run(self, client: &Client) -> Result<(), CliError> {
        let Self { task, form } = self;
        let task = task.id(client).await?;
        let path = format!("/tasks/{task}/workspace/publish");
        let published: PublishedBody = telling(client, &task, client.post(&path, &())).await?;
        if form.json {
            return print_json(&published);
        }
        let PublishedBody { branch, commit, is_renamed, wanted } = published;
        let commit = commit.get(..12).unwrap_or(&commit);
        print_line(&format!(
            "the project's repository has the result as the branch {branch}: {commit}"
        ))?;
        if is_renamed {
            say(&format!("`{wanted}` there has other commits, or is checked out"));
        }
        Ok(())
    }
}

/// The arguments of `task result`.
#[derive(Debug, clap::Args)]
pub(super) struct ResultOfTask {
    /// Task id
    task: Named<TaskId>,
    /// The branch, or the commit, that is the result from now on
    #[arg(long, value_name = "BRANCH|COMMIT")]
    take: Option<String>,
    /// A branch, or a commit, that is not needed
    #[arg(long, value_name = "BRANCH|COMMIT", conflicts_with = "take")]
    drop: Option<String>,
    /// A branch, or a commit, that is needed after all
    #[arg(long, value_name = "BRANCH|COMMIT", conflicts_with_all = ["take", "drop"])]
    want: Option<String>,
    #[command(flatten)]
    form: Form,
}

impl ResultOfTask {
    pub(super) async fn run(self, client: &Client) -> Result<(), CliError> {
        let Self { task, take, drop, want, form } = self;
        let workspace: WorkspaceBody = if take.is_some() || drop.is_some() || want.is_some() {
            let id = task.id(client).await?;
            let path = format!("/tasks/{id}/workspace/result");
            let request = ResultRequest { take, drop, want };
            telling(client, &id, client.post(&path, &request)).await?
        } else {
            let id = task.id(client).await?;
            let path = format!("/tasks/{id}/workspace?kept=true");
            telling(client, &id, client.get(&path)).await?
        };
        if form.json {
            return print_json(&workspace);
        }
        print_line(&changes(&workspace))?;
        print_others(&workspace)
    }
}

/// The arguments of `task discard`.
#[derive(Debug, clap::Args)]
pub(super) struct DiscardTask {
    /// Task id
    task: Named<TaskId>,
    /// Also give up the kept commits; they are removed after 14 days
    #[arg(long)]
    forever: bool,
    /// With --forever, the id of the task once more, for scripts [default: ask on the terminal]
    #[arg(long, value_name = "ID", requires = "forever")]
    yes: Option<String>,
    #[command(flatten)]
    form: Form,
}

impl DiscardTask {
    pub(super) async fn run(self, client: &Client) -> Result<(), CliError> {
        let Self { task, forever, yes, form } = self;
        let id = task.id(client).await?;
        if !forever {
            let path = format!("/tasks/{id}/workspace/discard");
            telling(client, &id, client.post_only(&path, &())).await?;
            let text = "discarded; `task keep` takes that back, and the commits stay";
            return print_changed(client, &task, form, text).await;
        }
        let WorkspaceBody { short_id, title, .. } = of_task(client, &task).await?;
        let confirm = match yes {
            Some(yes) => yes,
            None => ask_again(&short_id.to_string(), &title)?,
        };
        let path = format!("/tasks/{id}/workspace/discard-forever");
        let request = ForeverRequest { confirm };
        telling(client, &id, client.post_only(&path, &request)).await?;
        let text = format!(
            "the result of {short_id} is given up; its kept commits are removed after 14 days"
        );
        print_changed(client, &task, form, &text).await
    }
}

/// Asks on the terminal for the id of the task whose result is given up.
fn ask_again(short_id: &str, title: &str) -> Result<String, CliError> {
    let mut shown = std::io::stderr();
    if !std::io::stdin().is_terminal() || !shown.is_terminal() {
        return Err(CliError::Usage(format!(
            "this gives up the kept commits of {short_id}; confirm it with `--yes {short_id}`"
        )));
    }
    write!(
        shown,
        "This gives up the files and the kept commits of {short_id} ({}). Its id once more: ",
        plain(title)
    )?;
    shown.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(answer.trim().to_owned())
}

/// The arguments of `task restore`.
#[derive(Debug, clap::Args)]
pub(super) struct RestoreTask {
    /// Task id
    task: Named<TaskId>,
    /// Write the files into this folder on the host of the daemon; it must be new or empty
    /// [default: the task gets a clone again]
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
}

impl RestoreTask {
    pub(super) async fn run(
        self,
        client: &Client,
        environment: &Environment,
    ) -> Result<(), CliError> {
        let Self { task, to, form } = self;
        let task = task.id(client).await?;
        let to = to.map(|to| environment.working_directory().join(to));
        let request = RestoreTaskRequest { to: to.clone() };
        let path = format!("/tasks/{task}/workspace/restore");
        let restored: WorkspaceBody = client.post(&path, &request).await?;
        if form.json {
            return print_json(&restored);
        }
        if let Some(to) = to {
            return print_line(&to.to_string_lossy());
        }
        let WorkspaceBody { short_id, state, .. } = restored;
        match state {
            WorkspaceState::Wanted => print_line(&format!(
                "the clone of {short_id} is being made; `workspace show {short_id}` says more"
            )),
            _ => print_line(&format!("the clone of {short_id} is there: it is {state}")),
        }
    }
}
