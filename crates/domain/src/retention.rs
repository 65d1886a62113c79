//! Decides which past data is no longer kept. Data stays, however old it is, if it is in use, waits
//! to be read, or belongs to something open.

use std::time::Duration;

use super::event::EventSpan;
use super::id::{LaunchId, TaskId};
use super::start_history::StartHistory;
use super::time::Timestamp;

/// The times for which past data is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Launches that have ended, with their sessions, notices and executions.
    pub history: Duration,
    pub events: Duration,
    /// The greatest number of events that are kept.
    pub max_events: u64,
    /// The time for messages of chats; `None` keeps them for ever.
    pub chats: Option<Duration>,
    /// The time for the output of agents.
    pub output: Duration,
    /// The greatest total size of the output of agents that have ended, in bytes.
    pub output_size: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            history: Duration::from_hours(90 * 24),
            events: Duration::from_hours(14 * 24),
            max_events: 100_000,
            chats: None,
            output: Duration::from_hours(30 * 24),
            output_size: 10 << 30,
        }
    }
}

/// A launch that has ended, and the data that depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastLaunch {
    pub id: LaunchId,
    pub ended_at: Timestamp,
    /// True if a session, a notice or an execution of it is open.
    pub has_open_parts: bool,
    /// True if it tries a parked account.
    pub is_probe: bool,
    /// The tasks whose newest execution belongs to it, by id.
    pub newest_of: Vec<PastWork>,
}

/// A task whose newest execution is an old one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastWork {
    pub task: TaskId,
    /// The revision of the task; 0 if there is no such task.
    pub revision: i64,
    /// True if the task is not finished. Its next execution continues from the old one.
    pub is_open: bool,
}

impl Retention {
    /// Returns the time before which ended launches are old.
    pub fn history_before(&self, now: Timestamp) -> Timestamp {
        before(now, self.history)
    }

    /// Returns the time before which events are old.
    pub fn events_before(&self, now: Timestamp) -> Timestamp {
        before(now, self.events)
    }

    /// Returns the time before which messages are old; `None` if none ever is.
    pub fn chats_before(&self, now: Timestamp) -> Option<Timestamp> {
        self.chats.map(|kept| before(now, kept))
    }

    /// Returns whether a launch may be deleted with all data that depends on it.
    pub fn lets_go(&self, launch: &PastLaunch, now: Timestamp) -> bool {
        let PastLaunch { id: _, ended_at, has_open_parts, is_probe, newest_of } = launch;
        let is_needed = *has_open_parts || *is_probe;
        *ended_at < self.history_before(now)
            && !is_needed
            && !newest_of.iter().any(|work| work.is_open)
    }

    /// Returns the number up to which events may be deleted. `last_old` is the last event that is
    /// too old, 0 if none is. The newest event stays, because readers know their place from its
    /// number.
    pub fn events_up_to(&self, span: EventSpan, last_old: i64) -> Option<i64> {
        let most = i64::try_from(self.max_events).unwrap_or(i64::MAX);
        let up_to = last_old.max(span.newest.saturating_sub(most)).min(span.newest - 1);
        (up_to >= span.oldest && span.oldest > 0).then_some(up_to)
    }

    /// Returns the number up to which the messages of a chat may be deleted. `last_old` is the last
    /// message that is too old, 0 if none is. Messages that the agent has not answered stay. All
    /// messages stay while the agent is wanted, or while `is_open` says that the agent is present.
    pub fn messages_up_to(
        &self,
        record: &StartHistory,
        is_open: bool,
        last_old: i64,
    ) -> Option<i64> {
        let up_to = last_old.min(record.read_up_to);
        (self.chats.is_some() && !is_open && record.wanted_since.is_none() && up_to > 0)
            .then_some(up_to)
    }

    /// Returns the outputs to delete, of all whose agents have ended. They are those that are too
    /// old, and the oldest ones while their total size is too large.
    pub fn outputs_that_go(&self, mut outputs: Vec<PastOutput>, now: Timestamp) -> Vec<LaunchId> {
        outputs.sort_by(|a, b| (a.ended_at, &a.launch).cmp(&(b.ended_at, &b.launch)));
        let mut size: u64 = outputs.iter().map(|output| output.size).fold(0, u64::saturating_add);
        let old = before(now, self.output);
        let mut going = Vec::new();
        for output in outputs {
            if output.ended_at >= old && size <= self.output_size {
                break;
            }
            size -= output.size.min(size);
            going.push(output.launch);
        }
        going
    }
}

/// The output of an agent that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastOutput {
    pub launch: LaunchId,
    pub ended_at: Timestamp,
    /// The size of the output, in bytes.
    pub size: u64,
}

fn before(now: Timestamp, kept: Duration) -> Timestamp {
    let kept = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(kept))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{InstanceKey, Purpose};

    fn retention() -> Retention {
        let ms = Duration::from_millis;
        Retention {
            history: ms(100),
            events: ms(50),
            max_events: 10,
            chats: Some(ms(70)),
            output: ms(60),
            output_size: 25,
        }
    }

    const NOW: Timestamp = Timestamp::from_millis(1000);

    fn id<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
        text.parse().expect("an id")
    }

    prop_compose! {
        fn launch()(
            ended_at in 0i64..1100,
            flags in any::<[bool; 2]>(),
            open in proptest::collection::vec(any::<bool>(), 0..3),
        ) -> PastLaunch {
            let [has_open_parts, is_probe] = flags;
            let work = |is_open| PastWork { task: id("tsk"), revision: 1, is_open };
            PastLaunch {
                id: id("lch"),
                ended_at: Timestamp::from_millis(ended_at),
                has_open_parts,
                is_probe,
                newest_of: open.into_iter().map(work).collect(),
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_young_open_or_needed_ever_goes(launch in launch()) {
            let is_needed = launch.has_open_parts || launch.is_probe
                || launch.newest_of.iter().any(|work| work.is_open);
            let is_young = launch.ended_at.as_millis() >= 900;
            prop_assert_eq!(retention().lets_go(&launch, NOW), !is_needed && !is_young);
        }

        #[test]
        fn the_newest_event_always_stays(oldest in 1i64..50, n in 0i64..50, last_old in 0i64..200) {
            let span = EventSpan { oldest, newest: oldest + n };
            let up_to = retention().events_up_to(span, last_old).unwrap_or(0);
            prop_assert!(up_to < span.newest);
            // At least this many events stay that are neither too old nor too many.
            prop_assert!(up_to <= last_old.max(span.newest - 10));
            prop_assert!(span.newest - up_to <= 10 || up_to >= last_old.min(span.newest - 1) || up_to == 0);
        }

        #[test]
        fn what_was_not_answered_stays(read in 0i64..20, last_old in 0i64..20, is_open: bool, is_wanted: bool) {
            let key = InstanceKey::new(id("agt"), id("prj"), Purpose::Chat);
            let wanted_since = is_wanted.then_some(NOW);
            let record = StartHistory { read_up_to: read, wanted_since, ..StartHistory::new(key) };
            match retention().messages_up_to(&record, is_open, last_old) {
                Some(up_to) => prop_assert!(up_to <= read && up_to <= last_old && !is_open && !is_wanted),
                None => prop_assert!(is_open || is_wanted || read == 0 || last_old == 0),
            }
            let forever = Retention { chats: None, ..retention() };
            prop_assert_eq!(forever.messages_up_to(&record, is_open, last_old), None);
        }

        #[test]
        fn outputs_go_by_age_and_the_oldest_by_size(outputs in proptest::collection::vec((0i64..1000, 0u64..20), 0..10)) {
            let outputs: Vec<PastOutput> = outputs
                .into_iter()
                .enumerate()
                .map(|(n, (at, size))| PastOutput {
                    launch: id(&format!("l{n}")),
                    ended_at: Timestamp::from_millis(at),
                    size,
                })
                .collect();
            let going = retention().outputs_that_go(outputs.clone(), NOW);
            let kept: Vec<_> = outputs.iter().filter(|output| !going.contains(&output.launch)).collect();
            prop_assert!(kept.iter().map(|output| output.size).sum::<u64>() <= 25);
            prop_assert!(kept.iter().all(|output| output.ended_at.as_millis() >= 940));
            // No output is deleted that is younger than one that stays, and the last deleted one
            // was over a limit.
            let oldest_kept = kept.iter().map(|output| output.ended_at).min();
            let gone = outputs.iter().filter(|output| going.contains(&output.launch));
            prop_assert!(gone.clone().all(|output| oldest_kept.is_none_or(|kept| output.ended_at <= kept)));
        }
    }

    #[test]
    fn events_go_by_age_and_by_number() {
        let check = |oldest, newest, last_old, expected| {
            assert_eq!(retention().events_up_to(EventSpan { oldest, newest }, last_old), expected);
        };
        check(0, 0, 0, None);
        check(1, 5, 0, None);
        check(1, 5, 3, Some(3));
        check(1, 5, 5, Some(4));
        check(1, 30, 0, Some(20));
        check(1, 30, 25, Some(25));
        check(25, 30, 20, None);
    }
}
