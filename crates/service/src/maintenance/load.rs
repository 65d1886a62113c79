//! The load of the daemon, which is noted once a minute.

use super::Maintenance;
use crate::ServiceError;
use domain::Usage;
use domain::load::{LastHour, Load};
use machine::locks::lock;
use store::rows::launches;

impl Maintenance {
    /// Notes the present load.
    pub(super) async fn note_load(&self) -> Result<(), ServiceError> {
        let open = self.core.read(|tx| Ok(launches::list_open(tx)?)).await?;
        let mut waiting = self.coordinators.deferred(self.core.now());
        waiting.retain(|key| open.iter().all(|launch| launch.key != *key));
        let load = Load {
            running: open.iter().filter(|launch| launch.is_kept()).count(),
            waiting: waiting.len(),
            usage: self.usage(),
        };
        let at = self.clocks.moment().steady;
        lock(&self.loads).add(at, load);
        Ok(())
    }

    /// Returns the load an hour ago, and what was used since then; `None` if this daemon has not
    /// run for an hour.
    pub fn last_hour(&self) -> Option<LastHour> {
        let now = self.clocks.moment().steady;
        let usage = self.usage();
        lock(&self.loads).last_hour(now, usage)
    }

    /// Returns the usage of all launches.
    fn usage(&self) -> Usage {
        self.heard.totals.usage().plus(self.heard.activities.usage())
    }
}
