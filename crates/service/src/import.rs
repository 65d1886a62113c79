//! `import`: the objects of a file, in one transaction. Objects that exist are left as they are.
//! Nothing starts unless it is asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use domain::agent::{AgentStatus, AiTypes};
use domain::export::check::{Starts, check, imported};
use domain::export::problems::Problems;
use domain::export::read::{ExportFile, Numbered, ProjectEntry};
use domain::export::{Counts, MAX_NUMBER};
use domain::id::{AgentId, ProjectId, TaskId};
use domain::task::begun;
use domain::{
    Agent, Assignment, Comment, FileOwner, InstanceKey, Project, ProjectKey, Purpose, Refusal,
    Removable, ShortId, StartHistory, Task, TaskGraph, TaskStatus,
};
use store::rows::project_keys::{self, KeyRecord};
use store::rows::{
    Transaction, agents, comments, deletions, imports, messages, projects, start_histories, tasks,
};
use store::{MessageFilter, StoreError};

use super::removals::refuse_id;
use super::tasks::release_for;
use super::tasks::rules::parts_of;
use super::{Service, ServiceError};

/// The choices of an import.
#[derive(Debug, Clone, Copy)]
pub struct ImportWish {
    pub starts: Starts,
    /// The handling of objects that exist.
    pub existing: Existing,
    pub mode: ImportMode,
}

/// The handling of objects whose ids exist already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    Refuse,
    /// They stay as they are, and the other objects of the file are added.
    Leave,
}

/// Whether an import changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportMode {
    Import,
    /// Everything is checked, and nothing is stored.
    DryRun,
}

/// The result of an import, or of a dry run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportReport {
    /// Nothing was changed.
    pub dry_run: bool,
    /// The numbers of new objects.
    pub added: Counts,
    /// The numbers of objects that existed and were left as they are.
    pub left: Counts,
    /// The new tasks that are in progress or begin after their dependencies.
    pub n_started: u64,
    /// The new tasks that were in progress, and are todo now.
    pub n_set_todo: u64,
    /// The working directories of new projects.
    pub directories: Vec<PathBuf>,
    /// The users that new agents run as, if that is not the user of the daemon.
    pub users: Vec<ImportUser>,
    /// The new agents that have no passkey.
    pub without_passkey: Vec<AgentId>,
}

/// A user of this machine that agents run as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportUser {
    pub user: String,
    /// The kinds of these agents.
    pub ai_types: BTreeSet<String>,
}

/// The reason why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("the file has {} problem(s)", .0.told.len() + .0.n_more)]
    Problems(Problems),
    #[error(transparent)]
    Service(#[from] ServiceError),
}

/// The reason why the transaction of an import is rolled back.
enum Undone {
    DryRun(Box<ImportReport>),
    Failed(ImportError),
}

impl From<StoreError> for Undone {
    fn from(error: StoreError) -> Self {
        Self::Failed(ImportError::Service(error.into()))
    }
}

impl Service {
    /// Imports all objects of a file or none.
    ///
    /// # Errors
    /// `Problems`: objects that exist, unknown references, keys and numbers of other projects,
    /// tasks that wait for themselves, an `ai_type` that is not startable.
    pub async fn import(
        &self,
        file: ExportFile,
        wish: ImportWish,
    ) -> Result<ImportReport, ImportError> {
        let new_agents: Vec<Numbered<Agent>> =
            file.agents.iter().map(|agent| self.own(agent)).collect();
        let ai_types = self.catalog.ai_types();
        let settings = self.core.settings();
        let file = Arc::new(file);
        let done = self.core.try_write(move |tx| {
            let mut importing = Importing::new(wish, &ai_types);
            importing.agents(tx, &new_agents)?;
            importing.projects(tx, &file.projects)?;
            importing.tasks(tx, &file.tasks)?;
            importing.comments(tx, &file.comments)?;
            importing.chats(tx, &file)?;
            if !importing.problems.is_empty() {
                return Err(Undone::Failed(ImportError::Problems(importing.problems.sorted())));
            }
            let report = importing.report(|ai_type| settings.file_owners.of(ai_type));
            if wish.mode == ImportMode::DryRun {
                return Err(Undone::DryRun(Box::new(report)));
            }
            imports::finish(tx, &file.header, report.added, report.n_started)?;
            Ok(report)
        });
        match done.await {
            Ok(report) => Ok(report),
            Err(Undone::DryRun(report)) => Ok(*report),
            Err(Undone::Failed(error)) => Err(error),
        }
    }

    /// Returns an agent of a file with its passkey of the configuration.
    fn own(&self, agent: &Numbered<Agent>) -> Numbered<Agent> {
        let passkey = self.catalog.new_agent(agent.object.id.clone()).passkey;
        Numbered { line: agent.line, object: Agent { passkey, ..agent.object.clone() } }
    }
}

/// The import of a file so far. Objects without a problem are written at once. If any has one, the
/// transaction is rolled back.
struct Importing<'a> {
    wish: ImportWish,
    ai_types: &'a AiTypes,
    problems: Problems,
    added: Counts,
    left: Counts,
    n_started: u64,
    n_set_todo: u64,
    directories: BTreeSet<PathBuf>,
    new_agents: Vec<Agent>,
    new_projects: BTreeSet<ProjectId>,
    /// Agents that the store has, those of the file included.
    known_agents: BTreeMap<AgentId, bool>,
    /// Projects that the store has, those of the file included.
    known_projects: BTreeMap<ProjectId, Option<Project>>,
}

impl<'a> Importing<'a> {
    fn new(wish: ImportWish, ai_types: &'a AiTypes) -> Self {
        Self {
            wish,
            ai_types,
            problems: Problems::default(),
            added: Counts::default(),
            left: Counts::default(),
            n_started: 0,
            n_set_todo: 0,
            directories: BTreeSet::new(),
            new_agents: Vec::new(),
            new_projects: BTreeSet::new(),
            known_agents: BTreeMap::new(),
            known_projects: BTreeMap::new(),
        }
    }

    /// Notes an object that exists. Returns whether it is left as it is.
    fn exists(&mut self, line: usize, what: &str, id: &str) -> bool {
        if self.wish.existing == Existing::Refuse {
            let message = format!("{what} `{id}` exists already; --merge leaves it as it is");
            self.problems.add(line, message);
        }
        self.wish.existing == Existing::Leave
    }

    /// Returns whether a thing with this id was deleted here, which is then a problem of the line.
    fn was_deleted(
        &mut self,
        tx: &mut Transaction<'_>,
        line: usize,
        of: &Removable,
    ) -> Result<bool, StoreError> {
        let refusal = refuse_id(tx, of)?;
        if let Some(refusal) = &refusal {
            self.problems.add(line, format!("{refusal}; remove it from the file"));
        }
        Ok(refusal.is_some())
    }

    fn agents(
        &mut self,
        tx: &mut Transaction<'_>,
        entries: &[Numbered<Agent>],
    ) -> Result<(), StoreError> {
        for Numbered { line, object: agent } in entries {
            self.known_agents.insert(agent.id.clone(), true);
            if agents::get(tx, &agent.id)?.is_some() {
                self.left.agents += u64::from(self.exists(*line, "agent", agent.id.as_str()));
                continue;
            }
            if self.was_deleted(tx, *line, &Removable::Agent(agent.id.clone()))? {
                continue;
            }
            // An agent that does not start may wait for the provider that is missing.
            if agent.status == AgentStatus::Active
                && let Err(refusal) = self.ai_types.check(None, agent)
            {
                self.problems.add(*line, format!("agent `{}`: {refusal}", agent.id));
                continue;
            }
            imports::add_agent(tx, agent)?;
            self.added.agents += 1;
            self.new_agents.push(agent.clone());
        }
        Ok(())
    }

    fn projects(
        &mut self,
        tx: &mut Transaction<'_>,
        entries: &[Numbered<ProjectEntry>],
    ) -> Result<(), StoreError> {
        for Numbered { line, object: entry } in entries {
            let project = &entry.project;
            if let Some(existing) = projects::get(tx, &project.id)? {
                self.left.projects += u64::from(self.exists(*line, "project", project.id.as_str()));
                self.known_projects.insert(project.id.clone(), Some(existing));
                continue;
            }
            self.known_projects.insert(project.id.clone(), Some(project.clone()));
            self.new_projects.insert(project.id.clone());
            if self.was_deleted(tx, *line, &Removable::Project(project.id.clone()))?
                || !self.claims_keys(tx, *line, entry)?
            {
                continue;
            }
            imports::add_project(tx, project)?;
            for agent in &entry.agents {
                if self.knows_agent(tx, agent)? {
                    let project = project.id.clone();
                    let agent = agent.clone();
                    imports::add_assignment(tx, &Assignment { project, agent })?;
                } else {
                    self.problems.add(
                        *line,
                        format!(
                            "project `{}`: `agents` names `{agent}`, which is neither in the file \
                             nor here",
                            project.id
                        ),
                    );
                }
            }
            self.added.projects += 1;
            self.directories.insert(project.working_directory.clone());
        }
        Ok(())
    }

    /// Claims the keys of a new project. Returns whether that is possible: a key that another
    /// project has or had is refused, because its short ids are those of that project's tasks.
    fn claims_keys(
        &mut self,
        tx: &mut Transaction<'_>,
        line: usize,
        entry: &ProjectEntry,
    ) -> Result<bool, StoreError> {
        let ProjectEntry { project, former_keys, next_number, .. } = entry;
        let mut is_possible = true;
        for key in std::iter::once(&project.key).chain(former_keys) {
            let known = project_keys::get(tx, key)?;
            if let Some(other) = known.as_ref().filter(|known| known.project != project.id) {
                self.problems.add(line, key_taken(project, key, &other.project));
                is_possible = false;
                continue;
            }
            let next_number = known.map_or(1, |known| known.next_number).max(*next_number);
            let record = KeyRecord { key: key.clone(), project: project.id.clone(), next_number };
            project_keys::put(tx, &record)?;
        }
        Ok(is_possible)
    }

    fn knows_agent(&mut self, tx: &mut Transaction<'_>, id: &AgentId) -> Result<bool, StoreError> {
        if let Some(is_known) = self.known_agents.get(id) {
            return Ok(*is_known);
        }
        let is_known = agents::get(tx, id)?.is_some();
        self.known_agents.insert(id.clone(), is_known);
        Ok(is_known)
    }

    fn find_project(
        &mut self,
        tx: &mut Transaction<'_>,
        id: &ProjectId,
    ) -> Result<Option<Project>, StoreError> {
        if let Some(known) = self.known_projects.get(id) {
            return Ok(known.clone());
        }
        let found = projects::get(tx, id)?;
        self.known_projects.insert(id.clone(), found.clone());
        Ok(found)
    }

    fn tasks(
        &mut self,
        tx: &mut Transaction<'_>,
        entries: &[Numbered<Task>],
    ) -> Result<(), StoreError> {
        let mut new = Vec::new();
        let mut greatest: BTreeMap<ProjectId, (ProjectKey, u32)> = BTreeMap::new();
        for Numbered { line, object: task } in entries {
            if tasks::get(tx, &task.id)?.is_some() {
                self.left.tasks += u64::from(self.exists(*line, "task", task.id.as_str()));
                continue;
            }
            if self.was_deleted(tx, *line, &Removable::Task(task.id.clone()))? {
                continue;
            }
            let Some(project) = self.find_project(tx, &task.project)? else {
                self.problems.add(*line, missing("task", &task.id, "project", &task.project));
                continue;
            };
            if let Some(assignee) = &task.assignee
                && !self.knows_agent(tx, assignee)?
            {
                self.problems.add(*line, missing("task", &task.id, "assignee", assignee));
            }
            let short_id = ShortId { key: project.key.clone(), number: task.short_id.number };
            let is_new = self.new_projects.contains(&project.id);
            if !is_new && let Some(other) = tasks::find_short(tx, &short_id)? {
                let message = format!(
                    "task `{}` has the short id {short_id}, which is that of task `{}` here",
                    task.id, other.id
                );
                self.problems.add(*line, message);
            }
            // The project may have had another key when it was deleted.
            for record in project_keys::list_of_project(tx, &project.id)? {
                let former = ShortId { key: record.key, ..short_id.clone() };
                if let Some(other) = deletions::find_short(tx, &former)? {
                    let message = format!(
                        "task `{}` has the short id {former}, which the deleted task `{other}` had",
                        task.id
                    );
                    self.problems.add(*line, message);
                }
            }
            let of_project = greatest.entry(project.id).or_insert((project.key, 0));
            of_project.1 = of_project.1.max(short_id.number);
            self.n_set_todo += u64::from(
                task.status == TaskStatus::InProgress && self.wish.starts == Starts::Nothing,
            );
            let task = Task { short_id, ..task.clone() };
            new.push(Numbered { line: *line, object: imported(task, self.wish.starts, tx.now()) });
        }
        let graph = graph_of(tx, &new)?;
        check(&new, &graph, &mut self.problems);
        if !self.problems.is_empty() {
            return Ok(());
        }
        for Numbered { object: task, .. } in &new {
            let begun = begun(task, &graph, tx.now());
            let task = begun.as_ref().unwrap_or(task);
            imports::add_task(tx, task)?;
            release_for(tx, task)?;
            let starts = task.status == TaskStatus::InProgress || task.start_wanted_since.is_some();
            self.n_started += u64::from(starts);
            self.added.tasks += 1;
        }
        // The counter of a project never goes back.
        for (key, number) in greatest.into_values() {
            if let Some(known) = project_keys::get(tx, &key)? {
                let next_number = known.next_number.max(number.min(MAX_NUMBER) + 1);
                project_keys::put(tx, &KeyRecord { next_number, ..known })?;
            }
        }
        Ok(())
    }

    fn comments(
        &mut self,
        tx: &mut Transaction<'_>,
        entries: &[Numbered<Comment>],
    ) -> Result<(), StoreError> {
        // If the file has no problem so far, all its tasks are written.
        if !self.problems.is_empty() {
            return Ok(());
        }
        for Numbered { line, object: comment } in entries {
            if comments::get(tx, &comment.id)?.is_some() {
                let exists = self.exists(*line, "comment", comment.id.as_str());
                self.left.comments += u64::from(exists);
            } else if tasks::get(tx, &comment.task)?.is_none() {
                self.problems.add(*line, missing("comment", &comment.id, "task", &comment.task));
            } else {
                imports::add_comment(tx, comment)?;
                self.added.comments += 1;
            }
        }
        Ok(())
    }

    fn chats(&mut self, tx: &mut Transaction<'_>, file: &ExportFile) -> Result<(), StoreError> {
        let mut chats: BTreeMap<Assignment, Vec<usize>> = BTreeMap::new();
        for (index, Numbered { object: entry, .. }) in file.messages.iter().enumerate() {
            let project = entry.message.project.clone();
            let agent = entry.message.agent.clone();
            chats.entry(Assignment { project, agent }).or_default().push(index);
        }
        for (chat, indices) in chats {
            let entries = indices.iter().map(|index| &file.messages[*index]);
            let line = file.messages[indices[0]].line;
            if self.find_project(tx, &chat.project)?.is_none() {
                self.problems.add(line, missing("chat", &chat, "project", &chat.project));
                continue;
            }
            if !self.knows_agent(tx, &chat.agent)? {
                self.problems.add(line, missing("chat", &chat, "agent", &chat.agent));
                continue;
            }
            // Messages are in the order in which they are added, so that older ones can't be added
            // to a chat.
            let first = MessageFilter::oldest(chat.agent.clone(), chat.project.clone(), 1);
            if !messages::list(tx, &first)?.is_empty() {
                if self.exists(line, "chat", &chat.to_string()) {
                    self.left.messages += entries.count() as u64;
                }
                continue;
            }
            let mut last_read = None;
            let mut is_all_read = true;
            for Numbered { line, object: entry } in entries {
                let message = &entry.message;
                if messages::get(tx, &message.id)?.is_some() {
                    self.problems.add(
                        *line,
                        format!("message `{}` exists already, in another chat", message.id),
                    );
                    continue;
                }
                imports::add_message(tx, message)?;
                self.added.messages += 1;
                is_all_read &= !entry.is_unread;
                last_read = is_all_read.then_some(&message.id).or(last_read);
            }
            if let Some(id) = last_read
                && let Some(message) = messages::get(tx, id)?
            {
                let key = InstanceKey::new(chat.agent, chat.project, Purpose::Chat);
                let answered = |record: StartHistory| record.answered(message.seq);
                start_histories::change(tx, &key, answered)?;
            }
        }
        Ok(())
    }

    fn report(self, owner_of: impl Fn(&str) -> FileOwner) -> ImportReport {
        let mut users: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for agent in &self.new_agents {
            let user = match owner_of(&agent.ai_type) {
                FileOwner::Daemon => continue,
                FileOwner::User(run_as) => run_as.name,
                FileOwner::Missing { name } => name,
            };
            users.entry(user).or_default().insert(agent.ai_type.clone());
        }
        let without_passkey = self.new_agents.into_iter().filter(|agent| agent.passkey.is_none());
        ImportReport {
            dry_run: self.wish.mode == ImportMode::DryRun,
            added: self.added,
            left: self.left,
            n_started: self.n_started,
            n_set_todo: self.n_set_todo,
            directories: self.directories.into_iter().collect(),
            users: users
                .into_iter()
                .map(|(user, ai_types)| ImportUser { user, ai_types })
                .collect(),
            without_passkey: without_passkey.map(|agent| agent.id).collect(),
        }
    }
}

/// Returns new tasks with the tasks of the store that they refer to, and with what these wait for
/// and are part of. No task of the store refers to a new one.
fn graph_of(tx: &mut Transaction<'_>, new: &[Numbered<Task>]) -> Result<TaskGraph, StoreError> {
    let mut graph: TaskGraph = new.iter().map(|task| task.object.clone()).collect();
    let named = |task: &Task| -> Vec<TaskId> {
        task.parent.iter().chain(&task.dependencies).cloned().collect()
    };
    let mut open: Vec<TaskId> = new.iter().flat_map(|task| named(&task.object)).collect();
    while let Some(id) = open.pop() {
        if graph.find(&id).is_some() {
            continue;
        }
        let Some(task) = tasks::get(tx, &id)? else { continue };
        open.extend(named(&task));
        graph.insert(task);
        open.extend(parts_of(tx, &id)?.into_iter().map(|part| part.id));
    }
    Ok(graph)
}

fn missing(
    what: &str,
    id: &impl std::fmt::Display,
    field: &str,
    named: &impl std::fmt::Display,
) -> String {
    format!("{what} `{id}`: `{field}` names `{named}`, which is neither in the file nor here")
}

fn key_taken(project: &Project, key: &ProjectKey, other: &ProjectId) -> String {
    let refusal = Refusal::KeyTaken { key: key.clone(), project: other.clone() };
    format!(
        "project `{}`: {refusal}; give the project another `key` in this line of the file, and \
         leave {key} out of its `former_keys`",
        project.id
    )
}
