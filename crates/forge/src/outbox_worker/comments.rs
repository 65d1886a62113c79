//! Posts and withdraws the comments of an item. The hidden marker of a comment tells whether it is
//! there already.

use super::super::ForgeError;
use super::{ItemWriter, Unanswered, WriteError};
use domain::forge::marker::Marker;
use domain::forge::{Comment, ForgeItem, ForgeUser, is_bot};
use machine::crash_point::{self, CrashPoint};

impl ItemWriter<'_> {
    pub(super) async fn withdraw(&self) -> Result<(), WriteError> {
        let comments = self.comments().await?;
        let own = self.host_state.own().await?;
        self.remove(&find_all(&comments, self.item, Marker::CLAIM, own.as_ref())).await
    }

    /// Posts a comment unless it exists, and returns all comments after that. If a forge carried
    /// out a request twice, the later copies are deleted.
    ///
    /// # Errors
    /// [`WriteError::Locked`] if the conversation is locked for the bot.
    pub(super) async fn comment(
        &self,
        number: u32,
        text: &str,
    ) -> Result<Vec<Comment>, WriteError> {
        let mut comments = self.comments().await?;
        let own = self.host_state.own().await?;
        if find_all(&comments, self.item, number, own.as_ref()).is_empty() {
            self.post(number, text).await?;
            comments = self.comments().await?;
        }
        let ours = find_all(&comments, self.item, number, own.as_ref());
        self.remove(ours.get(1..).unwrap_or_default()).await?;
        Ok(comments)
    }

    async fn post(&self, number: u32, text: &str) -> Result<(), WriteError> {
        let forge = &self.forge;
        let key = &self.item.key;
        // The text is redacted again, because it may have been stored before a secret was known.
        let text = self.host_state.service.redacted(text);
        let body = Marker { item: self.item.id.clone(), number }.mark(&text);
        let body = body.as_str();
        let add = |name: String| async move {
            forge.add_comment(&name, key.kind, key.number, body).await
        };
        let added = self.send(add).await;
        let is_forbidden = matches!(
            added,
            Err(WriteError::Unanswered(Unanswered::Failed(ForgeError::Forbidden { .. })))
        );
        if is_forbidden && self.facts().await?.is_ok_and(|facts| facts.is_locked) {
            return Err(WriteError::Locked);
        }
        added?;
        crash_point::reach(CrashPoint::ItemCommented);
        Ok(())
    }

    async fn remove(&self, comments: &[u64]) -> Result<(), WriteError> {
        let forge = &self.forge;
        let key = &self.item.key;
        for &comment in comments {
            let remove = |name: String| async move {
                forge.remove_comment(&name, key.kind, key.number, comment).await
            };
            self.ask(remove).await?;
        }
        Ok(())
    }

    pub(super) async fn comments(&self) -> Result<Vec<Comment>, Unanswered> {
        let forge = &self.forge;
        let key = &self.item.key;
        let list = |name: String| async move { forge.comments(&name, key.kind, key.number).await };
        self.ask(list).await
    }
}

/// Finds our comments with this number, the first of them first. If the account of the token is
/// known, a comment must be of that account, because any account can copy a marker. If it is not
/// known, only the first comment is taken for ours.
fn find_all(
    comments: &[Comment],
    item: &ForgeItem,
    number: u32,
    own: Option<&ForgeUser>,
) -> Vec<u64> {
    let is_it = |comment: &&Comment| {
        let is_own =
            own.is_none_or(|own| comment.author.as_ref().is_some_and(|author| is_bot(author, own)));
        is_own
            && Marker::find(&comment.body)
                .is_some_and(|marker| marker.item == item.id && marker.number == number)
    };
    let mut found: Vec<u64> = comments.iter().filter(is_it).map(|comment| comment.id).collect();
    found.sort_unstable();
    if own.is_none() {
        found.truncate(1);
    }
    found
}
