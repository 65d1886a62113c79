//! The rate of new sessions for one agent in one project.
//!
//! Each session is a row of the store, and a client that authenticates and logs out in a loop would
//! fill it. The limit of calls does not help, because it belongs to the session and begins anew
//! with each one.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use domain::id::{AgentId, ProjectId};
use domain::rate::{Bucket, Rate};
use machine::locks::lock;
use runtime::clock;
use runtime::lru::Lru;

/// The limit is far above the needs of people and restarts of agents.
const LIMIT: Rate = Rate { burst: 30, interval: Duration::from_secs(2) };
/// The number of known pairs: more than there are open sessions by passkeys. A forgotten pair may
/// open as many sessions as after a pause.
const MAX_KNOWN: usize = 8192;

/// The buckets.
#[derive(Debug)]
pub(crate) struct SessionRate {
    began: Instant,
    buckets: Mutex<Lru<(AgentId, ProjectId), Bucket>>,
}

impl Default for SessionRate {
    fn default() -> Self {
        Self { began: clock::now(), buckets: Mutex::new(Lru::of(MAX_KNOWN)) }
    }
}

impl SessionRate {
    /// Counts a session that is about to be opened. Returns `false` if the limit is reached.
    pub(crate) fn take(&self, agent: &AgentId, project: &ProjectId) -> bool {
        let now = self.began.elapsed();
        self.lock().touch(&(agent.clone(), project.clone())).take(LIMIT, now)
    }

    /// Takes back the count of a session that was not opened.
    pub(crate) fn give_back(&self, agent: &AgentId, project: &ProjectId) {
        self.lock().touch(&(agent.clone(), project.clone())).give_back();
    }

    fn lock(&self) -> MutexGuard<'_, Lru<(AgentId, ProjectId), Bucket>> {
        lock(&self.buckets)
    }
}
