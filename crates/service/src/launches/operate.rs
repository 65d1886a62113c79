//! The actions of people on running agents: stop one pair, stop all, and resume.

use domain::event::NewEvent;
use domain::id::{AgentId, LaunchId, ProjectId};
use domain::launch::{LaunchEvent, ProcessEnd, StopReason};
use domain::plan::ProcessReport;
use domain::{InstanceKey, Launch, Purpose, StartHistory, Timestamp};
use store::Read;
use store::rows::{Transaction, Wake, launches, pauses, start_histories};

use super::Launches;
use super::change::{want_end, want_stop};
use crate::{ServiceError, audit, catalog};

/// The agents that a person wants to stop or resume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopTarget {
    /// One agent in one project, for one purpose or for all.
    Pair {
        agent: AgentId,
        project: ProjectId,
        purpose: Option<Purpose>,
    },
    All,
}

/// The effects of a stop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Launches that are being ended; `status` shows when they are gone.
    pub launches: Vec<LaunchId>,
    /// Launches that no coordinator can end, because theirs is absent.
    pub abandoned: Vec<LaunchId>,
}

/// The choice whether a launch counts as ended although no coordinator sees its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    No,
    /// A person has made sure that the process is gone.
    Yes,
}

impl Launches {
    /// Stops the target and keeps it from starting again. A pair is held until it is resumed or a
    /// task of it is set in progress again. `All` pauses every start until `resume`. Repeating it
    /// changes nothing.
    ///
    /// # Errors
    /// `AgentNotFound`, `ProjectNotFound`.
    pub async fn stop(&self, target: &StopTarget, force: Force) -> Result<Stopped, ServiceError> {
        let reason = match target {
            StopTarget::Pair { .. } => StopReason::Person,
            StopTarget::All => StopReason::StopAll,
        };
        self.hold(target).await?;
        let open = self.core.read(|tx| Ok(launches::list_open(tx)?)).await?;
        let mut stopped = Stopped::default();
        for launch in open.into_iter().filter(|launch| target.covers(&launch.key)) {
            want_stop(&self.core, &self.heard, &launch.id, reason).await?;
            match launch
                .coordinator
                .filter(|coordinator| !self.coordinators.is_there(coordinator, self.core.now()))
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

    /// Ends a launch whose coordinator was silent for a while and would never report its end. Only
    /// a person can ask for this, because the process may live. A coordinator that comes back ends
    /// it then.
    async fn force_end(&self, launch: &LaunchId) -> Result<(), ServiceError> {
        tracing::warn!(launch_id = %launch, "ended a launch whose coordinator is not connected");
        let gone = ProcessReport::Ended { end: ProcessEnd::Lost, at: self.core.now() };
        self.report_process(launch, &[gone]).await
    }

    async fn hold(&self, target: &StopTarget) -> Result<(), ServiceError> {
        let target = target.clone();
        self.core
            .write(move |tx| {
                let now = tx.now();
                let hold = |record: StartHistory| record.held(now);
                change(tx, &target, "person.stop", hold, Some(now))
            })
            .await
    }

    /// Pauses all starts until `resume`. Running agents go on. Repeating it changes nothing.
    pub async fn pause(&self) -> Result<(), ServiceError> {
        self.core
            .write(|tx| {
                let now = tx.now();
                change(tx, &StopTarget::All, "person.pause", |record| record, Some(now))
            })
            .await
    }

    /// Returns the time since which all starts are paused; `None` if they are not.
    pub async fn paused_since(&self) -> Result<Option<Timestamp>, ServiceError> {
        self.core.read(|tx| Ok(pauses::since(tx)?)).await
    }

    /// Pauses all starts and ends chats, which would not end by themselves. Agents finish their
    /// tasks. Returns the launches that still run. Repeating it changes nothing.
    pub async fn drain(&self) -> Result<Vec<Launch>, ServiceError> {
        self.pause().await?;
        audit::note("drain", "coordinator", "all");
        let open = self.core.read(|tx| Ok(launches::list_open(tx)?)).await?;
        for chat in open.iter().filter(|launch| launch.key.purpose == Purpose::Chat) {
            let event = LaunchEvent::ChatEnded {
                at: self.core.now(),
                exit_grace: self.core.settings().run.linger,
            };
            want_end(&self.core, &self.heard, &chat.id, event).await?;
        }
        Ok(open)
    }

    /// Removes the hold of a pair and forgets its failures; `All` ends the pause. Coordinators look
    /// again in any case: the person may have mended a fault that only they know.
    ///
    /// # Errors
    /// `AgentNotFound`, `ProjectNotFound`.
    pub async fn resume(&self, target: &StopTarget) -> Result<(), ServiceError> {
        let target = target.clone();
        self.core
            .write(move |tx| {
                change(tx, &target, "person.resume", StartHistory::released, None)?;
                tx.wake(Wake::Coordinators);
                Ok(())
            })
            .await
    }

    /// Lets agents start once more that could not work as they were configured: a person may have
    /// mended the cause before the reload.
    pub async fn release_misconfigured(&self) -> Result<(), ServiceError> {
        self.core
            .write(|tx| {
                for record in start_histories::list_misconfigured(tx)? {
                    start_histories::write(tx, &record, &record.clone().reloaded())?;
                    tx.event(NewEvent::of_pair("pair.released", tx.now(), &record.key));
                }
                Ok(())
            })
            .await
    }
}

/// Changes the records of a pair, or the pause of all starts. Adds an event of this kind if that is
/// new.
///
/// # Errors
/// `AgentNotFound`, `ProjectNotFound`.
fn change(
    tx: &mut Transaction<'_>,
    target: &StopTarget,
    kind: &'static str,
    of_pair: impl Fn(StartHistory) -> StartHistory,
    paused_since: Option<Timestamp>,
) -> Result<(), ServiceError> {
    let mut is_new = false;
    match target {
        StopTarget::Pair { agent, project, .. } => {
            check_known(tx, agent, project)?;
            for key in target.keys() {
                is_new |= start_histories::change(tx, &key, &of_pair)?;
            }
        }
        StopTarget::All => {
            is_new = pauses::since(tx)?.is_some() != paused_since.is_some();
            if is_new {
                pauses::set(tx, paused_since)?;
            }
        }
    }
    if is_new {
        tx.event(target.event(kind, tx.now()));
    }
    Ok(())
}

/// # Errors
/// `AgentNotFound`, `ProjectNotFound`.
pub(crate) fn check_known(
    tx: &mut Read<'_>,
    agent: &AgentId,
    project: &ProjectId,
) -> Result<(), ServiceError> {
    catalog::agent(tx, agent)?;
    catalog::project(tx, project)?;
    Ok(())
}

impl StopTarget {
    fn event(&self, kind: &'static str, at: Timestamp) -> NewEvent {
        let (agent, project) = match self {
            Self::Pair { agent, project, .. } => (Some(agent.clone()), Some(project.clone())),
            Self::All => (None, None),
        };
        NewEvent { agent, project, ..NewEvent::new(kind, at) }
    }

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
            Self::Pair { agent, project, purpose } => {
                [Purpose::Task, Purpose::Chat, Purpose::Check]
                    .into_iter()
                    .filter(|each| purpose.is_none_or(|purpose| purpose == *each))
                    .map(|purpose| InstanceKey::new(agent.clone(), project.clone(), purpose))
                    .collect()
            }
        }
    }
}
