//! `/projects/{id}/chat`, `/projects/{id}/agent-sessions`, `/projects/{id}/agents/{id}/chat`:
//! people talk with agents.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};

use crate::auth::Operator;
use crate::extract::{InBody, InPath, InQuery};
use crate::openapi::{Api, about};
use crate::page::limit_of;
use crate::{Problem, RestState};
use api::chat::{
    ChatBody, ChatRequest, MessageBody, MessageQuery, MessageRequest, MessagesBody, SessionCounts,
    SessionsBody,
};
use domain::{AgentId, ProjectId, Purpose};
use service::{ChatPage, OpenSessions};

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
    let counted = |(agent, OpenSessions { chat, task })| (agent, SessionCounts { chat, task });
    Ok(Json(SessionsBody { agent_sessions: sessions.into_iter().map(counted).collect() }))
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
