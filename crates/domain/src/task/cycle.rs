//! Finds circles among the references of tasks. It does not know the meaning of a reference: a
//! manifest has parents and dependencies, and an export has what tasks wait for.

use std::collections::BTreeMap;

use crate::id::TaskId;

/// Tasks that refer to one another in a circle.
#[derive(Debug, PartialEq, Eq)]
pub struct Cycle<'a> {
    /// The tasks in the order of the references. The last one refers to the first.
    pub tasks: Vec<&'a TaskId>,
    /// The reference of the last task that closes the circle, from 0.
    pub closed_by: usize,
}

/// Returns at most `limit` circles that the references of `starts` lead to: at least one of each
/// set of entangled circles, and none twice. The search is depth first with its own stack, because
/// a file may chain thousands of tasks.
pub fn find_cycles<'a, R: IntoIterator<Item = &'a TaskId>>(
    starts: impl IntoIterator<Item = &'a TaskId>,
    references: impl Fn(&'a TaskId) -> R,
    limit: usize,
) -> Vec<Cycle<'a>> {
    // True for the tasks whose references were all followed, and false for those on the way.
    let mut is_done: BTreeMap<&TaskId, bool> = BTreeMap::new();
    let mut cycles = Vec::new();
    for start in starts {
        if is_done.contains_key(start) {
            continue;
        }
        // Each task on the way, with its references that were not followed yet.
        let mut way = vec![(start, references(start).into_iter().enumerate())];
        is_done.insert(start, false);
        while let Some((task, open)) = way.last_mut() {
            let Some((index, next)) = open.next() else {
                is_done.insert(*task, true);
                way.pop();
                continue;
            };
            match is_done.get(next) {
                Some(true) => {}
                Some(false) => {
                    let on_way = way.iter().map(|(task, _)| *task);
                    let tasks = on_way.skip_while(|task| *task != next).collect();
                    cycles.push(Cycle { tasks, closed_by: index });
                    if cycles.len() == limit {
                        return cycles;
                    }
                }
                None => {
                    is_done.insert(next, false);
                    way.push((next, references(next).into_iter().enumerate()));
                }
            }
        }
    }
    cycles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_circle_is_found_once_with_the_reference_that_closes_it() {
        let ids = ["a", "b", "c", "d"].map(|id| id.parse::<TaskId>().unwrap());
        let [a, b, c, d] = &ids;
        let graph = BTreeMap::from([(a, vec![b, d]), (b, vec![d, a]), (c, vec![c]), (d, vec![])]);
        let find = |limit| find_cycles(&ids, |id| graph[id].iter().copied(), limit);
        let both =
            [Cycle { tasks: vec![a, b], closed_by: 1 }, Cycle { tasks: vec![c], closed_by: 0 }];
        assert_eq!(find(20), both);
        assert_eq!(find(1), both[..1]);
    }
}
