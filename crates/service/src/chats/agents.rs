//! Chat, the agents' half: unread messages, their hand-out, and answers.
//!
//! A message is unread until its agent answers it. It is handed out to a session when any answer
//! contains it.

use domain::chat::{Sender, is_repeated, n_fitting, newest_fitting, said};
use domain::creation::{CreationLimits, Creations};
use domain::{
    InstanceKey, Launch, LaunchState, Message, MessageId, Purpose, Refusal, Session, StartHistory,
    StopReason,
};
use store::rows::{launches, messages, sessions, start_histories};
use store::{ChatEnd, MessageFilter, Read, StoreError};

use super::people::message_event;
use super::{Chats, silence};
use crate::core::Core;
use crate::sessions::caller::latest;
use crate::{Caller, Heard, ServiceError};

/// Messages for an agent.
#[derive(Debug, Clone, Default)]
pub struct Pending {
    /// The messages that it has not answered, in order.
    pub pending: Vec<Message>,
    /// The messages before them, in order.
    pub context: Vec<Message>,
}

/// The number of messages that are given at once. The rest follow when these are answered.
const MAX_PENDING: usize = 50;
/// The number of earlier messages that are given along with them.
const MAX_CONTEXT: usize = 20;
/// The bytes of pending messages and of earlier messages that are given at once. An answer contains
/// all text twice, and older clients accept no line over 64 KiB.
const PENDING_BYTES: usize = 16 * 1024;
const CONTEXT_BYTES: usize = 8 * 1024;

impl Chats {
    /// Returns the messages that `caller` has not answered, and the messages before them. They
    /// count as handed out to its session.
    ///
    /// # Errors
    /// The errors of [`Sessions::identify`](crate::Sessions::identify).
    pub async fn hand_out(&self, caller: &Caller) -> Result<Pending, ServiceError> {
        hand_out(&self.core, &self.heard, caller).await
    }

    /// Adds `content` to the chat of `caller`. It answers the messages that `caller` was given,
    /// which count as read from then on. A call that is repeated because its answer was lost
    /// returns the same message.
    ///
    /// # Errors
    /// `Invalid` for an invalid content; `TooManyMessages`; the errors of
    /// [`Sessions::identify`](crate::Sessions::identify).
    pub async fn respond(&self, caller: &Caller, content: &str) -> Result<MessageId, ServiceError> {
        let content = said(content)?;
        let content = self.core.redacted(&content).into_owned();
        let limits = self.core.settings().creation;
        // Only a message that is added delays the end of the chat.
        let by = caller.clone();
        let text = content.clone();
        let said = self.core.read(move |tx| Ok(Answering::of(tx, &by)?.said(&text, &limits)?));
        if let Some(id) = said.await? {
            return Ok(id);
        }
        silence::restart(&self.clocks, &caller.launch.id);
        let caller = caller.clone();
        self.core
            .write(move |tx| {
                let key = &caller.session.key;
                let answering = Answering::of(tx, &caller)?;
                if let Some(id) = answering.said(&content, &limits)? {
                    return Ok(id);
                }
                let Answering { session, record, created, .. } = answering;
                let message = Message {
                    seq: 0,
                    id: tx.new_id(MessageId::PREFIX),
                    agent: key.agent.clone(),
                    project: key.project.clone(),
                    sender: Sender::Agent,
                    author: None,
                    content: content.clone(),
                    created_at: tx.now(),
                    is_visible: true,
                };
                tx.event(message_event(&message));
                messages::add(tx, &message)?;
                start_histories::write(tx, &record, &record.clone().answered(session.handed_out))?;
                let created = Creations { n_messages: created.n_messages + 1, ..created };
                launches::set_creations(tx, &caller.launch.id, created)?;
                Ok(message.id)
            })
            .await
    }
}

/// Returns the messages that `caller` has not answered, and the messages before them. They count as
/// handed out to its session.
///
/// # Errors
/// The errors of [`Sessions::identify`](crate::Sessions::identify).
pub(crate) async fn hand_out(
    core: &Core,
    heard: &Heard,
    caller: &Caller,
) -> Result<Pending, ServiceError> {
    let caller = caller.clone();
    let inputs = heard.inputs(core);
    core.write(move |tx| {
        let key = &caller.session.key;
        let (_, session) = latest(tx, &caller)?;
        let pending = pending(tx, key)?;
        let before = pending.first().map(|message| message.seq);
        let earlier = MessageFilter { before, end: ChatEnd::Newest, ..visible(key, MAX_CONTEXT) };
        let context = newest_fitting(messages::list(tx, &earlier)?, CONTEXT_BYTES);
        let handed_out = pending.last().map_or(0, |message| message.seq).max(session.handed_out);
        if handed_out != session.handed_out {
            let session = Session { handed_out, ..session };
            sessions::put(tx, &inputs.with_last_call(session))?;
        }
        Ok(Pending { pending, context })
    })
    .await
}

/// The facts that decide about an answer of an agent.
struct Answering {
    session: Session,
    record: StartHistory,
    /// The last answer of the agent.
    last: Option<Message>,
    created: Creations,
}

impl Answering {
    fn of(tx: &mut Read<'_>, caller: &Caller) -> Result<Self, ServiceError> {
        let (launch, session) = latest(tx, caller)?;
        let record = start_histories::get(tx, &caller.session.key)?;
        // Messages of people in between do not count: they may have read the answer that the agent
        // thinks is lost.
        let sender = Some(Sender::Agent);
        let end = ChatEnd::Newest;
        let last = MessageFilter { sender, end, ..visible(&caller.session.key, 1) };
        let last = messages::list(tx, &last)?.into_iter().next();
        let created = launches::creations(tx, &launch.id)?;
        Ok(Self { session, record, last, created })
    }

    /// Returns the message with which the agent said this already. A repetition does not count for
    /// the limit.
    ///
    /// # Errors
    /// `TooManyMessages` if this is a new message, and the launch may write no more.
    fn said(&self, content: &str, limits: &CreationLimits) -> Result<Option<MessageId>, Refusal> {
        let is_it = |last: &&Message| is_repeated(last, content, &self.session, &self.record);
        let said = self.last.as_ref().filter(is_it).map(|last| last.id.clone());
        if said.is_none() {
            limits.check_messages(self.created.n_messages)?;
        }
        Ok(said)
    }
}

/// Returns the number up to which an agent that logged out of its chat has read. An agent that was
/// told to log out has read no unanswered message. Either its chat had ended, or it had answered
/// all messages (`chat_step`).
pub(crate) fn read_by_leaver(
    tx: &mut Read<'_>,
    before: &Launch,
    after: &Launch,
) -> Result<Option<i64>, StoreError> {
    let was_there =
        after.key.purpose == Purpose::Chat && matches!(before.state, LaunchState::Running { .. });
    if !was_there || after.stop_reason != Some(StopReason::LoggedOut) {
        return Ok(None);
    }
    let sessions = sessions::list_of_launch(tx, &after.id)?;
    Ok(sessions.iter().map(|session| session.handed_out).max())
}

/// Returns the unanswered messages of people, as many as fit into one answer.
pub(crate) fn pending(tx: &mut Read<'_>, key: &InstanceKey) -> Result<Vec<Message>, StoreError> {
    let after = Some(start_histories::get(tx, key)?.read_up_to);
    let sender = Some(Sender::User);
    let unread = MessageFilter { after, sender, ..visible(key, MAX_PENDING) };
    let mut pending = messages::list(tx, &unread)?;
    let contents = pending.iter().map(|message| message.content.as_str());
    pending.truncate(n_fitting(contents, PENDING_BYTES));
    Ok(pending)
}

/// Returns the number of the newest message of a person after `read_up_to`.
pub(crate) fn newest_unread_after(
    tx: &mut Read<'_>,
    key: &InstanceKey,
    read_up_to: i64,
) -> Result<Option<i64>, StoreError> {
    let after = Some(read_up_to);
    let sender = Some(Sender::User);
    let end = ChatEnd::Newest;
    let newest = MessageFilter { after, sender, end, ..visible(key, 1) };
    Ok(messages::list(tx, &newest)?.first().map(|message| message.seq))
}

/// Returns the filter of the visible messages of a chat, the oldest first.
pub(crate) fn visible(key: &InstanceKey, limit: usize) -> MessageFilter {
    MessageFilter {
        only_visible: true,
        ..MessageFilter::oldest(key.agent.clone(), key.project.clone(), limit)
    }
}
