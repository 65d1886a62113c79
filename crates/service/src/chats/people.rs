//! Chat, the people's half: opening and closing a chat, writing and reading messages.
//!
//! A wish for a chat is kept with the key. It begins when a person opens the chat, or writes a
//! message while no agent listens. It ends when the agent comes.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::chat::{Sender, check_may_chat, is_open, listens, said};
use domain::event::NewEvent;
use domain::id::{AgentId, MessageId, ProjectId};
use domain::launch::LaunchEvent;
use domain::{
    Assignment, InstanceKey, LaunchState, Message, Purpose, Refusal, StartHistory, Timestamp,
};
use machine::crash_point::{self, CrashPoint};
use store::rows::{Transaction, assignments, launches, messages, start_histories, startable};
use store::{ChatEnd, MessageFilter, Read, StoreError};

use super::agents::visible;
use super::{Chats, silence};
use crate::core::Core;
use crate::launches::operate::check_known;
use crate::{Heard, ServiceError, catalog};

/// The number of open sessions of an agent in a project, by purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenSessions {
    pub chat: u32,
    pub task: u32,
}

/// The part of a chat to read: the first messages after a message, or the last messages before one,
/// or the last messages of all.
#[derive(Debug, Clone)]
pub struct ChatPage {
    pub after: Option<MessageId>,
    pub before: Option<MessageId>,
    pub limit: usize,
    /// True if the request is an open view of the chat.
    pub is_view: bool,
}

/// A part of a chat.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// The messages in their order.
    pub messages: Vec<Message>,
    /// True if the agent has answered all messages of people.
    pub is_answered: bool,
    /// True if no agent is there or on its way, or if people have ended the chat.
    pub is_over: bool,
    /// The beginning of the next page, if there is more. A request for later messages continues
    /// after the last of these; other requests continue before the first.
    pub next: Option<MessageId>,
}

impl Chats {
    /// Opens a chat, and starts its agent if it does not run. A hold and a back-off of the chat
    /// end, because a person asks. Repeating it while the chat is open or starting changes nothing.
    ///
    /// # Errors
    /// `AgentNotFound`, `ProjectNotFound`, `NotAssigned`, `Inactive`.
    pub async fn start(&self, agent: &AgentId, project: &ProjectId) -> Result<(), ServiceError> {
        let key = InstanceKey::new(agent.clone(), project.clone(), Purpose::Chat);
        let opening = self.core.guidance().chat_started();
        self.core
            .write(move |tx| {
                let facts = startable::of_key(tx, &key)?;
                check_may_chat(&facts)?;
                if !is_open(&facts) && facts.record.wanted_since.is_none() {
                    let opening = Message {
                        sender: Sender::System,
                        author: None,
                        is_visible: false,
                        ..new_message(tx, None, &key, opening.to_owned())
                    };
                    messages::add(tx, &opening)?;
                    tx.event(chat_event("chat.started", tx.now(), &key));
                }
                let record = facts.record.clone().released();
                let record = if listens(&facts) { record } else { record.wanted(tx.now()) };
                start_histories::write(tx, &facts.record, &record)?;
                Ok(())
            })
            .await
    }

    /// Closes a chat: ends the wish for it, and tells its agent to log out. The process has
    /// `run.linger` to end. Repeating it changes nothing.
    ///
    /// # Errors
    /// `AgentNotFound`, `ProjectNotFound`.
    pub async fn end(&self, agent: &AgentId, project: &ProjectId) -> Result<(), ServiceError> {
        end(&self.core, &self.heard, agent, project).await
    }

    /// Adds a message of a person. With an id that the client chose, the call can be repeated
    /// without a second message. If no agent listens, the chat wants an agent from then on.
    ///
    /// # Errors
    /// The errors of [`Chats::start`]; `Invalid` for an invalid content; `AlreadyExists` if another
    /// message has the id.
    pub async fn say(
        &self,
        agent: &AgentId,
        project: &ProjectId,
        id: Option<&MessageId>,
        content: &str,
    ) -> Result<Message, ServiceError> {
        let content = said(content)?.into_owned();
        let key = InstanceKey::new(agent.clone(), project.clone(), Purpose::Chat);
        let id = id.cloned();
        let of = key.clone();
        let by = id.clone();
        let text = content.clone();
        let look = self.core.read(move |tx| {
            let facts = startable::of_key(tx, &of)?;
            check_may_chat(&facts)?;
            Ok((said_before(tx, by.as_ref(), &of, &text)?, facts))
        });
        let (said, facts) = look.await?;
        if let Some(said) = said {
            return Ok(said);
        }
        // The silence restarts before the message is written, because a chat that is about to end
        // would not wait for it.
        if let Some(open) = facts.open.as_ref().filter(|_| listens(&facts)) {
            silence::restart(&self.clocks, &open.id);
        }
        self.core
            .write(move |tx| {
                let facts = startable::of_key(tx, &key)?;
                check_may_chat(&facts)?;
                if let Some(said) = said_before(tx, id.as_ref(), &key, &content)? {
                    return Ok(said);
                }
                let message = new_message(tx, id.clone(), &key, content.clone());
                tx.event(message_event(&message));
                messages::add(tx, &message)?;
                if !listens(&facts) {
                    let record = facts.record.clone().wanted(message.created_at);
                    start_histories::write(tx, &facts.record, &record)?;
                }
                Ok(message)
            })
            .await
    }

    /// Returns the number of open sessions for each agent that is assigned to the project.
    ///
    /// # Errors
    /// `ProjectNotFound`.
    pub async fn open_sessions(
        &self,
        project: &ProjectId,
    ) -> Result<BTreeMap<AgentId, OpenSessions>, ServiceError> {
        let project = project.clone();
        self.core
            .read(move |tx| {
                catalog::project(tx, &project)?;
                let members = assignments::list(tx)?.into_iter();
                let members = members.filter(|member| member.project == project);
                let mut sessions: BTreeMap<AgentId, OpenSessions> =
                    members.map(|member| (member.agent, OpenSessions::default())).collect();
                for launch in launches::list_open(tx)? {
                    if launch.key.project == project
                        && matches!(launch.state, LaunchState::Running { .. })
                    {
                        let of_agent = sessions.entry(launch.key.agent).or_default();
                        match launch.key.purpose {
                            Purpose::Chat => of_agent.chat += 1,
                            Purpose::Task => of_agent.task += 1,
                            Purpose::Check => {}
                        }
                    }
                }
                Ok(sessions)
            })
            .await
    }

    /// Returns the visible messages. With `timeout`, an empty page after a message is held for
    /// that time, until there is a message. A view of a chat that is over is not held while there
    /// is an unanswered message. Cancel-safe.
    ///
    /// # Errors
    /// `AgentNotFound`, `ProjectNotFound`; `MessageNotFound` for a message outside this chat.
    pub async fn conversation(
        &self,
        agent: &AgentId,
        project: &ProjectId,
        page: &ChatPage,
        timeout: Duration,
    ) -> Result<Conversation, ServiceError> {
        let key = InstanceKey::new(agent.clone(), project.clone(), Purpose::Chat);
        let chat = Assignment { project: project.clone(), agent: agent.clone() };
        let mut news = self.waiting.watchers.listen(chat.clone());
        let mut view = None;
        let mut time_is_up = std::pin::pin!(tokio::time::sleep(timeout));
        loop {
            let of = key.clone();
            let page = page.clone();
            let is_view = page.is_view;
            let found = self.core.read(move |tx| read_page(tx, &of, &page)).await?;
            if is_view && found.is_over && !found.is_answered {
                return Ok(found);
            }
            if is_view && view.is_none() {
                view = Some(self.attend(chat.clone()));
            }
            if !found.messages.is_empty() || timeout.is_zero() || time_is_up.is_elapsed() {
                return Ok(found);
            }
            tokio::select! {
                biased;
                () = news.woken() => {}
                () = self.ending.cancelled() => return Ok(found),
                () = &mut time_is_up => {}
            }
        }
    }
}

/// Closes a chat: ends the wish for it, and tells its agent to log out. The process has
/// `run.linger` to end. Repeating it changes nothing. Unanswered messages are kept for the next
/// time.
///
/// # Errors
/// `AgentNotFound`, `ProjectNotFound`.
pub(crate) async fn end(
    core: &Core,
    heard: &Heard,
    agent: &AgentId,
    project: &ProjectId,
) -> Result<(), ServiceError> {
    let of = InstanceKey::new(agent.clone(), project.clone(), Purpose::Chat);
    let inputs = heard.inputs(core);
    core.write(move |tx| {
        check_known(tx, &of.agent, &of.project)?;
        let is_wanted = start_histories::get(tx, &of)?.wanted_since.is_some();
        // The stop is in one transaction with the end of the wish, because the end of a launch with
        // unread messages makes a new wish.
        if let Some(open) = startable::of_key(tx, &of)?.open
            && let Some(before) = launches::get(tx, &open.id)?
        {
            let at = tx.now();
            let exit_grace = inputs.settings.run.linger;
            let event = LaunchEvent::ChatEnded { at, exit_grace };
            inputs.happen(tx, &before, &[event])?;
        }
        start_histories::change(tx, &of, StartHistory::unwanted)?;
        if is_wanted {
            tx.event(chat_event("chat.ended", tx.now(), &of));
        }
        Ok(())
    })
    .await?;
    crash_point::reach(CrashPoint::StopWanted);
    Ok(())
}

fn read_page(
    tx: &mut Read<'_>,
    key: &InstanceKey,
    page: &ChatPage,
) -> Result<Conversation, ServiceError> {
    check_known(tx, &key.agent, &key.project)?;
    let after = place_of(tx, page.after.as_ref(), key)?;
    let before = place_of(tx, page.before.as_ref(), key)?;
    let end = if after.is_some() { ChatEnd::Oldest } else { ChatEnd::Newest };
    let filter = MessageFilter { after, before, end, ..visible(key, page.limit.saturating_add(1)) };
    let mut messages = messages::list(tx, &filter)?;
    let surplus = messages.len().saturating_sub(page.limit);
    let next = match end {
        ChatEnd::Oldest => {
            messages.truncate(page.limit);
            messages.last()
        }
        ChatEnd::Newest => {
            messages.drain(..surplus);
            messages.first()
        }
    };
    let next = next.filter(|_| surplus > 0).map(|message| message.id.clone());
    let is_answered = silence::is_answered(tx, key)?;
    let is_over = is_over(tx, key)?;
    Ok(Conversation { messages, is_answered, is_over, next })
}

/// Returns whether a message would have to open the chat again.
fn is_over(tx: &mut Read<'_>, key: &InstanceKey) -> Result<bool, StoreError> {
    let facts = startable::of_key(tx, key)?;
    let open = facts.open.map(|open| launches::get(tx, &open.id)).transpose()?.flatten();
    let goes_on = open.is_some_and(|launch| !launch.is_chat_over);
    Ok(!goes_on && facts.record.wanted_since.is_none())
}

fn place_of(
    tx: &mut Read<'_>,
    id: Option<&MessageId>,
    key: &InstanceKey,
) -> Result<Option<i64>, ServiceError> {
    let Some(id) = id else { return Ok(None) };
    let message = messages::get(tx, id)?.filter(|message| message.is_in(key));
    Ok(Some(message.ok_or_else(|| Refusal::MessageNotFound { message: id.clone() })?.seq))
}

fn said_before(
    tx: &mut Read<'_>,
    id: Option<&MessageId>,
    key: &InstanceKey,
    content: &str,
) -> Result<Option<Message>, ServiceError> {
    let Some(id) = id else { return Ok(None) };
    match messages::get(tx, id)? {
        None => Ok(None),
        Some(said) if said.is_in(key) && said.sender == Sender::User && said.content == content => {
            Ok(Some(said))
        }
        Some(_) => {
            Err(Refusal::AlreadyExists { what: format!("message {id}"), field: None }.into())
        }
    }
}

/// Returns a message of a person, which is not stored yet.
fn new_message(
    tx: &mut Transaction<'_>,
    id: Option<MessageId>,
    key: &InstanceKey,
    content: String,
) -> Message {
    Message {
        seq: 0,
        id: id.unwrap_or_else(|| tx.new_id(MessageId::PREFIX)),
        agent: key.agent.clone(),
        project: key.project.clone(),
        sender: Sender::User,
        author: tx.author(),
        content,
        created_at: tx.now(),
        is_visible: true,
    }
}

fn chat_event(kind: &'static str, at: Timestamp, key: &InstanceKey) -> NewEvent {
    NewEvent { detail: None, ..NewEvent::of_pair(kind, at, key) }
}

/// Returns the event of a message, without its content.
pub(crate) fn message_event(message: &Message) -> NewEvent {
    NewEvent {
        at: message.created_at,
        kind: "chat.message",
        agent: Some(message.agent.clone()),
        project: Some(message.project.clone()),
        launch: None,
        task: None,
        detail: Some(message.id.to_string()),
    }
}
