//! A message of a chat in the form that agents read.

use serde::Serialize;

use domain::{Message, MessageId, Timestamp};

#[derive(Serialize)]
pub(super) struct ChatMessage {
    id: MessageId,
    sender_id: String,
    /// The name of the person who wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    author: Option<String>,
    content: String,
    created_at: Timestamp,
}

impl From<Message> for ChatMessage {
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
