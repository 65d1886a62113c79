//! What patience ends, when it ends: agents that were told of a change and go on, chats in which nobody says anything.
//!
//! Unlike the cleanup, this is looked at when it is due: the caller sleeps for as long as it is told, and is woken by
//! [`Service::deadlines`].

use std::time::Duration;

use crate::domain::stopwatch::AtFirst;
use crate::domain::{Launch, LaunchId, LaunchState, Purpose, StopReason, Timestamp};
use crate::store::{ChatEnd, MessageFilter};

use super::chat::visible;
use super::clocks::{Look, Subject};
use super::launches::change::want_stop;
use super::next_action::PAUSE_BETWEEN_POLLS;
use super::{Service, ServiceError};

impl Service {
    /// Wants a stop of every launch whose patience is at its end, and says how long to wait until the next can be; `None`: until
    /// something new may become overdue.
    pub async fn end_overdue(&self) -> Result<Option<Duration>, ServiceError> {
        let began = self.clocks.moment();
        let mut next: Option<Duration> = None;
        let mut wait = |left: Duration| next = Some(next.map_or(left, |next| next.min(left)));
        for notice in self.core.store.open_notices().await? {
            let Some(since) = notice.waited_for_since() else {
                continue;
            };
            let subject = Subject::Notice(notice.id.clone(), since);
            let lasted = self.clocks.lasted(Look::Overdue, subject, since, AtFirst::Believe);
            let left = self.core.settings().notice_grace.saturating_sub(lasted);
            if left.is_zero() {
                tracing::warn!(
                    launch_id = %notice.launch, task_id = notice.task.as_ref().map(tracing::field::display),
                    reason = notice.action.as_str(), "agent was told of a change and went on; it is stopped"
                );
                want_stop(
                    &self.core,
                    &self.heard,
                    &notice.launch,
                    StopReason::NoticeIgnored,
                    Duration::ZERO,
                )
                .await?;
            } else {
                wait(left);
            }
        }
        for launch in self.core.store.open_launches().await? {
            let left = self.chat_left(&launch).await?;
            match left.map(|left| left.saturating_add(self.time_to_ask_again())) {
                Some(left) if left.is_zero() => {
                    tracing::info!(launch_id = %launch.id, "nobody says anything in this chat; it ends");
                    want_stop(
                        &self.core,
                        &self.heard,
                        &launch.id,
                        StopReason::ChatIdle,
                        self.core.settings().linger,
                    )
                    .await?;
                }
                Some(left) => wait(left),
                None => {}
            }
        }
        self.clocks.end_look(Look::Overdue, began);
        Ok(next)
    }

    /// How long an agent whose questions are not held needs to ask again, and be told to log out, after the end of its chat.
    fn time_to_ask_again(&self) -> Duration {
        if self.core.settings().chat.poll_hold.is_zero() {
            2 * PAUSE_BETWEEN_POLLS
        } else {
            Duration::ZERO
        }
    }

    /// How much silence a running chat has left.
    pub(super) async fn chat_left(
        &self,
        launch: &Launch,
    ) -> Result<Option<Duration>, ServiceError> {
        let Some(began_at) = began_at(launch) else {
            return Ok(None);
        };
        let subject = Subject::Chat(launch.id.clone());
        let lasted = if let Some(lasted) = self.clocks.known_to_last(Look::Overdue, &subject) {
            lasted
        } else {
            let newest = MessageFilter { end: ChatEnd::Newest, ..visible(&launch.key, 1) };
            let newest = self.core.store.messages(&newest).await?;
            let since = newest.first().map_or(began_at, |message| message.created_at.max(began_at));
            self.clocks.lasted(Look::Overdue, subject, since, AtFirst::Believe)
        };
        Ok(Some(self.core.settings().chat.idle_timeout.saturating_sub(lasted)))
    }

    /// Something is said in the chat of this launch. It is noted before it is committed, so that the chat never ends between the
    /// two: what then isn't committed put its end off for nothing.
    pub(super) fn chat_goes_on(&self, launch: &LaunchId) {
        self.clocks.restart(Look::Overdue, Subject::Chat(launch.clone()));
    }
}

/// Since when a chat runs.
fn began_at(launch: &Launch) -> Option<Timestamp> {
    let is_chat =
        launch.key.purpose == Purpose::Chat && matches!(launch.state, LaunchState::Running { .. });
    launch.authenticated_at.filter(|_| is_chat)
}
