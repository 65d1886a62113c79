//! The silence of a chat: the time until the chat ends or gives its slot away, and its restart.

use std::collections::BTreeSet;
use std::time::Duration;

use domain::stopwatch::AtFirst;
use domain::{Assignment, InstanceKey, Launch, LaunchId, LaunchState, Purpose, Timestamp};
use store::rows::{messages, start_histories};
use store::{ChatEnd, MessageFilter, Read, StoreError};

use super::agents::{newest_unread_after, visible};
use super::presence::Attendances;
use crate::clocks::{Clocks, Look, Subject};
use crate::core::Core;
use crate::sessions::next_action::PAUSE_BETWEEN_POLLS;
use crate::{Heard, ServiceError};

/// Returns the silence that a running chat has left before it is longer than `chat.idle_timeout`
/// and `patience` together; `None` for other launches.
pub(crate) async fn left(
    core: &Core,
    clocks: &Clocks,
    launch: &Launch,
    patience: Duration,
) -> Result<Option<Duration>, ServiceError> {
    let Some(began_at) = began_at(launch) else {
        return Ok(None);
    };
    let subject = Subject::Chat(launch.id.clone());
    let lasted = if let Some(lasted) = clocks.known_to_last(Look::Overdue, &subject) {
        lasted
    } else {
        let newest = MessageFilter { end: ChatEnd::Newest, ..visible(&launch.key, 1) };
        let newest = core.read(move |tx| Ok(messages::list(tx, &newest)?)).await?;
        let since = newest.first().map_or(began_at, |message| message.created_at.max(began_at));
        clocks.lasted(Look::Overdue, subject, since, AtFirst::Believe)
    };
    let allowed = core.settings().chat.idle_timeout.saturating_add(patience);
    Ok(Some(allowed.saturating_sub(lasted)))
}

/// The silence after which a chat without an open view gives its slot to a start that waits.
const REST: Duration = Duration::from_secs(30);

/// Returns the running chats in which the agent has answered all messages.
pub(crate) fn list_answered(
    tx: &mut Read<'_>,
    open: &[Launch],
) -> Result<BTreeSet<LaunchId>, StoreError> {
    let mut answered = BTreeSet::new();
    for launch in open.iter().filter(|launch| began_at(launch).is_some()) {
        if is_answered(tx, &launch.key)? {
            answered.insert(launch.id.clone());
        }
    }
    Ok(answered)
}

/// Returns whether the agent of a chat has answered all messages of people.
pub(crate) fn is_answered(tx: &mut Read<'_>, key: &InstanceKey) -> Result<bool, StoreError> {
    let read_up_to = start_histories::get(tx, key)?.read_up_to;
    Ok(newest_unread_after(tx, key, read_up_to)?.is_none())
}

/// Returns whether a chat in which all messages are answered may give its slot away: it is silent,
/// is viewed by no person, and its agent asks for something to do.
pub(crate) fn is_at_rest(
    clocks: &Clocks,
    heard: &Heard,
    attendances: &Attendances,
    launch: &Launch,
) -> bool {
    let LaunchState::Running { session } = &launch.state else { return false };
    let InstanceKey { agent, project, .. } = launch.key.clone();
    let lasted = clocks.known_to_last(Look::Overdue, &Subject::Chat(launch.id.clone()));
    lasted.is_some_and(|lasted| lasted >= REST)
        && heard.calls.is_asking(session, 2 * PAUSE_BETWEEN_POLLS)
        && !attendances.is_attended(&Assignment { project, agent })
}

/// Restarts the silence of the chat of this launch. It is called before the message is committed,
/// so that the chat never ends between the two. If the commit fails, the end was delayed without
/// need.
pub(crate) fn restart(clocks: &Clocks, launch: &LaunchId) {
    clocks.restart(Look::Overdue, Subject::Chat(launch.clone()));
}

/// Returns the time since which a chat runs.
fn began_at(launch: &Launch) -> Option<Timestamp> {
    let is_chat =
        launch.key.purpose == Purpose::Chat && matches!(launch.state, LaunchState::Running { .. });
    launch.authenticated_at.filter(|_| is_chat)
}
