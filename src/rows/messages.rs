//! Messages of chats. The store numbers them.

use crate::domain::agent::Assignment;
use crate::domain::chat::Sender;
use crate::domain::{InstanceKey, Purpose};
use crate::domain::{Message, MessageId, Timestamp};
use crate::store::{BoxError, Cells, ChatEnd, MessageFilter, Read, StoreError};

use super::audit::{AuditValue, Entry, Fields, plain};
use super::{Transaction, Wake};

use super::assignments;
use super::filter::Filter;

const COLUMNS: &str = "seq, id, agent_id, project_id, sender, author, content, created_at, \
    is_visible";

fn read(cells: &mut Cells<'_>) -> Result<Message, BoxError> {
    Ok(Message {
        seq: cells.get()?,
        id: cells.get()?,
        agent: cells.get()?,
        project: cells.get()?,
        sender: cells.get()?,
        author: cells.get()?,
        content: cells.get()?,
        created_at: cells.get()?,
        is_visible: cells.get()?,
    })
}

pub fn get(tx: &mut Read<'_>, id: &MessageId) -> Result<Option<Message>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM messages WHERE id = ?1");
    tx.row("message", &sql, &[id.into()], read)
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
    let start = format!("SELECT {COLUMNS} FROM messages");
    let mut found = filter.rows(tx, "message", &start, &format!("{order} LIMIT {limit}"), read)?;
    if wanted.end == ChatEnd::Newest {
        found.reverse();
    }
    Ok(found)
}

/// Returns every agent and project that have a message, by project, then agent.
pub fn list_chats(tx: &mut Read<'_>) -> Result<Vec<Assignment>, StoreError> {
    let sql = "SELECT DISTINCT project_id, agent_id FROM messages ORDER BY project_id, agent_id";
    tx.rows("assignment", sql, &[], assignments::read)
}

/// Returns the agent and the project of each message after the number `after`, in the order of the
/// messages.
pub fn list_chats_after(tx: &mut Read<'_>, after: i64) -> Result<Vec<Assignment>, StoreError> {
    tx.rows("assignment", CHATS_AFTER, &[after.into()], assignments::read)
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
    let [project, agent] = assignments::values(chat);
    tx.number(sql, &[project, agent, at.into()])
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
    let sql = "INSERT INTO messages (id, agent_id, project_id, sender, author, content, created_at, \
        is_visible) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (id) DO NOTHING";
    let n_added = tx.execute(
        sql,
        &[
            (&message.id).into(),
            (&message.agent).into(),
            (&message.project).into(),
            message.sender.into(),
            (&message.author).into(),
            (&message.content).into(),
            message.created_at.into(),
            message.is_visible.into(),
        ],
    )?;
    if n_added == 0 {
        return Err(StoreError::Outdated { what: "message", id: message.id.to_string() });
    }
    Ok(())
}

fn shown(message: &Message) -> Fields {
    Fields::from([
        ("agent_id", plain(&message.agent)),
        ("project_id", plain(&message.project)),
        ("sender", plain(message.sender)),
        ("content", AuditValue::Long(message.content.clone())),
    ])
}

/// Forgets the messages of a chat up to this number.
pub fn forget(tx: &mut Transaction<'_>, chat: &Assignment, up_to: i64) -> Result<(), StoreError> {
    let sql = "DELETE FROM messages WHERE project_id = ?1 AND agent_id = ?2 AND seq <= ?3";
    let [project, agent] = assignments::values(chat);
    tx.execute(sql, &[project, agent, up_to.into()]).map(drop)
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
