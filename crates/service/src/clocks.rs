//! Stopwatches for the deadlines of the server. They use a clock that cannot be set
//! ([`domain::stopwatch`]).

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use domain::stopwatch::{AtFirst, ClockReading, Steady, Stopwatches};
use domain::{Launch, LaunchId, LaunchState, NoticeId, SessionId, Timestamp};
use machine::locks::lock;
use runtime::clock;

use super::Heard;
use super::world::World;

/// The subject of a stopwatch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// A claim without a process.
    Claim(LaunchId),
    /// A launch that must end.
    Ladder(LaunchId),
    /// A session, from its beginning.
    Session(LaunchId),
    /// The silence of a session without a process of ours, since the last call that was stored.
    Silence(SessionId, Timestamp),
    /// A notice, before and after it was read.
    Notice(NoticeId, Timestamp),
    /// A chat, from its beginning or from its last message.
    Chat(LaunchId),
}

/// The stopwatches of those who look: each at its own pace.
pub(super) struct Clocks {
    world: Arc<dyn World>,
    began: Instant,
    /// The moment when an age was first asked for.
    first: OnceLock<ClockReading>,
    cleanup: Mutex<Stopwatches<Subject>>,
    overdue: Mutex<Stopwatches<Subject>>,
}

/// The loop that reads a stopwatch.
#[derive(Debug, Clone, Copy)]
pub(super) enum Look {
    Cleanup,
    Overdue,
}

impl Clocks {
    pub(super) fn new(world: Arc<dyn World>) -> Self {
        Self {
            world,
            began: clock::now(),
            first: OnceLock::new(),
            cleanup: Mutex::default(),
            overdue: Mutex::default(),
        }
    }

    fn of(&self, look: Look) -> MutexGuard<'_, Stopwatches<Subject>> {
        let watches = match look {
            Look::Cleanup => &self.cleanup,
            Look::Overdue => &self.overdue,
        };
        lock(watches)
    }

    /// Returns the current time on both clocks.
    pub(super) fn moment(&self) -> ClockReading {
        ClockReading { wall: self.world.now(), steady: Steady::after(self.began.elapsed()) }
    }

    /// Returns the current time for decisions that delete things by their age.
    pub(super) fn now_by_age(&self) -> Timestamp {
        let now = self.moment();
        now.cautious(*self.first.get_or_init(|| now))
    }

    /// Returns the duration of `subject`, which began at `began_at`.
    pub(super) fn lasted(
        &self,
        look: Look,
        subject: Subject,
        began_at: Timestamp,
        at_first: AtFirst,
    ) -> Duration {
        self.of(look).lasted(subject, began_at, self.moment(), at_first)
    }

    /// Returns the duration of `subject`, if an earlier call asked for it.
    pub(super) fn known_to_last(&self, look: Look, subject: &Subject) -> Option<Duration> {
        self.of(look).known(subject, self.moment())
    }

    /// Restarts the stopwatch of `subject`, or starts it for the first time.
    pub(super) fn restart(&self, look: Look, subject: Subject) {
        self.of(look).restart(subject, self.moment());
    }

    /// Ends a pass over all subjects, which began at `began`.
    pub(super) fn end_look(&self, look: Look, began: ClockReading) {
        self.of(look).end_look(began);
    }

    /// Returns the time since the last call of the agent of a running launch; `None` for others.
    pub(super) fn idle_for(&self, heard: &Heard, launch: &Launch) -> Option<Duration> {
        let LaunchState::Running { session } = &launch.state else {
            return None;
        };
        // An agent that ran before this program began may have called just before.
        Some(heard.calls.idle_for(session).unwrap_or_else(|| self.began.elapsed()))
    }
}
