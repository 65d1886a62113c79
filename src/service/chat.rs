//! Chat (seed 003), the agents' half: what is unread, who was given what, and what they answer.
//!
//! A message is unread until its agent answers it; it is handed out to a session when that is given it, by whichever answer.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::chat::{Sender, after_end, n_fitting, said};
use crate::domain::{
    Assignment, InstanceKey, Launch, LaunchState, Message, MessageId, Outcome, PairRecord, Purpose,
    Session, StopReason, Timestamp,
};
use crate::rows::{messages, pairs, sessions};
use crate::store::{Change, ChatEnd, Commit, Expect, MessageFilter, Read, StoreError};

use super::conversation::message_event;
use super::creations::Creation;
use super::{Caller, Service, ServiceError};

/// Messages for an agent.
#[derive(Debug, Clone, Default)]
pub struct Pending {
    /// What it hasn't answered, in order.
    pub pending: Vec<Message>,
    /// What was said before, in order.
    pub context: Vec<Message>,
}

/// At most so many messages are given at once; the rest follow when these are answered.
const MAX_PENDING: usize = 50;
/// So many earlier messages are given along with them.
const MAX_CONTEXT: usize = 20;
/// So many bytes of messages are given at once, and so many of earlier ones: an answer says everything twice, and older clients
/// take no line over 64 KiB.
const PENDING_BYTES: usize = 16 * 1024;
const CONTEXT_BYTES: usize = 8 * 1024;

impl Service {
    /// The messages that `caller` hasn't answered, with what was said before. They count as handed out to its session.
    ///
    /// # Errors
    /// As [`Service::identify`].
    pub async fn hand_out(&self, caller: &Caller) -> Result<Pending, ServiceError> {
        let key = &caller.session.key;
        self.transact(|| async move {
            let (launch, session) = self.latest(caller).await?;
            let expect = vec![Expect::LaunchAt(launch.id.clone(), launch.revision)];
            let pending = self.pending(key).await?;
            let before = pending.first().map(|message| message.seq);
            let earlier =
                MessageFilter { before, end: ChatEnd::Newest, ..visible(key, MAX_CONTEXT) };
            let context = self.store.messages(&earlier).await?;
            let context = newest_fitting(context, CONTEXT_BYTES);
            let handed_out =
                pending.last().map_or(0, |message| message.seq).max(session.handed_out);
            let changes = if handed_out == session.handed_out {
                Vec::new()
            } else {
                vec![Change::Session(Session { handed_out, ..session })]
            };
            Ok((Commit { expect, changes }, Pending { pending, context }))
        })
        .await
    }

    /// Says `content` in the chat of `caller`: the answer to what it was given, which counts as read from then on. Repeated
    /// because its own answer was lost, it is the same message.
    ///
    /// # Errors
    /// `Invalid` for a content that is none; `TooManyMessages`; as [`Service::identify`].
    pub async fn respond(&self, caller: &Caller, content: &str) -> Result<MessageId, ServiceError> {
        let content = said(content)?;
        let content = self.redacted(&content);
        let content = content.as_ref();
        let key = &caller.session.key;
        let reserved = &Mutex::new(None);
        let id = self.transact(|| async move {
            // An attempt that conflicted gives its own back.
            lock(reserved).take();
            let (launch, session) = self.latest(caller).await?;
            let record = self.store.pair(key).await?;
            // Whatever people say meanwhile: they may have heard the answer that the agent thinks is lost.
            let (sender, end) = (Some(Sender::Agent), ChatEnd::Newest);
            let last = self
                .store
                .messages(&MessageFilter { sender, end, ..visible(key, 1) })
                .await?
                .into_iter()
                .next();
            if let Some(last) = last.filter(|last| is_repeated(last, content, &session, &record)) {
                return Ok((Commit::default(), last.id));
            }
            let reservation = self.reserve(&launch, Creation::Message, 1).await?;
            *lock(reserved) = Some(reservation);
            let message = Message {
                seq: 0,
                id: self.world.new_id(MessageId::PREFIX),
                agent: key.agent.clone(),
                project: key.project.clone(),
                sender: Sender::Agent,
                content: content.to_owned(),
                created_at: self.now(),
                is_visible: true,
            };
            let id = message.id.clone();
            self.chat_goes_on(&launch.id);
            let expect = vec![Expect::LaunchAt(launch.id, launch.revision)];
            let mut changes =
                vec![Change::Event(message_event(&message)), Change::Message(message)];
            let answered = record.clone().answered(session.handed_out);
            if answered != record {
                changes.push(Change::Pair(answered));
            }
            Ok((Commit { expect, changes }, id))
        });
        let id = id.await?;
        if let Some(reservation) = lock(reserved).take() {
            reservation.keep();
        }
        Ok(id)
    }

    /// Up to which message the agent of a chat has read when it logs out: it has seen what it was given. `None` where it does
    /// not: who is on its way out is only told to go, and an answer that was lost isn't given to it again.
    pub(super) async fn read_by_leaver(
        &self,
        before: &Launch,
        after: &Launch,
    ) -> Result<Option<i64>, StoreError> {
        let was_there = after.key.purpose == Purpose::Chat
            && matches!(before.state, LaunchState::Running { .. });
        if !was_there || after.stop_reason != Some(StopReason::LoggedOut) {
            return Ok(None);
        }
        let sessions = self.store.sessions_of(&after.id).await?;
        Ok(sessions.iter().map(|session| session.handed_out).max())
    }

    /// What is remembered of a chat whose launch ended, and what must hold still for it: a message that comes in between is
    /// unread, too.
    pub(super) async fn chat_record_after(
        &self,
        record: PairRecord,
        launch: &Launch,
        outcome: &Outcome,
        at: Timestamp,
    ) -> Result<(PairRecord, Expect), StoreError> {
        let InstanceKey { agent, project, .. } = &launch.key;
        let newest =
            MessageFilter { end: ChatEnd::Newest, only_visible: false, ..visible(&launch.key, 1) };
        let newest = self.store.messages(&newest).await?.first().map_or(0, |message| message.seq);
        let seen = Expect::NoMessageAfter(
            Assignment { project: project.clone(), agent: agent.clone() },
            newest,
        );
        let unread = self.newest_unread_after(&launch.key, record.read_up_to).await?;
        Ok((after_end(record, launch, outcome, unread, at, self.settings().start_limit), seen))
    }

    /// What the agent of a chat hasn't answered, as much as is given at once.
    async fn pending(&self, key: &InstanceKey) -> Result<Vec<Message>, StoreError> {
        let (after, sender) = (Some(self.store.pair(key).await?.read_up_to), Some(Sender::User));
        let mut pending = self
            .store
            .messages(&MessageFilter { after, sender, ..visible(key, MAX_PENDING) })
            .await?;
        pending.truncate(n_fitting(
            pending.iter().map(|message| message.content.as_str()),
            PENDING_BYTES,
        ));
        Ok(pending)
    }

    /// The number of the newest message that the agent of a chat would be given now. What follows when these are answered is not
    /// news before.
    pub(super) async fn newest_pending(
        &self,
        key: &InstanceKey,
    ) -> Result<Option<i64>, StoreError> {
        Ok(self.pending(key).await?.last().map(|message| message.seq))
    }

    async fn newest_unread_after(
        &self,
        key: &InstanceKey,
        read_up_to: i64,
    ) -> Result<Option<i64>, StoreError> {
        let (after, sender, end) = (Some(read_up_to), Some(Sender::User), ChatEnd::Newest);
        let newest =
            self.store.messages(&MessageFilter { after, sender, end, ..visible(key, 1) }).await?;
        Ok(newest.first().map(|message| message.seq))
    }
}

/// Returns the number up to which an agent that logged out of its chat has read.
pub(super) fn read_by_leaver(
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

/// Returns what people said that is not answered yet, as much as fits into one answer.
pub(super) fn pending(tx: &mut Read<'_>, key: &InstanceKey) -> Result<Vec<Message>, StoreError> {
    let (after, sender) = (Some(pairs::get(tx, key)?.read_up_to), Some(Sender::User));
    let unread = MessageFilter { after, sender, ..visible(key, MAX_PENDING) };
    let mut pending = messages::list(tx, &unread)?;
    let contents = pending.iter().map(|message| message.content.as_str());
    pending.truncate(n_fitting(contents, PENDING_BYTES));
    Ok(pending)
}

/// Returns the number of the newest message of a person after `read_up_to`.
pub(super) fn newest_unread_after(
    tx: &mut Read<'_>,
    key: &InstanceKey,
    read_up_to: i64,
) -> Result<Option<i64>, StoreError> {
    let (after, sender, end) = (Some(read_up_to), Some(Sender::User), ChatEnd::Newest);
    let newest = MessageFilter { after, sender, end, ..visible(key, 1) };
    Ok(messages::list(tx, &newest)?.first().map(|message| message.seq))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this is what the agent said last, in this very session, and nothing that it was given waits for an answer.
fn is_repeated(last: &Message, content: &str, session: &Session, record: &PairRecord) -> bool {
    last.content == content
        && last.created_at >= session.created_at
        && record.read_up_to >= session.handed_out
}

fn newest_fitting(mut messages: Vec<Message>, budget: usize) -> Vec<Message> {
    let contents = messages.iter().rev().map(|message| message.content.as_str());
    // One that is too long by itself isn't needed for the context.
    let n_fitting = contents
        .clone()
        .next()
        .filter(|content| content.len() <= budget)
        .map_or(0, |_| n_fitting(contents, budget));
    messages.split_off(messages.len() - n_fitting)
}

/// What anybody is shown of a chat, the oldest first.
pub(super) fn visible(key: &InstanceKey, limit: usize) -> MessageFilter {
    MessageFilter {
        only_visible: true,
        ..MessageFilter::oldest(key.agent.clone(), key.project.clone(), limit)
    }
}
