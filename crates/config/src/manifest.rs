//! The manifest of `apply`: agents, projects and tasks in a file.
//!
//! This module checks only the file: shapes, ids, duplicates, cycles. Whether a reference has a
//! target depends on the content of the store. The caller that knows the store reports such
//! problems with [`Manifest::report`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use domain::agent::{AgentStatus, DEFAULT_AI_TYPE, ProjectStatus};
use domain::task::{Cycle, find_cycles};
use domain::workspace::{WorkspaceMode, check_base, check_own_merge_hooks, check_pattern};
use domain::{AgentId, Priority, ProjectId, Secret, TaskId, TaskStatus};

use super::environment::Environment;
use super::reader::{Field, Name, Reader, Section};
use super::report::{Problem, Report, Transcript};
use super::source::Source;
use super::tree::Span;
use super::{Config, ConfigError, open};

/// The limit of reported circles. More would not help a reader, and a hostile file can have very
/// many.
const MAX_CYCLES: usize = 20;
/// The number of tasks of a circle that a message names.
const MAX_SHOWN_TASKS: usize = 8;

/// A place in a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    start: usize,
    end: usize,
}

/// A value and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    pub value: T,
    pub at: Location,
}

/// A whole manifest, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    pub agents: Vec<AgentEntry>,
    pub projects: Vec<ProjectEntry>,
    pub tasks: Vec<TaskEntry>,
    /// The variables of the environment from which passkeys were completed.
    pub secret_variables: BTreeSet<String>,
    /// The text that places refer to.
    file: Transcript,
}

/// An agent in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentEntry {
    pub id: Located<AgentId>,
    /// The name. The default is the id.
    pub name: String,
    /// The provider. The default is `claude`.
    pub ai_type: String,
    /// The prompt as it is written: a `${…}` in it stays. The same holds for names, titles and
    /// descriptions.
    pub system_prompt: String,
    /// The passkey; `None` leaves the one in the store.
    pub passkey: Option<Secret>,
    pub status: AgentStatus,
}

/// A project in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectEntry {
    pub id: Located<ProjectId>,
    /// The name. The default is the id.
    pub name: String,
    /// The working directory, absolute. Its existence is not checked.
    pub working_directory: Located<PathBuf>,
    pub agents: Vec<Located<AgentId>>,
    pub status: ProjectStatus,
    pub workspace: WorkspaceEntry,
}

/// The workspaces of a project in the manifest. A key that is not there stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkspaceEntry {
    /// The place where its agents work. It is chosen when the project is created.
    pub mode: Option<WorkspaceMode>,
    /// An empty text gives way to that of the configuration.
    pub base: Option<String>,
    /// An empty text gives way to that of the configuration.
    pub branch: Option<String>,
    /// `off`; an empty text gives way to that of the configuration.
    pub merge_hooks: Option<String>,
}

/// A task in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEntry {
    pub id: Located<TaskId>,
    pub project: Located<ProjectId>,
    pub title: String,
    pub description: String,
    pub assignee: Option<Located<AgentId>>,
    /// The status of a task that does not exist yet. Without one in the file, its place is that of
    /// the id.
    pub status: Located<TaskStatus>,
    pub parent: Option<Located<TaskId>>,
    pub dependencies: Vec<Located<TaskId>>,
    pub priority: Priority,
}

/// Reads the manifest at `path`.
///
/// # Errors
/// Fails if the file can't be read or has problems. The report contains all problems at once.
pub fn load(path: &Path, environment: &Environment) -> Result<Manifest, ConfigError> {
    load_named(path, None, environment)
}

/// Reads the manifest that the configuration names, if it names one.
///
/// # Errors
/// Fails like [`load`]. The error for a file that can't be read names the setting.
pub fn load_configured(
    config: &Config,
    environment: &Environment,
) -> Result<Option<Manifest>, ConfigError> {
    let path = config.general.manifest.as_deref();
    path.map(|path| load_named(path, Some("the setting `manifest`"), environment)).transpose()
}

fn load_named(
    path: &Path,
    named_by: Option<&'static str>,
    environment: &Environment,
) -> Result<Manifest, ConfigError> {
    parse(&open(path, named_by, environment)?, environment).map_err(ConfigError::Invalid)
}

fn parse(source: &Source, environment: &Environment) -> Result<Manifest, Report> {
    let reader = Reader::new(source, environment);
    let ((agents, projects, tasks), file) = reader.read(|mut top| {
        let agents = read_entries(&mut top, "agents", AgentEntry::read);
        let projects = read_entries(&mut top, "projects", ProjectEntry::read);
        let tasks = read_entries(&mut top, "tasks", TaskEntry::read);
        note_cycles(&reader, &tasks);
        (agents, projects, tasks)
    })?;
    Ok(Manifest { agents, projects, tasks, secret_variables: reader.secret_variables(), file })
}

impl Manifest {
    /// Returns a report of problems at places of this file, in the form of the parser's reports.
    pub fn report(&self, problems: impl IntoIterator<Item = (Location, String)>) -> Report {
        let problem =
            |(at, message): (Location, String)| Problem::new(message, at.span()).label("here");
        self.file.report(problems.into_iter().map(problem).collect())
    }

    /// Returns the place of a key of an entry, of an element of its list, or of the entry itself.
    /// `section` is `agents`, `projects` or `tasks`. If the file does not contain it, returns the
    /// beginning of the file.
    pub fn locate(
        &self,
        section: &str,
        id: &str,
        field: Option<(&str, Option<usize>)>,
    ) -> Location {
        let place = match section {
            "agents" => self
                .agents
                .iter()
                .find(|entry| entry.id.value.as_str() == id)
                .map(|entry| entry.id.at),
            "projects" => self
                .projects
                .iter()
                .find(|entry| entry.id.value.as_str() == id)
                .map(|entry| entry.locate(field)),
            _ => self
                .tasks
                .iter()
                .find(|entry| entry.id.value.as_str() == id)
                .map(|entry| entry.locate(field)),
        };
        place.unwrap_or(Location { start: 0, end: 0 })
    }

    /// Returns a report of one problem at a place of this file.
    pub fn problem_at(&self, at: Location, message: impl Into<String>) -> Report {
        self.report([(at, message.into())])
    }
}

impl AgentEntry {
    fn read(name: &Name, mut section: Section<'_, '_>) -> Option<Self> {
        let statuses: Vec<_> =
            AgentStatus::ALL.iter().map(|status| (status.as_str(), *status)).collect();
        let entry = Self {
            name: section
                .field("name")
                .and_then(|field| field.verbatim())
                .unwrap_or_else(|| name.text.clone()),
            ai_type: section
                .field("ai_type")
                .and_then(|f| f.word())
                .unwrap_or_else(|| DEFAULT_AI_TYPE.to_owned()),
            system_prompt: section
                .optional("system_prompt")
                .and_then(|field| field.verbatim())
                .unwrap_or_default(),
            passkey: section.field("passkey").and_then(|field| field.secret()),
            status: section.one_of("status", AgentStatus::Active, &statuses),
            id: located_id(name, section.reader())?,
        };
        Some(entry)
    }
}

impl ProjectEntry {
    fn read(name: &Name, mut section: Section<'_, '_>) -> Option<Self> {
        let statuses: Vec<_> =
            ProjectStatus::ALL.iter().map(|status| (status.as_str(), *status)).collect();
        let title = section
            .field("name")
            .and_then(|field| field.verbatim())
            .unwrap_or_else(|| name.text.clone());
        let working_directory = section
            .required("working_directory")
            .and_then(|field| Some(Located { value: field.path()?, at: Location::of(&field) }));
        let agents = section.field("agents").map(located_list).unwrap_or_default();
        let status = section.one_of("status", ProjectStatus::Active, &statuses);
        let workspace = WorkspaceEntry::read(&mut section);
        let id = located_id(name, section.reader())?;
        let working_directory = working_directory?;
        Some(Self { id, name: title, working_directory, agents, status, workspace })
    }
}

impl WorkspaceEntry {
    /// Reads the mode alone, or a mapping with it.
    fn read(project: &mut Section<'_, '_>) -> Self {
        let modes: Vec<_> =
            WorkspaceMode::ALL.iter().map(|mode| (mode.as_str(), Some(*mode))).collect();
        if !project.has_mapping("workspace") {
            return Self { mode: project.one_of("workspace", None, &modes), ..Self::default() };
        }
        let mut section = project.section("workspace");
        Self {
            mode: section.one_of("mode", None, &modes),
            base: section.field("base").and_then(|field| checked(&field, check_base)),
            branch: section.field("branch").and_then(|field| checked(&field, check_pattern)),
            merge_hooks: section
                .field("merge_hooks")
                .and_then(|field| checked(&field, check_own_merge_hooks)),
        }
    }
}

/// Returns a text that is empty or valid.
fn checked(field: &Field<'_, '_>, check: fn(&str) -> Result<(), String>) -> Option<String> {
    let text = field.verbatim()?;
    if let Err(problem) = if text.is_empty() { Ok(()) } else { check(&text) } {
        let message = format!("`{}` is not valid: {problem}", field.path_in_file());
        field.note(Problem::new(message, field.span()).label("here"));
        return None;
    }
    Some(text)
}

impl TaskEntry {
    fn read(name: &Name, mut section: Section<'_, '_>) -> Option<Self> {
        let statuses: Vec<_> =
            TaskStatus::ALL.iter().map(|status| (status.as_str(), *status)).collect();
        let priorities: Vec<_> =
            Priority::ALL.iter().map(|priority| (priority.as_str(), *priority)).collect();
        let project = section.required("project").and_then(|field| located(&field));
        let title = section.required("title").and_then(|field| field.verbatim());
        let description =
            section.optional("description").and_then(|field| field.verbatim()).unwrap_or_default();
        let assignee = section.optional("assignee").and_then(|field| located(&field));
        let status = section.field("status").and_then(|field| {
            Some(Located { value: field.one_of(&statuses)?, at: Location::of(&field) })
        });
        let parent = section.optional("parent").and_then(|field| located(&field));
        let dependencies = section.field("dependencies").map(located_list).unwrap_or_default();
        let priority = section.one_of("priority", Priority::Medium, &priorities);
        let id: Located<TaskId> = located_id(name, section.reader())?;
        let status = status.unwrap_or(Located { value: TaskStatus::Todo, at: id.at });
        Some(Self {
            id,
            project: project?,
            title: title?,
            description,
            assignee,
            status,
            parent,
            dependencies,
            priority,
        })
    }
}

impl ProjectEntry {
    fn locate(&self, field: Option<(&str, Option<usize>)>) -> Location {
        match field {
            Some(("working_directory", _)) => self.working_directory.at,
            Some(("agents", Some(index))) => {
                self.agents.get(index).map_or(self.id.at, |agent| agent.at)
            }
            _ => self.id.at,
        }
    }
}

impl TaskEntry {
    fn locate(&self, field: Option<(&str, Option<usize>)>) -> Location {
        let place = match field {
            Some(("project", _)) => Some(self.project.at),
            Some(("assignee", _)) => self.assignee.as_ref().map(|assignee| assignee.at),
            Some(("status", _)) => Some(self.status.at),
            Some(("parent", _)) => self.parent.as_ref().map(|parent| parent.at),
            Some(("dependencies", index)) => {
                self.dependencies.get(index.unwrap_or(0)).map(|dependency| dependency.at)
            }
            _ => None,
        };
        place.unwrap_or(self.id.at)
    }
}

impl Location {
    fn of(field: &Field<'_, '_>) -> Self {
        Self::at(&field.span())
    }

    fn at(span: &Span) -> Self {
        Self { start: span.start, end: span.end }
    }

    fn span(self) -> Span {
        self.start..self.end
    }
}

fn read_entries<T>(
    top: &mut Section<'_, '_>,
    key: &'static str,
    read: impl Fn(&Name, Section<'_, '_>) -> Option<T>,
) -> Vec<T> {
    top.named_sections(key).into_iter().filter_map(|(name, section)| read(&name, section)).collect()
}

fn located_id<T: FromStr<Err: Display>>(name: &Name, reader: &Reader<'_>) -> Option<Located<T>> {
    Some(Located { value: name.id(reader)?, at: Location::at(&name.span) })
}

fn located<T: FromStr>(field: &Field<'_, '_>) -> Option<Located<T>> {
    Some(Located { value: field.id()?, at: Location::of(field) })
}

fn located_list<T: FromStr>(field: Field<'_, '_>) -> Vec<Located<T>> {
    field.list().unwrap_or_default().iter().filter_map(located).collect()
}

/// Notes tasks that wait for themselves, each circle once. References to tasks outside the file
/// can't close a circle.
fn note_cycles(reader: &Reader<'_>, tasks: &[TaskEntry]) {
    let graph = |edges: fn(&TaskEntry) -> Vec<&Located<TaskId>>| {
        tasks.iter().map(|task| (&task.id.value, edges(task))).collect::<BTreeMap<_, _>>()
    };
    let parents = graph(|task| task.parent.iter().collect());
    let dependencies = graph(|task| task.dependencies.iter().collect());
    for (graph, what) in [(parents, "is its own ancestor"), (dependencies, "depends on itself")] {
        let cycles = find_cycles(
            graph.keys().copied(),
            |id| graph.get(id).into_iter().flatten().map(|reference| &reference.value),
            MAX_CYCLES,
        );
        for Cycle { tasks, closed_by } in cycles {
            let first = tasks[0];
            let closed_at = graph[tasks[tasks.len() - 1]][closed_by].at;
            let mut way: Vec<_> =
                tasks.iter().take(MAX_SHOWN_TASKS).map(ToString::to_string).collect();
            if tasks.len() > MAX_SHOWN_TASKS {
                way.push(format!("… ({} more)", tasks.len() - MAX_SHOWN_TASKS));
            }
            let message = format!("task `{first}` {what}: {} → {first}", way.join(" → "));
            let problem = Problem::new(message, closed_at.span());
            reader.note(problem.label("closes the circle"));
        }
    }
}

#[cfg(test)]
mod tests;
