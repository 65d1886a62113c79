//! `authenticate`: an agent proves who it is and gets a session on its launch (seed 004; contract.md "Passkey and ticket").

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::crash_point::{self, CrashPoint};
use crate::domain::authentication::{Facts, Grant, Proof, decide, is_limited};
use crate::domain::id::{AgentId, LaunchId, ProjectId, SessionId};
use crate::domain::launch::LaunchEvent;
use crate::domain::secret::{PasskeyHash, TokenHash};
use crate::domain::session::{Presenter, SessionEndReason, Transport};
use crate::domain::{
    Agent, InstanceKey, Launch, PairRecord, Project, Purpose, Refusal, Secret, Session, Timestamp,
};
use crate::store::{Change, Commit, Expect};
use crate::telemetry::counters;

use super::launches::launch_event;
use super::{Service, ServiceError};

/// A session was opened.
#[derive(Debug, Clone)]
pub struct Authenticated {
    pub session_token: Secret,
    pub expires_in: Duration,
    pub agent_name: String,
    pub project_name: String,
    pub system_prompt: String,
    pub instruction: &'static str,
    pub purpose: Purpose,
    pub working_directory: std::path::PathBuf,
    pub launch: LaunchId,
    pub session: SessionId,
    /// Since the claim, if it is the first session of a launch that was claimed for it.
    pub waited: Option<Duration>,
}

impl Service {
    /// Opens a session for `agent_id` in `project_id`. Its token says over which transport it was opened.
    ///
    /// An unknown agent costs the same work and gets the same words as a wrong passkey.
    ///
    /// # Errors
    /// The refusals of [`decide`], and [`Refusal::AgentsNotOverHttp`]; then [`Refusal::TooManySessions`].
    pub async fn authenticate(
        &self,
        agent_id: &AgentId,
        passkey: &Secret,
        project_id: &ProjectId,
        presenter: Presenter<'_>,
    ) -> Result<Authenticated, ServiceError> {
        self.check_transport(presenter)?;
        let is_counted = &AtomicBool::new(false);
        self.transact(|| async move {
            let (agent, ticketed, project) = (
                self.store.agent(agent_id).await?,
                self.store.launch_by_ticket(&passkey.token_hash()).await?,
                self.store.project(project_id).await?,
            );
            let pair = |purpose| InstanceKey::new(agent_id.clone(), project_id.clone(), purpose);
            let of_task = self.store.pair_facts(&pair(Purpose::Task)).await?;
            let of_chat = self.store.pair_facts(&pair(Purpose::Chat)).await?;
            let mut open = Vec::new();
            for found in [&of_task.open, &of_chat.open].into_iter().flatten() {
                open.extend(self.store.launch(&found.id).await?.filter(Launch::is_open));
            }
            let proof = proof(agent.as_ref(), ticketed, passkey);
            let is_limited = is_limited(&proof);
            let grant = decide(&Facts {
                agent_id,
                project_id,
                agent: agent.as_ref(),
                project: project.as_ref(),
                is_assigned: of_chat.is_assigned,
                proof,
                presented_by: presenter.launch,
                open: &open,
                is_chat_wanted: of_chat.record.wanted_since.is_some(),
            })?;
            let (Some(agent), Some(project)) = (agent, project) else {
                return Err(Refusal::InvalidCredentials.into());
            };
            if is_limited && !is_counted.load(Ordering::Relaxed) {
                if !self.session_rate.take(agent_id, project_id) {
                    let (agent, project) = (agent_id.clone(), project_id.clone());
                    return Err(Refusal::TooManySessions { agent, project }.into());
                }
                is_counted.store(true, Ordering::Relaxed);
            }
            self.open_session(grant, presenter.transport, of_chat.record, agent, project).await
        })
        .await
        .inspect_err(|_| {
            if is_counted.load(Ordering::Relaxed) {
                self.session_rate.give_back(agent_id, project_id);
            }
        })
        .inspect(|authenticated| {
            if let Some(waited) = authenticated.waited {
                counters::UNTIL_AUTHENTICATED.observe(waited);
            }
            // Its first call: it is not silent since it printed something.
            self.activity.touch(&authenticated.session, self.now());
            crash_point::reach(CrashPoint::Authenticated);
        })
    }

    async fn open_session(
        &self,
        grant: Grant,
        transport: Transport,
        of_chat: PairRecord,
        agent: Agent,
        project: Project,
    ) -> Result<(Commit, Authenticated), ServiceError> {
        let now = self.now();
        let token = self.world.new_token(transport.session_token_prefix());
        let (before, expect) = match grant {
            Grant::On(launch) => (*launch, Vec::new()),
            Grant::OnNewLaunch(purpose) => {
                let key = InstanceKey { purpose, ..of_chat.key.clone() };
                let deadline = now + self.settings().start_timeout;
                let id = self.world.new_id(LaunchId::PREFIX);
                let launch = Launch::claimed(id, key.clone(), agent.ai_type, now, deadline);
                (launch, vec![Expect::NoOpenLaunch(key)])
            }
        };
        let session =
            new_session(self.world.new_id(SessionId::PREFIX), &before, token.token_hash(), now);
        let event = LaunchEvent::Authenticated { session: session.id.clone(), at: now };
        let launch = before.clone().on(&event).map_err(|_| Refusal::LaunchEnded)?;

        let mut changes = Vec::new();
        for earlier in self.store.sessions_of(&launch.id).await? {
            if earlier.ended.is_none() {
                changes.push(Change::Session(earlier.end(SessionEndReason::Superseded, now)));
            }
        }
        let answer = Authenticated {
            session_token: token,
            expires_in: self.session_lifetime(&launch),
            agent_name: agent.name,
            project_name: project.name,
            system_prompt: agent.system_prompt,
            instruction: self.guidance().authenticated(launch.key.purpose),
            purpose: launch.key.purpose,
            working_directory: project.working_directory,
            launch: launch.id.clone(),
            session: session.id.clone(),
            waited: (launch.is_kept() && before.authenticated_at.is_none())
                .then(|| now.since(before.claimed_at)),
        };
        if launch.key.purpose == Purpose::Chat && of_chat.wanted_since.is_some() {
            changes.push(Change::Pair(of_chat.unwanted()));
        }
        changes.extend(self.account_changes(&launch, now).await?);
        changes.push(Change::Event(launch_event(&launch, now)));
        changes.push(Change::Launch(launch));
        changes.push(Change::Session(session));
        Ok((Commit { expect, changes }, answer))
    }

    /// A kept session lives as long as its process, at most the maximum.
    fn session_lifetime(&self, launch: &Launch) -> Duration {
        if launch.is_kept() {
            self.settings().session_maximum
        } else {
            self.settings().session_default
        }
    }
}

pub(super) fn proof(agent: Option<&Agent>, ticketed: Option<Launch>, passkey: &Secret) -> Proof {
    let is_passkey = match agent.and_then(|agent| agent.passkey.as_ref()) {
        Some(hash) => hash.is_of(passkey),
        None => PasskeyHash::none_is_of(passkey),
    };
    match ticketed {
        Some(launch) => Proof::Ticket(Box::new(launch)),
        None if is_passkey => Proof::Passkey,
        None => Proof::None,
    }
}

fn new_session(id: SessionId, launch: &Launch, token: TokenHash, now: Timestamp) -> Session {
    Session {
        id,
        launch: launch.id.clone(),
        key: launch.key.clone(),
        token,
        created_at: now,
        last_seen_at: now,
        ended: None,
        handed_out: 0,
        revision: 0,
    }
}
