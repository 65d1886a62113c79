//! Chat (seed 003), the people's half: opening and closing a chat, saying something, reading what was said.
//!
//! A wish for a chat (seed 003's PendingAgentPurpose) is kept with the key: it is made by opening the chat, and by whatever is
//! said while no agent listens; it ends when the agent comes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::crash_point::{self, CrashPoint};
use crate::domain::agent::{AgentStatus, ProjectStatus};
use crate::domain::chat::{Sender, said};
use crate::domain::event::NewEvent;
use crate::domain::id::{AgentId, MessageId, ProjectId};
use crate::domain::launch::LaunchEvent;
use crate::domain::{
    Assignment, InstanceKey, Launch, LaunchId, LaunchState, Message, PairFacts, Purpose, Refusal,
};
use crate::store::{Change, ChatEnd, Commit, Expect, MessageFilter};

use super::chat::visible;
use super::coordination::log_end;
use super::{Service, ServiceError};

/// How many sessions of an agent in a project are open, by purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenSessions {
    pub chat: u32,
    pub task: u32,
}

/// Which part of a chat is read: the first messages after one, else the last ones, else the last ones before one.
#[derive(Debug, Clone)]
pub struct ChatPage {
    pub after: Option<MessageId>,
    pub before: Option<MessageId>,
    pub limit: usize,
}

/// A part of a chat.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// In their order.
    pub messages: Vec<Message>,
    /// Where the next page begins, if there is more: after the last of these when it was asked for what comes after one,
    /// otherwise before the first.
    pub next: Option<MessageId>,
}

impl Service {
    /// Opens a chat: its agent is started, if it isn't there. A hold and a back-off of the chat end, because a person asks.
    /// Repeated while it is open or on its way, it changes nothing.
    ///
    /// # Errors
    /// `AgentNotFound`, `ProjectNotFound`, `NotAssigned`, `Inactive`.
    pub async fn start_chat(
        &self,
        agent: &AgentId,
        project: &ProjectId,
    ) -> Result<(), ServiceError> {
        let key = InstanceKey::new(agent.clone(), project.clone(), Purpose::Chat);
        self.transact(|| async {
            let facts = self.store.pair_facts(&key).await?;
            check_may_chat(&facts)?;
            let (is_coming, is_there) = (is_open(&facts), listens(&facts));
            let expect = vec![self.hold_still(&facts).await?];
            let now = self.now();
            let record = facts.record.clone().released();
            let record = if is_there { record } else { record.wanted(now) };
            let mut changes = Vec::new();
            if !is_coming && facts.record.wanted_since.is_none() {
                let content = self.guidance().chat_started().to_owned();
                let opening = Message {
                    sender: Sender::System,
                    is_visible: false,
                    ..self.new_message(None, &key, content)
                };
                changes.push(Change::Message(opening));
                changes.push(Change::Event(self.chat_event("chat.started", &key)));
            }
            if record != facts.record {
                changes.push(Change::Pair(record));
            }
            Ok((Commit { expect, changes }, ()))
        })
        .await
    }

    /// Closes a chat: nobody is wanted for it, and its agent is told to go; its process has `run.linger` to do so. Repeating it
    /// changes nothing. What was not answered is kept for the next time.
    ///
    /// # Errors
    /// `AgentNotFound`, `ProjectNotFound`.
    pub async fn end_chat(&self, agent: &AgentId, project: &ProjectId) -> Result<(), ServiceError> {
        let key = InstanceKey::new(agent.clone(), project.clone(), Purpose::Chat);
        self.check_known(agent, project).await?;
        let ended = self
            .transact(|| async {
                // All in one commit, or a launch that ends in between wants somebody back for what it leaves unread.
                let facts = self.store.pair_facts(&key).await?;
                let (Commit { mut expect, mut changes }, ended) = match &facts.open {
                    Some(open) => self.told_that_chat_ended(&open.id).await?,
                    None => Default::default(),
                };
                expect.push(self.hold_still(&facts).await?);
                // After the launch: its end and the wish that it leaves are one commit, so that who sees the end sees the wish.
                let record = self.store.pair(&key).await?;
                let is_wanted = record.wanted_since.is_some();
                // A launch without a process is over at once, and what is remembered of it is written then.
                let written = changes.iter_mut().find_map(|change| match change {
                    Change::Pair(record) => Some(record),
                    _ => None,
                });
                match written {
                    Some(written) => *written = written.clone().unwanted(),
                    None if is_wanted => changes.push(Change::Pair(record.unwanted())),
                    None => expect.push(Expect::PairAt(key.clone(), record.revision)),
                }
                if is_wanted {
                    changes.push(Change::Event(self.chat_event("chat.ended", &key)));
                }
                Ok((Commit { expect, changes }, ended))
            })
            .await?;
        crash_point::reach(CrashPoint::StopWanted);
        if let Some(launch) = ended {
            self.activities.forget(&launch.id);
            log_end(&launch);
        }
        Ok(())
    }

    /// What makes a launch one whose chat people ended; the launch, if that is its end.
    async fn told_that_chat_ended(
        &self,
        id: &LaunchId,
    ) -> Result<(Commit, Option<Launch>), ServiceError> {
        let Some(before) = self.store.launch(id).await? else {
            return Ok(Default::default());
        };
        let now = self.now();
        let event = LaunchEvent::ChatEnded { at: now, patience: self.settings().linger };
        let Some(after) = self.after(&before, &[event]) else {
            return Ok(Default::default());
        };
        let ended = (before.is_open() && !after.is_open()).then(|| after.clone());
        Ok((self.commit_to(&before, after, now).await?, ended))
    }

    /// The sessions that are open now, of everyone who is assigned to the project.
    ///
    /// # Errors
    /// `ProjectNotFound`.
    pub async fn agent_sessions(
        &self,
        project: &ProjectId,
    ) -> Result<BTreeMap<AgentId, OpenSessions>, ServiceError> {
        let (_, members) = self.project(project).await?;
        let mut sessions: BTreeMap<AgentId, OpenSessions> =
            members.into_iter().map(|agent| (agent, OpenSessions::default())).collect();
        for launch in self.store.open_launches().await? {
            if launch.key.project != *project
                || !matches!(launch.state, LaunchState::Running { .. })
            {
                continue;
            }
            let of_agent = sessions.entry(launch.key.agent).or_default();
            match launch.key.purpose {
                Purpose::Chat => of_agent.chat += 1,
                Purpose::Task => of_agent.task += 1,
            }
        }
        Ok(sessions)
    }

    /// A person says something. With an id of the client's choice it can be repeated: it is said once. Where no agent listens,
    /// one is wanted from then on.
    ///
    /// # Errors
    /// As [`Service::start_chat`]; `Invalid` for a content that is none; `AlreadyExists` if the id is that of something else.
    pub async fn say(
        &self,
        agent: &AgentId,
        project: &ProjectId,
        id: Option<&MessageId>,
        content: &str,
    ) -> Result<Message, ServiceError> {
        let content = said(content)?;
        let content = content.as_ref();
        let key = InstanceKey::new(agent.clone(), project.clone(), Purpose::Chat);
        self.transact(|| async {
            let facts = self.store.pair_facts(&key).await?;
            check_may_chat(&facts)?;
            if let Some(said) = self.said_before(id, &key, content).await? {
                return Ok((Commit::default(), said));
            }
            let message = self.new_message(id, &key, content.to_owned());
            let mut expect = vec![self.hold_still(&facts).await?];
            let mut changes =
                vec![Change::Event(message_event(&message)), Change::Message(message.clone())];
            if let Some(open) = facts.open.as_ref().filter(|_| listens(&facts)) {
                self.chat_goes_on(&open.id);
            } else {
                let record = facts.record.clone().wanted(message.created_at);
                if record == facts.record {
                    expect.push(Expect::PairAt(key.clone(), record.revision));
                } else {
                    changes.push(Change::Pair(record));
                }
            }
            Ok((Commit { expect, changes }, message))
        })
        .await
    }

    /// What was said, as far as anybody is shown it. With `patience`, an empty page after a message is waited with for so long
    /// that something is said. Cancel-safe.
    ///
    /// # Errors
    /// `AgentNotFound`, `ProjectNotFound`; `MessageNotFound` for a message that is not one of this chat.
    pub async fn conversation(
        &self,
        agent: &AgentId,
        project: &ProjectId,
        page: &ChatPage,
        patience: Duration,
    ) -> Result<Conversation, ServiceError> {
        self.check_known(agent, project).await?;
        let key = InstanceKey::new(agent.clone(), project.clone(), Purpose::Chat);
        let chat = Assignment { project: project.clone(), agent: agent.clone() };
        let mut news = self.waiting.watchers.listen(chat);
        let mut time_is_up = std::pin::pin!(tokio::time::sleep(patience));
        loop {
            let found = self.read_page(&key, page).await?;
            if !found.messages.is_empty() || patience.is_zero() || time_is_up.is_elapsed() {
                return Ok(found);
            }
            tokio::select! {
                () = news.woken() => {}
                () = self.ending.cancelled() => return Ok(found),
                () = &mut time_is_up => {}
            }
        }
    }

    async fn read_page(
        &self,
        key: &InstanceKey,
        page: &ChatPage,
    ) -> Result<Conversation, ServiceError> {
        let (after, before) = (
            self.place_of(page.after.as_ref(), key).await?,
            self.place_of(page.before.as_ref(), key).await?,
        );
        let end = if after.is_some() { ChatEnd::Oldest } else { ChatEnd::Newest };
        let filter =
            MessageFilter { after, before, end, ..visible(key, page.limit.saturating_add(1)) };
        let mut messages = self.store.messages(&filter).await?;
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
        Ok(Conversation { messages, next })
    }

    async fn place_of(
        &self,
        id: Option<&MessageId>,
        key: &InstanceKey,
    ) -> Result<Option<i64>, ServiceError> {
        let Some(id) = id else { return Ok(None) };
        let message = self.store.message(id).await?.filter(|message| is_of(message, key));
        Ok(Some(message.ok_or_else(|| Refusal::MessageNotFound { message: id.clone() })?.seq))
    }

    async fn said_before(
        &self,
        id: Option<&MessageId>,
        key: &InstanceKey,
        content: &str,
    ) -> Result<Option<Message>, ServiceError> {
        let Some(id) = id else { return Ok(None) };
        match self.store.message(id).await? {
            None => Ok(None),
            Some(said)
                if is_of(&said, key) && said.sender == Sender::User && said.content == content =>
            {
                Ok(Some(said))
            }
            Some(_) => Err(Refusal::AlreadyExists(format!("message {id}")).into()),
        }
    }

    /// What a decision relies on that looked at the open launch of a chat, or saw that there is none.
    async fn hold_still(&self, facts: &PairFacts) -> Result<Expect, ServiceError> {
        let Some(open) = &facts.open else {
            return Ok(Expect::NoOpenLaunch(facts.key.clone()));
        };
        let launch = self.store.launch(&open.id).await?.filter(|launch| launch.state == open.state);
        // Changed between two looks: a revision that no launch has, so that both are taken anew.
        Ok(Expect::LaunchAt(open.id.clone(), launch.map_or(-1, |launch| launch.revision)))
    }

    fn new_message(&self, id: Option<&MessageId>, key: &InstanceKey, content: String) -> Message {
        Message {
            seq: 0,
            id: id.cloned().unwrap_or_else(|| self.world.new_id(MessageId::PREFIX)),
            agent: key.agent.clone(),
            project: key.project.clone(),
            sender: Sender::User,
            content,
            created_at: self.now(),
            is_visible: true,
        }
    }

    fn chat_event(&self, kind: &'static str, key: &InstanceKey) -> NewEvent {
        NewEvent {
            at: self.now(),
            kind,
            agent: Some(key.agent.clone()),
            project: Some(key.project.clone()),
            launch: None,
            task: None,
            detail: None,
        }
    }
}

/// The event that tells of a message, without what it says.
pub(super) fn message_event(message: &Message) -> NewEvent {
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

fn is_of(message: &Message, key: &InstanceKey) -> bool {
    message.agent == key.agent && message.project == key.project
}

/// Whether an agent has a session and isn't on its way out.
fn listens(facts: &PairFacts) -> bool {
    facts.open.as_ref().is_some_and(|open| matches!(open.state, LaunchState::Running { .. }))
}

/// Whether an agent listens or is about to.
fn is_open(facts: &PairFacts) -> bool {
    let is_starting = |open: &LaunchState| matches!(open, LaunchState::Starting { .. });
    listens(facts) || facts.open.as_ref().is_some_and(|open| is_starting(&open.state))
}

fn check_may_chat(facts: &PairFacts) -> Result<(), Refusal> {
    let InstanceKey { agent, project, .. } = &facts.key;
    match (&facts.agent, &facts.project) {
        (None, _) => Err(Refusal::AgentNotFound { agent: agent.clone() }),
        (_, None) => Err(Refusal::ProjectNotFound { project: project.clone() }),
        _ if !facts.is_assigned => {
            Err(Refusal::NotAssigned { agent: agent.clone(), project: project.clone() })
        }
        (Some((AgentStatus::Active, _)), Some((ProjectStatus::Active, _))) => Ok(()),
        _ => Err(Refusal::Inactive),
    }
}
