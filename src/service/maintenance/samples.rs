//! The load of the daemon, which is written down once a minute.

use crate::domain::Usage;
use crate::domain::series::{Sample, minute_of};
use crate::rows::{launches, samples, tasks};

use super::Maintenance;
use crate::service::ServiceError;

impl Maintenance {
    /// Writes down the load of this minute, unless that was done.
    pub(super) async fn take_sample(&self) -> Result<(), ServiceError> {
        let minute = minute_of(self.core.now());
        let of_ended = self.heard.totals.usage();
        let of_open = self.heard.activities.usage();
        let usage = of_ended.plus(of_open);
        let read = self.core.read(move |tx| {
            let open = launches::list_open(tx)?;
            let running = open.iter().filter(|launch| launch.pid.is_some()).count();
            Ok((running as u64, tasks::count_waiting(tx)?))
        });
        let (running, waiting) = read.await?;
        let sample = Sample {
            minute,
            running,
            waiting,
            tokens: Usage::tokens(&usage),
            cost_usd_micros: usage.cost_usd_micros,
        };
        self.core.write(move |tx| Ok(samples::add(tx, &sample)?)).await
    }
}
