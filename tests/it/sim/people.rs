//! The actions of people: they set up a fleet, give it work, and change their minds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use domain::{AgentId, InstanceKey, MessageId, ProjectId, Purpose, TaskId, TaskStatus};
use service::{AgentEdit, Force, NewTask, ProjectEdit, ServiceError, StopTarget, TaskEdit};

use super::Sim;
use super::script::{Caps, Deed, Fleet};
use super::world::pass;

fn agent_id(n: usize) -> AgentId {
    format!("agt_{n}").parse().unwrap()
}

fn project_id(n: usize) -> ProjectId {
    format!("prj_{n}").parse().unwrap()
}

fn task_id(n: usize) -> TaskId {
    format!("tsk_{n}").parse().unwrap()
}

impl Fleet {
    /// A fleet with one agent, project and task, and no coordinator.
    pub const SMALL: Self = Self {
        n_agents: 1,
        n_projects: 1,
        n_tasks: 1,
        max_concurrent: Vec::new(),
        chat_reserve: 0,
        caps: Caps { per_project: None, per_agent: None, per_provider: None },
        n_providers: 1,
        has_local: true,
    };

    /// Returns the types with which the agents are started.
    fn ai_types(&self) -> BTreeMap<AgentId, &'static str> {
        (0..self.n_agents)
            .map(|n| (agent_id(n), ["claude", "codex"][n % self.n_providers]))
            .collect()
    }

    pub fn keys(&self) -> Vec<InstanceKey> {
        let pairs = (0..self.n_agents)
            .flat_map(|agent| (0..self.n_projects).map(move |project| (agent, project)));
        let purposes = [Purpose::Task, Purpose::Chat];
        let keys = pairs.flat_map(|(agent, project)| {
            purposes.map(|purpose| InstanceKey::new(agent_id(agent), project_id(project), purpose))
        });
        keys.collect()
    }
}

/// Creates agents, projects and work.
pub async fn found(sim: &Arc<Sim>, fleet: &Fleet) {
    let service = sim.service();
    sim.set_keys(fleet.keys());
    for (agent, ai_type) in fleet.ai_types() {
        let edit = AgentEdit { ai_type: Some(ai_type.to_owned()), ..AgentEdit::default() };
        service.catalog.add_agent(Some(agent.clone()), &edit).await.unwrap();
        sim.set_ai_type(agent, ai_type);
    }
    for n in 0..fleet.n_projects {
        let edit = ProjectEdit {
            working_directory: Some("/work".into()),
            assign: (0..fleet.n_agents).map(agent_id).collect(),
            ..ProjectEdit::default()
        };
        service.catalog.add_project(Some(project_id(n)), &edit).await.unwrap();
    }
    for n in 0..fleet.n_tasks {
        let task = NewTask {
            id: Some(task_id(n)),
            status: TaskStatus::InProgress,
            assignee: Some(agent_id(n % fleet.n_agents)),
            ..NewTask::new(project_id(n % fleet.n_projects), "a title")
        };
        service.tasks.add(&task).await.unwrap();
    }
}

/// Does it. Returns whether pairs may start again by it. A refused action is not repeated. A failed
/// write is.
pub async fn do_it(sim: &Arc<Sim>, fleet: &Fleet, deed: &Deed) -> bool {
    let message = matches!(deed, Deed::Say { .. }).then(|| sim.talk.next_message());
    let mut has_released = false;
    loop {
        let done = attempt(sim, fleet, deed, message.as_ref(), &mut has_released).await;
        match done {
            Ok(()) => {}
            Err(ServiceError::Store(error)) if !sim.health.is_settled() => {
                sim.chronicle.note(|| format!("a person is told: {error}; tries again"));
                pass(Duration::from_secs(1)).await;
                continue;
            }
            Err(ServiceError::Refused(refusal)) => {
                sim.chronicle.note(|| format!("refused: {refusal}"));
            }
            Err(error) => sim.chronicle.violation(format!("a person was told: {error}")),
        }
        return has_released;
    }
}

async fn attempt(
    sim: &Arc<Sim>,
    fleet: &Fleet,
    deed: &Deed,
    message: Option<&MessageId>,
    has_released: &mut bool,
) -> Result<(), ServiceError> {
    let service = sim.service();
    let agent = |n: &usize| agent_id(n % fleet.n_agents);
    let project = |n: &usize| project_id(n % fleet.n_projects);
    let task = |n: &usize| task_id(n % fleet.n_tasks);
    let pair = |n: &usize, m: &usize| StopTarget::Pair {
        agent: agent(n),
        project: project(m),
        purpose: None,
    };
    match deed {
        Deed::SetTask { task: n, status } => {
            let edit = |status| TaskEdit { status: Some(status), ..TaskEdit::default() };
            if *status == TaskStatus::InProgress {
                *has_released = true;
                // A task that is done or cancelled is put back first.
                let _ = service.tasks.set(&task(n), &edit(TaskStatus::Todo)).await;
            }
            service.tasks.set(&task(n), &edit(*status)).await.map(|_| ())
        }
        Deed::GiveTask { task: n, agent: to } => {
            let edit = TaskEdit { assignee: Some(Some(agent(to))), ..TaskEdit::default() };
            service.tasks.set(&task(n), &edit).await.map(|_| ())
        }
        Deed::Assign { agent: n, project: to } => {
            let edit = ProjectEdit { assign: vec![agent(n)], ..ProjectEdit::default() };
            service.catalog.set_project(&project(to), &edit).await
        }
        Deed::Unassign { agent: n, project: from } => {
            let edit = ProjectEdit { unassign: vec![agent(n)], ..ProjectEdit::default() };
            service.catalog.set_project(&project(from), &edit).await
        }
        Deed::SetProject { project: n, status } => {
            let edit = ProjectEdit { status: Some(*status), ..ProjectEdit::default() };
            service.catalog.set_project(&project(n), &edit).await
        }
        Deed::SetAgent { agent: n, status } => {
            let edit = AgentEdit { status: Some(*status), ..AgentEdit::default() };
            service.catalog.set_agent(&agent(n), &edit).await.map(|_| ())
        }
        Deed::StopPair { agent: n, project: m } => {
            service.launches.stop(&pair(n, m), Force::No).await.map(|_| ())
        }
        Deed::ResumePair { agent: n, project: m } => {
            *has_released = true;
            service.launches.resume(&pair(n, m)).await
        }
        Deed::StopAll => service.launches.stop(&StopTarget::All, Force::No).await.map(|_| ()),
        Deed::ResumeAll => service.launches.resume(&StopTarget::All).await,
        Deed::OpenChat { agent: n, project: m } => {
            *has_released = true;
            let key = InstanceKey::new(agent(n), project(m), Purpose::Chat);
            let opened = service.chats.start(&key.agent, &key.project).await;
            opened.inspect(|()| sim.talk.note_opened(&key))
        }
        Deed::EndChat { agent: n, project: m } => {
            let key = InstanceKey::new(agent(n), project(m), Purpose::Chat);
            let ended = service.chats.end(&key.agent, &key.project).await;
            ended.inspect(|()| sim.talk.note_ended(&key))
        }
        Deed::Say { agent: n, project: m, n_bytes, times } => {
            let key = InstanceKey::new(agent(n), project(m), Purpose::Chat);
            say(sim, &key, message.expect("it has an id"), *n_bytes, *times).await
        }
        _ => Ok(()),
    }
}

/// Says something. A repeated request says it only once.
async fn say(
    sim: &Arc<Sim>,
    key: &InstanceKey,
    id: &MessageId,
    n_bytes: usize,
    times: usize,
) -> Result<(), ServiceError> {
    for _ in 0..times {
        let said = sim
            .service()
            .chats
            .say(&key.agent, &key.project, Some(id), &"x".repeat(n_bytes))
            .await?;
        sim.talk.note_said(key, &said);
    }
    Ok(())
}
