//! `apply`: the agents, projects and tasks of a file, in one transaction. Applying the file again
//! changes nothing. Entries that the file does not list stay as they are.

mod left_out;

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use config::manifest::{Wanted, WantedAgent, WantedProject, WantedTask};
use domain::agent::{AgentEdit, AiTypes, ProjectEdit};
use domain::id::TaskId;
use domain::notice::WorkChange;
use domain::task::{Actor, NewTask, TaskEdit, change};
use domain::{Agent, Assignment, Project, Refusal, Removable, ShortId, Task, TaskGraph, Timestamp};
use store::rows::{Transaction, agents, assignments, project_keys, projects, tasks};
use store::{Read, StoreError};

pub use self::left_out::LeftOut;

use self::left_out::{Facts, add_warnings, restore_places, take_out};
use super::{Catalog, keys, write_agent, write_project};
use crate::ServiceError;
use crate::removals::check_archive;
use crate::tasks::release_for;
use crate::tasks::rules::{Wish, graph_around, write_changed};

/// The result of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    /// `agent`, `project` or `task`.
    pub kind: String,
    pub id: String,
    pub what: AppliedAs,
    /// The reasons why the entry or parts of it are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<LeftOut>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AppliedAs {
    Created,
    Updated,
    Unchanged,
    /// It was deleted, or cannot exist without something that was.
    LeftOut,
}

impl Applied {
    fn new(of: &Removable, what: AppliedAs, warnings: Vec<LeftOut>) -> Self {
        Self { kind: of.kind().to_string(), id: of.id().to_owned(), what, warnings }
    }
}

impl AppliedAs {
    /// Returns whether the entry changed anything.
    pub const fn is_change(self) -> bool {
        matches!(self, Self::Created | Self::Updated)
    }
}

/// A problem of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryProblem {
    /// The agent, project or task of the entry.
    pub of: Removable,
    pub field: Option<Field>,
    pub message: String,
}

impl EntryProblem {
    /// Returns the key of the entries of this kind: `agents`, `projects` or `tasks`.
    pub fn section(&self) -> String {
        format!("{}s", self.of.kind())
    }
}

/// A key in an entry, with an index if the key holds a list.
pub type Field = (&'static str, Option<usize>);

/// The reason why a manifest was not applied. Nothing of it was stored.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("the manifest has {} problem(s)", .0.len())]
    Problems(Vec<EntryProblem>),
    #[error(transparent)]
    Service(#[from] ServiceError),
}

impl From<StoreError> for ApplyError {
    fn from(error: StoreError) -> Self {
        Self::Service(error.into())
    }
}

/// An entry of the manifest, with the new agent for an entry that has none yet.
struct AgentEntry {
    new: Agent,
    edit: AgentEdit,
    salt: [u8; 16],
}

/// The results of the entries that were read so far. Each entry without a problem is written at
/// once, so that later entries can refer to it. If any entry has a problem, the transaction is
/// rolled back.
#[derive(Default)]
struct Applying {
    seen: BTreeSet<Removable>,
    applied: Vec<Applied>,
    problems: Vec<EntryProblem>,
    /// The changes that agents at work must learn.
    news: Vec<WorkChange>,
    /// The agents and projects to archive. They are checked last.
    to_archive: Vec<Removable>,
}

impl Catalog {
    /// Applies all of `wanted` or nothing, and returns the result of each entry. What was deleted,
    /// and what cannot exist without it, is left out.
    ///
    /// # Errors
    /// All problems at once: unknown objects, cycles, tasks that may not have the wanted state.
    pub async fn apply(&self, wanted: &Wanted) -> Result<Vec<Applied>, ApplyError> {
        let agents: Vec<AgentEntry> =
            wanted.agents.iter().map(|entry| self.agent_entry(entry)).collect();
        let wanted = wanted.clone();
        let ai_types = self.ai_types();
        let inputs = self.heard.inputs(&self.core);
        let applied = self.core.try_write(move |tx| {
            let facts = Facts::read(tx, &wanted)?;
            let mut wanted = wanted.clone();
            let left_out = take_out(&mut wanted, &facts);
            let is_deleted =
                |new: &Agent| facts.deleted.contains(&Removable::Agent(new.id.clone()));
            let agents = agents.iter().filter(|entry| !is_deleted(&entry.new));
            let mut applying = Applying::default();
            applying.agents(tx, agents, &ai_types)?;
            applying.projects(tx, &wanted.projects)?;
            applying.tasks(tx, &wanted.tasks)?;
            applying.check_archived(tx)?;
            if !applying.problems.is_empty() {
                restore_places(&mut applying.problems, &left_out);
                return Err(ApplyError::Problems(applying.problems));
            }
            inputs.tell_agents(tx, &applying.news, None)?;
            add_warnings(&mut applying.applied, left_out);
            Ok(applying.applied)
        });
        applied.await
    }

    fn agent_entry(&self, entry: &WantedAgent) -> AgentEntry {
        let WantedAgent { id, name, ai_type, system_prompt, passkey, status } = entry.clone();
        let edit = AgentEdit {
            name: Some(name),
            ai_type: Some(ai_type),
            system_prompt: Some(system_prompt),
            passkey,
            status: Some(status),
            ..AgentEdit::default()
        };
        AgentEntry { new: self.new_agent(id), edit, salt: self.core.world.new_salt() }
    }
}

// An entry with a problem is written all the same, as far as it is right. Then entries that name it
// have no problem because of it. Nothing of a manifest with a problem is committed.
impl Applying {
    fn agents<'a>(
        &mut self,
        tx: &mut Transaction<'_>,
        entries: impl Iterator<Item = &'a AgentEntry>,
        ai_types: &AiTypes,
    ) -> Result<(), StoreError> {
        for AgentEntry { new, edit, salt } in entries {
            let of = Removable::Agent(new.id.clone());
            if !self.is_first(&of) {
                continue;
            }
            let before = agents::get(tx, &new.id)?;
            let after = edit.apply(before.clone().unwrap_or_else(|| new.clone()), *salt);
            let checked =
                after.and_then(|after| ai_types.check(before.as_ref(), &after).map(|()| after));
            match checked {
                Ok(after) => {
                    if after.is_archived() && !before.as_ref().is_some_and(Agent::is_archived) {
                        self.to_archive.push(of.clone());
                    }
                    self.news.extend(write_agent(tx, before.as_ref(), &after)?);
                    self.note(&of, applied_as(before.as_ref(), &after));
                }
                Err(refusal) => {
                    self.complain(&of, field_of(&refusal), refusal.to_string());
                    if before.is_none() {
                        write_agent(tx, None, new)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn projects(
        &mut self,
        tx: &mut Transaction<'_>,
        entries: &[WantedProject],
    ) -> Result<(), StoreError> {
        // Lists in the order of creation keep the order of the file.
        let now = tx.now();
        let moments = (0..).map(|n| now + Duration::from_millis(n));
        for (entry, created_at) in entries.iter().zip(moments) {
            let of = Removable::Project(entry.id.clone());
            if !self.is_first(&of) {
                continue;
            }
            let before = projects::get(tx, &entry.id)?;
            let edit = edit_of(entry);
            let base = before.clone().unwrap_or_else(|| Project::new(entry.id.clone(), created_at));
            let after = edit.apply(base.clone()).unwrap_or_else(|refusal| {
                let field = field_of(&refusal).or(Some(("working_directory", None)));
                self.complain(&of, field, refusal.to_string());
                base
            });
            let after = match &before {
                Some(_) => after,
                None => Project { key: keys::claim_suggested(tx, &after)?, ..after },
            };
            if after.is_archived() && !before.as_ref().is_some_and(Project::is_archived) {
                self.to_archive.push(of.clone());
            }
            self.news.extend(write_project(tx, before.as_ref(), &after)?);
            let is_assigned = self.assign(tx, entry)?;
            let what = match applied_as(before.as_ref(), &after) {
                AppliedAs::Unchanged if is_assigned => AppliedAs::Updated,
                what => what,
            };
            self.note(&of, what);
        }
        Ok(())
    }

    /// Complains about each agent or project that is to be archived and has not ended.
    fn check_archived(&mut self, tx: &mut Transaction<'_>) -> Result<(), StoreError> {
        for of in std::mem::take(&mut self.to_archive) {
            match check_archive(tx, &of) {
                Ok(()) => {}
                Err(ServiceError::Store(error)) => return Err(error),
                Err(refused) => {
                    self.complain(&of, Some(("status", None)), refused.to_string());
                }
            }
        }
        Ok(())
    }

    /// Assigns the agents of an entry. Returns whether that changes anything.
    fn assign(
        &mut self,
        tx: &mut Transaction<'_>,
        entry: &WantedProject,
    ) -> Result<bool, StoreError> {
        let of = Removable::Project(entry.id.clone());
        let mut is_changed = false;
        for (index, agent) in entry.agents.iter().enumerate() {
            let assignment = Assignment { project: entry.id.clone(), agent: agent.clone() };
            if agents::get(tx, agent)?.is_none() {
                let field = Some(("agents", Some(index)));
                let problem = format!("there is no agent `{agent}`");
                self.complain(&of, field, problem);
            } else if !assignments::exists(tx, &assignment)? {
                assignments::add(tx, &assignment)?;
                is_changed = true;
            }
        }
        Ok(is_changed)
    }

    fn tasks(
        &mut self,
        tx: &mut Transaction<'_>,
        entries: &[WantedTask],
    ) -> Result<(), ServiceError> {
        let mut changed = Vec::new();
        for entry in entries {
            let of = Removable::Task(entry.id.clone());
            if !self.is_first(&of) {
                continue;
            }
            let before = tasks::get(tx, &entry.id)?;
            let short_id = match &before {
                Some(task) => task.short_id.clone(),
                None => project_keys::take_short_id(tx, &entry.project)?
                    .unwrap_or_else(ShortId::of_no_project),
            };
            let after = match to_task(entry, before.as_ref(), short_id, tx.now()) {
                Ok(after) => after,
                Err(refusal) => {
                    self.complain(&of, field_of(&refusal), refusal.to_string());
                    continue;
                }
            };
            let what = applied_as(before.as_ref(), &after);
            self.note(&of, what);
            if what != AppliedAs::Unchanged {
                changed.push((before, after));
            }
        }
        // A task may name a later one, so the checks need all tasks in their wanted state.
        let wishes: Vec<Wish<'_>> =
            changed.iter().map(|(before, task)| (before.as_ref(), task)).collect();
        let mut graph = graph_around(tx, &wishes)?;
        for id in changed.iter().flat_map(|(_, task)| &task.dependencies) {
            if graph.find(id).is_none() {
                graph.extend(tasks::get(tx, id)?);
            }
        }
        for (before, task) in &changed {
            let of = Removable::Task(task.id.clone());
            let missing = missing_of(tx, task, &graph)?;
            if !missing.is_empty() {
                for (field, problem) in missing {
                    self.complain(&of, Some(field), problem);
                }
                continue;
            }
            match change(before.as_ref(), task, Actor::Person, &graph, tx.now()) {
                Ok(of_task) => {
                    if let (None, Some(new)) = (before, of_task.first()) {
                        release_for(tx, new)?;
                    }
                    self.news.extend(write_changed(tx, before.as_ref(), of_task)?);
                }
                Err(refusal) => {
                    let field = field_of_task(&refusal, before.as_ref(), task);
                    self.complain(&of, Some(field), refusal.to_string());
                }
            }
        }
        Ok(())
    }

    /// Returns whether this is the first entry of a thing. Complains about each further one.
    fn is_first(&mut self, of: &Removable) -> bool {
        let is_first = self.seen.insert(of.clone());
        if !is_first {
            self.complain(of, None, format!("the {} is listed twice", of.kind()));
        }
        is_first
    }

    fn note(&mut self, of: &Removable, what: AppliedAs) {
        self.applied.push(Applied::new(of, what, Vec::new()));
    }

    fn complain(&mut self, of: &Removable, field: Option<Field>, message: String) {
        self.problems.push(EntryProblem { of: of.clone(), field, message });
    }
}

// The entries are taken apart by all their fields, so that the compiler names each new one.

/// Returns the edit of a project that exists or is new. Its agents are assigned apart from it.
fn edit_of(entry: &WantedProject) -> ProjectEdit {
    let WantedProject {
        id: _,
        name,
        working_directory,
        agents: _,
        status,
        workspace,
        workspace_base,
        workspace_branch,
        merge_hooks,
    } = entry.clone();
    ProjectEdit {
        name: Some(name),
        working_directory: Some(working_directory),
        status: Some(status),
        // A manifest without the key leaves a project as it is.
        workspace,
        workspace_base,
        workspace_branch,
        merge_hooks,
        ..ProjectEdit::default()
    }
}

/// Returns the task as it will be. The manifest decides about the status of new tasks only.
fn to_task(
    entry: &WantedTask,
    before: Option<&Task>,
    short_id: ShortId,
    now: Timestamp,
) -> Result<Task, Refusal> {
    let WantedTask {
        id,
        project,
        title,
        description,
        assignee,
        status,
        parent,
        dependencies,
        priority,
    } = entry.clone();
    let task = if let Some(before) = before {
        Task { project, ..before.clone() }
    } else {
        let new = NewTask { status, ..NewTask::new(project, title.clone()) };
        new.to_task(id, short_id, now)?
    };
    let edit = TaskEdit {
        title: Some(title),
        description: Some(description),
        priority: Some(priority),
        assignee: Some(assignee),
        parent: Some(parent),
        dependencies: Some(dependencies),
        ..TaskEdit::default()
    };
    edit.apply(&task)
}

/// Returns the key whose text a refusal is about.
const fn field_of(refusal: &Refusal) -> Option<Field> {
    match refusal {
        Refusal::TooLong { text, .. } | Refusal::NotOneLine { text, .. } => Some((text, None)),
        Refusal::UnknownAiType { .. } => Some(("ai_type", None)),
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

/// Returns a problem for each object that a task names and that does not exist.
fn missing_of(
    tx: &mut Read<'_>,
    task: &Task,
    graph: &TaskGraph,
) -> Result<Vec<(Field, String)>, StoreError> {
    let mut missing = Vec::new();
    if projects::get(tx, &task.project)?.is_none() {
        missing.push((("project", None), format!("there is no project `{}`", task.project)));
    } else if let Some(agent) = &task.assignee {
        let assignment = Assignment { project: task.project.clone(), agent: agent.clone() };
        if agents::get(tx, agent)?.is_none() {
            missing.push((("assignee", None), format!("there is no agent `{agent}`")));
        } else if !assignments::exists(tx, &assignment)? {
            let message = format!("agent `{agent}` is not assigned to project `{}`", task.project);
            missing.push((("assignee", None), message));
        }
    }
    if let Some(parent) = task.parent.as_ref().filter(|parent| graph.find(parent).is_none()) {
        missing.push((("parent", None), format!("there is no task `{parent}`")));
    }
    for (index, dependency) in task.dependencies.iter().enumerate() {
        if graph.find(dependency).is_none() {
            let message = format!("there is no task `{dependency}`");
            missing.push((("dependencies", Some(index)), message));
        }
    }
    Ok(missing)
}

/// Returns the key of a task's entry that a refusal is about.
fn field_of_task(refusal: &Refusal, before: Option<&Task>, task: &Task) -> Field {
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
