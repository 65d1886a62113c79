//! The gate of one host: each request to the host passes it right before it is sent.
//!
//! The gate holds requests while the host wants a pause, and lets writes through one after the other, the most urgent first. `domain::forge::pacing`
//! decides; the gate keeps the facts, queues the writes and waits. All parts that talk to a host share its gate, also across a
//! reload.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::ForgeError;
use crate::domain::forge::pacing::{Hold, Pace, Traffic, Urgency};
use crate::nudge::Nudge;

/// The requests to one host.
pub(super) struct Gate {
    /// The beginning that times are counted from.
    beginning: Instant,
    state: Mutex<State>,
    /// Woken when waiting writes must look again: the queue is shorter, or the host asked for a pause.
    moved: Nudge,
}

struct State {
    pace: Pace,
    traffic: Traffic,
    /// The writes that wait, in the order in which they are sent.
    queue: BTreeSet<(Urgency, u64)>,
    n_queued: u64,
}

/// A place in the queue. Dropping it leaves the queue.
struct Place<'a> {
    gate: &'a Gate,
    place: (Urgency, u64),
}

impl Gate {
    pub(super) fn new(pace: Pace) -> Self {
        let (traffic, queue) = (Traffic::default(), BTreeSet::new());
        let state = State { pace, traffic, queue, n_queued: 0 };
        Self { beginning: Instant::now(), state: Mutex::new(state), moved: Nudge::new() }
    }

    pub(super) fn set_pace(&self, pace: Pace) {
        self.lock().pace = pace;
        self.moved.wake();
    }

    /// Returns when the host may be asked again; `None` if it may be asked now.
    pub(super) fn limited_until(&self) -> Option<Instant> {
        self.lock().traffic.limited_until(self.now()).map(|until| self.beginning + until)
    }

    /// Holds all requests for `pause`, as the host asked.
    pub(super) fn limit(&self, pause: Duration) {
        self.lock().traffic.limit(self.now(), pause);
        self.moved.wake();
    }

    /// Lets a read through.
    ///
    /// # Errors
    /// [`ForgeError::Withheld`] while the host wants a pause.
    pub(super) fn read(&self) -> Result<(), ForgeError> {
        self.lock().traffic.read(self.now()).map_err(|hold| self.withheld(hold))
    }

    /// Waits until a write may be sent, and records it as sent. Cancel-safe: a dropped call leaves the queue.
    ///
    /// # Errors
    /// [`ForgeError::Withheld`] if the host wants a pause, also if it asks for it while this write waits.
    pub(super) async fn write(&self, urgency: Urgency) -> Result<(), ForgeError> {
        let place = self.enqueue(urgency);
        let mut moved = self.moved.listen();
        loop {
            let held = {
                let mut state = self.lock();
                let is_first = state.queue.first() == Some(&place.place);
                let held = state.traffic.write(self.now(), state.pace, is_first);
                if held.is_ok() {
                    state.traffic.note_write(self.now());
                }
                held
            };
            match held {
                Ok(()) => return Ok(()),
                Err(Hold::Queue) => moved.woken().await,
                Err(Hold::Interval(at)) => tokio::select! {
                    () = tokio::time::sleep_until(self.beginning + at) => {}
                    () = moved.woken() => {}
                },
                Err(hold @ Hold::Limit(_)) => return Err(self.withheld(hold)),
            }
        }
    }

    fn enqueue(&self, urgency: Urgency) -> Place<'_> {
        let mut state = self.lock();
        state.n_queued += 1;
        let place = (urgency, state.n_queued);
        state.queue.insert(place);
        drop(state);
        Place { gate: self, place }
    }

    /// By tokio's clock, which tests can pause.
    fn now(&self) -> Duration {
        self.beginning.elapsed()
    }

    fn withheld(&self, hold: Hold) -> ForgeError {
        let wait = match hold {
            Hold::Limit(until) | Hold::Interval(until) => until.saturating_sub(self.now()),
            Hold::Queue => Duration::ZERO,
        };
        ForgeError::Withheld { wait }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
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
    const PACE: Pace = Pace { write_interval: SECOND };

    #[tokio::test(start_paused = true)]
    async fn a_write_that_waits_for_its_turn_is_not_sent_after_the_host_asked_for_a_pause() {
        let gate = Arc::new(Gate::new(PACE));
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
        let gate = Gate::new(PACE);
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
    async fn a_dropped_write_leaves_its_place_to_the_next() {
        let gate = Gate::new(PACE);
        let begin = Instant::now();
        gate.write(Urgency::Work).await.expect("the first write waits for nothing");
        let dropped = tokio::time::timeout(SECOND / 2, gate.write(Urgency::Stop)).await;
        assert!(dropped.is_err(), "it waits for its turn");
        gate.write(Urgency::Work).await.expect("there is no limit");
        assert_eq!(begin.elapsed(), SECOND);
        assert!(gate.lock().queue.is_empty());
    }
}
