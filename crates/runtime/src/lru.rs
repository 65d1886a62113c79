//! A table of limited size. When it is full, it forgets the entry that was not touched for the
//! longest time.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// The newest entries by key.
#[derive(Debug)]
pub struct Lru<K, V> {
    capacity: usize,
    n_touched: u64,
    entries: HashMap<K, (u64, V)>,
    /// The keys by the order of their last touch.
    order: BTreeMap<u64, K>,
}

impl<K: Hash + Eq + Clone, V: Default> Lru<K, V> {
    pub fn of(capacity: usize) -> Self {
        Self { capacity, n_touched: 0, entries: HashMap::new(), order: BTreeMap::new() }
    }

    /// Returns the entry of `key`, or a new one.
    pub fn touch(&mut self, key: &K) -> &mut V {
        if !self.entries.contains_key(key)
            && self.entries.len() >= self.capacity
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.n_touched += 1;
        let (touched, value) = self.entries.entry(key.clone()).or_default();
        self.order.remove(touched);
        *touched = self.n_touched;
        self.order.insert(self.n_touched, key.clone());
        value
    }

    pub fn find(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Returns all entries, in no order. They count as not touched.
    pub fn entries(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.entries.iter_mut().map(|(key, (_, value))| (key, value))
    }

    pub fn forget(&mut self, key: &K) {
        if let Some((touched, _)) = self.entries.remove(key) {
            self.order.remove(&touched);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_and_no_other() {
        let mut recent = Lru::of(2);
        *recent.touch(&"a") = 1;
        *recent.touch(&"b") = 2;
        recent.touch(&"a");
        *recent.touch(&"c") = 3;
        assert_eq!(
            (recent.find(&"a"), recent.find(&"b"), recent.find(&"c")),
            (Some(&1), None, Some(&3))
        );
        recent.forget(&"c");
        recent.touch(&"d");
        assert_eq!((recent.find(&"a"), recent.find(&"c")), (Some(&1), None));
        assert_eq!((recent.entries.len(), recent.order.len()), (2, 2));
    }
}
