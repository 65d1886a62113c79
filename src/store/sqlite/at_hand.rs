//! What is answered without a question to SQLite, because every cycle of a coordinator, every report or every follower asks for it, and
//! a row that SQLite hands over costs many times a copy. Nobody else writes the file: the writing task notes what it has committed before it
//! says so.

mod accounts;
mod newest_events;
mod open_launches;
mod pairs;
mod startable;

use self::accounts::Accounts;
use self::newest_events::NewestEvents;
use self::open_launches::OpenLaunches;
use self::pairs::Pairs;
use self::startable::Startable;
use crate::store::Commit;

/// All of it; empty until it was asked for, or until the first commit.
#[derive(Debug, Default)]
pub(super) struct AtHand {
    pub(super) accounts: Accounts,
    pub(super) newest_events: NewestEvents,
    pub(super) open_launches: OpenLaunches,
    pub(super) pairs: Pairs,
    pub(super) startable: Startable,
}

impl AtHand {
    /// Takes over what was committed, in its order.
    pub(super) fn note<'a>(&self, commits: impl Iterator<Item = &'a Commit> + Clone) {
        // Of a launch that is written it must be known whether it was open before, and whose it was.
        self.startable.note(commits.clone(), |id| self.open_launches.key_of(id));
        self.accounts.note(commits.clone());
        self.pairs.note(commits.clone());
        self.newest_events.note(commits.clone());
        self.open_launches.note(commits);
    }

    /// After a commit of which nobody knows whether it was made, and when the store is closed.
    pub(super) fn forget(&self) {
        self.startable.forget();
        self.accounts.forget();
        self.pairs.forget();
        self.newest_events.forget();
        self.open_launches.forget();
    }
}
