//! `apply`: the agents, projects and tasks of a file, in one transaction. Applying the file again
//! changes nothing. Entries that the file does not list stay as they are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::manifest::Manifest;
use crate::domain::agent::{AgentEdit, AgentStatus, ProjectEdit, ProjectStatus};
use crate::domain::id::{AgentId, ProjectId, TaskId};
use crate::domain::limits;
use crate::domain::notice::WorkChange;
use crate::domain::task::{Actor, change, each_once};
use crate::domain::{
    Agent, Assignment, Priority, Project, Refusal, Secret, Task, TaskGraph, TaskStatus, Timestamp,
};
use crate::rows::{Transaction, agents, assignments, projects, tasks};
use crate::store::{Read, StoreError};

use super::Catalog;
use crate::service::creations::TASK_CREATED;
use crate::service::tasks::release_for;
use crate::service::tasks::rules::{Wish, graph_around, write_task};
use crate::service::{Inputs, ServiceError};

/// The entries of a manifest, without their places in its file.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wanted {
    #[serde(default)]
    pub agents: Vec<WantedAgent>,
    #[serde(default)]
    pub projects: Vec<WantedProject>,
    #[serde(default)]
    pub tasks: Vec<WantedTask>,
}

#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WantedAgent {
    pub id: AgentId,
    #[schemars(transform = limits::NAME.described())]
    pub name: String,
    #[schemars(transform = limits::AI_TYPE.described())]
    pub ai_type: String,
    #[schemars(transform = limits::SYSTEM_PROMPT.described())]
    pub system_prompt: String,
    /// `None` leaves what there is.
    #[serde(default, with = "passkey_text")]
    #[schemars(with = "Option<String>", transform = limits::PASSKEY.described())]
    pub passkey: Option<Secret>,
    pub status: AgentStatus,
}

#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WantedProject {
    pub id: ProjectId,
    #[schemars(transform = limits::NAME.described())]
    pub name: String,
    #[schemars(transform = limits::WORKING_DIRECTORY.described_as_absolute())]
    pub working_directory: PathBuf,
    /// To be assigned; others that are stay so.
    pub agents: Vec<AgentId>,
    pub status: ProjectStatus,
}

#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WantedTask {
    pub id: TaskId,
    pub project: ProjectId,
    #[schemars(transform = limits::TITLE.described_as_needed())]
    pub title: String,
    #[schemars(transform = limits::DESCRIPTION.described())]
    pub description: String,
    pub assignee: Option<AgentId>,
    /// Only of a task that doesn't exist yet.
    pub status: TaskStatus,
    pub parent: Option<TaskId>,
    pub dependencies: Vec<TaskId>,
    pub priority: Priority,
}

/// A passkey on its way from the command line to the daemon.
mod passkey_text {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::domain::Secret;

    #[allow(clippy::ref_option, reason = "serde gives the field by reference")]
    pub(in crate::service) fn serialize<S: Serializer>(
        passkey: &Option<Secret>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match passkey {
            Some(passkey) => serializer.serialize_some(passkey.reveal()),
            None => serializer.serialize_none(),
        }
    }

    pub(in crate::service) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Secret>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map(Secret::new))
    }
}

/// The result of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    /// `agent`, `project` or `task`.
    pub kind: String,
    pub id: String,
    pub what: AppliedAs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AppliedAs {
    Created,
    Updated,
    Unchanged,
}

/// A problem of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryProblem {
    /// `agents`, `projects` or `tasks`.
    pub section: &'static str,
    pub id: String,
    /// The key in the entry, with an index if the key holds a list.
    pub field: Option<(&'static str, Option<usize>)>,
    pub message: String,
}

/// The reason why a manifest was not applied. Nothing of it was stored.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("the manifest has {} problem(s)", .0.len())]
    Problems(Vec<EntryProblem>),
    #[error(transparent)]
    Service(#[from] ServiceError),
}

impl From<&Manifest> for Wanted {
    fn from(manifest: &Manifest) -> Self {
        let agents = manifest.agents.iter().map(|agent| WantedAgent {
            id: agent.id.value.clone(),
            name: agent.name.clone(),
            ai_type: agent.ai_type.clone(),
            system_prompt: agent.system_prompt.clone(),
            passkey: agent.passkey.clone(),
            status: agent.status,
        });
        let projects = manifest.projects.iter().map(|project| WantedProject {
            id: project.id.value.clone(),
            name: project.name.clone(),
            working_directory: project.working_directory.value.clone(),
            agents: project.agents.iter().map(|agent| agent.value.clone()).collect(),
            status: project.status,
        });
        let tasks = manifest.tasks.iter().map(|task| WantedTask {
            id: task.id.value.clone(),
            project: task.project.value.clone(),
            title: task.title.clone(),
            description: task.description.clone(),
            assignee: task.assignee.as_ref().map(|assignee| assignee.value.clone()),
            status: task.status.value,
            parent: task.parent.as_ref().map(|parent| parent.value.clone()),
            dependencies: task
                .dependencies
                .iter()
                .map(|dependency| dependency.value.clone())
                .collect(),
            priority: task.priority,
        });
        Self { agents: agents.collect(), projects: projects.collect(), tasks: tasks.collect() }
    }
}

/// All rows as they will be: the entries of the manifest over those of the store.
#[derive(Default)]
struct Merged {
    agents: BTreeMap<AgentId, Agent>,
    projects: BTreeMap<ProjectId, Project>,
    members: BTreeSet<Assignment>,
    tasks: TaskGraph,
    changes: Changes,
    applied: Vec<Applied>,
    problems: Vec<EntryProblem>,
}

/// The rows to write.
#[derive(Default)]
struct Changes {
    agents: Vec<Agent>,
    projects: Vec<Project>,
    assignments: Vec<Assignment>,
    /// Each task that differs, before and after the change.
    wishes: Vec<(Option<Task>, Task)>,
    /// The wished tasks, and other tasks that change with them.
    tasks: Vec<Task>,
    /// The news for agents at work, without the news of tasks.
    news: Vec<WorkChange>,
}

/// An entry of the manifest, with the new agent for an entry that has none yet.
#[derive(Clone)]
struct AgentEntry {
    new: Agent,
    edit: AgentEdit,
    salt: [u8; 16],
}

impl Catalog {
    /// Applies all of `wanted` or nothing, and returns the result of each entry.
    ///
    /// # Errors
    /// All problems at once: references to unknown objects, cycles, tasks that are not allowed in
    /// the wanted state.
    pub async fn apply(&self, wanted: &Wanted) -> Result<Vec<Applied>, ApplyError> {
        let agents: Vec<AgentEntry> =
            wanted.agents.iter().map(|entry| self.agent_entry(entry)).collect();
        let (wanted, inputs) = (wanted.clone(), self.heard.inputs(&self.core));
        let applied = self.core.write(move |tx| {
            let mut merged = Merged::of(tx)?;
            merged.merge_agents(&agents);
            merged.merge_projects(&wanted, tx.now());
            let now = tx.now();
            merged.merge_tasks(tx, now, &wanted)?;
            if merged.problems.is_empty() {
                merged.changes.write(tx, &inputs)?;
            }
            Ok((merged.applied, merged.problems))
        });
        match applied.await? {
            (applied, problems) if problems.is_empty() => Ok(applied),
            (_, problems) => Err(ApplyError::Problems(problems)),
        }
    }

    fn agent_entry(&self, entry: &WantedAgent) -> AgentEntry {
        let edit = AgentEdit {
            name: Some(entry.name.clone()),
            ai_type: Some(entry.ai_type.clone()),
            system_prompt: Some(entry.system_prompt.clone()),
            passkey: entry.passkey.clone(),
            status: Some(entry.status),
            seen: None,
        };
        AgentEntry { new: self.new_agent(entry.id.clone()), edit, salt: self.core.world.new_salt() }
    }
}

impl Changes {
    fn write(self, tx: &mut Transaction<'_>, inputs: &Inputs) -> Result<(), ServiceError> {
        let mut news = self.news;
        for agent in &self.agents {
            agents::put(tx, agent)?;
        }
        for project in &self.projects {
            projects::put(tx, project)?;
        }
        for assignment in &self.assignments {
            assignments::add(tx, assignment)?;
        }
        let before = self.wishes.iter().filter_map(|(before, _)| before.as_ref());
        let was: BTreeMap<TaskId, TaskStatus> =
            before.map(|before| (before.id.clone(), before.status)).collect();
        for (_, task) in self.wishes.iter().filter(|(before, _)| before.is_none()) {
            release_for(tx, task)?;
        }
        for task in self.tasks {
            let keeps_status = was.get(&task.id) == Some(&task.status);
            let kind = if task.revision == 0 { TASK_CREATED } else { "task.status" };
            let event = (!keeps_status).then(|| tasks::event(kind, &task, tx.now()));
            news.extend(write_task(tx, task, event)?);
        }
        Ok(inputs.tell_agents(tx, &news, None)?)
    }
}

impl Merged {
    /// Returns the stored agents, projects and assignments. Only the tasks around the listed ones
    /// are read, later.
    fn of(tx: &mut Read<'_>) -> Result<Self, StoreError> {
        let agents = agents::list(tx)?.into_iter();
        let projects = projects::list(tx)?.into_iter();
        Ok(Self {
            agents: agents.map(|agent| (agent.id.clone(), agent)).collect(),
            projects: projects.map(|project| (project.id.clone(), project)).collect(),
            members: assignments::list(tx)?.into_iter().collect(),
            ..Self::default()
        })
    }

    fn merge_agents(&mut self, entries: &[AgentEntry]) {
        let mut seen = BTreeSet::new();
        for AgentEntry { new, edit, salt } in entries {
            let id = &new.id;
            if !seen.insert(id) {
                let problem = "the agent is listed twice".to_owned();
                self.complain("agents", id.as_str(), None, problem);
                continue;
            }
            let before = self.agents.get(id).cloned();
            let after = match edit.apply(before.clone().unwrap_or_else(|| new.clone()), *salt) {
                Ok(after) => after,
                Err(refusal) => {
                    let (field, problem) = (field_of(&refusal), refusal.to_string());
                    self.complain("agents", id.as_str(), field, problem);
                    continue;
                }
            };
            let what = applied_as(before.as_ref(), &after);
            if what != AppliedAs::Unchanged {
                self.changes.agents.push(after.clone());
                self.changes.news.extend(before.and_then(|b| WorkChange::of_agent(&b, &after)));
            }
            self.note("agent", id.as_str(), what);
            self.agents.insert(id.clone(), after);
        }
    }

    fn merge_projects(&mut self, wanted: &Wanted, now: Timestamp) {
        let mut seen = BTreeSet::new();
        for entry in &wanted.projects {
            if !seen.insert(&entry.id) {
                self.complain(
                    "projects",
                    entry.id.as_str(),
                    None,
                    "the project is listed twice".to_owned(),
                );
                continue;
            }
            let before = self.projects.get(&entry.id).cloned();
            let edit = ProjectEdit {
                name: Some(entry.name.clone()),
                working_directory: Some(entry.working_directory.clone()),
                status: Some(entry.status),
                ..ProjectEdit::default()
            };
            let base = before.clone().unwrap_or_else(|| Project::new(entry.id.clone(), now));
            let after = match edit.apply(base) {
                Ok(after) => after,
                Err(refusal) => {
                    let field = field_of(&refusal).or(Some(("working_directory", None)));
                    self.complain("projects", entry.id.as_str(), field, refusal.to_string());
                    continue;
                }
            };
            let mut what = applied_as(before.as_ref(), &after);
            if what != AppliedAs::Unchanged {
                self.changes.projects.push(after.clone());
                self.changes.news.extend(before.and_then(|b| WorkChange::of_project(&b, &after)));
            }
            for (index, agent) in entry.agents.iter().enumerate() {
                if !self.agents.contains_key(agent) {
                    let field = Some(("agents", Some(index)));
                    self.complain(
                        "projects",
                        entry.id.as_str(),
                        field,
                        format!("there is no agent `{agent}`"),
                    );
                    continue;
                }
                let assignment = Assignment { project: entry.id.clone(), agent: agent.clone() };
                if self.members.insert(assignment.clone()) {
                    self.changes.assignments.push(assignment);
                    if what == AppliedAs::Unchanged {
                        what = AppliedAs::Updated;
                    }
                }
            }
            self.note("project", entry.id.as_str(), what);
            self.projects.insert(entry.id.clone(), after);
        }
    }

    fn merge_tasks(
        &mut self,
        tx: &mut Read<'_>,
        now: Timestamp,
        wanted: &Wanted,
    ) -> Result<(), StoreError> {
        let mut seen = BTreeSet::new();
        let mut changed = Vec::new();
        for entry in &wanted.tasks {
            if !seen.insert(&entry.id) {
                self.complain(
                    "tasks",
                    entry.id.as_str(),
                    None,
                    "the task is listed twice".to_owned(),
                );
                continue;
            }
            let (title, description) = match texts_of(entry) {
                Ok(texts) => texts,
                Err(refusal) => {
                    self.complain(
                        "tasks",
                        entry.id.as_str(),
                        field_of(&refusal),
                        refusal.to_string(),
                    );
                    continue;
                }
            };
            let before = tasks::get(tx, &entry.id)?;
            let base = before.clone().unwrap_or_else(|| Task {
                id: entry.id.clone(),
                project: entry.project.clone(),
                parent: None,
                title: String::new(),
                description: String::new(),
                status: entry.status,
                priority: entry.priority,
                assignee: None,
                dependencies: Vec::new(),
                blocked_reason: None,
                created_at: now,
                status_since: now,
                revision: 0,
            });
            let after = Task {
                project: entry.project.clone(),
                parent: entry.parent.clone(),
                title,
                description,
                priority: entry.priority,
                assignee: entry.assignee.clone(),
                dependencies: each_once(&entry.dependencies),
                ..base
            };
            let what = applied_as(before.as_ref(), &after);
            self.note("task", entry.id.as_str(), what);
            if what != AppliedAs::Unchanged {
                changed.push((before, after));
            }
        }
        let wishes: Vec<Wish<'_>> =
            changed.iter().map(|(before, task)| (before.as_ref(), task)).collect();
        // The check runs after all tasks are in the graph, because a task may name a later one.
        self.tasks = graph_around(tx, &wishes)?;
        for id in changed.iter().flat_map(|(_, task)| &task.dependencies) {
            if self.tasks.find(id).is_none() {
                self.tasks.extend(tasks::get(tx, id)?);
            }
        }
        for (before, task) in &changed {
            if !check_references(task, self) {
                continue;
            }
            match change(before.as_ref(), task, Actor::Person, &self.tasks, now) {
                Ok(of_task) => self.changes.tasks.extend(of_task),
                Err(refusal) => {
                    let field = field_of_task(&refusal, before.as_ref(), task);
                    self.complain("tasks", task.id.as_str(), Some(field), refusal.to_string());
                }
            }
        }
        self.changes.wishes = changed;
        Ok(())
    }

    fn note(&mut self, kind: &str, id: &str, what: AppliedAs) {
        self.applied.push(Applied { kind: kind.to_owned(), id: id.to_owned(), what });
    }

    fn complain(
        &mut self,
        section: &'static str,
        id: &str,
        field: Option<(&'static str, Option<usize>)>,
        message: String,
    ) {
        self.problems.push(EntryProblem { section, id: id.to_owned(), field, message });
    }
}

/// Returns the title and the description of a task as they are stored.
fn texts_of(entry: &WantedTask) -> Result<(String, String), Refusal> {
    let title = limits::TITLE.take(&entry.title)?;
    Ok((title.into_owned(), limits::DESCRIPTION.take(&entry.description)?.into_owned()))
}

/// Returns the key whose text a refusal is about.
const fn field_of(refusal: &Refusal) -> Option<(&'static str, Option<usize>)> {
    match refusal {
        Refusal::TooLong { text, .. } | Refusal::NotOneLine { text, .. } => Some((text, None)),
        _ => None,
    }
}

fn applied_as<T: PartialEq>(before: Option<&T>, after: &T) -> AppliedAs {
    match before {
        None => AppliedAs::Created,
        Some(before) if before == after => AppliedAs::Unchanged,
        Some(_) => AppliedAs::Updated,
    }
}

/// Checks that everything that a task names exists, and notes a problem for each name that does
/// not.
fn check_references(task: &Task, merged: &mut Merged) -> bool {
    let mut missing = Vec::new();
    if !merged.projects.contains_key(&task.project) {
        missing.push((("project", None), format!("there is no project `{}`", task.project)));
    } else if let Some(agent) = &task.assignee {
        let assignment = Assignment { project: task.project.clone(), agent: agent.clone() };
        if !merged.agents.contains_key(agent) {
            missing.push((("assignee", None), format!("there is no agent `{agent}`")));
        } else if !merged.members.contains(&assignment) {
            let message = format!("agent `{agent}` is not assigned to project `{}`", task.project);
            missing.push((("assignee", None), message));
        }
    }
    if let Some(parent) = task.parent.as_ref().filter(|parent| merged.tasks.find(parent).is_none())
    {
        missing.push((("parent", None), format!("there is no task `{parent}`")));
    }
    for (index, dependency) in task.dependencies.iter().enumerate() {
        if merged.tasks.find(dependency).is_none() {
            missing
                .push((("dependencies", Some(index)), format!("there is no task `{dependency}`")));
        }
    }
    let is_complete = missing.is_empty();
    for (field, message) in missing {
        merged.complain("tasks", task.id.as_str(), Some(field), message);
    }
    is_complete
}

/// Returns the key of a task's entry that a refusal is about.
fn field_of_task(
    refusal: &Refusal,
    before: Option<&Task>,
    task: &Task,
) -> (&'static str, Option<usize>) {
    let nth = |id: &TaskId| task.dependencies.iter().position(|dependency| dependency == id);
    match refusal {
        Refusal::NeedsAssignee { .. } if before.is_some() => ("assignee", None),
        Refusal::DependsOnKin { dependency, .. } => ("dependencies", nth(dependency)),
        Refusal::NoSuchTask { task: other, .. } if task.parent.as_ref() != Some(other) => {
            ("dependencies", nth(other))
        }
        Refusal::NoSuchTask { .. } => ("parent", None),
        Refusal::WaitsForItself { way } => ("dependencies", way.get(1).and_then(nth)),
        Refusal::DependenciesOpen { .. }
        | Refusal::SubtasksOpen { .. }
        | Refusal::ParentClosed { .. } => ("status", None),
        Refusal::StaysInProject { .. } => ("project", None),
        Refusal::PartOfItself { .. } => ("parent", None),
        _ => ("title", None),
    }
}
