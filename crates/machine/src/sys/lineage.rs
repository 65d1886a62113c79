//! Finds the process that forked another one, on systems where a process without its parent does
//! not show that.

use std::collections::BTreeSet;

use super::process::Process;

/// The origin of a process, in numbers that are unique within a boot.
#[derive(Clone, Copy)]
pub struct Birth {
    pub own: u64,
    /// The number of the process that forked it, independent of its present parent.
    pub parents: u64,
}

/// Removes from `births` all processes that a member of `lineage` forked, adds them to `lineage`
/// and returns them. A process may be in `births` and in `lineage` already.
pub fn forked_by(lineage: &mut BTreeSet<u64>, mut births: Vec<(Process, Birth)>) -> Vec<Process> {
    let mut found = Vec::new();
    loop {
        let (of_them, others): (Vec<_>, Vec<_>) =
            births.into_iter().partition(|(_, birth)| lineage.contains(&birth.parents));
        if of_them.is_empty() {
            return found;
        }
        for (process, birth) in of_them {
            lineage.insert(birth.own);
            found.push(process);
        }
        births = others;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_forked_by_the_tree_is_of_it_at_any_depth_and_in_any_order() {
        let born = |own: u64, parents: u64| {
            let pid = i32::try_from(own).unwrap();
            let group = 0;
            let session = 0;
            let start_ticks = 0;
            let process = Process {
                pid,
                parent: 1,
                group,
                session,
                start_ticks,
                is_zombie: false,
                is_stopped: false,
            };
            (process, Birth { own, parents })
        };
        // 12 forked 13, which forked 14; 12 itself is gone. 21 belongs to another tree.
        let mut lineage = BTreeSet::from([11, 12]);
        let found =
            forked_by(&mut lineage, vec![born(14, 13), born(21, 20), born(13, 12), born(11, 5)]);
        assert_eq!(found.iter().map(|process| process.pid).collect::<Vec<_>>(), [13, 14]);
        assert_eq!(lineage, BTreeSet::from([11, 12, 13, 14]));
        // Children of a process that is gone are found by a later search, too.
        assert!(forked_by(&mut lineage, vec![born(15, 14)]).len() == 1 && lineage.contains(&15));
    }
}
