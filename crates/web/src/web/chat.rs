//! A chat, as a panel and as a page: the messages, the state of the agent, and a field to write in.
//!
//! Messages are those of REST, under an id that the page chooses: a repeated request writes the
//! message once. Only problems differ: they are in the language of the page. The page fetches
//! answers after the last message that it has, in the order of the server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;

use super::layout::{Frame, NavSection, page_and_part, rendered};
use super::markdown::Markdown;
use super::shown::{Clock, Elapsed, Face, Faces, hue_of, initials_of};
use super::waits::{About, WhyLine};
use crate::extract::{InPath, InQuery};
use crate::routes::chat;
use crate::{Problem, RestState};
use domain::chat::Sender;
use domain::start_history::StartReason;
use domain::{
    Agent, AgentId, InstanceKey, LaunchState, Message, MessageId, Project, ProjectId, ProjectKey,
    Purpose, Refusal, Why,
};
use service::ChatPage;
use service::people;

/// The number of messages that are fetched at once.
const PAGE: usize = 50;

// The part is what a panel shows.
page_and_part! {
    ChatView "chat.html", ChatPart "parts/chat.html" { chat: Chat, is_page: bool }
}

#[derive(Template)]
#[template(path = "parts/messages.html")]
struct MessagesPart {
    frame: Frame,
    messages: Vec<ShownMessage>,
    keys: BTreeSet<ProjectKey>,
}

#[derive(Template)]
#[template(path = "parts/chat_standing.html")]
struct ChatStatePart {
    frame: Frame,
    standing: ChatState,
}

/// A chat with its newest messages.
struct Chat {
    project: Project,
    agent: Face,
    messages: Vec<ShownMessage>,
    keys: BTreeSet<ProjectKey>,
    has_earlier: bool,
    standing: ChatState,
    /// The frame of the messages that the reader will write.
    own: ShownMessage,
}

struct ShownMessage {
    id: Option<MessageId>,
    /// True if a person wrote it.
    is_ours: bool,
    /// True if the reader wrote it.
    is_mine: bool,
    name: String,
    initials: String,
    /// One of eight colours.
    hue: u8,
    content: String,
    at: Option<Clock>,
}

impl ShownMessage {
    /// Returns messages with the names of the people who wrote some.
    async fn all(messages: Vec<Message>, agent: &Face, frame: &Frame) -> Vec<Self> {
        let authors = messages.iter().filter_map(|message| message.author.as_ref());
        let names = people::names_of(authors).await;
        messages.into_iter().map(|message| Self::of(message, agent, &names, frame)).collect()
    }

    fn of(message: Message, agent: &Face, names: &BTreeMap<String, String>, frame: &Frame) -> Self {
        let shown = if message.sender == Sender::Agent {
            Self {
                name: agent.name.clone(),
                initials: agent.initials.clone(),
                hue: agent.hue,
                ..Self::by("", "", frame)
            }
        } else {
            let author = message.author.as_deref().unwrap_or_default();
            Self::by(author, names.get(author).map_or(author, String::as_str), frame)
        };
        Self {
            is_ours: message.sender != Sender::Agent,
            id: Some(message.id),
            content: message.content,
            at: Some(Clock(message.created_at)),
            ..shown
        }
    }

    /// Returns an empty message of a person. Without a name, an earlier version wrote it.
    fn by(author: &str, name: &str, frame: &Frame) -> Self {
        let reader = frame.operator.as_ref().map(|operator| operator.name.as_str());
        let name = if name.is_empty() { frame.w.of_unknown_author() } else { name };
        Self {
            id: None,
            is_ours: true,
            is_mine: Some(author) == reader,
            initials: initials_of(name),
            hue: hue_of(name),
            name: name.to_owned(),
            content: String::new(),
            at: None,
        }
    }

    /// Returns an empty message of the reader.
    async fn own(frame: &Frame) -> Self {
        let reader = frame.operator.as_ref().map(|operator| operator.name.clone());
        let names = people::names_of(reader.iter()).await;
        let author = reader.as_deref().unwrap_or_default();
        Self::by(author, names.get(author).map_or(author, String::as_str), frame)
    }
}

/// The state of the agent of a chat.
struct ChatState {
    is_ready: bool,
    /// The time since which the agent could write an answer; `None` if nothing waits for one.
    writes_since: Option<Elapsed>,
    /// True if the agent is not there and no start is wanted. The next message starts it.
    is_gone: bool,
    /// The condition that delays its start for longer than usual.
    why: Option<WhyLine>,
    /// True if a message is accepted. A chat whose agent is not there keeps it for the agent.
    may_say: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MessagesQuery {
    after: Option<MessageId>,
    before: Option<MessageId>,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/projects/{project}/chat/{agent}", get(show))
        .route("/ui/parts/projects/{project}/agents/{agent}/chat", get(show))
        .route("/ui/parts/projects/{project}/agents/{agent}/chat/standing", get(standing))
        .route("/ui/parts/projects/{project}/agents/{agent}/chat/messages", get(messages))
        .route("/ui/do/projects/{project}/agents/{agent}/chat/start", post(chat::start_with))
        .route("/ui/do/projects/{project}/agents/{agent}/chat/end", post(chat::end_with))
        .route("/ui/do/projects/{project}/agents/{agent}/chat/messages", post(chat::say))
}

async fn show(
    frame: Frame,
    State(state): State<RestState>,
    InPath((project, agent)): InPath<(ProjectId, AgentId)>,
) -> Result<Response, Problem> {
    let chat = Chat::read(&frame, &state, &project, &agent).await?;
    let is_page = !frame.is_part();
    Ok(ChatView { frame: frame.at(NavSection::Projects), chat, is_page }.shown())
}

async fn standing(
    frame: Frame,
    State(state): State<RestState>,
    InPath((project, agent)): InPath<(ProjectId, AgentId)>,
) -> Result<Response, Problem> {
    let standing = ChatState::of(&frame, &state, &agent, &project).await?;
    Ok(rendered(&ChatStatePart { frame, standing }))
}

async fn messages(
    frame: Frame,
    State(state): State<RestState>,
    InPath((project, agent)): InPath<(ProjectId, AgentId)>,
    InQuery(query): InQuery<MessagesQuery>,
) -> Result<Response, Problem> {
    let page = ChatPage { after: query.after, before: query.before, limit: PAGE, is_view: false };
    let found = state.service.chats.conversation(&agent, &project, &page, Duration::ZERO).await?;
    let has_more = found.next.is_some();
    let agent: Agent = state.service.catalog.agent(&agent).await?;
    let messages = ShownMessage::all(found.messages, &Face::of(&agent, false), &frame).await;
    let keys = state.service.catalog.project_keys().await?;
    let mut response = rendered(&MessagesPart { frame, messages, keys });
    if has_more {
        response.headers_mut().insert("has-more", axum::http::HeaderValue::from_static("true"));
    }
    Ok(response)
}

impl Chat {
    async fn read(
        frame: &Frame,
        state: &RestState,
        project: &ProjectId,
        agent: &AgentId,
    ) -> Result<Self, Problem> {
        let (project, members) = state.service.catalog.project(project).await?;
        let faces = Faces::read(state, &project.id).await?;
        let face =
            faces.of(agent).ok_or_else(|| Refusal::AgentNotFound { agent: agent.clone() })?;
        if !members.contains(agent) {
            let agent = agent.clone();
            return Err(Refusal::NotAssigned { agent, project: project.id }.into());
        }
        let page = ChatPage { after: None, before: None, limit: PAGE, is_view: false };
        let found =
            state.service.chats.conversation(agent, &project.id, &page, Duration::ZERO).await?;
        let standing = ChatState::of(frame, state, agent, &project.id).await?;
        // An open chat makes the server start the agent, so the agent will come.
        let is_gone = standing.is_gone && !frame.may_change();
        Ok(Self {
            messages: ShownMessage::all(found.messages, &face, frame).await,
            own: ShownMessage::own(frame).await,
            keys: state.service.catalog.project_keys().await?,
            has_earlier: found.next.is_some(),
            standing: ChatState { is_gone, ..standing },
            agent: face,
            project,
        })
    }

    /// Returns the address of the page of this chat.
    fn href(&self) -> String {
        format!("/ui/projects/{}/chat/{}", self.project.id, self.agent.id)
    }
}

impl ChatState {
    async fn of(
        frame: &Frame,
        state: &RestState,
        agent: &AgentId,
        project: &ProjectId,
    ) -> Result<Self, Problem> {
        let key = InstanceKey::new(agent.clone(), project.clone(), Purpose::Chat);
        let launch = state.service.launches.open().await?.into_iter().find(|open| open.key == key);
        let launch = launch.filter(|open| matches!(open.state, LaunchState::Running { .. }));
        if let Some(launch) = launch {
            let page = ChatPage { after: None, before: None, limit: 1, is_view: false };
            let found = state.service.chats.conversation(agent, project, &page, Duration::ZERO);
            let asked = found.await?.messages.pop().filter(|last| last.sender != Sender::Agent);
            let since = asked.map(|asked| Some(asked.created_at).max(launch.authenticated_at));
            return Ok(Self {
                is_ready: true,
                writes_since: since.flatten().map(Elapsed),
                ..Self::starting()
            });
        }
        let all = state.service.launches.why(agent, project).await?;
        let why = all.into_iter().find(|why| why.key.purpose == Purpose::Chat);
        let reason = why.as_ref().map(Why::reason);
        Ok(match reason {
            Some(StartReason::NoWork) => Self { is_gone: true, ..Self::starting() },
            None | Some(StartReason::Ready | StartReason::Starting | StartReason::Running) => {
                Self::starting()
            }
            Some(reason) => {
                let waiting = why.as_ref().and_then(Why::waiting);
                let about = About { agent: Some(agent), project: Some(project), task: None };
                Self {
                    why: waiting.map(|waiting| WhyLine::of(frame.w, &waiting, about)),
                    may_say: !reason.row().refuses_messages,
                    ..Self::starting()
                }
            }
        })
    }

    /// Returns the state of an agent that will come.
    const fn starting() -> Self {
        Self { is_ready: false, writes_since: None, is_gone: false, why: None, may_say: true }
    }
}
