//! The gate of one host: each request to the host passes it right before it is sent.
//!
//! The gate holds requests while the host wants a pause, and lets writes through one after the
//! other, the most urgent first. `domain::forge::pacing` decides; the gate keeps the facts, queues
//! the writes and waits. All parts that talk to a host share its gate, also across a reload.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::ForgeError;
use domain::forge::pacing::{Hold, Pace, Shortage, Traffic, Urgency};
use machine::locks::lock;
use runtime::clock;
use runtime::nudge::Nudge;

/// The time at which a gate is made, as `domain::forge::pacing` counts it. Writes from before that
/// are counted, too.
const FIRST: Duration = Duration::from_hours(24);

/// The limit that keeps work from beginning, and its end. A used-up budget comes before a reserved
/// one, and then the earlier end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Held {
    /// The host asked for a pause.
    Limit(Instant),
    /// The budget of the hour has no room.
    Budget(Shortage, Instant),
}

impl Held {
    pub(super) const fn until(self) -> Instant {
        match self {
            Self::Limit(until) | Self::Budget(_, until) => until,
        }
    }
}

/// The requests to one host.
pub(super) struct Gate {
    /// The instant that is called [`FIRST`].
    beginning: Instant,
    state: Mutex<State>,
    /// Woken when waiting writes must look again: the queue is shorter, or the host asked for a
    /// pause.
    moved: Nudge,
    /// Woken after each write.
    written: Nudge,
}

struct State {
    pace: Pace,
    traffic: Traffic,
    /// The waiting writes, in the order in which they are sent.
    queue: BTreeSet<(Urgency, u64)>,
    n_queued: u64,
    /// The time of the last log line about a used-up budget.
    budget_logged_at: Option<Instant>,
}

/// A place in the queue. Dropping it leaves the queue.
struct QueuePosition<'a> {
    gate: &'a Gate,
    place: (Urgency, u64),
}

impl Gate {
    /// Creates a gate, which wakes `written` after each write.
    pub(super) fn new(pace: Pace, written: Nudge) -> Self {
        let traffic = Traffic::default();
        let queue = BTreeSet::new();
        let state = State { pace, traffic, queue, n_queued: 0, budget_logged_at: None };
        Self { beginning: clock::now(), state: Mutex::new(state), moved: Nudge::new(), written }
    }

    pub(super) fn set_pace(&self, pace: Pace) {
        self.lock().pace = pace;
        self.moved.wake();
    }

    /// Returns when the host may be asked again; `None` if it may be asked now.
    pub(super) fn limited_until(&self) -> Option<Instant> {
        self.lock().traffic.limited_until(self.now()).map(|until| self.at(until))
    }

    /// Holds all requests for `pause`, as the host asked.
    pub(super) fn limit(&self, pause: Duration) {
        self.lock().traffic.limit(self.now(), pause);
        self.moved.wake();
    }

    /// Returns the limit that keeps work of this urgency from beginning now.
    pub(super) fn held(&self, urgency: Urgency) -> Option<Held> {
        let state = self.lock();
        self.held_by(state.traffic.begin(self.now(), state.pace, urgency))
    }

    /// Returns the limit that keeps an item from being claimed now. It needs this number of writes,
    /// and other items of the host owe `n_reserved`.
    pub(super) fn held_claim(&self, n_needed: u32, n_reserved: u32) -> Option<Held> {
        let state = self.lock();
        self.held_by(state.traffic.claim(self.now(), state.pace, n_needed, n_reserved))
    }

    fn held_by(&self, decided: Result<(), Hold>) -> Option<Held> {
        match decided {
            Err(Hold::Budget(shortage, until)) => Some(Held::Budget(shortage, self.at(until))),
            Err(Hold::Limit(until) | Hold::Interval(until)) => Some(Held::Limit(self.at(until))),
            Ok(()) | Err(Hold::Queue) => None,
        }
    }

    /// Returns whether it is to be logged that writes wait for the budget: not if it was within the
    /// last hour.
    pub(super) fn is_budget_news(&self) -> bool {
        let mut state = self.lock();
        let is_news =
            state.budget_logged_at.is_none_or(|at| at.elapsed() >= Duration::from_hours(1));
        if is_news {
            state.budget_logged_at = Some(clock::now());
        }
        is_news
    }

    /// Returns the age of each minute with writes that counts for the budget, and its number of
    /// writes.
    pub(super) fn writes(&self) -> Vec<(Duration, u32)> {
        let now = self.now();
        self.lock().traffic.minutes(now).map(|(begin, n)| (now.saturating_sub(begin), n)).collect()
    }

    /// Counts writes of a minute that began so long ago. Minutes are added in their order.
    pub(super) fn count(&self, ago: Duration, n: u32) {
        let now = self.now();
        self.lock().traffic.count(now, now.saturating_sub(ago), n);
    }

    /// Lets a read through.
    ///
    /// # Errors
    /// [`ForgeError::Withheld`] while the host wants a pause.
    pub(super) fn read(&self) -> Result<(), ForgeError> {
        self.lock().traffic.read(self.now()).map_err(|hold| self.withheld(hold))
    }

    /// Waits until a write may be sent, and records it as sent. Cancel-safe: a dropped call leaves
    /// the queue.
    ///
    /// # Errors
    /// Returns [`ForgeError::Withheld`] if the host wants a pause, also if it asks for it while
    /// this write waits. Returns [`ForgeError::OverBudget`] if the budget of the hour is used up.
    pub(super) async fn write(&self, urgency: Urgency) -> Result<(), ForgeError> {
        let place = self.enqueue(urgency);
        let mut moved = self.moved.listen();
        loop {
            let held = {
                let mut state = self.lock();
                let is_first = state.queue.first() == Some(&place.place);
                let held = state.traffic.write(self.now(), state.pace, urgency, is_first);
                if held.is_ok() {
                    state.traffic.note_write(self.now());
                    self.written.wake();
                }
                held
            };
            match held {
                Ok(()) => return Ok(()),
                Err(Hold::Queue) => moved.woken().await,
                Err(Hold::Interval(at)) => tokio::select! {
                    () = tokio::time::sleep_until(self.at(at)) => {}
                    () = moved.woken() => {}
                },
                Err(hold @ (Hold::Limit(_) | Hold::Budget(..))) => return Err(self.withheld(hold)),
            }
        }
    }

    fn enqueue(&self, urgency: Urgency) -> QueuePosition<'_> {
        let mut state = self.lock();
        state.n_queued += 1;
        let place = (urgency, state.n_queued);
        state.queue.insert(place);
        drop(state);
        QueuePosition { gate: self, place }
    }

    /// Returns the time of tokio's clock, which tests can pause.
    fn now(&self) -> Duration {
        FIRST + self.beginning.elapsed()
    }

    fn at(&self, time: Duration) -> Instant {
        self.beginning + time.saturating_sub(FIRST)
    }

    fn withheld(&self, hold: Hold) -> ForgeError {
        let wait = |until: Duration| until.saturating_sub(self.now());
        match hold {
            Hold::Budget(_, until) => ForgeError::OverBudget { wait: wait(until) },
            Hold::Limit(until) | Hold::Interval(until) => {
                ForgeError::Withheld { wait: wait(until) }
            }
            Hold::Queue => ForgeError::Withheld { wait: Duration::ZERO },
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        self.gate.lock().queue.remove(&self.place);
        self.gate.moved.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PACE: Pace = Pace { write_interval: SECOND, writes_per_hour: None };

    fn gate() -> Gate {
        Gate::new(PACE, Nudge::new())
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_waits_for_its_turn_is_not_sent_after_the_host_asked_for_a_pause() {
        let gate = Arc::new(gate());
        gate.write(Urgency::Work).await.expect("the first write waits for nothing");
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let gate = Arc::clone(&gate);
                tokio::spawn(async move { gate.write(Urgency::Work).await })
            })
            .collect();
        tokio::task::yield_now().await;
        gate.limit(60 * SECOND);
        for write in waiting {
            let answer = write.await.expect("it does not panic");
            assert_eq!(answer, Err(ForgeError::Withheld { wait: 60 * SECOND }));
        }
        assert_eq!(gate.read(), Err(ForgeError::Withheld { wait: 60 * SECOND }));
        tokio::time::advance(60 * SECOND).await;
        assert_eq!((gate.read(), gate.write(Urgency::Claim).await), (Ok(()), Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn the_most_urgent_write_goes_next_and_equals_go_in_their_order() {
        let gate = gate();
        gate.write(Urgency::Work).await.expect("the first write waits for nothing");
        let sent = Mutex::new(Vec::new());
        let write = async |urgency: Urgency, name: &'static str| {
            gate.write(urgency).await.expect("there is no limit");
            sent.lock().unwrap().push(name);
        };
        tokio::join!(
            write(Urgency::Claim, "claim 1"),
            write(Urgency::Claim, "claim 2"),
            write(Urgency::Work, "work"),
            async {
                tokio::time::sleep(SECOND / 2).await;
                write(Urgency::Stop, "stop").await;
            }
        );
        assert_eq!(*sent.lock().unwrap(), ["stop", "work", "claim 1", "claim 2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_over_the_budget_leaves_the_queue_and_a_stop_is_sent() {
        let gate = gate();
        gate.set_pace(Pace { write_interval: Duration::ZERO, writes_per_hour: Some(1) });
        assert_eq!(gate.held(Urgency::Claim), None);
        gate.write(Urgency::Claim).await.expect("the budget has room");
        let wait = Duration::from_mins(61);
        let over = Err(ForgeError::OverBudget { wait });
        assert_eq!(gate.write(Urgency::Work).await, over);
        let held = Held::Budget(Shortage::UsedUp, Instant::now() + wait);
        assert_eq!(gate.held(Urgency::Work), Some(held));
        assert_eq!((gate.held(Urgency::Stop), gate.write(Urgency::Stop).await), (None, Ok(())));
        assert_eq!(gate.writes(), [(Duration::ZERO, 2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_write_leaves_its_place_to_the_next() {
        let gate = gate();
        let begin = Instant::now();
        gate.write(Urgency::Work).await.expect("the first write waits for nothing");
        let dropped = tokio::time::timeout(SECOND / 2, gate.write(Urgency::Stop)).await;
        assert!(dropped.is_err(), "it waits for its turn");
        gate.write(Urgency::Work).await.expect("there is no limit");
        assert_eq!(begin.elapsed(), SECOND);
        assert!(gate.lock().queue.is_empty());
    }
}
