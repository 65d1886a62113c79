//! The one predicate that decides whether an item is work for the bot. It is the same for the
//! start, the resumption and the stop of the work.

use serde::{Deserialize, Serialize};

use super::item::ItemState;
use super::labels::{LabelNames, LabelState, is_same};
use super::{ForgeUser, ItemFacts};
use crate::launch::StopReason;
use crate::words::words;

words! {
    /// Why work on an item ended although it wasn't finished.
    pub enum StopCause as "stop cause" {
        /// The bot is not assigned any more.
        Unassigned = "unassigned",
        /// It has none of the labels by which the bot is told to work on it.
        Unlabelled = "unlabelled",
        /// Closed, or merged.
        Closed = "closed",
        /// Deleted, or out of our sight.
        Gone = "gone",
        /// It is part of another repository now.
        Moved = "moved",
        /// A person cancelled or deleted its task here.
        Cancelled = "cancelled",
    }
}

impl StopCause {
    /// Returns the reason to end an agent that works on the item. `None` if the agent is told that
    /// its task is cancelled, as it is if a person cancels it.
    pub const fn stop_reason(self) -> Option<StopReason> {
        match self {
            Self::Unassigned | Self::Unlabelled => Some(StopReason::Unassigned),
            Self::Closed => Some(StopReason::Closed),
            Self::Gone => Some(StopReason::Gone),
            Self::Moved => Some(StopReason::Moved),
            Self::Cancelled => None,
        }
    }

    /// Returns whether the item still exists and can be written to.
    pub const fn leaves_an_item(self) -> bool {
        !matches!(self, Self::Gone | Self::Moved)
    }
}

/// The rules for judging an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    pub bot: ForgeUser,
    pub labels: LabelNames,
}

/// The result of the predicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Eligibility {
    /// The item is work for the bot.
    Eligible,
    Not(StopCause),
}

/// Returns whether a user is the bot. Compares the numbers if both are known, else the logins
/// without their case.
pub fn is_bot(user: &ForgeUser, bot: &ForgeUser) -> bool {
    match (user.id, bot.id) {
        (Some(user), Some(bot)) => user == bot,
        _ => user.login.to_lowercase() == bot.login.to_lowercase(),
    }
}

impl Rules {
    /// Returns whether `item` is work for the bot. `state` is our progress with it, and `None` if
    /// it is not ours yet.
    pub fn judge(&self, item: &ItemFacts, state: Option<&ItemState>) -> Eligibility {
        let has = |label: &str| item.labels.iter().any(|other| is_same(other, label));
        let is_told = has(&self.labels.bot_label)
            || has(&self.labels.processing_label)
            || state.and_then(ItemState::label).is_some_and(|own| has(self.labels.of(own)));
        if !item.is_open {
            Eligibility::Not(StopCause::Closed)
        } else if !item.assignees.iter().any(|user| is_bot(user, &self.bot)) {
            Eligibility::Not(StopCause::Unassigned)
        } else if !is_told {
            Eligibility::Not(StopCause::Unlabelled)
        } else {
            Eligibility::Eligible
        }
    }

    /// Returns whether an item that is not ours may be taken. If it has the label for work in
    /// progress, another worker has it. If it has a label for work that was put aside, it stays
    /// with the coordinator that put it aside. The bot's label then asks that coordinator to
    /// continue. An item that other open items block is not free yet.
    pub fn is_free(&self, item: &ItemFacts) -> bool {
        self.is_wanted(item) && item.n_blockers == 0
    }

    /// Returns whether an item that is not ours is free, or will be when no other item blocks it.
    pub fn is_wanted(&self, item: &ItemFacts) -> bool {
        let LabelNames { processing_label, paused_label, blocked_label, failed_label, .. } =
            &self.labels;
        let held = [processing_label, paused_label, blocked_label, failed_label];
        let is_held = |label: &String| held.iter().any(|held| is_same(label, held));
        self.judge(item, None) == Eligibility::Eligible && !item.labels.iter().any(is_held)
    }

    /// Returns whether people ask again for work that was put aside: the bot's label is back on an
    /// item that is blocked or failed.
    pub fn is_asked_again(&self, item: &ItemFacts, state: &ItemState) -> bool {
        matches!(state.label(), Some(LabelState::Blocked | LabelState::Failed))
            && item.labels.iter().any(|label| is_same(label, &self.labels.bot_label))
            && self.judge(item, Some(state)) == Eligibility::Eligible
    }
}

#[cfg(test)]
mod tests {
    use super::super::LabelNames;
    use super::super::item::WorkState;
    use super::*;

    fn user(id: Option<u64>, login: &str) -> ForgeUser {
        ForgeUser { id, login: login.to_owned() }
    }

    fn item(labels: &[&str], assignees: &[ForgeUser]) -> ItemFacts {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        ItemFacts { labels, assignees: assignees.to_vec(), ..ItemFacts::example() }
    }

    #[track_caller]
    fn check(item: &ItemFacts, state: Option<&ItemState>, expected: Eligibility) {
        let rules = Rules { bot: user(Some(5), "Robot"), labels: LabelNames::default() };
        assert_eq!(rules.judge(item, state), expected, "{item:?}");
    }

    #[test]
    fn the_bot_is_found_among_all_assignees_without_case_and_by_its_number() {
        let labels = ["coding agent"];
        check(
            &item(&labels, &[user(None, "ann"), user(None, "ROBOT")]),
            None,
            Eligibility::Eligible,
        );
        check(&item(&labels, &[user(Some(5), "renamed")]), None, Eligibility::Eligible);
        check(
            &item(&labels, &[user(Some(6), "robot")]),
            None,
            Eligibility::Not(StopCause::Unassigned),
        );
        check(&item(&labels, &[]), None, Eligibility::Not(StopCause::Unassigned));
    }

    #[test]
    fn a_closed_item_is_closed_whoever_is_assigned() {
        let closed =
            ItemFacts { is_open: false, ..item(&["coding agent"], &[user(Some(5), "robot")]) };
        check(&closed, None, Eligibility::Not(StopCause::Closed));
    }

    #[test]
    fn the_label_of_its_own_state_keeps_an_item() {
        let bot = [user(Some(5), "robot")];
        let blocked = ItemState::Active(WorkState::Blocked);
        check(&item(&["coding agent blocked"], &bot), Some(&blocked), Eligibility::Eligible);
        check(
            &item(&["coding agent blocked"], &bot),
            None,
            Eligibility::Not(StopCause::Unlabelled),
        );
        check(&item(&["bug"], &bot), Some(&blocked), Eligibility::Not(StopCause::Unlabelled));
    }

    #[test]
    fn what_somebody_works_on_is_not_free() {
        let rules = Rules { bot: user(None, "robot"), labels: LabelNames::default() };
        let bot = [user(None, "robot")];
        assert!(rules.is_free(&item(&["Coding Agent"], &bot)));
        let blocked = ItemFacts { n_blockers: 1, ..item(&["coding agent"], &bot) };
        assert!(rules.is_wanted(&blocked) && !rules.is_free(&blocked));
        assert!(!rules.is_free(&item(&["coding agent", "coding agent processing"], &bot)));
        assert!(!rules.is_free(&item(&["coding agent processing"], &bot)));
        for held in ["paused", "blocked", "failed"] {
            let held = format!("coding agent {held}");
            assert!(
                !rules.is_free(&item(&["coding agent", &held], &bot)),
                "{held}: whoever has it is asked again"
            );
        }
        for over in ["coding agent stopped", "coding agent done"] {
            assert!(rules.is_free(&item(&["coding agent", over], &bot)), "{over}");
        }
    }

    #[test]
    fn the_bots_label_asks_again_for_what_was_put_aside() {
        let rules = Rules { bot: user(None, "robot"), labels: LabelNames::default() };
        let asked = item(&["coding agent", "coding agent failed"], &[user(None, "robot")]);
        assert!(rules.is_asked_again(&asked, &ItemState::Active(WorkState::Failed)));
        assert!(!rules.is_asked_again(&asked, &ItemState::Active(WorkState::Processing)));
    }
}
