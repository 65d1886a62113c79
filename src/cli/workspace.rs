//! `workspace`: list, show, path, snapshots, restore, retry.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Subcommand;

use super::client::Client;
use super::error::CliError;
use super::named::{Named, id_of};
use super::output::{Form, ListForm, Zone, or_dash, plain, print_json, print_line};
use super::screen::Rows;
use api::workspaces::{
    ConflictBody, ContentBody, OtherTipBody, RestoreRequest, SnapshotBody, WorkspaceBody,
};
use config::Environment;
use domain::printable::counted;
use domain::workspace::{Moment, WorkspaceState};
use domain::{LaunchId, ProjectId, TaskId};

#[derive(Debug, Subcommand)]
pub(super) enum WorkspaceCommand {
    /// List the workspaces that have files
    List {
        /// Select this project
        #[arg(long)]
        project: Option<Named<ProjectId>>,
        /// Also list those whose files are gone
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        form: ListForm,
    },
    /// Show the workspace of a task
    Show {
        /// Task id
        task: Named<TaskId>,
        #[command(flatten)]
        form: Form,
    },
    /// Print the folder of a workspace, for `cd "$(agent-coordinator workspace path TASK)"`
    Path {
        /// Task id
        task: Named<TaskId>,
        #[command(flatten)]
        form: Form,
    },
    /// List the snapshots of the folder of a project without clones
    Snapshots {
        /// Project: its id, its key, its name, or the beginning of its id
        project: Named<ProjectId>,
        #[command(flatten)]
        zone: Zone,
        #[command(flatten)]
        form: ListForm,
    },
    /// Write the files of a snapshot into a new folder
    Restore {
        /// Project: its id, its key, its name, or the beginning of its id
        project: Named<ProjectId>,
        /// The launch that the snapshot was taken for
        launch: LaunchId,
        /// The folder for the files, on the host of the daemon; it must be new or empty
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
        /// The time of the snapshot: before or after the launch
        #[arg(long, default_value_t = Moment::Before)]
        moment: Moment,
        #[command(flatten)]
        form: Form,
    },
    /// Let a broken workspace be tried again
    Retry {
        /// Task id
        task: Named<TaskId>,
        #[command(flatten)]
        form: Form,
    },
}

impl WorkspaceCommand {
    pub(super) async fn run(
        self,
        client: &Client,
        environment: &Environment,
    ) -> Result<(), CliError> {
        match self {
            Self::Snapshots { project, zone, form } => {
                let project = project.id(client).await?;
                let found: Vec<SnapshotBody> =
                    client.get(&format!("/projects/{project}/snapshots")).await?;
                if form.json { print_json(&found) } else { print_snapshots(&found, zone, form) }
            }
            Self::Restore { project, launch, to, moment, form } => {
                let project = project.id(client).await?;
                let to = environment.working_directory().join(to);
                let path = format!("/projects/{project}/snapshots/{launch}/restore");
                client.post_only(&path, &RestoreRequest { moment, to: to.clone() }).await?;
                print_path(&to, form)
            }
            Self::List { project, all, form } => {
                let project = id_of(project.as_ref(), client).await?;
                let project = project.map_or_else(String::new, |id| format!("&project={id}"));
                let path = format!("/workspaces?all={all}{project}");
                let found: Vec<WorkspaceBody> = client.get(&path).await?;
                if form.json { print_json(&found) } else { print_workspaces(&found, form) }
            }
            Self::Show { task, form } => {
                let found = of_task(client, &task).await?;
                if form.json { print_json(&found) } else { print_workspace(&found) }
            }
            Self::Path { task, form } => {
                let found = of_task(client, &task).await?;
                match found.path {
                    Some(path) => print_path(&path, form),
                    None => Err(CliError::Usage(format!(
                        "the files of the workspace of {task} are not on this host: it is {}",
                        found.state
                    ))),
                }
            }
            Self::Retry { task, form } => {
                let id = task.id(client).await?;
                client.post_only(&format!("/tasks/{id}/workspace/retry"), &()).await?;
                let text = "the daemon tries again; `workspace show` says how that went";
                print_changed(client, &task, form, text).await
            }
        }
    }
}

pub(super) fn print_others(workspace: &WorkspaceBody) -> Result<(), CliError> {
    others(workspace).iter().try_for_each(|line| print_line(line))
}

/// Returns a line for each branch with changes that the result lacks.
pub(super) fn others(workspace: &WorkspaceBody) -> Vec<String> {
    let Some(content) = &workspace.content else {
        return Vec::new();
    };
    let line = |OtherTipBody { branch, commit, n_commits, is_dropped }: &OtherTipBody| {
        let name = branch.as_deref().unwrap_or_else(|| commit.get(..12).unwrap_or(commit));
        let dropped = if *is_dropped { " (not needed)" } else { "" };
        match n_commits {
            0 => format!("`{}` has nothing more{dropped}", plain(name)),
            n => format!("`{}` has {}{dropped}", plain(name), counted(*n, "more commit")),
        }
    };
    let mut lines: Vec<String> = content.others.iter().map(line).collect();
    let task = &workspace.short_id;
    if content.is_undecided {
        lines.push(format!(
            "choose the result: agent-coordinator task result {task} --take BRANCH|COMMIT"
        ));
    } else if content.others.iter().any(|other| other.n_commits > 0 && !other.is_dropped) {
        lines.push(format!(
            "to use one: agent-coordinator task result {task} --take BRANCH|COMMIT; if it is not \
             needed: --drop"
        ));
    }
    lines
}

/// Prints that the workspace of a task was changed; for programs, the workspace.
pub(super) async fn print_changed(
    client: &Client,
    task: &Named<TaskId>,
    form: Form,
    text: &str,
) -> Result<(), CliError> {
    if form.json { print_json(&of_task(client, task).await?) } else { print_line(text) }
}

fn print_path(path: &Path, form: Form) -> Result<(), CliError> {
    if form.json {
        return print_json(&serde_json::json!({ "path": path }));
    }
    print_line(&path.to_string_lossy())
}

pub(super) async fn of_task(
    client: &Client,
    task: &Named<TaskId>,
) -> Result<WorkspaceBody, CliError> {
    let task = task.id(client).await?;
    client.get(&format!("/tasks/{task}/workspace")).await
}

fn print_workspaces(found: &[WorkspaceBody], form: ListForm) -> Result<(), CliError> {
    let rows = Rows::of(
        found,
        &[
            ("TASK", &|workspace| workspace.short_id.to_string()),
            ("STATE", &state),
            ("BRANCH", &|workspace| plain(&workspace.branch)),
            ("CHANGES", &changes),
            ("SIZE", &size),
            ("TITLE", &|workspace| plain(&workspace.title)),
        ],
    );
    form.print(
        &rows,
        "No workspaces. A task of a project with `--workspace clone` gets one when it starts.",
    )?;
    let wanted = found.iter().filter(|workspace| workspace.state == WorkspaceState::Wanted);
    let reasons: BTreeSet<&String> = wanted.filter_map(|it| it.reason.as_ref()).collect();
    reasons.into_iter().try_for_each(|reason| print_line(&format!("waiting: {}", plain(reason))))
}

fn print_snapshots(found: &[SnapshotBody], zone: Zone, form: ListForm) -> Result<(), CliError> {
    let rows = Rows::of(
        found,
        &[
            ("LAUNCH", &|snapshot| snapshot.launch_id.to_string()),
            ("MOMENT", &|snapshot| snapshot.moment.to_string()),
            ("AT", &|snapshot| zone.time(snapshot.at)),
            ("AGENT", &|snapshot| or_dash(snapshot.agent_id.as_ref())),
            ("TASK", &|snapshot| or_dash(snapshot.short_id.as_ref())),
            ("COMMIT", &|snapshot| plain(snapshot.commit.get(..12).unwrap_or(&snapshot.commit))),
        ],
    );
    form.print(
        &rows,
        "No snapshots. They are taken when an agent works on a task in a git work tree without clones.",
    )
}

fn print_workspace(workspace: &WorkspaceBody) -> Result<(), CliError> {
    print_line(&format!("{}  {}", workspace.short_id, plain(&workspace.title)))?;
    let reason = workspace.reason.as_deref().map(|reason| format!(": {}", plain(reason)));
    print_line(&format!("{}{}", workspace.state, reason.unwrap_or_default()))?;
    let base = workspace.base.as_deref().unwrap_or("a commit");
    print_line(&format!("branch {}, begun at {}", plain(&workspace.branch), plain(base)))?;
    if let Some(path) = &workspace.path {
        print_line(&format!("in {}", plain(&path.to_string_lossy())))?;
    }
    print_line(&changes(workspace))?;
    print_others(workspace)?;
    let left_out = workspace.content.iter().flat_map(|content| &content.left_out);
    for entry in left_out {
        print_line(&format!("not kept: {}", plain(entry)))?;
    }
    print_fate(workspace)?;
    if workspace.state == WorkspaceState::Broken {
        let task = &workspace.short_id;
        print_line(&format!("after mending it: agent-coordinator workspace retry {task}"))?;
    }
    Ok(())
}

/// Prints the result of a task, and what became of it.
pub(super) fn print_result(workspace: &WorkspaceBody) -> Result<(), CliError> {
    let content = workspace.content.as_ref();
    let has_commits =
        |it: &ContentBody| it.n_commits > 0 && !it.is_only_files() && !it.is_undecided;
    let place = if content.is_none_or(has_commits) {
        let found_on = content.and_then(|it| it.found_on.as_ref());
        let elsewhere = found_on.filter(|branch| **branch != workspace.branch);
        let elsewhere = elsewhere.map(|branch| format!(" (`{}` in the clone)", plain(branch)));
        let branch = plain(&workspace.branch);
        format!(" on the branch {branch}{}", elsewhere.unwrap_or_default())
    } else {
        String::new()
    };
    print_line(&format!("result: {}{place}", changes(workspace)))?;
    print_others(workspace)?;
    print_fate(workspace)
}

/// Prints what became of the result of a task.
fn print_fate(workspace: &WorkspaceBody) -> Result<(), CliError> {
    if let Some(ConflictBody { branch, commit, files, is_asked }) = &workspace.conflict {
        let commit = commit.get(..12).unwrap_or(commit);
        let branch = plain(branch);
        let files = plain(&files.join(", "));
        print_line(&format!("not merged: conflicts with {branch} (as of {commit}) in {files}"))?;
        let task = &workspace.short_id;
        let remedy = if *is_asked && workspace.task_status.is_open() {
            "its agent was asked to resolve that".to_owned()
        } else {
            format!(
                "to resolve that: agent-coordinator task merge {task} --ask-agent; or merge by \
                 hand, and run `task merge {task}` after that"
            )
        };
        print_line(&remedy)?;
    }
    if let Some(commit) = &workspace.merged_commit {
        print_line(&format!("merged as {commit}"))?;
    }
    if let Some(commit) = &workspace.reverted_by {
        let task = &workspace.short_id;
        let other =
            workspace.reverted_on.as_ref().filter(|on| Some(*on) != workspace.base.as_ref());
        let into = other.map(|branch| format!(" --into {}", plain(branch))).unwrap_or_default();
        let is_only_files = workspace.content.as_ref().is_some_and(had_only_files);
        let files = if is_only_files { " --with-uncommitted" } else { "" };
        print_line(&format!(
            "reverted by {commit}; `task merge {task} --again{files}{into}` merges it once more"
        ))?;
    }
    if let (Some(branch), Some(commit)) = (&workspace.published_branch, &workspace.published_commit)
    {
        let commit = commit.get(..12).unwrap_or(commit);
        print_line(&format!(
            "the project's repository has the branch {}: {commit}",
            plain(branch)
        ))?;
    }
    if workspace.forever_at.is_some() {
        print_line("given up; its kept commits are removed after 14 days")?;
    } else if workspace.discarded_at.is_some() {
        print_line("discarded; `task keep` takes that back")?;
    }
    Ok(())
}

/// Returns whether a merged result had no changes in commits. Files that were merged are not counted
/// any more.
fn had_only_files(content: &ContentBody) -> bool {
    content.n_files == 0 && !content.is_undecided
}

pub(super) fn changes(workspace: &WorkspaceBody) -> String {
    let Some(content) = &workspace.content else {
        return "-".to_owned();
    };
    if content.n_commits == 0 && content.n_uncommitted == 0 && content.others.is_empty() {
        // Files that were merged are not counted any more.
        let is_merged = workspace.merged_commit.is_some();
        let text = if is_merged { "files that were in no commit" } else { "changed nothing" };
        return text.to_owned();
    }
    if content.is_only_files() {
        return in_no_commit(content.n_uncommitted);
    }
    let uncommitted = match content.n_uncommitted {
        0 => String::new(),
        n => format!(", {n} uncommitted"),
    };
    if content.is_undecided {
        return format!("to choose{uncommitted}");
    }
    format!(
        "{}, {} +{} -{}{uncommitted}",
        counted(content.n_commits, "commit"),
        counted(content.n_files, "file"),
        content.n_additions,
        content.n_deletions
    )
}

/// Returns the number of files that are in no commit.
pub(super) fn in_no_commit(n_files: u32) -> String {
    format!("{} in no commit", counted(n_files, "file"))
}

fn state(workspace: &WorkspaceBody) -> String {
    let fate = if workspace.merged_commit.is_some() {
        ", merged"
    } else if workspace.discarded_at.is_some() {
        ", discarded"
    } else {
        ""
    };
    format!("{}{fate}", workspace.state)
}

fn size(workspace: &WorkspaceBody) -> String {
    let bytes = workspace.content.as_ref().map(|content| content.disk_bytes);
    or_dash(bytes.map(|bytes| format!("{} MiB", bytes.div_ceil(1024 * 1024))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(is_undecided: bool) -> ContentBody {
        ContentBody {
            head_commit: None,
            found_on: None,
            n_commits: 0,
            n_uncommitted: 3,
            n_files: 0,
            n_additions: 0,
            n_deletions: 0,
            disk_bytes: 0,
            kept_commit: String::new(),
            is_complete: true,
            left_out: Vec::new(),
            others: Vec::new(),
            is_undecided,
        }
    }

    #[test]
    fn a_result_that_a_person_is_to_choose_is_more_than_files() {
        assert!(content(false).is_only_files());
        assert!(!content(true).is_only_files());
    }

    #[test]
    fn a_merged_result_had_only_files_also_beside_a_commit_without_changes() {
        let merged =
            |n_files| ContentBody { n_commits: 1, n_uncommitted: 0, n_files, ..content(false) };
        assert!(had_only_files(&merged(0)));
        assert!(!had_only_files(&merged(1)) && !had_only_files(&content(true)));
    }
}
