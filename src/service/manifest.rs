//! `apply`: agents, projects and tasks as a file lists them, in one commit. Applying it again changes nothing, and it takes
//! nothing away: what the file doesn't list stays.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::manifest::Manifest;
use crate::domain::agent::{AgentStatus, ProjectStatus};
use crate::domain::id::{AgentId, ProjectId, TaskId};
use crate::domain::limits;
use crate::domain::task::{Actor, change};
use crate::domain::{
    Agent, Assignment, Priority, Project, Refusal, Secret, Task, TaskGraph, TaskStatus,
};
use crate::store::{Change, Commit, Expect, TaskFilter};

use super::catalog::{AgentEdit, ProjectEdit, edited_project};
use super::task_rules::{Wish, written};
use super::tasks::each_once;
use super::{Service, ServiceError};

/// What a manifest lists, without the places of its file.
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
    pub(super) fn serialize<S: Serializer>(
        passkey: &Option<Secret>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match passkey {
            Some(passkey) => serializer.serialize_some(passkey.reveal()),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Secret>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map(Secret::new))
    }
}

/// What became of one entry.
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

/// What is wrong with one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryProblem {
    /// `agents`, `projects` or `tasks`.
    pub section: &'static str,
    pub id: String,
    /// The key in the entry, with an index where it holds a list.
    pub field: Option<(&'static str, Option<usize>)>,
    pub message: String,
}

/// Why a manifest wasn't applied; nothing of it was.
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

/// Everything there is, and will be: the entries of the manifest over those of the store.
struct Merged {
    agents: BTreeMap<AgentId, Agent>,
    projects: BTreeMap<ProjectId, Project>,
    members: BTreeSet<Assignment>,
    tasks: TaskGraph,
    expect: Vec<Expect>,
    changes: Vec<Change>,
    applied: Vec<Applied>,
    problems: Vec<EntryProblem>,
}

impl Service {
    /// Applies `wanted`, all of it or nothing, and says what became of each entry.
    ///
    /// # Errors
    /// Every problem at once: references that lead nowhere, cycles, tasks that can't be as they are wanted.
    pub async fn apply(&self, wanted: &Wanted) -> Result<Vec<Applied>, ApplyError> {
        let applied = self
            .transact(|| async move {
                let mut merged = self.everything().await?;
                self.merge_agents(wanted, &mut merged);
                self.merge_projects(wanted, &mut merged);
                self.merge_tasks(wanted, &mut merged).await?;
                let commit = if merged.problems.is_empty() {
                    self.tell_agents(&mut merged.changes, None).await?;
                    Commit { expect: merged.expect, changes: merged.changes }
                } else {
                    Commit::default()
                };
                Ok((commit, (merged.applied, merged.problems)))
            })
            .await?;
        match applied {
            (applied, problems) if problems.is_empty() => Ok(applied),
            (_, problems) => Err(ApplyError::Problems(problems)),
        }
    }

    async fn everything(&self) -> Result<Merged, ServiceError> {
        let agents = self.store.agents().await?;
        let projects = self.store.projects().await?;
        let tasks = self.store.tasks(&TaskFilter::default()).await?;
        Ok(Merged {
            agents: agents.into_iter().map(|agent| (agent.id.clone(), agent)).collect(),
            projects: projects.into_iter().map(|project| (project.id.clone(), project)).collect(),
            members: self.store.assignments().await?.into_iter().collect(),
            tasks: tasks.into_iter().collect(),
            expect: Vec::new(),
            changes: Vec::new(),
            applied: Vec::new(),
            problems: Vec::new(),
        })
    }

    fn merge_agents(&self, wanted: &Wanted, merged: &mut Merged) {
        let mut seen = BTreeSet::new();
        for entry in &wanted.agents {
            if !seen.insert(&entry.id) {
                merged.complain(
                    "agents",
                    entry.id.as_str(),
                    None,
                    "the agent is listed twice".to_owned(),
                );
                continue;
            }
            let before = merged.agents.get(&entry.id).cloned();
            let edit = AgentEdit {
                name: Some(entry.name.clone()),
                ai_type: Some(entry.ai_type.clone()),
                system_prompt: Some(entry.system_prompt.clone()),
                passkey: entry.passkey.clone(),
                status: Some(entry.status),
                seen: None,
            };
            let base = before.clone().unwrap_or_else(|| self.new_agent(entry.id.clone()));
            let after = match self.edited_agent(base, &edit) {
                Ok(after) => after,
                Err(refusal) => {
                    merged.complain(
                        "agents",
                        entry.id.as_str(),
                        field_of(&refusal),
                        refusal.to_string(),
                    );
                    continue;
                }
            };
            let what = applied_as(before.as_ref(), &after);
            if what != AppliedAs::Unchanged {
                merged.changes.push(Change::Agent(after.clone()));
            }
            merged.note("agent", entry.id.as_str(), what);
            merged.agents.insert(entry.id.clone(), after);
        }
    }

    fn merge_projects(&self, wanted: &Wanted, merged: &mut Merged) {
        let mut seen = BTreeSet::new();
        for entry in &wanted.projects {
            if !seen.insert(&entry.id) {
                merged.complain(
                    "projects",
                    entry.id.as_str(),
                    None,
                    "the project is listed twice".to_owned(),
                );
                continue;
            }
            let before = merged.projects.get(&entry.id).cloned();
            let edit = ProjectEdit {
                name: Some(entry.name.clone()),
                working_directory: Some(entry.working_directory.clone()),
                status: Some(entry.status),
                ..ProjectEdit::default()
            };
            let base = before.clone().unwrap_or_else(|| self.new_project(entry.id.clone()));
            let after = match edited_project(base, &edit) {
                Ok(after) => after,
                Err(refusal) => {
                    let field = field_of(&refusal).or(Some(("working_directory", None)));
                    merged.complain("projects", entry.id.as_str(), field, refusal.to_string());
                    continue;
                }
            };
            let mut what = applied_as(before.as_ref(), &after);
            if what != AppliedAs::Unchanged {
                merged.changes.push(Change::Project(after.clone()));
            }
            for (index, agent) in entry.agents.iter().enumerate() {
                if !merged.agents.contains_key(agent) {
                    let field = Some(("agents", Some(index)));
                    merged.complain(
                        "projects",
                        entry.id.as_str(),
                        field,
                        format!("there is no agent `{agent}`"),
                    );
                    continue;
                }
                let assignment = Assignment { project: entry.id.clone(), agent: agent.clone() };
                if merged.members.insert(assignment.clone()) {
                    merged.changes.push(Change::Assign(assignment));
                    if what == AppliedAs::Unchanged {
                        what = AppliedAs::Updated;
                    }
                }
            }
            merged.note("project", entry.id.as_str(), what);
            merged.projects.insert(entry.id.clone(), after);
        }
    }

    async fn merge_tasks(&self, wanted: &Wanted, merged: &mut Merged) -> Result<(), ServiceError> {
        let now = self.now();
        let mut seen = BTreeSet::new();
        let mut changed = Vec::new();
        for entry in &wanted.tasks {
            if !seen.insert(&entry.id) {
                merged.complain(
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
                    merged.complain(
                        "tasks",
                        entry.id.as_str(),
                        field_of(&refusal),
                        refusal.to_string(),
                    );
                    continue;
                }
            };
            let before = merged.tasks.find(&entry.id).cloned();
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
            merged.note("task", entry.id.as_str(), what);
            merged.tasks.insert(after.clone());
            if what != AppliedAs::Unchanged {
                changed.push((before, after));
            }
        }
        let mut released = BTreeSet::new();
        let mut rows = Vec::new();
        // Once all are in, so that a task may name one that comes after it.
        for (before, task) in &changed {
            if !check_references(task, merged) {
                continue;
            }
            match change(before.as_ref(), task, Actor::Person, &merged.tasks, now) {
                Ok(of_task) => rows.extend(of_task),
                Err(refusal) => {
                    let field = field_of_task(&refusal, before.as_ref(), task);
                    merged.complain("tasks", task.id.as_str(), Some(field), refusal.to_string());
                    continue;
                }
            }
            if before.is_none() {
                let release = self.release_for(task).await?;
                if !release.is_empty()
                    && released.insert((task.assignee.clone(), task.project.clone()))
                {
                    merged.changes.extend(release);
                }
            }
        }
        let wishes: Vec<Wish<'_>> =
            changed.iter().map(|(before, task)| (before.as_ref(), task)).collect();
        // Only what the changed ones look at: a task that ends elsewhere is no reason to read everything anew.
        let named =
            changed.iter().flat_map(|(_, task)| task.parent.iter().chain(&task.dependencies));
        let looked_at: TaskGraph = named.filter_map(|id| merged.tasks.find(id)).cloned().collect();
        let (expect, rows) = written(&wishes, rows, &looked_at, now);
        merged.expect.extend(expect);
        merged.changes.extend(rows);
        Ok(())
    }
}

impl Merged {
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

/// The title and the description of a task as they are kept.
fn texts_of(entry: &WantedTask) -> Result<(String, String), Refusal> {
    let title = limits::TITLE.take(&entry.title)?;
    Ok((title.into_owned(), limits::DESCRIPTION.take(&entry.description)?.into_owned()))
}

/// The key whose text a refusal is about.
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

/// Whether everything a task names is there; complains about what isn't.
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

/// The key of a task's entry that a refusal is about.
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
