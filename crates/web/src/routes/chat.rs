//! `/projects/{id}/chat`, `/projects/{id}/agent-sessions`, `/projects/{id}/agents/{id}/chat`:
//! people talk with agents.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};

use crate::auth::Operator;
use crate::extract::{InBody, InPath, InQuery};
use crate::openapi::{Api, about};
use crate::page::{MAX_LIMIT, limit_of};
use crate::{Problem, RestState};
use domain::limits;
use domain::{AgentId, Message, MessageId, ProjectId, Purpose, Timestamp};
use service::{ChatPage, OpenSessions};

/// With whom.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChatRequest {
    pub agent_id: AgentId,
}

/// The chat that was opened or closed.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChatBody {
    pub agent_id: AgentId,
    pub project_id: ProjectId,
    pub purpose: Purpose,
}

/// The sessions that are open now.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionsBody {
    pub agent_sessions: BTreeMap<AgentId, SessionCounts>,
}

/// The numbers of open sessions of an agent.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SessionCounts {
    pub chat: u32,
    pub task: u32,
}

/// A message of a person.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MessageRequest {
    /// An id of the client's choice. A repeated request with the same id adds no second message. The
    /// server generates one if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<MessageId>,
    #[schemars(transform = limits::CONTENT.described_as_needed())]
    pub content: String,
}

/// A message as it is shown.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessageBody {
    pub id: MessageId,
    /// `user`, or the agent's id.
    pub sender_id: String,
    /// The name of the person who wrote it; absent if no person did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    pub content: String,
    pub created_at: Timestamp,
}

/// Which messages: the first ones after one, else the last ones, else the last ones before one.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MessageQuery {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<MessageId>,
    /// At most so many; 100 without it, 1000 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    pub limit: Option<usize>,
    /// How many seconds to wait for a message, if there is none; 0 without it. More than 60 counts
    /// as 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = u64::MAX))]
    pub wait: Option<u64>,
    /// True if the request is an open view of the chat. A few seconds after its last view is
    /// closed, the chat ends. It counts only for operators. If the chat is over and a message is
    /// not answered, such a request does not wait.
    #[serde(default)]
    pub attend: bool,
}

/// Messages in their order.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessagesBody {
    pub messages: Vec<MessageBody>,
    /// True if the agent has answered all messages of people.
    // A daemon of an earlier version does not send it and the next one. It also refuses `attend`, so
    // no command waits for them there.
    #[serde(default)]
    pub is_answered: bool,
    /// True if no agent is there or on its way, or if people have ended the chat.
    #[serde(default)]
    pub is_over: bool,
    /// If there are more: `after` for the next page where `after` was given, otherwise `before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<MessageId>,
}

impl From<Message> for MessageBody {
    fn from(message: Message) -> Self {
        Self {
            sender_id: message.sender_id().to_owned(),
            id: message.id,
            author: message.author,
            content: message.content,
            created_at: message.created_at,
        }
    }
}

impl From<OpenSessions> for SessionCounts {
    fn from(OpenSessions { chat, task }: OpenSessions) -> Self {
        Self { chat, task }
    }
}

const MAX_WAIT: u64 = 60;

pub(super) fn routes() -> Api {
    let messages = "/projects/{project}/agents/{agent}/chat/messages";
    Api::new()
        .post(
            "/projects/{project}/chat/start",
            start,
            about("Opens a chat with an agent").takes::<ChatRequest>().gives::<ChatBody>(),
        )
        .post(
            "/projects/{project}/chat/end",
            end,
            about("Closes the chat with an agent").takes::<ChatRequest>().gives::<ChatBody>(),
        )
        .get(
            "/projects/{project}/agent-sessions",
            sessions,
            about("The number of open sessions of each agent").gives::<SessionsBody>(),
        )
        .post(
            "/projects/{project}/agents/{agent}/chat/start",
            start_with,
            about("Opens a chat with an agent").gives::<ChatBody>(),
        )
        .post(
            "/projects/{project}/agents/{agent}/chat/end",
            end_with,
            about("Closes the chat with an agent").gives::<ChatBody>(),
        )
        .get(messages, read, about("What was said").query::<MessageQuery>().gives::<MessagesBody>())
        .post(
            messages,
            say,
            about("Sends a message to an agent").takes::<MessageRequest>().makes::<MessageBody>(),
        )
}

async fn start(
    state: State<RestState>,
    InPath(project): InPath<ProjectId>,
    InBody(request): InBody<ChatRequest>,
) -> Result<Json<ChatBody>, Problem> {
    start_with(state, InPath((project, request.agent_id))).await
}

pub(crate) async fn start_with(
    State(state): State<RestState>,
    InPath((project, agent)): InPath<(ProjectId, AgentId)>,
) -> Result<Json<ChatBody>, Problem> {
    state.service.chats.start(&agent, &project).await?;
    tracing::info!(agent_id = %agent, project_id = %project, "a person opened a chat");
    Ok(Json(ChatBody { agent_id: agent, project_id: project, purpose: Purpose::Chat }))
}

async fn end(
    state: State<RestState>,
    InPath(project): InPath<ProjectId>,
    InBody(request): InBody<ChatRequest>,
) -> Result<Json<ChatBody>, Problem> {
    end_with(state, InPath((project, request.agent_id))).await
}

pub(crate) async fn end_with(
    State(state): State<RestState>,
    InPath((project, agent)): InPath<(ProjectId, AgentId)>,
) -> Result<Json<ChatBody>, Problem> {
    state.service.chats.end(&agent, &project).await?;
    tracing::info!(agent_id = %agent, project_id = %project, "a person closed a chat");
    Ok(Json(ChatBody { agent_id: agent, project_id: project, purpose: Purpose::Chat }))
}

async fn sessions(
    State(state): State<RestState>,
    InPath(project): InPath<ProjectId>,
) -> Result<Json<SessionsBody>, Problem> {
    let sessions = state.service.chats.open_sessions(&project).await?;
    let agent_sessions = sessions.into_iter().map(|(agent, open)| (agent, open.into())).collect();
    Ok(Json(SessionsBody { agent_sessions }))
}

pub(crate) async fn say(
    State(state): State<RestState>,
    InPath((project, agent)): InPath<(ProjectId, AgentId)>,
    InBody(request): InBody<MessageRequest>,
) -> Result<(StatusCode, Json<MessageBody>), Problem> {
    let message =
        state.service.chats.say(&agent, &project, request.id.as_ref(), &request.content).await?;
    Ok((StatusCode::CREATED, Json(message.into())))
}

async fn read(
    State(state): State<RestState>,
    InPath((project, agent)): InPath<(ProjectId, AgentId)>,
    operator: Operator,
    headers: HeaderMap,
    InQuery(query): InQuery<MessageQuery>,
) -> Result<Json<MessagesBody>, Problem> {
    let limit = limit_of(query.limit)?;
    let timeout = Duration::from_secs(query.wait.unwrap_or(0).min(MAX_WAIT));
    let is_view = query.attend && operator.may_view_chats(&headers);
    let page = ChatPage { after: query.after, before: query.before, limit, is_view };
    let found = state.service.chats.conversation(&agent, &project, &page, timeout).await?;
    Ok(Json(MessagesBody {
        messages: found.messages.into_iter().map(MessageBody::from).collect(),
        is_answered: found.is_answered,
        is_over: found.is_over,
        next_cursor: found.next,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_of_an_earlier_version_are_read() {
        let body: MessagesBody = serde_json::from_str(r#"{"messages": []}"#).unwrap();
        assert!(body.messages.is_empty() && !body.is_answered);
    }
}
