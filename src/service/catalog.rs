//! What people keep: agents, projects, assignments, tasks. Each call is one commit.

use std::borrow::Cow;
use std::path::PathBuf;

use crate::domain::agent::{AgentStatus, DEFAULT_AI_TYPE, ProjectStatus};
use crate::domain::id::{AgentId, ProjectId, TaskId};
use crate::domain::limits::{self, Limit};
use crate::domain::printable::excerpt;
use crate::domain::secret::PasskeyHash;
use crate::domain::task::{Actor, Surroundings, check_new, check_title};
use crate::domain::{
    Agent, Assignment, Execution, InstanceKey, Priority, Project, Purpose, Refusal, Secret, Task, TaskStatus,
};
use crate::store::{Change, Commit, Expect, TaskFilter};

use super::task_status::{Moved, task_event};
use super::{Service, ServiceError};

/// What is to be different about an agent; `None` stays as it is.
#[derive(Debug, Clone, Default)]
pub struct AgentEdit {
    pub name: Option<String>,
    pub ai_type: Option<String>,
    pub system_prompt: Option<String>,
    pub passkey: Option<Secret>,
    pub status: Option<AgentStatus>,
}

/// What is to be different about a project; `None` stays as it is.
#[derive(Debug, Clone, Default)]
pub struct ProjectEdit {
    pub name: Option<String>,
    pub working_directory: Option<PathBuf>,
    pub status: Option<ProjectStatus>,
    pub assign: Vec<AgentId>,
    pub unassign: Vec<AgentId>,
}

/// A task to be made.
#[derive(Debug, Clone)]
pub struct NewTask {
    pub id: Option<TaskId>,
    pub project: ProjectId,
    pub title: String,
    pub description: String,
    pub status: TaskStatus,
    pub priority: Priority,
    pub assignee: Option<AgentId>,
    pub parent: Option<TaskId>,
    pub dependencies: Vec<TaskId>,
}

/// What is to be different about a task; `None` stays as it is.
#[derive(Debug, Clone, Default)]
pub struct TaskEdit {
    pub title: Option<String>,
    pub description: Option<String>,
    pub priority: Option<Priority>,
    /// `Some(None)` takes the task away from its assignee.
    pub assignee: Option<Option<AgentId>>,
    pub status: Option<TaskStatus>,
    /// Why it is blocked.
    pub reason: Option<String>,
}

/// A task with what hangs on it.
#[derive(Debug, Clone)]
pub struct TaskView {
    pub task: Task,
    pub subtasks: Vec<Task>,
    /// The newest first.
    pub executions: Vec<Execution>,
}

impl Service {
    pub async fn agents(&self) -> Result<Vec<Agent>, ServiceError> {
        Ok(self.store.agents().await?)
    }

    /// # Errors
    /// `AgentNotFound`.
    pub async fn agent(&self, id: &AgentId) -> Result<Agent, ServiceError> {
        let agent = self.store.agent(id).await?;
        Ok(agent.ok_or_else(|| Refusal::AgentNotFound { agent: id.clone() })?)
    }

    /// Makes an agent. Without a passkey it only comes in by launch tickets.
    ///
    /// # Errors
    /// `AlreadyExists`, the refusals of [`limits`].
    pub async fn add_agent(&self, id: Option<AgentId>, edit: &AgentEdit) -> Result<Agent, ServiceError> {
        let id = id.unwrap_or_else(|| self.world.new_id(AgentId::PREFIX));
        let id = &id;
        self.transact(|| async move {
            if self.store.agent(id).await?.is_some() {
                return Err(Refusal::AlreadyExists(format!("agent {id}")).into());
            }
            let agent = self.edited_agent(self.new_agent(id.clone()), edit)?;
            Ok((Commit { expect: Vec::new(), changes: vec![Change::Agent(agent.clone())] }, agent))
        })
        .await
    }

    /// # Errors
    /// `AgentNotFound`, the refusals of [`limits`].
    pub async fn set_agent(&self, id: &AgentId, edit: &AgentEdit) -> Result<Agent, ServiceError> {
        self.transact(|| async move {
            let before = self.agent(id).await?;
            let agent = self.edited_agent(before.clone(), edit)?;
            let mut changes = if agent == before { Vec::new() } else { vec![Change::Agent(agent.clone())] };
            self.tell_agents(&mut changes, None).await?;
            Ok((Commit { expect: Vec::new(), changes }, agent))
        })
        .await
    }

    /// Makes passkeys of the configuration those of their agents; gives the ids that no agent has. Repeating it changes nothing.
    pub async fn learn_passkeys<'a>(
        &self,
        passkeys: impl IntoIterator<Item = (&'a AgentId, &'a Secret)> + Send,
    ) -> Result<Vec<AgentId>, ServiceError> {
        let passkeys: Vec<_> = passkeys.into_iter().collect();
        let mut unknown = Vec::new();
        for (id, passkey) in passkeys {
            let edit = AgentEdit { passkey: Some(passkey.clone()), ..AgentEdit::default() };
            match self.set_agent(id, &edit).await {
                Ok(_) => {}
                Err(ServiceError::Refused(Refusal::AgentNotFound { agent })) => unknown.push(agent),
                Err(error) => return Err(error),
            }
        }
        Ok(unknown)
    }

    /// A random passkey for an agent; shown once, kept as a hash.
    pub fn new_passkey(&self) -> Secret {
        self.world.new_token("")
    }

    pub(super) fn new_agent(&self, id: AgentId) -> Agent {
        Agent {
            name: id.to_string(),
            id,
            ai_type: DEFAULT_AI_TYPE.to_owned(),
            system_prompt: String::new(),
            passkey: None,
            status: AgentStatus::Active,
            created_at: self.now(),
            revision: 0,
        }
    }

    /// # Errors
    /// The refusals of [`limits`].
    pub(super) fn edited_agent(&self, agent: Agent, edit: &AgentEdit) -> Result<Agent, Refusal> {
        limits::PASSKEY.take_optional(edit.passkey.as_ref().map(Secret::reveal))?;
        let passkey = match (&edit.passkey, agent.passkey) {
            (Some(new), Some(old)) if old.is_of(new) => Some(old),
            (Some(new), _) => Some(PasskeyHash::new(new, self.world.new_salt())),
            (None, old) => old,
        };
        Ok(Agent {
            name: edited(limits::NAME, edit.name.as_deref(), agent.name)?,
            ai_type: edited(limits::AI_TYPE, edit.ai_type.as_deref(), agent.ai_type)?,
            system_prompt: edited(limits::SYSTEM_PROMPT, edit.system_prompt.as_deref(), agent.system_prompt)?,
            passkey,
            status: edit.status.unwrap_or(agent.status),
            ..agent
        })
    }

    pub async fn projects(&self) -> Result<Vec<(Project, Vec<AgentId>)>, ServiceError> {
        let assignments = self.store.assignments().await?;
        let projects = self.store.projects().await?;
        Ok(projects.into_iter().map(|project| with_members(project, &assignments)).collect())
    }

    /// # Errors
    /// `ProjectNotFound`.
    pub async fn project(&self, id: &ProjectId) -> Result<(Project, Vec<AgentId>), ServiceError> {
        let project = self.store.project(id).await?;
        let project = project.ok_or_else(|| Refusal::ProjectNotFound { project: id.clone() })?;
        Ok(with_members(project, &self.store.assignments().await?))
    }

    /// Makes a project.
    ///
    /// # Errors
    /// `AlreadyExists`; `Invalid` if the working directory is missing or not absolute; `AgentNotFound`.
    pub async fn add_project(&self, id: Option<ProjectId>, edit: &ProjectEdit) -> Result<ProjectId, ServiceError> {
        let id = id.unwrap_or_else(|| self.world.new_id(ProjectId::PREFIX));
        let id = &id;
        self.transact(|| async move {
            if self.store.project(id).await?.is_some() {
                return Err(Refusal::AlreadyExists(format!("project {id}")).into());
            }
            let project = edited_project(self.new_project(id.clone()), edit)?;
            let mut changes = vec![Change::Project(project)];
            changes.extend(self.assignment_changes(id, edit).await?);
            Ok((Commit { expect: Vec::new(), changes }, id.clone()))
        })
        .await
    }

    /// # Errors
    /// `ProjectNotFound`, `AgentNotFound`, `Invalid` for a working directory that is not absolute.
    pub async fn set_project(&self, id: &ProjectId, edit: &ProjectEdit) -> Result<(), ServiceError> {
        self.transact(|| async move {
            let (before, _) = self.project(id).await?;
            let project = edited_project(before.clone(), edit)?;
            let mut changes = self.assignment_changes(id, edit).await?;
            if project != before {
                changes.push(Change::Project(project));
            }
            self.tell_agents(&mut changes, None).await?;
            Ok((Commit { expect: Vec::new(), changes }, ()))
        })
        .await
    }

    pub(super) fn new_project(&self, id: ProjectId) -> Project {
        Project {
            name: id.to_string(),
            id,
            working_directory: PathBuf::new(),
            status: ProjectStatus::Active,
            created_at: self.now(),
            revision: 0,
        }
    }

    async fn assignment_changes(&self, project: &ProjectId, edit: &ProjectEdit) -> Result<Vec<Change>, ServiceError> {
        let mut changes = Vec::new();
        for agent in &edit.assign {
            self.agent(agent).await?;
            changes.push(Change::Assign(Assignment { project: project.clone(), agent: agent.clone() }));
        }
        for agent in &edit.unassign {
            changes.push(Change::Unassign(Assignment { project: project.clone(), agent: agent.clone() }));
        }
        Ok(changes)
    }

    pub async fn tasks(&self, filter: &TaskFilter) -> Result<Vec<Task>, ServiceError> {
        Ok(self.store.tasks(filter).await?)
    }

    /// # Errors
    /// `TaskNotFound`.
    pub async fn task(&self, id: &TaskId) -> Result<TaskView, ServiceError> {
        let task = self.store.task(id).await?.ok_or_else(|| Refusal::TaskNotFound { task: id.clone() })?;
        let filter = TaskFilter { parent: Some(id.clone()), ..TaskFilter::default() };
        Ok(TaskView {
            task,
            subtasks: self.store.tasks(&filter).await?,
            executions: self.store.executions_of_task(id).await?,
        })
    }

    /// Makes a task; one that is in progress starts its agent.
    ///
    /// # Errors
    /// `AlreadyExists`, the refusals of [`check_new`], and those of what it names.
    pub async fn add_task(&self, new: &NewTask) -> Result<TaskView, ServiceError> {
        let id = new.id.clone().unwrap_or_else(|| self.world.new_id(TaskId::PREFIX));
        let id = &id;
        self.transact(|| async move {
            if self.store.task(id).await?.is_some() {
                return Err(Refusal::AlreadyExists(format!("task {id}")).into());
            }
            self.project(&new.project).await?;
            self.check_assignable(new.assignee.as_ref(), &new.project).await?;
            let now = self.now();
            let task = Task {
                id: id.clone(),
                project: new.project.clone(),
                parent: new.parent.clone(),
                title: new.title.clone(),
                description: limits::DESCRIPTION.take(&new.description)?.into_owned(),
                status: new.status,
                priority: new.priority,
                assignee: new.assignee.clone(),
                dependencies: new.dependencies.clone(),
                blocked_reason: None,
                created_at: now,
                status_since: now,
                revision: 0,
            };
            let mut dependencies = Vec::new();
            for dependency in &new.dependencies {
                dependencies.push(self.task(dependency).await?.task);
            }
            let parent = match &new.parent {
                Some(parent) => Some(self.task(parent).await?.task),
                None => None,
            };
            check_new(&task, Surroundings { parent: parent.as_ref(), subtasks: &[], dependencies: &dependencies })?;
            let expect = dependencies.iter().map(|task| Expect::TaskAt(task.id.clone(), task.revision)).collect();
            let mut changes = vec![Change::Event(task_event(&task, now)), Change::Task(task.clone())];
            // Written as it is: who finishes it at the same time has not seen this subtask and must look again.
            changes.extend(parent.map(Change::Task));
            changes.extend(self.release_for(&task).await?);
            let view = TaskView { task, subtasks: Vec::new(), executions: Vec::new() };
            Ok((Commit { expect, changes }, view))
        })
        .await
    }

    /// Changes a task. Setting it in progress, even when it is that already, lets its pair start again.
    ///
    /// # Errors
    /// `TaskNotFound`, `Invalid` for a title of blanks, the refusals of [`limits`] and of `change_status`, `NotAssigned` for an
    /// assignee outside the project.
    pub async fn set_task(&self, id: &TaskId, edit: &TaskEdit) -> Result<TaskView, ServiceError> {
        self.transact(|| async move {
            let before = self.task(id).await?.task;
            let assignee = edit.assignee.clone().unwrap_or_else(|| before.assignee.clone());
            if assignee != before.assignee {
                self.check_assignable(assignee.as_ref(), &before.project).await?;
            }
            let edited = Task {
                title: edit.title.clone().unwrap_or_else(|| before.title.clone()),
                description: edited(limits::DESCRIPTION, edit.description.as_deref(), before.description.clone())?,
                priority: edit.priority.unwrap_or(before.priority),
                assignee,
                ..before.clone()
            };
            check_title(&edited)?;
            let to = edit.status.unwrap_or(edited.status);
            if to == TaskStatus::InProgress && edited.assignee.is_none() {
                return Err(Refusal::NeedsAssignee { task: id.clone() }.into());
            }
            let reason = limits::REASON.take_optional(edit.reason.as_deref())?;
            let moved = self.move_task(&edited, to, reason.as_deref(), Actor::Person).await?;
            let Moved { task: after, expect, mut changes } = moved;
            if changes.is_empty() && edited != before {
                changes.push(Change::Task(edited));
            }
            if edit.status == Some(TaskStatus::InProgress) {
                changes.extend(self.release_for(&after).await?);
            }
            self.tell_agents(&mut changes, None).await?;
            Ok((Commit { expect, changes }, ()))
        })
        .await?;
        self.task(id).await
    }

    async fn check_assignable(&self, agent: Option<&AgentId>, project: &ProjectId) -> Result<(), ServiceError> {
        let Some(agent) = agent else { return Ok(()) };
        self.agent(agent).await?;
        let (_, members) = self.project(project).await?;
        if members.contains(agent) {
            Ok(())
        } else {
            Err(Refusal::NotAssigned { agent: agent.clone(), project: project.clone() }.into())
        }
    }

    /// A task that a person sets in progress ends the hold and the back-off of its pair, for each purpose.
    pub(super) async fn release_for(&self, task: &Task) -> Result<Vec<Change>, ServiceError> {
        let mut changes = Vec::new();
        if let (TaskStatus::InProgress, Some(agent)) = (task.status, &task.assignee) {
            for purpose in [Purpose::Task, Purpose::Chat] {
                let key = InstanceKey::new(agent.clone(), task.project.clone(), purpose);
                let record = self.store.pair(&key).await?;
                let released = record.clone().released();
                if released != record {
                    changes.push(Change::Pair(released));
                }
            }
        }
        Ok(changes)
    }
}

/// The new text if there is one, else the old one.
fn edited(limit: Limit, new: Option<&str>, old: String) -> Result<String, Refusal> {
    Ok(limit.take_optional(new)?.map_or(old, Cow::into_owned))
}

pub(super) fn edited_project(project: Project, edit: &ProjectEdit) -> Result<Project, Refusal> {
    let working_directory = edit.working_directory.clone().unwrap_or(project.working_directory);
    if !working_directory.is_absolute() {
        let given = working_directory.to_string_lossy();
        let given = excerpt(&given, 80);
        return Err(Refusal::Invalid(format!("the working directory must be an absolute path, not `{given}`")));
    }
    limits::WORKING_DIRECTORY.take(&working_directory.to_string_lossy())?;
    Ok(Project {
        name: edited(limits::NAME, edit.name.as_deref(), project.name)?,
        working_directory,
        status: edit.status.unwrap_or(project.status),
        ..project
    })
}

fn with_members(project: Project, assignments: &[Assignment]) -> (Project, Vec<AgentId>) {
    let members = assignments
        .iter()
        .filter(|assignment| assignment.project == project.id)
        .map(|assignment| assignment.agent.clone())
        .collect();
    (project, members)
}
