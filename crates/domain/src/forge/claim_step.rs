//! Decides the next step of the claim of an item, from what is known and done so far.
//!
//! ```text
//!  read comments ─► read item ─► record ─► label ─► announce ─► win
//!        │              │                               │
//!        │              ├─► stop: not for the bot       │
//!        └──────────────┴─► lose: another was first ◄───┘
//! ```
//!
//! The first claim since the item was free wins. An attempt that fails is repeated from the
//! beginning. Only the record of the last comment outlives it.

use super::claims::Claims;
use super::labels::is_same;
use super::{Claimants, Comment, Eligibility, ForgeItem, ItemFacts, LabelDelta, Rules, StopCause};

/// The facts of one attempt to claim an item.
#[derive(Debug, Clone, Default)]
pub struct ClaimProgress {
    /// Claims up to this comment belong to former work. `None` until it is recorded.
    pub after_comment: Option<u64>,
    /// The newest comments that were read.
    pub comments: Option<Vec<Comment>>,
    /// The item, or the reason why there is none. It is read after the comments.
    pub found: Option<Result<ItemFacts, StopCause>>,
    /// This attempt has set the label for work in progress.
    pub is_labelled: bool,
    /// The claim is among the comments, or the item takes no comments.
    pub is_announced: bool,
}

/// The next step of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimStep<'a> {
    ReadComments,
    ReadItem,
    /// Record that claims up to this comment belong to former work.
    Record(u64),
    Label(LabelDelta),
    /// Post the claim, and read the comments again.
    Announce,
    /// The item is ours.
    Win {
        facts: &'a ItemFacts,
        comments: &'a [Comment],
    },
    /// Another coordinator has the item.
    Lose,
    Stop(StopCause),
}

impl ClaimProgress {
    /// Returns the claims that are newer than former work. `None` until both are known.
    pub fn claims(&self, item: &ForgeItem, claimants: &Claimants) -> Option<Claims> {
        let after = self.after_comment?;
        Some(claimants.judge(self.comments.as_ref()?, &item.id, after))
    }

    /// Returns the next step. Each step adds a fact, so the attempt comes to an end.
    pub fn step(&self, item: &ForgeItem, rules: &Rules, claimants: &Claimants) -> ClaimStep<'_> {
        if let Some(Err(cause)) = self.found {
            return ClaimStep::Stop(cause);
        }
        let Some(comments) = &self.comments else {
            return ClaimStep::ReadComments;
        };
        // Before the first step of a repeated attempt, another coordinator may have taken and
        // finished the item. Then its labels are not ours to change.
        if self.claims(item, claimants).is_some_and(|claims| claims.is_of_another) {
            return ClaimStep::Lose;
        }
        // Another coordinator sets the label before it claims the item. If its claim came before
        // the comments were read, an item that is read after them has that label.
        let Some(Ok(facts)) = &self.found else {
            return ClaimStep::ReadItem;
        };
        if let Eligibility::Not(cause) = rules.judge(facts, Some(&item.state)) {
            return ClaimStep::Stop(cause);
        }
        if self.after_comment.is_none() {
            if !rules.is_free(facts) {
                return ClaimStep::Lose;
            }
            let last = comments.iter().map(|comment| comment.id).max();
            return ClaimStep::Record(last.unwrap_or(0));
        }
        let label = &rules.labels.processing_label;
        let has_label = facts.labels.iter().any(|other| is_same(other, label));
        if !has_label && !self.is_labelled {
            ClaimStep::Label(LabelDelta { add: vec![label.clone()], remove: Vec::new() })
        } else if !self.is_announced {
            ClaimStep::Announce
        } else {
            ClaimStep::Win { facts, comments }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forge::marker::Marker;
    use crate::forge::{ForgeUser, ItemKey, LabelNames};
    use crate::id::ItemId;
    use crate::time::Timestamp;

    struct Bed {
        item: ForgeItem,
        rules: Rules,
        claimants: Claimants,
    }

    fn bot() -> ForgeUser {
        ForgeUser { id: Some(5), login: "robot".to_owned() }
    }

    fn id<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
        text.parse().expect("an id")
    }

    /// Returns an item with these labels that the bot is assigned to.
    fn labelled(labels: &[&str]) -> ItemFacts {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        ItemFacts { labels, assignees: vec![bot()], ..ItemFacts::example() }
    }

    fn free() -> ItemFacts {
        labelled(&["coding agent"])
    }

    /// Returns a claim by the account of the bot.
    fn claim(number: u64, item: &str) -> Comment {
        let marker = Marker { item: id::<ItemId>(item), number: Marker::CLAIM };
        let body = marker.mark("Started");
        Comment { id: number, author: Some(bot()), body, created_at: String::new() }
    }

    impl Bed {
        fn new() -> Self {
            let now = Timestamp::from_millis(0);
            let key = ItemKey::example();
            let item = ForgeItem::new(id("ours"), id("tsk"), key, id("agt"), id("prj"), now);
            let rules = Rules { bot: bot(), labels: LabelNames::default() };
            let claimants = Claimants { own: Some(bot()), bot: bot(), others: [].into() };
            Self { item, rules, claimants }
        }

        fn step<'a>(&self, progress: &'a ClaimProgress) -> ClaimStep<'a> {
            progress.step(&self.item, &self.rules, &self.claimants)
        }
    }

    fn label() -> ClaimStep<'static> {
        let add = vec!["coding agent processing".to_owned()];
        ClaimStep::Label(LabelDelta { add, remove: Vec::new() })
    }

    #[test]
    fn a_free_item_is_claimed_step_by_step() {
        let bed = Bed::new();
        let mut progress = ClaimProgress::default();
        assert_eq!(bed.step(&progress), ClaimStep::ReadComments);
        progress.comments = Some(vec![claim(4, "former"), claim(3, "former")]);
        assert_eq!(bed.step(&progress), ClaimStep::ReadItem);
        progress.found = Some(Ok(free()));
        assert_eq!(bed.step(&progress), ClaimStep::Record(4));
        progress.after_comment = Some(4);
        assert_eq!(bed.step(&progress), label());
        progress.is_labelled = true;
        assert_eq!(bed.step(&progress), ClaimStep::Announce);
        progress.is_announced = true;
        let comments = vec![claim(4, "former"), claim(6, "ours"), claim(7, "theirs")];
        progress.comments = Some(comments.clone());
        assert_eq!(bed.step(&progress), ClaimStep::Win { facts: &free(), comments: &comments });
    }

    #[test]
    fn each_fact_leads_to_its_step() {
        let bed = Bed::new();
        let stop = ClaimStep::Stop;
        let closed = ItemFacts { is_open: false, ..free() };
        let unassigned = ItemFacts { assignees: Vec::new(), ..free() };
        let waits = ItemFacts { n_blockers: 1, ..free() };
        let processing = labelled(&["Coding Agent Processing"]);
        let theirs = |number| Some(vec![claim(number, "theirs")]);
        let none = || Some(Vec::new());
        let cases = [
            (None, None, Some(Err(StopCause::Gone)), stop(StopCause::Gone)),
            (Some(4), theirs(5), Some(Err(StopCause::Moved)), stop(StopCause::Moved)),
            (None, none(), Some(Ok(closed)), stop(StopCause::Closed)),
            (Some(4), none(), Some(Ok(unassigned)), stop(StopCause::Unassigned)),
            (None, none(), Some(Ok(labelled(&["bug"]))), stop(StopCause::Unlabelled)),
            // Another coordinator has the item, or it is not free yet.
            (None, none(), Some(Ok(processing.clone())), ClaimStep::Lose),
            (None, none(), Some(Ok(waits)), ClaimStep::Lose),
            (None, none(), Some(Ok(free())), ClaimStep::Record(0)),
            (None, theirs(5), Some(Ok(free())), ClaimStep::Record(5)),
            // The attempt is repeated. The item need not be read if it is lost already.
            (Some(4), theirs(5), None, ClaimStep::Lose),
            (Some(4), theirs(4), None, ClaimStep::ReadItem),
            (Some(4), none(), Some(Ok(free())), label()),
            (Some(4), none(), Some(Ok(processing)), ClaimStep::Announce),
        ];
        for (after_comment, comments, found, expected) in cases {
            let known =
                ClaimProgress { after_comment, comments, found, ..ClaimProgress::default() };
            assert_eq!(bed.step(&known), expected, "{known:?}");
        }
    }

    #[test]
    fn the_comments_after_the_announcement_decide() {
        let bed = Bed::new();
        let announced = |comments: Vec<Comment>| ClaimProgress {
            after_comment: Some(4),
            comments: Some(comments),
            found: Some(Ok(free())),
            is_labelled: true,
            is_announced: true,
        };
        for (comments, is_won) in [
            (vec![claim(5, "ours")], true),
            (vec![claim(5, "ours"), claim(6, "theirs")], true),
            (vec![claim(5, "theirs"), claim(6, "ours")], false),
            (vec![claim(4, "theirs"), claim(6, "ours")], true),
            // A locked item has no claim but its label.
            (Vec::new(), true),
        ] {
            let progress = announced(comments);
            let step = bed.step(&progress);
            assert_eq!(matches!(step, ClaimStep::Win { .. }), is_won, "{step:?}");
            assert_eq!(step == ClaimStep::Lose, !is_won, "{step:?}");
        }
    }
}
