//! Claims an item, as `domain::forge::claim_step` decides: labels it, posts a comment, and finds
//! out whether that was the first claim.

use super::super::ForgeError;
use super::{ItemWriter, Unanswered, WriteError};
use domain::forge::claims::Claims;
use domain::forge::marker::Marker;
use domain::forge::{
    ClaimProgress, ClaimStep, Claimants, Comment, ItemFacts, ItemState, task_text,
};
use machine::crash_point::{self, CrashPoint};
use machine::locks::lock;

/// The number of items that are remembered as logged.
const MAX_LOGGED: usize = 1_000;

impl ItemWriter<'_> {
    /// Claims an item with a comment, then checks the claim: the first claim since the item was
    /// free wins.
    pub(super) async fn claim(&self) -> Result<(), WriteError> {
        let item = self.item;
        let items = &self.host_state.service.forge_items;
        let ItemState::Claiming { after_comment } = item.state else {
            return Ok(());
        };
        if self.host_state.service.are_starts_held() {
            return Err(WriteError::Held);
        }
        let rules = self.host_state.rules().await.map_err(WriteError::Refused)?;
        let claimants = self.host_state.claimants(&rules).await?;
        let mut progress = ClaimProgress { after_comment, ..ClaimProgress::default() };
        loop {
            self.log_ignored_claim(progress.claims(item, &claimants));
            match progress.step(item, &rules, &claimants) {
                ClaimStep::ReadComments => match self.comments().await {
                    // The state of the item decides. If the item exists, its comments do, too, at
                    // the next attempt.
                    Err(
                        error @ Unanswered::Failed(
                            ForgeError::NotFound { .. } | ForgeError::Moved { .. },
                        ),
                    ) => match self.facts().await? {
                        Ok(_) => return Err(error.into()),
                        Err(cause) => progress.found = Some(Err(cause)),
                    },
                    comments => progress.comments = Some(comments?),
                },
                ClaimStep::ReadItem => progress.found = Some(self.facts().await?),
                ClaimStep::Record(last) => {
                    items.look_at(&item.id, last).await?;
                    progress.after_comment = Some(last);
                    crash_point::reach(CrashPoint::ItemLookedAt);
                }
                ClaimStep::Label(delta) => {
                    self.change_labels(&delta).await?;
                    progress.is_labelled = true;
                    crash_point::reach(CrashPoint::ItemLabelled);
                }
                ClaimStep::Announce => {
                    if let Some(comments) = self.announce().await? {
                        progress.comments = Some(comments);
                    }
                    progress.is_announced = true;
                    crash_point::reach(CrashPoint::ItemClaimed);
                }
                ClaimStep::Win { facts, comments } => {
                    return self.win(facts, comments.to_vec(), &claimants).await;
                }
                ClaimStep::Lose => {
                    if progress.is_announced {
                        tracing::info!(
                            item = %item.key, host = item.key.host,
                            "another coordinator claimed a forge item first"
                        );
                    }
                    return Ok(items.lose(&item.id).await?);
                }
                ClaimStep::Stop(cause) => return Ok(items.stop(&item.id, cause).await?),
            }
        }
    }

    /// Posts the claim, and returns all comments after that. `None` if the conversation is locked:
    /// the label is then the only possible claim.
    async fn announce(&self) -> Result<Option<Vec<Comment>>, WriteError> {
        let item = self.item;
        let text = self.texts().claimed(&item.agent, &item.project, item.created_at);
        match self.comment(Marker::CLAIM, &text).await {
            Err(WriteError::Locked) => {
                tracing::warn!(
                    item = %item.key, host = item.key.host,
                    "claimed a forge item by its label alone: its conversation is locked"
                );
                Ok(None)
            }
            comments => comments.map(Some),
        }
    }

    /// Creates the task of an item.
    async fn win(
        &self,
        facts: &ItemFacts,
        comments: Vec<Comment>,
        claimants: &Claimants,
    ) -> Result<(), WriteError> {
        let item = self.item;
        let comments = self.with_review(comments).await?;
        let description = task_text::description(&item.key, facts, &comments, claimants);
        let diff_base = item.publication.as_ref().and_then(|to| to.diff_base.as_ref());
        let description = match diff_base {
            Some(base) => task_text::with_diff_base(&description, base),
            None => description,
        };
        let title = task_text::title(&item.key, facts);
        self.host_state.service.forge_items.win(&item.id, &title, &description).await?;
        crash_point::reach(CrashPoint::ItemWon);
        Ok(())
    }

    /// Logs a claim that does not count, once for each item.
    fn log_ignored_claim(&self, claims: Option<Claims>) {
        let item = self.item;
        let Some(author) = claims.and_then(|claims| claims.ignored.into_iter().next()) else {
            return;
        };
        let mut logged = lock(&self.worker.with_ignored_claims);
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
}
