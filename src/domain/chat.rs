//! The chat between people and one agent in one project.
//!
//! Messages are in the order of their numbers, which the store gives. Whether a message is unread
//! is decided by its number, never by time.

use std::borrow::Cow;

use super::id::{AgentId, MessageId, ProjectId};
use super::launch::{Launch, Outcome, StopReason, Verdict};
use super::limits;
use super::pair::{PairRecord, StartLimit};
use super::refusal::Refusal;
use super::time::Timestamp;
use super::words::words;

words! {
    /// Who speaks.
    pub enum Sender as "sender" {
        /// This program.
        System = "system",
        /// A person.
        User = "user",
        /// The agent of the chat.
        Agent = "agent",
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The place of the message in the order of all messages; 0 until the store gives it one.
    pub seq: i64,
    pub id: MessageId,
    pub agent: AgentId,
    pub project: ProjectId,
    pub sender: Sender,
    pub content: String,
    pub created_at: Timestamp,
    /// True if the message is shown.
    pub is_visible: bool,
}

impl Message {
    /// Returns the identifier of the sender as clients see it: `user`, `system`, or the id of the
    /// agent.
    pub fn sender_id(&self) -> &str {
        match self.sender {
            Sender::System | Sender::User => self.sender.as_str(),
            Sender::Agent => self.agent.as_str(),
        }
    }
}

/// Returns the content of a message in the form that is stored.
///
/// # Errors
/// Returns [`Refusal::Invalid`] for an empty message, and the refusals of [`limits`].
pub fn said(content: &str) -> Result<Cow<'_, str>, Refusal> {
    if content.trim().is_empty() {
        return Err(Refusal::Invalid("content is empty: expected a text".to_owned()));
    }
    limits::CONTENT.take(content)
}

/// Returns how many of these texts fit into `budget` bytes together. If there are any texts, at
/// least one is counted.
pub fn n_fitting<'a>(contents: impl IntoIterator<Item = &'a str>, budget: usize) -> usize {
    let mut left = budget;
    let fits = |(n, content): &(usize, &str)| {
        let is_fitting = *n == 0 || content.len() <= left;
        left = left.saturating_sub(content.len());
        is_fitting
    };
    contents.into_iter().enumerate().take_while(fits).count()
}

/// Returns the record of a chat after its launch ended. If the agent leaves messages unanswered, it
/// is wanted again. Its pause grows each time that this happens in a row. If people ended the chat,
/// the agent is not wanted again. An agent that answered everything may end as it likes.
pub fn after_end(
    record: PairRecord,
    launch: &Launch,
    outcome: &Outcome,
    newest_unread: Option<i64>,
    at: Timestamp,
    limit: StartLimit,
) -> PairRecord {
    let leaves_messages = newest_unread.is_some();
    let verdict = match outcome {
        Outcome::Stopped(_) => Verdict::Fine,
        _ if launch.stop_reason == Some(StopReason::ChatEnded) => Verdict::Fine,
        _ if leaves_messages || launch.authenticated_at.is_none() => launch.failed_verdict(),
        _ => Verdict::Fine,
    };
    let record = record.after_end(verdict, launch.claimed_at, at, limit);
    if leaves_messages && !launch.is_chat_over { record.wanted(at) } else { record }
}

#[cfg(test)]
mod tests {
    use super::super::key::{InstanceKey, Purpose};
    use super::*;

    const LIMIT: StartLimit =
        StartLimit { failures: 5, interval: std::time::Duration::from_mins(10) };

    fn record() -> PairRecord {
        PairRecord::new(InstanceKey::new(
            "agt".parse().unwrap(),
            "prj".parse().unwrap(),
            Purpose::Chat,
        ))
    }

    /// Checks whether the chat is wanted again, and the number of its failures.
    #[track_caller]
    fn check_end(
        stop_reason: Option<StopReason>,
        outcome: &Outcome,
        unread: Option<i64>,
        expected: (bool, u32),
    ) {
        let now = Timestamp::from_millis(100);
        let claim = Launch::claimed("lch".parse().unwrap(), record().key, String::new(), now, now);
        let is_chat_over = stop_reason == Some(StopReason::ChatEnded);
        let launch = Launch { stop_reason, is_chat_over, authenticated_at: Some(now), ..claim };
        let after = |launch: &Launch| after_end(record(), launch, outcome, unread, now, LIMIT);
        let left = after(&launch);
        assert_eq!(
            (left.wanted_since.is_some(), left.n_failures),
            expected,
            "{stop_reason:?} {outcome} {unread:?}"
        );
        // If people ended the chat meanwhile, its agent is not wanted again, and the failure counts
        // the same.
        let over = after(&Launch { is_chat_over: true, ..launch });
        assert_eq!(
            (over.wanted_since, over.n_failures),
            (None, expected.1),
            "{stop_reason:?} {outcome} {unread:?}"
        );
    }

    #[test]
    fn who_leaves_messages_behind_is_wanted_again_and_waits() {
        let (idle, out) = (Some(StopReason::ChatIdle), Some(StopReason::LoggedOut));
        check_end(None, &Outcome::ExitedWithoutReport, Some(3), (true, 1));
        check_end(None, &Outcome::Lost, Some(3), (true, 1));
        check_end(out, &Outcome::Completed, Some(3), (true, 1));
        check_end(idle, &Outcome::Completed, Some(3), (true, 1));
        for reason in [StopReason::Shutdown, StopReason::Person] {
            check_end(Some(reason), &Outcome::Stopped(reason), Some(3), (true, 0));
        }
        check_end(Some(StopReason::ChatEnded), &Outcome::Completed, Some(3), (false, 0));
    }

    #[test]
    fn who_answered_everything_may_go_as_it_likes() {
        for outcome in [Outcome::ExitedWithoutReport, Outcome::Completed, Outcome::Lost] {
            check_end(None, &outcome, None, (false, 0));
        }
    }

    #[test]
    fn who_never_came_is_a_failure_and_is_wanted_as_before() {
        let now = Timestamp::from_millis(100);
        let launch = Launch::claimed("lch".parse().unwrap(), record().key, String::new(), now, now);
        let after = after_end(record().wanted(now), &launch, &Outcome::Lost, None, now, LIMIT);
        assert_eq!((after.wanted_since, after.n_failures), (Some(now), 1));
    }

    #[test]
    fn a_message_has_something_to_say_and_not_too_much() {
        let at_most = "x".repeat(limits::CONTENT.most());
        assert_eq!(said(&at_most).as_deref(), Ok(at_most.as_str()));
        for content in ["", " \n\t", &format!("{at_most}x")] {
            assert!(said(content).is_err(), "{} bytes", content.len());
        }
    }

    #[test]
    fn as_much_is_given_as_fits() {
        assert_eq!(n_fitting([], 10), 0);
        assert_eq!(n_fitting(["a text that is too long"], 10), 1);
        assert_eq!(n_fitting(["12345", "12345", "1"], 10), 2);
        assert_eq!(n_fitting(["12345", "123456", "1"], 10), 1);
    }
}
