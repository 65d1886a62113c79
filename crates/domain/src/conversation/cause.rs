//! The causes of an interruption, from the end of the launch before it.

use crate::activity::FailureClass;
use crate::launch::{Launch, Outcome, StopReason, TimeLimit};
use crate::words::words;

words! {
    /// The cause for which the last launch in a conversation ended.
    pub enum Cause as "cause of an interruption" {
        /// It reported success, and there is more to do.
        Reported = "reported",
        Blocked = "blocked",
        Failed = "failed",
        /// A person stopped it.
        Person = "person",
        /// It was stopped together with the coordinator.
        Shutdown = "shutdown",
        /// It was stopped for another reason.
        Stopped = "stopped",
        Quota = "quota",
        Login = "login",
        Overload = "overload",
        TooLong = "too_long",
        Silent = "silent",
        /// It ended without a report.
        Exited = "exited",
        /// Its end was not observed, as after a crash of the machine.
        Lost = "lost",
    }
}

impl Cause {
    /// Returns the cause; `Lost` if the launch is not kept any more.
    pub fn of(last: Option<&Launch>) -> Self {
        let Some((outcome, _)) = last.and_then(Launch::as_ended) else {
            return Self::Lost;
        };
        let class = last.and_then(|launch| launch.activity.failure).map(|failure| failure.class);
        match outcome {
            Outcome::Completed => Self::Reported,
            Outcome::Blocked => Self::Blocked,
            Outcome::Failed => Self::Failed,
            Outcome::Stopped(StopReason::Person | StopReason::StopAll) => Self::Person,
            Outcome::Stopped(StopReason::Shutdown) => Self::Shutdown,
            Outcome::Stopped(_) => Self::Stopped,
            Outcome::TimedOut(TimeLimit::Silence | TimeLimit::SessionIdle) => Self::Silent,
            Outcome::TimedOut(_) => Self::TooLong,
            Outcome::Lost => Self::Lost,
            Outcome::ExitedWithoutReport
            | Outcome::NeverAuthenticated
            | Outcome::StartFailed(_) => match class {
                Some(FailureClass::Quota) => Self::Quota,
                Some(FailureClass::Auth) => Self::Login,
                Some(FailureClass::Overload) => Self::Overload,
                Some(FailureClass::Config | FailureClass::Crash) | None => Self::Exited,
            },
        }
    }
}
