//! The chat panel: the messages, whether the agent listens, and a field for a message.
//!
//! Messages are those of REST, under an id that the panel chooses: a repeated request writes the
//! message once. Only problems differ: they are in the language of the page. The panel fetches
//! answers after the last message that it has, in the order of the server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;

use super::layout::{Frame, rendered};
use super::markdown::Markdown;
use super::shown::{Face, Faces, When, persons};
use super::waits::{About, WhyLine};
use crate::domain::chat::Sender;
use crate::domain::start_history::StartReason;
use crate::domain::{
    AgentId, Message, MessageId, Project, ProjectId, ProjectKey, Purpose, Refusal,
};
use crate::rest::extract::{InPath, InQuery};
use crate::rest::routes::chat;
use crate::rest::routes::why::WhyBody;
use crate::rest::{Problem, RestState};
use crate::service::ChatPage;

/// The number of messages that are fetched at once.
const PAGE: usize = 50;

#[derive(Template)]
#[template(path = "parts/chat.html")]
struct ChatPart {
    frame: Frame,
    project: Project,
    agent: Face,
    agent_name: String,
    messages: Vec<ShownMessage>,
    keys: BTreeSet<ProjectKey>,
    has_earlier: bool,
    standing: ChatState,
}

#[derive(Template)]
#[template(path = "parts/messages.html")]
struct MessagesPart {
    frame: Frame,
    agent_name: String,
    messages: Vec<ShownMessage>,
    keys: BTreeSet<ProjectKey>,
}

#[derive(Template)]
#[template(path = "parts/chat_standing.html")]
struct ChatStatePart {
    frame: Frame,
    standing: ChatState,
}

struct ShownMessage {
    id: MessageId,
    is_ours: bool,
    /// The name of another person who wrote it.
    author: Option<String>,
    content: String,
    at: When,
}

impl ShownMessage {
    /// Returns messages with the names of the other people who wrote some.
    async fn all(messages: Vec<Message>, frame: &Frame) -> Vec<Self> {
        let authors = messages.iter().filter_map(|message| message.author.as_ref());
        let names = persons(authors).await;
        messages.into_iter().map(|message| Self::of(message, &names, frame)).collect()
    }

    fn of(message: Message, names: &BTreeMap<String, String>, frame: &Frame) -> Self {
        let reader = frame.operator.as_ref().map(|operator| operator.name.as_str());
        let is_ours = message.sender != Sender::Agent;
        let other = message.author.filter(|author| is_ours && Some(author.as_str()) != reader);
        Self {
            is_ours,
            author: other.map(|author| names.get(&author).cloned().unwrap_or(author)),
            id: message.id,
            content: message.content,
            at: When(message.created_at),
        }
    }
}

/// The state of the agent of a chat.
struct ChatState {
    is_ready: bool,
    /// True if the agent is not there and no start is wanted. The next message starts it.
    is_gone: bool,
    /// The condition that delays its start for longer than usual.
    why: Option<WhyLine>,
    /// True if a message is accepted now. A chat that waits accepts it for later.
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
        .route("/ui/parts/projects/{project}/agents/{agent}/chat", get(panel))
        .route("/ui/parts/projects/{project}/agents/{agent}/chat/standing", get(standing))
        .route("/ui/parts/projects/{project}/agents/{agent}/chat/messages", get(messages))
        .route("/ui/do/projects/{project}/agents/{agent}/chat/start", post(chat::start_with))
        .route("/ui/do/projects/{project}/agents/{agent}/chat/messages", post(chat::say))
}

async fn panel(
    frame: Frame,
    State(state): State<RestState>,
    InPath((project, agent)): InPath<(ProjectId, AgentId)>,
) -> Result<Response, Problem> {
    let (project, members) = state.service.catalog.project(&project).await?;
    let open = state.service.launches.open().await?;
    let faces = Faces::new(state.service.catalog.agents().await?, &open, Some(&project.id));
    let face = faces.of(&agent).ok_or_else(|| Refusal::AgentNotFound { agent: agent.clone() })?;
    if !members.contains(&agent) {
        return Err(Refusal::NotAssigned { agent, project: project.id }.into());
    }
    let page = ChatPage { after: None, before: None, limit: PAGE };
    let found =
        state.service.chats.conversation(&agent, &project.id, &page, Duration::ZERO).await?;
    let standing = ChatState::of(&frame, &state, &agent, &project.id).await?;
    // An open panel makes the server start the agent, so the agent will come.
    let is_coming = standing.is_gone && frame.may_change();
    let standing =
        if is_coming { ChatState { is_gone: false, may_say: false, ..standing } } else { standing };
    let messages = ShownMessage::all(found.messages, &frame).await;
    let keys = state.service.catalog.project_keys().await?;
    Ok(rendered(&ChatPart {
        keys,
        frame,
        project,
        agent_name: face.name.clone(),
        agent: face,
        messages,
        has_earlier: found.next.is_some(),
        standing,
    }))
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
    let page = ChatPage { after: query.after, before: query.before, limit: PAGE };
    let found = state.service.chats.conversation(&agent, &project, &page, Duration::ZERO).await?;
    let has_more = found.next.is_some();
    let messages = ShownMessage::all(found.messages, &frame).await;
    let agent_name = state.service.catalog.agent(&agent).await?.name;
    let keys = state.service.catalog.project_keys().await?;
    let mut response = rendered(&MessagesPart { frame, agent_name, messages, keys });
    if has_more {
        response.headers_mut().insert("has-more", axum::http::HeaderValue::from_static("true"));
    }
    Ok(response)
}

impl ChatState {
    async fn of(
        frame: &Frame,
        state: &RestState,
        agent: &AgentId,
        project: &ProjectId,
    ) -> Result<Self, Problem> {
        let sessions = state.service.chats.open_sessions(project).await?;
        let is_ready = sessions.get(agent).is_some_and(|open| open.chat > 0);
        let why = state.service.launches.why(agent, project).await?.into_iter().map(WhyBody::from);
        let why = why.into_iter().find(|why| why.purpose == Purpose::Chat);
        let reason = why.as_ref().map(|why| why.reason);
        Ok(match reason {
            _ if is_ready => Self { is_ready, is_gone: false, why: None, may_say: true },
            Some(StartReason::NoWork) => Self { is_ready, is_gone: true, why: None, may_say: true },
            None | Some(StartReason::Ready | StartReason::Starting | StartReason::Running) => {
                Self { is_ready, is_gone: false, why: None, may_say: false }
            }
            Some(reason) => {
                let waiting = why.as_ref().and_then(WhyBody::waiting);
                let about = About { agent: Some(agent), project: Some(project), task: None };
                Self {
                    is_ready,
                    is_gone: false,
                    why: waiting.map(|waiting| WhyLine::of(frame.w, &waiting, about)),
                    may_say: !reason.refuses_messages(),
                }
            }
        })
    }
}
