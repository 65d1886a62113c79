//! Takes some of many things at a time, so that each has its turn.

use super::list_cursor::ItemNumber;

/// The place at which the next turn begins.
#[derive(Debug, Default)]
pub(super) struct Turns {
    last: Option<ItemNumber>,
}

impl Turns {
    /// Returns at most `most` of `all`, beginning after those of the last call. `all` has them in
    /// their order, each once.
    pub(super) fn take(
        &mut self,
        all: impl IntoIterator<Item = ItemNumber>,
        most: usize,
    ) -> Vec<ItemNumber> {
        let all: Vec<ItemNumber> = all.into_iter().collect();
        let is_later = |thing: &ItemNumber| self.last.is_none_or(|last| *thing > last);
        let (later, earlier): (Vec<_>, Vec<_>) = all.into_iter().partition(is_later);
        let taken: Vec<ItemNumber> = later.into_iter().chain(earlier).take(most).collect();
        self.last = taken.last().copied().or(self.last);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::forge::ItemKind::PullRequest;

    #[test]
    fn each_has_its_turn_also_when_others_come_and_go() {
        let all = |numbers: &[u64]| numbers.iter().map(|n| (PullRequest, *n)).collect::<Vec<_>>();
        let mut turns = Turns::default();
        let mut take = |numbers: &[u64]| {
            let taken = turns.take(all(numbers), 2);
            taken.into_iter().map(|(_, number)| number).collect::<Vec<_>>()
        };
        assert_eq!(take(&[1, 2, 3, 4, 5]), [1, 2]);
        assert_eq!(take(&[1, 2, 3, 4, 5]), [3, 4]);
        assert_eq!(take(&[1, 2, 4, 5, 6]), [5, 6]);
        assert_eq!(take(&[1, 6]), [1, 6], "none twice");
        assert_eq!(take(&[]), [0; 0]);
        assert_eq!(take(&[7]), [7]);
    }
}
