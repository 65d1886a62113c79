//! Conversations, which the next launch of an agent on a task continues.

use crate::{Read, StoreError};
use domain::conversation::{Conversation, FreshReason};
use domain::{AgentId, ConversationId, TaskId, Timestamp};

use super::Transaction;
use super::record::entity;

entity! {
    Conversation in "conversations" called "conversation" {
        id;
        task = "task_id";
        agent = "agent_id";
        coordinator = "coordinator_id";
        cli_session;
        account;
        model;
        directory;
        workspace = "workspace_id";
        has_begun;
        last_launch = "last_launch_id";
        n_unhelpful;
        opened_at;
        last_used_at;
        closed_because;
        closed_at;
    }
}

pub fn get(tx: &mut Read<'_>, id: &ConversationId) -> Result<Option<Conversation>, StoreError> {
    tx.find("WHERE id = ?1", &[id.into()])
}

/// Returns the newest conversation of an agent about a task, also a closed one. An open one counts
/// as the newest.
pub fn newest_of(
    tx: &mut Read<'_>,
    task: &TaskId,
    agent: &AgentId,
) -> Result<Option<Conversation>, StoreError> {
    let mut of_agent = list_of_task(tx, task)?;
    of_agent.retain(|conversation| conversation.agent == *agent);
    // The clock may have been set back since another one was opened.
    let newest = of_agent.iter().position(Conversation::is_open).unwrap_or(0);
    Ok(of_agent.into_iter().nth(newest))
}

/// Returns the conversations about a task, the newest first.
pub fn list_of_task(tx: &mut Read<'_>, task: &TaskId) -> Result<Vec<Conversation>, StoreError> {
    tx.list("WHERE task_id = ?1 ORDER BY opened_at DESC, id DESC", &[task.into()])
}

/// Returns whether a CLI refused a conversation of an agent about a task at this time or later.
pub fn was_refused_since(
    tx: &mut Read<'_>,
    task: &TaskId,
    agent: &AgentId,
    since: Timestamp,
) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM conversations WHERE task_id = ?1 AND agent_id = ?2 \
        AND closed_because = ?3 AND closed_at >= ?4";
    let because = FreshReason::Refused.as_str();
    tx.exists(sql, &[task.into(), agent.into(), because.into(), since.into()])
}

/// Returns whether an open launch, of any key, has this conversation.
pub fn is_in_use(tx: &mut Read<'_>, id: &ConversationId) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM launches WHERE conversation_id = ?1 AND state <> 'ended'";
    tx.exists(sql, &[id.into()])
}

/// Writes a conversation.
pub fn put(tx: &mut Transaction<'_>, conversation: &Conversation) -> Result<(), StoreError> {
    tx.replace(conversation, &conversation.id)
}
