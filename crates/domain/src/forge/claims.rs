//! Decides which claims on an item count.
//!
//! Any commenter can copy the hidden line that marks a claim, so only the claims of known accounts
//! count.

use std::collections::BTreeSet;

use super::marker::Marker;
use super::{Comment, ForgeUser, is_bot};
use crate::id::ItemId;

/// The accounts whose claims count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimants {
    /// The account of the token, which posts our claims. `None` if the forge does not tell the
    /// account of the token.
    pub own: Option<ForgeUser>,
    /// The account that people assign.
    pub bot: ForgeUser,
    /// The logins of other coordinators' accounts (`forge.claims_from`).
    pub others: BTreeSet<String>,
}

/// The claims on an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// True if another coordinator was first.
    pub is_of_another: bool,
    /// The authors of claims that do not count. `None` stands for a deleted account.
    pub ignored: Vec<Option<ForgeUser>>,
}

impl Claimants {
    /// Returns whether the claims of `author` count.
    pub fn accepts(&self, author: &ForgeUser) -> bool {
        let is_named = |login: &String| login.to_lowercase() == author.login.to_lowercase();
        is_bot(author, &self.bot)
            || self.own.as_ref().is_some_and(|own| is_bot(author, own))
            || self.others.iter().any(is_named)
    }

    /// Judges the claims among those of `comments` that are newer than the comment `after`.
    pub fn judge(&self, comments: &[Comment], item: &ItemId, after: u64) -> Claims {
        let mut first: Option<(u64, ItemId)> = None;
        let mut ignored = Vec::new();
        for comment in comments.iter().filter(|comment| comment.id > after) {
            let Some(marker) =
                Marker::find(&comment.body).filter(|marker| marker.number == Marker::CLAIM)
            else {
                continue;
            };
            // If the forge does not tell the account of the token, our claim is known by its item
            // alone.
            let is_ours = self.own.is_none() && marker.item == *item;
            if !is_ours && !comment.author.as_ref().is_some_and(|author| self.accepts(author)) {
                ignored.push(comment.author.clone());
            } else if first.as_ref().is_none_or(|(id, _)| comment.id < *id) {
                first = Some((comment.id, marker.item));
            }
        }
        Claims { is_of_another: first.is_some_and(|(_, first)| first != *item), ignored }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: u64, login: &str) -> ForgeUser {
        ForgeUser { id: Some(id), login: login.to_owned() }
    }

    fn item(id: &str) -> ItemId {
        id.parse().expect("an id")
    }

    fn claimants() -> Claimants {
        Claimants {
            own: Some(user(5, "ann")),
            bot: user(6, "Robot"),
            others: ["Android".to_owned()].into(),
        }
    }

    /// Returns a claim of the item `theirs`, or of `ours`.
    fn claim(id: u64, author: Option<ForgeUser>, of: &str) -> Comment {
        let body = Marker { item: item(of), number: Marker::CLAIM }.mark("Started");
        Comment { id, author, body, created_at: String::new() }
    }

    #[track_caller]
    fn check(claimants: &Claimants, comments: &[Comment], is_of_another: bool, n_ignored: usize) {
        let claims = claimants.judge(comments, &item("ours"), 10);
        assert_eq!(
            (claims.is_of_another, claims.ignored.len()),
            (is_of_another, n_ignored),
            "{comments:?}"
        );
    }

    #[test]
    fn the_first_claim_of_an_accepted_account_has_the_item() {
        let ours = claim(20, Some(user(5, "ann")), "ours");
        let by = |id, author| [claim(id, author, "theirs"), ours.clone()];
        for accepted in [user(5, "ann"), user(6, "renamed"), user(9, "ANDROID")] {
            check(&claimants(), &by(15, Some(accepted.clone())), true, 0);
            check(&claimants(), &by(25, Some(accepted.clone())), false, 0);
            check(&claimants(), &by(10, Some(accepted)), false, 0);
        }
        for other in [Some(user(8, "mallory")), Some(user(8, "robot")), Some(user(8, "ann")), None]
        {
            check(&claimants(), &by(15, other), false, 1);
        }
    }

    #[test]
    fn a_copy_of_our_claim_by_another_account_is_no_claim_of_ours() {
        let copied = claim(12, Some(user(8, "mallory")), "ours");
        let theirs = claim(15, Some(user(6, "robot")), "theirs");
        check(&claimants(), &[copied, theirs], true, 1);
    }

    #[test]
    fn our_claim_counts_if_the_forge_does_not_say_whose_token_it_is() {
        let claimants = Claimants { own: None, ..claimants() };
        let ours = claim(15, Some(user(7, "app")), "ours");
        check(&claimants, &[ours.clone(), claim(16, Some(user(6, "robot")), "theirs")], false, 0);
        check(&claimants, &[ours, claim(14, Some(user(6, "robot")), "theirs")], true, 0);
    }

    #[test]
    fn other_comments_of_ours_are_no_claims() {
        let body = Marker { item: item("theirs"), number: 1 }.mark("Done");
        let comment = Comment { body, ..claim(15, Some(user(6, "robot")), "theirs") };
        check(&claimants(), &[comment], false, 0);
    }
}
