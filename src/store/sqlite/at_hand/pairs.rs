//! What is remembered of pairs, as it was last read or written: who is started is asked for by then, and who has ended again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::{InstanceKey, PairRecord};
use crate::store::{Change, Commit};

/// More of them are forgotten and read anew.
const MAX_KEPT: usize = 1_000;

#[derive(Debug, Default)]
pub(in super::super) struct Pairs(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// Commits that changed a pair: who has read one meanwhile may have missed the last of them.
    n_changes: u64,
    records: BTreeMap<InstanceKey, PairRecord>,
}

/// Before which change something was read.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct AsOf(u64);

impl Kept {
    fn put(&mut self, record: PairRecord) {
        if self.records.len() >= MAX_KEPT && !self.records.contains_key(&record.key) {
            self.records.clear();
        }
        self.records.insert(record.key.clone(), record);
    }
}

impl Pairs {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record, or what [`Pairs::keep`] wants to hear from those who read it.
    pub(in super::super) fn find(&self, key: &InstanceKey) -> Result<PairRecord, AsOf> {
        let kept = self.lock();
        kept.records.get(key).cloned().ok_or(AsOf(kept.n_changes))
    }

    /// As of now, for those who read more than a record.
    pub(in super::super) fn as_of(&self) -> AsOf {
        AsOf(self.lock().n_changes)
    }

    /// Keeps what was read since `as_of`, unless something has changed.
    pub(in super::super) fn keep(&self, as_of: AsOf, record: &PairRecord) {
        let mut kept = self.lock();
        if kept.n_changes == as_of.0 {
            kept.put(record.clone());
        }
    }

    pub(in super::super) fn forget(&self) {
        let mut kept = self.lock();
        kept.n_changes += 1;
        kept.records.clear();
    }

    /// Takes over what was committed, in its order.
    pub(in super::super) fn note<'a>(&self, commits: impl IntoIterator<Item = &'a Commit>) {
        let mut kept = self.lock();
        for change in commits.into_iter().flat_map(|commit| &commit.changes) {
            let Change::Pair(record) = change else {
                continue;
            };
            kept.n_changes += 1;
            kept.put(PairRecord { revision: record.revision + 1, ..record.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Purpose;

    fn record(agent: usize, revision: i64) -> PairRecord {
        let agent = format!("agt_{agent}").parse().unwrap();
        let key = InstanceKey::new(agent, "prj".parse().unwrap(), Purpose::Task);
        PairRecord { revision, ..PairRecord::new(key) }
    }

    fn written(record: &PairRecord) -> Commit {
        Commit { expect: Vec::new(), changes: vec![Change::Pair(record.clone())] }
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept_after_it() {
        let (pairs, old) = (Pairs::default(), record(1, 4));
        let as_of = pairs.find(&old.key).unwrap_err();
        pairs.note([&written(&record(2, 0))]);
        pairs.keep(as_of, &old);
        assert!(pairs.find(&old.key).is_err());
        pairs.keep(pairs.as_of(), &old);
        assert_eq!(pairs.find(&old.key).unwrap().revision, 4);
        pairs.note([&written(&old)]);
        assert_eq!(pairs.find(&old.key).unwrap().revision, 5);
    }

    #[test]
    fn they_are_not_kept_without_end() {
        let pairs = Pairs::default();
        for agent in 0..=MAX_KEPT {
            pairs.keep(pairs.as_of(), &record(agent, 1));
        }
        assert!(pairs.find(&record(MAX_KEPT, 1).key).is_ok());
        assert!(pairs.lock().records.len() <= MAX_KEPT);
    }
}
