//! How long this coordinator's instances have run, and for how long they were silent: by clocks that nobody sets
//! ([`crate::domain::stopwatch`]). What is too long is decided by the plan.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use super::children::Children;
use super::ears::Ears;
use crate::domain::plan::silence::{is_long, silence};
use crate::domain::plan::{Elapsed, Limits};
use crate::domain::{Instance, LaunchFacts, LaunchId, LaunchState, Phase, Timestamp};
use crate::instance_dir::{self, clock::MonotonicInstant, record};

/// What is remembered of each instance, as long as it is there.
#[derive(Default)]
pub(super) struct Clocks(BTreeMap<LaunchId, Clock>);

#[derive(Default)]
struct Clock {
    /// Until when it is to have started. What is changed later counts for other starts.
    deadline: Option<Instant>,
    /// Since when it is known to run, and for how long it had then.
    ran: Option<(Instant, Duration)>,
    /// Since when it is known to be silent for too long.
    suspected: Option<Instant>,
    children: Children,
    /// The ladder that its server named, and when that is.
    ladder: Option<(Timestamp, Instant)>,
}

impl Clocks {
    /// What the clocks show of each of these at `now`, which is `at` on the server's clock; forgets all others.
    pub(super) fn look(
        &mut self,
        (now, at): (Instant, Timestamp),
        instances: &[Instance],
        launches: &[LaunchFacts],
        ears: &Ears,
        (state_dir, is_stream): (&Path, &dyn Fn(&str) -> bool),
        limits: &Limits,
    ) -> BTreeMap<LaunchId, Elapsed> {
        let launches: BTreeMap<&LaunchId, &LaunchFacts> =
            launches.iter().map(|launch| (&launch.id, launch)).collect();
        let mut before = std::mem::take(&mut self.0);
        let quiet_for = ears.quiet_for(now);
        let (mut clocks, mut shown) = (Vec::new(), Vec::new());
        for instance in instances.iter().filter(|instance| instance.is_live()) {
            let id = &instance.launch;
            let mut clock = before.get_mut(id).map(std::mem::take).unwrap_or_default();
            if clock.ran.is_none() && matches!(instance.phase, Phase::Running { .. }) {
                clock.ran = Some((now, ran_before(state_dir, id).unwrap_or_default()));
            }
            let launch = launches.get(id);
            if let Some(LaunchState::Starting { deadline }) = launch.map(|launch| &launch.state) {
                // One that was found late has all its time: its keeper's fuse is the last word.
                let left = Some(deadline.since(at)).filter(|left| !left.is_zero());
                let most = limits.start_timeout.unwrap_or(Duration::MAX);
                let left = left.or(limits.start_timeout).unwrap_or_default().min(most);
                clock.deadline = clock.deadline.or(now.checked_add(left));
            }
            clock.ladder = match launch.map(|launch| &launch.state) {
                // A clock that jumps from now on moves it no more.
                Some(LaunchState::Stopping { ladder_at, .. }) => match clock.ladder {
                    Some((same, due)) if same == *ladder_at => Some((same, due)),
                    _ => Some((*ladder_at, now + ladder_at.since(at).min(limits.linger))),
                },
                _ => None,
            };
            let mut elapsed = Elapsed {
                until_deadline: clock.deadline.map(|due| due.saturating_duration_since(now)),
                ran: clock.ran.map(|(since, before)| before + (now - since)),
                quiet: quiet_for(id),
                is_stream: launch.is_some_and(|launch| is_stream(&launch.ai_type)),
                suspected: None,
                until_ladder: clock.ladder.map(|(_, due)| due.saturating_duration_since(now)),
            };
            let limit = limits.silence.of(&elapsed);
            let silent =
                |elapsed: &Elapsed| launch.and_then(|launch| silence(elapsed, launch)).zip(limit);
            match (
                silent(&elapsed).filter(|(silent, most)| is_long(*silent, *most)),
                &instance.phase,
            ) {
                (Some((_, most)), Phase::Running { pid, .. }) => {
                    clock.children.look(now, *pid, most);
                }
                _ => clock.children.forget(),
            }
            let at_work = clock.children.idle_for(now);
            elapsed.quiet =
                elapsed.quiet.map(|quiet| at_work.map_or(quiet, |idle| quiet.min(idle)));
            let is_silent = silent(&elapsed);
            clock.suspected = clock
                .suspected
                .or(Some(now))
                .filter(|_| is_silent.is_some_and(|(silent, most)| silent >= most));
            elapsed.suspected = clock.suspected.map(|since| now - since);
            shown.push((id.clone(), elapsed));
            clocks.push((id.clone(), clock));
        }
        self.0 = clocks.into_iter().collect();
        shown.into_iter().collect()
    }
}

/// How long its agent had run, by what its keeper wrote down: it may be older than this daemon.
fn ran_before(state_dir: &Path, launch: &LaunchId) -> Option<Duration> {
    let dir = instance_dir::find(state_dir, launch)?;
    let started: record::Started = record::read(&dir).ok().flatten()?;
    Some(MonotonicInstant::now().since(started.started_monotonic_ms?))
}
