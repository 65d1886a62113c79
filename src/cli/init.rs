//! `init`: from a folder to a project that works. It looks at the folder and at the agent CLIs of
//! this machine, asks what it cannot know, and writes a configuration with a manifest, or adds the
//! project to a daemon that runs. It never starts a daemon, and never changes a file that exists.

mod files;
mod programs;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use clap::Args;
use serde::Serialize;

use super::client::Client;
use super::error::CliError;
use super::follow::say;
use super::output::{Form, plain, print_json, print_line};
use super::project::is_in_repository;
use ::config::Environment;
use api::agents::{AgentBody, AgentRequest};
use api::projects::{ProjectBody, ProjectRequest};
use api::tasks::{NewTaskRequest, TaskDetail};
use domain::TaskStatus;
use domain::workspace::WorkspaceMode;
use domain::{AgentId, ProjectId, TaskId};
use programs::Program;

#[derive(Debug, Args)]
#[command(after_help = "A second run changes nothing and says so.\n\n\
                  Exit codes: 0 done, or nothing to do; 1 refused or failed; 2 usage; \
                  69 a configuration exists, and no daemon runs that could add the project; \
                  78 configuration.")]
pub(super) struct InitArguments {
    /// The folder of the project [default: the current folder]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The name of the project [default: the name of the folder]
    #[arg(long)]
    name: Option<String>,
    /// The kind of agent: claude, codex, gemini, qwen, opencode, copilot, or `example` for the
    /// bundled one, which needs no account [default: the first one with a login, else `example`]
    #[arg(long, value_name = "AI_TYPE")]
    agent: Option<String>,
    /// The place of the work: `clone` for a clone of the repository for each task, `shared` for the
    /// folder itself [default: clone in a git repository, else shared]
    #[arg(long, value_name = "MODE")]
    workspace: Option<WorkspaceMode>,
    /// The title of a first task, which starts at once
    #[arg(long, value_name = "TITLE")]
    task: Option<String>,
    /// Take the defaults and ask nothing
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    form: Form,
}

/// The project that `init` makes.
#[derive(Debug)]
struct Choice {
    directory: PathBuf,
    name: String,
    ai_type: String,
    /// The `PATH` with which its agents find their program, if the one of this command lacks it.
    path: Option<String>,
    workspace: WorkspaceMode,
    task: Option<String>,
}

/// The answer of the command.
#[derive(Debug, Serialize)]
struct Report {
    is_changed: bool,
    directory: PathBuf,
    programs: Vec<Program>,
    #[serde(skip_serializing_if = "Option::is_none")]
    project_id: Option<ProjectId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<AgentId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<TaskId>,
    /// The files that were written.
    files: Vec<PathBuf>,
    /// The next command, or the reason why nothing is to be done.
    next: String,
}

impl Report {
    fn of(directory: PathBuf, programs: Vec<Program>) -> Self {
        Self {
            is_changed: false,
            directory,
            programs,
            project_id: None,
            agent_id: None,
            task_id: None,
            files: Vec::new(),
            next: String::new(),
        }
    }
}

impl InitArguments {
    pub(super) fn run(
        self,
        file: Option<&Path>,
        environment: &Environment,
    ) -> Result<(), CliError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.set_up(file, environment))
    }

    async fn set_up(self, file: Option<&Path>, environment: &Environment) -> Result<(), CliError> {
        // Mistakes are to be mended first, and nothing is changed.
        let loaded = super::load(file, environment)?;
        let directory = usable(self.directory.as_deref(), environment)?;
        let form = self.form;
        let programs = programs::look(&loaded.config, environment).await;
        let mut report = Report::of(directory.clone(), programs);
        if !form.json {
            print_programs(&report.programs)?;
        }
        let paths = &loaded.config.paths;
        let client = Client::new(paths.control_socket(), paths.coordinator_socket());
        match client.get::<Vec<ProjectBody>>("/projects").await {
            Ok(projects) => {
                let same = projects.iter().find(|each| each.working_directory == directory);
                if let Some(project) = same {
                    report.next = format!("nothing changed: it is the project {}", project.id);
                    report.project_id = Some(project.id.clone());
                } else {
                    let choice = self.choose(directory, &report.programs)?;
                    add(&client, &choice, &mut report).await?;
                }
            }
            Err(CliError::NoDaemon { .. }) => match &loaded.source {
                None => {
                    let choice = self.choose(directory, &report.programs)?;
                    let folder = environment.configuration_folder().ok_or_else(|| {
                        let told =
                            "there is no folder for the configuration: set HOME or XDG_CONFIG_HOME";
                        CliError::Failed(told.to_owned())
                    })?;
                    files::write(&folder, &choice, &mut report)?;
                }
                Some(source) => {
                    report.project_id = files::listed(&loaded, &directory, environment)?;
                    if report.project_id.is_none() {
                        return Err(no_daemon(source));
                    }
                    report.next = format!(
                        "nothing changed: {} has the project; start the daemon with \
                         `agent-coordinator run`",
                        source.display()
                    );
                }
            },
            Err(error) => return Err(error),
        }
        if form.json {
            return print_json(&report);
        }
        for file in &report.files {
            print_line(&format!("wrote {}", plain(&file.to_string_lossy())))?;
        }
        print_line(&plain(&report.next))
    }

    /// Returns the choice from the arguments, the answers of a person on a terminal, and the
    /// defaults.
    ///
    /// # Errors
    /// The `ai_type` cannot be started, or a clone is asked for where there is no repository.
    fn choose(self, directory: PathBuf, programs: &[Program]) -> Result<Choice, CliError> {
        let asks = !self.yes && io::stdin().is_terminal() && io::stderr().is_terminal();
        let best = programs::best(programs);
        let named = match self.agent {
            None if asks => ask("Which agent works here?", best)?,
            named => named,
        };
        let ai_type = named
            .map_or_else(|| Ok(best.to_owned()), |named| programs::startable(&named, programs))?;
        let workspace = match (self.workspace, Repository::of(&directory)) {
            (Some(WorkspaceMode::Clone), Repository::Absent) => {
                return Err(CliError::Usage(format!(
                    "--workspace clone: {} is in no git repository; run `git init` there and \
                     commit, or use `shared`",
                    directory.display()
                )));
            }
            (Some(WorkspaceMode::Clone), Repository::NoGit) => {
                let told =
                    "--workspace clone: there is no program `git`; install it, or use `shared`";
                return Err(CliError::Usage(told.to_owned()));
            }
            (Some(mode), _) => mode,
            (None, Repository::NoGit) => {
                say("there is no program `git`, so that agents work in the folder itself");
                WorkspaceMode::Shared
            }
            (None, Repository::Empty) => {
                say("the git repository has no commit yet, so that agents work in the folder \
                     itself (`--workspace clone` chooses clones)");
                WorkspaceMode::Shared
            }
            (None, Repository::Absent) => WorkspaceMode::Shared,
            (None, Repository::WithCommit) if asks => {
                let question = "This is a git repository. Give each task a clone of its own, so \
                                that agents do not overwrite each other's files?";
                let answer = ask(question, "yes")?;
                let is_no = answer
                    .is_some_and(|answer| matches!(answer.to_lowercase().as_str(), "n" | "no"));
                if is_no { WorkspaceMode::Shared } else { WorkspaceMode::Clone }
            }
            (None, Repository::WithCommit) => WorkspaceMode::Clone,
        };
        let task = match self.task {
            None if asks => ask("The title of a first task, which starts at once?", "none")?,
            task => task,
        };
        let folder = directory.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = self.name.or(folder).unwrap_or_else(|| "project".to_owned());
        let chosen = programs.iter().find(|program| program.ai_type == ai_type);
        let path = chosen.and_then(|program| program.path.clone());
        Ok(Choice { directory, name, ai_type, path, workspace, task })
    }
}

/// Returns the folder of the project, without links.
///
/// # Errors
/// It is `/`, there is no such folder, or this user cannot write into it.
fn usable(directory: Option<&Path>, environment: &Environment) -> Result<PathBuf, CliError> {
    let named = environment.working_directory().join(directory.unwrap_or(Path::new("")));
    let failed = |reason: String| CliError::Failed(format!("{}: {reason}", named.display()));
    let found = named.canonicalize().map_err(|error| failed(error.to_string()))?;
    if found == Path::new("/") {
        let reason = "an agent would work on the whole machine; go to the folder of a project, \
                      or name it: `agent-coordinator init DIR`";
        return Err(failed(reason.to_owned()));
    }
    if !found.is_dir() {
        return Err(failed("it is not a folder".to_owned()));
    }
    rustix::fs::access(&found, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
        .map_err(|error| failed(format!("agents could not work there: {error}")))?;
    Ok(found)
}

/// The git repository that a folder is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repository {
    Absent,
    /// The program that would look at it is missing.
    NoGit,
    /// It has no commit, and a clone begins at one.
    Empty,
    WithCommit,
}

impl Repository {
    fn of(directory: &Path) -> Self {
        if !is_in_repository(directory) {
            return Self::Absent;
        }
        let mut git = std::process::Command::new("git");
        git.arg("-C").arg(directory).args(["rev-parse", "--verify", "--quiet", "HEAD"]);
        match git.stdin(Stdio::null()).output() {
            Ok(found) if found.status.success() => Self::WithCommit,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::NoGit,
            _ => Self::Empty,
        }
    }
}

fn no_daemon(source: &Path) -> CliError {
    let told = format!(
        "agent-coordinator: {} exists, and no daemon runs that could add the project.\n\
         Start it with `agent-coordinator run`, and repeat `agent-coordinator init`.",
        source.display()
    );
    let _ = writeln!(io::stderr(), "{told}");
    CliError::Result(super::error::EXIT_NO_DAEMON)
}

/// Asks on the terminal. Returns `None` for an empty answer, which means `default`.
///
/// # Errors
/// The terminal cannot be read.
fn ask(question: &str, default: &str) -> Result<Option<String>, CliError> {
    let mut shown = io::stderr();
    let _ = write!(shown, "{question} [{default}] ");
    let _ = shown.flush();
    let mut answer = String::new();
    if io::stdin().read_line(&mut answer)? == 0 {
        return Err(CliError::Failed("no answer; `--yes` takes the defaults".to_owned()));
    }
    let answer = answer.trim();
    Ok((!answer.is_empty()).then(|| answer.to_owned()))
}

fn print_programs(programs: &[Program]) -> Result<(), CliError> {
    for program in programs {
        let Program { ai_type, version, login, problem, .. } = program;
        let version = version.as_deref().unwrap_or("version unknown");
        print_line(&format!("{ai_type:<10} {}; {}", plain(version), plain(login)))?;
        if let Some(problem) = problem {
            print_line(&format!("{:<10} {}", "", plain(problem)))?;
        }
    }
    Ok(())
}

/// Adds the project to the daemon that runs.
async fn add(client: &Client, choice: &Choice, report: &mut Report) -> Result<(), CliError> {
    let agents: Vec<AgentBody> = client.get("/agents").await?;
    let agent = if let Some(agent) = agents.into_iter().find(|each| each.ai_type == choice.ai_type)
    {
        agent
    } else {
        let request = AgentRequest {
            name: Some(choice.ai_type.clone()),
            ai_type: Some(choice.ai_type.clone()),
            ..AgentRequest::default()
        };
        client.post("/agents", &request).await?
    };
    let request = ProjectRequest {
        name: Some(choice.name.clone()),
        working_directory: Some(choice.directory.clone()),
        workspace: Some(choice.workspace),
        assign: vec![agent.id.clone()],
        ..ProjectRequest::default()
    };
    let project: ProjectBody = client.post("/projects", &request).await?;
    report.is_changed = true;
    report.next = format!(
        "project {} with agent {}; give it work with `agent-coordinator task add --project {} \
         --assignee {} --status in_progress --title …`",
        project.id, agent.id, project.key, agent.id
    );
    if let Some(title) = &choice.task {
        let request = NewTaskRequest {
            status: Some(TaskStatus::InProgress),
            assignee_id: Some(agent.id.clone()),
            ..NewTaskRequest::new(project.id.clone(), title.clone())
        };
        let task: TaskDetail = client.post("/tasks", &request).await?;
        let short_id = task.task.short_id;
        report.next =
            format!("{short_id} starts; follow it with `agent-coordinator task wait {short_id}`");
        report.task_id = Some(task.task.id);
    }
    report.project_id = Some(project.id);
    report.agent_id = Some(agent.id);
    Ok(())
}
