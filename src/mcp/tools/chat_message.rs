//! A message of a chat in the form that agents read.

use serde::Serialize;

use crate::domain::{Message, MessageId, Timestamp};

#[derive(Serialize)]
pub(super) struct ChatMessage {
    id: MessageId,
    sender_id: String,
    content: String,
    created_at: Timestamp,
}

impl From<Message> for ChatMessage {
    fn from(message: Message) -> Self {
        Self {
            sender_id: message.sender_id().to_owned(),
            id: message.id,
            content: message.content,
            created_at: message.created_at,
        }
    }
}
