//! `task`: list, show, history, add, set, comment, archive, delete.

use std::io::{self, IsTerminal as _, Read as _};
use std::time::Duration;

use clap::Subcommand;

use super::activity::used;
use super::client::{Client, encoded};
use super::error::CliError;
use super::events::line_of;
use super::follow::say;
use super::kept::telling;
use super::named::{Named, id_of, ids};
use super::output::{
    Form, ListForm, Zone, or_dash, plain, print_json, print_line, print_table, table,
};
use super::removal::{self, ArchivedArguments, DeleteArguments};
use super::results::{DiffTask, DiscardTask, MergeTask, PublishTask, RestoreTask, ResultOfTask};
use super::screen::Rows;
use super::task_checks;
use super::task_wait::{self, Shown, WaitForTasks};
use super::why::conversation;
use super::workspace;
use api::comments::{CommentBody, NewComment};
use api::events::EventBody;
use api::tasks::{ExecutionBody, NewTaskRequest, TaskBody, TaskDetail, TaskRequest};
use api::waiting::WaitingBody;
use config::Environment;
use domain::workspace::MergeStep;
use domain::{AgentId, Language, Priority, ProjectId, TaskId, TaskStatus};

#[derive(Debug, Subcommand)]
pub(super) enum TaskCommand {
    /// List tasks
    List {
        /// Select this project
        #[arg(long)]
        project: Option<Named<ProjectId>>,
        /// Select tasks that are assigned to this agent
        #[arg(long)]
        assignee: Option<Named<AgentId>>,
        /// Select a status: backlog, todo, in_progress, blocked, done or cancelled
        #[arg(long)]
        status: Option<TaskStatus>,
        /// Select tasks that contain all these words, the best first
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
        #[command(flatten)]
        archived: ArchivedArguments,
        #[command(flatten)]
        form: ListForm,
    },
    /// Show a task, its dependencies, its subtasks, and the work on it
    Show {
        /// Task: its id, its short id such as SHOP-12, or the beginning of its id
        task: Named<TaskId>,
        #[command(flatten)]
        zone: Zone,
        #[command(flatten)]
        form: Form,
    },
    /// Print the kept events of a task
    History {
        /// Task: its id, its short id such as SHOP-12, or the beginning of its id
        task: Named<TaskId>,
        #[command(flatten)]
        zone: Zone,
        #[command(flatten)]
        form: Form,
    },
    /// Add a task; a task in_progress starts its agent, after its dependencies are done
    Add(AddTask),
    /// Change a task; setting it in_progress lets its agent start, also after a stop
    Set(SetTask),
    /// Comment on a task, for people and for its agent, which reads it with the task
    Comment {
        /// Task: its id, its short id such as SHOP-12, or the beginning of its id
        task: Named<TaskId>,
        /// The comment, as Markdown; `-` reads it from standard input
        text: String,
        #[command(flatten)]
        form: Form,
    },
    /// Wait until tasks are done, cancelled or blocked
    Wait(WaitForTasks),
    /// Print what a task changed, also while its agent works
    Diff(DiffTask),
    /// Merge the result of a task into a branch of the project's repository
    Merge(MergeTask),
    /// Show which of an agent's branches is the result of a task, or choose another one
    Result(ResultOfTask),
    /// Give the project's repository a branch with the result of a task
    Publish(PublishTask),
    /// Hide the result of a task; its files go, and the coordinator keeps its commits
    Discard(DiscardTask),
    /// Take back that the result of a task was discarded
    Keep {
        /// Task id
        task: Named<TaskId>,
        #[command(flatten)]
        form: Form,
    },
    /// Bring back the files of a task as they were kept
    Restore(RestoreTask),
    /// Archive a finished task: boards and lists leave it out
    Archive(ChangeTask),
    /// Show an archived task again
    Unarchive(ChangeTask),
    /// Delete a finished task with its subtasks, after a question; it can't be undone
    Delete {
        /// Task: its id, its short id such as SHOP-12, or the beginning of its id
        task: Named<TaskId>,
        /// Give up work of it that is not merged
        #[arg(long)]
        discard: bool,
        #[command(flatten)]
        delete: DeleteArguments,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct ChangeTask {
    /// Task: its id, its short id such as SHOP-12, or the beginning of its id
    task: Named<TaskId>,
    #[command(flatten)]
    form: Form,
}

impl ChangeTask {
    async fn run(self, client: &Client, what: &str, done: &str) -> Result<(), CliError> {
        let path = format!("/tasks/{}", self.task.id(client).await?);
        let told = |task: &TaskBody| format!("{} is {done}", task.short_id);
        removal::change(client, &path, what, self.form, told).await
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct AddTask {
    /// Task id; it makes the command repeatable [default: generated]
    #[arg(long)]
    id: Option<TaskId>,
    /// The project it belongs to
    #[arg(long)]
    project: Named<ProjectId>,
    /// The title, one line
    #[arg(long)]
    title: String,
    /// The description for the agent; `-` reads it from standard input
    #[arg(long, default_value = "", hide_default_value = true)]
    description: String,
    /// The agent that it is assigned to
    #[arg(long)]
    assignee: Option<Named<AgentId>>,
    /// The status: backlog, todo, in_progress, blocked, done or cancelled
    #[arg(long, default_value_t = TaskStatus::Todo)]
    status: TaskStatus,
    /// The priority: low, medium, high or urgent
    #[arg(long, default_value_t = Priority::Medium)]
    priority: Priority,
    /// The task that it is part of
    #[arg(long)]
    parent: Option<Named<TaskId>>,
    /// A task that must be done first; may be given several times
    #[arg(long = "depends-on", value_name = "TASK")]
    dependencies: Vec<Named<TaskId>>,
    /// Wait until it is done, cancelled or blocked; the exit codes are those of `task wait`
    #[arg(long)]
    wait: bool,
    /// With --wait, wait no longer than this, such as 30m [default: wait without limit]
    #[arg(long, requires = "wait", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
    /// With --wait, print what its agent prints; all else goes to standard error
    #[arg(long, requires = "wait", conflicts_with = "json")]
    follow: bool,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct SetTask {
    /// Task: its id, its short id such as SHOP-12, or the beginning of its id
    task: Named<TaskId>,
    /// The status: backlog, todo, in_progress, blocked, done or cancelled. `done` finishes an open
    /// task by hand: no checks run, and an agent that works on it is told and ended
    #[arg(long)]
    status: Option<TaskStatus>,
    /// With --status done, cancel its open subtasks [default: ask on a terminal, else refuse]
    #[arg(long, requires = "status")]
    cancel_subtasks: bool,
    /// Why it is blocked
    #[arg(long)]
    reason: Option<String>,
    /// The title, one line
    #[arg(long)]
    title: Option<String>,
    /// The description for the agent; `-` reads it from standard input
    #[arg(long)]
    description: Option<String>,
    /// The priority: low, medium, high or urgent
    #[arg(long)]
    priority: Option<Priority>,
    /// The agent that it is assigned to
    #[arg(long)]
    assignee: Option<Named<AgentId>>,
    /// Remove the assignee
    #[arg(long, conflicts_with = "assignee")]
    no_assignee: bool,
    /// The task that it becomes a part of
    #[arg(long)]
    parent: Option<Named<TaskId>>,
    /// Make it a top-level task
    #[arg(long, conflicts_with = "parent")]
    no_parent: bool,
    /// A task that must be done first; may be given several times, and replaces all earlier ones
    #[arg(long = "depends-on", value_name = "TASK")]
    dependencies: Vec<Named<TaskId>>,
    /// Remove all dependencies
    #[arg(long, conflicts_with = "dependencies")]
    no_dependencies: bool,
    /// Let its next launch begin a new conversation instead of going on with the one before
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    form: Form,
}

impl TaskCommand {
    pub(super) async fn run(
        self,
        client: &Client,
        environment: &Environment,
    ) -> Result<(), CliError> {
        match self {
            Self::Restore(restore) => restore.run(client, environment).await,
            Self::Archive(task) => task.run(client, "archive", "archived").await,
            Self::Unarchive(task) => task.run(client, "unarchive", "shown again").await,
            Self::Delete { task, discard, delete } => {
                let id = task.id(client).await?;
                telling(client, &id, delete.run(client, &format!("/tasks/{id}"), discard)).await
            }
            Self::List { project, assignee, status, search, archived, form } => {
                let project = id_of(project.as_ref(), client).await?;
                let assignee = id_of(assignee.as_ref(), client).await?;
                let mut query = Vec::new();
                query.extend(project.map(|project| format!("project={project}")));
                query.extend(assignee.map(|assignee| format!("assignee={assignee}")));
                query.extend(status.map(|status| format!("status={status}")));
                query.extend(search.map(|text| format!("q={}", encoded(&text))));
                query.extend(archived.query());
                let tasks: Vec<TaskBody> =
                    client.get(&format!("/tasks?{}", query.join("&"))).await?;
                let when_empty = if query.is_empty() { NO_TASKS } else { "No task fits." };
                if form.json { print_json(&tasks) } else { print_tasks(&tasks, form, when_empty) }
            }
            Self::Show { task, zone, form } => {
                let task = task.id(client).await?;
                let task: TaskDetail = client.get(&format!("/tasks/{task}")).await?;
                if form.json { print_json(&task) } else { print_detail(&task, zone) }
            }
            Self::History { task, zone, form } => {
                let task = task.id(client).await?;
                let history: Vec<EventBody> =
                    client.get(&format!("/tasks/{task}/history?limit=1000")).await?;
                if form.json {
                    return print_json(&history);
                }
                history.iter().try_for_each(|event| print_line(&line_of(event, zone)))
            }
            Self::Comment { task, text, form } => {
                let id = task.id(client).await?;
                let request = NewComment { id: None, text: text_or_stdin(text)? };
                let comment: CommentBody =
                    client.post(&format!("/tasks/{id}/comments"), &request).await?;
                if form.json { print_json(&comment) } else { print_line(comment.id.as_str()) }
            }
            Self::Add(add) => add.run(client).await,
            Self::Set(set) => set.run(client).await,
            Self::Wait(wait) => wait.run(client).await,
            Self::Diff(diff) => diff.run(client).await,
            Self::Merge(merge) => merge.run(client).await,
            Self::Result(result) => result.run(client).await,
            Self::Publish(publish) => publish.run(client).await,
            Self::Discard(discard) => discard.run(client).await,
            Self::Keep { task, form } => {
                let id = task.id(client).await?;
                let path = format!("/tasks/{id}/workspace/keep");
                telling(client, &id, client.post_only(&path, &())).await?;
                workspace::print_changed(client, &task, form, "the result is kept").await
            }
        }
    }
}

impl AddTask {
    async fn run(self, client: &Client) -> Result<(), CliError> {
        let request = NewTaskRequest {
            id: self.id,
            project_id: self.project.id(client).await?,
            title: self.title,
            description: text_or_stdin(self.description)?,
            status: Some(self.status),
            priority: Some(self.priority),
            assignee_id: id_of(self.assignee.as_ref(), client).await?,
            parent_id: id_of(self.parent.as_ref(), client).await?,
            dependencies: ids(&self.dependencies, client).await?,
        };
        let task: TaskDetail = client.create("/tasks", "task", &request).await?;
        if !self.form.json {
            // Scripts read one id. A person needs the short one.
            let id = &task.task.id;
            let is_seen = io::stdout().is_terminal();
            let line = if is_seen || self.follow {
                format!("{}  {id}", task.task.short_id)
            } else {
                id.to_string()
            };
            if self.follow {
                say(&line);
            } else {
                print_line(&line)?;
            }
        } else if !self.wait {
            print_json(&task)?;
        }
        if !self.wait {
            return Ok(());
        }
        let over = if self.follow {
            task_wait::follow(client, &task.task, self.timeout).await?
        } else {
            task_wait::wait(client, vec![task.task.id], self.timeout, Shown::of(self.form)).await?
        };
        if self.form.json {
            over.iter().try_for_each(print_json)?;
        }
        task_wait::result_of(&over)
    }
}

impl SetTask {
    async fn run(self, client: &Client) -> Result<(), CliError> {
        let id = self.task.id(client).await?;
        let assignee = id_of(self.assignee.as_ref(), client).await?;
        let assignee = if self.no_assignee { Some(None) } else { assignee.map(Some) };
        let parent = id_of(self.parent.as_ref(), client).await?;
        let parent = if self.no_parent { Some(None) } else { parent.map(Some) };
        let dependencies = ids(&self.dependencies, client).await?;
        let is_about_dependencies = self.no_dependencies || !dependencies.is_empty();
        let mut request = TaskRequest {
            title: self.title,
            description: self.description.map(text_or_stdin).transpose()?,
            priority: self.priority,
            assignee_id: assignee,
            parent_id: parent,
            dependencies: is_about_dependencies.then_some(dependencies),
            status: self.status,
            blocked_reason: self.reason,
            cancel_subtasks: self.cancel_subtasks,
        };
        let path = format!("/tasks/{id}");
        // A task that is set in progress may start at once.
        if self.fresh {
            let path = format!("{path}/fresh");
            telling(client, &id, client.post_only(&path, &())).await?;
        }
        let mut answer = client.patch_or_problem(&path, &request).await?;
        if let Err(problem) = &answer
            && problem.code == "subtasks_open"
            && !self.form.json
            && removal::is_on_terminal()
            && removal::ask(&format!("{}. Cancel them?", plain(&problem.detail)))?
        {
            request.cancel_subtasks = true;
            answer = client.patch_or_problem(&path, &request).await?;
        }
        let task: TaskDetail = answer?;
        if self.form.json {
            print_json(&task)
        } else {
            print_line(&format!(
                "{} is {}{}",
                task.task.short_id,
                task.task.status,
                starts_after(&task).map(|text| format!("; {text}")).unwrap_or_default()
            ))
        }
    }
}

fn text_or_stdin(text: String) -> Result<String, CliError> {
    if text != "-" {
        return Ok(text);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

const NO_TASKS: &str = "No tasks. Add one with `agent-coordinator task add`.";

const COLUMNS: [&str; 6] = ["TASK", "PROJECT", "STATUS", "PRIORITY", "ASSIGNEE", "TITLE"];

fn print_tasks(tasks: &[TaskBody], form: ListForm, when_empty: &str) -> Result<(), CliError> {
    let id = form.wide.then_some("ID");
    let mut rows = Rows::new(&COLUMNS.into_iter().chain(id).collect::<Vec<_>>());
    for task in tasks {
        let id = form.wide.then(|| task.id.to_string());
        rows.add_row(row(task, 0).into_iter().chain(id));
    }
    form.print(&rows, when_empty)
}

fn outcome_of(execution: &ExecutionBody) -> String {
    let outcome = execution.outcome.as_deref().unwrap_or("running");
    let failure = execution.failure.map(|failure| format!(": {}", failure.class));
    format!("{outcome}{}", failure.unwrap_or_default())
}

/// Returns the row of a task that is `depth` levels below the first ones.
fn row(task: &TaskBody, depth: usize) -> [String; 6] {
    [
        format!("{:indent$}{}", "", task.short_id, indent = 2 * depth),
        task.project_id.to_string(),
        format!("{}{}", task.status, mark_of(task.to_merge)),
        task.priority.to_string(),
        or_dash(task.assignee_id.as_ref()),
        plain(&task.title),
    ]
}

/// Returns the mark of a finished task whose result waits for a person.
const fn mark_of(to_merge: Option<MergeStep>) -> &'static str {
    match to_merge {
        Some(MergeStep::Merge) => ", to merge",
        Some(MergeStep::Choose) => ", to choose",
        Some(MergeStep::Resolve) => ", conflict",
        Some(MergeStep::Compare) => ", more branches",
        None => "",
    }
}

/// Prints each task with its subtasks below it.
fn print_tree(parent: &TaskId, below: &[TaskBody]) -> Result<(), CliError> {
    let parts = |of: &TaskId, depth: usize| {
        let parts: Vec<_> =
            below.iter().filter(|task| task.parent_id.as_ref() == Some(of)).collect();
        parts.into_iter().rev().map(move |task| (task, depth))
    };
    let mut rows = table(&COLUMNS);
    let mut open: Vec<(&TaskBody, usize)> = parts(parent, 0).collect();
    while let Some((task, depth)) = open.pop() {
        rows.add_row(row(task, depth));
        open.extend(parts(&task.id, depth + 1));
    }
    print_table(&rows, "")
}

fn print_detail(detail: &TaskDetail, zone: Zone) -> Result<(), CliError> {
    let task = &detail.task;
    print_line(&format!("{}  {}", task.short_id, plain(&task.title)))?;
    print_line(&format!("id {}", task.id))?;
    print_line(&format!(
        "project {}, {}{}, priority {}",
        task.project_id,
        task.status,
        mark_of(task.to_merge),
        task.priority
    ))?;
    if let Some(assignee) = &task.assignee_id {
        print_line(&format!("assigned to {assignee}"))?;
    }
    if let Some(parent) = &task.parent_id {
        print_line(&format!("part of {parent}"))?;
    }
    if !task.dependencies.is_empty() {
        let ids: Vec<String> =
            task.dependencies.iter().map(|id| with_status(id, &detail.depends_on)).collect();
        print_line(&format!("depends on {}", ids.join(", ")))?;
    }
    if let Some(text) = starts_after(detail) {
        print_line(&text)?;
    }
    if let Some(since) = task.checking_since {
        print_line(&format!("its agent reported success; it is being checked since {since}"))?;
    }
    if let Some(reason) = &task.blocked_reason {
        print_line(&format!("blocked: {}", plain(reason)))?;
    }
    if let Some(person) = &detail.done_by {
        print_line(&format!("done by hand, by {}", plain(person)))?;
    }
    let is_told = |it: &&WaitingBody| it.reason == "blocked" && task.blocked_reason.is_some();
    if let Some(waiting) = detail.waiting.as_ref().filter(|waiting| !is_told(waiting)) {
        print_line(&format!("waits: {}", wait(waiting)))?;
    }
    let newest = detail.conversations.first().filter(|_| task.status.is_open());
    if let Some(text) = newest.and_then(conversation) {
        print_line(&text)?;
    }
    if let Some(why) = detail.conversations.get(1).and_then(|before| before.fresh_because) {
        print_line(&format!("it began afresh: {}", why.clause(Language::English)))?;
    }
    if let Some(workspace) = detail.workspace.as_ref().filter(|it| it.content.is_some()) {
        workspace::print_result(workspace)?;
    }
    if let Some(url) = &detail.request_url {
        print_line(&format!("pull or merge request: {}", plain(url)))?;
    }
    print_indented(&task.description)?;
    if !detail.subtasks.is_empty() {
        print_line("")?;
        print_tree(&task.id, &detail.subtasks)?;
    }
    if !detail.executions.is_empty() {
        print_line("")?;
        print_executions(&detail.executions, zone)?;
    }
    if !detail.checks.is_empty() {
        print_line("")?;
        let has_conflict = detail.workspace.as_ref().is_some_and(|it| it.conflict.is_some());
        task_checks::print(&detail.checks, has_conflict)?;
    }
    for comment in &detail.comments {
        let author = comment.author.as_deref().unwrap_or("-");
        print_line(&format!("\n{} {}:", zone.time(comment.created_at), plain(author)))?;
        print_indented(&comment.text)?;
    }
    // Each text is the newest one, because a later execution without it does not replace it.
    let newest = |of: fn(&ExecutionBody) -> Option<&String>| detail.executions.iter().find_map(of);
    for (what, left) in [
        ("progress", newest(|execution| execution.progress.as_ref())),
        ("findings", newest(|execution| execution.findings.as_ref())),
        ("next steps", newest(|execution| execution.next_steps.as_ref())),
    ] {
        if let Some(left) = left {
            print_line(&format!("\n{what}:"))?;
            print_indented(left)?;
        }
    }
    Ok(())
}

/// Returns the sentence about a task that begins by itself; `None` if a person has to begin it.
fn starts_after(detail: &TaskDetail) -> Option<String> {
    let others: Vec<String> =
        detail.starts_after.iter().map(|id| with_status(id, &detail.depends_on)).collect();
    let is_cancelled = |other: &TaskBody| other.status == TaskStatus::Cancelled;
    let hint = if detail.depends_on.iter().any(is_cancelled) {
        ". A cancelled task is never done: reopen it, or change the dependencies (`task set`)"
    } else {
        ""
    };
    (!others.is_empty()).then(|| format!("starts after {}{hint}", others.join(", ")))
}

/// Returns the sentence of a wait, with the times when it began and ends.
fn wait(waiting: &WaitingBody) -> String {
    let since = waiting.since.map(|since| format!(" (since {since})")).unwrap_or_default();
    let until = waiting.until.map(|until| format!(" (until {until})")).unwrap_or_default();
    format!("{}{since}{until}", plain(&waiting.text))
}

fn with_status(id: &TaskId, tasks: &[TaskBody]) -> String {
    match tasks.iter().find(|task| task.id == *id) {
        Some(task) => format!("{} ({})", task.short_id, task.status),
        None => format!("{id} (missing)"),
    }
}

pub(super) fn print_indented(text: &str) -> Result<(), CliError> {
    text.lines().try_for_each(|line| print_line(&format!("  {}", plain(line))))
}

fn print_executions(executions: &[ExecutionBody], zone: Zone) -> Result<(), CliError> {
    let mut rows = table(&["STARTED", "AGENT", "RESULT", "OUTCOME", "USED", "SUMMARY", "LAUNCH"]);
    for execution in executions {
        rows.add_row([
            zone.time(execution.started_at),
            execution.agent_id.to_string(),
            execution.result.map_or("-", |result| result.as_str()).to_owned(),
            outcome_of(execution),
            used(execution.usage.as_ref()),
            or_dash(execution.summary.as_deref().map(plain)),
            execution.launch_id.to_string(),
        ]);
    }
    print_table(&rows, "")
}
