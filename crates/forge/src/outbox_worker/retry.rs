//! Decides whether a write that failed is tried again or given up.

use super::WriteError;
use crate::ForgeError;
use crate::host_state::Unanswered;
use domain::forge::{PendingWrite, Setback};
use domain::workspace::RemoteError;

/// The number of attempts to set a forbidden label, over more than an hour.
pub(super) const MAX_FORBIDDEN: u32 = 20;
/// The number of attempts after which a refused write is given up.
const MAX_REFUSALS: u32 = 5;

/// The next step after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing was tried. The write stays pending until the host may be asked again.
    Wait,
    TryAgain,
    GiveUp,
}

impl WriteError {
    /// Returns whether the forge refused the write or gave no answer, and if it was sent.
    pub(super) const fn setback(&self) -> Setback {
        match self {
            Self::Unanswered(Unanswered::Failed(
                ForgeError::Forbidden { .. }
                | ForgeError::NotFound { .. }
                | ForgeError::Moved { .. }
                | ForgeError::Refused { .. },
            ))
            | Self::Remote(RemoteError::Refused(_)) => Setback::Refused,
            Self::Lost(_) => Setback::Lost,
            _ => Setback::Unanswered,
        }
    }
}

/// Decides the next step after a failure. Failures that waiting cannot repair are given up. All
/// others are tried until they succeed.
pub(super) fn next_after(failure: &WriteError, write: &PendingWrite, n_refusals: u32) -> Next {
    let WriteError::Unanswered(Unanswered::Failed(error)) = failure else {
        return match failure {
            WriteError::Held
            | WriteError::Unanswered(Unanswered::Closed | Unanswered::OverBudget) => Next::Wait,
            // A person locked the item, and comments are not worth a wait.
            WriteError::Locked => Next::GiveUp,
            // A person may give the token the right, or change the rules of the repository.
            WriteError::Remote(RemoteError::Refused(_)) if n_refusals >= MAX_FORBIDDEN => {
                Next::GiveUp
            }
            _ => Next::TryAgain,
        };
    };
    let is_last = n_refusals + 1 >= MAX_REFUSALS;
    match error {
        // The object of the write is gone, confirmed twice.
        ForgeError::NotFound { .. } | ForgeError::Moved { status: 301 | 308, .. }
            if n_refusals >= 1 && *write != PendingWrite::Claim =>
        {
            Next::GiveUp
        }
        // A right may be missing, and some comments are always rejected.
        ForgeError::Forbidden { .. }
            if is_last
                && matches!(write, PendingWrite::Comment { .. } | PendingWrite::Withdraw) =>
        {
            Next::GiveUp
        }
        // A label is worth more attempts, but the writes after it are more important.
        ForgeError::Forbidden { .. }
            if n_refusals >= MAX_FORBIDDEN && matches!(write, PendingWrite::Label { .. }) =>
        {
            Next::GiveUp
        }
        ForgeError::Refused { .. } | ForgeError::Forbidden { .. }
            if matches!(write, PendingWrite::Push | PendingWrite::PullRequest) =>
        {
            if n_refusals >= MAX_FORBIDDEN { Next::GiveUp } else { Next::TryAgain }
        }
        ForgeError::Refused { .. } if is_last && *write != PendingWrite::Claim => Next::GiveUp,
        _ => Next::TryAgain,
    }
}
