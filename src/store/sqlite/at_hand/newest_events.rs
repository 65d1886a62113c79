//! The newest events: whoever follows asks for them after each commit that tells one.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::event::{Event, NewEvent};
use crate::store::{Change, Commit};

/// How many are kept: who asks for older ones is behind, and hears them from the file.
const MAX_KEPT: usize = 512;

/// `None` until the number of the last was read, and after a commit of which nobody knows whether it was made.
#[derive(Debug, Default)]
pub(in super::super) struct NewestEvents(Mutex<Option<Kept>>);

#[derive(Debug)]
struct Kept {
    /// All after this one that are still in the file are here.
    after: i64,
    newest: i64,
    events: VecDeque<Event>,
}

impl NewestEvents {
    fn lock(&self) -> MutexGuard<'_, Option<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in super::super) fn are_known(&self) -> bool {
        self.lock().is_some()
    }

    /// The first `n_most` after the event `after`; `None` where that is too long ago.
    pub(in super::super) fn list(&self, after: i64, n_most: usize) -> Option<Vec<Event>> {
        let kept = self.lock();
        let kept = kept.as_ref().filter(|kept| after >= kept.after)?;
        let n_seen = kept.events.partition_point(|event| event.seq <= after);
        Some(kept.events.range(n_seen..).take(n_most).cloned().collect())
    }

    /// The number of the last; `None` where nobody knows.
    pub(in super::super) fn newest(&self) -> Option<i64> {
        Some(self.lock().as_ref()?.newest)
    }

    /// Begins with none, where the last number that an event has had is `newest`.
    pub(in super::super) fn begin_after(&self, newest: i64) {
        *self.lock() = Some(Kept { after: newest, newest, events: VecDeque::new() });
    }

    pub(in super::super) fn forget(&self) {
        *self.lock() = None;
    }

    /// Takes over what was committed, in its order, which is that of the numbers: only one writes, and what is undone gives its
    /// numbers back.
    pub(in super::super) fn note<'a>(&self, commits: impl IntoIterator<Item = &'a Commit>) {
        let mut kept = self.lock();
        let Some(kept) = kept.as_mut() else { return };
        for change in commits.into_iter().flat_map(|commit| &commit.changes) {
            match change {
                Change::Event(event) => kept.add(event),
                Change::ForgetEvents(up_to) => kept.drop_to(*up_to),
                _ => {}
            }
        }
    }
}

impl Kept {
    fn add(&mut self, event: &NewEvent) {
        self.newest += 1;
        if self.events.len() >= MAX_KEPT
            && let Some(oldest) = self.events.pop_front()
        {
            self.after = oldest.seq;
        }
        let NewEvent { at, kind, agent, project, launch, task, detail } = event.clone();
        self.events.push_back(Event {
            seq: self.newest,
            at,
            kind: kind.to_owned(),
            agent,
            project,
            launch,
            task,
            detail,
        });
    }

    /// They are gone from the file as well.
    fn drop_to(&mut self, up_to: i64) {
        let n_gone = self.events.partition_point(|event| event.seq <= up_to);
        self.events.drain(..n_gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Timestamp;

    fn told(n_events: usize) -> Commit {
        let event = NewEvent {
            at: Timestamp::from_millis(1),
            kind: "launch.ended",
            agent: None,
            project: None,
            launch: None,
            task: None,
            detail: None,
        };
        Commit { expect: Vec::new(), changes: vec![Change::Event(event); n_events] }
    }

    fn numbers(events: &NewestEvents, after: i64, n_most: usize) -> Option<Vec<i64>> {
        Some(events.list(after, n_most)?.iter().map(|event| event.seq).collect())
    }

    #[test]
    fn what_was_told_since_is_known_and_nothing_before() {
        let events = NewestEvents::default();
        events.note([&told(1)]);
        assert_eq!(numbers(&events, 0, 10), None, "nobody knows how many there were");
        events.begin_after(7);
        assert_eq!(numbers(&events, 6, 10), None);
        assert_eq!(numbers(&events, 7, 10), Some(Vec::new()));
        events.note([&told(2), &told(1)]);
        assert_eq!(numbers(&events, 7, 10), Some(vec![8, 9, 10]));
        assert_eq!(numbers(&events, 8, 1), Some(vec![9]));
        events.note([&Commit { expect: Vec::new(), changes: vec![Change::ForgetEvents(9)] }]);
        assert_eq!(numbers(&events, 7, 10), Some(vec![10]));
        events.forget();
        assert_eq!(numbers(&events, 9, 10), None);
    }

    #[test]
    fn of_many_the_newest_are_kept() {
        let events = NewestEvents::default();
        events.begin_after(0);
        events.note([&told(MAX_KEPT + 3)]);
        assert_eq!(numbers(&events, 2, 1), None);
        assert_eq!(numbers(&events, 3, 1), Some(vec![4]));
        assert_eq!(events.list(3, usize::MAX).map(|events| events.len()), Some(MAX_KEPT));
    }
}
