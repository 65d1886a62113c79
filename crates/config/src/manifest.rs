//! The manifest of `apply`: agents, projects and tasks in a file.
//!
//! This module checks only the file: shapes, ids, duplicates, cycles. Whether a reference has a
//! target depends on the content of the store. The caller that knows the store reports such
//! problems with [`Manifest::report`].

mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::str::FromStr;

use domain::agent::{AgentStatus, DEFAULT_AI_TYPE, ProjectStatus};
use domain::task::{Cycle, find_cycles};
use domain::workspace::{WorkspaceMode, check_base, check_own_merge_hooks, check_pattern};
use domain::{Priority, TaskId, TaskStatus};

use super::environment::Environment;
use super::reader::{Field, Name, Reader, Section};
use super::report::{Problem, Report, Transcript};
use super::source::Source;
use super::tree::Span;
use super::{Config, ConfigError, open};

pub use wanted::{Wanted, WantedAgent, WantedProject, WantedTask};

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

/// A whole manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The entries in the order of the file. Prompts, names, titles and descriptions are as they
    /// are written: a `${…}` in them stays.
    pub wanted: Wanted,
    /// The variables of the environment from which passkeys were completed.
    pub secret_variables: BTreeSet<String>,
    places: Vec<EntryPlaces>,
    /// The text that places refer to.
    file: Transcript,
}

/// The places of an entry that problems may name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct EntryPlaces {
    section: &'static str,
    id: String,
    at: Location,
    /// The place of each value, with its key. The elements of a list have the same key.
    values: Vec<(&'static str, Location)>,
}

/// The workspaces of a project in the manifest. A key that is not there stays as it is.
#[derive(Default)]
struct WorkspaceEntry {
    mode: Option<WorkspaceMode>,
    base: Option<String>,
    branch: Option<String>,
    merge_hooks: Option<String>,
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
    let mut places = Vec::new();
    let (wanted, file) = reader.read(|mut top| {
        let wanted = Wanted {
            agents: read_entries(&mut top, "agents", &mut places, read_agent),
            projects: read_entries(&mut top, "projects", &mut places, read_project),
            tasks: read_entries(&mut top, "tasks", &mut places, read_task),
        };
        note_cycles(&reader, &wanted.tasks, &places);
        wanted
    })?;
    Ok(Manifest { wanted, secret_variables: reader.secret_variables(), places, file })
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
        let of_entry = |entry: &&EntryPlaces| entry.section == section && entry.id == id;
        let entry = self.places.iter().find(of_entry);
        entry.map_or(Location { start: 0, end: 0 }, |entry| entry.locate(field))
    }

    /// Returns a report of one problem at a place of this file.
    pub fn problem_at(&self, at: Location, message: impl Into<String>) -> Report {
        self.report([(at, message.into())])
    }
}

impl EntryPlaces {
    fn locate(&self, field: Option<(&str, Option<usize>)>) -> Location {
        let Some((key, index)) = field else { return self.at };
        let mut values = self.values.iter().filter(|(known, _)| *known == key);
        values.nth(index.unwrap_or(0)).map_or(self.at, |(_, at)| *at)
    }

    fn note(&mut self, key: &'static str, field: &Field<'_, '_>) {
        self.values.push((key, Location::at(&field.span())));
    }

    /// Returns the id in a field, and notes its place.
    fn id<T: FromStr>(&mut self, key: &'static str, field: &Field<'_, '_>) -> Option<T> {
        let id = field.id()?;
        self.note(key, field);
        Some(id)
    }

    /// Returns the ids in a list, and notes their places.
    fn ids<T: FromStr>(&mut self, key: &'static str, field: Field<'_, '_>) -> Vec<T> {
        let items = field.list().unwrap_or_default();
        items.iter().filter_map(|item| self.id(key, item)).collect()
    }
}

fn read_agent(
    name: &Name,
    mut section: Section<'_, '_>,
    _: &mut EntryPlaces,
) -> Option<WantedAgent> {
    let statuses: Vec<_> =
        AgentStatus::ALL.iter().map(|status| (status.as_str(), *status)).collect();
    Some(WantedAgent {
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
        id: name.id(section.reader())?,
    })
}

fn read_project(
    name: &Name,
    mut section: Section<'_, '_>,
    places: &mut EntryPlaces,
) -> Option<WantedProject> {
    let statuses: Vec<_> =
        ProjectStatus::ALL.iter().map(|status| (status.as_str(), *status)).collect();
    let title = section
        .field("name")
        .and_then(|field| field.verbatim())
        .unwrap_or_else(|| name.text.clone());
    let working_directory = section.required("working_directory").and_then(|field| {
        places.note("working_directory", &field);
        field.path()
    });
    let agents =
        section.field("agents").map(|field| places.ids("agents", field)).unwrap_or_default();
    let status = section.one_of("status", ProjectStatus::Active, &statuses);
    let workspace = WorkspaceEntry::read(&mut section);
    let id = name.id(section.reader())?;
    Some(WantedProject {
        id,
        name: title,
        working_directory: working_directory?,
        agents,
        status,
        workspace: workspace.mode,
        workspace_base: workspace.base,
        workspace_branch: workspace.branch,
        merge_hooks: workspace.merge_hooks,
    })
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

fn read_task(
    name: &Name,
    mut section: Section<'_, '_>,
    places: &mut EntryPlaces,
) -> Option<WantedTask> {
    let statuses: Vec<_> =
        TaskStatus::ALL.iter().map(|status| (status.as_str(), *status)).collect();
    let priorities: Vec<_> =
        Priority::ALL.iter().map(|priority| (priority.as_str(), *priority)).collect();
    let project = section.required("project").and_then(|field| places.id("project", &field));
    let title = section.required("title").and_then(|field| field.verbatim());
    let description =
        section.optional("description").and_then(|field| field.verbatim()).unwrap_or_default();
    let assignee = section.optional("assignee").and_then(|field| places.id("assignee", &field));
    let status = section.field("status").and_then(|field| {
        places.note("status", &field);
        field.one_of(&statuses)
    });
    let parent = section.optional("parent").and_then(|field| places.id("parent", &field));
    let dependencies = section
        .field("dependencies")
        .map(|field| places.ids("dependencies", field))
        .unwrap_or_default();
    let priority = section.one_of("priority", Priority::Medium, &priorities);
    Some(WantedTask {
        id: name.id(section.reader())?,
        project: project?,
        title: title?,
        description,
        assignee,
        status: status.unwrap_or(TaskStatus::Todo),
        parent,
        dependencies,
        priority,
    })
}

impl Location {
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
    places: &mut Vec<EntryPlaces>,
    read: impl Fn(&Name, Section<'_, '_>, &mut EntryPlaces) -> Option<T>,
) -> Vec<T> {
    let mut entries = Vec::new();
    for (name, section) in top.named_sections(key) {
        let at = Location::at(&name.span);
        let id = name.text.clone();
        let mut of_entry = EntryPlaces { section: key, id, at, values: Vec::new() };
        entries.extend(read(&name, section, &mut of_entry));
        places.push(of_entry);
    }
    entries
}

/// Notes tasks that wait for themselves, each circle once. References to tasks outside the file
/// can't close a circle.
fn note_cycles(reader: &Reader<'_>, tasks: &[WantedTask], places: &[EntryPlaces]) {
    let by_id: BTreeMap<&TaskId, &WantedTask> = tasks.iter().map(|task| (&task.id, task)).collect();
    let places: BTreeMap<&str, &EntryPlaces> = places
        .iter()
        .filter(|entry| entry.section == "tasks")
        .map(|entry| (entry.id.as_str(), entry))
        .collect();
    let parents: fn(&WantedTask) -> &[TaskId] = |task| task.parent.as_slice();
    let dependencies: fn(&WantedTask) -> &[TaskId] = |task| &task.dependencies;
    for (key, named, what) in [
        ("parent", parents, "is its own ancestor"),
        ("dependencies", dependencies, "depends on itself"),
    ] {
        let cycles = find_cycles(
            by_id.keys().copied(),
            |id| by_id.get(id).map(|task| named(task)).unwrap_or_default(),
            MAX_CYCLES,
        );
        for Cycle { tasks, closed_by } in cycles {
            let first = tasks[0];
            let last = tasks[tasks.len() - 1].as_str();
            let closed_at = places[last].locate(Some((key, Some(closed_by))));
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
