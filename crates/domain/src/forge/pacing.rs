//! Decides when the next request may be sent to a host. A host can ask for a pause, writes keep a
//! distance, and an hour has a budget of writes.
//!
//! Each time is a [`Duration`] since a start that is the same for all of them. `forge::gate` keeps
//! the [`Traffic`] of each host and asks it before each request.

use std::collections::VecDeque;
use std::time::Duration;

use super::{ForgeItem, ForgeKind, ItemEnd, ItemState, PendingWrite, Publish, WorkState};

/// The longest pause that a host can ask for. After that it is asked again.
pub const LONGEST_LIMIT: Duration = Duration::from_hours(1);

/// The period that the budget of writes is for.
const HOUR: Duration = Duration::from_hours(1);
/// Writes that begin within this time after another are counted together. They count for an hour
/// after the last one that could be among them, so the budget errs on the safe side.
const MINUTE: Duration = Duration::from_mins(1);
/// The writes of a claim: the label and the comment of the beginning, and the removal of the bot's
/// label.
const CLAIM_WRITES: u32 = 3;

/// The urgency of a write. The gate sends waiting writes in the order of these variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// It says that work was stopped, which people wait for.
    Stop,
    /// It belongs to work that has begun.
    Work,
    /// It begins new work.
    Claim,
}

impl Urgency {
    /// Returns the urgency of the writes for an item in this state.
    pub const fn of(state: &ItemState) -> Self {
        match state {
            ItemState::Stopping(_) | ItemState::Ended(ItemEnd::Stopped(_)) => Self::Stop,
            ItemState::Claiming { .. } => Self::Claim,
            ItemState::Active(_)
            | ItemState::Pausing
            | ItemState::Paused { .. }
            | ItemState::Ended(ItemEnd::Done | ItemEnd::Expired | ItemEnd::Elsewhere) => Self::Work,
        }
    }
}

/// Returns the number of writes that an item still needs, so that it can end within the budget:
/// those that are pending, and those of its end while it is worked on. An item that was put aside
/// may never go on, so it keeps nothing for its end.
pub fn n_owed(item: &ForgeItem) -> u32 {
    let n_label = match item.key.forge {
        // One request adds a label, and another one removes the label of before.
        ForgeKind::GitHub => 2,
        ForgeKind::GitLab => 1,
    };
    let n_of = |write: &PendingWrite| match write {
        PendingWrite::Claim => CLAIM_WRITES,
        PendingWrite::Label { .. } => n_label,
        PendingWrite::Withdraw | PendingWrite::Comment { .. } | PendingWrite::PullRequest => 1,
        PendingWrite::Push | PendingWrite::Folder { .. } => 0,
    };
    let n_pending: u32 = item.pending.iter().map(n_of).sum();
    let publishes = item.publication.as_ref().is_some_and(|to| to.publish == Publish::PullRequest);
    match item.state {
        ItemState::Claiming { .. }
        | ItemState::Active(WorkState::Processing)
        | ItemState::Pausing
        | ItemState::Stopping(_) => n_pending + n_label + 1 + u32::from(publishes),
        ItemState::Active(WorkState::Blocked | WorkState::Failed)
        | ItemState::Paused { .. }
        | ItemState::Ended(_) => n_pending,
    }
}

/// The limits of the configuration for writes to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The shortest time between two writes.
    pub write_interval: Duration,
    /// The greatest number of writes in an hour; `None` allows any number.
    pub writes_per_hour: Option<u32>,
}

impl Pace {
    /// Returns a pace without limits: writes follow each other without a pause.
    pub const fn unlimited() -> Self {
        Self { write_interval: Duration::ZERO, writes_per_hour: None }
    }
}

/// The record of the requests to a host, as far as it affects the next one.
#[derive(Debug, Clone, Default)]
pub struct Traffic {
    limited_until: Option<Duration>,
    last_write: Option<Duration>,
    /// The beginning of each minute with writes and the number of its writes. The oldest minute
    /// comes first.
    minutes: VecDeque<(Duration, u32)>,
}

/// The reason why the budget of the hour has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shortage {
    /// It is used up.
    UsedUp,
    /// It is kept for the items at work.
    Reserved,
    /// The items at work owe more than it has, until one of them ends. The time is the one of the
    /// next look.
    Owed,
}

/// The reason why a request is not sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The host asked for a pause until this time.
    Limit(Duration),
    /// The budget of the hour has no room until this time.
    Budget(Shortage, Duration),
    /// The last write was too recent. The next one is allowed at this time.
    Interval(Duration),
    /// Another write goes first.
    Queue,
}

impl Traffic {
    /// Records that the host asked for a pause. A shorter pause does not end a longer one.
    pub fn limit(&mut self, now: Duration, pause: Duration) {
        let until = now + pause.min(LONGEST_LIMIT);
        self.limited_until = self.limited_until.max(Some(until));
    }

    /// Returns the end of the pause that the host asked for, if the pause is not over.
    pub fn limited_until(&self, now: Duration) -> Option<Duration> {
        self.limited_until.filter(|until| *until > now)
    }

    /// Decides whether a read may be sent now.
    ///
    /// # Errors
    /// Returns the reason to hold the read.
    pub fn read(&self, now: Duration) -> Result<(), Hold> {
        self.limited_until(now).map_or(Ok(()), |until| Err(Hold::Limit(until)))
    }

    /// Decides whether work of this urgency may begin now, whichever request it sends first.
    ///
    /// # Errors
    /// Returns [`Hold::Limit`] or [`Hold::Budget`].
    pub fn begin(&self, now: Duration, pace: Pace, urgency: Urgency) -> Result<(), Hold> {
        self.read(now)?;
        match (pace.writes_per_hour, urgency) {
            (None, _) | (_, Urgency::Stop) => Ok(()),
            (Some(budget), Urgency::Work | Urgency::Claim) => self
                .check_room(now, budget, 1)
                .map_err(|until| Hold::Budget(Shortage::UsedUp, until)),
        }
    }

    /// Decides whether an item that needs `n_needed` writes may be claimed now. `n_reserved` is the
    /// number of writes that other items of the host owe.
    ///
    /// # Errors
    /// Returns [`Hold::Limit`] or [`Hold::Budget`].
    pub fn claim(
        &self,
        now: Duration,
        pace: Pace,
        n_needed: u32,
        n_reserved: u32,
    ) -> Result<(), Hold> {
        self.read(now)?;
        let Some(budget) = pace.writes_per_hour else { return Ok(()) };
        // One item at a time goes on also with a budget that is smaller than its need.
        let n_own = n_needed.min(budget);
        let n_all = if n_reserved == 0 { n_own } else { n_needed.saturating_add(n_reserved) };
        let shortage = if self.check_room(now, budget, n_own).is_err() {
            Shortage::UsedUp
        } else if n_all > budget {
            Shortage::Owed
        } else {
            Shortage::Reserved
        };
        let room = self.check_room(now, budget, n_all);
        room.map_err(|until| Hold::Budget(shortage, until))
    }

    /// Decides whether a write may be sent now. `is_first` says whether it is the first of those
    /// that wait.
    ///
    /// # Errors
    /// Returns the reason to hold the write.
    pub fn write(
        &self,
        now: Duration,
        pace: Pace,
        urgency: Urgency,
        is_first: bool,
    ) -> Result<(), Hold> {
        self.begin(now, pace, urgency)?;
        if !is_first {
            return Err(Hold::Queue);
        }
        match self.last_write.map(|last| last + pace.write_interval) {
            Some(next_at) if next_at > now => Err(Hold::Interval(next_at)),
            _ => Ok(()),
        }
    }

    /// Records that a write is sent.
    pub fn note_write(&mut self, now: Duration) {
        self.last_write = Some(now);
        self.count(now, now, 1);
    }

    /// Counts `n` writes of the minute that began at `begin`, as recorded before a restart. Minutes
    /// are added in their order.
    pub fn count(&mut self, now: Duration, begin: Duration, n: u32) {
        match self.minutes.back_mut() {
            Some((last, n_writes)) if begin < *last + MINUTE => {
                *n_writes = n_writes.saturating_add(n);
            }
            _ => self.minutes.push_back((begin, n)),
        }
        while self.minutes.front().is_some_and(|(begin, _)| is_over(*begin, now)) {
            self.minutes.pop_front();
        }
    }

    /// Returns the minutes that count, each with its number of writes.
    pub fn minutes(&self, now: Duration) -> impl Iterator<Item = (Duration, u32)> {
        self.minutes.iter().copied().filter(move |(begin, _)| !is_over(*begin, now))
    }

    /// Checks that the budget has room for `n_more` writes.
    ///
    /// # Errors
    /// Returns the time at which it has room. If the whole budget is too small for them, that is
    /// the time at which no present write counts any more.
    fn check_room(&self, now: Duration, budget: u32, n_more: u32) -> Result<(), Duration> {
        if n_more > budget {
            let newest = self.minutes(now).last().map_or(now, |(begin, _)| begin);
            return Err(newest + MINUTE + HOUR);
        }
        let n_sent: u64 = self.minutes(now).map(|(_, n)| u64::from(n)).sum();
        let mut n_writes = n_sent + u64::from(n_more);
        let mut room = Ok(());
        for (begin, n) in self.minutes(now) {
            if n_writes <= u64::from(budget) {
                break;
            }
            n_writes -= u64::from(n);
            room = Err(begin + MINUTE + HOUR);
        }
        room
    }
}

/// Returns whether the writes of a minute no longer count.
fn is_over(begin: Duration, now: Duration) -> bool {
    begin + MINUTE + HOUR <= now
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;
    use crate::forge::labels::LabelState;
    use crate::forge::{Base, FolderPlace, ItemKey, Publication, StopCause};

    const NOW: Duration = Duration::from_hours(5);
    const SECOND: Duration = Duration::from_secs(1);
    const PACE: Pace = Pace { write_interval: SECOND, writes_per_hour: None };
    const WORK: Urgency = Urgency::Work;

    #[test]
    fn a_write_waits_for_its_turn_and_for_the_interval() {
        let now = NOW;
        let mut traffic = Traffic::default();
        assert_eq!(traffic.write(now, PACE, WORK, false), Err(Hold::Queue));
        assert_eq!(traffic.write(now, PACE, WORK, true), Ok(()));
        traffic.note_write(now);
        assert_eq!(traffic.write(now, PACE, WORK, true), Err(Hold::Interval(now + SECOND)));
        assert_eq!(traffic.write(now + SECOND, PACE, WORK, true), Ok(()));
        assert_eq!(traffic.read(now), Ok(()), "reads have no interval");
    }

    #[test]
    fn a_limit_holds_reads_and_writes_and_is_never_shortened() {
        let now = NOW;
        let mut traffic = Traffic::default();
        traffic.limit(now, 9 * SECOND);
        traffic.limit(now, SECOND);
        let until = now + 9 * SECOND;
        for is_first in [true, false] {
            assert_eq!(traffic.write(now + SECOND, PACE, WORK, is_first), Err(Hold::Limit(until)));
        }
        assert_eq!(traffic.read(now + SECOND), Err(Hold::Limit(until)));
        assert_eq!(traffic.read(until), Ok(()));
        assert_eq!(traffic.limited_until(until), None);
    }

    /// Returns the traffic of `n` writes that were one second apart.
    fn after(n: u32, begin: Duration) -> Traffic {
        let mut traffic = Traffic::default();
        (0..n).for_each(|n| traffic.note_write(begin + n * SECOND));
        traffic
    }

    #[test]
    fn a_full_budget_holds_work_until_the_first_minute_is_an_hour_old_and_never_a_stop() {
        let pace = Pace { writes_per_hour: Some(100), ..PACE };
        let traffic = after(100, NOW);
        let now = NOW + 100 * SECOND;
        let room_at = NOW + MINUTE + HOUR;
        assert_eq!(after(99, NOW).write(now, pace, WORK, true), Ok(()));
        let held = Err(Hold::Budget(Shortage::UsedUp, room_at));
        for urgency in [Urgency::Work, Urgency::Claim] {
            assert_eq!(traffic.write(now, pace, urgency, false), held);
            assert_eq!(traffic.begin(now, pace, urgency), held);
        }
        assert_eq!(traffic.write(now, pace, Urgency::Stop, true), Ok(()));
        assert_eq!(traffic.write(now, PACE, Urgency::Claim, true), Ok(()), "without a budget");
        assert_eq!(traffic.write(room_at, pace, WORK, true), Ok(()));
        assert_eq!(traffic.minutes(room_at).collect::<Vec<_>>(), [(NOW + MINUTE, 40)]);
    }

    #[test]
    fn no_hour_has_more_writes_than_the_budget() {
        let pace = Pace { writes_per_hour: Some(7), ..PACE };
        let mut traffic = Traffic::default();
        let mut sent = Vec::new();
        for second in 0..4 * 60 * 60 {
            let now = NOW + second * SECOND;
            if traffic.write(now, pace, WORK, true).is_ok() {
                traffic.note_write(now);
                sent.push(now);
            }
        }
        assert!(sent.windows(8).all(|eight| eight[7] >= eight[0] + HOUR), "{sent:?}");
        assert!(sent.len() >= 21, "each hour has some: {}", sent.len());
    }

    #[test]
    fn a_claim_needs_room_for_its_own_writes_and_for_those_of_the_items_at_work() {
        let now = NOW + 100 * SECOND;
        let room_at = NOW + MINUTE + HOUR;
        let used_up = Err(Hold::Budget(Shortage::UsedUp, room_at));
        let reserved = Err(Hold::Budget(Shortage::Reserved, room_at));
        let owed = Err(Hold::Budget(Shortage::Owed, now + MINUTE + HOUR));
        for (n_sent, budget, n_needed, n_reserved, expected) in [
            (0, 100, 7, 0, Ok(())),
            (93, 100, 7, 0, Ok(())),
            (94, 100, 7, 0, used_up),
            (94, 100, 7, 40, used_up),
            (53, 100, 7, 40, Ok(())),
            (54, 100, 7, 40, reserved),
            (7, 100, 7, 93, reserved),
            (10, 100, 7, 94, Err(Hold::Budget(Shortage::Owed, room_at))),
            // Nothing was written so far, so only the end of an item at work makes room.
            (0, 100, 7, 94, owed),
            (0, 100, 7, u32::MAX, owed),
            // One item at a time, with a budget that is too small for it.
            (0, 1, 7, 0, Ok(())),
            (1, 1, 7, 0, used_up),
            (0, 1, 7, 3, owed),
        ] {
            let pace = Pace { writes_per_hour: Some(budget), ..PACE };
            let found = after(n_sent, NOW).claim(now, pace, n_needed, n_reserved);
            assert_eq!(found, expected, "{n_sent} {budget} {n_needed} {n_reserved}");
        }
        let traffic = after(99, NOW);
        assert_eq!(traffic.claim(now, PACE, 7, u32::MAX), Ok(()), "without a budget");
        let pace = Pace { writes_per_hour: Some(100), ..PACE };
        for urgency in [Urgency::Work, Urgency::Claim] {
            assert_eq!(traffic.begin(now, pace, urgency), Ok(()), "{urgency:?}: it has begun");
        }
    }

    fn example(
        forge: ForgeKind,
        state: ItemState,
        pending: Vec<PendingWrite>,
        publish: Publish,
    ) -> ForgeItem {
        let base = Base {
            target: "main".to_owned(),
            commit: String::new(),
            upstream: String::new(),
            is_read_only: false,
            diff_base: None,
            push_to: None,
        };
        let task = "tsk".parse().expect("an id");
        let agent = "agt".parse().expect("an id");
        let project = "prj".parse().expect("an id");
        let key = ItemKey { forge, ..ItemKey::example() };
        let id = "itm".parse().expect("an id");
        let item = ForgeItem::new(id, task, key, agent, project, Timestamp::from_millis(0));
        let publication = Some(Publication::new(publish, base));
        ForgeItem { state, pending, publication, ..item }
    }

    #[test]
    fn an_item_owes_what_is_pending_and_the_writes_of_its_end() {
        let label = PendingWrite::Label { state: LabelState::Done };
        let comment = PendingWrite::Comment { number: 1, text: String::new() };
        let claiming = ItemState::Claiming { after_comment: None };
        let processing = ItemState::Active(WorkState::Processing);
        let blocked = ItemState::Active(WorkState::Blocked);
        let done = ItemState::Ended(ItemEnd::Done);
        let end = vec![label.clone(), comment.clone()];
        let with_draft = vec![PendingWrite::Push, PendingWrite::PullRequest, label, comment];
        let folder = PendingWrite::Folder { place: FolderPlace::Completed };
        for (state, pending, publish, at_github, at_gitlab) in [
            (claiming.clone(), vec![PendingWrite::Claim], Publish::Nothing, 6, 5),
            (claiming, vec![PendingWrite::Claim], Publish::PullRequest, 7, 6),
            (processing.clone(), Vec::new(), Publish::Nothing, 3, 2),
            (processing.clone(), Vec::new(), Publish::Push, 3, 2),
            (processing.clone(), Vec::new(), Publish::PullRequest, 4, 3),
            (processing, end.clone(), Publish::Nothing, 6, 4),
            (ItemState::Stopping(StopCause::Closed), Vec::new(), Publish::Nothing, 3, 2),
            (blocked.clone(), Vec::new(), Publish::PullRequest, 0, 0),
            (blocked, end, Publish::PullRequest, 3, 2),
            (done.clone(), with_draft, Publish::PullRequest, 4, 3),
            (done, vec![folder], Publish::Push, 0, 0),
        ] {
            for (forge, expected) in
                [(ForgeKind::GitHub, at_github), (ForgeKind::GitLab, at_gitlab)]
            {
                let item = example(forge, state.clone(), pending.clone(), publish);
                assert_eq!(n_owed(&item), expected, "{forge:?} {state:?} {pending:?} {publish:?}");
            }
        }
    }

    #[test]
    fn a_stop_goes_first_and_a_claim_last() {
        let states = [
            ItemState::Claiming { after_comment: None },
            ItemState::Active(WorkState::Failed),
            ItemState::Stopping(StopCause::Closed),
        ];
        let mut urgencies: Vec<Urgency> = states.iter().map(Urgency::of).collect();
        urgencies.sort();
        assert_eq!(urgencies, [Urgency::Stop, Urgency::Work, Urgency::Claim]);
    }

    #[test]
    fn a_limit_lasts_an_hour_at_most() {
        let now = NOW;
        let mut traffic = Traffic::default();
        traffic.limit(now, Duration::MAX);
        assert_eq!(traffic.limited_until(now), Some(now + LONGEST_LIMIT));
    }
}
