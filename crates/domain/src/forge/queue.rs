//! Decides which waiting item is claimed next.
//!
//! An item becomes work when an agent of its repository and a slot are free for it, or about to be.
//! The repositories are served in turn. `service::forges::claims` reads the facts and
//! makes the claims.

use std::collections::BTreeSet;

use crate::key::InstanceKey;
use crate::language::Language;
use crate::plan::slots::Slots;

/// A repository with this number of failing claims gets no further claim. Each of them may have set
/// a label already.
pub const MAX_STUCK: usize = 3;

/// A start of an agent that needs a slot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Start {
    pub key: InstanceKey,
    /// The provider; empty if it is not known.
    pub ai_type: String,
}

/// A repository with waiting items.
#[derive(Debug, Clone)]
pub struct Line<'a> {
    /// The agents that work on its items, in the order of the configuration.
    pub agents: Vec<&'a Start>,
    /// The turn in which it was served last; 0 if it was never served.
    pub served: u64,
    /// The number of its items that are claimed or worked on.
    pub n_open: usize,
    /// The number of claims of its items that have failed so far.
    pub n_stuck: usize,
}

/// The free slots of all coordinators that are connected.
#[derive(Debug, Clone)]
pub struct Capacity<'a> {
    /// One entry for each coordinator. `None` if no coordinator reports how many agents it keeps.
    slots: Option<Vec<Slots<'a>>>,
    /// True if other work waits for a slot.
    is_contended: bool,
}

/// The next turn: a place in the list of lines, and a place in the agents of that line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    pub line: usize,
    pub agent: usize,
}

impl<'a> Capacity<'a> {
    /// Returns an unknown capacity: coordinators start agents, and do not report how many.
    pub const fn unknown() -> Self {
        Self { slots: None, is_contended: false }
    }

    pub const fn of(slots: Vec<Slots<'a>>) -> Self {
        Self { slots: Some(slots), is_contended: false }
    }

    /// Reserves a slot for work on an item that is claimed and has not started.
    pub fn reserve(&mut self, start: &'a Start) {
        self.place(start);
    }

    /// Reserves a slot for other work that has not started.
    pub fn reserve_for_others(&mut self, start: &'a Start) {
        if !self.place(start) {
            self.is_contended = true;
        }
    }

    /// Returns whether a slot is free for `start`.
    fn has_room(&self, start: &Start) -> bool {
        let has_room = |slots: &Slots<'_>| fits(slots, start);
        self.slots.as_ref().is_none_or(|all| all.iter().any(has_room))
    }

    fn place(&mut self, start: &'a Start) -> bool {
        let Some(all) = &mut self.slots else {
            return true;
        };
        let found = all.iter_mut().find(|slots| fits(slots, start));
        found.map(|slots| slots.take(&start.key, &start.ai_type)).is_some()
    }
}

fn fits(slots: &Slots<'_>, start: &Start) -> bool {
    slots.keeping(&start.key, &start.ai_type).next().is_none()
}

/// Returns the turn of the next claim. It is the least recently served of the repositories that can
/// claim an item.
///
/// If other work waits for slots, a repository without any open item may have one in line with that
/// work. Without this rule, a backlog of other work would keep all items waiting.
pub fn next(
    lines: &[Line<'_>],
    busy: &BTreeSet<InstanceKey>,
    capacity: &Capacity<'_>,
) -> Option<Turn> {
    let mut in_turn: Vec<(u64, usize)> =
        lines.iter().enumerate().map(|(place, line)| (line.served, place)).collect();
    in_turn.sort_unstable();
    in_turn.into_iter().find_map(|(_, place)| {
        let line = &lines[place];
        let may_stand_in_line = capacity.is_contended && line.n_open == 0;
        let can_start = |start: &&Start| {
            !busy.contains(&start.key) && (may_stand_in_line || capacity.has_room(start))
        };
        let agent = line.agents.iter().position(can_start).filter(|_| line.n_stuck < MAX_STUCK)?;
        Some(Turn { line: place, agent })
    })
}

/// Returns the text for people about an item that waits because open issues block it.
pub fn blocked_text(n_blockers: u64, language: Language) -> String {
    match language {
        Language::English if n_blockers == 1 => "waits: blocked by 1 open issue".to_owned(),
        Language::English => format!("waits: blocked by {n_blockers} open issues"),
        Language::Japanese => {
            format!("待機中: 未完了の Issue {n_blockers} 件にブロックされています")
        }
    }
}

/// Returns the order in which waiting items get their turn if no repository is held back. Takes the
/// last turn and the number of items of each repository. Returns pairs of a place in this list and
/// an item of that repository.
pub fn order(lines: &[(u64, usize)]) -> Vec<(usize, usize)> {
    let mut in_turn: Vec<usize> = (0..lines.len()).collect();
    in_turn.sort_by_key(|place| lines[*place].0);
    let n_most = lines.iter().map(|(_, n_items)| *n_items).max().unwrap_or(0);
    (0..n_most)
        .flat_map(|item| in_turn.iter().map(move |place| (*place, item)))
        .filter(|(place, item)| *item < lines[*place].1)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::key::Purpose;
    use crate::plan::Limits;

    fn start(agent: &str) -> Start {
        let key = InstanceKey::new(
            agent.parse().expect("an id"),
            "prj".parse().expect("an id"),
            Purpose::Task,
        );
        Start { key, ai_type: "claude".to_owned() }
    }

    fn line<'a>(agents: &[&'a Start], served: u64) -> Line<'a> {
        Line { agents: agents.to_vec(), served, n_open: 0, n_stuck: 0 }
    }

    fn slots<'a>(n: usize) -> Capacity<'a> {
        Capacity::of(vec![Slots::none(Limits::of(n, Duration::ZERO))])
    }

    const fn turn(line: usize, agent: usize) -> Turn {
        Turn { line, agent }
    }

    #[test]
    fn the_repository_that_waits_longest_is_served_if_its_agent_and_a_slot_are_free() {
        let a = start("a");
        let b = start("b");
        let lines = [line(&[&a], 2), line(&[&b], 1), line(&[&b], 0)];
        let mut busy = BTreeSet::new();
        assert_eq!(next(&lines, &busy, &slots(1)), Some(turn(2, 0)));
        assert_eq!(next(&lines, &busy, &slots(0)), None);
        busy.insert(b.key.clone());
        assert_eq!(next(&lines, &busy, &slots(1)), Some(turn(0, 0)));
        busy.insert(a.key.clone());
        assert_eq!(next(&lines, &busy, &Capacity::unknown()), None);
    }

    #[test]
    fn the_next_free_agent_of_a_repository_takes_its_next_item() {
        let a = start("a");
        let b = start("b");
        let lines = [line(&[&a, &b], 0)];
        assert_eq!(next(&lines, &BTreeSet::from([a.key.clone()]), &slots(1)), Some(turn(0, 1)));
    }

    #[test]
    fn what_is_claimed_and_has_not_started_takes_a_slot() {
        let a = start("a");
        let b = start("b");
        let mut capacity = slots(1);
        capacity.reserve(&a);
        assert_eq!(next(&[line(&[&b], 0)], &BTreeSet::new(), &capacity), None);
    }

    #[test]
    fn a_limit_of_a_provider_counts() {
        let a = start("a");
        let b = start("b");
        let mut limits = Limits::of(5, Duration::ZERO);
        limits.start.per_provider = Some(1);
        let mut capacity = Capacity::of(vec![Slots::none(limits)]);
        capacity.reserve(&a);
        assert_eq!(next(&[line(&[&b], 0)], &BTreeSet::new(), &capacity), None);
        let other = Start { ai_type: "codex".to_owned(), ..start("c") };
        assert_eq!(next(&[line(&[&other], 0)], &BTreeSet::new(), &capacity), Some(turn(0, 0)));
    }

    #[test]
    fn with_other_work_in_line_each_repository_may_have_one_item_there() {
        let a = start("a");
        let b = start("b");
        let c = start("c");
        let mut capacity = slots(1);
        capacity.reserve_for_others(&a);
        assert_eq!(next(&[line(&[&c], 0)], &BTreeSet::new(), &capacity), None);
        capacity.reserve_for_others(&b);
        assert_eq!(next(&[line(&[&c], 0)], &BTreeSet::new(), &capacity), Some(turn(0, 0)));
        let second = Line { n_open: 1, ..line(&[&c], 0) };
        assert_eq!(next(&[second], &BTreeSet::new(), &capacity), None);
    }

    #[test]
    fn a_repository_whose_claims_fail_gets_no_further_one() {
        let a = start("a");
        let stuck = |n_stuck| [Line { n_stuck, ..line(&[&a], 0) }];
        assert_eq!(next(&stuck(MAX_STUCK - 1), &BTreeSet::new(), &slots(1)), Some(turn(0, 0)));
        assert_eq!(next(&stuck(MAX_STUCK), &BTreeSet::new(), &slots(1)), None);
    }

    #[test]
    fn the_order_takes_the_repositories_in_turn() {
        assert_eq!(
            order(&[(7, 2), (3, 3), (5, 1), (0, 0)]),
            [(1, 0), (2, 0), (0, 0), (1, 1), (0, 1), (1, 2)]
        );
    }

    /// Three repositories with 100 items each share an agent and have one of their own. Each item
    /// that is done makes room for the next.
    #[test]
    fn three_hundred_items_of_three_repositories_keep_three_slots_in_use_and_each_has_its_turn() {
        let agents = ["shared", "a", "b", "c"].map(start);
        let [shared, own @ ..] = &agents;
        let mut lines: Vec<Line<'_>> = own.iter().map(|own| line(&[shared, own], 0)).collect();
        let mut left = [100_usize; 3];
        let mut served = [0_usize; 3];
        let mut at_work: Vec<Turn> = Vec::new();
        for now in 1.. {
            let busy: BTreeSet<InstanceKey> = at_work
                .iter()
                .map(|turn| lines[turn.line].agents[turn.agent].key.clone())
                .collect();
            let mut capacity = slots(3);
            for turn in &at_work {
                capacity.reserve(lines[turn.line].agents[turn.agent]);
            }
            let waiting: Vec<usize> = (0..3).filter(|line| left[*line] > 0).collect();
            let shown: Vec<Line<'_>> = waiting.iter().map(|line| lines[*line].clone()).collect();
            if let Some(found) = next(&shown, &busy, &capacity) {
                let line = waiting[found.line];
                left[line] -= 1;
                served[line] += 1;
                lines[line].served = now;
                at_work.push(Turn { line, ..found });
                let least = served.iter().min();
                let most = served.iter().max();
                assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1));
            } else if at_work.is_empty() {
                break;
            } else {
                assert!(at_work.len() == 3 || waiting.len() < 3, "{left:?}");
                at_work.remove(usize::try_from(now).unwrap_or(0) % at_work.len());
            }
        }
        assert_eq!((left, served), ([0; 3], [100; 3]));
    }
}
