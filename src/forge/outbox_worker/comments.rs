//! Posts and withdraws the comments of an item. The hidden marker of a comment tells whether it is
//! there already.

use super::super::{Forge, ForgeError};
use super::{OutboxWorker, Unanswered, WriteError};
use crate::crash_point::{self, CrashPoint};
use crate::domain::forge::marker::Marker;
use crate::domain::forge::{Comment, ForgeItem, ForgeUser, is_bot};

impl OutboxWorker {
    pub(super) async fn withdraw(
        &self,
        forge: &dyn Forge,
        item: &ForgeItem,
    ) -> Result<(), WriteError> {
        let comments = self.comments(forge, item).await?;
        let key = &item.key;
        if let Some(ours) =
            find(&comments, item, Marker::CLAIM, self.host_state.own().await?.as_ref())
        {
            let remove = |name: String| async move {
                forge.remove_comment(&name, key.kind, key.number, ours).await
            };
            self.host_state.ask_in(forge, &key.repository, remove).await?;
        }
        Ok(())
    }

    /// Posts a comment unless it exists, and returns all comments after that.
    ///
    /// # Errors
    /// [`WriteError::Locked`] if the conversation is locked for the bot.
    pub(super) async fn comment(
        &self,
        forge: &dyn Forge,
        item: &ForgeItem,
        number: u32,
        text: &str,
    ) -> Result<Vec<Comment>, WriteError> {
        let comments = self.comments(forge, item).await?;
        if find(&comments, item, number, self.host_state.own().await?.as_ref()).is_some() {
            return Ok(comments);
        }
        let key = &item.key;
        // The text is redacted again, because it may have been stored before a secret was known.
        let text = self.host_state.service.redacted(text);
        let body = Marker { item: item.id.clone(), number }.mark(&text);
        let body = body.as_str();
        let add = |name: String| async move {
            forge.add_comment(&name, key.kind, key.number, body).await
        };
        let added = self.host_state.ask_in(forge, &key.repository, add).await;
        if matches!(added, Err(Unanswered::Failed(ForgeError::Forbidden { .. })))
            && self.facts(forge, item).await?.is_ok_and(|facts| facts.is_locked)
        {
            return Err(WriteError::Locked);
        }
        added?;
        crash_point::reach(CrashPoint::ItemCommented);
        Ok(if number == Marker::CLAIM { self.comments(forge, item).await? } else { comments })
    }

    pub(super) async fn comments(
        &self,
        forge: &dyn Forge,
        item: &ForgeItem,
    ) -> Result<Vec<Comment>, Unanswered> {
        let key = &item.key;
        let list = |name: String| async move { forge.comments(&name, key.kind, key.number).await };
        self.host_state.ask_in(forge, &key.repository, list).await
    }
}

/// Finds our comment with this number. If the account of the token is known, the comment must be of
/// that account, because any account can copy a marker.
fn find(
    comments: &[Comment],
    item: &ForgeItem,
    number: u32,
    own: Option<&ForgeUser>,
) -> Option<u64> {
    let is_it = |comment: &&Comment| {
        let is_own =
            own.is_none_or(|own| comment.author.as_ref().is_some_and(|author| is_bot(author, own)));
        is_own
            && Marker::find(&comment.body)
                .is_some_and(|marker| marker.item == item.id && marker.number == number)
    };
    comments.iter().find(is_it).map(|comment| comment.id)
}
