//! `authenticate`: an agent proves its identity by its passkey or by the ticket of its launch, and
//! gets a session on that launch.

use std::sync::Arc;
use std::time::Duration;

use domain::authentication::{Facts, Grant, Proof, decide, is_limited};
use domain::id::{AgentId, LaunchId, ProjectId, SessionId};
use domain::launch::LaunchEvent;
use domain::rate::Rate;
use domain::secret::{PasskeyHash, TokenHash};
use domain::session::{Presenter, SessionEndReason};
use domain::{
    Agent, Guidance, InstanceKey, Launch, Project, Purpose, Refusal, Secret, Session, StartHistory,
    Timestamp,
};
use machine::crash_point::{self, CrashPoint};
use runtime::clock;
use runtime::rate_limiter::RateLimiter;
use runtime::telemetry::counters;
use store::Read;
use store::rows::{Transaction, agents, launches, projects, sessions, start_histories, startable};

use super::Sessions;
use crate::launches::{accounts, conversations};
use crate::workspaces::{OwnCheckouts, directory_of};
use crate::{Inputs, ServiceError};

/// The limit for new sessions of one agent in one project. It is far above the needs of people and
/// restarts of agents.
///
/// Each session is a row of the store, and a client that authenticates and logs out in a loop would
/// fill it. The limit of calls does not help, because it belongs to the session and begins anew
/// with each one.
const RATE: Rate = Rate { burst: 30, interval: Duration::from_secs(2) };
/// The number of known pairs: more than there are open sessions by passkeys.
const MAX_KNOWN: usize = 8192;

pub(super) fn session_rate() -> RateLimiter<(AgentId, ProjectId)> {
    RateLimiter::new(RATE, MAX_KNOWN, clock::now().into_std())
}

/// The result of opening a session.
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
    /// The time since the claim, in the first session of a launch that was claimed for it.
    pub waited: Option<Duration>,
}

impl Sessions {
    /// Opens a session for `agent_id` in `project_id`. Its token says over which transport it was
    /// opened.
    ///
    /// An unknown agent costs the same work and gets the same text as a wrong passkey.
    ///
    /// # Errors
    /// The refusals of [`decide`], and [`Refusal::AgentsNotOverHttp`]; then
    /// [`Refusal::TooManySessions`].
    pub async fn authenticate(
        &self,
        agent_id: &AgentId,
        passkey: &Secret,
        project_id: &ProjectId,
        presenter: Presenter<'_>,
    ) -> Result<Authenticated, ServiceError> {
        self.check_transport(presenter)?;
        let attempt = Attempt {
            agent: agent_id.clone(),
            passkey: passkey.clone(),
            project: project_id.clone(),
            presented_by: presenter.launch.cloned(),
        };
        // A caller with a wrong passkey never uses the only thread that writes.
        let first = attempt.clone();
        let is_limited = self.core.read(move |tx| Ok(first.enter(tx)?.is_limited)).await?;
        let pair = (agent_id.clone(), project_id.clone());
        if is_limited && !self.rate.take(&pair, clock::now().into_std()) {
            let (agent, project) = pair;
            return Err(Refusal::TooManySessions { agent, project }.into());
        }
        let token = self.core.world.new_token(presenter.transport.session_token_prefix());
        let inputs = self.heard.inputs(&self.core);
        let guidance = self.core.guidance();
        let checkouts = Arc::clone(&self.checkouts);
        self.core
            .write(move |tx| {
                let entered = attempt.enter(tx)?;
                open_session(tx, &inputs, entered, token.clone(), guidance, &checkouts)
            })
            .await
            .inspect_err(|_| {
                if is_limited {
                    self.rate.give_back(&pair);
                }
            })
            .inspect(|authenticated| {
                if let Some(waited) = authenticated.waited {
                    counters::UNTIL_AUTHENTICATED.observe(waited);
                }
                // This counts as its first call, so that its silence begins now.
                self.heard.calls.touch(&authenticated.session, self.core.now());
                crash_point::reach(CrashPoint::Authenticated);
            })
    }
}

/// A call of `authenticate`.
#[derive(Clone)]
struct Attempt {
    agent: AgentId,
    passkey: Secret,
    project: ProjectId,
    presented_by: Option<LaunchId>,
}

/// An agent that may open a session.
struct Entered {
    grant: Grant,
    agent: Agent,
    project: Project,
    is_chat_wanted: bool,
    /// The session counts for the limit of sessions.
    is_limited: bool,
}

impl Attempt {
    /// Decides whether the agent may open a session.
    ///
    /// # Errors
    /// The refusals of [`decide`].
    fn enter(&self, tx: &mut Read<'_>) -> Result<Entered, ServiceError> {
        let agent = agents::get(tx, &self.agent)?;
        let ticketed = launches::find_by_ticket(tx, &self.passkey.token_hash())?;
        let project = projects::get(tx, &self.project)?;
        let key = |purpose| InstanceKey::new(self.agent.clone(), self.project.clone(), purpose);
        let of_task = startable::of_key(tx, &key(Purpose::Task))?;
        let of_chat = startable::of_key(tx, &key(Purpose::Chat))?;
        let mut open = Vec::new();
        for found in [&of_task.open, &of_chat.open].into_iter().flatten() {
            open.extend(launches::get(tx, &found.id)?);
        }
        let proof = proof(agent.as_ref(), ticketed, &self.passkey);
        let is_limited = is_limited(&proof);
        let is_chat_wanted = of_chat.record.wanted_since.is_some();
        let grant = decide(&Facts {
            agent_id: &self.agent,
            project_id: &self.project,
            agent: agent.as_ref(),
            project: project.as_ref(),
            is_assigned: of_chat.is_assigned,
            proof,
            presented_by: self.presented_by.as_ref(),
            open: &open,
            is_chat_wanted,
        })?;
        match (agent, project) {
            (Some(agent), Some(project)) => {
                Ok(Entered { grant, agent, project, is_chat_wanted, is_limited })
            }
            _ => Err(Refusal::InvalidCredentials.into()),
        }
    }
}

fn open_session(
    tx: &mut Transaction<'_>,
    inputs: &Inputs,
    entered: Entered,
    token: Secret,
    guidance: Guidance,
    checkouts: &OwnCheckouts,
) -> Result<Authenticated, ServiceError> {
    let Entered { grant, agent, project, is_chat_wanted, .. } = entered;
    let settings = &inputs.settings;
    let now = tx.now();
    let before = match grant {
        Grant::On(launch) => *launch,
        Grant::OnNewLaunch(purpose) => {
            let key = InstanceKey::new(agent.id, project.id.clone(), purpose);
            let deadline = now + settings.start.timeout;
            Launch::claimed(tx.new_id(LaunchId::PREFIX), key, agent.ai_type, now, deadline)
        }
    };
    let session = new_session(tx.new_id(SessionId::PREFIX), &before, token.token_hash(), now);
    let event = LaunchEvent::Authenticated { session: session.id.clone(), at: now };
    let launch = before.clone().on(&event).map_err(|_| Refusal::LaunchEnded)?;
    inputs.end_sessions(tx, &launch.id, SessionEndReason::Superseded)?;
    if launch.key.purpose == Purpose::Chat && is_chat_wanted {
        start_histories::change(tx, &launch.key, StartHistory::unwanted)?;
    }
    accounts::note_state(tx, &launch, settings.parking)?;
    conversations::note_begun(tx, &launch)?;
    tx.event(launches::event(&launch, now));
    let working_directory = directory_of(tx, &launch, Some(&project), checkouts)?;
    launches::put(tx, &launch)?;
    sessions::put(tx, &session)?;
    Ok(Authenticated {
        session_token: token,
        // A kept session lives as long as its process.
        expires_in: if launch.is_kept() {
            settings.session.max_timeout
        } else {
            settings.session.default_timeout
        },
        agent_name: agent.name,
        project_name: project.name,
        system_prompt: agent.system_prompt,
        instruction: guidance.authenticated(launch.key.purpose),
        purpose: launch.key.purpose,
        working_directory,
        waited: (launch.is_kept() && before.authenticated_at.is_none())
            .then(|| now.since(before.claimed_at)),
        launch: launch.id,
        session: session.id,
    })
}

pub(crate) fn proof(agent: Option<&Agent>, ticketed: Option<Launch>, passkey: &Secret) -> Proof {
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
