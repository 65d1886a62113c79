//! What people do to running agents: stop one pair, stop all, let them run again.

use crate::domain::event::NewEvent;
use crate::domain::id::{AgentId, LaunchId, ProjectId};
use crate::domain::launch::{LaunchEvent, ProcessEnd, StopReason};
use crate::domain::plan::ProcessReport;
use crate::domain::{InstanceKey, Launch, Purpose, Refusal};
use crate::store::{Change, Commit};

use super::{Service, ServiceError, audit};

/// Whom a person wants stopped or resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopTarget {
    /// One agent in one project; for one purpose, or for all.
    Pair {
        agent: AgentId,
        project: ProjectId,
        purpose: Option<Purpose>,
    },
    All,
}

/// What a stop has set in motion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Launches that are being ended; `status` shows when they are gone.
    pub launches: Vec<LaunchId>,
    /// Launches that nobody can end, because their coordinator is not there.
    pub abandoned: Vec<LaunchId>,
}

/// Whether a launch counts as ended although nobody can see its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    No,
    /// A person has made sure that it is gone.
    Yes,
}

impl Service {
    /// Stops the target and keeps it from starting again: a pair is held until it is resumed or a task of it is set in
    /// progress again, `All` pauses every start until `resume`. Repeating it changes nothing.
    ///
    /// # Errors
    /// `AgentNotFound`, `ProjectNotFound`.
    pub async fn stop(&self, target: &StopTarget, force: Force) -> Result<Stopped, ServiceError> {
        let reason = match target {
            StopTarget::Pair { .. } => StopReason::Person,
            StopTarget::All => StopReason::StopAll,
        };
        self.hold(target).await?;
        let open = self.store.open_launches().await?;
        let mut stopped = Stopped::default();
        for launch in open.into_iter().filter(|launch| target.covers(&launch.key)) {
            self.want_stop(&launch.id, reason).await?;
            match launch
                .coordinator
                .filter(|coordinator| !self.coordinators.is_there(coordinator, self.now()))
            {
                Some(_) if force == Force::Yes => {
                    self.force_end(&launch.id).await?;
                    stopped.launches.push(launch.id);
                }
                Some(_) => stopped.abandoned.push(launch.id),
                None => stopped.launches.push(launch.id),
            }
        }
        Ok(stopped)
    }

    /// Ends a launch whose coordinator has not been heard of lately, so that nobody would ever tell its end.
    /// Only because a person insists: its process may live. A coordinator that comes back ends it then.
    async fn force_end(&self, launch: &LaunchId) -> Result<(), ServiceError> {
        tracing::warn!(launch_id = %launch, "ended without its coordinator, which is not there");
        let gone = ProcessReport::Ended { end: ProcessEnd::Lost, at: self.now() };
        self.report_process(launch, &[gone]).await
    }

    async fn hold(&self, target: &StopTarget) -> Result<(), ServiceError> {
        self.transact(|| async move {
            let now = self.now();
            let mut changes = Vec::new();
            match target {
                StopTarget::Pair { agent, project, .. } => {
                    self.check_known(agent, project).await?;
                    for key in target.keys() {
                        let record = self.store.pair(&key).await?;
                        if record.held_since.is_none() {
                            changes.push(Change::Pair(record.held(now)));
                        }
                    }
                }
                StopTarget::All => {
                    if self.store.paused_since().await?.is_none() {
                        changes.push(Change::Pause(Some(now)));
                    }
                }
            }
            if !changes.is_empty() {
                changes.push(Change::Event(self.person_event("person.stop", target)));
            }
            Ok((Commit { expect: Vec::new(), changes }, ()))
        })
        .await
    }

    /// Starts nothing more until `resume`; what runs goes on. Repeating it changes nothing.
    pub async fn pause(&self) -> Result<(), ServiceError> {
        self.transact(|| async move {
            let mut changes = Vec::new();
            if self.store.paused_since().await?.is_none() {
                changes.push(Change::Pause(Some(self.now())));
                changes.push(Change::Event(self.person_event("person.pause", &StopTarget::All)));
            }
            Ok((Commit { expect: Vec::new(), changes }, ()))
        })
        .await
    }

    /// A pause in which chats, which would never end by themselves, are told to; tasks are worked on to their end. Answers what
    /// still runs. Repeating it changes nothing.
    pub async fn drain(&self) -> Result<Vec<Launch>, ServiceError> {
        self.pause().await?;
        audit::note("drain", "coordinator", "all");
        let open = self.store.open_launches().await?;
        for chat in open.iter().filter(|launch| launch.key.purpose == Purpose::Chat) {
            let event = LaunchEvent::ChatEnded { at: self.now(), patience: self.settings().linger };
            self.want_end(&chat.id, event).await?;
        }
        Ok(open)
    }

    /// Undoes a hold and forgets the failures of a pair; `All` undoes the pause.
    ///
    /// # Errors
    /// `AgentNotFound`, `ProjectNotFound`.
    pub async fn resume(&self, target: &StopTarget) -> Result<(), ServiceError> {
        self.transact(|| async move {
            let mut changes = Vec::new();
            match target {
                StopTarget::Pair { agent, project, .. } => {
                    self.check_known(agent, project).await?;
                    for key in target.keys() {
                        let record = self.store.pair(&key).await?;
                        let released = record.clone().released();
                        if released != record {
                            changes.push(Change::Pair(released));
                        }
                    }
                }
                StopTarget::All => {
                    if self.store.paused_since().await?.is_some() {
                        changes.push(Change::Pause(None));
                    }
                }
            }
            if !changes.is_empty() {
                changes.push(Change::Event(self.person_event("person.resume", target)));
            }
            Ok((Commit { expect: Vec::new(), changes }, ()))
        })
        .await
    }

    pub(super) async fn check_known(
        &self,
        agent: &AgentId,
        project: &ProjectId,
    ) -> Result<(), ServiceError> {
        if self.store.agent(agent).await?.is_none() {
            return Err(Refusal::AgentNotFound { agent: agent.clone() }.into());
        }
        if self.store.project(project).await?.is_none() {
            return Err(Refusal::ProjectNotFound { project: project.clone() }.into());
        }
        Ok(())
    }

    fn person_event(&self, kind: &'static str, target: &StopTarget) -> NewEvent {
        let (agent, project) = match target {
            StopTarget::Pair { agent, project, .. } => (Some(agent.clone()), Some(project.clone())),
            StopTarget::All => (None, None),
        };
        NewEvent { at: self.now(), kind, agent, project, launch: None, task: None, detail: None }
    }
}

impl StopTarget {
    fn covers(&self, key: &InstanceKey) -> bool {
        match self {
            Self::All => true,
            Self::Pair { agent, project, purpose } => {
                key.agent == *agent
                    && key.project == *project
                    && purpose.is_none_or(|purpose| purpose == key.purpose)
            }
        }
    }

    fn keys(&self) -> Vec<InstanceKey> {
        match self {
            Self::All => Vec::new(),
            Self::Pair { agent, project, purpose } => [Purpose::Task, Purpose::Chat]
                .into_iter()
                .filter(|each| purpose.is_none_or(|purpose| purpose == *each))
                .map(|purpose| InstanceKey::new(agent.clone(), project.clone(), purpose))
                .collect(),
        }
    }
}
