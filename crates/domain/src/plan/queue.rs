//! The order in which keys that are ready take the free slots.
//!
//! Urgent starts of all projects come first, the longest waiting before all others. The projects
//! then take turns: a turn goes to the project with the fewest slots, and starts the project's
//! highest priority, of that the longest waiting. A start that has waited for long is urgent, so no
//! project and no priority waits forever.

use std::collections::{BTreeMap, BTreeSet};

use super::slots::Slots;
use crate::id::ProjectId;
use crate::key::InstanceKey;
use crate::start_history::Candidate;
use crate::task::Priority;
use crate::time::Timestamp;

/// The candidates of one purpose in their order. Each project has one place in line, which is that
/// of its first candidate. If each start looked at all candidates, a plan that puts off thousands
/// of them would take seconds.
#[derive(Default)]
pub(super) struct Queue<'a> {
    /// The candidates by project, the first one last.
    waiting: BTreeMap<&'a ProjectId, Vec<&'a Candidate>>,
    line: BTreeSet<QueuePlace<'a>>,
}

/// A place in line, the first one being the least.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct QueuePlace<'a> {
    is_ordinary: bool,
    /// The slots of the project; 0 for an urgent start, which takes no turn.
    n_slots: usize,
    waiting_since: Timestamp,
    key: &'a InstanceKey,
}

impl<'a> Queue<'a> {
    pub(super) fn of(candidates: Vec<&'a Candidate>, slots: &Slots<'_>) -> Self {
        let mut queue = Self::default();
        for candidate in candidates {
            queue.waiting.entry(&candidate.key.project).or_default().push(candidate);
        }
        for candidates in queue.waiting.values_mut() {
            candidates.sort_by(|a, b| {
                let order = |it: &'a Candidate| (it.waiting_since, &it.key);
                a.priority.cmp(&b.priority).then_with(|| order(b).cmp(&order(a)))
            });
        }
        let projects: Vec<&ProjectId> = queue.waiting.keys().copied().collect();
        for project in projects {
            queue.line_up(project, slots);
        }
        queue
    }

    /// Takes the first candidate, and its project out of the line.
    pub(super) fn take_first(&mut self) -> Option<&'a Candidate> {
        let place = self.line.pop_first()?;
        self.waiting.get_mut(&place.key.project)?.pop()
    }

    /// Puts a project in line with the slots that it has now.
    pub(super) fn line_up(&mut self, project: &ProjectId, slots: &Slots<'_>) {
        if let Some(next) = self.waiting.get(project).and_then(|candidates| candidates.last()) {
            let is_ordinary = next.priority != Priority::Urgent;
            let n_slots = if is_ordinary { slots.of_project(project) } else { 0 };
            let waiting_since = next.waiting_since;
            self.line.insert(QueuePlace { is_ordinary, n_slots, waiting_since, key: &next.key });
        }
    }

    /// Returns all candidates that are left, in the order in which they take slots from now on.
    pub(super) fn into_order(mut self, slots: &Slots<'a>) -> Vec<&'a Candidate> {
        let mut left = Vec::new();
        if self.line.is_empty() {
            return left;
        }
        let mut slots = slots.clone();
        while let Some(next) = self.take_first() {
            slots.take(&next.key, &next.ai_type);
            self.line_up(&next.key.project, &slots);
            left.push(next);
        }
        left
    }
}
