//! Decides which agents and slots the open work uses, before further items are claimed.
//!
//! `service::forges::claims` reads the facts. [`queue`](super::queue) decides with the results.

use std::collections::{BTreeMap, BTreeSet};

use super::queue::{Capacity, Start};
use super::{ForgeItem, ForgeKind, ItemState, WorkState};
use crate::id::{AgentId, CoordinatorId, TaskId};
use crate::key::InstanceKey;
use crate::launch::Launch;
use crate::plan::Limits;
use crate::plan::slots::Slots;
use crate::start_history::StartReason;

/// The open items and launches, and the other facts that decide about further claims. They are read
/// together.
#[derive(Debug, Clone, Default)]
pub struct OpenWork {
    pub items: Vec<ForgeItem>,
    pub launches: Vec<Launch>,
    /// The keys with work and without an open launch, with the reason for or against their starts.
    pub startable: BTreeMap<InstanceKey, StartReason>,
    /// The same reason for each key with an item in progress and without an open launch.
    pub of_items: BTreeMap<InstanceKey, StartReason>,
    /// Providers by agent.
    pub providers: BTreeMap<AgentId, String>,
    /// Tasks that are reported while their agents still run.
    pub over: BTreeSet<TaskId>,
    /// Keys whose agents have reported and have more work.
    pub with_further_work: BTreeSet<InstanceKey>,
    /// The hosts that cannot write a claim at once.
    pub hosts_in_trouble: BTreeSet<(ForgeKind, String)>,
}

/// The starts that need a slot and have none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PendingStarts {
    pub of_items: Vec<Start>,
    pub of_others: Vec<Start>,
}

impl OpenWork {
    /// Returns the keys whose agents work, or will work without any further item. An item that was
    /// put aside does not keep an agent from the next one.
    pub fn busy(&self) -> BTreeSet<InstanceKey> {
        let items = self.items.iter().filter(|item| self.is_at_work(item) && !self.is_over(item));
        let launches = self.launches.iter().filter(|launch| !self.is_leaving(launch));
        items
            .map(ForgeItem::launch_key)
            .chain(launches.map(|launch| launch.key.clone()))
            .chain(self.startable.keys().cloned())
            .chain(self.with_further_work.iter().cloned())
            .collect()
    }

    /// Returns the starts that need a slot and have none.
    pub fn pending_starts(&self) -> PendingStarts {
        let has_slot: BTreeSet<&InstanceKey> = self
            .launches
            .iter()
            .filter(|launch| !self.is_leaving(launch))
            .map(|launch| &launch.key)
            .collect();
        let mut of_items = BTreeSet::new();
        for item in self.items.iter().filter(|item| self.is_at_work(item) && !self.is_over(item)) {
            let key = item.launch_key();
            let waits_indefinitely =
                self.of_items.get(&key).is_some_and(|reason| reason.waits_indefinitely());
            let is_pending = match item.state {
                ItemState::Claiming { .. } => true,
                // The start time of an agent that may not start is unknown.
                ItemState::Active(_) => !waits_indefinitely,
                _ => false,
            };
            if is_pending && !has_slot.contains(&key) {
                of_items.insert(key);
            }
        }
        let is_soon =
            |reason: &StartReason| matches!(reason, StartReason::Ready | StartReason::Backoff);
        let ready = self.startable.iter().filter(|(_, reason)| is_soon(reason)).map(|(key, _)| key);
        let of_others = ready
            .chain(&self.with_further_work)
            .filter(|key| !of_items.contains(*key) && !has_slot.contains(*key))
            .map(|key| self.start(key.clone()))
            .collect();
        PendingStarts {
            of_items: of_items.into_iter().map(|key| self.start(key)).collect(),
            of_others,
        }
    }

    /// Returns the free slots. `limits` has the limits of each coordinator that is present, or is
    /// `None` if they do not report their limits.
    pub fn capacity<'a>(
        &'a self,
        limits: Option<&[(CoordinatorId, Limits)]>,
        pending: &'a PendingStarts,
    ) -> Capacity<'a> {
        let mut capacity = limits.map_or_else(Capacity::unknown, |limits| {
            let slots = limits.iter().map(|(coordinator, limits)| {
                let mut slots = Slots::none(*limits);
                let of_coordinator = |launch: &&Launch| {
                    launch.coordinator.as_ref() == Some(coordinator) && !self.is_leaving(launch)
                };
                for launch in self.launches.iter().filter(of_coordinator) {
                    slots.take(&launch.key, &launch.ai_type);
                }
                slots
            });
            Capacity::of(slots.collect())
        });
        pending.of_items.iter().for_each(|start| capacity.reserve(start));
        pending.of_others.iter().for_each(|start| capacity.reserve_for_others(start));
        capacity
    }

    /// Returns the start of an agent with its provider.
    pub fn start(&self, key: InstanceKey) -> Start {
        let ai_type = self.providers.get(&key.agent).cloned().unwrap_or_default();
        Start { key, ai_type }
    }

    /// Returns whether the work on an item goes on, or is about to begin or to end.
    pub fn is_at_work(&self, item: &ForgeItem) -> bool {
        match item.state {
            ItemState::Claiming { .. } => !self.is_stuck(item),
            ItemState::Active(WorkState::Processing)
            | ItemState::Stopping(_)
            | ItemState::Pausing => true,
            ItemState::Active(WorkState::Blocked | WorkState::Failed)
            | ItemState::Paused { .. }
            | ItemState::Ended(_) => false,
        }
    }

    /// Returns whether an item is claimed, but its forge does not take the claim so far, or the
    /// claim waits for the budget of writes. Such an item must not keep an agent from other items.
    pub fn is_stuck(&self, item: &ForgeItem) -> bool {
        let host = (item.key.forge, item.key.host.clone());
        matches!(item.state, ItemState::Claiming { .. })
            && (item.n_attempts > 0 || self.hosts_in_trouble.contains(&host))
    }

    /// Returns whether the agent of a launch has reported and is about to end, so that its slot
    /// will soon be free.
    fn is_leaving(&self, launch: &Launch) -> bool {
        launch.report.is_some() && launch.task.as_ref().is_some_and(|task| self.over.contains(task))
    }

    /// Returns whether the work on an item is reported, so that only its end is missing.
    fn is_over(&self, item: &ForgeItem) -> bool {
        self.over.contains(&item.task)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Timestamp;
    use crate::forge::ItemKey;
    use crate::forge::queue::{Line, next};
    use crate::key::Purpose;
    use crate::launch::ReportResult;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn id<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
        text.parse().expect("an id")
    }

    fn key(agent: &str) -> InstanceKey {
        InstanceKey::new(id(agent), id("prj"), Purpose::Task)
    }

    /// Returns the item that Ann works on, with the task `tsk`.
    fn item(state: ItemState) -> ForgeItem {
        let new =
            ForgeItem::new(id("itm"), id("tsk"), ItemKey::example(), id("ann"), id("prj"), NOW);
        ForgeItem { state, ..new }
    }

    /// Returns Ann's launch on the task `tsk`.
    fn launch(report: Option<ReportResult>) -> Launch {
        let claim = Launch::claimed(id("lch"), key("ann"), "claude".to_owned(), NOW, NOW);
        Launch { coordinator: Some(id("crd")), task: Some(id("tsk")), report, ..claim }
    }

    fn with_item(state: ItemState) -> OpenWork {
        OpenWork { items: vec![item(state)], ..OpenWork::default() }
    }

    fn claiming() -> OpenWork {
        with_item(ItemState::Claiming { after_comment: None })
    }

    fn processing() -> OpenWork {
        with_item(ItemState::Active(WorkState::Processing))
    }

    fn is_busy(work: &OpenWork) -> bool {
        work.busy().contains(&key("ann"))
    }

    /// Returns whether an agent that has no work could start on one of `n` slots.
    fn has_room(work: &OpenWork, n: usize) -> bool {
        let limits = [(id("crd"), Limits::of(n, Duration::ZERO))];
        let pending = work.pending_starts();
        let bob = work.start(key("bob"));
        let capacity = work.capacity(Some(&limits), &pending);
        let line = Line { agents: vec![&bob], served: 0, n_open: 1, n_stuck: 0 };
        next(&[line], &BTreeSet::new(), &capacity).is_some()
    }

    #[test]
    fn an_item_at_work_keeps_its_agent_and_a_slot_and_one_put_aside_keeps_neither() {
        for work in [claiming(), processing()] {
            assert!(is_busy(&work) && !has_room(&work, 1) && has_room(&work, 2), "{work:?}");
        }
        for work_state in [WorkState::Blocked, WorkState::Failed] {
            let work = with_item(ItemState::Active(work_state));
            assert!(!is_busy(&work) && has_room(&work, 1), "{work_state:?}");
        }
        // An item that is being stopped needs its agent, but no further start.
        let work = with_item(ItemState::Pausing);
        assert!(is_busy(&work) && has_room(&work, 1));
    }

    #[test]
    fn a_claim_that_its_forge_does_not_take_keeps_no_agent_and_no_slot() {
        let mut work = claiming();
        work.items[0].n_attempts = 1;
        assert!(work.is_stuck(&work.items[0]) && !is_busy(&work) && has_room(&work, 1));
        let host = (ItemKey::example().forge, ItemKey::example().host);
        let work = OpenWork { hosts_in_trouble: BTreeSet::from([host.clone()]), ..claiming() };
        assert!(work.is_stuck(&work.items[0]) && !is_busy(&work) && has_room(&work, 1));
        let work = OpenWork { hosts_in_trouble: BTreeSet::from([host]), ..processing() };
        assert!(!work.is_stuck(&work.items[0]) && is_busy(&work));
    }

    #[test]
    fn an_item_whose_agent_may_not_start_reserves_no_slot() {
        let mut work = processing();
        for (reason, is_reserved) in [(StartReason::Backoff, true), (StartReason::Held, false)] {
            work.of_items = BTreeMap::from([(key("ann"), reason)]);
            assert!(is_busy(&work) && has_room(&work, 1) != is_reserved, "{reason:?}");
        }
    }

    #[test]
    fn an_agent_that_has_reported_is_free_and_its_slot_is_too() {
        let at_work = OpenWork { launches: vec![launch(None)], ..processing() };
        assert!(is_busy(&at_work) && !has_room(&at_work, 1));
        let reported = OpenWork {
            launches: vec![launch(Some(ReportResult::Success))],
            over: BTreeSet::from([id("tsk")]),
            ..processing()
        };
        assert!(!is_busy(&reported) && has_room(&reported, 1));
        let continues =
            OpenWork { with_further_work: BTreeSet::from([key("ann")]), ..reported.clone() };
        assert!(is_busy(&continues));
        assert_eq!(continues.pending_starts().of_others, [continues.start(key("ann"))]);
        // The report is of an earlier task.
        let next_task = OpenWork { over: BTreeSet::new(), ..reported };
        assert!(is_busy(&next_task) && !has_room(&next_task, 1));
    }

    #[test]
    fn other_work_reserves_a_slot_if_it_starts_soon() {
        for (reason, is_pending) in [
            (StartReason::Ready, true),
            (StartReason::Backoff, true),
            (StartReason::Paused, false),
            (StartReason::Suspended, false),
        ] {
            let startable = BTreeMap::from([(key("ann"), reason)]);
            let work = OpenWork { startable, ..OpenWork::default() };
            assert!(is_busy(&work) && has_room(&work, 1) != is_pending, "{reason:?}");
        }
    }

    #[test]
    fn without_known_limits_there_is_always_room() {
        let work = OpenWork::default();
        let bob = OpenWork::default().start(key("bob"));
        let pending = work.pending_starts();
        let line = Line { agents: vec![&bob], served: 0, n_open: 1, n_stuck: 0 };
        assert!(next(&[line], &BTreeSet::new(), &work.capacity(None, &pending)).is_some());
        assert!(!has_room(&work, 0));
    }
}
