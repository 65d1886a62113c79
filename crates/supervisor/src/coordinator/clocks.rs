//! Measures how long the instances of this coordinator have run and were silent, by monotonic
//! clocks ([`domain::stopwatch`]). The plan decides what is too long.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use super::children::Children;
use super::output_watcher::OutputWatcher;
use crate::provider::Providers;
use domain::plan::silence::{is_long, silence};
use domain::plan::{Elapsed, Limits};
use domain::{Instance, LaunchFacts, LaunchId, LaunchState, Phase, Purpose, Timestamp};
use machine::instance_dir::{self, clock::MonotonicInstant, record};

/// The measurements of each instance, for as long as the instance exists.
#[derive(Default)]
pub(super) struct Clocks(BTreeMap<LaunchId, Clock>);

#[derive(Default)]
struct Clock {
    /// The time until which it must have started. A later change of the setting applies only to
    /// other starts.
    deadline: Option<Instant>,
    /// The time since which it is known to run, and its runtime before then.
    ran: Option<(Instant, Duration)>,
    /// The time since which it is known to be silent for too long.
    suspected: Option<Instant>,
    children: Children,
    /// The time of the stop sequence that the server named, and the same moment on this machine's
    /// monotonic clock.
    stop_due: Option<(Timestamp, Instant)>,
}

/// The instances and their launches at one moment.
pub(super) struct Observation<'a> {
    pub(super) now: Instant,
    /// The same moment on the server's clock.
    pub(super) at: Timestamp,
    pub(super) instances: &'a [Instance],
    pub(super) launches: &'a [LaunchFacts],
    pub(super) limits: &'a Limits,
    pub(super) providers: &'a Providers,
    pub(super) state_dir: &'a Path,
}

impl Clocks {
    /// Returns the measurements of the observed instances. Forgets all other instances.
    pub(super) fn measure(
        &mut self,
        seen: &Observation<'_>,
        output_watcher: &OutputWatcher,
    ) -> BTreeMap<LaunchId, Elapsed> {
        let Observation { now, at, instances, launches, limits, providers, state_dir } = *seen;
        let launches: BTreeMap<&LaunchId, &LaunchFacts> =
            launches.iter().map(|launch| (&launch.id, launch)).collect();
        let mut before = std::mem::take(&mut self.0);
        let quiet_for = output_watcher.quiet_for(now);
        let mut clocks = Vec::new();
        let mut shown = Vec::new();
        for instance in instances.iter().filter(|instance| instance.is_live()) {
            let id = &instance.launch;
            let mut clock = before.get_mut(id).map(std::mem::take).unwrap_or_default();
            if clock.ran.is_none() && matches!(instance.phase, Phase::Running { .. }) {
                clock.ran = Some((now, ran_before(state_dir, id).unwrap_or_default()));
            }
            let launch = launches.get(id);
            if let Some(LaunchState::Starting { deadline }) = launch.map(|launch| &launch.state) {
                // An instance that was found after its deadline gets the whole timeout: the start
                // deadline of its shim is the final limit.
                let left = Some(deadline.since(at)).filter(|left| !left.is_zero());
                // The deadline of a check is its own time limit.
                let is_check = launch.is_some_and(|launch| launch.key.purpose == Purpose::Check);
                let most = limits.start_timeout.filter(|_| !is_check).unwrap_or(Duration::MAX);
                let left = left.or(limits.start_timeout).unwrap_or_default().min(most);
                clock.deadline = clock.deadline.or(now.checked_add(left));
            }
            clock.stop_due = match launch.map(|launch| &launch.state) {
                // A clock that jumps from now on does not move it.
                Some(LaunchState::Stopping { stop_at, .. }) => match clock.stop_due {
                    Some((same, due)) if same == *stop_at => Some((same, due)),
                    _ => Some((*stop_at, now + stop_at.since(at).min(limits.run.linger))),
                },
                _ => None,
            };
            let mut elapsed = Elapsed {
                until_deadline: clock.deadline.map(|due| due.saturating_duration_since(now)),
                ran: clock.ran.map(|(since, before)| before + (now - since)),
                quiet: quiet_for(id),
                is_stream: launch.is_some_and(|launch| providers.prints_stream(&launch.ai_type)),
                suspected: None,
                until_stop: clock.stop_due.map(|(_, due)| due.saturating_duration_since(now)),
            };
            let limit = limits.run.silence_timeout.of(&elapsed);
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

/// Returns how long the agent had run before, from the shim's record: the agent may be older than
/// this daemon.
fn ran_before(state_dir: &Path, launch: &LaunchId) -> Option<Duration> {
    let dir = instance_dir::find(state_dir, launch)?;
    let started: record::Started = record::read(&dir).ok().flatten()?;
    Some(MonotonicInstant::now().since(started.started_monotonic_ms?))
}
