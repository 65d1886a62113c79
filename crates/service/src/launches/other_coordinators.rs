//! Requests of coordinators that are not part of this program (docs/migration.md). They ask without
//! a purpose, ask for one word, or report a process without the id of its launch.

use domain::id::{AgentId, LaunchId, ProjectId};
use domain::launch::StopReason;
use domain::launch::reported::{ReportedBy, launch_to_report};
use domain::start_history::StartReason;
use domain::{InstanceKey, LaunchState, Purpose};
use store::LaunchFilter;
use store::rows::{launches, startable};

use super::Launches;
use super::start::{Claim, ShouldStart};
use crate::{AskedBy, ServiceError};

/// The number of ended launches among which a repeated report finds its own.
const N_ENDED: usize = 20;

/// The next step of a coordinator for a pair.
#[derive(Debug, Clone)]
pub enum AgentAction {
    /// Start the agent; the start is reserved.
    Start(Box<Claim>),
    /// End its process, because this launch must stop.
    Stop { launch: LaunchId, reason: StopReason },
    /// Leave the agent as it is.
    Hold(StartReason),
}

impl Launches {
    /// Calls [`Launches::should_start`] for the purpose that the client means. Without a purpose, a
    /// task comes first, and then a chat with a waiting person. A refusal concerns the task, unless
    /// there is only a chat.
    pub async fn should_start_for(
        &self,
        agent: &AgentId,
        project: &ProjectId,
        purpose: Option<Purpose>,
        by: AskedBy<'_>,
    ) -> Result<(Purpose, ShouldStart), ServiceError> {
        let key = |purpose| InstanceKey::new(agent.clone(), project.clone(), purpose);
        let keys = match purpose {
            Some(purpose) => vec![key(purpose)],
            None => vec![key(Purpose::Task), key(Purpose::Chat)],
        };
        self.should_start_one_of(keys, by, None).await
    }

    /// Returns the decision of [`Launches::should_start_for`] without a purpose, or the stop that
    /// the coordinator must carry out.
    pub async fn agent_action(
        &self,
        agent: &AgentId,
        project: &ProjectId,
        by: AskedBy<'_>,
    ) -> Result<(Purpose, AgentAction), ServiceError> {
        let (purpose, ShouldStart { reason, claim }) =
            self.should_start_for(agent, project, None, by).await?;
        if let Some(claim) = claim {
            return Ok((purpose, AgentAction::Start(Box::new(claim))));
        }
        let keys = [Purpose::Task, Purpose::Chat]
            .map(|purpose| InstanceKey::new(agent.clone(), project.clone(), purpose));
        let now = self.core.now();
        let read = self.core.read(move |tx| {
            for key in &keys {
                let open = startable::of_key(tx, key)?.open.map(|open| (open.id, open.state));
                // Until then, the agent may end by itself.
                if let Some((launch, LaunchState::Stopping { reason, stop_at })) = open
                    && stop_at <= now
                {
                    return Ok(Some((key.purpose, AgentAction::Stop { launch, reason })));
                }
            }
            Ok(None)
        });
        if let Some(stop) = read.await? {
            return Ok(stop);
        }
        // A pair without any work is reported as a pair without a task, as before.
        let purpose = if reason == StartReason::NoWork { Purpose::Task } else { purpose };
        Ok((purpose, AgentAction::Hold(reason)))
    }

    /// Returns the launch that a report about a process means, for clients that do not send its id.
    ///
    /// # Errors
    /// [`NoOpenLaunch`](domain::Refusal::NoOpenLaunch) and
    /// [`AmbiguousLaunch`](domain::Refusal::AmbiguousLaunch).
    pub async fn find_to_report(
        &self,
        agent: &AgentId,
        project: &ProjectId,
        pid: Option<i32>,
        coordinator: AskedBy<'_>,
    ) -> Result<LaunchId, ServiceError> {
        let recent = LaunchFilter {
            agent: Some(agent.clone()),
            project: Some(project.clone()),
            only_ended: true,
            limit: N_ENDED,
            ..LaunchFilter::default()
        };
        let read = self.core.read(move |tx| {
            let mut launches = launches::list_open(tx)?;
            launches.extend(launches::list(tx, &recent)?);
            Ok(launches)
        });
        let launches = read.await?;
        Ok(launch_to_report(&launches, ReportedBy { agent, project, pid, coordinator })?)
    }
}
