//! Checks if the children of a silent agent are at work, because agent CLIs print nothing while a
//! long command runs. [`domain::plan::silence`] decides what counts as work.

use std::time::Duration;

use tokio::time::Instant;

use domain::plan::silence::is_work;
use machine::sys::processes;

/// The bounds of the pause between two measurements. Each measurement reads all processes of this
/// machine.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// The work of the children of one agent.
#[derive(Default)]
pub(super) struct Children {
    /// The time of the last measurement, and the processor time that the children had used by then.
    used: Option<(Instant, Duration)>,
    /// The time when they were last seen at work.
    worked_at: Option<Instant>,
}

impl Children {
    /// Measures the children of the process `pid`, which is silent and may be silent for `limit`.
    pub(super) fn look(&mut self, now: Instant, pid: i32, limit: Duration) {
        let pause = (limit / 20).clamp(PAUSES.0, PAUSES.1);
        if self.used.is_some_and(|(at, _)| now.saturating_duration_since(at) < pause) {
            return;
        }
        let Some(used) = processes::time_used_by_children(pid) else {
            return;
        };
        if let Some((at, before)) = self.used
            && is_work(used.saturating_sub(before), now.saturating_duration_since(at))
        {
            self.worked_at = Some(now);
        }
        self.used = Some((now, used));
    }

    /// Forgets the measurement, because the agent itself gave a sign of life.
    pub(super) fn forget(&mut self) {
        self.used = None;
    }

    /// Returns the time since the children were last seen at work.
    pub(super) fn idle_for(&self, now: Instant) -> Option<Duration> {
        self.worked_at.map(|at| now.saturating_duration_since(at))
    }
}
