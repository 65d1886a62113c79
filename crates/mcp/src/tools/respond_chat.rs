//! `respond_chat`: the agent of a chat writes a message.

use serde::{Deserialize, Serialize};

use super::{Effect, ToolSpec};
use crate::envelope::ChatSession;
use domain::MessageId;
use service::{Service, ServiceError};

pub(crate) struct RespondChat;

#[derive(Deserialize, schemars::JsonSchema)]
pub(crate) struct Input {
    /// Your message. It answers all messages that you have received so far.
    content: String,
}

#[derive(Serialize)]
pub(crate) struct Output {
    success: bool,
    message_id: MessageId,
    instruction: &'static str,
}

impl ToolSpec for RespondChat {
    const NAME: &'static str = "respond_chat";
    const TEXT: &'static str = "In a chat: sends a message to the people there. It answers all \
                                messages that you have received so far. Call get_next_action \
                                afterwards.";
    const EFFECT: Effect = Effect::Changes;
    type Who = ChatSession;
    type Input = Input;
    type Output = Output;

    async fn call(
        service: &Service,
        ChatSession(caller): ChatSession,
        input: Input,
    ) -> Result<Output, ServiceError> {
        let message_id = service.chats.respond(&caller, &input.content).await?;
        tracing::debug!(message_id = %message_id, "agent wrote a message in its chat");
        Ok(Output { success: true, message_id, instruction: service.guidance().responded() })
    }
}
