//! Chat (seed 003): what is unread, and who was given what.
//!
//! A message is unread until its agent answers it; it is handed out to a session when that is given it, by whichever answer.

use crate::domain::chat::Sender;
use crate::domain::{InstanceKey, Message, Session};
use crate::store::{Change, ChatEnd, Commit, MessageFilter, StoreError};

use super::{Caller, Service, ServiceError};

/// Messages for an agent.
#[derive(Debug, Clone, Default)]
pub struct Pending {
    /// What it hasn't answered, in order.
    pub pending: Vec<Message>,
    /// What was said before, in order.
    pub context: Vec<Message>,
}

/// At most so many messages are given at once; the rest follow when these are answered.
const MAX_PENDING: usize = 50;
/// So many earlier messages are given along with them.
const MAX_CONTEXT: usize = 20;

impl Service {
    /// The messages that `caller` hasn't answered, with what was said before. They count as handed out to its session.
    ///
    /// # Errors
    /// As [`Service::identify`].
    pub async fn hand_out(&self, caller: &Caller) -> Result<Pending, ServiceError> {
        let key = &caller.session.key;
        self.transact(|| async move {
            let (launch, session) = self.latest(caller).await?;
            let expect = vec![crate::store::Expect::LaunchAt(launch.id.clone(), launch.revision)];
            let read_up_to = self.store.pair(key).await?.read_up_to;
            let of_users =
                MessageFilter { after: Some(read_up_to), sender: Some(Sender::User), ..visible(key, MAX_PENDING) };
            let pending = self.store.messages(&of_users).await?;
            let before = pending.first().map(|message| message.seq);
            let earlier = MessageFilter { before, end: ChatEnd::Newest, ..visible(key, MAX_CONTEXT) };
            let context = self.store.messages(&earlier).await?;
            let handed_out = pending.last().map_or(0, |message| message.seq).max(session.handed_out);
            let changes = if handed_out == session.handed_out {
                Vec::new()
            } else {
                vec![Change::Session(Session { handed_out, ..session })]
            };
            Ok((Commit { expect, changes }, Pending { pending, context }))
        })
        .await
    }

    /// The number of the newest message that the agent of a chat hasn't answered.
    pub(super) async fn newest_unread(&self, key: &InstanceKey) -> Result<Option<i64>, StoreError> {
        let read_up_to = self.store.pair(key).await?.read_up_to;
        let (after, sender, end) = (Some(read_up_to), Some(Sender::User), ChatEnd::Newest);
        let newest = self.store.messages(&MessageFilter { after, sender, end, ..visible(key, 1) }).await?;
        Ok(newest.first().map(|message| message.seq))
    }
}

/// What anybody is shown of a chat, the oldest first.
pub(super) fn visible(key: &InstanceKey, limit: usize) -> MessageFilter {
    MessageFilter {
        agent: key.agent.clone(),
        project: key.project.clone(),
        after: None,
        before: None,
        sender: None,
        only_visible: true,
        end: ChatEnd::Oldest,
        limit,
    }
}
