//! `project`: list, show, add, set, archive, delete.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Subcommand;

use super::client::Client;
use super::error::CliError;
use super::named::{Named, ids};
use super::output::{Form, ListForm, plain, print_json, print_line};
use super::removal::{self, ArchivedArguments, DeleteArguments};
use super::screen::Rows;
use super::status::warnings;
use api::projects::{ProjectBody, ProjectRequest};
use api::status::StatusBody;
use config::Environment;
use domain::agent::ProjectStatus;
use domain::workspace::WorkspaceMode;
use domain::{AgentId, ProjectId, ProjectKey};

#[derive(Debug, Subcommand)]
pub(super) enum ProjectCommand {
    /// List projects
    List {
        #[command(flatten)]
        archived: ArchivedArguments,
        #[command(flatten)]
        form: ListForm,
    },
    /// Show a project and its agents
    Show {
        /// Project: its id, its key, its name, or the beginning of its id
        project: Named<ProjectId>,
        #[command(flatten)]
        form: Form,
    },
    /// Add a project
    Add {
        /// Project id; it makes the command repeatable [default: generated]
        project: Option<ProjectId>,
        #[command(flatten)]
        edit: ProjectEditArguments,
    },
    /// Change a project
    Set {
        /// Project: its id, its key, its name, or the beginning of its id
        project: Named<ProjectId>,
        #[command(flatten)]
        edit: ProjectEditArguments,
        /// An agent to remove from the project; may be given several times
        #[arg(long, value_name = "AGENT")]
        unassign: Vec<Named<AgentId>>,
    },
    /// Archive a project without open tasks: lists leave it out
    Archive(ChangeProject),
    /// Give an archived project its former status
    Unarchive(ChangeProject),
    /// Delete a project with its finished tasks, its chats and its output, after a question; it
    /// can't be undone
    Delete {
        /// Project: its id, its key, its name, or the beginning of its id
        project: Named<ProjectId>,
        /// Give up work of its tasks that is not merged
        #[arg(long)]
        discard: bool,
        #[command(flatten)]
        delete: DeleteArguments,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct ChangeProject {
    /// Project: its id, its key, its name, or the beginning of its id
    project: Named<ProjectId>,
    #[command(flatten)]
    form: Form,
}

impl ChangeProject {
    async fn run(self, client: &Client, what: &str, done: &str) -> Result<(), CliError> {
        let path = format!("/projects/{}", self.project.id(client).await?);
        let told = |project: &ProjectBody| format!("{} is {done}", plain(&project.name));
        removal::change(client, &path, what, self.form, told).await
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct ProjectEditArguments {
    /// Its display name [default: its id]
    #[arg(long)]
    name: Option<String>,
    /// The first part of the short ids of its tasks, 2 to 8 letters and digits; it can be changed
    /// once [default: made from its name]
    #[arg(long)]
    key: Option<ProjectKey>,
    /// The folder in which its agents work; it must exist
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Its status: active, inactive or archived
    #[arg(long)]
    status: Option<ProjectStatus>,
    /// The place of the work: `shared` for its folder, `clone` for a clone of its repository for
    /// each task; it is chosen when the project is added
    #[arg(long, value_name = "MODE")]
    workspace: Option<WorkspaceMode>,
    /// With clones, the branch, tag or commit that work begins at, or `working_tree`; an empty text
    /// for `workspace.base` of the configuration
    #[arg(long, value_name = "BASE")]
    base: Option<String>,
    /// With clones, the pattern for branches, such as `work/{task_id}`; an empty text for
    /// `workspace.branch` of the configuration
    #[arg(long, value_name = "PATTERN")]
    branch: Option<String>,
    /// `off` if merges run no hooks of its repository; an empty text for `workspace.merge_hooks` of
    /// the configuration
    #[arg(long, value_name = "OFF")]
    merge_hooks: Option<String>,
    /// An agent that may work in it; may be given several times
    #[arg(long, value_name = "AGENT")]
    assign: Vec<Named<AgentId>>,
    #[command(flatten)]
    form: Form,
}

impl ProjectCommand {
    pub(super) async fn run(
        self,
        client: &Client,
        environment: &Environment,
    ) -> Result<(), CliError> {
        match self {
            Self::List { archived, form } => {
                let query = archived.query().unwrap_or_default();
                let projects: Vec<ProjectBody> = client.get(&format!("/projects?{query}")).await?;
                if form.json { print_json(&projects) } else { print_projects(&projects, form) }
            }
            Self::Archive(project) => project.run(client, "archive", "archived").await,
            Self::Unarchive(project) => {
                project.run(client, "unarchive", "no longer archived").await
            }
            Self::Delete { project, discard, delete } => {
                let path = format!("/projects/{}", project.id(client).await?);
                delete.run(client, &path, discard).await
            }
            Self::Show { project, form } => {
                let project = project.id(client).await?;
                let project: ProjectBody = client.get(&format!("/projects/{project}")).await?;
                if form.json {
                    return print_json(&project);
                }
                print_project(&project)?;
                let status: StatusBody = client.get("/status").await?;
                let crowds = status.crowds.iter().filter(|crowd| crowd.concerns(&project.id));
                let failed = status.failed_snapshots.iter();
                let failed = failed.filter(|failed| failed.project_id == project.id);
                warnings(crowds, failed).map_or(Ok(()), |warnings| print_line(&warnings))
            }
            Self::Add { project, edit } => {
                if edit.directory.is_none() {
                    return Err(CliError::Usage("a project needs --directory DIR".to_owned()));
                }
                let form = edit.form;
                let assign = ids(&edit.assign, client).await?;
                let mut request =
                    ProjectRequest { id: project, assign, ..edit.request(environment) };
                if let (None, Some(directory)) = (request.workspace, &request.working_directory)
                    && is_in_repository(directory)
                {
                    request.workspace = propose_clones()?;
                }
                let project: ProjectBody = client.create("/projects", "project", &request).await?;
                if form.json { print_json(&project) } else { print_line(project.id.as_str()) }
            }
            Self::Set { project, edit, unassign } => {
                let form = edit.form;
                let project = project.id(client).await?;
                let assign = ids(&edit.assign, client).await?;
                let unassign = ids(&unassign, client).await?;
                let request = ProjectRequest { assign, unassign, ..edit.request(environment) };
                let project: ProjectBody =
                    client.patch(&format!("/projects/{project}"), &request).await?;
                if form.json { print_json(&project) } else { print_project(&project) }
            }
        }
    }
}

impl ProjectEditArguments {
    /// Returns the request without the agents.
    fn request(self, environment: &Environment) -> ProjectRequest {
        let directory =
            self.directory.map(|directory| environment.working_directory().join(directory));
        if let Some(missing) = directory.as_ref().filter(|directory| !directory.is_dir()) {
            let warning = format!(
                "agent-coordinator: warning: there is no folder {} (yet)",
                missing.display()
            );
            let _ = writeln!(std::io::stderr(), "{warning}");
        }
        ProjectRequest {
            name: self.name,
            key: self.key,
            working_directory: directory,
            status: self.status,
            workspace: self.workspace,
            workspace_base: self.base,
            workspace_branch: self.branch,
            merge_hooks: self.merge_hooks,
            ..ProjectRequest::default()
        }
    }
}

/// Returns whether a directory or one above it has a git repository. Like for git, a folder `.git`
/// without a HEAD is not one: a sandbox of an agent CLI may leave an empty one. The server checks
/// more.
pub(super) fn is_in_repository(directory: &Path) -> bool {
    let is_top = |above: &Path| {
        let entry = above.join(".git");
        entry.is_file() || entry.join("HEAD").symlink_metadata().is_ok()
    };
    directory.canonicalize().is_ok_and(|path| path.ancestors().any(is_top))
}

/// Asks on a terminal whether each task gets a clone, which a person confirms with Enter. Scripts are
/// not asked: their project keeps the default, and a line on the standard error names the choice.
///
/// # Errors
/// The terminal cannot be read.
fn propose_clones() -> Result<Option<WorkspaceMode>, CliError> {
    let mut shown = io::stderr();
    if !io::stdin().is_terminal() || !shown.is_terminal() {
        let _ = writeln!(
            shown,
            "agent-coordinator: all agents work in this folder, which is in a git repository; \
             `--workspace clone` gives each task a clone of its own, and `--workspace shared` \
             silences this line"
        );
        return Ok(None);
    }
    let _ = write!(
        shown,
        "The folder is in a git repository. Give each task a clone of its own, so that agents do \
         not overwrite each other's files? [Y/n] "
    );
    let _ = shown.flush();
    let mut answer = String::new();
    if io::stdin().read_line(&mut answer)? == 0 {
        let told = "no answer; name the mode with `--workspace shared` or `--workspace clone`";
        return Err(CliError::Failed(told.to_owned()));
    }
    let is_no = matches!(answer.trim().to_lowercase().as_str(), "n" | "no");
    Ok(Some(if is_no { WorkspaceMode::Shared } else { WorkspaceMode::Clone }))
}

fn print_projects(projects: &[ProjectBody], form: ListForm) -> Result<(), CliError> {
    let rows = Rows::of(
        projects,
        &[
            ("PROJECT", &|project| project.id.to_string()),
            ("KEY", &|project| project.key.to_string()),
            ("NAME", &|project| plain(&project.name)),
            ("STATUS", &|project| project.status.to_string()),
            ("AGENTS", &|project| project.agents.len().to_string()),
            ("DIRECTORY", &|project| plain(&project.working_directory.to_string_lossy())),
        ],
    );
    form.print(&rows, "No projects. Add one with `agent-coordinator project add --directory DIR`.")
}

fn print_project(project: &ProjectBody) -> Result<(), CliError> {
    print_line(&format!("{}  {}", project.id, plain(&project.name)))?;
    print_line(&format!(
        "{}, key {}, in {}",
        project.status,
        project.key,
        plain(&project.working_directory.to_string_lossy())
    ))?;
    print_line(match project.workspace {
        WorkspaceMode::Shared => "workspace: shared (all agents work in this folder)",
        WorkspaceMode::Clone => "workspace: clone (each task has a clone of its own)",
    })?;
    if let Some(base) = &project.workspace_base {
        print_line(&format!("work begins at {}", plain(base)))?;
    }
    if let Some(branch) = &project.workspace_branch {
        print_line(&format!("branches: {}", plain(branch)))?;
    }
    if let Some(hooks) = project.merge_hooks {
        let id = &project.id;
        print_line(&format!(
            "hooks of its repository at merges: {hooks} (`project set {id} --merge-hooks ''` gives \
             way to the configuration)"
        ))?;
    }
    let agents: Vec<&str> = project.agents.iter().map(AgentId::as_str).collect();
    print_line(&format!(
        "agents: {}",
        if agents.is_empty() { "none".to_owned() } else { agents.join(", ") }
    ))
}
