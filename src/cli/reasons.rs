//! The reasons that keep an agent from starting, in words for people.

use domain::start_history::StartReason;
use domain::{Language, Purpose};

/// Returns the sentence of a reason.
pub(super) const fn sentence(reason: StartReason, purpose: Purpose) -> &'static str {
    match (reason, purpose) {
        (StartReason::NoWork, Purpose::Task) => "No task of it is in progress",
        (StartReason::NoWork, Purpose::Chat) => "No person wants to chat with it",
        (StartReason::NoWork, Purpose::Check) => "No task of it is to be checked",
        (StartReason::Starting, _) => "It is starting already",
        (StartReason::Running, _) => "It is running already",
        (StartReason::Stopping, _) => "It is stopping, and has not ended yet",
        _ => reason.sentence(Language::English),
    }
}
