//! Messages of chats. The store numbers them.

use crate::{ChatEnd, MessageFilter, Read, StoreError};
use domain::agent::Assignment;
use domain::chat::Sender;
use domain::{InstanceKey, Message, MessageId, Purpose, Timestamp};

use super::audit::{Entry, Fields, long, plain};
use super::filter::Filter;
use super::record::{Record, insert_into, record};
use super::{Transaction, Wake};

record! {
    Message {
        seq;
        id;
        agent = "agent_id";
        project = "project_id";
        sender;
        author;
        content;
        created_at;
        is_visible;
    }
}

fn select() -> String {
    format!("SELECT {} FROM messages", Message::columns().join(", "))
}

pub fn get(tx: &mut Read<'_>, id: &MessageId) -> Result<Option<Message>, StoreError> {
    let sql = format!("{} WHERE id = ?1", select());
    tx.row("message", &sql, &[id.into()], Message::read)
}

/// Returns messages of a chat in their order.
pub fn list(tx: &mut Read<'_>, wanted: &MessageFilter) -> Result<Vec<Message>, StoreError> {
    let mut filter = Filter::default();
    filter.is("agent_id", &wanted.agent);
    filter.is("project_id", &wanted.project);
    if let Some(after) = wanted.after {
        let after = filter.arg(after);
        filter.also(format!("seq > {after}"));
    }
    if let Some(before) = wanted.before {
        let before = filter.arg(before);
        filter.also(format!("seq < {before}"));
    }
    if let Some(sender) = wanted.sender {
        filter.is("sender", sender);
    }
    if wanted.only_visible {
        filter.also("is_visible");
    }
    let order = match wanted.end {
        ChatEnd::Oldest => "ORDER BY seq",
        ChatEnd::Newest => "ORDER BY seq DESC",
    };
    let limit = filter.arg(wanted.limit);
    let rest = format!("{order} LIMIT {limit}");
    let mut found = filter.rows(tx, "message", &select(), &rest, Message::read)?;
    if wanted.end == ChatEnd::Newest {
        found.reverse();
    }
    Ok(found)
}

/// Returns every agent and project that have a message, by project, then agent.
pub fn list_chats(tx: &mut Read<'_>) -> Result<Vec<Assignment>, StoreError> {
    let sql = "SELECT DISTINCT project_id, agent_id FROM messages ORDER BY project_id, agent_id";
    tx.rows("assignment", sql, &[], Assignment::read)
}

/// Returns the agent and the project of each message after the number `after`, in the order of the
/// messages.
pub fn list_chats_after(tx: &mut Read<'_>, after: i64) -> Result<Vec<Assignment>, StoreError> {
    tx.rows("assignment", CHATS_AFTER, &[after.into()], Assignment::read)
}

/// Selects each message. With `DISTINCT`, SQLite would read an index of all messages.
const CHATS_AFTER: &str = "SELECT project_id, agent_id FROM messages WHERE seq > ?1 ORDER BY seq";

/// Returns the number of the newest message, or 0.
pub fn newest(tx: &mut Read<'_>) -> Result<i64, StoreError> {
    tx.number("SELECT COALESCE(MAX(seq), 0) FROM messages", &[])
}

/// Returns the greatest number of a message from before `at`, or 0.
pub fn last_before(tx: &mut Read<'_>, chat: &Assignment, at: Timestamp) -> Result<i64, StoreError> {
    let sql = "SELECT COALESCE(MAX(seq), 0) FROM messages \
        WHERE project_id = ?1 AND agent_id = ?2 AND created_at < ?3";
    tx.number(sql, &[(&chat.project).into(), (&chat.agent).into(), at.into()])
}

/// Adds a message with the next number. It ignores the `seq` of the message.
///
/// # Errors
/// [`StoreError::Outdated`] if there is one with its id.
pub fn add(tx: &mut Transaction<'_>, message: &Message) -> Result<(), StoreError> {
    insert(tx, message)?;
    tx.audit(|_| Ok(Entry::between("message", &message.id, None, shown(message))))?;
    let chat = Assignment { project: message.project.clone(), agent: message.agent.clone() };
    if message.sender == Sender::User {
        let agent = chat.agent.clone();
        let project = chat.project.clone();
        tx.wake(Wake::Agent(InstanceKey::new(agent, project, Purpose::Chat)));
    }
    tx.wake(Wake::Chat(chat));
    tx.wake(Wake::ChatExport);
    Ok(())
}

/// Inserts the row of a message with the next number.
///
/// # Errors
/// [`StoreError::Outdated`] if there is one with its id.
pub(super) fn insert(tx: &mut Transaction<'_>, message: &Message) -> Result<(), StoreError> {
    // The store gives the number, which is the first column.
    let sql = insert_into("messages", &Message::columns()[1..]);
    if tx.execute(&sql, &message.values()[1..])? == 0 {
        return Err(StoreError::Outdated { what: "message", id: message.id.to_string() });
    }
    Ok(())
}

fn shown(message: &Message) -> Fields {
    Fields::from([
        ("agent_id", plain(&message.agent)),
        ("project_id", plain(&message.project)),
        ("sender", plain(message.sender)),
        ("content", long(&message.content)),
    ])
}

/// Forgets the messages of a chat up to this number.
pub fn forget(tx: &mut Transaction<'_>, chat: &Assignment, up_to: i64) -> Result<(), StoreError> {
    let sql = "DELETE FROM messages WHERE project_id = ?1 AND agent_id = ?2 AND seq <= ?3";
    tx.execute(sql, &[(&chat.project).into(), (&chat.agent).into(), up_to.into()]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::query_plan::scans;

    #[tokio::test]
    async fn new_messages_are_found_without_a_look_at_the_older_ones() {
        assert_eq!(scans(CHATS_AFTER, 1).await, [""; 0]);
    }
}
