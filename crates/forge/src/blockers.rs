//! Finds out which free issues have to wait for other open issues. The lists of GitHub have the
//! number of these, and those of GitLab do not.
//!
//! At GitHub, the addresses of the other issues are asked for once, because they are only shown. At
//! GitLab, each issue is asked about when it becomes free, or has changed. A blocked one is asked
//! about again, because the end of the work on another issue does not change it. A look asks about
//! some of them, in turn, so that a long list does not make a look long.

use std::collections::BTreeMap;

use super::list_cursor::ItemNumber;
use super::turns::Turns;
use domain::forge::{ItemFacts, ItemKind};

/// The number of issues that a look asks about.
const MAX_QUESTIONS: usize = 40;

/// The free issues of a repository.
#[derive(Debug, Default)]
pub(super) struct Blockers {
    free: BTreeMap<ItemNumber, Free>,
    turns: Turns,
    /// The forge does not tell it.
    is_untold: bool,
}

#[derive(Debug)]
struct Free {
    facts: ItemFacts,
    is_unblocked: bool,
    /// The addresses of the issues that block it, once the forge was asked.
    blockers: Option<Vec<String>>,
}

impl Blockers {
    /// Notes a free item of a list. Returns whether it may be worked on, as far as other issues are
    /// concerned. If not, the next look asks.
    pub(super) fn note(&mut self, item: &ItemFacts) -> bool {
        if self.is_untold || item.kind != ItemKind::Issue {
            return true;
        }
        let known = self.free.get(&(item.kind, item.number));
        if known.is_some_and(|it| it.is_unblocked && it.facts.updated_at == item.updated_at) {
            return true;
        }
        let free = Free { facts: item.clone(), is_unblocked: false, blockers: None };
        self.free.insert((item.kind, item.number), free);
        false
    }

    /// Notes a free item of a list that has the number of its blockers. Returns their addresses, as
    /// far as they are known. The next look asks for those of an issue that has changed.
    pub(super) fn note_counted(&mut self, item: &ItemFacts) -> Vec<String> {
        let within = (item.kind, item.number);
        let before = self.free.remove(&within);
        if item.n_blockers == 0 {
            return Vec::new();
        }
        let is_same = |before: &Free| {
            (before.facts.n_blockers, &before.facts.updated_at)
                == (item.n_blockers, &item.updated_at)
        };
        let blockers = before.filter(is_same).and_then(|before| before.blockers);
        let shown = blockers.clone().unwrap_or_default();
        self.free.insert(within, Free { facts: item.clone(), is_unblocked: false, blockers });
        shown
    }

    /// Forgets the issues that are not free any more.
    pub(super) fn keep(&mut self, is_meant: impl Fn(ItemKind, u64) -> bool) {
        self.free.retain(|(kind, number), _| is_meant(*kind, *number));
    }

    /// Returns the issues to ask about now.
    pub(super) fn next_to_ask(&mut self) -> Vec<ItemNumber> {
        let is_known = |free: &Free| free.facts.n_blockers > 0 && free.blockers.is_some();
        let blocked = self.free.iter().filter(|(_, free)| !free.is_unblocked && !is_known(free));
        self.turns.take(blocked.map(|(within, _)| *within), MAX_QUESTIONS)
    }

    /// Takes the answer about an issue. Returns the issue with the number of its blockers.
    pub(super) fn take(&mut self, issue: ItemNumber, blockers: &[String]) -> Option<ItemFacts> {
        let free = self.free.get_mut(&issue)?;
        // The token may not see all issues that a list counts.
        let n_blockers = free.facts.n_blockers.max(blockers.len() as u64);
        free.is_unblocked = n_blockers == 0;
        free.blockers = Some(blockers.to_vec());
        Some(ItemFacts { n_blockers, ..free.facts.clone() })
    }

    /// Notes that the forge does not tell it. Returns the issues that wait for an answer.
    pub(super) fn give_up(&mut self) -> Vec<ItemFacts> {
        self.is_untold = true;
        let free = std::mem::take(&mut self.free).into_values();
        free.filter(|free| !free.is_unblocked).map(|free| free.facts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::issue;

    #[test]
    fn an_issue_is_asked_about_until_nothing_blocks_it_and_again_when_it_has_changed() {
        let one = (ItemKind::Issue, 1);
        let mut blockers = Blockers::default();
        assert!(!blockers.note(&issue(1, "a")));
        assert_eq!(blockers.next_to_ask(), [one]);
        let others = ["a", "b"].map(str::to_owned);
        assert_eq!(blockers.take(one, &others).map(|issue| issue.n_blockers), Some(2));
        assert!(!blockers.note(&issue(1, "a")));
        assert_eq!(blockers.next_to_ask(), [one]);
        assert_eq!(blockers.take(one, &[]), Some(issue(1, "a")));
        assert!(blockers.note(&issue(1, "a")));
        assert_eq!(blockers.next_to_ask(), []);
        assert!(!blockers.note(&issue(1, "b")), "it may be blocked now");
        blockers.keep(|_, number| number != 1);
        assert_eq!(blockers.next_to_ask(), []);
        let request = ItemFacts { kind: ItemKind::MergeRequest, ..issue(2, "a") };
        assert!(blockers.note(&request), "only issues are blocked");
    }

    #[test]
    fn the_addresses_of_counted_blockers_are_asked_for_once_until_the_issue_changes() {
        let one = (ItemKind::Issue, 1);
        let counted = |n_blockers, at| ItemFacts { n_blockers, ..issue(1, at) };
        let mut blockers = Blockers::default();
        assert_eq!(blockers.note_counted(&counted(2, "a")), [""; 0]);
        assert_eq!(blockers.next_to_ask(), [one]);
        // The token sees one of the two.
        let seen = ["https://forge.example/2".to_owned()];
        assert_eq!(blockers.take(one, &seen), Some(counted(2, "a")));
        assert_eq!(blockers.next_to_ask(), []);
        assert_eq!(blockers.note_counted(&counted(2, "a")), seen);
        assert_eq!(blockers.note_counted(&counted(1, "a")), [""; 0]);
        assert_eq!(blockers.next_to_ask(), [one]);
        assert_eq!(blockers.note_counted(&counted(0, "a")), [""; 0]);
        assert_eq!(blockers.next_to_ask(), []);
    }

    #[test]
    fn each_look_asks_about_some_of_many_and_about_none_if_the_forge_does_not_tell() {
        let mut blockers = Blockers::default();
        for number in 1..=100 {
            assert!(!blockers.note(&issue(number, "a")));
        }
        let asked: Vec<u64> =
            (0..3).flat_map(|_| blockers.next_to_ask()).map(|(_, number)| number).collect();
        assert_eq!(asked[..100], (1..=100).collect::<Vec<_>>());
        blockers.take((ItemKind::Issue, 1), &[]);
        assert_eq!(blockers.give_up().len(), 99);
        assert!(blockers.note(&issue(1, "b")));
        assert_eq!(blockers.next_to_ask(), []);
    }
}
