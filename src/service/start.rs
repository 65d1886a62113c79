//! `should_start` and the claim behind it: one transaction, made before any process exists. A true answer reserves the start,
//! so that neither a second coordinator nor the next poll starts a twin (contract.md, deviations).

use crate::crash_point::{self, CrashPoint};
use crate::domain::id::{CoordinatorId, LaunchId};
use crate::domain::pair::StartReason;
use crate::domain::secret::TICKET_PREFIX;
use crate::domain::{InstanceKey, Launch, LaunchState, PairFacts, Secret, Timestamp};
use crate::store::{Change, Commit, Expect};

use super::launches::launch_event;
use super::{AskedBy, Service, ServiceError};

/// The answer to "may this key start?".
#[derive(Debug, Clone)]
pub struct ShouldStart {
    pub reason: StartReason,
    /// The reservation, if the answer is yes.
    pub claim: Option<Claim>,
}

/// A reserved start.
#[derive(Debug, Clone)]
pub struct Claim {
    pub launch: LaunchId,
    pub ai_type: String,
    /// Until when the agent must have authenticated.
    pub deadline: Timestamp,
    /// Stands for the passkey of this launch; only a coordinator that named itself gets one.
    pub ticket: Option<Secret>,
}

impl Service {
    /// Whether `key` should be started now; yes claims it for `coordinator`. The coordinator that made a claim finds it again
    /// until it reported a process.
    pub async fn should_start(
        &self,
        key: &InstanceKey,
        coordinator: AskedBy<'_>,
    ) -> Result<ShouldStart, ServiceError> {
        self.transact(|| async move {
            let facts = self.while_held(self.store.pair_facts(key).await?);
            let now = self.now();
            match facts.reason(self.settings().backoff, now) {
                StartReason::Ready => Ok(self.claim(facts, coordinator.cloned(), now)),
                StartReason::Starting => self.find_claim(&facts, coordinator).await,
                reason => Ok((Commit::default(), ShouldStart { reason, claim: None })),
            }
        })
        .await
        .inspect(|answer| {
            if answer.claim.is_some() {
                crash_point::reach(CrashPoint::ClaimGranted);
            }
        })
    }

    fn claim(
        &self,
        facts: PairFacts,
        coordinator: Option<CoordinatorId>,
        now: Timestamp,
    ) -> (Commit, ShouldStart) {
        let ai_type = facts.agent.map(|(_, ai_type)| ai_type).unwrap_or_default();
        let id: LaunchId = self.world.new_id(LaunchId::PREFIX);
        let ticket = coordinator.is_some().then(|| self.ticket_of(&id));
        let deadline = now + self.settings().start_timeout;
        let launch = Launch {
            coordinator,
            ticket: ticket.as_ref().map(Secret::token_hash),
            ..Launch::claimed(id, facts.key.clone(), ai_type.clone(), now, deadline)
        };
        let claim = Claim { launch: launch.id.clone(), ai_type, deadline, ticket };
        let mut changes = Vec::new();
        // Of several that claim at the same time, one tries the account: the others read it anew.
        if facts.account.parked.is_some() {
            changes.push(Change::Account(facts.account.after_claim(&launch.id, now)));
        }
        changes.extend([Change::Event(launch_event(&launch, now)), Change::Launch(launch)]);
        // Also what a person may say in between: a stop that found nothing to stop must not be followed by a start.
        let pair = Expect::PairAt(facts.key.clone(), facts.record.revision);
        let commit = Commit {
            expect: vec![Expect::NoOpenLaunch(facts.key), pair, Expect::NotPaused],
            changes,
        };
        (commit, ShouldStart { reason: StartReason::Ready, claim: Some(claim) })
    }

    /// The ticket of a launch. Made from its id and a key that only the server has: the answer to a claim can be repeated
    /// without keeping the ticket, and an agent that was started with it goes on with it.
    fn ticket_of(&self, launch: &LaunchId) -> Secret {
        self.settings().ticket_key.derive(TICKET_PREFIX, launch.as_str())
    }

    /// The asking coordinator's own reservation: the first answer may have been lost.
    async fn find_claim(
        &self,
        facts: &PairFacts,
        coordinator: AskedBy<'_>,
    ) -> Result<(Commit, ShouldStart), ServiceError> {
        let no = (Commit::default(), ShouldStart { reason: StartReason::Starting, claim: None });
        let (Some(coordinator), Some(open)) = (coordinator, &facts.open) else {
            return Ok(no);
        };
        let launch = self.store.launch(&open.id).await?;
        let Some(launch) =
            launch.filter(|l| l.coordinator.as_ref() == Some(coordinator) && l.pid.is_none())
        else {
            return Ok(no);
        };
        let LaunchState::Starting { deadline } = launch.state else {
            return Ok(no);
        };
        let ticket = Some(self.ticket_of(&launch.id));
        let claim = Claim { launch: launch.id, ai_type: launch.ai_type, deadline, ticket };
        Ok((Commit::default(), ShouldStart { reason: StartReason::Ready, claim: Some(claim) }))
    }
}
