//! The order in which the items of a host are served: the most urgent first, and not too many at
//! the same time.
//!
//! Knows no forge and does nothing itself. Used by the outbox worker.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use domain::forge::pacing::Urgency;
use domain::id::ItemId;

/// The number of items of one urgency that are served at the same time. An item whose forge hangs
/// does not delay others, and waiting claims do not delay stops.
const N_AT_ONCE: usize = 8;

/// The items to serve, and the items that are being served.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    /// The most urgent items first; of equals, the oldest first.
    due: VecDeque<(Urgency, ItemId)>,
    at_work: BTreeMap<ItemId, Urgency>,
}

impl Agenda {
    /// Replaces the items to serve.
    pub(super) fn set_due(&mut self, mut due: Vec<(Urgency, ItemId)>) {
        // The sort is stable, so the order among equals stays.
        due.sort_by_key(|(urgency, _)| *urgency);
        self.due = due.into();
    }

    /// Returns whether nothing waits to be served.
    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Takes the next item to serve. `None` if there is none, or if too many of the same urgency
    /// are being served.
    pub(super) fn take_next(&mut self) -> Option<ItemId> {
        loop {
            let is_full = |urgency: Urgency| {
                self.at_work.values().filter(|at_work| **at_work == urgency).count() >= N_AT_ONCE
            };
            let full = [Urgency::Stop, Urgency::Work, Urgency::Claim].map(|of| (of, is_full(of)));
            let place =
                self.due.iter().position(|(urgency, _)| !full.contains(&(*urgency, true)))?;
            let (urgency, id) = self.due.remove(place)?;
            // An item that is being served notices changes by itself.
            if let Entry::Vacant(entry) = self.at_work.entry(id.clone()) {
                entry.insert(urgency);
                return Some(id);
            }
        }
    }

    /// Notes that an item is not being served any more.
    pub(super) fn note_served(&mut self, id: &ItemId) {
        self.at_work.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: usize) -> ItemId {
        format!("itm_{n}").parse().expect("an id")
    }

    #[test]
    fn claims_that_are_served_leave_room_for_a_stop() {
        let claims = (0..20).map(|n| (Urgency::Claim, id(n)));
        let mut agenda = Agenda::default();
        agenda.set_due(claims.chain([(Urgency::Stop, id(50))]).collect());
        let first: Vec<_> = std::iter::from_fn(|| agenda.take_next()).collect();
        assert_eq!((first.len(), &first[0]), (N_AT_ONCE + 1, &id(50)));
        agenda.set_due(vec![(Urgency::Claim, id(19)), (Urgency::Stop, id(51))]);
        assert_eq!(agenda.take_next(), Some(id(51)));
        assert_eq!(agenda.take_next(), None, "all places of claims are taken");
        agenda.note_served(&id(0));
        assert_eq!(agenda.take_next(), Some(id(19)));
    }

    #[test]
    fn an_item_is_not_served_twice_at_the_same_time() {
        let mut agenda = Agenda::default();
        agenda.set_due(vec![(Urgency::Work, id(1))]);
        assert_eq!(agenda.take_next(), Some(id(1)));
        agenda.set_due(vec![(Urgency::Stop, id(1)), (Urgency::Work, id(2))]);
        assert_eq!(agenda.take_next(), Some(id(2)));
        assert_eq!(agenda.take_next(), None);
        assert!(agenda.is_empty());
    }
}
