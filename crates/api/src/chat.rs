//! `/projects/{id}/chat`, `/projects/{id}/agent-sessions`, `/projects/{id}/agents/{id}/chat`:
//! people talk with agents.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::MAX_LIMIT;
use domain::{AgentId, Message, MessageId, ProjectId, Purpose, Timestamp, limits};

/// The agent to talk with.
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

/// The choice of messages. `after` asks for the first ones after a message, and `before` for the
/// last ones before it. Without both, the answer has the last ones.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MessageQuery {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<MessageId>,
    /// The greatest number of entries. The default is 100, and the maximum is 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    pub limit: Option<usize>,
    /// The number of seconds to wait for a message, if there is none. The default is 0. More than
    /// 60 counts as 60.
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
    /// The message at which the next page begins, if there are more. It is the next `after` if the
    /// request had `after`, otherwise the next `before`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_of_an_earlier_version_are_read() {
        let body: MessagesBody = serde_json::from_str(r#"{"messages": []}"#).unwrap();
        assert!(body.messages.is_empty() && !body.is_answered);
    }
}
