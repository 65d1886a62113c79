//! What may be started, as it was last read: its query goes through all work, and most of what happens to instances changes
//! nothing of it. It is forgotten with each commit that may change it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::id::LaunchId;
use crate::domain::{InstanceKey, Launch, LaunchState, PairFacts};
use crate::store::{Change, Commit};

/// Longest answer that is kept: one that is longer is the memory of a crowd that waits.
const MAX_KEPT: usize = 1_000;

#[derive(Debug, Default)]
pub(in super::super) struct Startable(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// Commits that may have changed it: who has read it meanwhile may have missed the last of them.
    n_changes: u64,
    answer: Option<Vec<PairFacts>>,
}

/// Before which change something was read.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct AsOf(u64);

impl Startable {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer, or what [`Startable::keep`] wants to hear from those who read it.
    pub(in super::super) fn find(&self) -> Result<Vec<PairFacts>, AsOf> {
        let kept = self.lock();
        kept.answer.clone().ok_or(AsOf(kept.n_changes))
    }

    /// Keeps what was read since `as_of`, unless something has changed.
    pub(in super::super) fn keep(&self, as_of: AsOf, answer: &[PairFacts]) {
        let mut kept = self.lock();
        if kept.n_changes == as_of.0 && answer.len() <= MAX_KEPT {
            kept.answer = Some(answer.to_vec());
        }
    }

    pub(in super::super) fn forget(&self) {
        let mut kept = self.lock();
        kept.n_changes += 1;
        kept.answer = None;
    }

    /// Forgets the answer if one of `commits` may have changed it. `holder_of` tells whose a launch was before them, if it was open.
    pub(in super::super) fn note<'a>(
        &self,
        commits: impl IntoIterator<Item = &'a Commit>,
        holder_of: impl Fn(&LaunchId) -> Option<InstanceKey>,
    ) {
        let mut changes = commits.into_iter().flat_map(|commit| &commit.changes);
        if changes.any(|change| may_change(change, &holder_of)) {
            self.forget();
        }
    }
}

fn may_change(change: &Change, holder_of: impl Fn(&LaunchId) -> Option<InstanceKey>) -> bool {
    let is_open = |launch: &Launch| !matches!(launch.state, LaunchState::Ended { .. });
    match change {
        Change::Launch(launch) => {
            !(is_open(launch) && holder_of(&launch.id).as_ref() == Some(&launch.key))
        }
        Change::Agent(_)
        | Change::Project(_)
        | Change::Assign(_)
        | Change::Unassign(_)
        | Change::Task(_)
        | Change::Pair(_)
        | Change::Account(_)
        | Change::Pause(_)
        | Change::ForgetLaunch(_) => true,
        Change::Session(_)
        | Change::Execution(_)
        | Change::Notice(_)
        | Change::Message(_)
        | Change::OutputTail(..)
        | Change::Credential(_)
        | Change::ForgetCredential(_)
        | Change::ForgeItem(_)
        | Change::ForgetItem(_)
        | Change::Event(_)
        | Change::ForgetEvents(_)
        | Change::ForgetMessages(..) => false,
    }
}
