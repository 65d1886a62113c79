//! The requests of older clients in their own form (R-004-30, docs/migration.md), for
//! `mcp::compat`.
//!
//! They come without a project, or in two calls that are one call now. Each ends in the use case
//! that replaced it.

use std::path::PathBuf;

use domain::agent::AgentStatus;
use domain::authentication::Proof;
use domain::compat::{pair_to_enter, pair_to_start};
use domain::id::{AgentId, ExecutionId, ProjectId, TaskId};
use domain::limits;
use domain::session::Presenter;
use domain::start_history::StartReason;
use domain::{Execution, InstanceKey, Purpose, Refusal, Secret, StartFacts, Task, TaskStatus};
use store::rows::{agents, assignments, executions, launches, projects, startable, tasks};
use store::{Read, StoreError};

use super::catalog::active_projects::active_projects;
use super::sessions::authenticate::proof;
use super::sessions::caller::fence;
use super::tasks::ids::full_id_in;
use super::tasks::mine::{bind, in_progress};
use super::{AskedBy, Authenticated, Caller, Report, Service, ServiceError, ShouldStart};

/// An active agent and the active projects it is assigned to.
#[derive(Debug, Clone)]
pub struct ManagedAgent {
    pub id: AgentId,
    pub name: String,
    pub ai_type: String,
    pub projects: Vec<ProjectId>,
}

impl Service {
    /// Returns the active agents, by id.
    pub async fn managed_agents(&self) -> Result<Vec<ManagedAgent>, ServiceError> {
        let read = self.core.read(|tx| Ok((active_projects(tx, None)?, agents::list(tx)?)));
        let (active, agents) = read.await?;
        let works_in = |agent: &AgentId| {
            let projects = active.iter().filter(|project| project.agents.contains(agent));
            projects.map(|project| project.id.clone()).collect()
        };
        let agents = agents.into_iter().filter(|agent| agent.status == AgentStatus::Active);
        Ok(agents
            .map(|agent| ManagedAgent {
                projects: works_in(&agent.id),
                id: agent.id,
                name: agent.name,
                ai_type: agent.ai_type,
            })
            .collect())
    }

    /// Calls [`Launches::should_start`](super::Launches::should_start) for an agent in any project
    /// with work for it. The key is the pair that was decided, if there is one.
    pub async fn should_start_anywhere(
        &self,
        agent: &AgentId,
        by: AskedBy<'_>,
    ) -> Result<(Option<InstanceKey>, ShouldStart), ServiceError> {
        let of = agent.clone();
        let backoff = self.core.settings().backoff;
        let now = self.core.now();
        let read = self.core.read(move |tx| {
            let pair = pair_to_start(pairs_of(tx, &of)?, backoff, now);
            Ok((pair.map(|pair| pair.key), agents::get(tx, &of)?.is_some()))
        });
        let (key, is_known) = read.await?;
        let Some(key) = key else {
            let reason = if is_known { StartReason::NotAssigned } else { StartReason::Unknown };
            return Ok((None, ShouldStart { reason, claim: None }));
        };
        let answer = self.launches.should_start(&key, by).await?;
        Ok((Some(key), answer))
    }

    /// Calls [`Sessions::authenticate`](super::Sessions::authenticate) for an agent that names no
    /// project.
    ///
    /// # Errors
    /// The errors of that call; [`Refusal::NeedsProject`] if several projects are possible.
    pub async fn authenticate_somewhere(
        &self,
        agent_id: &AgentId,
        passkey: &Secret,
        presenter: Presenter<'_>,
    ) -> Result<(ProjectId, Authenticated), ServiceError> {
        self.sessions.check_transport(presenter)?;
        let of = agent_id.clone();
        let shown = passkey.clone();
        let read = self.core.read(move |tx| {
            let ticketed = launches::find_by_ticket(tx, &shown.token_hash())?;
            match proof(agents::get(tx, &of)?.as_ref(), ticketed, &shown) {
                // A caller without a proof learns nothing.
                Proof::None => Err(Refusal::InvalidCredentials.into()),
                Proof::Ticket(launch) => Ok(Some(launch.key.project)),
                Proof::Passkey => {
                    Ok(pair_to_enter(pairs_of(tx, &of)?).map(|pair| pair.key.project))
                }
            }
        });
        let project =
            read.await?.ok_or_else(|| Refusal::NeedsProject { agent: agent_id.clone() })?;
        let opened = self.sessions.authenticate(agent_id, passkey, &project, presenter).await?;
        Ok((project, opened))
    }

    /// Returns the tasks that `caller` may work on, the most urgent first, and its working
    /// directory.
    pub async fn pending_tasks(
        &self,
        caller: &Caller,
    ) -> Result<(PathBuf, Vec<Task>), ServiceError> {
        let key = caller.session.key.clone();
        let (project, mut tasks) = self
            .core
            .read(move |tx| Ok((projects::get(tx, &key.project)?, in_progress(tx, &key)?)))
            .await?;
        tasks.sort_by(|a, b| {
            (b.priority, a.created_at, &a.id).cmp(&(a.priority, b.created_at, &b.id))
        });
        Ok((project.map(|project| project.working_directory).unwrap_or_default(), tasks))
    }

    /// Binds a task to the launch of `caller`, as its first `get_my_task` would. A repeated call
    /// returns the same execution.
    ///
    /// # Errors
    /// `TaskNotFound`, `NotYourTask`; `OtherTaskBegun` if the launch works on another task that is
    /// still in progress.
    pub async fn start_execution(
        &self,
        caller: &Caller,
        id: &TaskId,
    ) -> Result<Execution, ServiceError> {
        let caller = caller.clone();
        let id = id.clone();
        self.core
            .write(move |tx| {
                let launch = fence(tx, &caller)?;
                let key = &caller.session.key;
                let id = full_id_in(tx, &key.project, &id)?;
                let task = tasks::get(tx, &id)?.filter(|task| task.project == key.project);
                let task = task.ok_or_else(|| Refusal::TaskNotFound { task: id.clone() })?;
                if task.assignee.as_ref() != Some(&key.agent) {
                    return Err(Refusal::NotYourTask { task: task.id }.into());
                }
                if task.status != TaskStatus::InProgress {
                    let problem = format!(
                        "Task {} is {}: only what is in progress can be worked on",
                        task.id, task.status
                    );
                    return Err(Refusal::Invalid(problem).into());
                }
                if let Some(current) = launch.task.clone().filter(|current| *current != task.id) {
                    let is_open = tasks::get(tx, &current)?
                        .is_some_and(|task| task.status == TaskStatus::InProgress);
                    if is_open {
                        return Err(Refusal::OtherTaskBegun { task: task.id, current }.into());
                    }
                }
                let executions = executions::list_of_launch(tx, &launch.id)?;
                let earlier = executions.into_iter().find(|execution| execution.task == task.id);
                Ok(bind(tx, launch, &task.id, earlier)?)
            })
            .await
    }

    /// Calls [`Sessions::report`](super::Sessions::report) after a check of the named execution.
    ///
    /// # Errors
    /// The errors of that call, with the name that the summary has here; `ExecutionNotFound` if
    /// `execution` does not belong to this launch.
    pub async fn complete_execution(
        &self,
        caller: &Caller,
        execution: Option<&ExecutionId>,
        report: Report<'_>,
    ) -> Result<&'static str, ServiceError> {
        limits::ERROR_MESSAGE.take_optional(report.summary)?;
        if let Some(id) = execution {
            let launch = caller.launch.id.clone();
            let read = self.core.read(move |tx| Ok(executions::list_of_launch(tx, &launch)?));
            let executions = read.await?;
            if !executions.iter().any(|execution| execution.id == *id) {
                return Err(Refusal::ExecutionNotFound { execution: id.clone() }.into());
            }
        }
        self.sessions.report(caller, report).await
    }
}

/// Returns the facts of an agent for tasks, by project.
fn pairs_of(tx: &mut Read<'_>, agent: &AgentId) -> Result<Vec<StartFacts>, StoreError> {
    let mut assignments = assignments::list(tx)?;
    assignments.retain(|assignment| assignment.agent == *agent);
    let keys = assignments
        .into_iter()
        .map(|assignment| InstanceKey::new(assignment.agent, assignment.project, Purpose::Task));
    keys.map(|key| startable::of_key(tx, &key)).collect()
}
