//! `get_pending_messages`: returns the messages of people that the agent of a chat has not
//! answered.

use serde::Serialize;

use super::chat_message::ChatMessage;
use super::{Effect, NoInput, ToolSpec};
use crate::envelope::ChatSession;
use service::{Service, ServiceError};

pub(crate) struct GetPendingMessages;

#[derive(Serialize)]
pub(crate) struct Output {
    success: bool,
    pending_messages: Vec<ChatMessage>,
    /// The messages before these.
    context_messages: Vec<ChatMessage>,
    instruction: &'static str,
}

impl ToolSpec for GetPendingMessages {
    const NAME: &'static str = "get_pending_messages";
    const TEXT: &'static str = "In a chat: returns the messages that you have not answered, and \
                                the messages before them. Answer with respond_chat.";
    const EFFECT: Effect = Effect::ChangesOnce;
    type Who = ChatSession;
    type Input = NoInput;
    type Output = Output;

    async fn call(
        service: &Service,
        ChatSession(caller): ChatSession,
        _: NoInput,
    ) -> Result<Output, ServiceError> {
        let found = service.chats.hand_out(&caller).await?;
        let shown =
            |messages: Vec<_>| messages.into_iter().map(ChatMessage::from).collect::<Vec<_>>();
        Ok(Output {
            success: true,
            instruction: service.guidance().messages_given(found.pending.len()),
            pending_messages: shown(found.pending),
            context_messages: shown(found.context),
        })
    }
}
