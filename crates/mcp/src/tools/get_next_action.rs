//! `get_next_action`: tells an agent its next action. The call is held until there is one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::chat_message::ChatMessage;
use super::{Effect, ToolSpec};
use crate::envelope::Asker;
use domain::id::TaskId;
use domain::{ShortId, TaskStatus};
use service::{Service, ServiceError};

pub(crate) struct GetNextAction;

#[derive(Deserialize, schemars::JsonSchema)]
pub(crate) struct Input {
    /// The longest wait for something to do, in seconds; 0 answers at once. Leave it out to wait as
    /// long as the server allows.
    #[serde(default)]
    #[schemars(with = "u32")]
    timeout_seconds: Option<u32>,
    /// The `turn` of the last answer, if it had one, so that no two calls in a row are the same.
    // Some CLIs end an agent that makes the same call five times in a row (qwen), and a waiting
    // agent has nothing else to say.
    #[serde(default)]
    #[schemars(with = "u32")]
    turn: Option<u32>,
}

#[derive(Serialize)]
pub(crate) struct Output {
    success: bool,
    action: &'static str,
    instruction: &'static str,
    /// Asks for the `turn`, with an action to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'static str>,
    /// The task, with work and execute_subtask.
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<Task>,
    /// The messages, with get_pending_messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    messages: Vec<ChatMessage>,
    /// The seconds until the next question, with an action to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_seconds: Option<u64>,
    /// The `turn` of the next question, with an action to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<u32>,
}

#[derive(Serialize)]
struct Task {
    task_id: TaskId,
    short_id: ShortId,
    title: String,
    description: String,
    status: TaskStatus,
}

impl ToolSpec for GetNextAction {
    const NAME: &'static str = "get_next_action";
    const TEXT: &'static str = "Returns what to do next: an action and an instruction. Waits up \
                                to a minute until there is something to do. In a chat, call it \
                                again and again.";
    const EFFECT: Effect = Effect::ChangesOnce;
    const WAITS: bool = true;
    type Who = Asker;
    type Input = Input;
    type Output = Output;

    async fn call(
        service: &Service,
        Asker(caller): Asker,
        input: Input,
    ) -> Result<Output, ServiceError> {
        let progress = input.timeout_seconds.map(|seconds| Duration::from_secs(seconds.into()));
        let next = match caller {
            Some(caller) => service.sessions.next_action(&caller, progress).await?,
            None => service.sessions.exit_action(),
        };
        let task = next.task.map(|task| Task {
            task_id: task.id,
            short_id: task.short_id,
            title: task.title,
            description: task.description,
            status: task.status,
        });
        let messages = next.messages.into_iter().map(ChatMessage::from).collect();
        let action = next.action;
        let instruction = next.instruction;
        let wait_seconds = next.wait_seconds;
        let hint = wait_seconds.map(|_| service.guidance().wait_hint());
        let turn = wait_seconds.map(|_| input.turn.unwrap_or(0).wrapping_add(1));
        Ok(Output { success: true, action, instruction, hint, task, messages, wait_seconds, turn })
    }
}
