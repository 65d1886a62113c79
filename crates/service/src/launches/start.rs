//! `should_start` and the claim behind it: one transaction, made before any process exists. A true
//! answer reserves the start, so that neither a second coordinator nor the next poll starts a twin
//! (docs/migration.md, should_start).

use std::ops::ControlFlow;
use std::sync::Arc;

use domain::check::CheckOrder;
use domain::conversation::Entry;
use domain::id::{CoordinatorId, LaunchId, TaskId};
use domain::secret::TICKET_PREFIX;
use domain::start_history::StartReason;
use domain::task::next_task;
use domain::{
    Attempt, ConversationOrder, InstanceKey, Launch, LaunchState, Purpose, Secret, StartFacts,
    Timestamp,
};
use machine::crash_point::{self, CrashPoint};
use store::rows::{Transaction, executions, launches, startable};
use store::{Read, StoreError};

use super::Launches;
use super::{accounts, conversations};
use crate::core::Core;
use crate::tasks::mine::in_progress;
use crate::tasks::rules::graph_above;
use crate::workspaces::OwnCheckouts;
use crate::{AskedBy, ClonePlace, ServiceError, Settings, checks, workspaces};

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
    /// The time until which the agent must have authenticated.
    pub deadline: Timestamp,
    /// The ticket replaces the passkey for this launch. Only a coordinator that sent its id gets
    /// one.
    pub ticket: Option<Secret>,
    /// The clone that the agent works in; `None` for the directory of the project.
    pub clone: Option<ClonePlace>,
    /// The attempt at the task that the agent gets, as far as that is known before it asks.
    pub attempt: Attempt,
    /// The command that is run instead of an agent.
    pub check: Option<CheckOrder>,
    /// The conversation that its CLI begins or continues.
    pub conversation: Option<ConversationOrder>,
}

impl Launches {
    /// Returns whether `key` should start now. If so, it claims the start for `coordinator`. The
    /// coordinator that made a claim finds it again until it has reported a process.
    pub async fn should_start(
        &self,
        key: &InstanceKey,
        coordinator: AskedBy<'_>,
    ) -> Result<ShouldStart, ServiceError> {
        Ok(self.should_start_one_of(vec![key.clone()], coordinator, None).await?.1)
    }

    /// Does what [`Launches::should_start`] does for a coordinator that knows how to continue the
    /// conversation of the agent's CLI.
    pub async fn should_start_in(
        &self,
        key: &InstanceKey,
        coordinator: AskedBy<'_>,
        entry: &Entry,
    ) -> Result<ShouldStart, ServiceError> {
        let entry = Some(entry.clone());
        Ok(self.should_start_one_of(vec![key.clone()], coordinator, entry).await?.1)
    }

    /// Does what [`Launches::should_start`] does for the first of `keys` that may start, and
    /// returns its purpose. If none may, the answer is that of the first key with work, or of the
    /// last key.
    pub(super) async fn should_start_one_of(
        &self,
        keys: Vec<InstanceKey>,
        coordinator: AskedBy<'_>,
        entry: Option<Entry>,
    ) -> Result<(Purpose, ShouldStart), ServiceError> {
        let by = coordinator.cloned();
        let settings = self.core.settings();
        let inputs = self.heard.inputs(&self.core);
        let core = Arc::clone(&self.core);
        let checkouts = Arc::clone(&self.checkouts);
        let question = Question { keys, by, settings, entry, checkouts, core };
        // Most answers are no, and do not use the only writer.
        let first = question.clone();
        let now = self.core.now();
        if let ControlFlow::Break(answer) = self.core.read(move |tx| first.answer(tx, now)).await? {
            return Ok(answer);
        }
        self.core
            .write(move |tx| {
                let now = tx.now();
                let facts = match question.answer(tx, now)? {
                    ControlFlow::Break(answer) => return Ok(answer),
                    ControlFlow::Continue(facts) => facts,
                };
                let purpose = facts.key.purpose;
                // A check does not use the account.
                if purpose != Purpose::Check
                    && accounts::is_waited_for(tx, &inputs, &facts.account)?
                {
                    let reason = StartReason::Parked;
                    return Ok((purpose, ShouldStart { reason, claim: None }));
                }
                let answer = match purpose {
                    Purpose::Check => checks::claim(tx, &inputs, facts, question.by.clone())?,
                    Purpose::Task | Purpose::Chat => claim(tx, facts, &question)?,
                };
                Ok((purpose, answer))
            })
            .await
            .inspect(|(_, answer)| {
                if answer.claim.is_some() {
                    crash_point::reach(CrashPoint::ClaimGranted);
                }
            })
    }
}

/// A question whether one of these keys may start.
#[derive(Clone)]
struct Question {
    keys: Vec<InstanceKey>,
    by: Option<CoordinatorId>,
    settings: Arc<Settings>,
    /// The provider that would start the agent. Only a coordinator in this process sends it.
    entry: Option<Entry>,
    checkouts: OwnCheckouts,
    /// Knows the pause file, also before its row is written.
    core: Arc<Core>,
}

impl Question {
    /// Returns the answer, or the facts of the first key that is ready.
    fn answer(
        &self,
        tx: &mut Read<'_>,
        now: Timestamp,
    ) -> Result<ControlFlow<(Purpose, ShouldStart), StartFacts>, ServiceError> {
        let mut refused: Option<(Purpose, ShouldStart)> = None;
        for key in &self.keys {
            let answer = match self.answer_of(tx, key, now)? {
                ControlFlow::Break(answer) => answer,
                ControlFlow::Continue(facts) => return Ok(ControlFlow::Continue(facts)),
            };
            if answer.claim.is_some() {
                return Ok(ControlFlow::Break((key.purpose, answer)));
            }
            // The reason of a key with work says more than that of a key without.
            if refused.as_ref().is_none_or(|(_, before)| before.reason == StartReason::NoWork) {
                refused = Some((key.purpose, answer));
            }
        }
        Ok(ControlFlow::Break(refused.expect("a question has a key")))
    }

    fn answer_of(
        &self,
        tx: &mut Read<'_>,
        key: &InstanceKey,
        now: Timestamp,
    ) -> Result<ControlFlow<ShouldStart, StartFacts>, ServiceError> {
        let mut facts = startable::of_key(tx, key)?;
        facts.is_paused |= self.core.are_starts_held();
        workspaces::look_up(tx, &mut facts, None)?;
        Ok(match facts.reason(self.settings.backoff, now) {
            StartReason::Ready if workspaces::is_elsewhere(&facts, self.by.as_ref()) => {
                let reason = StartReason::OnOtherHost;
                ControlFlow::Break(ShouldStart { reason, claim: None })
            }
            StartReason::Ready => ControlFlow::Continue(facts),
            StartReason::Starting => {
                ControlFlow::Break(find_claim(tx, &facts, self.by.as_ref(), &self.settings)?)
            }
            reason => ControlFlow::Break(ShouldStart { reason, claim: None }),
        })
    }
}

fn claim(
    tx: &mut Transaction<'_>,
    facts: StartFacts,
    question: &Question,
) -> Result<ShouldStart, ServiceError> {
    if conversations::is_in_use(tx, &facts)? {
        return Ok(ShouldStart { reason: StartReason::Running, claim: None });
    }
    let Question { by: coordinator, settings, entry, checkouts, .. } = question;
    let coordinator = coordinator.clone();
    let ai_type = facts.agent.map(|(_, ai_type)| ai_type).unwrap_or_default();
    let id: LaunchId = tx.new_id(LaunchId::PREFIX);
    let now = tx.now();
    let ticket = coordinator.is_some().then(|| ticket_of(&id, settings));
    let deadline = now + settings.start.timeout;
    let is_untried = facts.task.as_ref().is_some_and(|task| task.is_untried);
    let mut launch = Launch {
        coordinator,
        ticket: ticket.as_ref().map(Secret::token_hash),
        // The order of the starts was that of this task, so the agent is given this task.
        claimed_task: facts.task.map(|task| task.id),
        ..Launch::claimed(id, facts.key, ai_type.clone(), now, deadline)
    };
    // The claim decides the task, because the clone of the task is the agent's directory.
    let clone = match facts.clone {
        Some(needed) => workspaces::claim(tx, needed, &mut launch)?,
        None => None,
    };
    // The next claim finds that the account is being tried.
    if facts.account.parked.is_some() {
        accounts::put(tx, &facts.account.after_claim(&launch.id, now))?;
    }
    let conversation = conversations::claim(tx, &mut launch, entry.as_ref(), settings, checkouts)?;
    tx.event(launches::event(&launch, now));
    launches::put(tx, &launch)?;
    // Its task is in progress, so its agent gets no other one.
    let attempt = match &launch.claimed_task {
        Some(task) if !is_untried => attempt_at(tx, &launch, task)?,
        _ => Attempt::FIRST,
    };
    let check = None;
    let claim =
        Claim { launch: launch.id, ai_type, deadline, ticket, attempt, clone, check, conversation };
    Ok(ShouldStart { reason: StartReason::Ready, claim: Some(claim) })
}

/// Returns the attempt of a launch at the task that its agent would get now.
fn attempt_of(tx: &mut Read<'_>, launch: &Launch) -> Result<Attempt, StoreError> {
    if launch.key.purpose != Purpose::Task {
        return Ok(Attempt::FIRST);
    }
    let in_progress = in_progress(tx, &launch.key)?;
    let graph = graph_above(tx, &in_progress)?;
    let bound = launch.task.as_ref().or(launch.claimed_task.as_ref());
    match next_task(bound, &in_progress, &graph) {
        Some(task) => attempt_at(tx, launch, &task.id),
        None => Ok(Attempt::FIRST),
    }
}

fn attempt_at(tx: &mut Read<'_>, launch: &Launch, task: &TaskId) -> Result<Attempt, StoreError> {
    Ok(Attempt::of(&launch.id, &executions::list_of_task(tx, task)?))
}

/// Returns the ticket of a launch. It is made from the id and a key that only the server has, so
/// the answer to a claim can be repeated without a stored ticket. An agent that was started with
/// the ticket can use it further.
fn ticket_of(launch: &LaunchId, settings: &Settings) -> Secret {
    settings.ticket_key.derive(TICKET_PREFIX, launch.as_str())
}

/// Finds the reservation of the coordinator that asks: the first answer may have been lost.
fn find_claim(
    tx: &mut Read<'_>,
    facts: &StartFacts,
    coordinator: AskedBy<'_>,
    settings: &Settings,
) -> Result<ShouldStart, ServiceError> {
    let no = ShouldStart { reason: StartReason::Starting, claim: None };
    let (Some(coordinator), Some(open)) = (coordinator, &facts.open) else {
        return Ok(no);
    };
    let launch = launches::get(tx, &open.id)?;
    let Some(launch) =
        launch.filter(|l| l.coordinator.as_ref() == Some(coordinator) && l.pid.is_none())
    else {
        return Ok(no);
    };
    let LaunchState::Starting { deadline } = launch.state else {
        return Ok(no);
    };
    let check = match launch.key.purpose {
        Purpose::Check => match checks::find_order(tx, settings, &launch)? {
            Some(order) => Some(order),
            // It is not configured any more, so the claim lapses.
            None => return Ok(no),
        },
        Purpose::Task | Purpose::Chat => None,
    };
    let ticket = Some(ticket_of(&launch.id, settings)).filter(|_| check.is_none());
    let clone = workspaces::place_of(tx, &launch)?;
    let attempt = attempt_of(tx, &launch)?;
    let conversation = conversations::order_of(tx, &launch)?;
    let claim = Claim {
        launch: launch.id,
        ai_type: launch.ai_type,
        deadline,
        ticket,
        attempt,
        clone,
        check,
        conversation,
    };
    Ok(ShouldStart { reason: StartReason::Ready, claim: Some(claim) })
}
