//! `project`: list, show, add, set.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Subcommand;

use super::client::Client;
use super::error::CliError;
use super::output::{Form, plain, print_json, print_line, print_table, table};
use crate::config::Environment;
use crate::domain::agent::ProjectStatus;
use crate::domain::{AgentId, ProjectId};
use crate::rest::routes::projects::{ProjectBody, ProjectRequest};

#[derive(Debug, Subcommand)]
pub(super) enum ProjectCommand {
    /// List projects
    List {
        #[command(flatten)]
        form: Form,
    },
    /// Show a project and its agents
    Show {
        /// Project id
        project: ProjectId,
        #[command(flatten)]
        form: Form,
    },
    /// Add a project
    Add {
        /// Project id [default: generated]
        project: Option<ProjectId>,
        #[command(flatten)]
        edit: ProjectEditArguments,
    },
    /// Change a project
    Set {
        /// Project id
        project: ProjectId,
        #[command(flatten)]
        edit: ProjectEditArguments,
        /// An agent to remove from the project; may be given several times
        #[arg(long, value_name = "AGENT")]
        unassign: Vec<AgentId>,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct ProjectEditArguments {
    /// Its display name [default: its id]
    #[arg(long)]
    name: Option<String>,
    /// The folder in which its agents work; it must exist
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Its status: active, inactive or archived
    #[arg(long)]
    status: Option<ProjectStatus>,
    /// An agent that may work in it; may be given several times
    #[arg(long, value_name = "AGENT")]
    assign: Vec<AgentId>,
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
            Self::List { form } => {
                let projects: Vec<ProjectBody> = client.get("/projects").await?;
                if form.json { print_json(&projects) } else { print_projects(&projects) }
            }
            Self::Show { project, form } => {
                let project: ProjectBody = client.get(&format!("/projects/{project}")).await?;
                if form.json { print_json(&project) } else { print_project(&project) }
            }
            Self::Add { project, edit } => {
                if edit.directory.is_none() {
                    return Err(CliError::Usage("a project needs --directory DIR".to_owned()));
                }
                let form = edit.form;
                let request = edit.request(project, Vec::new(), environment);
                let project: ProjectBody = client.post("/projects", &request).await?;
                if form.json { print_json(&project) } else { print_line(project.id.as_str()) }
            }
            Self::Set { project, edit, unassign } => {
                let form = edit.form;
                let request = edit.request(None, unassign, environment);
                let project: ProjectBody =
                    client.patch(&format!("/projects/{project}"), &request).await?;
                if form.json { print_json(&project) } else { print_project(&project) }
            }
        }
    }
}

impl ProjectEditArguments {
    fn request(
        self,
        id: Option<ProjectId>,
        unassign: Vec<AgentId>,
        environment: &Environment,
    ) -> ProjectRequest {
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
            id,
            name: self.name,
            working_directory: directory,
            status: self.status,
            assign: self.assign,
            unassign,
        }
    }
}

fn print_projects(projects: &[ProjectBody]) -> Result<(), CliError> {
    let mut rows = table(&["PROJECT", "NAME", "STATUS", "AGENTS", "DIRECTORY"]);
    for project in projects {
        rows.add_row([
            project.id.to_string(),
            plain(&project.name),
            project.status.to_string(),
            project.agents.len().to_string(),
            plain(&project.working_directory.to_string_lossy()),
        ]);
    }
    print_table(&rows, "No projects. Add one with `agent-coordinator project add --directory DIR`.")
}

fn print_project(project: &ProjectBody) -> Result<(), CliError> {
    print_line(&format!("{}  {}", project.id, plain(&project.name)))?;
    print_line(&format!(
        "{}, in {}",
        project.status,
        plain(&project.working_directory.to_string_lossy())
    ))?;
    let agents: Vec<&str> = project.agents.iter().map(AgentId::as_str).collect();
    print_line(&format!(
        "agents: {}",
        if agents.is_empty() { "none".to_owned() } else { agents.join(", ") }
    ))
}
