//! Finds circles among the references of tasks. It does not know the meaning of a reference. The
//! manifest uses it for parents and dependencies.

use std::collections::BTreeMap;

use domain::TaskId;

use super::{Located, Location};

/// The limit of reported circles. More would not help a reader, and a hostile file can have very
/// many.
const MAX_CYCLES: usize = 20;

/// The references of each task.
pub(super) type Graph<'a> = BTreeMap<&'a TaskId, Vec<&'a Located<TaskId>>>;

/// Tasks that refer to one another in a circle.
#[derive(Debug)]
pub(super) struct Cycle<'a> {
    /// The tasks in the order of the references. The last one refers to the first.
    pub tasks: Vec<&'a TaskId>,
    /// The reference that closes the circle.
    pub closed_at: Location,
}

#[derive(Clone, Copy, PartialEq)]
enum Mark {
    OnTheWay,
    Done,
}

/// Returns circles up to a limit: at least one of each set of entangled circles, and none twice.
/// The search is depth first with its own stack, because a file may chain thousands of tasks.
pub(super) fn find<'a>(graph: &Graph<'a>) -> Vec<Cycle<'a>> {
    let mut marks: BTreeMap<&TaskId, Mark> = BTreeMap::new();
    let mut cycles = Vec::new();
    for start in graph.keys().copied() {
        if marks.contains_key(start) {
            continue;
        }
        // Each task on the way, with the number of its references that were followed.
        let mut way: Vec<(&'a TaskId, usize)> = vec![(start, 0)];
        marks.insert(start, Mark::OnTheWay);
        while let Some((task, n_followed)) = way.last_mut() {
            let Some(reference) =
                graph.get(task).and_then(|references| references.get(*n_followed))
            else {
                marks.insert(task, Mark::Done);
                way.pop();
                continue;
            };
            *n_followed += 1;
            match marks.get(&reference.value) {
                Some(Mark::Done) => {}
                Some(Mark::OnTheWay) => {
                    let tasks = way
                        .iter()
                        .map(|(task, _)| *task)
                        .skip_while(|task| **task != reference.value)
                        .collect();
                    cycles.push(Cycle { tasks, closed_at: reference.at });
                    if cycles.len() == MAX_CYCLES {
                        return cycles;
                    }
                }
                None => {
                    marks.insert(&reference.value, Mark::OnTheWay);
                    way.push((&reference.value, 0));
                }
            }
        }
    }
    cycles
}
