//! Claims an item: labels it, posts a comment, and finds out whether that was the first claim.

use super::super::{Forge, ForgeError};
use super::{OutboxWorker, Unanswered, WriteError};
use crate::crash_point::{self, CrashPoint};
use crate::domain::forge::labels::is_same;
use crate::domain::forge::marker::Marker;
use crate::domain::forge::{
    Claimants, Comment, Eligibility, ForgeItem, ItemState, LabelDelta, task_text,
};
use crate::locks::lock;

/// The number of items that are remembered as logged.
const MAX_LOGGED: usize = 1_000;

impl OutboxWorker {
    /// Claims an item with a comment, then checks the claim: the first claim since the item was
    /// free wins.
    pub(super) async fn claim(
        &self,
        forge: &dyn Forge,
        item: &ForgeItem,
    ) -> Result<(), WriteError> {
        let service = &self.host_state.service;
        let ItemState::Claiming { after_comment } = item.state else {
            return Ok(());
        };
        if service.are_starts_held() {
            return Err(WriteError::Held);
        }
        let rules = self.host_state.rules().await.map_err(WriteError::Refused)?;
        let claimants = self.host_state.claimants(&rules).await?;
        let comments = match self.comments(forge, item).await {
            // The state of the item decides. If the item exists, its comments do, too, at the next
            // attempt.
            Err(
                error @ Unanswered::Failed(ForgeError::NotFound { .. } | ForgeError::Moved { .. }),
            ) => {
                return match self.facts(forge, item).await? {
                    Ok(_) => Err(error.into()),
                    Err(cause) => Ok(service.forge_items.stop(&item.id, cause).await?),
                };
            }
            comments => comments?,
        };
        // This is a repeated attempt. Another coordinator may have taken and finished the item
        // meanwhile, and then its labels are not ours to change.
        if after_comment.is_some_and(|after| self.is_of_another(&claimants, &comments, item, after))
        {
            return Ok(service.forge_items.lose(&item.id).await?);
        }
        // The item is read after the comments. A coordinator that has claimed it by then has set
        // the label before, so the item is not free.
        let facts = match self.facts(forge, item).await? {
            Ok(facts) => facts,
            Err(cause) => return Ok(service.forge_items.stop(&item.id, cause).await?),
        };
        if let Eligibility::Not(cause) = rules.judge(&facts, Some(&item.state)) {
            return Ok(service.forge_items.stop(&item.id, cause).await?);
        }
        let after_comment = match after_comment {
            Some(after) => after,
            None if !rules.is_free(&facts) => {
                return Ok(service.forge_items.lose(&item.id).await?);
            }
            None => {
                let last = comments.iter().map(|comment| comment.id).max().unwrap_or(0);
                service.forge_items.look_at(&item.id, last).await?;
                last
            }
        };
        crash_point::reach(CrashPoint::ItemLookedAt);
        let processing = &rules.labels.processing_label;
        if !facts.labels.iter().any(|label| is_same(label, processing)) {
            let delta = LabelDelta { add: vec![processing.clone()], remove: Vec::new() };
            self.change_labels(forge, item, &delta).await?;
        }
        crash_point::reach(CrashPoint::ItemLabelled);
        let text = self.texts().claimed(&item.agent, &item.project, item.created_at);
        let comments = match self.comment(forge, item, Marker::CLAIM, &text).await {
            // The label is the only possible claim.
            Err(WriteError::Locked) => {
                tracing::warn!(
                    item = %item.key, host = item.key.host,
                    "claimed a forge item by its label alone: its conversation is locked"
                );
                comments
            }
            comments => comments?,
        };
        crash_point::reach(CrashPoint::ItemClaimed);
        if self.is_of_another(&claimants, &comments, item, after_comment) {
            tracing::info!(item = %item.key, host = item.key.host, "another coordinator claimed a forge item first");
            return Ok(service.forge_items.lose(&item.id).await?);
        }
        let comments = self.with_review(forge, item, comments).await?;
        let description = task_text::description(&item.key, &facts, &comments, &claimants);
        let diff_base = item.publication.as_ref().and_then(|to| to.diff_base.as_ref());
        let description = match diff_base {
            Some(base) => task_text::with_diff_base(&description, base),
            None => description,
        };
        service
            .forge_items
            .win(&item.id, &task_text::title(&item.key, &facts), &description)
            .await?;
        crash_point::reach(CrashPoint::ItemWon);
        Ok(())
    }

    /// Returns whether another coordinator claimed an item first. Logs a claim that does not count,
    /// once for each item.
    fn is_of_another(
        &self,
        claimants: &Claimants,
        comments: &[Comment],
        item: &ForgeItem,
        after: u64,
    ) -> bool {
        let claims = claimants.judge(comments, &item.id, after);
        if let Some(author) = claims.ignored.first() {
            let mut logged = lock(&self.with_ignored_claims);
            if logged.len() > MAX_LOGGED {
                logged.clear();
            }
            if logged.insert(item.id.clone()) {
                let author =
                    author.as_ref().map_or("a deleted account", |author| author.login.as_str());
                tracing::warn!(
                    item = %item.key, host = item.key.host, author,
                    advice = "if it is the account of another coordinator, add its login to forge.claims_from",
                    "ignored a claim on a forge item: its author is not an accepted account"
                );
            }
        }
        claims.is_of_another
    }
}
