//! What patience ends, when it ends: agents that were told of a change and go on, chats in which nobody says anything.
//!
//! Unlike the cleanup, this is looked at when it is due: the caller sleeps for as long as it is told, and is woken by
//! [`Service::deadlines`].

use std::time::Duration;

use crate::domain::chat::idle_since;
use crate::domain::{Launch, LaunchState, Purpose, StopReason, Timestamp};
use crate::store::{ChatEnd, MessageFilter};

use super::chat::visible;
use super::{Service, ServiceError};

impl Service {
    /// Wants a stop of every launch whose patience is at its end, and says how long to wait until the next can be; `None`: until
    /// something new may become overdue.
    pub async fn end_overdue(&self) -> Result<Option<Duration>, ServiceError> {
        let now = self.now();
        let mut next: Option<Timestamp> = None;
        for notice in self.store.open_notices().await? {
            let Some(deadline) = notice.deadline(self.settings.notice_grace) else { continue };
            if deadline <= now {
                tracing::warn!(
                    launch_id = %notice.launch, task_id = notice.task.as_ref().map(tracing::field::display),
                    reason = notice.action.as_str(), "agent was told of a change and went on; it is stopped"
                );
                self.want_stop(&notice.launch, StopReason::NoticeIgnored).await?;
            } else {
                next = Some(next.map_or(deadline, |next| next.min(deadline)));
            }
        }
        for launch in self.store.open_launches().await? {
            let Some(earliest) = self.earliest_chat_deadline(&launch) else { continue };
            // What was said since only puts it off: not worth a look before.
            let deadline = if earliest > now { Some(earliest) } else { self.chat_deadline(&launch).await? };
            let Some(deadline) = deadline else { continue };
            if deadline <= now {
                tracing::info!(launch_id = %launch.id, "nobody says anything in this chat; it ends");
                self.want_stop_after(&launch.id, StopReason::ChatIdle, self.settings.linger).await?;
            } else {
                next = Some(next.map_or(deadline, |next| next.min(deadline)));
            }
        }
        Ok(next.map(|next| next.since(now)))
    }

    /// What begins now is overdue no sooner than after this.
    pub fn shortest_patience(&self) -> Duration {
        self.settings.notice_grace.min(self.settings.chat.idle_timeout)
    }

    /// When a running chat has been silent for too long.
    pub(super) async fn chat_deadline(&self, launch: &Launch) -> Result<Option<Timestamp>, ServiceError> {
        let Some(began_at) = began_at(launch) else { return Ok(None) };
        let newest = MessageFilter { end: ChatEnd::Newest, ..visible(&launch.key, 1) };
        let newest = self.store.messages(&newest).await?;
        let since = idle_since(began_at, newest.first().map(|message| message.created_at), self.now());
        Ok(Some(since + self.settings.chat.idle_timeout))
    }

    /// When it would have been, had nothing been said.
    fn earliest_chat_deadline(&self, launch: &Launch) -> Option<Timestamp> {
        // A clock that was wrong put the beginning into the future.
        began_at(launch).map(|began_at| began_at.min(self.now()) + self.settings.chat.idle_timeout)
    }
}

/// Since when a chat runs.
fn began_at(launch: &Launch) -> Option<Timestamp> {
    let is_chat = launch.key.purpose == Purpose::Chat && matches!(launch.state, LaunchState::Running { .. });
    launch.authenticated_at.filter(|_| is_chat)
}
