//! `get_notifications`: returns the notices about changes of an agent's work.

use serde::Serialize;

use super::{Effect, NoInput, ToolSpec};
use crate::envelope::AgentSession;
use domain::id::{NoticeId, TaskId};
use domain::notice::{Notice, NoticeAction, NoticeKind};
use domain::{Guidance, Timestamp};
use service::{Service, ServiceError};

pub(crate) struct GetNotifications;

#[derive(Serialize)]
pub(crate) struct Output {
    success: bool,
    notifications: Vec<Notification>,
}

#[derive(Serialize)]
struct Notification {
    #[serde(rename = "type")]
    kind: NoticeKind,
    action: NoticeAction,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<TaskId>,
    message: &'static str,
    instruction: &'static str,
    id: NoticeId,
    created_at: Timestamp,
}

impl Notification {
    fn of(notice: Notice, guidance: Guidance) -> Self {
        Self {
            kind: notice.action.kind(),
            action: notice.action,
            message: guidance.notice(notice.action),
            instruction: guidance.notice_instruction(notice.action, notice.demand),
            task_id: notice.task,
            id: notice.id,
            created_at: notice.created_at,
        }
    }
}

impl ToolSpec for GetNotifications {
    const NAME: &'static str = "get_notifications";
    const TEXT: &'static str = "Returns notices about changes of your work, and what to do about \
                                each. Call it whenever an answer contains `notification`.";
    const EFFECT: Effect = Effect::ChangesOnce;
    const IS_ABOUT_NOTICES: bool = true;
    type Who = AgentSession;
    type Input = NoInput;
    type Output = Output;

    async fn call(
        service: &Service,
        AgentSession(caller): AgentSession,
        _: NoInput,
    ) -> Result<Output, ServiceError> {
        let notices = service.sessions.notifications(&caller).await?;
        let guidance = service.guidance();
        let notifications =
            notices.into_iter().map(|notice| Notification::of(notice, guidance)).collect();
        Ok(Output { success: true, notifications })
    }
}
