//! Chat: what people and one agent in one project say to each other (seed 003).
//!
//! Messages are in the order of their numbers, which the store gives. What is unread is decided by number, never by time.

use super::id::{AgentId, MessageId, ProjectId};
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
    /// Its place in the order of all messages; 0 until the store gives it one.
    pub seq: i64,
    pub id: MessageId,
    pub agent: AgentId,
    pub project: ProjectId,
    pub sender: Sender,
    pub content: String,
    pub created_at: Timestamp,
    /// Whether anybody is shown it.
    pub is_visible: bool,
}

impl Message {
    /// Who speaks, as seed 003 writes it.
    pub fn sender_id(&self) -> &str {
        match self.sender {
            Sender::System | Sender::User => self.sender.as_str(),
            Sender::Agent => self.agent.as_str(),
        }
    }
}

/// Since when nobody has said anything in a chat that began then. What lies in the future was written by a clock that was wrong.
pub fn idle_since(began_at: Timestamp, newest_message: Option<Timestamp>, now: Timestamp) -> Timestamp {
    newest_message.filter(|at| *at <= now).map_or(began_at, |at| at.max(began_at)).min(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(began_at: i64, newest: Option<i64>, expected: i64) {
        let at = Timestamp::from_millis;
        assert_eq!(idle_since(at(began_at), newest.map(at), at(100)), at(expected));
    }

    #[test]
    fn a_chat_is_idle_since_its_beginning_or_its_last_message() {
        check(10, None, 10);
        check(10, Some(5), 10);
        check(10, Some(50), 50);
        check(10, Some(500), 10);
        check(400, None, 100);
    }
}
